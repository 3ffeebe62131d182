"""One epoch: what it is made of, and how it is started on a backend."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.datasets.streams.division import DivisibleStream
from penstock.errors import StateError
from penstock.loader.faults import ErrorBudget
from penstock.loader.position import Position, WorkerPosition, wrap_iterator_state
from penstock.sample import State, StateDict
from penstock.workers.jobs import WorkerStart

if TYPE_CHECKING:
    from penstock.loader.plan import TaskPlan
    from penstock.loader.recipe import Recipe, Settings
    from penstock.loader.sampler_cursor import SamplerCursor
    from penstock.trace import Trace
    from penstock.workers.base import Backend, Task, TaskResult

__all__ = ["Epoch", "PreparedEpoch"]

_NO_STATE = {"dataset": None, "iterator": None}


@dataclass(slots=True)
class PreparedEpoch:
    """What has to be known before an epoch's workers are made."""

    position: Position  # where the epoch begins
    seed: int  # of the samples' keys
    base_seed: int = 0  # of the workers' random generators
    cursor: SamplerCursor | None = None  # the open sampler, where it is iterated
    has_states: bool = True  # whether workers begin with the states that ``position`` has of them
    # whether these states are of this epoch; else only what the dataset itself remembers is taken from them
    resumed: bool = True
    replay: int = 0  # batches to build again and drop before the first that is delivered

    def worker_starts(self) -> dict[int, WorkerStart]:
        """Return how each worker begins."""
        position = self.position
        numbers = range(max(1, position.processes))
        if not self.has_states:
            return {number: WorkerStart(position.epoch, number) for number in numbers}
        workers = {number: position.workers.get(number, WorkerPosition()) for number in numbers}
        return {
            number: WorkerStart(position.epoch, number, worker.samples, _start_state(worker), self.resumed, worker.rng)
            for number, worker in workers.items()
        }

    def start(self, settings: Settings, recipe: Recipe, plan: TaskPlan, backend: Backend) -> Epoch:
        """Start the job on ``backend``, whose workers are new or idle.

        Raises
        ------
        Exception
            What ``iter(dataset)`` raised in this process, or what prevents that workers are started.
        """
        position, worker_starts = self.position, self.worker_starts()
        if not self.resumed:
            for worker in position.workers.values():
                worker.state = None
        is_divisible = recipe.is_stream and isinstance(recipe.dataset, DivisibleStream)
        if is_divisible:
            self._divide_stream(recipe.dataset, worker_starts)
        slow = None
        if settings.view or settings.counters.publisher is not None:
            from penstock.loader.live.publishing import publish  # not needed otherwise

            slow = publish(settings, recipe, position.epoch)
        trace = settings.counters.open()
        try:
            job = recipe.make_job(trace, self.seed, worker_starts)
            job.slow = slow
            if settings.tuner is not None:
                backend.resize(settings.tuner.setting.workers)
            backend.start(job)
        except BaseException:
            settings.counters.retire(trace)
            raise
        if recipe.is_stream:
            position.sampler = None
        elif position.sampler is None and self.cursor is not None:
            position.sampler = self.cursor.state()
        rotation = None
        if recipe.workers.processes:
            last = -1 if position.last_worker is None else position.last_worker
            first = last + 1 if position.is_replicated else position.batches
            rotation = WorkerRotation(recipe.workers.processes, recipe.limit, in_order=settings.in_order, first=first)
            if settings.tuner is not None:
                rotation.resize(settings.tuner.setting.workers, settings.tuner.setting.limit)
        # Batches that came out of order cannot be built again in that order, nor can those of a stream that is divided
        # anew: then each has a snapshot.
        every = settings.snapshot_every if settings.in_order and not is_divisible else 1
        since: list[Task] | None = [] if settings.persistent else None
        budget = _make_budget(settings, position) if recipe.rules.tolerant else None
        return Epoch(recipe, self, plan, trace, rotation, every, budget, since)

    def _divide_stream(self, stream: DivisibleStream, worker_starts: dict[int, WorkerStart]) -> None:
        """Give each worker its part of the epoch, unless the position has states of it."""
        position = self.position
        if self.resumed and self.has_states and any(each.state is not None for each in position.workers.values()):
            return
        states = stream.start_states(position.epoch, len(worker_starts))
        if len(states) != len(worker_starts):
            raise StateError(
                f"start_states of {type(stream).__name__} must return a state for each of {len(worker_starts)} "
                f"workers, got {len(states)}"
            )
        for number, given in enumerate(states):
            state = position.worker(number).state = wrap_iterator_state(given)
            worker_starts[number] = replace(worker_starts[number], state=state, resumed=True)


