"""How one record of a dataset of an HDF5 file is read: from the mapped file where possible, else by h5py.

::

    contiguous, chunks without filters ──> a view of the mapped file
    deflate, shuffle                   ──> inflated here (the GIL is released), chunks are kept for other records
    variable length                    ──> a view of the mapped file (:mod:`.hdf5.heap`)
    anything else                      ──> h5py, one thread at a time

What is mapped is used by all threads at once, and by forked processes. :func:`open_rows` decides which; the others give
equal values, which tests compare.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.registry import require
from penstock.sample import Array, DType
from penstock.stores.hdf5.heap import REFERENCE, Heap
from penstock.stores.hdf5.survey import LIBRARY_ERRORS

__all__ = ["LibraryFiles", "LibraryRows", "RowReader", "ShardRows", "open_rows"]

_BAND_NBYTES: Final = 128 << 20
_CACHE_NBYTES: Final = 64 << 20
_SMALL_NBYTES: Final = 64 << 10  # deflate makes at most 1032 times as much of it
_DEFLATE: Final = 1
_SHUFFLE: Final = 2
_UNKNOWN: Final = -1


class LibraryFiles(Protocol):
    """The files of a store, opened by h5py in this process when they are needed."""

    def get_dataset(self, number: int, name: str) -> Any:
        """An ``h5py.Dataset``."""
        ...


class RowReader(Protocol):
    """Reads records of one dataset."""

    def read(self, row: int, files: LibraryFiles) -> Any:
        """Record ``row``: a read-only array, or for values of variable length in bytes a read-only view.

        Raises
        ------
        ValueError
            If its bytes are damaged.
        """
        ...


class LibraryRows:
    """Records that h5py reads.

    Parameters
    ----------
    number : int
        Number of the file.
    name : str
        Path of the dataset.
    """

    def __init__(self, number: int, name: str) -> None:
        self._number, self._name = number, name

    def read(self, row: int, files: LibraryFiles) -> Any:
        """See :class:`RowReader`; the value is a copy."""
        try:
            value = files.get_dataset(self._number, self._name)[row]
        except LIBRARY_ERRORS as error:
            raise ValueError(f"dataset {self._name!r} cannot be read: {error}") from error
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        elif isinstance(value, np.void):
            return value.tobytes()
        elif isinstance(value, np.bytes_):
            return bytes(value)
        return value


class ContiguousRows:
    """Records of a dataset whose values follow one another in the file."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def read(self, row: int, files: LibraryFiles) -> Array:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`; a view of the mapped file."""
        value: Array = self._values[row]
        return value


class ChunkRows:
    """Records in chunks without filters, each as wide as a record."""

    def __init__(
        self, file: memoryview, offsets: NDArray[np.int64], rows: int, shape: tuple[int, ...], dtype: DType
    ) -> None:
        self._file, self._rows, self._shape, self._dtype = file, rows, shape, dtype
        self._offsets = offsets.data
        self._nbytes = math.prod(shape) * dtype.itemsize

    def read(self, row: int, files: LibraryFiles) -> Array:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`; a view of the mapped file."""
        chunk, inside = divmod(row, self._rows)
        return np.ndarray(self._shape, self._dtype, self._file, self._offsets[chunk] + inside * self._nbytes)


class BandRows:
    """Records in other chunks: all chunks of some records, a band, are read together, and the last bands are kept."""

    def __init__(self, read_band: Callable[[int], Array], rows: int, band_nbytes: int) -> None:
        self._rows = rows
        self._keeps = rows > 1
        kept = max(1, _CACHE_NBYTES // max(1, band_nbytes))
        self._read_band = functools.lru_cache(kept)(read_band) if self._keeps else read_band

    def read(self, row: int, files: LibraryFiles) -> Array:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`."""
        band, inside = divmod(row, self._rows)
        value: Array = self._read_band(band)[inside]
        if self._keeps:
            value = np.array(value)  # a view would keep the whole band
            value.flags.writeable = False
        return value


class HeapRows:
    """Values of variable length: views of the mapped file.

    Parameters
    ----------
    file : memoryview
        The mapped file.
    references : ndarray of :data:`~penstock.stores.hdf5.heap.REFERENCE`
        Where the value of each record is.
    dtype : dtype
        Of the numbers; uint8 gives a view of bytes.
    """

    def __init__(self, file: memoryview, references: Array, dtype: DType) -> None:
        self._heap, self._dtype = Heap(file), dtype
        self._is_bytes = dtype == np.uint8
        self._lengths = np.array(references["length"], np.uint32).data
        self._addresses = np.array(references["address"], np.uint64).data
        self._numbers = np.array(references["number"], np.uint32).data

    def read(self, row: int, files: LibraryFiles) -> Any:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`."""
        nbytes = self._lengths[row] * self._dtype.itemsize
        view = self._heap.find(self._addresses[row], self._numbers[row], nbytes)
        return view if self._is_bytes else np.frombuffer(view, self._dtype)


