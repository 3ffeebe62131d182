"""Builds the rows of a batch one at a time, so that only those that fail are missing.

Used if the rules are tolerant, and building several rows at once has failed, or would not show which one fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from penstock.errors import SampleError, WorkerError
from penstock.rng import uniforms
from penstock.sample import Index
from penstock.workers.base import Task
from penstock.workers.jobs.base import LoaderJob
from penstock.workers.left_out import LeftOut

__all__ = ["SingleRowBuilder"]

_logger = logging.getLogger(__name__)

_TRIES: Final = 8
"""Samples of each kind that are tried as a replacement."""
_STREAM: Final = 65535
"""Stream of random numbers for choosing replacements; no pipeline is so long."""


class SingleRowBuilder:
    """Builds the rows of one batch; its chunks may overlap in time.

    Parameters
    ----------
    job : LoaderJob
        With tolerant rules.
    task : Task
        The batch.
    build : callable
        ``build(row, index)`` builds sample ``index`` with the key of ``row``, and puts it into that row.
    """

    def __init__(self, job: LoaderJob, task: Task, build: Callable[[int, Index], None]) -> None:
        self._job, self._task, self._build = job, task, build
        self._records: dict[int, LeftOut] = {}

    @property
    def left_out(self) -> list[LeftOut]:
        """Records of samples that could not be built, by row, whether or not they were replaced."""
        return [self._records[row] for row in sorted(self._records)]

    def missing(self) -> set[int]:
        """Rows without a sample."""
        return set(self._records) if self._job.rules.on_error == "skip" else set()

    def run(self, start: int, stop: int) -> None:
        """Build rows ``start..stop``.

        Raises
        ------
        SampleError
            If a sample that fails cannot be replaced.
        """
        for row in range(start, stop):
            index = self._task.indices[row]
            try:
                self._build_one(row, index, row, start)
            except Exception as error:  # noqa: BLE001  # recorded, as the rules say
                keys = self._task.keys
                self._records[row] = LeftOut.of(error, keys.epoch, self._task.seq, index)
                if self._job.rules.on_error == "replace":
                    self._replace(row, start, error)

    def _build_one(self, row: int, index: Index, source: int | None, start: int) -> None:
        """Build sample ``index``, which the sampler drew for row ``source`` (None: for no row), into ``row``."""
        reason = None if source is None else (self._task.fatal or {}).get(source)
        if reason is not None:
            raise WorkerError(reason)
        if self._job.watch is not None:
            self._job.watch((row if source is None else source) - start)  # if the worker dies, this one is to blame
        self._build(row, index)

    def _replace(self, row: int, start: int, error: Exception) -> None:
        tried = 0
        for source, index in self._replacements(row):
            tried += 1
            try:
                self._build_one(row, index, source, start)
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
