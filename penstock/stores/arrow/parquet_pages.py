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
from typing import Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.stores.arrow.thrift_compact import Struct, get_struct, get_whole, read_struct, read_varint
from penstock.stores.common.mirrors import ByteRanges

__all__ = ["ChunkPages", "PageValues", "UnsupportedPageError"]

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_MAX_PAGE_NBYTES: Final = 1 << 30
_MAX_VALUES: Final = 1 << 26
_HEADER_NBYTES: Final = 1 << 13

Decompress = Callable[[memoryview, int], memoryview]
"""Unpacks a page: its bytes and their number when unpacked."""


class UnsupportedPageError(ArgumentError):
    """A page in a form that is left to pyarrow; never reaches a user."""


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
    """The values of a page: a view of their bytes, and where each one is."""

    content: memoryview  # the bytes of the values
    begins: memoryview  # for each row where its value begins; -1 for a null
    ends: memoryview  # for each row where its value ends; -1 for a null
    place: int  # where the bytes begin in the column chunk, if they are views of a mapped file; else -1

    def get(self, row: int) -> memoryview | None:
        """Return the bytes of a row of the page."""
        begin = self.begins[row]
        return None if begin < 0 else self.content[begin : self.ends[row]]

    def get_span(self, row: int) -> tuple[int, int]:
        """Return where the bytes of a row begin in a chunk that is mapped, and their number: of others, none."""
        begin = self.begins[row]
        return (0, 0) if begin < 0 or self.place < 0 else (self.place + begin, self.ends[row] - begin)


