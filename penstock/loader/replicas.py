"""Streams on worker processes: each worker iterates a replica of the dataset, and batches come from them in turn.

::

    worker 0   a0 a1 a2 END            delivered: a0 b0 c0 a1 b1 c1 a2 b2 c2 b3 c3 ...
    worker 1   b0 b1 b2 b3 ...         whose stream has ended is left out of the round; the order does not depend on
    worker 2   c0 c1 c2 c3 ...         who was faster, nor on how many batches are under way

The dataset decides which part each replica gives, by :func:`penstock.get_worker_info`. Where each of them stands is
part of the loader's state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import StateError, WorkerError
from penstock.loader.iteration import LoaderIterator
from penstock.loader.jobs import Opening
from penstock.loader.jobs.stream import IN_A_ROW
from penstock.loader.state import Progress
from penstock.workers.base import Done, Task

if TYPE_CHECKING:
    from penstock.loader.faults import Tally
    from penstock.loader.iteration import Owner
    from penstock.loader.plan import Plan
    from penstock.trace import Trace
    from penstock.workers.base import Backend

__all__ = ["Replicas", "ReplicasIterator", "Route", "Share"]


class Route:
    """Which worker process gets the next task: torch's rule.

    In order: one after the other, those left out whose stream has ended. As they come: likewise, but none that has its
    share of what may be under way, so that a stuck worker keeps what it has and gets no more.

    Parameters
    ----------
    num_workers : int
        How many there are.
    limit : int
        Most tasks under way.
    in_order : bool
        Whether batches are delivered in order.
    first : int
        Worker whose turn it is.
    """

    def __init__(self, num_workers: int, limit: int, *, in_order: bool, first: int = 0) -> None:
        self._limit, self._in_order, self._at = limit, in_order, first % num_workers
        self._live = [True] * num_workers
        self._tasks = [0] * num_workers

    def has_room(self) -> bool:
        """Whether there is a worker for a further task."""
        return any(map(self._may, range(len(self._live))))

    def is_over(self) -> bool:
        """Whether every worker's stream has ended."""
        return not any(self._live)

    def next(self) -> int:
        """The worker for the next task."""
        while not self._may(self._at):
            self._at = (self._at + 1) % len(self._live)
        worker = self._at
        self._tasks[worker] += 1
        self._at = (worker + 1) % len(self._live)
        return worker

    def done(self, worker: int) -> None:
        """A task has come back."""
        self._tasks[worker] -= 1

    def retire(self, worker: int) -> None:
        """The worker's stream has ended."""
        self._live[worker] = False

    def _may(self, worker: int) -> bool:
        share = self._limit // max(1, sum(self._live))
        return self._live[worker] and (self._in_order or self._tasks[worker] < share)


@dataclass(slots=True)
class Share:
    """What one worker has given in this epoch.

    Parameters
    ----------
    samples : int
        How many were drawn.
    state : mapping, optional
        What its dataset and iterator say of themselves.
    ended : bool
        Whether its stream has come to its end.
    """

    samples: int = 0
    state: Any = None
    ended: bool = False