class ShardRows:
    """Records of several files, one after another."""

    def __init__(self, shards: Sequence[RowReader], counts: Sequence[int]) -> None:
        self._shards = list(shards)
        self._begins = [0, *itertools.accumulate(counts)]

    def read(self, row: int, files: LibraryFiles) -> Any:
        """See :class:`RowReader`."""
        number = bisect.bisect_right(self._begins, row) - 1
        return self._shards[number].read(row - self._begins[number], files)


def open_rows(dataset: Any, number: int, form: str, dtype: DType, file: memoryview) -> RowReader:
    """How the records of a dataset are read.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset; its file is not needed afterwards.
    number : int
        Number of the file.
    form, dtype : str and dtype
        As in :class:`~penstock.stores.hdf5.survey.FoundDataset`.
    file : memoryview
        The mapped file.
    """
    by_library = LibraryRows(number, dataset.name)
    h5py = require("h5py", extra="hdf5")
    if form not in {"array", "ragged"} or not _is_plain(h5py, dataset, form, dtype):
        return by_library
    stored = REFERENCE if form == "ragged" else dtype
    shape = tuple(map(int, dataset.shape))
    if dataset.chunks is None:
        values = _map_contiguous(dataset, shape, stored, file)
        rows: RowReader | None = None if values is None else ContiguousRows(values)
    else:
        layout = _read_layout(dataset, shape, stored, file)
        values = None if layout is None or form != "ragged" else layout.read_all()
        rows = None if layout is None else layout.make_rows()
    if form == "ragged":
        return by_library if values is None else HeapRows(file, values, dtype)
    return rows or by_library


def _is_plain(h5py: Any, dataset: Any, form: str, dtype: DType) -> bool:
    """Whether addresses are offsets in the file, and values are stored as NumPy stores them."""
    creation = dataset.file.id.get_create_plist()
    kind = dataset.id.get_type()
    if form == "ragged":
        kind = kind.get_super()
    same: bool = kind.equal(h5py.h5t.py_create(dtype, logical=True))
    return bool(
        same and creation.get_userblock() == 0 and creation.get_sizes() == (8, 8) and not dataset.is_virtual
        and dataset.file.driver == "sec2" and not dataset.file.swmr_mode and not dataset.external
    )  # fmt: skip


def _map_contiguous(dataset: Any, shape: tuple[int, ...], dtype: DType, file: memoryview) -> Array | None:
    offset = dataset.id.get_offset()
    count = math.prod(shape)
    if offset is None or offset < 0 or offset + count * dtype.itemsize > len(file):
        return None  # not allocated, or kept in the header
    return np.frombuffer(file, dtype, count, offset).reshape(shape)


