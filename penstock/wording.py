"""Words of messages: counts with their nouns, text of a store that is safe for a terminal, results as JSON.

A key or a class name may contain any character. If printed as it is, an escape sequence changes the terminal, a newline
forges a line of output, and a lone surrogate (from a file name that is not UTF-8) cannot be written.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

__all__ = ["counted", "escape_unprintable", "format_bytes", "to_plain"]


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


def to_plain(value: object) -> object:
    """The value as ``json.dumps`` takes it.

    Dataclasses, named tuples and mappings become dicts, arrays and other sequences lists, numbers that are not finite
    None, and other objects text. What has a method ``to_json`` is asked for that.
    """
    for name in ("to_json", "_asdict", "tolist"):
        if (convert := getattr(value, name, None)) is not None and not isinstance(value, type):
            return to_plain(convert())
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
