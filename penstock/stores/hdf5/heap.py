"""Values of variable length in an HDF5 file, read from its mapped bytes.

::

    dataset, 16 bytes a record       length u32, address u64, number u32
    at the address: a collection     "GCOL", version 1, 0 0 0, size u64
                      its objects    number u16, count u16, 0 u32, size u64, bytes, padded to 8   (number 0: free space)

Source: HDF5 File Format Specification, section III.E (global heap) and IV.A.2.d (variable-length datatypes). h5py reads
a value of variable length in some 90 microseconds and copies it twice; a view of the mapped file takes some 3.
"""

from __future__ import annotations

import array
import functools
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, DType
from penstock.stores.common.mirrors import ByteRanges

__all__ = ["HEAD_NBYTES", "REFERENCE", "Heap", "guess_offsets"]

HEAD_NBYTES: Final = 16
"""Bytes of a collection before its first object, and of an object before its value."""

REFERENCE: Final[DType] = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])
"""What a dataset of variable-length values holds for each record."""

_COLLECTION: Final = struct.Struct("<4sB3xQ")
_OBJECT: Final = struct.Struct("<H6xQ")
_MAX_OBJECTS: Final = 0xFFFF  # a number has 16 bits, and occurs once
_KEPT_TABLES: Final = 1024


class Heap:
    """The collections of one file.

    ``file``: the bytes of the file.
    """

    def __init__(self, file: ByteRanges) -> None:
        self._file = file
        self._list_offsets = functools.lru_cache(_KEPT_TABLES)(functools.partial(_list_offsets, file))

    def find(self, address: int, number: int, nbytes: int, guess: int = 0) -> memoryview:
        """Return the first ``nbytes`` bytes of an object in the collection at ``address``: a view of the mapped file.

        ``guess``: where the object may begin, of a remote file, so that no other object is read.

        Raises
        ------
        ValueError
            If there is no collection, or no such object, or the object is shorter.
        """
        if nbytes == 0:
            return self._file[:0]
        if guess:
            content = self._file[guess : guess + HEAD_NBYTES + nbytes]
            if len(content) == HEAD_NBYTES + nbytes:
                found, size = _OBJECT.unpack_from(content)
                if found == number and size >= nbytes:
                    return content[HEAD_NBYTES:]
        offsets = self._list_offsets(address)
        at = offsets[number] if number < len(offsets) else 0
        content = self._file[at : at + 16 + nbytes]
        if not at or _OBJECT.unpack_from(content)[1] < nbytes:
            raise ValueError(f"the heap at byte {address} has no value {number} of {nbytes} bytes")
        return content[16:]


def guess_offsets(references: Array, itemsize: int) -> NDArray[np.int64]:
    """Return where each object begins, if its collection has no others than these, in order of their numbers."""
    order = np.lexsort((references["number"], references["address"]))
    addresses = references["address"][order].astype(np.int64)
    sizes = HEAD_NBYTES + (references["length"][order].astype(np.int64) * itemsize + 7 & ~7)
    before = np.cumsum(sizes) - sizes
    firsts = np.searchsorted(addresses, addresses)
    offsets = np.empty(len(order), np.int64)
    offsets[order] = addresses + HEAD_NBYTES + before - before[firsts]
    return offsets


def _list_offsets(file: ByteRanges, address: int) -> array.array[int]:
    """Return where each object of a collection begins, by number; 0 where there is none."""
    if address + 16 > len(file):
        raise ValueError(f"its heap is at byte {address}, and the file has {len(file)}")
    magic, version, nbytes = _COLLECTION.unpack(file[address : address + 16])
    if magic != b"GCOL" or version != 1 or nbytes > len(file) - address:
        raise ValueError(f"there is no heap at byte {address}, or it is cut")
    at, end = address + 16, address + nbytes
    offsets = array.array("q", [0])
    for _ in range(_MAX_OBJECTS):
        if at + 16 > end:
            break
        number, size = _OBJECT.unpack(file[at : at + 16])
        if number == 0 or size > end - at - 16:
            break
        if number >= len(offsets):
            offsets.extend([0] * (number + 1 - len(offsets)))
        offsets[number] = at
        at += 16 + (size + 7 & ~7)
    return offsets
