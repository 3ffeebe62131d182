"""The scan of all records: facts that no column has, measured in threads of their own while the viewer is used.

::

    filter, order, panel ──need(HEADER | PIXELS)──> threads ──read 16 records, measure──> facts, a row for each record
                                                       └── the level that was asked for last comes first

Nothing is kept beside the store. A scan that was stopped goes on where it was when it is started again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.errors import PenstockError
from penstock.sample import Record
from penstock.stores.problems import DAMAGE
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.measuring import FACTS, HEADER, PIXELS, Facts, measure, unreadable

__all__ = ["Scan"]

_CHUNK: Final = 16
_MOST_THREADS: Final = 8
_RENEWAL_S: Final = 1.0
"""Filters that need facts of the scan are evaluated again after this time, while it goes on."""


class Scan:
    """Measures the records of a collection in the background.

    Parameters
    ----------
    collection : Collection
        Read in order.

    Attributes
    ----------
    facts : ndarray, shape (n,), FACTS
        What is known; ``level`` is 0 where nothing is. Rows are written while others read.
    generation : int
        Changes when there are new facts, at most once a second.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.facts = np.zeros(collection.total, FACTS)
        self.generation = 0
        self._renewed = time.monotonic()
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._next = {HEADER: 0, PIXELS: 0}
        self._threads: set[threading.Thread] = set()
        self._is_stopped = self._is_closed = False
        schema = collection.store.schema
        self._masks = [name for name, each in schema.fields.items() if each.kind == "mask"]
        self._instances = "instances" if "instances" in schema and not schema["instances"].is_blob else ""

    def need(self, level: int) -> None:
        """Measure all records to a level, unless it was stopped."""
        if not self._is_stopped:
            self.start(level)

    def start(self, level: int) -> None:
        """Begin to measure, or go on; the level that is given last comes first. Returns at once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_stopped = False
            levels = [each for each in (HEADER, PIXELS) if self._next[each] < len(self.facts)]
            if level in levels:
                self._wanted = [*(each for each in self._wanted if each != level), level]
            count = min(_MOST_THREADS, max(1, (os.cpu_count() or 1) - 1)) if self._wanted else 0
            for _ in range(count - len(self._threads)):
                thread = threading.Thread(target=self._run, name="penstock-view-scan", daemon=True)
                self._threads.add(thread)
                thread.start()

    def stop(self) -> None:
        """Measure no further records, until :meth:`start` is called."""
        with self._lock:
            self._is_stopped = True
            self._wanted = []

    def close(self) -> None:
        """Stop, and wait for the threads, each of which ends after the picture that it decodes."""
        self.stop()
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def wait(self) -> None:
        """Return when nothing is measured any more."""
        while threads := list(self._threads):
            threads[0].join()

    def progress(self) -> dict[str, float]:
        """``{running, stopped, total, headers, pixels, known}``; ``known``: the part of what is asked for, 0 to 1."""
        levels = self.facts["level"]
        headers, pixels = int(np.count_nonzero(levels)), int(np.count_nonzero(levels == PIXELS))
        total = len(self.facts)
        asked = [headers if level == HEADER else pixels for level in self._wanted[-1:]] or [max(headers, pixels)]
        return {
            "running": bool(self._threads) and bool(self._wanted), "stopped": self._is_stopped, "total": total,
            "headers": headers, "pixels": pixels, "known": asked[0] / total if total else 1.0,
        }  # fmt: skip

    def _run(self) -> None:
        while chunk := self._take():
            self._measure(*chunk)

    def _take(self) -> tuple[int, list[int]] | None:
        """The next records, and their level; None: there are none, and this thread ends."""
        with self._lock:
            if time.monotonic() - self._renewed > _RENEWAL_S:
                self._renewed = time.monotonic()
                self.generation += 1
            while self._wanted:
                level = self._wanted[-1]
                while (begin := self._next[level]) < len(self.facts):
                    self._next[level] = min(begin + _CHUNK, len(self.facts))
                    levels = self.facts["level"][begin : self._next[level]]
                    if indices := (begin + np.flatnonzero(levels < level)).tolist():
                        return level, indices
                self._wanted.pop()
            self._threads.discard(threading.current_thread())
            self.generation += 1
            return None

    def _measure(self, level: int, indices: Sequence[int]) -> None:
        try:
            records: Sequence[Record | None] = self._collection.store.read(indices)
        except (PenstockError, OSError, *DAMAGE):
            records = [self._read_one(index) for index in indices]
        for index, record in zip(indices, records, strict=True):
            if self._is_stopped:
                self._give_back(level, indices[0])
                return
            self.facts[index] = unreadable(PIXELS) if record is None else self._measure_one(record, level)

    def _read_one(self, index: int) -> Record | None:
        try:
            return self._collection.store.read([index])[0]
        except (PenstockError, OSError, *DAMAGE):
            return None

    def _measure_one(self, record: Record, level: int) -> Facts:
        masks = sum(record.fields.get(name) is not None for name in self._masks)
        found = record.fields.get(self._instances)
        masks += len(found) if isinstance(found, list | np.ndarray) else 0
        try:
            return measure(record.fields.get(self._collection.image_field), level, masks)
        except (PenstockError, MemoryError, *DAMAGE):  # of values that are no picture at all
            return unreadable(PIXELS)

    def _give_back(self, level: int, begin: int) -> None:
        """Records that were taken and not measured are taken again after a stop."""
        with self._lock:
            self._next[level] = min(self._next[level], begin)
