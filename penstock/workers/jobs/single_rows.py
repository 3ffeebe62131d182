"""Batches whose rows are built many at once, or one at a time, so that only those that fail are missing.

::

    build_rows(0, 8) ──> _build_many(0, 8) ──fails──> _build_one(0), _build_one(1) ...   each: its sample, or a record

Rows are built one at a time if the rules are tolerant, or images that are broken are to be left out
(``on_truncated="skip"``), and building several rows at once has failed, or would not show which one fails.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from penstock.errors import BrokenImageError, SampleError, WorkerError
from penstock.repairs import Repaired, this_thread
from penstock.rng import uniforms
from penstock.sample import Index, State, Watch
from penstock.trace import Observer
from penstock.workers.base import BatchBuild, Task
from penstock.workers.jobs.base import LoaderJob, ObservedWatch
from penstock.workers.left_out import LeftOut

__all__ = ["RowsBuild"]

_logger = logging.getLogger(__name__)

_TRIES: Final = 8
"""Samples of each kind that are tried as a replacement."""
_STREAM: Final = 65535
"""Stream of random numbers for choosing replacements; no pipeline is so long."""


class RowsBuild(BatchBuild):
    """One batch; its chunks may overlap in time. A subclass calls :meth:`build_rows` in its ``run``.

    ``job``: whose rules say what becomes of a row that fails. ``task``: the batch.
    """

    __slots__ = ("_job", "_records", "_task", "repaired", "rows", "seq", "state", "watch")

    def __init__(self, job: LoaderJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows = task.seq, len(task.indices)
        self.state: State = None
        self.watch: Watch | None = job.watch
        self._records: dict[int, LeftOut] = {}
        self.repaired: list[Repaired] = []

    def tell(self, observer: Observer) -> None:
        """Tell ``observer`` of each sample that begins, beside the job's watch."""
        self.watch = ObservedWatch(self.watch, observer)

    @property
    def left_out(self) -> list[LeftOut]:
        """Records of samples that could not be built, by row, whether or not they were replaced."""
        return [self._records[row] for row in sorted(self._records)] if self._records else []

    def missing(self) -> Collection[int]:
        """Return the rows that have no sample."""
        return self._records.keys() if self._records and self._job.rules.on_error != "replace" else ()

    def build_rows(self, start: int, stop: int, *, singly: bool) -> None:
        """Build rows ``start..stop``, at once or one at a time; once more one at a time if a failure is left out.

        Raises SampleError if a sample that fails cannot be replaced.
        """
        outer = this_thread.notes
        notes: list[Repaired] = []
        this_thread.notes = notes
        try:
            if singly:
                self._build_singly(start, stop)
            else:
                try:
                    self._build_many(start, stop)
                except Exception as error:
                    if not self._leaves_out(error):
                        raise
                    notes.clear()
                    self._build_singly(start, stop)  # raised again by the row that it belongs to
        finally:
            this_thread.notes = outer
        if notes:
            self.repaired.extend(notes)

    @abstractmethod
    def _build_many(self, start: int, stop: int) -> None:
        """Build the samples of rows ``start..stop`` at once."""

    @abstractmethod
    def _build_one(self, row: int, index: Index) -> None:
        """Build sample ``index`` with the key of ``row``, and put it into that row."""

    def _leaves_out(self, error: Exception) -> bool:
        """Return whether a row that fails with this error is left out, or replaced."""
        return self._job.tolerant or isinstance(error, BrokenImageError)

    def _build_singly(self, start: int, stop: int) -> None:
        for row in range(start, stop):
            index = self._task.indices[row]
            try:
                self._try_one(row, index, row, start)
            except Exception as error:
                if not self._leaves_out(error):
                    raise
                keys = self._task.keys
                self._records[row] = LeftOut.of(error, keys.epoch, self._task.seq, index, row)
                if self._job.rules.on_error == "replace":
                    self._replace(row, start, error)

    def _try_one(self, row: int, index: Index, source: int | None, start: int) -> None:
        """Build sample ``index``, which the sampler drew for row ``source`` (None: for no row), into ``row``."""
        reason = None if source is None else (self._task.fatal or {}).get(source)
        if reason is not None:
            raise WorkerError(reason)
        if self.watch is not None:
            self.watch((row if source is None else source) - start)  # if the worker dies, this one is to blame
        self._build_one(row, index)

    def _replace(self, row: int, start: int, error: Exception) -> None:
        tried = 0
        for source, index in self._replacements(row):
            tried += 1
            try:
                self._try_one(row, index, source, start)
            except Exception as failed:  # noqa: BLE001  # recorded by its own row, if it was drawn
                _logger.debug("sample %r cannot be a replacement: %r", index, failed)
            else:
                return
        raise SampleError(
            f"sample {self._records[row].index!r} cannot be built, nor can any of the {tried} tried in its place",
            index=self._records[row].index, batch=self._task.seq,
        ) from error  # fmt: skip

    def _replacements(self, row: int) -> Iterator[tuple[int | None, Index]]:
        """Rows and indices that may replace the sample of ``row``, in an order that depends on its key only.

        First others of the same batch, of the same split and bucket; then, if the rules allow, of the dataset.
        """
        indices, key = self._task.indices, self._task.keys[row : row + 1]
        others = [other for other in range(len(indices)) if indices[other] != indices[row]][: 1 << 16]
        order = np.argsort(uniforms(key, _STREAM, len(others))[0], kind="stable")
        for position in order[:_TRIES].tolist():
            yield others[position], indices[others[position]]
        population = self._job.rules.population
        for number in uniforms(key, _STREAM - 1, _TRIES)[0].tolist() if population else ():
            if (index := int(number * population)) != indices[row]:
                yield None, index
