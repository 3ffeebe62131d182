"""The job of streams: collates the samples that an iterator yields, in its order."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, cast

from penstock.datasets.error_location import add_location
from penstock.datasets.streams.division import DivisibleStream, StatefulObject
from penstock.errors import BrokenImageError, SampleError, StateError
from penstock.repairs import Repaired, RepairScope
from penstock.rng import sample_scope
from penstock.sample import Batch, DatasetLike, Sample, State
from penstock.trace import Trace
from penstock.workers.base import END, BatchBuild, Task, WorkerStart
from penstock.workers.info import get_worker_info
from penstock.workers.jobs.base import (
    LoaderJob,
    ReadTimer,
    collate_samples,
    take_snapshot,
    take_snapshot_at_start,
)
from penstock.workers.left_out import LeftOut, SampleRules

__all__ = ["MAX_ERRORS_IN_A_ROW", "StreamJob"]

_logger = logging.getLogger(__name__)

MAX_ERRORS_IN_A_ROW: Final = 100
"""Errors without a sample in between after which an iterator counts as broken."""


class StreamJob(LoaderJob):
    """Collates the samples that an iterator yields, in its order.

    Threads pull from one iterator. Each process iterates its own copy of the dataset, which finds its part by
    :func:`~penstock.workers.get_worker_info`.

    Parameters
    ----------
    dataset : iterable
        Iterated once per epoch, from its start or from where :class:`WorkerStart` says: then its own state is restored,
        or it is run forward.
    batch_size : int, optional
        Samples per batch, if a task does not say; None without auto-batching.
    drop_last : bool
        Leave out a last batch that is short.
    collate : callable
        As for :class:`SampleJob`.
    seed : int
        Part of the samples' keys, with the epoch and each sample's number in the stream.
    deliver, worker_starts, rules
        As for all jobs. A sample of a stream cannot be replaced by another: one that is left out is followed by the
        next of the iterator, and batches keep their size, for "skip" and "replace".
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        dataset: DatasetLike,
        batch_size: int | None,
        drop_last: bool,
        collate: Callable[[Sample], Batch],
        seed: int,
        *,
        deliver: Callable[[Batch], Batch] | None = None,
        worker_starts: Mapping[int, WorkerStart] | None = None,
        rules: SampleRules | None = None,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, worker_starts, rules)
        self.dataset, self.collate, self.batched = dataset, collate, batch_size is not None
        self._size, self._drop_last, self._seed = batch_size or 1, drop_last, seed
        self._begun: deque[tuple[int, int]] = deque()  # numbers and sizes: any thread may pull the next batch
        self._epoch = self._samples = self._first_key = 0
        self._lock: AbstractContextManager[object] = nullcontext()  # until start_epoch(): a lock cannot be pickled
        self._iterator: Iterator[Sample] = iter(())
        self._pending = _PulledBatch()
        self._state: State = None  # of the stream after the last complete batch
        self._failed: Exception | None = None  # the iterator's last error, if no sample came since
        self._failures = 0

    def start_epoch(self, start: WorkerStart) -> State:
        """Iterate the dataset, from where ``start`` says; see :class:`~penstock.workers.base.Job`."""
        self._lock, self._pending, self._failed, self._failures = threading.Lock(), _PulledBatch(), None, 0
        self._begun.clear()
        self._epoch, self._first_key, self._samples = start.epoch, start.worker << 48, 0
        dataset, saved = self.dataset, start.state
        if saved is not None and saved["dataset"] is not None:
            dataset.load_state_dict(copy.deepcopy(saved["dataset"]))
        self._iterator = iter(dataset)
        if not start.resumed:
            self._state = take_snapshot_at_start(dataset, self._iterator)
            return self._state
        restored = saved is not None and (saved["dataset"] is not None or saved["iterator"] is not None)
        if saved is not None and saved["iterator"] is not None:
            cast("StatefulObject", self._iterator).load_state_dict(copy.deepcopy(saved["iterator"]))
        ended = saved is not None and saved["ended"]
        if not restored and not ended and start.samples:
            _logger.warning(
                "%s has no state_dict: running it forward over %d samples", type(dataset).__name__, start.samples
            )
            self._run_forward(start.samples)
        if ended:
            self._iterator = iter(())
        self._samples = start.samples
        self._state = self._snapshot(ended=False) if start.samples else take_snapshot_at_start(dataset, self._iterator)
        return self._state

    def _run_forward(self, samples: int) -> None:
        """Draw ``samples`` again, with those that failed, whose errors were raised or recorded the first time."""
        with self.seeding():
            while self._samples < samples:
                sample: Sample = None
                try:
                    sample = self._next()
                except Exception as error:  # noqa: BLE001  # as the docstring says
                    _logger.debug("sample %d failed again: %r", self._samples - 1, error)
                if sample is END:
                    raise StateError(
                        f"the state was taken after {samples} samples, but this stream ended after {self._samples}: it "
                        "belongs to another stream"
                    )

    def _snapshot(self, *, ended: bool) -> State:
        return take_snapshot(self.dataset, self._iterator, ended=ended)

    def _next(self) -> Sample:
        """The stream's next sample, built with its own key; END after the last."""
        with sample_scope(self._seed, self._epoch, self._first_key + self._samples):
            if self.watch is not None:
                self.watch(self._samples)
            self._samples += 1
            sample = next(self._iterator, END)
            self._samples -= sample is END
            return sample

    def make_build(self, task: Task) -> _StreamBuild:
        """Begin a batch of the stream's next samples, and note its size."""
        self._begun.append((task.seq, self._size if task.size is None else task.size))
        return _StreamBuild(self, task)

    def pull(self, task: Task) -> _PulledBatch:
        """The samples of the next batch, and the stream's state after it.

        If the iterator raises, the samples before the error are kept for the next batch; only the failed one is lost.
        Until then none counts as drawn: a state taken there loses no sample, and the error may be raised again.
        """
        with self._lock, self.seeding():
            seq, size = self._begun.popleft()
            pulled, self._pending = self._pending, _PulledBatch()
            pulled.first, before = self._first_key + self._samples, self._samples
            try:
                with RepairScope() as scope:
                    ended = self._fill(pulled, seq, size)
                pulled.repaired += scope.notes
            except BaseException as error:  # noqa: BLE001  # raised by the build
                self._pending = pulled
                return _PulledBatch(seq, state=self._state, error=add_location(error, sample=self._samples - 1))
            finally:
                pulled.drawn += self._samples - before
            # a stream's state at its end may be its start again
            pulled.state = self._state = self._snapshot(ended=ended) if task.snapshot or ended else None
            if ended:
                self._iterator = iter(())  # an end is final, also if the iterator could yield more
            if self._drop_last and ended:
                pulled.samples = []
            pulled.seq, pulled.left_out = seq, [replace(record, batch=seq) for record in pulled.left_out]
            return pulled

    def _fill(self, pulled: _PulledBatch, seq: int, size: int) -> bool:
        """Pull until the batch is full; whether the stream ended before that."""
        while len(pulled.samples) < size:
            try:
                sample = self._next()
            except Exception as error:
                if not (self.tolerant or isinstance(error, BrokenImageError)):
                    raise
                self._check_can_continue(error)
                pulled.left_out.append(LeftOut.of(error, self._epoch, seq, self._samples - 1))
                continue
            if sample is END:
                self._check_end()
                return True
            self._failed, self._failures = None, 0
            pulled.samples.append(sample)
        return False

    def _check_can_continue(self, error: Exception) -> None:
        """Raise ``error`` again if the iterator cannot continue after it."""
        self._failed, self._failures = error, self._failures + 1
        if inspect.isgenerator(self._iterator) and self._iterator.gi_frame is None:
            error.add_note("a generator ends when it raises: it yields no sample after this one")
        elif self._failures >= MAX_ERRORS_IN_A_ROW:
            error.add_note(f"the iterator has raised {self._failures} times in a row: it counts as broken")
        else:
            return
        self._failed, self._failures = None, 0
        raise error

    def _check_end(self) -> None:
        """Raise if the stream ended directly after an error, unless all of its samples have come."""
        failed, self._failed = self._failed, None
        if failed is None or isinstance(self.dataset, DivisibleStream):  # which says by its state that it has ended
            return
        try:
            known = len(self.dataset)
        except (TypeError, NotImplementedError):
            known = None
        here = get_worker_info() if self.in_worker_process else None
        expected = known if known is None or here is None else known // here.num_workers
        if expected is None or expected > self._samples:
            raise SampleError(
                "the stream ended directly after a sample that failed: either that was its last sample, or the error "
                "ended it; define len() of the dataset to distinguish the two"
            ) from failed


