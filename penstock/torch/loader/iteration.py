"""One epoch of a torch loader under way: penstock's engine with torch's rules of who works and what is warned of.

An iterator holds what it needs of its loader (:class:`~penstock.torch.loader.terms.Terms`), never the loader, so
that either can be forgotten without the other: a loader keeps its persistent iterator, as torch's does.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from penstock.errors import StallError, WorkerError
from penstock.loader.iteration import LoaderIterator
from penstock.loader.jobs.stream import IN_A_ROW
from penstock.torch.loader.state import Position
from penstock.torch.loader.terms import Epoch, Terms
from penstock.workers.base import Backend, Done, Task

__all__ = ["DataLoaderIterator"]

_REPLICA_HINT: Final = (
    "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at "
    "each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
)


class DataLoaderIterator(LoaderIterator):
    """Iterator over one epoch; made by ``iter(loader)``, begun again by a loader with ``persistent_workers``.

    Of such a loader the newest iterator has the workers. One that they were taken from goes on alone::

        what was under way  ->  workers of its own, where the plan has more: they begin where the others stood

    Parameters
    ----------
    terms : Terms
        Of its loader.
    epoch : Epoch
        The first.
    backend : Backend
        Started; this iterator's own.
    limit : int
        Most batches submitted and not yet delivered.
    """

    _loader: Terms

    def __init__(self, terms: Terms, epoch: Epoch, backend: Backend, limit: int) -> None:
        self._epoch = epoch
        self._stopped = self._again = False
        self._begin_rest: Callable[[Terms, Epoch, Backend], None] | None = None
        self._failures: dict[int, int] = {}
        super().__init__(terms, epoch.plan, backend, epoch.trace, epoch.position, limit, epoch.tally)
        self._replay()

    def begin(self, terms: Terms, prepare: Callable[[Backend], Epoch]) -> None:
        """Begin another epoch with the same workers, after the last one was delivered to its end.

        Parameters
        ----------
        terms : Terms
            As they are now.
        prepare : callable
            Starts the next job on the backend.
        """
        self._loader, self._failures = terms, {}
        self._epoch = epoch = prepare(self._backend)
        self._begin(epoch.plan, epoch.trace, epoch.position, epoch.tally)
        self._replay()

    def give_workers(self, begin_rest: Callable[[Terms, Epoch, Backend], None]) -> tuple[Backend, Position]:
        """Let go of the workers, for another iterator; this one keeps what they were at.

        Parameters
        ----------
        begin_rest : callable
            Starts a backend of this iterator's own where the epoch stands, if this one is asked for more than that.

        Returns
        -------
        Backend, Position
            Idle; and what its workers say of themselves.

        Raises
        ------
        StallError
            If they do not come back. This iterator ends with the same error then, behind what is ready.
        """
        epoch, backend = self._epoch, self._backend
        try:
            while self._in_flight > len(self._ready):
                done = self._wait()
                self._ready[done.seq] = done
        except StallError as stalled:
            backend.close()
            first = next(seq for seq in itertools.count(self._next_seq) if seq not in self._ready)
            self._ready = {seq: done for seq, done in self._ready.items() if seq < first}
            self._ready[first] = Done(first, error=stalled)
            self._in_flight, self._plan_ended = len(self._ready), True
            raise
        backend.pause()
        stand = epoch.position.copy()
        for done in self._ready.values():
            stand.mark(done)
        self._loader, self._begin_rest = replace(self._loader, persistent=False), begin_rest
        self._backend = epoch.work.backend(self._base_seed)
        return backend, stand

    def abandon(self) -> None:
        """End the epoch where it is: what is under way is waited for, and dropped. Stopped workers are replaced.

        Raises
        ------
        StallError
            If the workers do not get on.
        """
        epoch = self._epoch
        if self._stopped:
            self._backend, self._stopped = epoch.work.backend(self._base_seed), False
            self._in_flight = 0
        while self._in_flight > len(self._ready):
            done = self._wait()
            self._ready[done.seq] = done
        for done in self._ready.values():
            epoch.position.mark(done)
        self._ready.clear()
        self._in_flight = 0
        self._loader._retire(epoch.trace)  # noqa: SLF001  # the terms' other half

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """torch's name: what wraps an iterator of a loader with ``persistent_workers`` begins the next epoch by it."""
        if not first_iter:
            loader._restart(self)  # noqa: SLF001  # the loader that made it

    @property
    def epoch(self) -> Epoch:
        """What it is in, or has ended."""
        return self._epoch

    def note_start(self) -> None:
        """See :meth:`Epoch.note_start`."""
        self._epoch.note_start(self._backend, self._loader.patience_s, late=True)

    @property
    def finished(self) -> bool:
        """Whether the epoch was delivered to its end."""
        return self._progress.finished

    @property
    def stopped(self) -> bool:
        """Whether its workers are gone for good."""
        return self._stopped

    @property
    def _workers(self) -> list[Any]:
        """Process objects, as torch's iterators have them; none where workers are threads."""
        return list(getattr(self._backend, "processes", ()))

    @property
    def _num_workers(self) -> int:
        return self._loader.num_workers

    @property
    def _index_sampler(self) -> Any:
        return self._loader.index_sampler

    @property
    def _dataset(self) -> Any:
        return self._loader.dataset

    @property
    def _base_seed(self) -> int:
        return self._epoch.position.beginning.base_seed

    @property
    def _num_yielded(self) -> int:
        return self._epoch.position.yielded

    def __next__(self) -> Any:
        if torch.autograd.profiler._is_profiler_enabled:  # noqa: SLF001  # as torch's own loader: its name in a profile
            with torch.autograd.profiler.record_function("enumerate(DataLoader)#DataLoaderIterator.__next__"):
                return super().__next__()
        return super().__next__()

    def close(self) -> None:
        """End now, and stop the workers; those of a loader with ``persistent_workers`` are left to it.

        A generator that has this iterator in hand (``yield from``) calls it when it is closed itself.
        """
        if not self._loader.persistent:
            self._shutdown_workers()
        elif not self._closed:
            self._closed = True
            self._loader._retire(self._trace)  # noqa: SLF001  # the terms' other half

    def _shutdown_workers(self) -> None:
        """torch's name, which other libraries call: end now, and stop the workers, in two seconds at most."""
        if not self._stopped:
            self._stopped = True
            super().close()
            self._backend.close()

    def _finish(self) -> None:
        super()._finish()
        self._stopped = not self._loader.persistent

    def _replay(self) -> None:
        """Have workers do again what they did since they last said where they were: it was counted then."""
        goal = self._progress.batches + self._epoch.replay
        self._tally, self._again = None, True
        while self._progress.batches < goal and self._advance() is not None:
            pass
        self._tally, self._again = self._epoch.tally, False

    def exhaust(self) -> None:
        """Run to the end of the epoch; what it gives is dropped."""
        self._tally, self._again = None, True
        while self._advance() is not None:
            pass
        self._again = False

    def _has_room(self) -> bool:
        if self._begin_rest is not None and self._in_flight:
            return False  # what is ready comes first: it may be all that is asked for
        route = self._epoch.route
        return route is None or route.has_room()

    def _submit(self, task: Task) -> None:
        epoch = self._epoch
        if self._begin_rest is not None:
            begin_rest, self._begin_rest = self._begin_rest, None
            begin_rest(self._loader, epoch, self._backend)
            for old in epoch.since or ():
                self._backend.submit(old)
                super()._wait()  # for what it does to its worker: it was delivered
        if epoch.route is not None:
            task.worker = epoch.route.next()
            task.snapshot = epoch.wants_snapshot(task, self._limit, self._loader.num_workers)
        super()._submit(task)

    def _wait(self) -> Done:
        done = super()._wait()
        if self._epoch.route is not None and done.worker is not None:
            self._epoch.route.done(done.worker)
        return done

    def _end(self, done: Done) -> None:
        route = self._epoch.route
        if route is None or done.worker is None:
            super()._end(done)
            return
        route.retire(done.worker)
        self._epoch.position.mark(done).ended = True
        self._plan_ended = route.is_over()

    def _count(self, done: Done) -> None:
        self._epoch.count(done)
        if self._epoch.position.streams:
            self._note_failure(done)
        if self._eager:
            self._top_up()
        if done.error is None and not self._again:
            self._loader._count(done)  # noqa: SLF001  # the terms' other half
            self._warn_of_length()

    def _note_failure(self, done: Done) -> None:
        """Leave out a worker whose stream will never say that it has ended: it fails at the same place for ever."""
        route, worker = self._epoch.route, done.worker
        assert route is not None, "a stream on processes has one"
        if worker is None:
            return
        self._failures[worker] = self._failures.get(worker, 0) + 1 if done.error is not None and not done.rows else 0
        if isinstance(done.error, WorkerError) or self._failures[worker] >= IN_A_ROW:
            route.retire(worker)
            self._plan_ended = route.is_over()

    def _warn_of_length(self) -> None:
        terms, position = self._loader, self._epoch.position
        if terms.reported_length is not None and position.yielded > terms.reported_length:
            warnings.warn(
                f"Length of IterableDataset {terms.dataset} was reported to be {terms.reported_length}"
                f"(when accessing len(dataloader)), but {position.yielded} samples have been fetched. "
                + (_REPLICA_HINT if terms.num_workers else ""),
                stacklevel=6,
            )