@dataclass(slots=True)
class Epoch:
    """What one epoch is made of."""

    recipe: Recipe  # what is done, and by whom
    prepared: PreparedEpoch  # how it began; its position counts on
    plan: TaskPlan  # from the first batch that is to be delivered
    trace: Trace  # open in the counters
    rotation: WorkerRotation | None = None  # where workers are processes
    every: int | None = 1  # batches between snapshots, where workers are processes
    budget: ErrorBudget | None = None  # counts the samples that are left out, where some may be
    # where workers may be taken away: the tasks of what was delivered since the last snapshot
    since: list[Task] | None = None
    order: StateDict | None = None  # what a state says of the order; computed by the first
    position: Position = field(init=False)
    _snapshot: Position | None = None

    def __post_init__(self) -> None:
        self.position = self.prepared.position
        if self.rotation is not None and self.every != 1:
            self._snapshot = self.position.copy()

    def start_budget(self, settings: Settings) -> ErrorBudget:
        """Count what is left out from here on, where nothing was to be: images that are broken."""
        self.budget = _make_budget(settings, self.position)
        return self.budget

    @property
    def snapshot(self) -> Position:
        """The position for which the workers' states are known; the epoch's own where they come with each batch."""
        return self.position if self._snapshot is None else self._snapshot

    def restart(self, backend: Backend) -> None:
        """Start another backend at the snapshot, for the rest of this epoch; its plan goes on, and nothing is drawn."""
        prepared = PreparedEpoch(self.snapshot, self.prepared.seed, self.prepared.base_seed)
        backend.start(self.recipe.make_job(self.trace, prepared.seed, prepared.worker_starts()))

    def count(self, done: TaskResult) -> None:
        """Count a batch, or an error, that is delivered."""
        self.position.deliver(done)
        if self._snapshot is None:
            return
        if self.since is not None and done.task is not None:
            self.since.append(done.task)
        if self.every and self.position.batches % self.every == 0:
            self._snapshot, self.since = self.position.copy(), None if self.since is None else []

    def record_first_states(self, backend: Backend, timeout_s: float | None, *, missing_only: bool = False) -> None:
        """Wait for what workers returned when they began, and keep it; or only what is not known yet."""
        for position in (self.position, self._snapshot):
            if position is None:
                continue
            workers = [position.worker(number) for number in range(max(1, position.processes))]
            if missing_only and all(worker.state is not None for worker in workers):
                continue
            for worker, state in zip(workers, backend.wait_for_start(timeout_s), strict=False):
                if state is not None and not (missing_only and worker.state is not None):
                    worker.state = state

    def needs_snapshot(self, task: Task) -> bool:
        """Return whether a snapshot may need what this task's worker returns with it: torchdata's rule."""
        if not self.every:
            return False
        workers = self.recipe.workers.num_workers
        if self.position.is_replicated:  # which batch this will be is known only when it comes
            return self.position.batches % self.every + 1 + self.recipe.limit + workers >= self.every
        return task.seq % self.every + workers >= self.every


def _start_state(worker: WorkerPosition) -> State:
    return {**_NO_STATE, **(worker.state or {}), "ended": True} if worker.ended else worker.state


def _make_budget(settings: Settings, position: Position) -> ErrorBudget:
    """Return what counts the samples that are left out."""
    before = {"drawn": position.samples, "lost": position.lost}
    expected = settings.order.expected_samples()
    return ErrorBudget(settings.counters.left_out_log, position.epoch, expected, resumed=position.batches > 0, **before)


class WorkerRotation:
    """Chooses a worker process for each task, as torch does.

    In order: one worker after the other, without those whose stream has ended. As they come: likewise, but without
    those that have an even part of what may be under way, so that a stuck worker gets no further task.
    """

    def __init__(self, num_workers: int, limit: int, *, in_order: bool, first: int = 0) -> None:
        self._limit, self._in_order, self._next, self._active = limit, in_order, first % num_workers, num_workers
        self._is_live = [True] * num_workers
        self._tasks = [0] * num_workers

    def resize(self, num_workers: int, limit: int) -> None:
        """Give tasks only to workers below a number, and as many as ``limit`` to all of them."""
        self._limit, self._active = limit, num_workers

    def has_room(self) -> bool:
        """Return whether some worker may get a further task."""
        return any(map(self._takes_more, range(len(self._is_live))))

    def is_over(self) -> bool:
        """Return whether the stream of every worker has ended."""
        return not any(self._is_live)

    def choose(self) -> int:
        """Return the worker for the next task; call :meth:`has_room` first."""
        while not self._takes_more(self._next):
            self._next = (self._next + 1) % len(self._is_live)
        worker = self._next
        self._tasks[worker] += 1
        self._next = (worker + 1) % len(self._is_live)
        return worker

    def finish(self, worker: int) -> None:
        """Count a task of ``worker`` as done."""
        self._tasks[worker] -= 1

    def retire(self, worker: int) -> None:
        """Give ``worker`` no further task: its stream has ended."""
        self._is_live[worker] = False

    def _takes_more(self, worker: int) -> bool:
        part = self._limit // max(1, sum(self._is_live[: self._active]))
        return self._is_live[worker] and worker < self._active and (self._in_order or self._tasks[worker] < part)
