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
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from penstock.registry import require
from penstock.sample import Array, DType
from penstock.stores.hdf5.heap import REFERENCE, Heap
from penstock.stores.hdf5.survey import LIBRARY_ERRORS, open_library_file

if TYPE_CHECKING:
    import h5py

__all__ = ["LibraryFiles", "LibraryRows", "RowReader", "ShardRows", "open_rows"]

_BAND_NBYTES: Final = 128 << 20
_CACHE_NBYTES: Final = 64 << 20
_DEFLATE: Final = 1
_SHUFFLE: Final = 2


class LibraryFiles:
    """Files that this process keeps open with h5py; each is opened when it is first needed."""

    def __init__(self, paths: Sequence[Path], url: str, *, swmr: bool) -> None:
        self._paths, self._url, self._swmr = paths, url, swmr
        self._files: dict[int, h5py.File] = {}
        self._datasets: dict[tuple[int, str], h5py.Dataset] = {}

    def get_dataset(self, number: int, name: str) -> h5py.Dataset:
        """A dataset; looking one up takes as long as reading a record.

        Of a file in SWMR mode none is kept open: HDF5 2.0 reads wrong chunks of a dataset that another store refreshes.
        """
        found = self._datasets.get((number, name))
        if found is None:
            file = self._files.get(number)
            if file is None:
                opened = open_library_file(self._paths[number], self._url, swmr=self._swmr)
                file = self._files.setdefault(number, opened)  # another thread may have been faster
            found = file[name]
            if not self._swmr:
                self._datasets[number, name] = found
        return found

    def close(self) -> None:
        """Close them."""
        self._datasets.clear()
        while self._files:
            self._files.popitem()[1].close()


class RowReader(Protocol):
    """Reads records of one dataset."""

    def read(self, row: int, files: LibraryFiles) -> Array | bytes | memoryview:
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

    def read(self, row: int, files: LibraryFiles) -> Array | bytes | memoryview:
        """See :class:`RowReader`; the value is a copy."""
        try:
            value: Array | np.void | np.bytes_ = files.get_dataset(self._number, self._name)[row]
        except LIBRARY_ERRORS as error:
            raise ValueError(f"dataset {self._name!r} cannot be read: {error}") from error
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
            return value
        return value.tobytes() if isinstance(value, np.void) else bytes(value)


