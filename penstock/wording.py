"""Words of messages: counts with their nouns, and text of a store that is safe for a terminal.

A key or a class name may contain any character. If printed as it is, an escape sequence changes the terminal, a newline
forges a line of output, and a lone surrogate (from a file name that is not UTF-8) cannot be written.
"""

from __future__ import annotations

__all__ = ["counted", "escape_unprintable", "format_bytes"]


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


def format_bytes(count: float) -> str:
    """A number of bytes with its unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def escape_unprintable(text: str) -> str:
    r"""Escape every character that is not printable, as Python does in a string literal.

    Examples
    --------
    >>> print(escape_unprintable("caf\u00e9 \x1b[31m red"))
    café \x1b[31m red
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