@dataclass(slots=True)
class _PulledBatch:
    seq: int = 0
    first: int = 0
    samples: list[Sample] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    repaired: list[Repaired] = field(default_factory=list)
    drawn: int = 0
    state: State = None
    error: BaseException | None = None


class _StreamBuild(BatchBuild):
    __slots__ = (
        "_drawn", "_error", "_first", "_job", "_samples", "_task", "left_out", "repaired", "rows", "seq", "state",
    )  # fmt: skip

    def __init__(self, job: StreamJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, 1, None
        self._samples: list[Sample] = []
        self._first = self._drawn = 0
        self.left_out: list[LeftOut] = []
        self.repaired: list[Repaired] = []
        self._error: BaseException | None = None

    def run(self, start: int, stop: int) -> None:  # noqa: ARG002  # one row: the pull
        with ReadTimer(self._job.trace, 0) as timer:
            pulled = self._job.pull(self._task)
            timer.items = len(pulled.samples)
        self.seq, self._samples, self.state = pulled.seq, pulled.samples, pulled.state
        self._first, self._drawn, self.left_out = pulled.first, pulled.drawn, pulled.left_out
        self._error, self.repaired = pulled.error, pulled.repaired

    def count_samples(self, start: int, stop: int) -> int:  # noqa: ARG002  # one row: the pull
        return len(self._samples)

    def finish(self) -> Batch:
        samples, self._samples = self._samples, []
        self.rows = self._drawn
        if self._error is not None:  # not in run(), which needs a row until its end
            raise self._error
        return collate_samples(self._job, samples, self._task, self.seq, self._first) if samples else END
