"""Arrays as ``np.save`` writes them: the kind of field they are, and views of their values. Pickles are never read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from penstock.fields.kinds import NOTHING, NUMBER_DTYPES, ValueKind, name_array_kind, unite_kinds
from penstock.sample import Array, Field

__all__ = ["find_array_kind", "read_array"]

_STARTS: Final = tuple(b"\x93NUMPY" + bytes([version, 0]) for version in (1, 2, 3))
_ARRAY_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|=][a-z][0-9]{1,2})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,400})\),? ?\}\s*"
)

Content = bytes | memoryview


def find_array_kind(contents: Iterable[Content]) -> str:
    """Return the kind of a field of arrays, such as ``"float32[*,4]"``.

    It is empty if their dtypes or numbers of axes differ.

    Only the headers are read.
    """
    united: ValueKind | None = ValueKind(NOTHING)
    dtypes = set()
    try:
        for content in contents:
            dtype, _, shape, _ = _parse_array_header(content)
            dtypes.add(dtype.name)
            united = united and unite_kinds(united, ValueKind(name_array_kind(dtype, shape)))
        return Field(united.kind).kind if united is not None and len(dtypes) == 1 else ""
    except ValueError:  # no array, one without axes, or one of 4 GiB or more
        return ""


def read_array(content: Content) -> Array:
    """Return the array in the bytes of an ``.npy`` file: a read-only view of them.

    Objects are refused, never unpickled.

    Raises ValueError if they are something else.
    """
    dtype, is_fortran, shape, begin = _parse_array_header(content)
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) - begin:
        raise ValueError(f"its array of shape {shape} has {len(content) - begin} bytes, not {count * dtype.itemsize}")
    flat = np.frombuffer(content, dtype, count, begin) if count else np.empty(0, dtype)
    if dtype == np.bool_ and (flat.view(np.uint8) > 1).any():
        raise ValueError("its array of bool has bytes other than 0 and 1")
    array = flat.reshape(shape, order="F" if is_fortran else "C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array.flags.writeable = False
    return array


def _parse_array_header(content: Content) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    head = bytes(content[:12])
    width = 2 if head[6:7] == b"\1" else 4
    begin = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    match = _ARRAY_HEADER.fullmatch(bytes(content[8 + width : min(begin, 1024)]))
    if head[:8] not in _STARTS or len(head) < 12 or begin > len(content) or match is None:
        raise ValueError("its bytes are not those of an array of numbers (.npy)")
    try:
        dtype = np.dtype(match[1].decode())
    except TypeError as error:
        raise ValueError(f"its array has the dtype {match[1]!r}, which is not known") from error
    if dtype.name not in NUMBER_DTYPES:
        raise ValueError(f"its array must hold numbers, got {dtype}")
    return (
        dtype,
        match[2] == b"True",
        tuple(int(length) for length in match[3].decode().split(",") if length.strip()),
        begin,
    )
