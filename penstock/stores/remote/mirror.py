"""A copy of a remote object in a file of this machine, which has the pages that were read so far.

::

    data.mdb          ....####..##......####    sparse: pages that were not fetched take no room
    data.mdb.pages    0000hhhh00hh000000hhhh    xxh3_64 of each page that is there

A page counts as there if its hash is in the table and fits: a process that is killed, a disk that loses what was not
written, a damaged file leave pages that are fetched again. Bytes are written before their hashes. Nothing is locked:
processes that fetch a page at once write the same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import mmap
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xxhash

from penstock import forks
from penstock.errors import StoreError
from penstock.stores.common.mirrors import PageHashes
from penstock.stores.common.regular_file import open_regular
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.request_queue import get_fetcher

__all__ = ["Mirror"]

_PAGE: Final = 4096
_PART_NBYTES: Final = 4 << 20
"""Most bytes of a request."""
_MAX_HELD_NBYTES: Final = 128 << 20
"""Most bytes that are fetched ahead and not in the file."""
_MAX_WAITING: Final = 1 << 12
"""Requests that wait until what was fetched before is taken; beyond it the oldest are forgotten."""
_FORGOTTEN: Final = 64
_MAX_ATTEMPTS: Final = 4
_logger = logging.getLogger(__name__)


class _Fetched(NamedTuple):
    """Bytes that came: a view of the file, or of their own memory."""

    content: memoryview
    in_file: bool


class Mirror:
    """A copy of one object; see :class:`~penstock.stores.common.mirrors.MirrorFile`.

    Parameters
    ----------
    place, name : Place, str
        Where the object is.
    info : ObjectInfo
        Its size and version.
    path : Path
        The file, whose folder exists; it and its table are made if they are missing.
    cache : CacheFolder
        Says whether more may be written.

    Raises
    ------
    StoreError
        If the file cannot be made.
    """

    def __init__(self, place: Place, name: str, info: ObjectInfo, path: Path, cache: CacheFolder) -> None:
        self._place, self._name, self._info, self._cache = place, name, info, cache
        self._folder = next(parent for parent in path.parents if parent.parent == cache.path)
        self.nbytes = info.nbytes
        self.version = int.from_bytes(
            hashlib.blake2b(repr((place.url, name, info, path)).encode(), digest_size=7).digest()
        )
        pages = -(-info.nbytes // _PAGE)
        self._path = path
        try:
            self._file, self._window = self._open(path, info.nbytes)
            self._table, hashes = self._open(Path(f"{path}.pages"), 8 * pages)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written ({error.strerror}); cache= names another folder", store=place.name(name)
            ) from error
        self._hashes = np.frombuffer(hashes, "<u8")
        self._present = np.zeros(pages, np.bool_)
        self._lock = threading.RLock()
        self._coming: OrderedDict[tuple[int, int], tuple[Future[_Fetched], int] | None] = OrderedDict()
        self._waiting: deque[list[tuple[int, int]]] = deque()
        self._held_nbytes = 0
        self._kept: dict[tuple[int, int], memoryview] = {}
        self.hashes: PageHashes | None = None
        """Those of the pages of the object, where it has them."""
        forks.watch(self)

    def _open(self, path: Path, nbytes: int) -> tuple[int, memoryview]:
        file = _open_sized(path, nbytes)
        # not at the end of the process: threads that still write would write to another file that gets its number
        weakref.finalize(self, os.close, file).atexit = False
        return file, memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ) if nbytes else b"")

    def renew_in_child(self) -> None:
        """In a forked child: there are no threads."""
        self._lock = threading.RLock()
        self._coming, self._waiting = OrderedDict(), deque()
        self._held_nbytes = 0

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`; ValueError outside the object."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} must be inside an object of {self.nbytes}")
        if not self._find_missing(offset, nbytes):
            return self._window[offset : offset + nbytes]
        content = self._kept.get((offset, nbytes)) if keep else None
        if content is None and (not keep or (offset, nbytes) in self._coming):
            content = self._take(offset, nbytes, forgets=not keep)
        if content is None:
            content = self._fetch(offset, nbytes, must_keep=keep).content
        if keep and self._find_missing(offset, nbytes):
            content = self._kept.setdefault((offset, nbytes), memoryview(bytes(content)))  # not all that came with it
        return content

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        nbytes = self.nbytes - offset if nbytes is None else nbytes
        nbytes = max(min(nbytes, self.nbytes - offset), 0)
        fetcher = get_fetcher()
        parts = [
            (at, min(_PART_NBYTES, end - at))
            for begin, end in self._find_missing(offset, nbytes)
            for at in range(begin, end, _PART_NBYTES)
        ]
        full = threading.Event()
        pending = [fetcher.submit(functools.partial(self._fetch_to_file, full, *part), part[1]) for part in parts]
        try:
            for future in pending:
                future.result()
        finally:  # after an error
            for future in pending:
                future.cancel()
        if not _is_same(self._path, self._file):  # whoever opens the file next would read another
            raise StoreError(
                f"{self._path} was deleted while it was open; open the store again", store=self._place.name(self._name)
            )

    def _fetch_to_file(self, full: threading.Event, offset: int, nbytes: int) -> None:
        if not full.is_set() and not self._fetch(offset, nbytes).in_file:
            full.set()
            raise StoreError(
                f"{self.nbytes} bytes must fit into the cache {self._cache.path}, which is full; cache_size= sets its "
                "limit",
                store=self._place.name(self._name),
            )

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        fetcher = get_fetcher()
        missing = [each for each in dict.fromkeys(ranges) if each[1] and self._find_missing(*each)]
        with self._lock:
            wanted = [each for each in missing if each not in self._coming]
            self._coming.update(dict.fromkeys(wanted))
            self._waiting.extend(_join(sorted(wanted), fetcher.gap_nbytes if self._place.joins_neighbours else -1))
            while len(self._waiting) > _MAX_WAITING:  # an epoch that was abandoned, as a rule
                for each in self._waiting.popleft():
                    self._pop(each)
        self._send()
        return sum(nbytes for _, nbytes in wanted)

    def submit(self, call: Callable[[], object]) -> object:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        return get_fetcher().submit(call, 0)

    def _send(self) -> None:
        """Send the requests that wait, as far as what was fetched is taken."""
        fetcher = get_fetcher()
        with self._lock:
            while self._waiting and self._held_nbytes < _MAX_HELD_NBYTES:
                group = [each for each in self._waiting.popleft() if self._coming.get(each, ()) is None]
                if not group:
                    continue
                begin = group[0][0]
                nbytes = max(offset + size for offset, size in group) - begin
                future = fetcher.submit(functools.partial(self._fetch, begin, nbytes), nbytes)
                self._held_nbytes += sum(size for _, size in group)
                for each in group:
                    self._coming[each] = future, begin
                future.add_done_callback(functools.partial(self._settle, group))

    def _settle(self, group: list[tuple[int, int]], future: Future[_Fetched]) -> None:
        """Forget what came and is in the file: it is read there."""
        if future.cancelled() or future.exception() is not None or not future.result().in_file:
            return
        with self._lock:
            for each in group:
                self._pop(each)
        if self._waiting:
            self._send()

    def _take(self, offset: int, nbytes: int, *, forgets: bool) -> memoryview | None:
        """What was announced; None if it was not, or does not come: then the caller fetches it."""
        with self._lock:
            if (coming := self._coming.get((offset, nbytes))) is None:
                self._pop((offset, nbytes))
            if coming is None and self._waiting and forgets:
                self._forget_oldest()  # what was announced before is not read, or not in that order
        if coming is None:
            return None
        future, begin = coming
        try:
            fetched = future.result(get_fetcher().patience)
        except (OSError, CancelledError, TimeoutError):
            return None  # a second request takes the place of one that is slow, and raises what is wrong
        finally:
            with self._lock:  # until now, so that other threads find it
                self._pop((offset, nbytes))
            if self._waiting:
                self._send()
        return fetched.content[offset - begin :][:nbytes]

    def _forget_oldest(self) -> None:
        for each in list(itertools.islice(self._coming, _FORGOTTEN)):
            self._pop(each)

    def _pop(self, each: tuple[int, int]) -> tuple[Future[_Fetched], int] | None:
        """Forget a range that was announced; the request that brings it, and where that begins, if it is sent."""
        coming = self._coming.pop(each, None)
        if coming is not None:
            self._held_nbytes -= each[1]
        return coming

    def _find_missing(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """The ranges of whole pages that are not there, of those in which some bytes are."""
        first, last = offset // _PAGE, -(-(offset + nbytes) // _PAGE)
        present = self._present[first:last]
        if present.all():
            return []
        for page in (first + np.flatnonzero(~present & (self._hashes[first:last] != 0))).tolist():
            self._present[page] = _hash(self._window[page * _PAGE : (page + 1) * _PAGE]) == self._hashes[page]
        edges = np.flatnonzero(np.diff(np.concatenate([[True], present, [True]])))
        return [(int(a + first) * _PAGE, min(int(b + first) * _PAGE, self.nbytes)) for a, b in edges.reshape(-1, 2)]

    def _fetch(self, offset: int, nbytes: int, *, must_keep: bool = False) -> _Fetched:
        """Fetch bytes, with the rest of their pages, of which there are hashes; keep them where the cache has room."""
        page = max(_PAGE, self.hashes.page_nbytes if self.hashes is not None else 0)
        begin = offset // page * page
        end = min(-(-(offset + nbytes) // page) * page, self.nbytes)
        content = self._get(begin, end)
        if self._keep(begin, content, must_keep=must_keep):
            return _Fetched(self._window[offset : offset + nbytes], in_file=True)
        return _Fetched(content[offset - begin :][:nbytes], in_file=False)

    def _get(self, begin: int, end: int) -> memoryview:
        """Whole pages of the object, compared with their hashes where those are known."""
        for attempt in range(_MAX_ATTEMPTS):
            content = self._place.get(self._name, begin, end, self._info)
            if self.hashes is None or self.hashes.fits(content, begin, again=attempt > 1):
                return content
        raise StoreError(
            f"bytes {begin} to {end} are not those that were written, {_MAX_ATTEMPTS} times; copy it there again",
            store=self._place.name(self._name),
        )

    def forget(self, offset: int, nbytes: int) -> None:
        """Take bytes for absent, such that they are fetched again; those whose hashes are wrong, as a rule."""
        first, last = offset // _PAGE, -(-(offset + nbytes) // _PAGE)
        _write(self._table, memoryview(bytes(8 * (last - first))), 8 * first)
        self._present[first:last] = False
        self._kept.clear()

    def _keep(self, begin: int, content: memoryview, *, must_keep: bool) -> bool:
        """Write whole pages, then their hashes; False if there is no room."""
        if not self._cache.admit(len(content), self._folder) and not must_keep:
            return False
        first = begin // _PAGE
        hashes = np.array([_hash(content[at : at + _PAGE]) for at in range(0, len(content), _PAGE)], "<u8")
        try:
            _write(self._file, content, begin)
            _write(self._table, memoryview(hashes.tobytes()), 8 * first)
        except OSError as error:
            _logger.warning("%s: it is read without the cache: %s", self._cache.path, error.strerror)
            self._cache.close()
            return False
        self._present[first : first + len(hashes)] = True
        return True


def _join(ranges: Sequence[tuple[int, int]], gap: int) -> Iterator[list[tuple[int, int]]]:
    """Groups of sorted ranges, each for one request: between neighbours of a group are at most ``gap`` bytes."""
    group: list[tuple[int, int]] = []
    end = 0
    for offset, nbytes in ranges:
        if group and (offset - end > gap or offset + nbytes - group[0][0] > _PART_NBYTES):
            yield group
            group = []
        group.append((offset, nbytes))
        end = max(end, offset + nbytes)
    if group:
        yield group


def _is_same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _hash(page: memoryview) -> int:
    """The entry of a page in the table; 0 stands for a page that is not there."""
    return xxhash.xxh3_64_intdigest(page) or 1


def _write(file: int, content: memoryview, offset: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(file, content[written:], offset + written)


def _open_sized(path: Path, nbytes: int) -> int:
    """Open a file that has a size, or gets it; other processes may do so at once."""
    file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if os.fstat(file).st_size != nbytes:
            os.ftruncate(file, nbytes)
    except BaseException:
        os.close(file)
        raise
    return file
