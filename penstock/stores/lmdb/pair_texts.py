"""The texts of the ``pairs`` layout: a label, the numbers of a box, and those of landmarks; texts of ``names``.

::

    b"1,0.1 0.2 0.3 0.4,"      b"1;0.1 0.2 0.3 0.4;"      three fields, or four; empty ones too
    b"1 0.1 0.2 0.3 0.4"       b"1,0.1,0.2,0.3,0.4"       one separator: 1, 5 or 15 numbers say which is what

Called by :mod:`.lmdb.pairs`, and by :mod:`.lmdb.names` for arrays that are written as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.stores.common.mirrors import ByteRanges

__all__ = [
    "NUMERIC",
    "parse_labels",
    "parse_numbers",
    "parse_text",
    "plan_classes",
    "plan_text_labels",
    "quote_text",
]

Rows = NDArray[np.int64]

_COUNTS: Final = frozenset({0, 1, 5, 15})
"""Numbers of a text without fields: a label; then the corners of a box; then five points."""
_FLOATS: Final = [struct.Struct(f"<{count}f") for count in range(32)]
_NO_FLOATS: Final = np.empty(0, np.float32)
_NO_FLOATS.flags.writeable = False
NUMERIC: Final = frozenset(b"0123456789+-.eE,; \t\r\n")
"""The bytes of texts of numbers."""
_PRINTABLE: Final = NUMERIC | frozenset(range(32, 127))


def parse_text(text: bytes) -> tuple[int | None, Array, Array, Array]:
    """Parse label, box, landmarks, and the numbers of a fourth field."""
    try:
        first, *parts = _split_otherwise(text) if b";" in text or b"," not in text else text.split(b",")
        if len(parts) > 3:
            first, *parts = _split_otherwise(text)
        label = _parse_label(first) if first and not first.isspace() else None
        numbers = [_parse_floats(part) if part else _NO_FLOATS for part in parts]
    except ValueError as error:
        raise ValueError(f"its text {text[:80]!r} is not LABEL,BOX,LANDMARKS: {error}") from error
    while len(numbers) < 3:
        numbers.append(_NO_FLOATS)
    return label, numbers[0], numbers[1], numbers[2]


def _split_otherwise(text: bytes) -> list[bytes]:
    """The fields of a text with semicolons for commas, or with one separator between all numbers (1, 5 or 15)."""
    fields = text.replace(b";", b",").split(b",")
    if 1 < len(fields) <= 4:
        return fields
    words = text.replace(b";", b" ").replace(b",", b" ").split()
    if len(words) not in _COUNTS:
        raise ValueError(f"it has {len(fields)} fields between commas, and {len(words)} numbers")
    return [b" ".join(words[:1]), b" ".join(words[1:5]), b" ".join(words[5:])]


def _parse_label(text: bytes) -> int:
    label = int(text)
    if not -(2**63) <= label < 2**63:
        raise ValueError("its label has more than 64 bits")
    return label


def _parse_floats(text: bytes) -> Array:
    words = text.split()
    if not words:
        return _NO_FLOATS
    packed = _FLOATS[len(words)] if len(words) < len(_FLOATS) else struct.Struct(f"<{len(words)}f")
    try:
        return np.frombuffer(packed.pack(*map(float, words)), np.float32)  # of bytes: read-only
    except OverflowError as error:
        raise ValueError(f"a number does not fit into a float32: {error}") from error


def parse_labels(whole: ByteRanges, starts: Rows, counts: Rows) -> Iterator[int | None]:
    """Yield the number before the first comma of each text."""
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        text = bytes(whole[start : start + count])
        first, comma, _ = text.partition(b",")
        is_plain = comma and first.isdigit() and b";" not in text and len(first) < 19
        yield int(first) if is_plain else parse_text(text)[0]


def plan_text_labels(texts: Sequence[bytes], classes: Sequence[str]) -> tuple[str, Callable[[bytes], object]]:
    """The kind of labels that are texts of their own, and what reads one: whole numbers, numbers, classes or texts."""
    readers: dict[str, Callable[[bytes], object]] = {"label": _parse_label, "float": float}
    for kind, read in readers.items():
        try:
            for text in texts:
                read(text)
        except ValueError:
            continue
        return kind, read
    return plan_classes(classes)


def plan_classes(classes: Sequence[str]) -> tuple[str, Callable[[bytes], object]]:
    """Return the kind of labels that are names of classes, or without classes texts, and what reads one."""
    if not classes:
        return "text", lambda text: str(text, "utf-8")
    numbers = {name.encode(): number for number, name in enumerate(classes)}

    def find_class(text: bytes) -> int:
        if text not in numbers:
            raise ValueError(f"its label {text[:80]!r} is none of the {len(numbers)} classes")
        return numbers[text]

    return "label", find_class


def parse_numbers(text: bytes) -> Array:
    """Return the numbers of a text as float64; spaces, commas and semicolons are between them."""
    try:
        return np.array([float(word) for word in text.replace(b",", b" ").replace(b";", b" ").split()])
    except ValueError as error:
        raise ValueError(f"its text {text[:80]!r} must be numbers: {error}") from error


def quote_text(values: Sequence[bytes]) -> str:
    """Return the first of some values, for an error, if all of them are texts; else empty."""
    return f", such as {values[0][:40]!r}" if values and all(map(_PRINTABLE.issuperset, values)) else ""
