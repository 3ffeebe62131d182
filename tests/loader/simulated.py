"""Workers whose time a test holds: a loader's own jobs build the batches, and no second passes.

::

    user code: clock.sleep(0.5)   ──> the time of its worker, which builds a batch as soon as it gets the task
    iterator:  result(timeout_s)  ──> the time of the consumer: when a batch is ready, or the timeout later

An iterator reads no clock, so that these workers decide what it sees: what has begun and ended at its time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pytest

from penstock.sample import State
from penstock.workers import BACKENDS, Backend, Capabilities, Job, Task, TaskResult
from penstock.workers.base import chunk_rows, name_samples

__all__ = ["HANG_S", "SimulatedBackend", "SimulatedClock", "clock"]

HANG_S: Final = math.inf
"""Given to :meth:`SimulatedClock.sleep` by what never returns."""


class _NeverReturns(BaseException):
    """Raised in user code that hangs: what it would do next does not happen."""


class SimulatedClock:
    """The seconds of whoever runs: of the consumer, or of a worker while it builds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        """What user code calls for what takes time."""
        if seconds == HANG_S:
            raise _NeverReturns
        self.now_s += seconds


@dataclass
class _Call:
    since_s: float
    first: int  # row of the first sample that it asks for; -1: collation
    count: int


@dataclass
class _Built:
    """A batch that has its place in a worker's time."""

    worker: int
    task: Task
    calls: list[_Call] = field(default_factory=list)
    end_s: float = HANG_S
    done: TaskResult | None = None


class SimulatedBackend(Backend):
    """Executes tasks in simulated time; see :class:`~penstock.workers.base.Backend`. Its workers take turns."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    clock: ClassVar[SimulatedClock]

    def __init__(self, num_workers: int, chunk_size: int | None = None, **others: object) -> None:
        self._chunk_size = chunk_size
        self._free_s = [0.0] * num_workers  # by worker: when its last batch is built
        self._all: list[_Built] = []
        self._waiting: list[_Built] = []
        self._row = 0  # of a chunk that runs, the first
        self._job: Job | None = None
        self._state: State = None

    def start(self, job: Job) -> None:
        """See :class:`~penstock.workers.base.Backend`."""
        self._job, job.watch = job, self._watch
        self._state = job.start_epoch(job.worker_start(0))

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:
        """Nothing to wait for."""
        return [self._state]

    def submit(self, task: Task) -> None:
        """Build the batch, in the time of its worker."""
        clock, worker = self.clock, task.seq % len(self._free_s)
        built = _Built(worker, task)
        self._all.append(built)
        self._waiting.append(built)
        now_s, begin_s = clock.now_s, max(clock.now_s, self._free_s[worker])
        if begin_s == HANG_S:
            return
        clock.now_s = begin_s
        try:
            built.done = self._build(task)
            built.end_s = clock.now_s
        except _NeverReturns:
            pass
        finally:
            self._free_s[worker], clock.now_s = built.end_s, now_s

    def _build(self, task: Task) -> TaskResult:
        assert self._job is not None, "start() comes first"
        build = self._job.begin(task)
        chunk = max(build.rows, 1) if build.whole else chunk_rows(build.rows, 1, self._chunk_size, build.most_rows)
        try:
            for start in range(0, build.rows, chunk):
                self._row, stop = start, min(start + chunk, build.rows)
                self._watch(0, stop - start)
                build.run(start, stop)
            self._row = 0
            self._watch(-1, build.rows)
            batch = build.finish()
        except Exception as error:  # noqa: BLE001  # raised by the consumer when the batch is due
            error.__traceback__ = None  # whose frames hold this backend
            return TaskResult(build.seq, error=error, rows=build.rows, state=build.state, task=task)
        return TaskResult(build.seq, batch, rows=build.rows, state=build.state, task=task)

    def _watch(self, place: int, count: int = 1) -> None:
        first = -1 if place < 0 else self._row + place
        self._all[-1].calls.append(_Call(self.clock.now_s, first, max(count, 1)))

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """See :class:`~penstock.workers.base.Backend`; the time of the consumer goes on."""
        clock = self.clock
        until_s = HANG_S if timeout_s is None else clock.now_s + timeout_s
        first = min(self._waiting, key=lambda built: built.end_s, default=None)
        if first is None or first.end_s > until_s or first.done is None:
            assert until_s < HANG_S, "the consumer waits for ever"
            clock.now_s = until_s
            return None
        clock.now_s = max(clock.now_s, first.end_s)
        self._waiting.remove(first)
        return first.done

    def pause(self) -> None:
        """See :class:`~penstock.workers.base.Backend`."""
        self._job = None

    def _running(self) -> list[tuple[_Built, _Call]]:
        """What is built now, with the call that has begun last."""
        now_s = self.clock.now_s
        calls = [(built, [call for call in built.calls if call.since_s <= now_s]) for built in self._all]
        return [(built, begun[-1]) for built, begun in calls if begun and built.end_s > now_s]

    def progress(self) -> int:
        """Calls that have begun, and batches that are built."""
        now_s = self.clock.now_s
        begun = sum(call.since_s <= now_s for built in self._all for call in built.calls)
        return begun + sum(built.end_s <= now_s for built in self._all)

    def samples_per_call(self) -> int:
        """See :class:`~penstock.workers.base.Backend`."""
        return max((call.count for _, call in self._running()), default=1)

    def describe_workers(self) -> str:
        """See :class:`~penstock.workers.base.Backend`."""
        return "\n".join(self._describe_call(built, call) for built, call in self._running()) or "every worker is idle"

    def _describe_call(self, built: _Built, call: _Call) -> str:
        busy_s, task = self.clock.now_s - call.since_s, built.task
        what = f"collation of batch {task.seq}" if call.first < 0 else name_samples(task, call.first, call.count)
        return f"worker {built.worker} has been busy for {busy_s:g} s with {what}"

    def close(self) -> None:
        """Forget the tasks."""
        self._waiting.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    """Time, at 0, for loaders with ``workers="simulated"``, which there are in this test alone."""
    monkeypatch.setitem(BACKENDS._entries, "simulated", f"{__name__}:{SimulatedBackend.__name__}")
    monkeypatch.setattr(SimulatedBackend, "clock", SimulatedClock(), raising=False)
    return SimulatedBackend.clock
