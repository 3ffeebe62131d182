"""Formats counts in messages: "1 image", "2 images"."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Format a number and a noun; the noun is plural unless the number is 1.

    Parameters
    ----------
    number : int
        The count; formatted with separators between thousands.
    noun : str
        The noun in the singular; if it has several words, the last one gets the plural.

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