class MappedRows:
    """Records in chunks without filters, each as wide as a record; contiguous records are one chunk.

    Parameters
    ----------
    file : memoryview
        The mapped file.
    offsets : int64 array
        Where each chunk begins.
    rows : int
        Number of records of a chunk.
    shape, dtype : tuple and dtype
        Of a record.
    """

    def __init__(self, file: memoryview, offsets: Array, rows: int, shape: tuple[int, ...], dtype: DType) -> None:
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
        kept = max(1, _CACHE_NBYTES // max(1, band_nbytes)) if rows > 1 else 0
        self._read_band = functools.lru_cache(kept)(read_band)

    def read(self, row: int, files: LibraryFiles) -> Array:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`."""
        band, inside = divmod(row, self._rows)
        value: Array = np.array(self._read_band(band)[inside])  # a view would keep the whole band
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

    def read(self, row: int, files: LibraryFiles) -> Array | memoryview:  # noqa: ARG002  # the file is mapped
        """See :class:`RowReader`."""
        nbytes = self._lengths[row] * self._dtype.itemsize
        view = self._heap.find(self._addresses[row], self._numbers[row], nbytes)
        return view if self._is_bytes else np.frombuffer(view, self._dtype)


class ShardRows:
    """Records of several files, one after another."""

    def __init__(self, shards: Sequence[RowReader], counts: Sequence[int]) -> None:
        self._shards = list(shards)
        self._begins = [0, *itertools.accumulate(counts)]

    def read(self, row: int, files: LibraryFiles) -> Array | bytes | memoryview:
        """See :class:`RowReader`."""
        number = bisect.bisect_right(self._begins, row) - 1
        return self._shards[number].read(row - self._begins[number], files)


def open_rows(dataset: h5py.Dataset, number: int, form: str, dtype: DType, file: memoryview) -> RowReader:
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
    is_direct = form in {"array", "ragged"} and _is_plain(dataset, form, dtype)
    chunks = _locate_chunks(dataset, REFERENCE if form == "ragged" else dtype, file) if is_direct else None
    if chunks is not None and form == "ragged":
        return HeapRows(file, chunks.read_all(), dtype)
    if chunks is not None and chunks.is_mapped:
        return MappedRows(file, chunks.offsets, chunks.chunk[0], chunks.shape[1:], dtype)
    if chunks is None or chunks.band_nbytes > _BAND_NBYTES:
        return LibraryRows(number, dataset.name)
    return BandRows(chunks.read_band, chunks.chunk[0], chunks.band_nbytes)


def _is_plain(dataset: h5py.Dataset, form: str, dtype: DType) -> bool:
    """Whether addresses are offsets in the file, and values are stored as NumPy stores them."""
    creation = dataset.file.id.get_create_plist()
    kind = dataset.id.get_type()
    if form == "ragged":
        kind = kind.get_super()
    same: bool = kind.equal(require("h5py").h5t.py_create(dtype, logical=True))
    return bool(
        same and creation.get_userblock() == 0 and creation.get_sizes() == (8, 8) and not dataset.is_virtual
        and dataset.file.driver == "sec2" and not dataset.file.swmr_mode and not dataset.external
    )  # fmt: skip


class _Chunks:
    """Where the chunks of a dataset are in its file, and how they are compressed; contiguous records are one chunk."""

    def __init__(
        self, file: memoryview, shape: tuple[int, ...], chunk: tuple[int, ...], dtype: DType, filters: Sequence[int]
    ) -> None:
        self._file, self._dtype, self._filters = file, dtype, filters
        self.shape, self.chunk = shape, chunk
        self.grid = tuple(-(-length // side) for length, side in zip(shape, chunk, strict=True))
        self.offsets = np.full(math.prod(self.grid), -1, np.int64)
        self.sizes = np.zeros(len(self.offsets), np.int64)
        self.nbytes = math.prod(chunk) * dtype.itemsize
        self.band_nbytes = chunk[0] * math.prod(shape[1:]) * dtype.itemsize

    @property
    def is_mapped(self) -> bool:
        """Whether each record is a range of bytes of the file."""
        return not self._filters and self.chunk[1:] == self.shape[1:]

    @property
    def is_sound(self) -> bool:
        """Whether all chunks are inside the file, and have the size that chunks without filters have."""
        has_sizes = (self.sizes > 0) if self._filters else (self.sizes == self.nbytes)
        return bool((has_sizes & (self.offsets > 0) & (self.offsets + self.sizes <= len(self._file))).all())

    def read_all(self) -> Array:
        """All records."""
        bands = [self.read_band(band) for band in range(self.grid[0])]
        return np.concatenate(bands)[: self.shape[0]] if bands else np.empty(self.shape, self._dtype)

    def read_band(self, band: int) -> Array:
        """The records of the chunks with one first coordinate."""
        if self.chunk[1:] == self.shape[1:]:
            return self._read_chunk(band)
        values = np.empty((self.chunk[0], *self.shape[1:]), self._dtype)
        for number, place in enumerate(np.ndindex(self.grid[1:]), band * math.prod(self.grid[1:])):
            spans = [slice(at * side, (at + 1) * side) for at, side in zip(place, self.chunk[1:], strict=True)]
            target = values[(slice(None), *spans)]
            target[...] = self._read_chunk(number)[tuple(map(slice, target.shape))]
        return values

    def _read_chunk(self, number: int) -> Array:
        offset, size = int(self.offsets[number]), int(self.sizes[number])
        content: bytes | memoryview = self._file[offset : offset + size]
        for code in reversed(self._filters):
            if code == _DEFLATE:
                content = _inflate(content, self.nbytes)
            else:
                content = np.frombuffer(content, np.uint8).reshape(self._dtype.itemsize, -1).T.tobytes()
        return np.frombuffer(content, self._dtype).reshape(self.chunk)


def _inflate(content: bytes | memoryview, nbytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(content, nbytes + 1)
    except zlib.error as error:
        raise ValueError(f"its chunk is damaged: {error}") from error
    if len(inflated) != nbytes or not stream.eof:
        raise ValueError(f"its chunk must have {nbytes} bytes, and has another number")
    return inflated


def _locate_chunks(dataset: h5py.Dataset, dtype: DType, file: memoryview) -> _Chunks | None:
    """Where the chunks are; None if h5py must read them."""
    shape = tuple(map(int, dataset.shape))
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        if offset is None:
            return None  # not allocated, or kept in the header
        chunks = _Chunks(file, shape, shape, dtype, ())
        chunks.offsets[:], chunks.sizes[:] = offset, chunks.nbytes
        return chunks if chunks.is_sound else None
    creation = dataset.id.get_create_plist()
    filters = [creation.get_filter(number) for number in range(creation.get_nfilters())]
    shuffled = [tuple(values[:1]) == (dtype.itemsize,) for code, _, values, _ in filters if code == _SHUFFLE]
    codes = [code for code, *_ in filters]
    if not {_DEFLATE, _SHUFFLE}.issuperset(codes) or not all(shuffled) or not hasattr(dataset.id, "chunk_iter"):
        return None
    chunks = _Chunks(file, shape, tuple(dataset.chunks), dtype, codes)
    if len(chunks.offsets) != dataset.id.get_num_chunks():
        return None  # some chunks were never written: their values are the fill value

    def note(found: h5py.h5d.StoreInfo) -> None:
        place = [at // side for at, side in zip(found.chunk_offset, chunks.chunk, strict=True)]
        if found.filter_mask == 0 and found.byte_offset < 1 << 62 and found.size < 1 << 62:
            number = np.ravel_multi_index(place, chunks.grid)
            chunks.offsets[number], chunks.sizes[number] = found.byte_offset, found.size

    dataset.id.chunk_iter(note)
    return chunks if chunks.is_sound else None
