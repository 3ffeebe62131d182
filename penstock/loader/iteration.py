"""One epoch under way: keeps workers supplied, puts batches in order, waits no longer than allowed.

::

    plan --task--> submit --(at most `limit` not yet delivered)--> backend --Done--> ready{seq} --in order--> user

Belongs to the thread that iterates. Holds the loader, never the other way round: an iterator that is forgotten (a
``break``, an exception, a cycle) is collected, and its backend stops the workers.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ArgumentError, StallError
from penstock.trace import Trace
from penstock.workers.base import END, NOTHING, Backend, Done, Task

if TYPE_CHECKING:
    from penstock.loader.faults import Tally
    from penstock.loader.plan import Plan
    from penstock.loader.state import Progress

__all__ = ["LoaderIterator", "Owner"]

_logger = logging.getLogger(__name__)


class Owner(Protocol):
    """What an iterator asks of its loader: limits, where a backend goes, who counts."""

    dataset: Any
    num_workers: int
    in_order: bool
    timeout: float
    stall_timeout: float | None
    reported_length: int | None

    def __len__(self) -> int: ...

    def _put_back(self, backend: Backend) -> None: ...

    def _retire(self, trace: Trace) -> None: ...

    def _count(self, done: Done) -> None: ...


class LoaderIterator:
    """Iterator over one epoch; made by ``iter(loader)``.

    Parameters
    ----------
    loader : Owner
        For limits, and to give a persistent backend back.
    plan : Plan
        The epoch's tasks from the first that is to be delivered.
    backend : Backend
        Started; this iterator's own.
    trace : Trace
        This iterator's own.
    progress : Progress
        Updated as batches are delivered; the loader reads it.
    limit : int
        Most batches submitted and not yet delivered.
    tally : Tally, optional
        Told of each batch that is delivered, where batches may come without some of their samples.
    """

    def __init__(
        self,
        loader: Owner,
        plan: Plan,
        backend: Backend,
        trace: Trace,
        progress: Progress,
        limit: int,
        tally: Tally | None = None,
    ) -> None:
        self._loader, self._backend, self._limit = loader, backend, limit
        self._pid = os.getpid()
        self._begin(plan, trace, progress, tally)

    def _begin(self, plan: Plan, trace: Trace, progress: Progress, tally: Tally | None = None) -> None:
        """Begin an epoch; the backend has its job."""
        self._plan, self._trace, self._progress, self._tally = plan, trace, progress, tally
        self._next_seq = progress.batches
        self._delivered_before = frozenset(progress.ahead)
        self._planned = progress.batches
        self._in_flight = 0
        self._warned_of = -1  # the batch whose slowness was last told
        self._plan_ended = self._closed = False
        self._ready: dict[int, Done] = {}
        # serial: a sampler is drawn from when a batch is asked for, not before
        self._eager = self._loader.num_workers > 0
        if self._eager:
            self._top_up()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        try:
            done = self._advance()
            if done is None:
                raise StopIteration
            error = done.error
        except StallError as stalled:
            done, error = None, stalled.with_traceback(None)
        if done is not None and error is None:
            return done.batch
        # A traceback that somebody keeps (a notebook does) keeps this frame: it must not keep the workers by `self`,
        # nor the error by itself.
        del self, done
        assert error is not None, "a batch that is not there has an error"
        try:
            raise error
        finally:
            del error

    def _advance(self) -> Done | None:
        """The next batch or error, counted as delivered; None at the end."""
        if self._pid != os.getpid():
            raise ArgumentError(f"this iterator belongs to process {self._pid}; a forked process calls iter() itself")
        while not self._closed:
            self._top_up()
            done = self._next_done()
            if done is None:
                self._finish()
                too_much = None if self._tally is None else self._tally.end()
                if too_much is not None:
                    return Done(self._next_seq, error=too_much)
            elif done.batch is END:
                error = self._settle(done)
                self._end(done)
                if error is not None:
                    return Done(done.seq, error=error)
            elif done.seq not in self._delivered_before:
                error = self._settle(done)
                if error is not None:
                    done.error, done.batch = error, None
                self._count(done)
                if done.batch is not NOTHING:
                    return done
        return None

    def _settle(self, done: Done) -> Exception | None:
        """Record what is left out of a batch; the error that stands in its place if that is too much."""
        if self._tally is None:
            return None
        error = self._tally.settle(done)
        self._progress.lost = self._tally.lost
        return error

    def _end(self, done: Done) -> None:  # noqa: ARG002  # a subclass asks whose stream it was
        """A stream is at its end."""
        self._plan_ended = True

    def __len__(self) -> int:
        return len(self._loader)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled; pickle loader.state_dict()")

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and not getattr(self, "_closed", True):
            self._closed = True
            self._loader._retire(self._trace)  # noqa: SLF001  # the loader's other half

    def close(self) -> None:
        """End now: stop the workers (two seconds at most) and drop what is prefetched. Idempotent."""
        if not self._closed:
            self._closed = True
            self._backend.close()
            self._ready.clear()
            self._loader._retire(self._trace)  # noqa: SLF001  # the loader's other half

    def _finish(self) -> None:
        """The epoch is delivered."""
        self._progress.finished = True
        self._closed = True
        self._loader._put_back(self._backend)  # noqa: SLF001  # the loader's other half
        self._loader._retire(self._trace)  # noqa: SLF001

    def _top_up(self) -> None:
        while self._in_flight < self._limit and not self._plan_ended and self._has_room():
            try:
                task = next(self._plan)
            except StopIteration:
                self._plan_ended = True
                return
            except Exception as error:  # noqa: BLE001  # raised in its turn: the batches before it are good
                self._ready[self._planned] = Done(self._planned, error=error)
                self._in_flight, self._planned = self._in_flight + 1, self._planned + 1
                self._plan_ended = not getattr(self._plan, "numbers_errors", False)
                continue
            self._planned = task.seq + 1
            if task.seq not in self._delivered_before or not len(task.indices):
                self._in_flight += 1
                self._submit(task)

    def _has_room(self) -> bool:
        """Whether some worker may be given one task more."""
        return True

    def _submit(self, task: Task) -> None:
        self._backend.submit(task)

    def _next_done(self) -> Done | None:
        """The batch whose turn it is; None at the end."""
        while True:
            while self._next_seq in self._delivered_before and self._next_seq not in self._ready:
                self._next_seq += 1
            seq = self._next_seq
            if not self._loader.in_order and self._ready:
                seq = next(iter(self._ready))
            if seq in self._ready:
                self._in_flight -= 1
                self._next_seq += 1
                return self._ready.pop(seq)
            if not self._in_flight:
                return None
            done = self._wait()
            self._ready[done.seq] = done

    def _wait(self) -> Done:
        loader, backend = self._loader, self._backend
        limit_s = loader.timeout or loader.stall_timeout
        start, before = time.perf_counter_ns(), backend.progress()
        limits = 0  # how many times in a row limit_s has passed without progress
        try:
            while True:
                done = backend.result(limit_s)
                if done is not None:
                    return done
                if loader.timeout:
                    raise self._stalled(f"DataLoader timed out after {loader.timeout} seconds")
                progress = backend.progress()
                limits, before = (limits + 1 if progress == before else 0), progress
                if limits:
                    self._judge(limits, backend.samples_per_call())
        finally:
            self._trace.add("wait", time.perf_counter_ns() - start)

    def _judge(self, limits: int, samples: int) -> None:
        """Nothing has moved for ``limits`` times ``stall_timeout``, and a call asks for ``samples``: warn, or raise."""
        unit_s = self._loader.stall_timeout
        assert unit_s is not None, "without a limit a wait has no end"
        limit = f"stall_timeout={unit_s} seconds"
        if samples > 1:
            limit = f"{samples * unit_s:g} seconds, {limit} for each of the {samples} samples that a call asks for"
        if limits >= samples:
            raise self._stalled(f"no worker finished anything within {limit}")
        if self._warned_of != self._next_seq:
            self._warned_of = self._next_seq
            so_far = f"no worker has finished anything for {limits * unit_s:g} seconds"
            _logger.warning("%s", self._stalled(f"{so_far}; the limit is {limit}"))

    def _stalled(self, what: str) -> StallError:
        dataset = type(self._loader.dataset).__name__
        where = {"dataset": dataset, "epoch": self._progress.epoch, "batch": self._next_seq}
        return StallError(f"{what}; {self._backend.stuck()}", **where)

    def _count(self, done: Done) -> None:
        if done.error is None:
            self._progress.deliver(done)
            self._loader._count(done)  # noqa: SLF001  # the loader's other half
            if self._eager:
                self._top_up()
            self._warn_of_length()
        elif done.task is not None:
            self._progress.deliver(done)  # a failed batch counts as drawn; a stream says with its next one what it drew

    def _warn_of_length(self) -> None:
        reported = self._loader.reported_length
        if reported is not None and self._progress.samples > reported:
            warnings.warn(
                f"Length of IterableDataset {type(self._loader.dataset).__name__} was reported to be {reported}, "
                f"but {self._progress.samples} samples have been fetched.",
                stacklevel=5,
            )
