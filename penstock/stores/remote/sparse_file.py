"""The file of a copy of a remote object: which of its pages are there, and how pages are added.

::

    data.mdb          ....####..##......####    sparse: pages that were not fetched take no room
    data.mdb.pages    0000hhhh00hh000000hhhh    xxh3_64 of each page that is there

A page counts as there if its hash is in the table and fits: a process that is killed, a disk that loses what was not
written, a damaged file leave pages that are fetched again. Bytes are written before their hashes. Nothing is locked:
processes that fetch a page at once write the same bytes. No file stays open: thousands of objects may be. The table has
its whole room on the disk from the beginning: on a full tmpfs (``/dev/shm``), a process that reads a hole of a map is
ended by SIGBUS. Of the file, pages are read that were written.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import StoreError
from penstock.stores.common.mapped_files import identify_file, map_sized
from penstock.stores.remote.cache import CacheFolder

__all__ = ["PAGE_NBYTES", "Pages", "Range", "SparseFile"]

PAGE_NBYTES: Final = 4096
Range = tuple[int, int]
"""Offset and number of bytes, at least 1."""
_FEWEST_AT_ONCE: Final = 4
_logger = logging.getLogger(__name__)


class Pages(NamedTuple):
    """Whole pages of an object: where they begin, their bytes, and the hash of each."""

    begin: int
    content: memoryview
    hashes: NDArray[np.uint64]


class SparseFile:
    """The pages of one object that were fetched so far. Thread-safe.

    Parameters
    ----------
    path : Path
        The file, whose folder exists; it and its table are made if they are missing.
    nbytes : int
        Size of the object.
    cache : CacheFolder
        Says whether more may be written.
    url : str
        Names the object in errors.

    Raises
    ------
    StoreError
        If the file cannot be made.
    """

    def __init__(self, path: Path, nbytes: int, cache: CacheFolder, url: str) -> None:
        self._path, self._nbytes, self._cache, self._url = path, nbytes, cache, url
        self._folder = next(parent for parent in path.parents if parent.parent == cache.path)
        pages = -(-nbytes // PAGE_NBYTES)
        try:
            self.window, self._identity = map_sized(path, nbytes)
            hashes, self._table = self._map_table(8 * pages)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written ({error.strerror}); cache= names another folder", store=url
            ) from error
        self._hashes = np.frombuffer(hashes, "<u8")
        self._present = np.zeros(pages, np.bool_)
        self._has_place = np.zeros(pages, np.bool_)
        """Of pages that were forgotten: their bytes take room already."""
        self._in_memory: dict[Range, memoryview] = {}

    def _map_table(self, nbytes: int) -> tuple[memoryview, tuple[int, int] | None]:
        """Return the table, with device and inode; where the disk has no room for it, an empty one in memory."""
        try:
            return map_sized(Path(self._table_path), nbytes, is_reserved=True)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            self._do_without(error)
            return np.zeros(nbytes, np.uint8).data, None

    def lacks(self, offset: int, nbytes: int) -> bool:
        """Return whether a page in which some of the bytes are is not there."""
        first, last = offset // PAGE_NBYTES, -(-(offset + nbytes) // PAGE_NBYTES)
        present = self._present[first:last]
        if present.all():
            return False
        written = ~present & (self._hashes[first:last] != 0)
        if not written.any():
            return True
        for begin, end in _find_runs(written):
            pages = self.window[(first + begin) * PAGE_NBYTES : (first + end) * PAGE_NBYTES]
            present[begin:end] = _native.hash_pages(pages, PAGE_NBYTES) == self._hashes[first + begin : first + end]
        return not present.all()

    def select_missing(self, ranges: Sequence[Range]) -> list[Range]:
        """Return those ranges of which :meth:`lacks` is true; of many they are found for all at once."""
        if len(ranges) < _FEWEST_AT_ONCE:
            return [each for each in ranges if self.lacks(*each)]
        begins, sizes = np.array(ranges, np.int64).T
        firsts = begins // PAGE_NBYTES
        counts = -(-(begins + sizes) // PAGE_NBYTES) - firsts
        at = np.cumsum(counts) - counts  # where the pages of each range begin in `pages`
        pages = np.arange(counts.sum()) + np.repeat(firsts - at, counts)
        absent = ~self._present[pages]
        written = absent & (self._hashes[pages] != 0)  # by another process, or before
        found = zip(ranges, np.logical_or.reduceat(absent, at), np.logical_or.reduceat(written, at), strict=True)
        return [each for each, is_absent, is_written in found if is_absent and (not is_written or self.lacks(*each))]

    def find_missing(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Return where runs of whole pages that are not there begin and end, of those in which some bytes are."""
        if not self.lacks(offset, nbytes):
            return []
        first, last = offset // PAGE_NBYTES, -(-(offset + nbytes) // PAGE_NBYTES)
        runs = _find_runs(~self._present[first:last])
        return [((first + begin) * PAGE_NBYTES, min((first + end) * PAGE_NBYTES, self._nbytes)) for begin, end in runs]

    def add(self, parts: Sequence[Pages], *, must_keep: bool = False) -> bool:
        """Write pages, then their hashes; False if there is no room, and not ``must_keep``."""
        nbytes = 0
        for begin, content, hashes in parts:
            first = begin // PAGE_NBYTES
            nbytes += 0 if self._has_place[first : first + len(hashes)].all() else len(content)
        has_room = not nbytes or self._cache.admit(nbytes, self._folder) or must_keep
        if self._table is None or not has_room:
            return False
        try:
            for begin, content, _ in parts:
                _native.write_at(self._path, self._identity, begin, content)
            for begin, _, hashes in parts:
                _native.write_at(self._table_path, self._table, begin // PAGE_NBYTES * 8, hashes.data.cast("B"))
        except OSError as error:
            self._do_without(error)
            return False
        for begin, _, hashes in parts:
            self._present[begin // PAGE_NBYTES :][: len(hashes)] = True
        return True

    def keep_in_memory(self, offset: int, content: memoryview) -> memoryview:
        """Keep a copy of bytes for which there is no room in the file; the one that is kept."""
        return self._in_memory.setdefault((offset, len(content)), memoryview(bytes(content)))

    def find_in_memory(self, offset: int, nbytes: int) -> memoryview | None:
        """Bytes that :meth:`keep_in_memory` was given, or a part of a page that it was given; None if it was not."""
        begin = offset // PAGE_NBYTES * PAGE_NBYTES
        page = self._in_memory.get((begin, PAGE_NBYTES))
        if page is not None and offset + nbytes <= begin + PAGE_NBYTES:
            return page[offset - begin :][:nbytes]
        return self._in_memory.get((offset, nbytes))

    def forget(self, offset: int, nbytes: int) -> None:
        """Take pages in which some bytes are for absent; StoreError if the file was deleted."""
        self._in_memory.clear()
        first, last = offset // PAGE_NBYTES, -(-(offset + nbytes) // PAGE_NBYTES)
        try:
            if self._table is not None:
                _native.write_at(self._table_path, self._table, 8 * first, bytes(8 * (last - first)))
        except OSError as error:
            raise self._make_deleted_error() from error
        self._has_place[first:last] |= self._present[first:last]
        self._present[first:last] = False

    def refuse_deleted(self) -> None:
        """Raise StoreError if another file is at the path: whoever opens the file next would read that."""
        if identify_file(self._path) != self._identity:
            raise self._make_deleted_error()

    def _do_without(self, error: OSError) -> None:
        """Write nothing more to the cache in this process."""
        _logger.warning("%s: it is read without the cache: %s", self._cache.path, error.strerror)
        self._cache.close()

    @property
    def _table_path(self) -> str:
        return f"{self._path}.pages"

    def _make_deleted_error(self) -> StoreError:
        return StoreError(f"{self._path} was deleted while it was open; open the store again", store=self._url)


def _find_runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where each run of true values begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
