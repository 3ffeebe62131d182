"""Reads single values of a column of bytes in a Parquet file, page by page, without decoding the row group.

::

    column chunk ──walk the headers──> pages: first row, place in the file
    row ──> its page ──> bytes of the page (mapped; unpacked if compressed) ──> where each value begins ──> view

Format: https://github.com/apache/parquet-format (page headers are Thrift's compact protocol; encodings PLAIN and
RLE_DICTIONARY). Pages of another encoding raise :class:`UnsupportedPageError`, and pyarrow reads their row group
instead. Nothing that the file says is trusted: each length is compared with what is there.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.stores.arrow.thrift_compact import Shape, get_whole, read_struct, read_varint

__all__ = ["ChunkPages", "ColumnLayout", "PageValues", "UnsupportedPageError"]

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_HEADER: Final[Shape] = {
    **dict.fromkeys((1, 2, 3, 4)),
    5: dict.fromkeys((1, 2, 3)),
    7: dict.fromkeys((1, 2)),
    8: dict.fromkeys((1, 4, 5, 6, 7)),
}
"""Of a page header: type, sizes, checksum; of a data page, a dictionary, a data page of version 2: their own parts."""
_MAX_PAGE_NBYTES: Final = 1 << 30
_MAX_VALUES: Final = 1 << 26

Decompress = Callable[[memoryview, int], memoryview]
"""Unpacks a page: its bytes and their number when unpacked."""


class UnsupportedPageError(ArgumentError):
    """A page in a form that is left to pyarrow; never reaches a user."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The largest definition level of a column chunk, and the bytes of a value of fixed length (0: of any length)."""

    max_definition: int
    value_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class _Page:
    """A page: where its bytes are in the chunk, and what its header says. ``levels_nbytes`` is -1 for version 1."""

    begin: int
    nbytes: int
    unpacked_nbytes: int
    count: int
    encoding: int
    levels_nbytes: int
    is_packed: bool
    checksum: int | None


