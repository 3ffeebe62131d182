"""Counts in messages: "1 image", "2 images". Called wherever a message counts something."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """The number and the noun, in its plural unless there is one.

    Parameters
    ----------
    number : int
        How many; written with separators between thousands.
    noun : str
        In the singular; of several words, the last one is changed.

    Examples
    --------
    >>> counted(1, "image"), counted(1200, "class"), counted(0, "entry")
    ('1 image', '1,200 classes', '0 entries')
    """
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
