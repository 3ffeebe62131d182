"""A copy of a remote object, which has the pages that were read so far: what is fetched, when, and in which call.

::

    announce([(offset, nbytes), ...]) ──> requests that wait ──> calls of some requests ──> pages of the file
    hold, read                        <── a view of the file, or of memory while the cache is full

The file is a :class:`~penstock.stores.remote.sparse_file.SparseFile`. Where hashes of its pages are stored beside an
object, ten requests are one call, which takes a fraction of the processor time. Its answers do not say which version
they are of: bytes that have not the hashes, and the first of an announcement, are asked for in a call that compares it.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import _native, system
from penstock.errors import CorruptRecordError, StoreError
from penstock.stores.common.mirrors import MirrorBytes, PageHashes, note_read
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.request_queue import SequentialReader, get_fetcher, join_ranges
from penstock.stores.remote.sparse_file import PAGE_NBYTES, Pages, Range, SparseFile
from penstock.trace import count_remote

__all__ = ["MAX_HELD_NBYTES", "MAX_IN_MEMORY_NBYTES", "PART_NBYTES", "Mirror"]

PART_NBYTES: Final = 4 << 20
"""Most bytes of a request."""
MAX_HELD_NBYTES: Final = 80 << 20
"""Most bytes that are fetched ahead and not in the file, by all ranks on this machine: 200 ms at 400 MB/s."""
MAX_IN_MEMORY_NBYTES: Final = 48 << 20
"""The same while the cache is full: they are in memory until they are read."""
_MAX_WAITING: Final = 1 << 12
"""Requests that wait until what was fetched before is taken; beyond it the oldest are forgotten."""
_FORGOTTEN: Final = 64
_CALL_NBYTES: Final = 2 << 20
"""Requests are sent at once until they ask for so many bytes: of large ones each is a call."""
_MAX_ATTEMPTS: Final = 4


class _Fetched(NamedTuple):
    """Bytes that came: a view of the file, or of their own memory."""

    content: memoryview
    in_file: bool


_Call = Future[dict[Range, _Fetched]]
"""What came for the ranges of some requests that were sent at once."""


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
        self.nbytes = info.nbytes
        self.version = int.from_bytes(
            hashlib.blake2b(repr((place.url, name, info, path)).encode(), digest_size=7).digest()
        )
        self._file = SparseFile(path, info.nbytes, cache, place.name(name))
        self.window = self._file.window
        self._lock = threading.RLock()
        self._coming: OrderedDict[Range, _Call | None] = OrderedDict()
        self._waiting: deque[tuple[list[Range], bool]] = deque()
        """The ranges of each request, and whether it is the only one of a call."""
        self._held_nbytes = 0
        self._doubted: Counter[Range] = Counter()
        self._is_read = self._is_full = False
        self.hashes: PageHashes | None = None
        """Those of the pages of the object, where it has them."""
        system.watch(self)

    def renew_in_child(self) -> None:
        """Begin anew in a forked child: it has no threads."""
        self._lock = threading.RLock()
        self._coming, self._waiting = OrderedDict(), deque()
        self._held_nbytes = 0

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        """Read bytes of the copy, fetched if it lacks them; ValueError outside the object."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} must be inside an object of {self.nbytes}")
        count_remote(reads=1, read_nbytes=nbytes)
        note_read(self, offset, nbytes)
        self._is_read = self._is_read or not keep
        if not self._file.lacks(offset, nbytes):
            return self.window[offset : offset + nbytes]
        began = time.monotonic_ns()
        if (content := self._file.find_in_memory(offset, nbytes)) is not None:
            with self._lock:
                self._pop((offset, nbytes))
        if content is None and (not keep or (offset, nbytes) in self._coming):
            content = self._take(offset, nbytes, forgets=not keep)
        if content is None:
            content = self._fetch(offset, nbytes, must_keep=keep).content
        count_remote(wait_ns=time.monotonic_ns() - began)
        if keep and self._file.lacks(offset, nbytes):
            content = self._file.keep_in_memory(offset, content)
        return content

    def ranges(self, begin: int = 0, nbytes: int | None = None) -> MirrorBytes:
        """Bytes of which slices are fetched when they are taken; ValueError outside the object."""
        return MirrorBytes(self, begin, nbytes)

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Fetch what the copy lacks of some bytes, by default of all."""
        nbytes = self.nbytes - offset if nbytes is None else nbytes
        nbytes = max(min(nbytes, self.nbytes - offset), 0)
        note_read(self, offset, nbytes)
        fetcher = get_fetcher()
        parts = [
            (at, min(PART_NBYTES, end - at))
            for begin, end in self._file.find_missing(offset, nbytes)
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
        self._file.refuse_deleted()

    def _fetch_to_file(self, full: threading.Event, offset: int, nbytes: int) -> None:
        if not full.is_set() and not self._fetch(offset, nbytes).in_file:
            full.set()
            raise StoreError(
                f"{self.nbytes} bytes must fit into the cache {self._cache.path}, which is full; cache_size= sets its "
                "limit",
                store=self._place.name(self._name),
            )

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Begin to fetch what the copy lacks of ranges that are read soon; returns how many bytes are asked for."""
        if self._is_full and not self._is_read:
            return 0  # worker processes read, which would fetch again what this one has in memory
        fetcher = get_fetcher()
        new = [each for each in dict.fromkeys(ranges) if each[1] and each not in self._coming]
        missing = [each for each in self._file.select_missing(new) if self._file.find_in_memory(*each) is None]
        if missing and self.hashes is not None:
            self.hashes.announce(missing)
        with self._lock:  # what another thread announced meanwhile is coming, or has come
            wanted = self._file.select_missing([each for each in missing if each not in self._coming])
            self._coming.update(dict.fromkeys(wanted))
            gap = fetcher.gap_nbytes if self._place.joins_neighbours else -1
            is_alone = self.hashes is None or not self._place.has_ranges
            turn = {each: at for at, each in enumerate(wanted)}  # requests are sent in the order of reading
            groups = sorted(join_ranges(sorted(wanted), gap, PART_NBYTES), key=lambda g: min(turn[at] for at in g))
            self._waiting.extend((group, is_alone or number == 0) for number, group in enumerate(groups))
            while len(self._waiting) > _MAX_WAITING:  # an epoch that was abandoned, as a rule
                for each in self._waiting.popleft()[0]:
                    self._pop(each)
        self._send()
        return sum(nbytes for _, nbytes in wanted)

    def hold(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Fetch what the copy lacks of some ranges, at once; False if it does not have all of it then."""
        self._is_read = True
        wanted = [each for each in ranges if each[1]]
        missing = self._file.select_missing(wanted)
        self.announce(missing)
        began = time.monotonic_ns()
        is_held = self._wait(missing)
        count_remote(wait_ns=time.monotonic_ns() - began if missing else 0)
        if is_held:  # else each is read, and counted then
            count_remote(reads=len(wanted), read_nbytes=sum(nbytes for _, nbytes in wanted))
        return is_held

    def _wait(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Return whether ranges that were announced come into the file; until all have, or one does not."""
        for each in ranges:
            fetched = self._await(each)
            if not fetched.in_file if fetched is not None else self._file.lacks(*each):
                return False
        return True

    def _await(self, each: Range, *, forgets: bool = False) -> _Fetched | None:
        """Return what comes for a range that was announced; None if it was not sent, or does not come."""
        while (coming := self._coming.get(each)) is not None:
            try:
                fetched = coming.result(get_fetcher().patience)
            except TimeoutError:  # a second request takes the place of one that is slow
                count_remote(hedges=1)
                with self._lock:
                    self._pop(each)
                    self._send_again([[other] for other, call in self._coming.items() if call is coming])
            except CancelledError:
                if self._coming.get(each) is not coming:
                    continue  # each of its requests was sent again
            except OSError:  # whoever reads it asks again, and says what is wrong
                pass
            else:
                found = fetched.get(each)
                if forgets and found is not None and not found.in_file:
                    fetched.pop(each, None)  # from memory: what came with it may be read much later
                return found
            with self._lock:
                self._pop(each)
        return None

    def submit(self, call: Callable[[], object]) -> Future[object]:
        """Call a function in a thread of the fetcher."""
        return get_fetcher().submit(call, 0)

    def _send(self) -> None:
        """Send the requests that wait, as far as what was fetched is taken."""
        fetcher = get_fetcher()
        with self._lock:
            most = (MAX_IN_MEMORY_NBYTES if self._is_full else MAX_HELD_NBYTES) // fetcher.local_ranks
            while self._waiting and self._held_nbytes < most:
                is_alone = self._waiting[0][1]
                if groups := self._take_waiting(1 if is_alone else fetcher.requests_at_once):
                    wanted = sum(nbytes for group in groups for _, nbytes in group)
                    count_remote(misses=sum(map(len, groups)), missed_nbytes=wanted)
                    self._held_nbytes += wanted
                    self._submit(groups, is_alone=is_alone)

    def _take_waiting(self, most: int) -> list[list[Range]]:
        """Return the ranges of each of the next requests, for one call."""
        groups: list[list[Range]] = []
        nbytes = 0
        while self._waiting and len(groups) < most and nbytes < _CALL_NBYTES and not (groups and self._waiting[0][1]):
            if group := [each for each in self._waiting.popleft()[0] if self._coming.get(each, ()) is None]:
                groups.append(group)
                nbytes += _span(group)[1]
        return groups

    def _submit(self, groups: list[list[Range]], *, is_alone: bool) -> None:
        """Have the ranges of some requests fetched in one call; ``is_alone``: of one, whose version is compared."""
        nbytes = sum(_span(group)[1] for group in groups)
        fetch = functools.partial(self._fetch_group if is_alone else self._fetch_all, groups)
        call = get_fetcher().submit(fetch, nbytes, len(groups))
        for group in groups:
            self._coming.update(dict.fromkeys(group, call))
        call.add_done_callback(self._settle)

    def _send_again(self, groups: Iterable[list[Range]]) -> None:
        """Send requests one by one for ranges that were asked for, and did not come with others."""
        with self._lock:
            for group in groups:
                if waiting := [each for each in group if self._coming.get(each) is not None]:
                    self._submit([waiting], is_alone=True)

    def _settle(self, call: _Call) -> None:
        """Forget what came and is in the file: it is read there."""
        if call.cancelled() or call.exception() is not None:
            return
        with self._lock:
            for each, fetched in list(call.result().items()):
                if fetched.in_file and self._coming.get(each) is call:
                    self._pop(each)
        if self._waiting:
            self._send()

    def _take(self, offset: int, nbytes: int, *, forgets: bool) -> memoryview | None:
        """Return what was announced; None if it was not, or does not come: then the caller fetches it."""
        with self._lock:
            if (coming := self._coming.get((offset, nbytes))) is None:
                self._pop((offset, nbytes))
            if coming is None and self._waiting and forgets:
                for each in list(itertools.islice(self._coming, _FORGOTTEN)):
                    self._pop(each)  # what was announced before is not read, or not in that order
        if coming is None:
            count_remote(misses=1, missed_nbytes=nbytes)
            return None
        fetched = self._await((offset, nbytes), forgets=forgets)
        with self._lock:  # until now, so that other threads find it
            self._pop((offset, nbytes))
        if self._waiting:
            self._send()
        return None if fetched is None else fetched.content

    def _pop(self, each: Range) -> None:
        """Forget a range that was announced."""
        if self._coming.pop(each, None) is not None:
            self._held_nbytes -= each[1]

    def put(self, begin: int, content: memoryview) -> None:
        """Keep the whole pages of bytes that came with the answer whether the object is there."""
        skipped = -begin % self._page_nbytes
        begin, content = begin + skipped, content[skipped:]
        if begin + len(content) < self.nbytes:
            content = content[: len(content) // self._page_nbytes * self._page_nbytes]
        if len(content) and (hashes := self._check(begin, content, again=False)) is not None:
            self._file.add([Pages(begin, content, hashes)], must_keep=True)

    @property
    def _page_nbytes(self) -> int:
        return max(PAGE_NBYTES, self.hashes.page_nbytes if self.hashes is not None else 0)

    def make_reader(self) -> Callable[[int, int], bytes]:
        """Make a function that reads bytes past the copy, with retries."""

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
        begin, end = self._align(offset, nbytes)
        for attempt in range(_MAX_ATTEMPTS):
            content = self._place.get(self._name, begin, end, self._info)
            if (hashes := self._check(begin, content, again=attempt > 1)) is not None:
                break
        else:
            raise CorruptRecordError(
                f"bytes {begin} to {end} are not those that were written, {_MAX_ATTEMPTS} times; copy it there again",
                store=self._place.name(self._name),
            )
        self._is_full = not self._file.add([Pages(begin, content, hashes)], must_keep=must_keep)
        if not self._is_full:
            return _Fetched(self.window[offset : offset + nbytes], in_file=True)
        return _Fetched(content[offset - begin :][:nbytes], in_file=False)

    def _fetch_group(self, groups: list[list[Range]]) -> dict[Range, _Fetched]:
        """Fetch the ranges of the only request of a call."""
        (group,) = groups
        begin, nbytes = _span(group)
        content, in_file = self._fetch(begin, nbytes)
        return {(at, size): _Fetched(content[at - begin :][:size], in_file) for at, size in group}

    def _fetch_all(self, groups: list[list[Range]]) -> dict[Range, _Fetched]:
        """Fetch the ranges of some requests in one call; CancelledError if each is sent again in a call of its own."""
        spans = [self._align(*_span(group)) for group in groups]
        parts = []
        for (begin, _), content in zip(spans, self._place.get_ranges(self._name, spans) or (), strict=False):
            if (hashes := self._check(begin, content, again=False)) is not None:
                parts.append(Pages(begin, content, hashes))
        if len(parts) < len(groups):
            self._send_again(groups)
            raise CancelledError
        in_file = self._file.add(parts)
        self._is_full = not in_file
        return {
            (at, size): _Fetched(
                self.window[at : at + size] if in_file else part.content[at - part.begin :][:size], in_file
            )
            for group, part in zip(groups, parts, strict=True)
            for at, size in group
        }

    def _align(self, offset: int, nbytes: int) -> tuple[int, int]:
        """Return where the pages of some bytes begin and end."""
        page = self._page_nbytes
        return offset // page * page, min(-(-(offset + nbytes) // page) * page, self.nbytes)

    def forget(self, offset: int, nbytes: int) -> None:
        """Take bytes for absent, such that they are fetched again; those whose hashes are wrong, as a rule."""
        self._file.forget(offset, nbytes)

    def doubt(self, offset: int, nbytes: int) -> bool:
        """Forget bytes in which a store found damage; False after three times, or if the object has hashes."""
        if self.hashes is not None or not nbytes or self._doubted[offset, nbytes] + 1 >= _MAX_ATTEMPTS:
            return False
        self._doubted[offset, nbytes] += 1
        self.forget(offset, nbytes)
        return True

    def _check(self, begin: int, content: memoryview, *, again: bool) -> NDArray[np.uint64] | None:
        """The hashes of whole pages; None if they are not those of the object, where these are known."""
        found = _native.hash_pages(content, PAGE_NBYTES)
        if self.hashes is None or begin % self.hashes.page_nbytes:
            return found
        size = self.hashes.page_nbytes
        theirs = found if size == PAGE_NBYTES else _native.hash_pages(content, size)
        return found if self.hashes.fit(theirs, begin // size, again=again) else None


def _span(group: list[Range]) -> Range:
    """Return the range from the first byte of a request to its last one."""
    begin = group[0][0]
    return begin, max(offset + nbytes for offset, nbytes in group) - begin