@dataclass(frozen=True, slots=True)
class PageValues:
    """The values of a page: a view of their bytes, and where each one is.

    Parameters
    ----------
    content : memoryview
        The bytes of the values.
    begins, lengths : memoryview of int64
        Where each value begins, and its number of bytes.
    slots : memoryview of int32 or None
        For each row the number of its value, -1 for a null; None where no row is null.
    """

    content: memoryview
    begins: memoryview
    lengths: memoryview
    slots: memoryview | None = None

    def get(self, row: int) -> memoryview | None:
        """The bytes of a row of the page."""
        if self.slots is not None:
            row = self.slots[row]
            if row < 0:
                return None
        begin = self.begins[row]
        return self.content[begin : begin + self.lengths[row]]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, if the content is no mapped file."""
        slots = 0 if self.slots is None else self.slots.nbytes
        return self.content.nbytes + self.begins.nbytes + self.lengths.nbytes + slots


class ChunkPages:
    """The pages of one column chunk: one column of one row group.

    Parameters
    ----------
    chunk : memoryview
        All bytes of the column chunk.
    rows : int
        Number of rows of the row group.
    layout : ColumnLayout
        What its values are.
    decompress : callable or None
        Unpacks a page; None if pages are not compressed.
    check : bool
        Whether the checksums of pages that have one are compared.

    Raises
    ------
    ValueError
        If the headers of the pages are damaged.
    UnsupportedPageError
        If pyarrow must read the chunk.
    """

    def __init__(
        self, chunk: memoryview, rows: int, layout: ColumnLayout, decompress: Decompress | None, *, check: bool
    ) -> None:
        self._chunk, self._layout, self._decompress, self._check = chunk, layout, decompress, check
        self._dictionary: _Page | None = None
        self._pages: list[_Page] = []
        self._firsts: list[int] = []
        self._walk(rows)

    def get_span(self, number: int) -> tuple[int, int]:
        """Where a page begins in the chunk, and its number of bytes."""
        page = self._pages[number]
        return page.begin, page.nbytes

    @property
    def is_mapped(self) -> bool:
        """Whether values are views of the chunk's own bytes."""
        return self._decompress is None

    def find(self, row: int) -> tuple[int, int]:
        """The number of the page that has a row of the row group, and the row in it."""
        number = bisect_right(self._firsts, row) - 1
        return number, row - self._firsts[number]

    def read(self, number: int) -> PageValues:
        """The values of a page.

        Raises
        ------
        ValueError
            If the page is damaged.
        UnsupportedPageError
            If pyarrow must read it.
        """
        page = self._pages[number]
        body, at, slots = self._open_page(page)
        count = page.count if slots is None else int((slots >= 0).sum())
        if page.encoding == _PLAIN:
            begins, lengths = _find_values(body, at, count, self._layout.value_nbytes)
            content = body
        elif page.encoding in {_PLAIN_DICTIONARY, _RLE_DICTIONARY}:
            content, known, sizes = self._read_dictionary()
            numbers = _decode_runs(body, at + 1, len(body), body[at] if count else 0, count)
            if count and not (int(numbers.min()) >= 0 and int(numbers.max()) < len(known)):
                raise ValueError(f"a number in a page is outside the dictionary of {len(known)} values")
            begins, lengths = known[numbers], sizes[numbers]
        else:
            raise UnsupportedPageError(f"a page has encoding {page.encoding}")
        return PageValues(content, begins.data, lengths.data, None if slots is None else slots.data)

    def _walk(self, rows: int) -> None:
        """Find the pages by their headers."""
        at, first, end = 0, 0, len(self._chunk)
        while first < rows:
            header, begin = read_struct(self._chunk, at, _HEADER)
            kind, nbytes = header.get(1), get_whole(header, 3)
            if begin + nbytes > end:
                raise ValueError(f"a page of {nbytes} bytes at {begin} ends behind its column chunk of {end}")
            if kind in {_DATA, _DATA_V2}:
                page = self._make_page(header, begin)
                if not 0 < page.count <= min(rows - first, _MAX_VALUES):
                    raise ValueError(
                        f"a page has {page.count} values, and {rows - first} rows are left in its row group"
                    )
                self._pages.append(page)
                self._firsts.append(first)
                first += page.count
            elif kind == _DICTIONARY and self._dictionary is None and not self._pages:
                self._dictionary = self._make_page(header, begin)
            elif kind != _INDEX:
                raise ValueError(f"a page has the unexpected type {kind!r}")
            at = begin + nbytes

    def _make_page(self, header: dict[int, Any], begin: int) -> _Page:
        kind = header[1]
        entry = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind])
        if not isinstance(entry, dict):
            raise ValueError(  # noqa: TRY004  # of the file, not of an argument
                f"the header of a page of type {kind} has no part for its type"
            )
        is_second = kind == _DATA_V2
        if is_second and get_whole(entry, 6):
            raise ValueError("a page has repetition levels, and its column has no lists")
        if kind == _DATA and self._layout.max_definition and entry.get(3) != _RLE:
            raise UnsupportedPageError("the levels of a page are not run lengths")
        checksum = header.get(4)
        return _Page(
            begin,
            get_whole(header, 3),
            get_whole(header, 2),
            get_whole(entry, 1),
            get_whole(entry, 4 if is_second else 2),
            get_whole(entry, 5) if is_second else -1,
            self._decompress is not None and (not is_second or entry.get(7, True) is not False),
            checksum if type(checksum) is int else None,
        )

    def _open_page(self, page: _Page) -> tuple[memoryview, int, Array | None]:
        """The unpacked bytes of a data page, where its values begin, and the slots of the rows."""
        body = self._take(page)
        maximum = self._layout.max_definition
        if page.levels_nbytes >= 0:
            nbytes = page.levels_nbytes
            if nbytes > len(body):
                raise ValueError(f"the levels of a page have {nbytes} bytes, and the page has {len(body)}")
            levels, body = body[:nbytes], body[nbytes:]
            if page.is_packed and len(body):
                body = self._unpack(body, page.unpacked_nbytes - nbytes)
            return body, 0, _find_slots(levels, maximum, page.count) if maximum else None
        if page.is_packed:
            body = self._unpack(body, page.unpacked_nbytes)
        if not maximum:
            return body, 0, None
        nbytes = int.from_bytes(body[:4], "little")
        if nbytes > len(body) - 4:  # also where fewer than four bytes are there
            raise ValueError(f"the levels of a page have {nbytes} bytes, and the page has {len(body)}")
        return body, 4 + nbytes, _find_slots(body[4 : 4 + nbytes], maximum, page.count)

    def _read_dictionary(self) -> tuple[memoryview, Array, Array]:
        """The bytes of the dictionary, and where its values are."""
        page = self._dictionary
        if page is None:
            raise ValueError("a page refers to a dictionary, and the column chunk has none")
        if page.count > _MAX_VALUES:
            raise UnsupportedPageError(f"a dictionary has {page.count} values")
        if page.encoding not in {_PLAIN, _PLAIN_DICTIONARY}:
            raise UnsupportedPageError("a dictionary has another encoding")
        content = self._take(page)
        if page.is_packed:
            content = self._unpack(content, page.unpacked_nbytes)
        begins, lengths = _find_values(content, 0, page.count, self._layout.value_nbytes)
        return content, begins, lengths

    def _take(self, page: _Page) -> memoryview:
        content = self._chunk[page.begin : page.begin + page.nbytes]
        if self._check and page.checksum is not None and zlib.crc32(content) != page.checksum & 0xFFFFFFFF:
            raise ValueError(f"the checksum of a page of {page.nbytes} bytes is wrong")
        return content

    def _unpack(self, content: memoryview, nbytes: int) -> memoryview:
        assert self._decompress is not None, "called only then"
        if not 0 <= nbytes <= _MAX_PAGE_NBYTES:
            raise UnsupportedPageError(f"a page has {nbytes} bytes")
        unpacked = self._decompress(content, nbytes)
        if len(unpacked) != nbytes:
            raise ValueError(f"a page has {len(unpacked)} bytes when unpacked, and its header says {nbytes}")
        return unpacked