@dataclass(slots=True)
class Replicas(Progress):
    """How far an epoch has been delivered, worker by worker.

    Parameters
    ----------
    last_worker : int
        Whose batch was delivered last; -1: none was.
    shares : list of Share
        By worker.
    """

    last_worker: int = -1
    shares: list[Share] = field(default_factory=list)

    @classmethod
    def of(cls, progress: Progress, num_workers: int) -> Replicas:
        """``progress`` for that many worker processes.

        Raises
        ------
        StateError
            If it is of another number of streams, and they have begun.
        """
        if isinstance(progress, cls) and len(progress.shares) == num_workers:
            return progress
        fresh = cls(progress.epoch, lost=progress.lost, shares=[Share() for _ in range(num_workers)])
        if _has_begun(progress):
            if isinstance(progress, cls) or num_workers > 1:
                raise _of_others(progress, num_workers)
            fresh.batches, fresh.samples = progress.batches, progress.samples
            fresh.last_worker, fresh.shares = 0, [Share(progress.samples, progress.dataset)]
        return fresh

    def alone(self) -> Progress:
        """The same for a loader with one stream in this process.

        Raises
        ------
        StateError
            If several have begun.
        """
        if not _has_begun(self):
            return Progress(self.epoch, lost=self.lost)
        if len(self.shares) > 1:
            raise _of_others(self, 0)
        share = self.shares[0]
        return Progress(self.epoch, self.batches, share.samples, dataset=share.state, lost=self.lost)

    def deliver(self, done: Done) -> None:
        """Count one batch, or an error that stands for what its worker drew."""
        assert done.worker is not None, "a process has a number"
        share = self.mark(done)
        share.samples += done.rows
        self.samples += done.rows
        self.batches += 1
        self.last_worker = done.worker

    def mark(self, done: Done) -> Share:
        """Keep what a worker says of itself."""
        share = self.shares[done.worker or 0]
        if done.state is not None:
            share.state = done.state
        return share

    def openings(self) -> dict[int, Opening]:
        """How each worker begins."""
        return {
            worker: Opening(
                self.epoch, worker, share.samples, {**_NO_STATE, **(share.state or {}), "ended": share.ended}
            )
            for worker, share in enumerate(self.shares)
        }

    def copy(self) -> Replicas:
        """See :meth:`penstock.loader.state.Progress.copy`."""
        return replace(self, ahead=dict(self.ahead), shares=[replace(share) for share in self.shares], _states={})

    def dump(self) -> dict[str, Any]:
        """What a state has beside :func:`penstock.loader.state.dump`."""
        shares = [[share.samples, share.state, share.ended] for share in self.shares]
        return {"last": self.last_worker, "shares": shares}

    @classmethod
    def parse(cls, progress: Progress, saved: Any) -> Replicas:
        """The inverse of :meth:`dump`.

        Raises
        ------
        StateError
            If ``saved`` is not of that form.
        """
        try:
            shares = [Share(_count(samples), state, bool(ended)) for samples, state, ended in saved["shares"]]
            last = int(saved["last"])
            if not (shares and -1 <= last < len(shares)):
                raise ValueError(last)  # noqa: TRY301  # one place says what is wrong
        except (TypeError, ValueError, KeyError) as error:
            raise StateError(f"the state's workers should be what each had given, but are {saved!r:.200}") from error
        at = progress.epoch, progress.batches, progress.samples
        return cls(*at, lost=progress.lost, last_worker=last, shares=shares)


_NO_STATE = {"dataset": None, "iterator": None}


def _has_begun(progress: Progress) -> bool:
    return bool(progress.batches)


def _of_others(progress: Progress, ours: int) -> StateError:
    theirs = len(progress.shares) if isinstance(progress, Replicas) else 0
    return StateError(
        f"the state was taken in the middle of an epoch with {theirs or 'no'} worker processes, each of which has a "
        f"stream of its own, and this loader has {ours or 'none'}: where each of its streams would stand cannot be "
        "told; resume it with the same number of processes, or from the end of an epoch"
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


class ReplicasIterator(LoaderIterator):
    """Iterator over one epoch of a stream on worker processes; see :class:`~penstock.loader.iteration.LoaderIterator`.

    Parameters
    ----------
    progress : Replicas
        Updated as batches are delivered.
    """

    _progress: Replicas

    def __init__(
        self,
        loader: Owner,
        plan: Plan,
        backend: Backend,
        trace: Trace,
        progress: Replicas,
        limit: int,
        tally: Tally | None = None,
    ) -> None:
        self._failures = [0] * len(progress.shares)
        self._route = Route(len(progress.shares), limit, in_order=loader.in_order, first=progress.last_worker + 1)
        super().__init__(loader, plan, backend, trace, progress, limit, tally)

    def _has_room(self) -> bool:
        return self._route.has_room()

    def _submit(self, task: Task) -> None:
        task.worker = self._route.next()
        super()._submit(task)

    def _wait(self) -> Done:
        done = super()._wait()
        if done.worker is not None:
            self._route.done(done.worker)
        return done

    def _end(self, done: Done) -> None:
        assert done.worker is not None, "a process has a number"
        self._route.retire(done.worker)
        self._progress.mark(done).ended = True
        self._plan_ended = self._route.is_over()

    def _count(self, done: Done) -> None:
        if done.error is None:
            super()._count(done)
            self._failures[done.worker or 0] = 0
        elif done.worker is not None:
            self._progress.deliver(done)
            self._failures[done.worker] = 0 if done.rows else self._failures[done.worker] + 1
            # it dies at the same place again and again, or could not even begin: it will never say that it has ended
            if isinstance(done.error, WorkerError) or self._failures[done.worker] >= IN_A_ROW:
                self._route.retire(done.worker)
                self._plan_ended = self._route.is_over()
