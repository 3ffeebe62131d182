"""Thumbnails: made by a few threads, the newest request first, and kept in memory up to a limit.

::

    GET api/thumb/7 ──> kept? ──yes──────────────────────────────> bytes
                         └─no─> stack of requests ──newest──> thread: read, decode, encode ──> kept, bytes
                                  └─ the client has gone: taken off
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

__all__ = ["MAX_KEPT_NBYTES", "KeptResults", "NewestFirst"]

MAX_KEPT_NBYTES: Final = 64 << 20
_ENTRY_NBYTES: Final = 200  # what an entry takes beside its content

T = TypeVar("T")


class KeptResults:
    """Encoded pictures by their names; those that were not asked for longest are dropped. Thread-safe.

    Parameters
    ----------
    max_nbytes : int
        What is kept at most.
    """

    def __init__(self, max_nbytes: int = MAX_KEPT_NBYTES) -> None:
        self._max_nbytes, self.nbytes = max_nbytes, 0
        self._kept: OrderedDict[object, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: object) -> bytes | None:
        """What is kept under a name."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def keep(self, name: object, content: bytes) -> None:
        """Keep it, unless it is larger than an eighth of the limit."""
        if len(content) > self._max_nbytes // 8:
            return
        with self._lock:
            if name in self._kept:
                self.nbytes -= len(self._kept.pop(name)) + _ENTRY_NBYTES
            self._kept[name] = content
            self.nbytes += len(content) + _ENTRY_NBYTES
            while self.nbytes > self._max_nbytes:
                _, dropped = self._kept.popitem(last=False)
                self.nbytes -= len(dropped) + _ENTRY_NBYTES


class NewestFirst(Generic[T]):
    """Threads that run calls, the newest first; a call that is cancelled before it begins never runs.

    Parameters
    ----------
    threads : int, optional
        By default as many as the process has processors, at most 8. They are started by the first call.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._count = threads or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4)
        self._calls: list[tuple[Future[T], Callable[[], T]]] = []
        self._ready = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a thread run ``call``.

        Raises
        ------
        RuntimeError
            After :meth:`close`.
        """
        future: Future[T] = Future()
        with self._ready:
            if self._is_closed:
                raise RuntimeError("this viewer is closed")
            self._calls.append((future, call))
            if len(self._threads) < self._count:
                name = f"penstock-view-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
            self._ready.notify()
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait for what has."""
        with self._ready:
            self._is_closed = True
            waiting, self._calls = self._calls, []
            self._ready.notify_all()
        for future, _ in waiting:
            future.cancel()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._calls or self._is_closed)
                if not self._calls:
                    return
                future, call = self._calls.pop()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # raised where the result is awaited
                future.set_exception(error)
            del future, call
