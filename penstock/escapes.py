"""Text of a store's, made fit for a terminal: called wherever names and keys are printed or drawn.

A key or a class name may hold any character. Printed raw, an escape sequence changes the terminal, a newline forges a
line of output, and a lone surrogate (a file name that is no UTF-8) cannot be written at all.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text, with every character that is not printable written as Python would write it in a string.

    Examples
    --------
    >>> print(printable("caf\u00e9 \x1b[31m red"))
    café \x1b[31m red
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
