"""Rows of a batch built one at a time, so that one that fails is the only one missing.

Used where the rules are tolerant, and building several at once has failed, or would not say which one did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from penstock.errors import SampleError, WorkerError
from penstock.loader.faults import LeftOut
from penstock.loader.jobs.base import LoaderJob
from penstock.rng import uniforms
from penstock.workers.base import Task

__all__ = ["Singly"]

_logger = logging.getLogger(__name__)

_TRIES: Final = 8
"""Samples that are tried as a stand-in for one."""
_STREAM: Final = 65535
"""Of random numbers, for choosing stand-ins: no pipeline is so long."""


class Singly:
    """The rows of one batch; its chunks may overlap in time.

    Parameters
    ----------
    job : LoaderJob
        With tolerant rules.
    task : Task
        The batch.
    build : callable
        ``build(row, index)`` puts sample ``index``, built under the key of ``row``, where the row's own sample belongs.
    """

    def __init__(self, job: LoaderJob, task: Task, build: Callable[[int, Any], None]) -> None:
        self._job, self._task, self._build = job, task, build
        self._records: dict[int, LeftOut] = {}

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be built, by row; whether or not another sample stands in for it."""
        return [self._records[row] for row in sorted(self._records)]

    def missing(self) -> set[int]:
        """Rows that hold nothing."""
        return set(self._records) if self._job.rules.on_error == "skip" else set()

    def run(self, start: int, stop: int) -> None:
        """Build rows ``start..stop``.

        Raises
        ------
        SampleError
            If no other sample can stand in for one that fails.
        """
        for row in range(start, stop):
            index = self._task.indices[row]
            try:
                self._one(row, index, row, start)
            except Exception as error:  # noqa: BLE001  # recorded: the rules say so
                keys = self._task.keys
                self._records[row] = LeftOut.of(error, keys.epoch, self._task.seq, index)
                if self._job.rules.on_error == "replace":
                    self._replace(row, start, error)

    def _one(self, row: int, index: Any, source: int | None, start: int) -> None:
        """Build sample ``index``, which is row ``source``'s own (None: no row's), into ``row``."""
        fate = None if source is None else (self._task.fatal or {}).get(source)
        if fate is not None:
            raise WorkerError(fate)
        if self._job.watch is not None:
            self._job.watch((row if source is None else source) - start)  # if the worker dies, that one is to blame
        self._build(row, index)

    def _replace(self, row: int, start: int, error: Exception) -> None:
        tried = 0
        for source, index in self._stand_ins(row):
            tried += 1
            try:
                self._one(row, index, source, start)
            except Exception as its:  # noqa: BLE001  # its own row records it, if it was drawn at all
                _logger.debug("no stand-in for sample %r: %r", index, its)
            else:
                return
        raise SampleError(
            f"sample {self._records[row].index!r} cannot be built, nor can any of {tried} that might stand in for it",
            index=self._records[row].index, batch=self._task.seq,
        ) from error  # fmt: skip

    def _stand_ins(self, row: int) -> Iterator[tuple[int | None, Any]]:
        """Rows and indices that may stand in for ``row``, in an order that its key alone decides.

        Others of the same batch (of the same split and bucket, for sure); then, where the rules allow, of the dataset.
        """
        indices, key = self._task.indices, self._task.keys[row : row + 1]
        others = [other for other in range(len(indices)) if indices[other] != indices[row]][: 1 << 16]
        order = np.argsort(uniforms(key, _STREAM, len(others))[0], kind="stable")
        for place in order[:_TRIES].tolist():
            yield others[place], indices[others[place]]
        population = self._job.rules.population
        for number in uniforms(key, _STREAM - 1, _TRIES)[0].tolist() if population else ():
            if (index := int(number * population)) != indices[row]:
                yield None, index
