"""One epoch under way: gives tasks to workers, puts batches in order, waits no longer than allowed.

::

    plan --task--> submit --(at most `limit` not yet delivered)--> backend --Done--> ready{seq} --in order--> user

Used by one thread. An iterator never holds its loader, and a loader needs no iterator: one that is forgotten (a
``break``, an exception, a cycle) is collected, and its backend stops the workers.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NoReturn

from penstock.datasets.batch_types import BatchT_co
from penstock.errors import ArgumentError, StallError, WorkerError
from penstock.loader.interrupts import end_with_cell
from penstock.loader.stats import QueueStats
from penstock.trace import counting
from penstock.workers.base import END, NOTHING, Backend, Task, TaskResult
from penstock.workers.jobs.stream import MAX_ERRORS_IN_A_ROW

if TYPE_CHECKING:
    from penstock.loader.epoch import Epoch
    from penstock.loader.position import Position
    from penstock.loader.recipe import Settings
    from penstock.loader.tuning import Setting

__all__ = ["LoaderIterator"]

_logger = logging.getLogger(__name__)


class LoaderIterator(Generic[BatchT_co]):
    """Iterator over one epoch; made by ``iter(loader)``.

    With ``persistent_workers``, a loader may begin the next epoch with the same iterator (:meth:`begin`), or take the
    workers away from it (:meth:`release_workers`). It then goes on alone::

        what was under way  ->  workers of its own, where the plan has more: they begin at the last snapshot

    Parameters
    ----------
    settings : Settings
        Of its loader.
    epoch : Epoch
        The first; its job is started.
    backend : Backend
        Owned from now on.

    Attributes
    ----------
    epoch : Epoch
        The one that it is in, or has ended.
    backend : Backend
        Its workers; ``stopped`` says whether they are gone for good.
    """

    def __init__(self, settings: Settings, epoch: Epoch, backend: Backend) -> None:
        self.backend, self._limit, self._pid = backend, epoch.recipe.limit, os.getpid()
        self._needs_workers = self.stopped = self._closed = False
        self._waited_ns = 0
        try:
            self.begin(settings, epoch)
        except BaseException:
            backend.close()
            raise

    def begin(self, settings: Settings, epoch: Epoch) -> None:
        """Begin another epoch, whose job is started on this iterator's backend; the last one is over."""
        self._settings, self.epoch, self._plan, self._budget = settings, epoch, epoch.plan, epoch.budget
        position = epoch.position
        self._next_seq = self._planned = position.batches
        self._delivered_before, self._in_flight = frozenset(position.ahead), 0
        self._warned_of = -1  # the last batch whose slowness was logged
        self._plan_ended = self._closed = self._replaying = False
        self._ready: dict[int, TaskResult] = {}
        self._raised: TaskResult | None = None  # counted when what follows it is asked for
        self._failures: dict[int, int] = {}  # in a row, by worker
        # Without workers, a sampler is advanced when a batch is asked for, not before.
        self._eager = self.backend.capabilities.builds_ahead
        self._tuner = settings.tuner
        if self._tuner is not None:
            self._tuner.begin_epoch()
            self._limit = self._tuner.setting.limit
        if self._eager:
            self._top_up()
        self._replay(position.batches + epoch.prepared.replay)
        settings.counters.watch(self)
        end_with_cell(self)

    def queue(self) -> QueueStats:
        """Return how many batches are ready and under way; may be called by any thread."""
        ready = len(self._ready) + self.backend.count_ready()
        return QueueStats(min(ready, self._in_flight), self._in_flight, 0 if self._closed else self._limit)

    @property
    def finished(self) -> bool:
        """Whether the epoch was delivered to its end."""
        return self.epoch.position.finished

    def __iter__(self) -> LoaderIterator:
        return self

    def __len__(self) -> int:
        return self._settings.count_batches()

    def __getstate__(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled; pickle loader.state_dict()")

    def __next__(self) -> BatchT_co:
        try:
            done = self._advance()
        except StallError as stalled:
            done = TaskResult(self._next_seq, error=stalled.with_traceback(None))
        if done is None:
            raise StopIteration
        error = done.error
        if error is None:
            return done.batch  # type: ignore[no-any-return]  # what workers send is of the type that the loader says
        # A traceback that somebody keeps keeps this frame: it must keep neither the workers by `self`, nor the error.
        del self, done
        try:
            raise error
        finally:
            del error

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and not getattr(self, "_closed", True):
            self._closed = True
            self._settings.counters.retire(self.epoch.trace)

    def close(self) -> None:
        """End now: stop the workers (two seconds at most) and drop what is prefetched. Idempotent."""
        if not self._closed:
            self._closed = True
            self._ready.clear()
            self._settings.counters.retire(self.epoch.trace)
        if not self.stopped:
            self.stopped = True
            self.backend.close()

    def exhaust(self) -> None:
        """Run to the end of the epoch, and drop what it gives."""
        self._replay(sys.maxsize)

    def release_workers(self) -> tuple[Backend, Position]:
        """Let another iterator have the workers, idle and with their states; this one keeps what they built.

        StallError if they do not come back: this iterator ends with the same error, after what is ready.
        """
        epoch, backend = self.epoch, self.backend
        try:
            self._await_in_flight()
        except StallError as stalled:
            backend.close()
            first = next(seq for seq in itertools.count(self._next_seq) if seq not in self._ready)
            self._ready = {seq: done for seq, done in self._ready.items() if seq < first}
            self._ready[first] = TaskResult(first, error=stalled)
            self._in_flight, self._plan_ended = len(self._ready), True
            raise
        backend.pause()
        position = epoch.position.copy()
        for done in self._ready.values():
            position.record(done)
        self._settings, self._needs_workers = replace(self._settings, persistent=False), True
        self.backend = epoch.recipe.workers.make_backend(epoch.prepared.base_seed)
        return backend, position

    def abandon(self) -> None:
        """End the epoch where it is: wait for what is under way, and drop it. Stopped workers are replaced.

        Raises StallError if the workers do not get on.
        """
        epoch = self.epoch
        if self.stopped:
            self.backend, self.stopped = epoch.recipe.workers.make_backend(epoch.prepared.base_seed), False
            self._in_flight = 0
        self._await_in_flight()
        for done in self._ready.values():
            epoch.position.record(done)
        self._ready.clear()
        self._in_flight = 0
        self._settings.counters.retire(epoch.trace)

    def _await_in_flight(self) -> None:
        while self._in_flight > len(self._ready):
            self._wait()

    def _advance(self) -> TaskResult | None:
        """Return the next batch, counted as delivered, or error, which is counted when more is asked for.

        It is None at the end.
        """
        if self._pid != os.getpid():
            raise ArgumentError(f"this iterator belongs to process {self._pid}; a forked process must call iter()")
        while not self._closed:
            self._pass_over_error()
            self._top_up()
            done = self._next_done()
            if done is None:
                self._finish()
                too_much = None if self._budget is None else self._budget.end()
                if too_much is not None:
                    return TaskResult(self._next_seq, error=too_much)
            elif done.batch is END:
                error = self._count_left_out(done)
                self._end_stream(done)
                if error is not None:
                    return TaskResult(done.seq, error=error)
            elif done.seq not in self._delivered_before:
                error = self._count_left_out(done)
                if error is not None:
                    done.error, done.batch = error, None
                self._count(done)
                if done.batch is not NOTHING:
                    return done
        return None

    def _count_left_out(self, done: TaskResult) -> Exception | None:
        """Record what is left out of a batch; the error that stands in its place if that is too much."""
        if self._budget is None:
            if self._replaying or not done.left_out:
                return None
            self._budget = self.epoch.start_budget(self._settings)
        error = self._budget.count(done)
        if error is None or done.batch is END:
            self.epoch.position.lost = self._budget.lost
        return error

    def _pass_over_error(self) -> None:
        """Count the error that was raised last, as more is asked for: a state taken before has its batch again."""
        if self._raised is None:
            return
        self.epoch.count(self._raised)
        self._raised = None
        if self._budget is not None:
            self.epoch.position.lost = self._budget.lost

    def _end_stream(self, done: TaskResult) -> None:
        """A stream is at its end: the only one, or that of one worker process."""
        if self.epoch.rotation is None or done.worker is None:
            self._plan_ended = True
        else:
            self.epoch.position.record(done).ended = True
            self._retire_worker(done.worker)

    def _retire_worker(self, worker: int) -> None:
        rotation = self.epoch.rotation
        assert rotation is not None, "worker processes have one"
        rotation.retire(worker)
        self._plan_ended = rotation.is_over()

    def _finish(self) -> None:
        """The epoch is delivered."""
        settings = self._settings
        self.epoch.position.finished = self._closed = True
        settings.counters.retire(self.epoch.trace)
        self.stopped = not settings.persistent or settings.idle is not None
        if not settings.persistent:
            self.backend.close()
        elif settings.idle is not None:
            settings.idle.put(self.backend)
        else:
            self.backend.pause()

    def _replay(self, goal: int) -> None:
        """Build again and drop batches up to number ``goal``: they were counted when they were delivered."""
        self._budget, self._replaying = None, True
        while self.epoch.position.batches < goal and self._advance() is not None:
            pass
        self._budget, self._replaying = self.epoch.budget, False

    def _count(self, done: TaskResult) -> None:
        if done.task is None and isinstance(self._plan, Generator):
            return  # the sampler failed and is at its end: a state taken now has it fail again
        if done.error is None or self._replaying:
            self.epoch.count(done)
        else:
            self._raised = replace(done, batch=NOTHING, error=None)  # an error keeps the loop's frame: no circle
        if self.epoch.position.is_replicated:
            self._count_failure(done)
        if self._eager:
            self._top_up()
        if done.error is None and not self._replaying:
            self._settings.counters.count(done)
            self._warn_of_length()
            if self._tuner is not None and self._tuner.record(done.rows, self._waited_ns):
                self._resize(self._tuner.setting)

    def _resize(self, setting: Setting) -> None:
        """Go on with other workers, or more batches under way; what was begun comes as it was begun."""
        self._limit = setting.limit
        if self.epoch.rotation is not None:
            self.epoch.rotation.resize(setting.workers, setting.limit)
        self.backend.resize(setting.workers)

    def _count_failure(self, done: TaskResult) -> None:
        """Retire a worker whose stream fails at the same place again and again: it never says that it has ended."""
        worker = done.worker
        if worker is None:
            return
        self._failures[worker] = self._failures.get(worker, 0) + 1 if done.error is not None and not done.rows else 0
        if isinstance(done.error, WorkerError) or self._failures[worker] >= MAX_ERRORS_IN_A_ROW:
            self._retire_worker(worker)

    def _warn_of_length(self) -> None:
        reported, samples = self._settings.reported_length, self.epoch.position.samples
        if reported is not None and samples > reported:
            warnings.warn(
                f"Length of IterableDataset {type(self._settings.order.dataset).__name__} was reported to be {reported}"
                f", but {samples} samples have been fetched.",
                stacklevel=5,
            )

    def _top_up(self) -> None:
        while self._in_flight < self._limit and not self._plan_ended and self._has_room():
            try:
                with counting(self.epoch.trace):  # the plan may announce records
                    task = next(self._plan)
            except StopIteration:
                self._plan_ended = True
                begin_next = self._settings.begin_next and self._settings.begin_next()
                if begin_next is not None and not self._replaying:
                    begin_next()
                return
            except Exception as error:  # noqa: BLE001  # raised in its turn: the batches before it are good
                self._ready[self._planned] = TaskResult(self._planned, error=error)
                self._in_flight, self._planned = self._in_flight + 1, self._planned + 1
                continue
            self._planned = task.seq + 1
            if task.seq not in self._delivered_before or not len(task.indices):
                self._in_flight += 1
                self._submit(task)

    def _has_room(self) -> bool:
        if self._needs_workers and self._in_flight:
            return False  # what is ready comes first: it may be all that is asked for
        rotation = self.epoch.rotation
        return rotation is None or rotation.has_room()

    def _submit(self, task: Task) -> None:
        epoch = self.epoch
        if self._needs_workers:
            self._needs_workers = False
            if self._tuner is not None:
                self.backend.resize(self._tuner.setting.workers)
            epoch.restart(self.backend)
            for old in epoch.since or ():
                self.backend.submit(old)
                self._receive()  # it was delivered: built again for what it does to its worker
        if epoch.rotation is not None:
            task.worker = epoch.rotation.choose()
            task.snapshot = epoch.needs_snapshot(task)
        self.backend.submit(task)

    def _next_done(self) -> TaskResult | None:
        """Return the batch whose turn it is; None at the end."""
        while True:
            while self._next_seq in self._delivered_before and self._next_seq not in self._ready:
                self._next_seq += 1
            seq = self._next_seq
            if not self._settings.in_order and self._ready:
                seq = next(iter(self._ready))
            if seq in self._ready:
                self._in_flight -= 1
                self._next_seq += 1
                return self._ready.pop(seq)
            if not self._in_flight:
                return None
            self._wait()

    def _wait(self) -> None:
        done = self._receive()
        self._ready[done.seq] = done
        if self.epoch.rotation is not None and done.worker is not None:
            self.epoch.rotation.finish(done.worker)

    def _receive(self) -> TaskResult:
        """Return the next batch that ends, whichever it is."""
        settings, backend = self._settings, self.backend
        limit_s = settings.patience_s
        start, before = time.perf_counter_ns(), backend.progress()
        limits = 0  # how many times in a row limit_s has passed without progress
        try:
            while True:
                done = backend.result(limit_s)
                if done is not None:
                    return done
                if settings.timeout:
                    raise self._make_stall_error(f"DataLoader timed out after {settings.timeout} seconds")
                progress = backend.progress()
                limits, before = (limits + 1 if progress == before else 0), progress
                if limits:
                    self._check_stall(limits, backend.samples_per_call())
        finally:
            waited_ns = time.perf_counter_ns() - start
            self._waited_ns += waited_ns
            self.epoch.trace.add("wait", waited_ns)

    def _check_stall(self, limits: int, samples: int) -> None:
        """Warn, or raise: a call asks for ``samples``, and nothing has moved for ``limits`` times ``stall_timeout``."""
        unit_s = self._settings.stall_timeout
        assert unit_s is not None, "without a limit a wait has no end"
        limit = f"stall_timeout={unit_s} seconds"
        if samples > 1:
            limit = f"{samples * unit_s:g} seconds, {limit} for each of the {samples} samples that a call asks for"
        if limits >= samples:
            raise self._make_stall_error(f"no worker finished anything within {limit}")
        if self._warned_of != self._next_seq:
            self._warned_of = self._next_seq
            so_far = f"no worker has finished anything for {limits * unit_s:g} seconds"
            _logger.warning("%s", self._make_stall_error(f"{so_far}; the limit is {limit}"))

    def _make_stall_error(self, what: str) -> StallError:
        dataset = type(self._settings.order.dataset).__name__
        where = {"dataset": dataset, "epoch": self.epoch.position.epoch, "batch": self._next_seq}
        return StallError(f"{what}; {self.backend.describe_workers()}", **where)
