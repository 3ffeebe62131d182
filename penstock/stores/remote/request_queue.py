"""Requests of this process: many at once, in the order in which they were asked for, in bounded memory.

Ranks on one machine share its connection and its memory: each has its part of the limits.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from penstock.errors import ArgumentError
from penstock.ranks import find_world
from penstock.stores.common.per_process import PerProcess
from penstock.trace import Trace, counting, current

__all__ = ["MAX_REQUESTS", "Fetcher", "SequentialReader", "get_fetcher", "join_ranges"]

T = TypeVar("T")

MAX_REQUESTS: Final = 640
"""Requests at once, of all ranks on this machine: at 200 ms each, some 3,200 a second."""
_FIRST_REQUESTS: Final = 128
"""The same at first. Each answer allows one more, so that connections are not all made at once."""
_MOST_AT_ONCE: Final = 10
"""Requests of one call: as many as obstore sends at once for several ranges of an object."""
_FEWEST_CALLS: Final = 16
"""Calls at once where there is only a small part of the requests: a slow request then holds up few others."""
MAX_NBYTES: Final = 128 << 20
"""Bytes that are asked for at once, of all requests of all ranks on this machine."""
_FIRST_NBYTES: Final = 16 << 20
"""The same at first, and where requests are slow: on a slow line all of many would time out."""
_SLOW_SECONDS: Final = 8.0
_READ_NBYTES: Final = 4 << 20
_READ_AHEAD: Final = 12
_READ_KEPT: Final = 24
"""Parts that are fetched ahead of one that is read, and parts that are kept."""
_IDLE_SECONDS: Final = 10.0


class _Call(NamedTuple):
    call: Callable[[], object]
    nbytes: int
    requests: int
    future: Future[Any]
    trace: Trace | None
    """Counts what it fetches: that of the thread that asked for it."""


class Fetcher:
    """Threads that wait for answers. They are started when they are needed, and end when nothing is asked for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._threads = self._idle = self._nbytes = self._requests = 0
        self._is_waking = False
        self.local_ranks = _count_local_ranks()
        """Ranks on this machine: each has this part of every limit."""
        self._most_nbytes = min(_FIRST_NBYTES, self._max_nbytes)
        self._most_requests = min(_FIRST_REQUESTS, self._max_requests)
        self.seconds = 0.05
        """How long a request takes: a mean in which later ones weigh more."""
        self.rate = 100e6 / self.local_ranks
        """Bytes a second of all requests together, likewise."""
        self._since, self._counted = time.monotonic(), 0

    def submit(self, call: Callable[[], T], nbytes: int, requests: int = 1) -> Future[T]:
        """Call it in a thread, when the calls before it have been made; it asks for ``nbytes``, in ``requests``."""
        future: Future[T] = Future()
        with self._changed:
            self._waiting.append(_Call(call, nbytes, requests, future, current()))
            self._wake_thread()
        return future

    def _wake_thread(self) -> None:
        """Have a thread take the next call, if it may be made and no thread is about to.

        One at a time: each that takes a call wakes the next. Threads that wake in vain cost more than requests.
        """
        if self._is_waking or not self._may_send():
            return
        if self._idle:
            self._changed.notify()
        elif self._threads < self._most_requests:
            try:
                threading.Thread(target=self._work, name="penstock-fetch", daemon=True).start()
            except RuntimeError:  # the limit of the system: the threads that there are do it
                if not self._threads:
                    self._waiting.pop()
                    raise
                return
            self._threads += 1
        else:
            return  # the next thread that is done takes it
        self._is_waking = True

    @property
    def _max_nbytes(self) -> int:
        return MAX_NBYTES // self.local_ranks

    @property
    def _max_requests(self) -> int:
        return max(MAX_REQUESTS // self.local_ranks, 1)

    @property
    def requests_at_once(self) -> int:
        """Requests that one call may send."""
        return max(min(_MOST_AT_ONCE, self._max_requests // _FEWEST_CALLS), 1)

    @property
    def patience(self) -> float:
        """Seconds after which a request that is waited for is sent again: far more than nearly all take."""
        return 0.5 + 6 * self.seconds

    @property
    def gap_nbytes(self) -> int:
        """The bytes between two ranges that cost as much as a second request would."""
        return int(min(max(self.rate * self.seconds / self._max_requests, 4096), 1 << 20))

    def _work(self) -> None:
        while (following := self._next()) is not None:
            self._run(following)
            del following  # what it belongs to is not held while nothing is asked for

    def _run(self, following: _Call) -> None:
        call, nbytes, requests, future, trace = following
        if not future.set_running_or_notify_cancel():
            self._end(nbytes, None, requests)
            return
        started = time.monotonic()
        with counting(trace):
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  # raised where it is waited for
                self._end(nbytes, None, requests)
                future.set_exception(error)
            else:
                self._end(nbytes, time.monotonic() - started, requests)
                future.set_result(result)

    def _next(self) -> _Call | None:
        """The next call, once it may be made; None if there was none for some time."""
        with self._changed:
            while not self._may_send():
                self._idle += 1
                is_called = self._changed.wait(_IDLE_SECONDS)
                self._idle -= 1
                self._is_waking = False
                if not is_called and not self._may_send():
                    self._threads -= 1
                    return None
            following = self._waiting.popleft()
            self._nbytes += following.nbytes
            self._requests += following.requests
            self._is_waking = False
            self._wake_thread()
            return following

    def _may_send(self) -> bool:
        if not self._waiting:
            return False
        nbytes, requests = self._nbytes + self._waiting[0].nbytes, self._requests + self._waiting[0].requests
        return (not self._nbytes or nbytes <= self._most_nbytes) and (
            not self._requests or requests <= self._most_requests
        )

    def _end(self, nbytes: int, seconds: float | None, requests: int = 1) -> None:
        with self._changed:
            self._nbytes -= nbytes
            self._requests -= requests
            if seconds is not None:
                most = self._most_nbytes + nbytes if seconds < _SLOW_SECONDS else self._most_nbytes // 2
                self._most_nbytes = min(max(most, _FIRST_NBYTES), self._max_nbytes)
                if nbytes:  # other calls wait for requests
                    self.seconds += 0.05 * (seconds - self.seconds)
                self._most_requests = min(self._most_requests + requests, self._max_requests)
                self._counted += nbytes
                if (passed := time.monotonic() - self._since) > 0.5:
                    self.rate += 0.3 * (self._counted / passed - self.rate)
                    self._since, self._counted = time.monotonic(), 0


def _count_local_ranks() -> int:
    try:
        return find_world().local_size
    except ArgumentError:  # raised where ranks are asked for
        return 1


class SequentialReader:
    """Reads an object whose bytes are asked for mostly in order: what follows is fetched meanwhile. For one thread.

    Parameters
    ----------
    get : callable
        ``get(begin, end)`` fetches bytes; called from several threads.
    nbytes : int
        The size of the object.
    """

    def __init__(self, get: Callable[[int, int], memoryview], nbytes: int) -> None:
        self._get, self._nbytes = get, nbytes
        self._parts: OrderedDict[int, Future[memoryview]] = OrderedDict()
        self._last = -1

    def read(self, offset: int, nbytes: int) -> bytes:
        """Read bytes from an offset on; fewer at the end of the object."""
        end = min(offset + nbytes, self._nbytes)
        if offset >= end:
            return b""
        first, last = offset // _READ_NBYTES, (end - 1) // _READ_NBYTES
        ahead = _READ_AHEAD if first - self._last in {0, 1} else 0
        self._last = last
        wanted = range(first, min(last + ahead, (self._nbytes - 1) // _READ_NBYTES) + 1)
        for number in wanted:
            if number not in self._parts:
                begin = number * _READ_NBYTES
                part_end = min(begin + _READ_NBYTES, self._nbytes)
                self._parts[number] = get_fetcher().submit(functools.partial(self._get, begin, part_end), _READ_NBYTES)
            self._parts.move_to_end(number)
        content = b"".join(self._parts[number].result() for number in range(first, last + 1))
        while len(self._parts) > max(_READ_KEPT, len(wanted)):
            self._parts.popitem(last=False)
        return content[offset - first * _READ_NBYTES :][: end - offset]


_fetcher = PerProcess(Fetcher)


def get_fetcher() -> Fetcher:
    """Return the one of this process."""
    return _fetcher.get()


def join_ranges(ranges: Sequence[tuple[int, int]], gap: int, most: int) -> Iterator[list[tuple[int, int]]]:
    """Groups of sorted ranges, each for one request of ``most`` bytes; between neighbours are at most ``gap``."""
    group: list[tuple[int, int]] = []
    end = 0
    for offset, nbytes in ranges:
        if group and (offset - end > gap or offset + nbytes - group[0][0] > most):
            yield group
            group = []
        group.append((offset, nbytes))
        end = max(end, offset + nbytes)
    if group:
        yield group
