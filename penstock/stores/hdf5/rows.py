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
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.registry import require
from penstock.sample import Array, DType
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.hdf5.heap import HEAD_NBYTES, REFERENCE, Heap, guess_offsets
from penstock.stores.hdf5.survey import LIBRARY_ERRORS, open_library_file

if TYPE_CHECKING:
    import h5py

__all__ = ["LibraryFiles", "LocateRow", "ReadRow", "open_rows", "read_by_library", "read_shards"]

_BAND_NBYTES: Final = 128 << 20
_CACHE_NBYTES: Final = 64 << 20
_DEFLATE: Final = 1
_SHUFFLE: Final = 2


class LibraryFiles:
    """Files that this process keeps open with h5py; each is opened when it is first needed."""

    def __init__(self, paths: Sequence[Path], url: str, *, swmr: bool) -> None:
        self._paths, self._url, self._swmr = paths, url, swmr
        self._kept_nbytes = max(_CACHE_NBYTES // len(paths), 1 << 20)
        self._files: dict[int, h5py.File] = {}
        self._datasets: dict[tuple[int, str], h5py.Dataset] = {}

    def get_dataset(self, number: int, name: str) -> h5py.Dataset:
        """Return a dataset; looking one up takes as long as reading a record.

        Of a file in SWMR mode none is kept open: HDF5 2.0 reads wrong chunks of a dataset that another store refreshes.
        """
        found = self._datasets.get((number, name))
        if found is None:
            file = self._files.get(number)
            if file is None:
                path, kept = self._paths[number], self._kept_nbytes
                opened = open_library_file(path, self._url, swmr=self._swmr, kept_nbytes=kept)
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


ReadRow = Callable[[int, LibraryFiles], "Array | bytes | memoryview"]
"""Reads a record of one dataset: a read-only array, or for values of variable length in bytes a read-only view.

ValueError if its bytes are damaged.
"""


LocateRow = Callable[[int], tuple[int, int, int]]
"""Number of the file, offset and number of bytes of what :data:`ReadRow` reads of it."""


def open_rows(
    dataset: h5py.Dataset, number: int, form: str, dtype: DType, file: ByteRanges
) -> tuple[ReadRow, LocateRow | None]:
    """Return what reads the records of a dataset, and where they are; None where h5py finds them.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset; its file is not needed afterwards.
    number : int
        Number of the file.
    form, dtype : str and dtype
        As in :class:`~penstock.stores.hdf5.survey.FoundDataset`.
    file : ByteRanges
        The bytes of the file.
    """
    is_direct = form in {"array", "ragged"} and _is_plain(dataset, form, dtype)
    chunks = _locate_chunks(dataset, REFERENCE if form == "ragged" else dtype, file) if is_direct else None
    if chunks is not None and form == "ragged":
        references = chunks.read_all()
        is_local = isinstance(file, memoryview)  # nobody asks where they are, which takes time
        return _read_heap(file, references, dtype), None if is_local else _locate_values(references, dtype, number)
    if chunks is not None and chunks.is_mapped:
        return _read_mapped(file, chunks, dtype), functools.partial(chunks.locate, number)
    if chunks is None or chunks.band_nbytes > _BAND_NBYTES:
        return read_by_library(number, dataset.name), None
    return _read_bands(chunks), functools.partial(chunks.locate, number) if chunks.is_whole else None


def read_by_library(number: int, name: str) -> ReadRow:
    """Return what reads the records of the dataset ``name`` in a file by h5py; the values are copies."""

    def read(row: int, files: LibraryFiles) -> Array | bytes | memoryview:
        try:
            value: Array | np.void | np.bytes_ = files.get_dataset(number, name)[row]
        except LIBRARY_ERRORS as error:
            raise ValueError(f"dataset {name!r} cannot be read: {error}") from error
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
            return value
        return value.tobytes() if isinstance(value, np.void) else bytes(value)

    return read


def read_shards(
    shards: Sequence[tuple[ReadRow, LocateRow | None]], counts: Sequence[int]
) -> tuple[ReadRow, LocateRow | None]:
    """Return what reads the records of several files, one after another, and where they are."""
    begins = [0, *itertools.accumulate(counts)]
    if len(shards) == 1:
        return shards[0]
    readers, places = zip(*shards, strict=True)

    def locate(row: int) -> tuple[int, int, int]:
        number = bisect.bisect_right(begins, row) - 1
        found: tuple[int, int, int] = places[number](row - begins[number])
        return found

    def read(row: int, files: LibraryFiles) -> Array | bytes | memoryview:
        number = bisect.bisect_right(begins, row) - 1
        value: Array | bytes | memoryview = readers[number](row - begins[number], files)
        return value

    return read, None if None in places else locate


def _read_mapped(file: ByteRanges, chunks: _Chunks, dtype: DType) -> ReadRow:
    """Return what reads records in chunks without filters, each as wide as a record: views of the mapped file."""
    offsets, rows, shape = chunks.offsets.data, chunks.chunk[0], chunks.shape[1:]
    nbytes = math.prod(shape) * dtype.itemsize

    def read(row: int, files: LibraryFiles) -> Array:  # noqa: ARG001  # the file is mapped
        chunk, inside = divmod(row, rows)
        begin = offsets[chunk] + inside * nbytes
        return np.ndarray(shape, dtype, file[begin : begin + nbytes])

    return read


def _read_bands(chunks: _Chunks) -> ReadRow:
    """Return what reads records in other chunks: all chunks of some records, a band, together.

    The last bands are kept.
    """
    rows = chunks.chunk[0]
    kept = max(1, _CACHE_NBYTES // max(1, chunks.band_nbytes)) if rows > 1 else 0
    read_band = functools.lru_cache(kept)(chunks.read_band)

    def read(row: int, files: LibraryFiles) -> Array:  # noqa: ARG001  # the file is mapped
        band, inside = divmod(row, rows)
        value: Array = np.array(read_band(band)[inside])  # a view would keep the whole band
        value.flags.writeable = False
        return value

    return read


def _read_heap(file: ByteRanges, references: Array, dtype: DType) -> ReadRow:
    """Return what reads values of variable length: views of the mapped file.

    ``file``: the bytes of the file. ``references``: where the value of each record is. ``dtype``: of the numbers; uint8
    gives a view of bytes.
    """
    find, is_bytes = Heap(file).find, dtype == np.uint8
    addresses, numbers = references["address"].astype(np.uint64).data, references["number"].astype(np.uint32).data
    sizes = (references["length"].astype(np.int64) * dtype.itemsize).data

    guesses = None if isinstance(file, memoryview) else guess_offsets(references, dtype.itemsize).data

    def read(row: int, files: LibraryFiles) -> Array | memoryview:  # noqa: ARG001  # the file is mapped
        view = find(addresses[row], numbers[row], sizes[row], 0 if guesses is None else guesses[row])
        return view if is_bytes else np.frombuffer(view, dtype)

    return read


def _locate_values(references: Array, dtype: DType, file: int) -> LocateRow:
    """Return where values of variable length are as a rule; see :func:`guess_offsets`."""
    offsets, lengths = guess_offsets(references, dtype.itemsize), references["length"]

    def locate(row: int) -> tuple[int, int, int]:
        nbytes = int(lengths[row]) * dtype.itemsize
        return file, int(offsets[row]), nbytes + HEAD_NBYTES if nbytes else 0

    return locate


def _is_plain(dataset: h5py.Dataset, form: str, dtype: DType) -> bool:
    """Return whether addresses are offsets in the file, and values are stored as NumPy stores them."""
    creation = dataset.file.id.get_create_plist()
    kind = dataset.id.get_type()
    if form == "ragged":
        kind = kind.get_super()
    same: bool = kind.equal(require("h5py").h5t.py_create(dtype, logical=True))
    return bool(
        same and creation.get_userblock() == 0 and creation.get_sizes() == (8, 8) and not dataset.is_virtual
        and dataset.file.driver in {"sec2", "fileobj"} and not dataset.file.swmr_mode and not dataset.external
    )  # fmt: skip


class _Chunks:
    """Where the chunks of a dataset are in its file, and how they are compressed; contiguous records are one chunk."""

    def __init__(
        self, file: ByteRanges, shape: tuple[int, ...], chunk: tuple[int, ...], dtype: DType, filters: Sequence[int]
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
        return not self._filters and self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether each record is in one chunk."""
        return self.chunk[1:] == self.shape[1:]

    def locate(self, number: int, row: int) -> tuple[int, int, int]:
        """Return where a record of the file ``number`` is, or its chunk if that has filters."""
        chunk, inside = divmod(row, self.chunk[0])
        if self._filters:
            return number, int(self.offsets[chunk]), int(self.sizes[chunk])
        nbytes = self.nbytes // self.chunk[0]
        return number, int(self.offsets[chunk]) + inside * nbytes, nbytes

    @property
    def is_sound(self) -> bool:
        """Whether all chunks are inside the file, and have the size that chunks without filters have."""
        has_sizes = (self.sizes > 0) if self._filters else (self.sizes == self.nbytes)
        return bool((has_sizes & (self.offsets > 0) & (self.offsets + self.sizes <= len(self._file))).all())

    def read_all(self) -> Array:
        """Return all records."""
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


def _locate_chunks(dataset: h5py.Dataset, dtype: DType, file: ByteRanges) -> _Chunks | None:
    """Return where the chunks are; None if h5py must read them."""
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
