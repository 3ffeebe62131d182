"""Reads structs in Thrift's compact protocol: the footers of Parquet files and the headers of their pages.

Format: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. A caller names the fields
that it wants by their numbers; all others are skipped. Bytes may be hostile: nesting and lengths are limited, and a
read outside the bytes is an IndexError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Shape", "add_to_numbers", "get_whole", "read_struct", "read_varint"]

Shape = Mapping[int, Any]
"""The wanted fields of a struct by their numbers: None for a number or bool, a Shape for a struct, a tuple of one Shape
for a list of structs. A field of another type than the wanted one is skipped."""

Span = tuple[int, int, int]
"""Where a number begins and ends, and the number."""

_MAX_DEPTH: Final = 12
_MAX_VARINT_NBYTES: Final = 10
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def read_struct(
    view: memoryview | bytes, at: int, shape: Shape, depth: int = 0, spans: list[Span] | None = None
) -> tuple[dict[int, Any], int]:
    """The wanted fields of the struct at a position, and the position behind it.

    Parameters
    ----------
    view : memoryview or bytes
        The bytes.
    at : int
        Where the struct begins.
    shape : Shape
        The wanted fields.
    depth : int
        How deep the struct is nested.
    spans : list, optional
        Is extended by where each wanted number is, and the number.

    Raises
    ------
    ValueError, IndexError
        If the bytes are no struct.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("a Thrift struct is nested too deeply")
    found: dict[int, Any] = {}
    number = 0
    while True:
        byte = view[at]
        at += 1
        if not byte:
            return found, at
        kind, delta = byte & 15, byte >> 4
        if delta:
            number += delta
        else:
            number, at = _read_signed(view, at)
        wanted = shape.get(number, 0)
        if wanted is None and kind in {_I16, _I32, _I64}:
            begin = at
            found[number], at = _read_signed(view, at)
            if spans is not None:
                spans.append((begin, at, found[number]))
        elif kind in {_TRUE, _FALSE}:
            if wanted is None:
                found[number] = kind == _TRUE
        elif kind == _STRUCT and isinstance(wanted, dict):
            found[number], at = read_struct(view, at, wanted, depth + 1, spans)
        elif kind == _LIST and isinstance(wanted, tuple):
            found[number], at = _read_structs(view, at, wanted[0], depth + 1, spans)
        else:
            at = _skip(view, at, kind, depth)


def add_to_numbers(struct: bytes, shape: Shape, delta: int) -> bytes:
    """A struct with a number added to each wanted number; all other bytes are as they are.

    Raises
    ------
    ValueError, IndexError
        If the bytes are no struct.
    """
    spans: list[Span] = []
    read_struct(struct, 0, shape, spans=spans)
    parts, at = [], 0
    for begin, end, number in spans:
        parts += [struct[at:begin], _pack_signed(number + delta)]
        at = end
    return b"".join([*parts, struct[at:]])


def read_varint(view: memoryview | bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    value = view[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 7 * _MAX_VARINT_NBYTES, 7):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                break
            return value, at
    raise ValueError("a Thrift number has more than 64 bits")


def get_whole(entry: Mapping[int, Any], number: int) -> int:
    """A field of a struct that must be a number of at least 0."""
    value = entry.get(number)
    if type(value) is not int or value < 0:
        raise ValueError(f"field {number} of a Thrift struct must be a number of at least 0, got {value!r:.40}")
    return value


def _read_structs(
    view: memoryview | bytes, at: int, shape: Shape, depth: int, spans: list[Span] | None
) -> tuple[list[dict[int, Any]], int]:
    kind, count, at = _read_list_head(view, at)
    if kind != _STRUCT and count:
        raise ValueError("a Thrift list must hold structs")
    if count > len(view) - at:
        raise ValueError(f"a Thrift list says that it has {count} structs, and {len(view) - at} bytes are left")
    found = []
    for _ in range(count):
        entry, at = read_struct(view, at, shape, depth, spans)
        found.append(entry)
    return found, at


def _skip(view: memoryview | bytes, at: int, kind: int, depth: int) -> int:
    """The position behind a value."""
    if depth > _MAX_DEPTH:
        raise ValueError("a Thrift struct is nested too deeply")
    if kind in {_I16, _I32, _I64}:
        _, at = read_varint(view, at)
    elif kind == _BINARY:
        nbytes, at = read_varint(view, at)
        at += nbytes
    elif kind == _STRUCT:
        _, at = read_struct(view, at, {}, depth + 1)
    elif kind in {_LIST, _SET}:
        element, count, at = _read_list_head(view, at)
        if count > len(view) - at:
            raise ValueError(f"a Thrift list says that it has {count} values, and {len(view) - at} bytes are left")
        for _ in range(count):
            at = _skip(view, at, element, depth + 1)
    elif kind in {_TRUE, _FALSE, _BYTE}:
        at += 1
    elif kind == _DOUBLE:
        at += 8
    else:
        raise ValueError(f"a Thrift struct has a field of the unknown type {kind}")
    if at > len(view):
        raise ValueError("a Thrift struct ends behind its bytes")
    return at


def _read_list_head(view: memoryview | bytes, at: int) -> tuple[int, int, int]:
    """The type of a list's elements, their number, and the position of the first one."""
    byte = view[at]
    count, at = read_varint(view, at + 1) if byte >> 4 == 15 else (byte >> 4, at + 1)
    return byte & 15, count, at


def _read_signed(view: memoryview | bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(view, at)
    return (value >> 1) ^ -(value & 1), at


def _pack_signed(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    packed = bytearray()
    while rest > 127:
        packed.append(rest & 127 | 128)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)
