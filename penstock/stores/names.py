"""Names of records and of classes: their order, which some file systems take for one another, and lists of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.errors import ArgumentError

__all__ = ["check_classes", "clashes", "differing_classes", "listed", "natural_key"]

_DIGITS = re.compile(r"([0-9]+)")
_LISTED: Final = 5


def natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """A sorting key under which ``img2`` comes before ``img10``; equal numbers (``1``, ``01``) go by their text."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def clashes(keys: Iterable[str]) -> dict[int, str]:
    """Positions of keys that an earlier one equals, or would equal after case folding and Unicode composition.

    Returns
    -------
    dict of int to str
        Each such position, with the first key of its group. Such names cannot lie side by side on the usual file
        systems of macOS and Windows, and are nearly always one picture twice.
    """
    first: dict[str, tuple[int, str]] = {}
    found: dict[int, str] = {}
    for position, key in enumerate(keys):
        where, other = first.setdefault(unicodedata.normalize("NFC", key).casefold(), (position, key))
        if where != position:
            found[position] = other
    return found


def check_classes(classes: Any) -> tuple[str, ...]:
    """Names of classes, by number, as a tuple.

    Raises
    ------
    ArgumentError
        If they are not a sequence of names without repetition.
    """
    if isinstance(classes, Mapping):
        raise ArgumentError("classes must be a sequence of names in the order of their numbers, got a mapping")
    names = [] if isinstance(classes, str | bytes) else list(classes)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong or isinstance(classes, str | bytes):
        raise ArgumentError(f"classes must be a sequence of names, got {wrong[0] if wrong else classes!r}")
    if not names:
        raise ArgumentError("classes must hold at least one name, got none")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ArgumentError(f"classes names {str(twice)!r} twice; each class has one number")
    return tuple(map(str, names))


def differing_classes(held: Sequence[str], wanted: Sequence[str]) -> str:
    """How two lists of classes differ, as the end of a sentence that begins with "its classes"."""
    if max(len(held), len(wanted)) <= _LISTED:
        return f"are {listed(held)}, not {listed(wanted)}"
    pairs = enumerate(zip(held, wanted, strict=False))
    first = next((number for number, (one, other) in pairs if one != other), None)
    if first is None:
        return f"are {len(held)}, not {len(wanted)}"
    return f"differ from number {first} on, which is {held[first]!r}, not {wanted[first]!r}"


def listed(names: Sequence[str], limit: int = _LISTED) -> str:
    """The first of some names in quotes, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return (", ".join(map(repr, names[:limit])) or "none") + more
