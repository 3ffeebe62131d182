"""Samples that cannot be built: what becomes of them, how they are recorded, how many are too many.

::

    worker: build fails -> LeftOut, in Done.left_out ──batches in order──> ErrorBudget (one epoch) -> LeftOutLog
                                                                             │ too many:               (the loader)
                                                                             └ SampleError             list, file

Jobs follow the :class:`~penstock.workers.left_out.SampleRules`. The iterator counts each batch when it is delivered, so
that the records have the order of the batches, and delivered + left out = drawn.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError, SampleError, check_choice
from penstock.frameworks import find_ranks
from penstock.workers.base import END, NOTHING, TaskResult
from penstock.workers.left_out import LeftOut

__all__ = ["ErrorBudget", "LeftOutLog", "warn_of_unequal_steps"]

_POLICIES: Final = ("raise", "skip", "replace")
_IN_MEMORY: Final = 10_000
"""Records in memory; the file has all."""
_ALWAYS: Final = 100
_SHARE: Final = 0.01
"""Without ``max_errors``: an epoch may lose this many samples, or this share of what it has drawn if that is more."""
_SHOWN: Final = 3
"""Records in the error of a budget."""
_SHOWN_REASON: Final = 200
"""Characters of each reason there."""


def warn_of_unequal_steps(on_error: str, *, stacklevel: int) -> None:
    """Warn where ranks may take unequal numbers of steps: with "skip", under a process group of several ranks."""
    if on_error != "skip":
        return
    ranks, _ = find_ranks() or (1, 0)
    if ranks > 1:
        warnings.warn(
            f'on_error="skip" delivers nothing for a batch that lost every sample: the {ranks} ranks may then take '
            'unequal numbers of steps, and collective operations wait for ever. on_error="replace" keeps the number',
            stacklevel=stacklevel + 1,
        )


class LeftOutLog:
    """The samples that a loader has left out, over all epochs.

    Raises ArgumentError if an argument is wrong, or does not fit another one.
    """

    def __init__(self, on_error: str, max_errors: float | None, error_log: str | os.PathLike[str] | None) -> None:
        check_choice("on_error", on_error, _POLICIES)
        if on_error == "raise" and (max_errors is not None or error_log is not None):
            name = "max_errors" if max_errors is not None else "error_log"
            raise ArgumentError(f"{name} needs on_error='skip' or 'replace': with 'raise' nothing is left out")
        self.on_error, self.max_errors = on_error, _check_limit(max_errors)
        self.error_log = None if error_log is None else Path(error_log)
        if self.error_log is not None and not self.error_log.absolute().parent.is_dir():
            folder = self.error_log.absolute().parent
            raise ArgumentError(f"error_log must be a file in an existing folder, got {str(error_log)!r}: no {folder}")
        self.count = 0
        self._newest: deque[LeftOut] = deque(maxlen=_IN_MEMORY)

    def newest(self) -> list[LeftOut]:
        """Return the newest 10,000 records, oldest first; a copy."""
        return list(self._newest)

    def count_missing(self, done: TaskResult) -> int:
        """Return how many samples a batch has less than ``done.rows``.

        What is replaced is not missing, but in streams.
        """
        replaced = self.on_error == "replace" and done.task is not None and len(done.task.indices)
        return 0 if replaced else len(done.left_out)

    def add(self, records: Sequence[LeftOut]) -> None:
        """Keep records, and append them to the file; raises an OSError if that fails."""
        self.count += len(records)
        self._newest.extend(records)
        if self.error_log is None:
            return
        lines = "".join(f"{record.line()}\n" for record in records)
        with self.error_log.open("a", encoding="utf-8") as file:  # opened each time: it is rare, and survives a fork
            file.write(lines)


class ErrorBudget:
    """Counts what one epoch has drawn, delivered and left out, against ``max_errors``."""

    def __init__(
        self, log: LeftOutLog, epoch: int, expected: int | None, *, resumed: bool, drawn: int = 0, lost: int = 0
    ) -> None:
        self._log, self._epoch, self._expected, self._resumed = log, epoch, expected, resumed
        self._drawn, self.lost, self._delivered = drawn, lost, 0
        self._first: list[LeftOut] = []

    def count(self, done: TaskResult) -> Exception | None:
        """Count a batch that is to be delivered; the error that replaces it if too much is lost."""
        self._drawn += done.rows if done.batch is not END else len(done.left_out)
        if done.error is not None:
            return None
        self._delivered += done.batch is not END and done.batch is not NOTHING
        if not done.left_out:
            return None
        records = [dataclasses.replace(record, worker=done.worker) for record in done.left_out]
        self.lost += len(records)
        self._first += records[: _SHOWN - len(self._first)]
        try:
            self._log.add(records)
        except OSError as error:
            return error
        return self._check(records[-1], max(self._drawn, self._expected or _ALWAYS))

    def end(self) -> SampleError | None:
        """Return the error of an epoch that ends with too much, or everything, left out."""
        if self.lost and not self._delivered and not self._resumed:
            reasons = self._describe_first()
            return SampleError(f"every one of the {self.lost} samples drawn was left out{reasons}", epoch=self._epoch)
        if not self._first or self._expected is not None:
            return None
        return self._check(self._log.newest()[-1], self._drawn)

    def _check(self, last: LeftOut, drawn: int) -> SampleError | None:
        limit = self._log.max_errors
        is_share = limit is None or (isinstance(limit, float) and limit < 1)
        allowed: float = limit or 0
        if is_share:
            allowed = max(_ALWAYS, _SHARE * drawn) if limit is None else limit * drawn
        if self.lost <= allowed:
            return None
        most = f"{int(allowed)} of {drawn}" if is_share else f"{limit}"
        return SampleError(
            f"{self.lost} of {self._drawn} samples drawn were left out, more than max_errors={limit} allows ({most})"
            f"{self._describe_first()}",
            store=last.store, key=last.key, index=last.index, epoch=last.epoch, batch=last.batch, worker=last.worker,
        )  # fmt: skip

    def _describe_first(self) -> str:
        """Return the first reasons: as a rule, all samples fail for the same one."""
        shown = [f"index {one.index!r}: {one.type}: {one.reason[:_SHOWN_REASON]}" for one in self._first]
        return f"; the first: {'; '.join(shown)}" if shown else ""


def _check_limit(limit: object) -> int | float | None:
    if limit is None:
        return None
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit
    if isinstance(limit, float) and (0 < limit < 1 or limit == math.inf):
        return limit
    raise ArgumentError(
        f"max_errors must be a number of samples (a non-negative int) or a share of them (a float between 0 and 1), "
        f"got {limit!r}"
    )
