"""Names of records: their natural order, and which of them some file systems would take for one another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["clashes", "natural_key"]

_DIGITS = re.compile(r"([0-9]+)")


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