class _ChunkLayout:
    """Where the chunks of a dataset are in its file, and how they are compressed."""

    def __init__(
        self, file: memoryview, shape: tuple[int, ...], chunk: tuple[int, ...], dtype: DType, filters: Sequence[int]
    ) -> None:
        self.file, self.shape, self.chunk, self.dtype, self.filters = file, shape, chunk, dtype, tuple(filters)
        self.grid = tuple(-(-length // side) for length, side in zip(shape, chunk, strict=True))
        self.nbytes = math.prod(chunk) * dtype.itemsize
        self.band_nbytes = chunk[0] * math.prod(shape[1:]) * dtype.itemsize
        self.offsets = np.full(math.prod(self.grid), _UNKNOWN, np.int64)
        self.sizes = np.zeros(len(self.offsets), np.int64)

    @property
    def is_sound(self) -> bool:
        """Whether all chunks are inside the file, and have the size that chunks without filters have."""
        ends = self.offsets + self.sizes
        whole = self.filters or not len(self.sizes) or int(self.sizes.min()) == int(self.sizes.max()) == self.nbytes
        return bool(whole and (self.offsets > 0).all() and (self.sizes > 0).all() and (ends <= len(self.file)).all())

    def make_rows(self) -> RowReader | None:
        """A reader of records; None if a band is too large."""
        if not self.filters and self.chunk[1:] == self.shape[1:]:
            return ChunkRows(self.file, self.offsets, self.chunk[0], self.shape[1:], self.dtype)
        if self.band_nbytes > _BAND_NBYTES:
            return None
        return BandRows(self.read_band, self.chunk[0], self.band_nbytes)

    def read_all(self) -> Array:
        """All records."""
        bands = [self.read_band(band) for band in range(self.grid[0])]
        return np.concatenate(bands)[: self.shape[0]] if bands else np.empty(self.shape, self.dtype)

    def read_band(self, band: int) -> Array:
        """The records of the chunks with one first coordinate."""
        across = math.prod(self.grid[1:])
        if across == 1 and self.chunk[1:] == self.shape[1:]:
            return self._read_chunk(band)
        values = np.empty((self.chunk[0], *self.shape[1:]), self.dtype)
        for ordinal, place in enumerate(np.ndindex(self.grid[1:])):
            spans = [
                slice(at * side, min((at + 1) * side, length))
                for at, side, length in zip(place, self.chunk[1:], self.shape[1:], strict=True)
            ]
            inside = [slice(0, span.stop - span.start) for span in spans]
            values[(slice(None), *spans)] = self._read_chunk(band * across + ordinal)[(slice(None), *inside)]
        values.flags.writeable = False
        return values

    def _read_chunk(self, ordinal: int) -> Array:
        offset, size = int(self.offsets[ordinal]), int(self.sizes[ordinal])
        content: bytes | memoryview = self.file[offset : offset + size]
        for number in reversed(self.filters):
            if number == _DEFLATE:
                content = _inflate(content, self.nbytes)
            else:
                content = np.frombuffer(content, np.uint8).reshape(self.dtype.itemsize, -1).T.tobytes()
        return np.frombuffer(content, self.dtype).reshape(self.chunk)


def _inflate(content: bytes | memoryview, nbytes: int) -> bytes:
    try:
        if len(content) <= _SMALL_NBYTES:  # cannot become large, and is inflated in one step
            inflated, is_whole = zlib.decompress(content, bufsize=nbytes), True
        else:
            stream = zlib.decompressobj()
            inflated = stream.decompress(content, nbytes + 1)
            is_whole = stream.eof
    except zlib.error as error:
        raise ValueError(f"its chunk is damaged: {error}") from error
    if len(inflated) != nbytes or not is_whole:
        raise ValueError(f"its chunk must have {nbytes} bytes, and has another number")
    return inflated


def _read_layout(dataset: Any, shape: tuple[int, ...], dtype: DType, file: memoryview) -> _ChunkLayout | None:
    """Where the chunks are; None if h5py must read them."""
    creation = dataset.id.get_create_plist()
    filters = [creation.get_filter(number) for number in range(creation.get_nfilters())]
    codes = [code for code, *_ in filters]
    shuffled = [tuple(values[:1]) == (dtype.itemsize,) for code, _, values, _ in filters if code == _SHUFFLE]
    if not set(codes) <= {_DEFLATE, _SHUFFLE} or not all(shuffled) or not hasattr(dataset.id, "chunk_iter"):
        return None
    grid = [-(-length // side) for length, side in zip(shape, dataset.chunks, strict=True)]
    if math.prod(grid) != dataset.id.get_num_chunks():
        return None  # some chunks were never written: their values are the fill value
    layout = _ChunkLayout(file, shape, tuple(dataset.chunks), dtype, codes)
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    masked = False

    def note(chunk: Any) -> None:
        nonlocal masked
        masked |= chunk.filter_mask != 0
        places = zip(chunk.chunk_offset, layout.chunk, strides, strict=True)
        ordinal = sum(at // side * stride for at, side, stride in places)
        if 0 <= ordinal < len(layout.offsets) and 0 <= chunk.byte_offset < 1 << 62 and chunk.size < 1 << 62:
            layout.offsets[ordinal], layout.sizes[ordinal] = chunk.byte_offset, chunk.size

    dataset.id.chunk_iter(note)
    return layout if layout.is_sound and not masked else None
