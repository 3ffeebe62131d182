"""Reads structs in Thrift's compact protocol: the footers of Parquet files and the headers of their pages.

Format: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. Bytes may be hostile: nesting
and lengths are limited, and a read outside the bytes is an IndexError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["Spans", "Struct", "add_to_numbers", "get_struct", "get_structs", "get_whole", "read_struct", "read_varint"]

Struct = Mapping[int, object]
"""The fields of a struct by their numbers: numbers, bools, bytes, structs and lists of these."""

Spans = dict[tuple[int, int], tuple[int, int]]
"""Where the numbers of some structs begin and end, by the ``id`` of the struct and the number of the field."""

_MAX_DEPTH: Final = 12
_MAX_VARINT_NBYTES: Final = 10
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_SIZES: Final = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}


def read_struct(
    view: memoryview | bytes, at: int, depth: int = 0, spans: Spans | None = None
) -> tuple[dict[int, object], int]:
    """Return the struct at a position, and the position behind it.

    Parameters
    ----------
    view : memoryview or bytes
        The bytes.
    at : int
        Where the struct begins.
    depth : int
        How deep the struct is nested.
    spans : dict, optional
        Is extended by where each number of the struct, and of those in it, is.

    Raises
    ------
    ValueError, IndexError
        If the bytes are no struct.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("a Thrift struct is nested too deeply")
    found: dict[int, object] = {}
    number = 0
    while byte := view[at]:
        kind, delta = byte & 15, byte >> 4
        number, at = (number + delta, at + 1) if delta else _read_signed(view, at + 1)
        if _I16 <= kind <= _I64:
            begin = at
            found[number], at = _read_signed(view, at)
            if spans is not None:
                spans[id(found), number] = begin, at
        elif _TRUE <= kind <= _FALSE:
            found[number] = kind == _TRUE
        else:
            found[number], at = _read_value(view, at, kind, depth, spans)
    return found, at + 1


def add_to_numbers(content: bytes, spans: Spans, places: Iterable[tuple[Struct, int]], delta: int) -> bytes:
    """Return a struct with a number added to some of its numbers; all other bytes are as they are.

    Parameters
    ----------
    content : bytes
        The struct.
    spans : dict
        Where its numbers are, as :func:`read_struct` found it.
    places : iterable of struct and int
        The structs and the numbers of their fields; fields that a struct has not are left out.
    delta : int
        What is added.
    """
    found = [(*spans[id(struct), number], get_whole(struct, number)) for struct, number in places if number in struct]
    parts, at = [], 0
    for begin, end, number in sorted(found):
        parts += [content[at:begin], _pack_varint(number + delta << 1)]
        at = end
    return b"".join([*parts, content[at:]])


def read_varint(view: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
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


def get_whole(struct: Struct, number: int) -> int:
    """Return a field of a struct that must be a number of at least 0."""
    value = struct.get(number)
    if type(value) is not int or value < 0:
        raise ValueError(f"field {number} of a Thrift struct must be a number of at least 0, got {value!r:.40}")
    return value


def get_struct(struct: Struct, number: int) -> Struct:
    """Return a field of a struct that must be a struct."""
    value = struct.get(number)
    if not isinstance(value, dict):
        raise ValueError(f"field {number} of a Thrift struct must be a struct, got {value!r:.40}")  # noqa: TRY004  # of the file
    return value


def get_structs(struct: Struct, number: int) -> list[Struct]:
    """Return a field of a struct that must be a list of structs; an empty one where there is none."""
    values = struct.get(number, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"field {number} of a Thrift struct must be a list of structs")
    return values


def _read_value(view: memoryview | bytes, at: int, kind: int, depth: int, spans: Spans | None) -> tuple[object, int]:
    """Return the value of a type at a position, and the position behind it."""
    if _I16 <= kind <= _I64:
        return _read_signed(view, at)
    if kind == _STRUCT:
        return read_struct(view, at, depth + 1, spans)
    if kind in {_LIST, _SET}:
        return _read_list(view, at, depth + 1, spans)
    nbytes, at = read_varint(view, at) if kind == _BINARY else (_SIZES.get(kind, 0), at)
    if kind != _BINARY and not nbytes:
        raise ValueError(f"a Thrift struct has a field of the unknown type {kind}")
    if at + nbytes > len(view):
        raise ValueError("a Thrift struct ends behind its bytes")
    return bytes(view[at : at + nbytes]), at + nbytes


def _read_list(view: memoryview | bytes, at: int, depth: int, spans: Spans | None) -> tuple[list[object], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("a Thrift list is nested too deeply")
    kind, count = view[at] & 15, view[at] >> 4
    count, at = read_varint(view, at + 1) if count == 15 else (count, at + 1)
    if count > len(view) - at:
        raise ValueError(f"a Thrift list says that it has {count} values, and {len(view) - at} bytes are left")
    found = []
    for _ in range(count):
        value, at = _read_value(view, at, kind, depth, spans)
        found.append(value)
    return found, at


def _read_signed(view: memoryview | bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(view, at)
    return (value >> 1) ^ -(value & 1), at


def _pack_varint(number: int) -> bytes:
    packed = bytearray()
    while number > 127:
        packed.append(number & 127 | 128)
        number >>= 7
    return bytes([*packed, number])
