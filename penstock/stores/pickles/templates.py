"""Reads many pickles of one form: what was learned from the first ones is not interpreted again.

::

    pickle = head + bytes of the picture + tail
                         └ head and tail as in an earlier pickle ──> the same value around other bytes
                         └ else ──> unpickler.restricted_loads

A script that fills a container writes every value alike: only the picture, its length and its label differ. A template
is used only where every byte outside the picture equals that of a pickle that was interpreted.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import numpy as np

from penstock.sample import Array, DType
from penstock.stores.pickles.unpickler import restricted_loads

__all__ = ["PickleReader"]

_MOST_HEADS: Final = 4096
_MOST_TAILS: Final = 65536
_MAX_TAIL_NBYTES: Final = 128
_MARKER: Final = b"\0penstock's place of a picture\0"
_PROTOCOL, _FRAME, _BYTES, _SHORT_BYTES = 0x80, 0x95, ord("B"), ord("C")
_BYTES_OPCODES: Final = ((b"C", 1), (b"B", 4), (b"\x8e", 8), (b"\x96", 8))
_LEAST_NBYTES: Final = 17
_IMMUTABLE: Final = frozenset({int, float, str, bool, type(None)})


class _Alone:
    """In place of a label: the value is the array itself."""


_ALONE: Final = _Alone()


class _ArrayHead:
    """What is before the bytes of an array, and what was behind them."""

    __slots__ = ("dtype", "nbytes", "order", "shape", "tails")

    def __init__(self, array: Array) -> None:
        self.dtype: DType = array.dtype
        self.shape, self.nbytes = array.shape, array.nbytes
        self.order = _get_order(array)
        self.tails: dict[bytes, object] = {}


class PickleReader:
    """Reads pickles that resemble one another. Thread-safe: two threads may learn the same twice."""

    def __init__(self) -> None:
        self._labels: dict[bytes, object] = {}
        self._heads: dict[bytes, _ArrayHead] = {}
        self._head_nbytes = 0
        self._tails = 0

    def load(self, content: memoryview) -> Any:
        """Load a pickle as :func:`~penstock.stores.pickles.unpickler.restricted_loads` does, or by a template."""
        nbytes = len(content)
        if nbytes >= _LEAST_NBYTES and content[0] == _PROTOCOL and content[1] > 2:
            is_framed = content[2] == _FRAME and int.from_bytes(content[3:11], "little") <= nbytes - 11
            at = 11 if is_framed else 2
            opcode = content[at]
            if opcode in {_BYTES, _SHORT_BYTES}:
                begin = at + 5 if opcode == _BYTES else at + 2
                end = begin + int.from_bytes(content[at + 1 : begin], "little")
                if nbytes - end <= _MAX_TAIL_NBYTES:
                    label = self._labels.get(bytes(content[end:]), _ALONE)
                    return self._learn_pair(content, end) if label is _ALONE else (content[begin:end], label)
        begin = self._head_nbytes
        head = self._heads.get(bytes(content[:begin]))
        if head is not None:
            end = begin + head.nbytes
            label = head.tails.get(bytes(content[end : end + _MAX_TAIL_NBYTES]), head)
            if label is not head and end < nbytes <= end + _MAX_TAIL_NBYTES:
                array = np.frombuffer(content[begin:end], head.dtype).reshape(head.shape, order=head.order)
                return array if label is _ALONE else (array, label)
        value = restricted_loads(content)
        self._learn_array(value, content)
        return value

    def _learn_pair(self, content: memoryview, end: int) -> object:
        """Return a pickle that begins with the bytes of a picture; what is behind them is learned."""
        value = restricted_loads(content)
        tail = bytes(content[end:])
        if len(self._labels) < _MOST_TAILS and _MARKER not in tail:
            pair = restricted_loads(b"\x80\x05C" + bytes([len(_MARKER)]) + _MARKER + tail)
            if type(pair) is tuple and len(pair) == 2 and pair[0] == _MARKER and type(pair[1]) in _IMMUTABLE:
                self._labels[tail] = pair[1]
        return value

    def _learn_array(self, value: object, content: memoryview) -> None:
        array, label = value, cast("object", _ALONE)
        if type(value) is tuple and len(value) == 2 and type(value[1]) in _IMMUTABLE:
            array, label = value
        if not isinstance(array, np.ndarray) or not array.size:
            return
        begin = _find_array(bytes(content), array)
        end = begin + array.nbytes
        if not 0 < begin < end < len(content) <= end + _MAX_TAIL_NBYTES:
            return  # its bytes were not stored as they are, or it is not certain where
        self._head_nbytes = begin
        start = bytes(content[:begin])
        head = self._heads.get(start)
        if head is None:
            if len(self._heads) >= _MOST_HEADS:
                return
            head = self._heads[start] = _ArrayHead(array)
        is_same = (head.dtype, head.shape, head.nbytes) == (array.dtype, array.shape, array.nbytes)
        is_same = is_same and head.order == _get_order(array)  # protocol 5 has shape and order in the tail
        if is_same and self._tails < _MOST_TAILS:
            head.tails[bytes(content[end:])] = label
            self._tails += 1


def _get_order(array: Array) -> Literal["C", "F"]:
    return "C" if array.flags.c_contiguous else "F"


def _find_array(content: bytes, array: Array) -> int:
    """Return where the only byte string with the bytes of an array begins.

    It is 0 if there is none, or another place has them.
    """
    stored = array.tobytes("A")
    begin = content.find(stored)
    if begin != content.rfind(stored):
        return 0
    sizes = {
        code + len(stored).to_bytes(width, "little") for code, width in _BYTES_OPCODES if len(stored) >> 8 * width == 0
    }
    return begin if any(content.endswith(size, 0, max(begin, 0)) for size in sizes) else 0
