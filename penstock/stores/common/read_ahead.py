"""Reads records before they are asked for, in one thread a process and in bounded memory.

::

    prefetch([7, 3, ...]) ──> queue of batches ──thread──> load([7, 3, ...]) ──> loaded, at most ``max_nbytes``
    take([3, 7]) <── loaded records; waits for those that are being read, and leaves the rest to the caller

For stores on servers. The thread lives while there are batches to read, and does not keep the store alive.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from penstock import system

__all__ = ["ReadAhead"]

_logger = logging.getLogger(__name__)
T_record = TypeVar("T_record")
_MAX_WAITING: Final = 64
_MAX_UNUSED: Final = 16


class ReadAhead(Generic[T_record]):
    """Loaded records by index. Thread-safe; a forked child begins with none.

    ``load``: ``load(indices)`` returns the records by index, as any objects; called in the thread. Held weakly.
    ``measure``: the bytes of a loaded record. ``max_nbytes``: limit of the bytes of loaded records: beyond it, reading
    continues when some are taken. Records that nobody takes are forgotten.
    """

    def __init__(
        self,
        load: Callable[[Sequence[int]], Mapping[int, T_record]],
        measure: Callable[[T_record], int],
        max_nbytes: int,
    ) -> None:
        self._load = weakref.WeakMethod(load)
        self._measure, self._max_nbytes = measure, max_nbytes
        self._closed = False
        self._changed = threading.Condition()
        self._waiting: deque[list[int]] = deque()
        self._loading: set[int] = set()
        self._loaded: dict[int, T_record] = {}
        self._nbytes = self._unused = 0
        self._is_running = False
        system.watch(self)

    def submit(self, indices: Sequence[int]) -> None:
        """Announce records; returns at once."""
        with self._changed:
            if self._closed:
                return
            wanted = [index for index in dict.fromkeys(indices) if index not in self._loaded]
            if not wanted:
                return
            self._waiting.append(wanted)
            while len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft()
            if self._nbytes >= self._max_nbytes:
                self._unused += 1
                if self._unused > _MAX_UNUSED:  # an epoch that was abandoned, as a rule
                    self._forget()
            self._start()

    def take(self, indices: Sequence[int]) -> dict[int, T_record]:
        """The announced records among ``indices`` that are loaded, or are being loaded; they are forgotten here."""
        with self._changed:
            if not (self._loaded or self._loading or self._waiting):
                return {}
            wanted = set(indices)
            for batch in self._waiting:  # not begun: the caller reads them itself
                batch[:] = [index for index in batch if index not in wanted]
            self._changed.wait_for(lambda: self._closed or not (self._loading & wanted))
            taken = {}
            for index in wanted:
                if index in self._loaded:
                    taken[index] = self._loaded.pop(index)
                    self._nbytes -= self._measure(taken[index])
            if taken:
                self._unused = 0
            self._start()
            return taken

    def close(self) -> None:
        """Forget everything, and let the thread end."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._forget()
            self._changed.notify_all()

    def renew_in_child(self) -> None:
        """Begin anew in a forked child: it has no thread, and one of the parent may hold the lock."""
        self._changed = threading.Condition()
        self._waiting, self._loading, self._loaded = deque(), set(), {}
        self._nbytes = self._unused = 0
        self._is_running = False

    def load_next(self) -> bool:
        """Read the next batch; False if there is none. Called by the thread."""
        with self._changed:
            load = self._load()
            while self._waiting and not self._waiting[0]:
                self._waiting.popleft()
            if not self._waiting or self._closed or load is None or self._nbytes >= self._max_nbytes:
                self._is_running = False
                return False
            batch = self._waiting.popleft()
            self._loading = set(batch)
        loaded: Mapping[int, T_record] = {}
        try:
            loaded = load(batch)
        except Exception:  # whatever it is: reading the records raises it again, if they are read
            _logger.debug("reading %d records ahead failed", len(batch), exc_info=True)
        finally:
            with self._changed:
                self._loading = set()
                if not self._closed:
                    self._keep(loaded)
                self._changed.notify_all()
        return True

    def _keep(self, loaded: Mapping[int, T_record]) -> None:
        for index, record in loaded.items():
            if index not in self._loaded:
                self._loaded[index] = record
                self._nbytes += self._measure(record)

    def _start(self) -> None:
        """Start the thread, if there is something to read and room for it."""
        if self._waiting and not self._is_running and self._nbytes < self._max_nbytes:
            thread = threading.Thread(target=_run, args=(weakref.ref(self),), name="penstock-read-ahead", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends: records are read when they are asked for
                _logger.debug("no thread to read ahead", exc_info=True)
                self._waiting.clear()
            else:
                self._is_running = True

    def _forget(self) -> None:
        self._loaded.clear()
        self._nbytes = self._unused = 0


def _run(reference: weakref.ref[ReadAhead[T_record]]) -> None:
    while (reader := reference()) is not None and reader.load_next():
        del reader
