"""A copy of a remote object in a file of this machine, which has the pages that were read so far.

::

    data.mdb          ....####..##......####    sparse: pages that were not fetched take no room
    data.mdb.pages    0000hhhh00hh000000hhhh    xxh3_64 of each page that is there

A page counts as there if its hash is in the table and fits: a process that is killed, a disk that loses what was not
written, a damaged file leave pages that are fetched again. Bytes are written before their hashes. Nothing is locked:
processes that fetch a page at once write the same bytes. No file stays open: thousands of objects may be.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import _native, system
from penstock.errors import CorruptRecordError, StoreError
from penstock.stores.common.mapped_files import identify_file, map_sized
from penstock.stores.common.mirrors import PageHashes
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.request_queue import SequentialReader, get_fetcher, join_ranges
from penstock.trace import count_remote

__all__ = ["MAX_HELD_NBYTES", "MAX_IN_MEMORY_NBYTES", "PART_NBYTES", "Mirror"]

_PAGE: Final = 4096
PART_NBYTES: Final = 4 << 20
"""Most bytes of a request."""
MAX_HELD_NBYTES: Final = 80 << 20
"""Most bytes that are fetched ahead and not in the file, by all ranks on this machine: 200 ms at 400 MB/s."""
MAX_IN_MEMORY_NBYTES: Final = 48 << 20
"""The same while the cache is full: they are in memory until they are read."""
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
            self.window, self._file = map_sized(path, info.nbytes)
            hashes, self._table = map_sized(Path(f"{path}.pages"), 8 * pages)
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
        self._is_read = self._is_full = False
        self._kept: dict[tuple[int, int], memoryview] = {}
        self.hashes: PageHashes | None = None
        """Those of the pages of the object, where it has them."""
        system.watch(self)

    def renew_in_child(self) -> None:
        """In a forked child: there are no threads."""
        self._lock = threading.RLock()
        self._coming, self._waiting = OrderedDict(), deque()
        self._held_nbytes = 0

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`; ValueError outside the object."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} must be inside an object of {self.nbytes}")
        count_remote(reads=1, read_nbytes=nbytes)
        self._is_read = self._is_read or not keep
        if not self._is_missing(offset, nbytes):
            return self.window[offset : offset + nbytes]
        content = self._kept.get((offset, nbytes)) if keep else None
        began = time.monotonic_ns()
        if content is None and (not keep or (offset, nbytes) in self._coming):
            content = self._take(offset, nbytes, forgets=not keep)
        if content is None:
            content = self._fetch(offset, nbytes, must_keep=keep).content
        count_remote(wait_ns=time.monotonic_ns() - began)
        if keep and self._is_missing(offset, nbytes):
            content = self._kept.setdefault((offset, nbytes), memoryview(bytes(content)))  # not all that came with it
        return content

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        nbytes = self.nbytes - offset if nbytes is None else nbytes
        nbytes = max(min(nbytes, self.nbytes - offset), 0)
        fetcher = get_fetcher()
        parts = [
            (at, min(PART_NBYTES, end - at))
            for begin, end in self._find_missing(offset, nbytes)
            for at in range(begin, end, PART_NBYTES)
        ]
        full, began = threading.Event(), time.monotonic_ns()
        if missing := sum(size for _, size in parts):  # what is there may be read several times
            count_remote(reads=len(parts), read_nbytes=missing, misses=len(parts), missed_nbytes=missing)
        pending = [fetcher.submit(functools.partial(self._fetch_to_file, full, *part), part[1]) for part in parts]
        try:
            for future in pending:
                future.result()
        finally:  # after an error
            for future in pending:
                future.cancel()
            if pending:
                count_remote(wait_ns=time.monotonic_ns() - began)
        if identify_file(self._path) != self._file:  # whoever opens the file next would read another
            raise self._make_deleted_error()

    def _make_deleted_error(self) -> StoreError:
        return StoreError(
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
        if self._is_full and not self._is_read:
            return 0  # worker processes read, which would fetch again what this one has in memory
        fetcher = get_fetcher()
        new = [each for each in dict.fromkeys(ranges) if each[1] and each not in self._coming]
        missing = [each for each in new if self._is_missing(*each)]
        if missing and self.hashes is not None:
            self.hashes.announce(missing)
        with self._lock:
            wanted = [each for each in missing if each not in self._coming]
            self._coming.update(dict.fromkeys(wanted))
            gap = fetcher.gap_nbytes if self._place.joins_neighbours else -1
            self._waiting.extend(join_ranges(sorted(wanted), gap, PART_NBYTES))
            while len(self._waiting) > _MAX_WAITING:  # an epoch that was abandoned, as a rule
                for each in self._waiting.popleft():
                    self._pop(each)
        self._send()
        return sum(nbytes for _, nbytes in wanted)

    def hold(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        self._is_read = True
        wanted = [each for each in ranges if each[1]]
        missing = [each for each in wanted if self._is_missing(*each)]
        self.announce(missing)
        began = time.monotonic_ns()
        try:
            is_held = self._wait(missing)
        finally:
            count_remote(wait_ns=time.monotonic_ns() - began if missing else 0)
        if is_held:  # else each is read, and counted then
            count_remote(reads=len(wanted), read_nbytes=sum(nbytes for _, nbytes in wanted))
        return is_held

    def _wait(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Whether ranges that were announced come into the file; until all have, or one does not."""
        for each in ranges:
            with self._lock:
                coming = self._coming.get(each)
            if coming is not None:
                try:
                    coming[0].result(get_fetcher().patience)
                except (OSError, CancelledError, TimeoutError):  # whoever reads it asks again, and says what is wrong
                    with self._lock:
                        self._pop(each)
            if self._is_missing(*each):
                return False
        return True

    def submit(self, call: Callable[[], object]) -> Future[object]:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""
        return get_fetcher().submit(call, 0)

    def _send(self) -> None:
        """Send the requests that wait, as far as what was fetched is taken."""
        fetcher = get_fetcher()
        with self._lock:
            most = (MAX_IN_MEMORY_NBYTES if self._is_full else MAX_HELD_NBYTES) // fetcher.local_ranks
            while self._waiting and self._held_nbytes < most:
                group = [each for each in self._waiting.popleft() if self._coming.get(each, ()) is None]
                if not group:
                    continue
                begin = group[0][0]
                nbytes = max(offset + size for offset, size in group) - begin
                future = fetcher.submit(functools.partial(self._fetch, begin, nbytes), nbytes)
                wanted = sum(size for _, size in group)
                count_remote(misses=len(group), missed_nbytes=wanted)
                self._held_nbytes += wanted
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
            count_remote(misses=1, missed_nbytes=nbytes)
            return None
        future, begin = coming
        try:
            fetched = future.result(get_fetcher().patience)
        except (OSError, CancelledError, TimeoutError) as error:
            count_remote(hedges=isinstance(error, TimeoutError))
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

    def _is_missing(self, offset: int, nbytes: int) -> bool:
        """Whether a page in which some of the bytes are is not there."""
        first, last = offset // _PAGE, -(-(offset + nbytes) // _PAGE)
        present = self._present[first:last]
        if present.all():
            return False
        written = ~present & (self._hashes[first:last] != 0)
        if not written.any():
            return True
        for begin, end in _find_runs(written):
            found = _native.hash_pages(self.window[(first + begin) * _PAGE : (first + end) * _PAGE], _PAGE)
            present[begin:end] = found == self._hashes[first + begin : first + end]
        return not present.all()

    def _find_missing(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """The ranges of whole pages that are not there, of those in which some bytes are."""
        if not self._is_missing(offset, nbytes):
            return []
        first, last = offset // _PAGE, -(-(offset + nbytes) // _PAGE)
        runs = _find_runs(~self._present[first:last])
        return [((first + begin) * _PAGE, min((first + end) * _PAGE, self.nbytes)) for begin, end in runs]

    def put(self, begin: int, content: memoryview) -> None:
        """Keep the whole pages of bytes that came with the answer whether the object is there."""
        skipped = -begin % self._page_nbytes
        begin, content = begin + skipped, content[skipped:]
        if begin + len(content) < self.nbytes:
            content = content[: len(content) // self._page_nbytes * self._page_nbytes]
        if len(content) and (hashes := self._check(begin, content, again=False)) is not None:
            self._keep(begin, content, hashes, must_keep=True)

    @property
    def _page_nbytes(self) -> int:
        return max(_PAGE, self.hashes.page_nbytes if self.hashes is not None else 0)

    def make_reader(self) -> Callable[[int, int], bytes]:
        """See :class:`~penstock.stores.common.mirrors.MirrorFile`."""

        def fetch(begin: int, end: int) -> memoryview:
            content = self._place.get(self._name, begin, end, self._info)
            for attempt in range(1, _MAX_ATTEMPTS):
                if self._check(begin, content, again=attempt > 2) is not None:
                    break
                content = self._place.get(self._name, begin, end, self._info)
            return content

        return SequentialReader(fetch, self.nbytes).read

    def _fetch(self, offset: int, nbytes: int, *, must_keep: bool = False) -> _Fetched:
        """Fetch bytes, with the rest of their pages, of which there are hashes; keep them where the cache has room."""
        page = self._page_nbytes
        begin = offset // page * page
        end = min(-(-(offset + nbytes) // page) * page, self.nbytes)
        for attempt in range(_MAX_ATTEMPTS):
            content = self._place.get(self._name, begin, end, self._info)
            if (hashes := self._check(begin, content, again=attempt > 1)) is not None:
                break
        else:
            raise CorruptRecordError(
                f"bytes {begin} to {end} are not those that were written, {_MAX_ATTEMPTS} times; copy it there again",
                store=self._place.name(self._name),
            )
        self._is_full = not self._keep(begin, content, hashes, must_keep=must_keep)
        if not self._is_full:
            return _Fetched(self.window[offset : offset + nbytes], in_file=True)
        return _Fetched(content[offset - begin :][:nbytes], in_file=False)

    def _check(self, begin: int, content: memoryview, *, again: bool) -> NDArray[np.uint64] | None:
        """The hashes of whole pages; None if they are not those of the object, where these are known."""
        found = _native.hash_pages(content, _PAGE)
        if self.hashes is None or begin % self.hashes.page_nbytes:
            return found
        size = self.hashes.page_nbytes
        theirs = found if size == _PAGE else _native.hash_pages(content, size)
        return found if self.hashes.fit(theirs, begin // size, again=again) else None

    def forget(self, offset: int, nbytes: int) -> None:
        """Take bytes for absent, such that they are fetched again; those whose hashes are wrong, as a rule."""
        first, last = offset // _PAGE, -(-(offset + nbytes) // _PAGE)
        try:
            _native.write_at(f"{self._path}.pages", self._table, 8 * first, bytes(8 * (last - first)))
        except OSError as error:
            raise self._make_deleted_error() from error
        self._present[first:last] = False
        self._kept.clear()

    def _keep(self, begin: int, content: memoryview, hashes: NDArray[np.uint64], *, must_keep: bool) -> bool:
        """Write whole pages, then their hashes; False if there is no room."""
        if not self._cache.admit(len(content), self._folder) and not must_keep:
            return False
        first = begin // _PAGE
        try:
            _native.write_at(self._path, self._file, begin, content)
            _native.write_at(f"{self._path}.pages", self._table, 8 * first, hashes.data.cast("B"))
        except OSError as error:
            _logger.warning("%s: it is read without the cache: %s", self._cache.path, error.strerror)
            self._cache.close()
            return False
        self._present[first : first + len(hashes)] = True
        return True


def _find_runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where each run of true values begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
