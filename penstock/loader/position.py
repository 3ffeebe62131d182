"""How far an epoch has been delivered: counted by the iterator, read by the loader.

:mod:`penstock.loader.state` writes it down in our layout, :mod:`penstock.torch.loader.state` in torchdata's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.datasets.streams.division import DivisibleStream
from penstock.errors import StateError
from penstock.workers.base import NOTHING, TaskResult

if TYPE_CHECKING:
    from penstock.sample import DatasetLike, State

__all__ = ["Position", "WorkerPosition", "are_equal", "assign_workers", "join_ranks", "wrap_iterator_state"]


@dataclass(slots=True)
class WorkerPosition:
    """How far one worker process is; worker 0 stands for all workers that are no processes."""

    samples: int = 0  # samples that it has drawn for delivered batches
    state: State = None  # states of its dataset and iterator after these: ``dataset``, ``iterator``, ``ended``
    rng: bytes | None = None  # state of its global random generators, as :attr:`penstock.workers.TaskResult.rng`
    ended: bool = False  # whether its stream has ended


@dataclass(slots=True)
class Position:
    """How far an epoch has been delivered."""

    epoch: int = 0  # number of the epoch
    batches: int = 0  # delivered without a gap from the epoch's start
    samples: int = 0
    # batches delivered beyond a gap (``in_order=False``): number to the number of their samples
    ahead: dict[int, int] = field(default_factory=dict)
    sampler: State = None  # state of a sampler that is iterated, after the last batch counted
    finished: bool = False  # whether the epoch was delivered to its end
    # position in the whole job's order from which batches and samples are counted: not 0 in an epoch that another
    # number of ranks has begun
    origin: int = 0
    lost: int = 0  # samples that were left out of the epoch
    yielded: int = 0  # batches delivered, without errors
    processes: int = 0  # number of worker processes; 0 where workers are threads or the calling thread
    is_stream: bool = False  # whether the dataset is iterated
    last_worker: int | None = None  # worker process whose batch was delivered last
    workers: dict[int, WorkerPosition] = field(default_factory=dict)  # :class:`WorkerPosition` by worker number
    of_ranks: int = 1  # ranks whose workers these are, where their states were merged
    beginning: State = None  # what a framework's loader drew when the epoch began; the states of that loader keep it
    _states: dict[int, tuple[State, State]] = field(default_factory=dict)

    @property
    def is_replicated(self) -> bool:
        """Whether each worker process iterates the stream by itself, so that batches have no common order."""
        return self.is_stream and self.processes > 0

    def worker(self, number: int | None) -> WorkerPosition:
        """Return the position of one worker, made when it is first asked for."""
        return self.workers.setdefault(number or 0, WorkerPosition())

    def record(self, done: TaskResult) -> WorkerPosition:
        """Keep the states that a worker sent with a batch, whether or not the batch is delivered."""
        worker = self.worker(done.worker)
        if done.state is not None:
            worker.state = done.state
        if done.rng is not None:
            worker.rng = done.rng
        return worker

    def deliver(self, done: TaskResult) -> None:
        """Count one batch, or an error in its place."""
        self.yielded += done.error is None and done.batch is not NOTHING
        if done.worker is not None:
            self.last_worker = done.worker
        if self.processes:
            self.record(done).samples += done.rows
        if self.is_replicated:
            self.batches += 1
            self.samples += done.rows
            return
        self.ahead[done.seq] = done.rows
        self._states[done.seq] = (None if done.task is None else done.task.sampler_state, done.state)
        while self.batches in self.ahead:
            rows = self.ahead.pop(self.batches)
            self.sampler, state = self._states.pop(self.batches, (self.sampler, None))
            self.samples += rows
            self.batches += 1
            if not self.processes:
                here = self.worker(0)
                here.samples, here.state = here.samples + rows, here.state if state is None else state

    def list_workers(self) -> list[WorkerPosition]:
        """Return a position for each worker process, or one where there are none."""
        return [self.workers.get(number, WorkerPosition()) for number in range(max(1, self.processes))]

    def copy(self) -> Position:
        """An independent copy."""
        workers = {number: replace(worker) for number, worker in self.workers.items()}
        return replace(self, ahead=dict(self.ahead), workers=workers, _states=dict(self._states))


def assign_workers(position: Position, processes: int, *, is_stream: bool, dataset: DatasetLike) -> None:
    """Give the states of the workers that there were to the ``processes`` worker processes that there are now.

    Raises StateError if ``dataset`` is a stream that another number of processes has begun to iterate, and cannot be
    divided anew; or if the copies of a dataset with a state differ between the workers.
    """
    if is_stream and isinstance(dataset, DivisibleStream):
        if any(worker.state is not None for worker in position.workers.values()):
            _divide_rest(position, processes, dataset)
            return
        if not position.batches:  # it is divided when the epoch begins
            position.workers, position.processes, position.of_ranks, position.is_stream = {}, processes, 1, True
            return
    if position.of_ranks > 1:
        raise StateError(
            f"the state is that of {position.of_ranks} ranks, which {type(dataset).__name__} cannot divide anew: it "
            "must be an iterable dataset with the methods start_states and divide_states, as PartitionedDataset has"
        )
    old, new = position.processes, processes
    workers = position.list_workers()
    position.processes, position.is_stream = new, is_stream
    if old == new:
        return
    position.last_worker = None
    states = [worker.state for worker in workers if worker.state is not None]
    if max(1, old) == max(1, new):
        first = workers[0]
        position.workers = {0: WorkerPosition(first.samples, first.state, ended=first.ended)}
    elif is_stream and (states or position.batches):
        taken = f"with {old} worker processes, each with a stream of its own" if old else "of one stream"
        raise StateError(
            f"the state was taken {taken}, in the middle of an epoch, and this loader has {new or 'no'} worker "
            f"processes: the position of each of its streams is unknown; give num_workers={old}, or resume from the "
            "end of an epoch, or give the dataset the methods start_states and divide_states (PartitionedDataset has "
            "them), by which the rest is divided anew"
        )
    elif any(not are_equal(state, states[0]) for state in states):
        raise StateError(
            f"the state was taken with {old} worker processes, whose datasets have different states, and this loader "
            f"has {new or 'none'}; give num_workers={old}"
        )
    else:
        numbers = range(max(1, new)) if states else ()
        position.workers = {number: WorkerPosition(state=states[0]) for number in numbers}


def wrap_iterator_state(state: State) -> State:
    """The state of a worker, of that of its iterator."""
    return {"dataset": None, "iterator": state, "ended": False}


def _divide_rest(position: Position, processes: int, stream: DivisibleStream) -> None:
    """Divide what the workers of a stream have left among those that there are now, unless they are the same."""
    workers = position.list_workers()
    if any(worker.state is None or worker.state["iterator"] is None for worker in workers):
        raise StateError(
            "the state has no state of an iterator for some worker: it was taken of another dataset, or some rank had "
            "not begun its epoch; take states at a step that all ranks make"
        )
    states = [worker.state["iterator"] for worker in workers]
    divided = stream.divide_states(states, max(1, processes))
    position.processes, position.is_stream, position.of_ranks = processes, True, 1
    if divided == states:
        return
    if position.ahead:
        raise StateError(
            "the state has batches beyond a gap (in_order=False), which are unknown to another number of workers or "
            "ranks; resume with as many, or from the next epoch"
        )
    samples = max(worker.samples for worker in workers)  # no random key of a batch comes again
    position.last_worker = None
    position.workers = {
        number: WorkerPosition(samples, wrap_iterator_state(state)) for number, state in enumerate(divided)
    }


def join_ranks(positions: Sequence[Position]) -> Position:
    """Return the position of all ranks, given that of each: with the workers of all of them.

    Raises StateError if they are of several epochs, or there is none.
    """
    epochs = sorted({position.epoch for position in positions})
    if len(epochs) != 1:
        raise StateError(
            f"merged states must be of one epoch, got epochs {epochs}: some rank had come to the end of its epoch; "
            "take states at a step that all ranks make"
        )
    workers = [worker for position in positions for worker in position.list_workers()]
    first, most = positions[0], max(positions, key=lambda position: position.batches)
    return Position(
        first.epoch, most.batches, most.samples, {k: v for each in positions for k, v in each.ahead.items()},
        first.sampler, all(position.finished for position in positions), lost=most.lost, yielded=most.yielded,
        processes=len(workers), is_stream=first.is_stream, workers=dict(enumerate(workers)), of_ranks=len(positions),
    )  # fmt: skip


def are_equal(a: State, b: State) -> bool:
    """Return whether two states are equal; False where that cannot be told."""
    try:
        return bool(a == b)
    except (ValueError, RuntimeError):  # arrays inside have no single truth value
        return False
