"""Arrays as ``np.save`` writes them: the kind of field they are, and views of their values. Pickles are never read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array, Field

__all__ = ["find_array_kind", "read_array"]

_MAX_ARRAY_AXES: Final = 31
_STARTS: Final = tuple(b"\x93NUMPY" + bytes([version, 0]) for version in (1, 2, 3))
_ARRAY_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|=][a-z][0-9]{1,2})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,400})\),? ?\}\s*"
)
_ARRAY_DTYPES: Final = frozenset(
    {"bool", "float16", "float32", "float64"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)

Content = bytes | memoryview


def find_array_kind(contents: Iterable[Content]) -> str:
    """The kind of a field of arrays, such as ``"float32[*,4]"``; empty if their dtypes or numbers of axes differ.

    Only the headers are read.
    """
    dtypes: set[str] = set()
    shapes: list[tuple[int, ...]] = []
    lengths: list[set[int]] = []
    for content in contents:
        try:
            dtype, _, shape, _ = _parse_array_header(content)
        except ValueError:
            return ""
        dtypes.add(dtype.name)
        if not lengths:
            lengths = [set() for _ in shape]
            shapes = [shape]
        if len(dtypes) > 1 or len(shape) != len(lengths) or not 1 <= len(shape) <= _MAX_ARRAY_AXES:
            return ""
        for length, seen in zip(shape, lengths, strict=True):
            if len(seen) < 2:
                seen.add(length)
    if not shapes or not dtypes <= _ARRAY_DTYPES:
        return ""
    axes = ",".join(str(next(iter(seen))) if len(seen) == 1 else "*" for seen in lengths)
    kind = f"{dtypes.pop()}[{axes}]"
    try:
        return Field(kind).kind
    except ArgumentError:  # 4 GiB or more
        return ""


def read_array(content: Content) -> Array:
    """The array in the bytes of an ``.npy`` file: a read-only view of them. Objects are refused, never unpickled.

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
    if dtype.name not in _ARRAY_DTYPES:
        raise ValueError(f"its array must hold numbers, got {dtype}")
    return (
        dtype,
        match[2] == b"True",
        tuple(int(length) for length in match[3].decode().split(",") if length.strip()),
        begin,
    )