def _find_values(body: memoryview, at: int, count: int, value_nbytes: int) -> tuple[Array, Array]:
    """Where each of ``count`` PLAIN values begins, and its number of bytes."""
    end = len(body)
    if count < 0 or count * (value_nbytes or 4) > end - at:
        raise ValueError(f"a page of {end} bytes cannot hold {count} values")
    if value_nbytes:
        begins = np.arange(at, at + count * value_nbytes, value_nbytes, dtype=np.int64)
        return begins, np.full(count, value_nbytes, np.int64)
    begins, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
    starts, sizes = begins.data, lengths.data
    read = struct.Struct("<I").unpack_from
    for number in range(count):
        if at + 4 > end:
            raise ValueError(f"a page of {end} bytes ends before value {number} of {count}")
        (nbytes,) = read(body, at)
        at += 4
        starts[number], sizes[number] = at, nbytes
        at += nbytes
    if at > end:
        raise ValueError(f"the values of a page need {at} bytes, and it has {end}")
    return begins, lengths


def _find_slots(levels: memoryview, maximum: int, count: int) -> Array | None:
    """For each row the number of its value, -1 for a null; None where no row is null."""
    width = maximum.bit_length()
    present = _decode_runs(levels, 0, len(levels), width, count) == maximum
    if present.all():
        return None
    slots = np.cumsum(present, dtype=np.int32) - 1
    slots[~present] = -1
    return slots.astype(np.int32, copy=False)


def _decode_runs(body: memoryview, at: int, end: int, width: int, count: int) -> Array:
    """``count`` numbers of ``width`` bits, in runs and packed groups of eight (the RLE encoding)."""
    if width > 32:
        raise ValueError(f"numbers in a page have {width} bits")
    numbers = np.zeros(count, np.int64)
    filled = 0
    while filled < count and width:
        header, at = read_varint(body, at)
        if header & 1:
            groups = min(header >> 1, (count - filled + 7) // 8)  # the last group of a page may be cut off
            nbytes = groups * width
            if not groups or at + nbytes > end:
                raise ValueError("packed numbers end behind their page")
            bits = np.unpackbits(np.frombuffer(body[at : at + nbytes], np.uint8), bitorder="little")
            packed = bits.reshape(-1, width) @ (1 << np.arange(width, dtype=np.int64))
            taken = min(len(packed), count - filled)
            numbers[filled : filled + taken] = packed[:taken]
            at += nbytes
        else:
            taken, nbytes = min(header >> 1, count - filled), (width + 7) // 8
            if not taken or at + nbytes > end:
                raise ValueError("a run of numbers ends behind its page")
            numbers[filled : filled + taken] = int.from_bytes(body[at : at + nbytes], "little")
            at += nbytes
        filled += taken
    return numbers