class ChunkPages:
    """The pages of one column chunk: one column of one row group.

    Parameters
    ----------
    chunk : memoryview
        All bytes of the column chunk.
    rows : int
        Number of rows of the row group.
    max_definition, value_nbytes : int
        The largest definition level, and the bytes of a value of fixed length (0: of any length).
    decompress : callable or None
        Unpacks a page; None if pages are not compressed: values are then views of the chunk's own bytes.
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
        self,
        chunk: ByteRanges,
        rows: int,
        max_definition: int,
        value_nbytes: int,
        decompress: Decompress | None,
        *,
        check: bool,
    ) -> None:
        self._chunk, self._decompress, self._check = chunk, decompress, check
        self._max_definition, self._value_nbytes = max_definition, value_nbytes
        self._dictionary: _Page | None = None
        self._pages: list[_Page] = []
        self._firsts: list[int] = []
        self._walk(rows)

    def get_span(self, number: int) -> tuple[int, int]:
        """Return where a page begins in the chunk, and its number of bytes."""
        page = self._pages[number]
        return page.begin, page.nbytes

    def find(self, row: int) -> tuple[int, int]:
        """Return the number of the page that has a row of the row group, and the row in it."""
        number = bisect_right(self._firsts, row) - 1
        return number, row - self._firsts[number]

    def read(self, number: int) -> tuple[PageValues, int]:
        """Return the values of a page, and the bytes of memory that they take.

        Raises
        ------
        ValueError
            If the page is damaged.
        UnsupportedPageError
            If pyarrow must read it.
        """
        page = self._pages[number]
        body, present = self._open_page(page)
        count = page.count if present is None else int(present.sum())
        content = body
        if page.encoding == _PLAIN:
            begins, ends = _find_values(body, count, self._value_nbytes)
        elif page.encoding in {_PLAIN_DICTIONARY, _RLE_DICTIONARY}:
            content, begins, ends = self._read_dictionary()
            numbers = _decode_runs(body[1:], body[0] if count else 0, count)
            if count and int(numbers.max()) >= len(begins):
                raise ValueError(f"a number in a page is outside the dictionary of {len(begins)} values")
            begins, ends = begins[numbers], ends[numbers]
        else:
            raise UnsupportedPageError(f"a page has encoding {page.encoding}")
        if present is not None:
            spread = np.full((2, page.count), -1, np.int64)
            spread[:, present] = begins, ends
            begins, ends = spread
        is_mapped = self._decompress is None and isinstance(self._chunk, memoryview)
        nbytes = 2 * begins.nbytes + (0 if is_mapped else len(content))
        place = page.begin + page.nbytes - len(body) if is_mapped and content is body else -1
        return PageValues(content, begins.data, ends.data, place), nbytes

    def _walk(self, rows: int) -> None:
        """Find the pages by their headers."""
        at, first, end = 0, 0, len(self._chunk)
        while first < rows:
            header, begin = self._read_header(at)
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

    def _read_header(self, at: int) -> tuple[Struct, int]:
        """Return the header of a page, and where it ends; statistics in it may be long."""
        try:
            header, nbytes = read_struct(self._chunk[at : at + _HEADER_NBYTES], 0)
        except (IndexError, ValueError):
            header, nbytes = read_struct(self._chunk[at:], 0)
        return header, at + nbytes

    def _make_page(self, header: Struct, begin: int) -> _Page:
        kind = get_whole(header, 1)
        entry = get_struct(header, {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind])
        is_second = kind == _DATA_V2
        if is_second and get_whole(entry, 6):
            raise ValueError("a page has repetition levels, and its column has no lists")
        if kind == _DATA and self._max_definition and entry.get(3) != _RLE:
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

    def _open_page(self, page: _Page) -> tuple[memoryview, Array | None]:
        """Return the unpacked values of a data page, and which rows have one (None: all)."""
        body, maximum = self._take(page), self._max_definition
        begin, nbytes = 0, page.levels_nbytes
        is_first = nbytes < 0  # levels are packed with the values, behind their number of bytes
        if is_first:
            if page.is_packed:
                body = self._unpack(body, page.unpacked_nbytes)
            begin, nbytes = (4, int.from_bytes(body[:4], "little")) if maximum else (0, 0)
        if begin + nbytes > len(body):
            raise ValueError(f"the levels of a page have {nbytes} bytes, and the page has {len(body)}")
        levels, body = body[begin : begin + nbytes], body[begin + nbytes :]
        if page.is_packed and not is_first and len(body):
            body = self._unpack(body, page.unpacked_nbytes - nbytes)
        present = _decode_runs(levels, maximum.bit_length(), page.count) == maximum
        return body, None if present.all() else present

    def _read_dictionary(self) -> tuple[memoryview, Array, Array]:
        """Return the bytes of the dictionary, and where its values are."""
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
        return content, *_find_values(content, page.count, self._value_nbytes)

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


def _find_values(body: memoryview, count: int, value_nbytes: int) -> tuple[Array, Array]:
    """Return where each of ``count`` PLAIN values begins and ends."""
    if count * (value_nbytes or 4) > len(body):
        raise ValueError(f"a page of {len(body)} bytes cannot hold {count} values")
    if value_nbytes:
        begins = np.arange(count, dtype=np.int64) * value_nbytes
        return begins, begins + value_nbytes
    begins, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    starts, stops = begins.data, ends.data
    read = struct.Struct("<I").unpack_from
    at = 0
    for number in range(count):
        if at + 4 > len(body):
            raise ValueError(f"a page of {len(body)} bytes ends before value {number} of {count}")
        starts[number] = at + 4
        at += 4 + read(body, at)[0]
        stops[number] = at
    if at > len(body):
        raise ValueError(f"the values of a page need {at} bytes, and it has {len(body)}")
    return begins, ends


def _decode_runs(body: memoryview, width: int, count: int) -> Array:
    """``count`` numbers of ``width`` bits, in runs and packed groups of eight (the RLE encoding)."""
    if width > 32:
        raise ValueError(f"numbers in a page have {width} bits")
    numbers = np.zeros(count, np.int64)
    filled = at = 0
    while filled < count and width:
        header, at = read_varint(body, at)
        is_packed, left = header & 1, count - filled
        groups = min(header >> 1, (left + 7) // 8)  # the last group of a page may be cut off
        nbytes = groups * width if is_packed else (width + 7) // 8
        taken = min(8 * groups if is_packed else header >> 1, left)
        if not taken or at + nbytes > len(body):
            raise ValueError("a run of numbers ends behind its page")
        if is_packed:
            bits = np.unpackbits(np.frombuffer(body[at : at + nbytes], np.uint8), bitorder="little")
            numbers[filled : filled + taken] = (bits.reshape(-1, width) @ (1 << np.arange(width)))[:taken]
        else:
            numbers[filled : filled + taken] = int.from_bytes(body[at : at + nbytes], "little")
        at += nbytes
        filled += taken
    return numbers
