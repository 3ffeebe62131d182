"""Escapes text of a store for a terminal. Called wherever keys and names of classes are printed or drawn.

A key or a class name may contain any character. If printed as it is, an escape sequence changes the terminal, a newline
forges a line of output, and a lone surrogate (from a file name that is not UTF-8) cannot be written.
"""

from __future__ import annotations

__all__ = ["escape_unprintable"]


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
