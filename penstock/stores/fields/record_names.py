"""Names of records and of classes: their order, clashes on other file systems, and lists of them in messages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.errors import ArgumentError

__all__ = [
    "check_classes",
    "describe_class_difference",
    "find_name_clashes",
    "fold_name",
    "make_natural_key",
    "quote_names",
    "share_classes",
]

_DIGITS = re.compile(r"([0-9]+)")
_MAX_QUOTED: Final = 5


def make_natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """A sort key that puts ``img2`` before ``img10``; equal numbers (``1``, ``01``) are ordered as text."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def find_name_clashes(keys: Iterable[str]) -> dict[int, str]:
    """Positions of keys that equal an earlier key, if case and Unicode composition are ignored.

    Returns
    -------
    dict of int to str
        Each such position, with the first key of its group. The usual file systems of macOS and Windows cannot store
        such names in one folder; they are nearly always one image twice.
    """
    first: dict[str, tuple[int, str]] = {}
    found: dict[int, str] = {}
    for position, key in enumerate(keys):
        where, other = first.setdefault(fold_name(key), (position, key))
        if where != position:
            found[position] = other
    return found


def fold_name(name: str) -> str:
    """The name without differences of case and of Unicode composition."""
    return unicodedata.normalize("NFC", name).casefold()


def check_classes(classes: object) -> tuple[str, ...]:
    """Names of classes, by number, as a tuple.

    Raises ArgumentError if they are not a sequence of names without repetition.
    """
    if isinstance(classes, Mapping):
        raise ArgumentError("classes must be a sequence of names in the order of their numbers, got a mapping")
    names = [] if isinstance(classes, str | bytes) else list(classes)  # type: ignore[call-overload]  # iterable, or a TypeError
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong or isinstance(classes, str | bytes):
        raise ArgumentError(f"classes must be a sequence of names, got {wrong[0] if wrong else classes!r}")
    if not names:
        raise ArgumentError("classes must hold at least one name, got none")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ArgumentError(f"classes must not repeat a name, got {str(twice)!r} twice")
    return tuple(map(str, names))


def share_classes(stated: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """The names of classes that files state, as pairs of file and names; a file may state none.

    Raises ValueError if two files number them differently: a label of one is then another class in the other.
    """
    first, classes = "", tuple[str, ...]()
    for file, names in stated:
        if classes and names and tuple(names) != classes:
            raise ValueError(f"its classes {describe_class_difference(names, classes)}, as in {first}")
        if not classes:
            first, classes = file, tuple(names)
    return classes


def describe_class_difference(held: Sequence[str], wanted: Sequence[str]) -> str:
    """Return how two lists of classes differ: the end of a sentence that begins with "its classes"."""
    if max(len(held), len(wanted)) <= _MAX_QUOTED:
        return f"are {quote_names(held)}, not {quote_names(wanted)}"
    pairs = enumerate(zip(held, wanted, strict=False))
    first = next((number for number, (one, other) in pairs if one != other), None)
    if first is None:
        return f"are {len(held)}, not {len(wanted)}"
    return f"differ from number {first} on, which is {held[first]!r}, not {wanted[first]!r}"


def quote_names(names: Sequence[str], limit: int = _MAX_QUOTED) -> str:
    """The first of some names in quotes, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return (", ".join(map(repr, names[:limit])) or "none") + more
