"""Words of messages and of reprs: counts with nouns, text that is safe for a terminal, objects in one line or as JSON.

A key or a class name may contain any character. If printed as it is, an escape sequence changes the terminal, a newline
forges a line of output, and a lone surrogate (from a file name that is not UTF-8) cannot be written.

A ``repr`` reads attributes that are there. It calls nothing of the user's, opens, draws and counts nothing, and never
prints an array. A notebook (Jupyter, Colab, VS Code) calls ``_repr_html_``, which :mod:`penstock.sheets.notebook`
makes; it is imported by its name when a notebook asks, because it lies above what it shows.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Iterable, Mapping

__all__ = [
    "NotebookView", "ShortRepr", "counted", "describe_value", "escape_unprintable", "format_bytes",
    "format_time_us", "generalise", "list_problems", "list_public_names", "to_plain",
]  # fmt: skip

_MOST_TEXT = 60
_SAME_PROBLEM = 5
_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|\[[^\]]*\]|(?<!\S)/[^;,]+|[-+]?[0-9][0-9.e+,-]*( x [0-9]+)?")
_MOST_ENTRIES = 6
_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


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


def generalise(reason: str, name: str = "") -> str:
    """Say what is wrong without names, numbers, absolute paths: equal for the same problem of another file or line.

    ``name``: that of the entry, which is left out too.
    """
    return _VALUE.sub("...", reason.replace(name, "...") if len(name) > 1 and not name.isdecimal() else reason)


def list_problems(entries: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each name and reason, five at most for the same problem, and how many more have it."""
    by_kind: dict[str, list[str]] = {}
    for name, reason in entries:
        by_kind.setdefault(generalise(reason, name), []).append(f"{name}: {reason}" if name else reason)
    lines = []
    for kind, found in by_kind.items():
        lines += found[:_SAME_PROBLEM]
        if len(found) > _SAME_PROBLEM:
            lines.append(f"... and {len(found) - _SAME_PROBLEM:,} more: {kind}")
    return lines


def format_bytes(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_time_us(time_us: float) -> str:
    """Return a time in the unit that leaves three digits.

    Examples
    --------
    >>> format_time_us(0.42), format_time_us(1234.0), format_time_us(2_500_000.0)
    ('0.42 us', '1.23 ms', '2.5 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= 0.9995 * size:
            return f"{_round(time_us / size)} {unit}"
    return f"{_round(time_us)} us"


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
    """Return the value as ``json.dumps`` takes it.

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


class NotebookView:
    """A base of what is drawn in a notebook: pictures, labels, boxes, fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return HTML, which notebooks show in place of ``repr``."""
        html: str = importlib.import_module("penstock.sheets.notebook").render(self)
        return html


class ShortRepr:
    """A base of classes whose ``repr`` is their name and their public attributes, in one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        attributes = getattr(self, "__dict__", {}).items()
        parts = [f"{name}={describe_value(value)}" for name, value in attributes if not name.startswith("_")]
        return f"{type(self).__name__}({', '.join(parts)})"


def describe_value(value: object) -> str:
    """Return a number or a short text as it is; of others type, and length or shape. At most some 300 characters."""
    if isinstance(value, list | tuple | dict) and type(value) in _BRACKETS:
        return _describe_entries(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}...")
    if value is None or isinstance(value, bool | int | float | complex):
        return f"{value!r:.{_MOST_TEXT}}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{memoryview(value).nbytes:,} bytes"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{dtype}[{', '.join(map(str, shape))}]"
    return type(value).__name__


def _describe_entries(value: list[object] | tuple[object, ...] | dict[object, object]) -> str:
    """Return a few entries, of which those that are containers themselves are only counted."""
    if len(value) > _MOST_ENTRIES:
        return f"{type(value).__name__} of {len(value):,}"
    keys = [f"{key}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    texts = [
        f"{type(each).__name__} of {len(each):,}" if isinstance(each, list | tuple | dict) else describe_value(each)
        for each in (value.values() if isinstance(value, dict) else value)
    ]
    left, right = _BRACKETS[type(value)]
    return f"{left}{', '.join(map(str.__add__, keys, texts))}{right}"


def list_public_names(names: Mapping[str, object], public: list[str]) -> list[str]:
    """Return what ``dir(module)`` lists: its public names, and those that Python gives to every module."""
    return sorted({*(name for name in names if name.startswith("__")), *public})


def _round(value: float) -> str:
    """Write a number with at most three digits, without an exponent."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
