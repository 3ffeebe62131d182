"""What every worker backend registered in penstock.workers promises.

A job may be worked on by a copy of itself in another process: what it saw is looked at through the batches it builds,
and it is held up by a gate that processes share, which is a file.
"""

from __future__ import annotations

import gc
import os
import re
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.sample import SampleKeys, Watch
from penstock.trace import Trace
from penstock.workers import BACKENDS, Backend, BatchBuild, Job, Task, TaskResult, WorkerStart
from tests.ray_cluster import send_by_value, use_local_ray


@dataclass
class Gate:
    """A gate that any process of this machine can wait at, or a place where several meet."""

    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir(), f"penstock-gate-{uuid.uuid4().hex}"))

    def set(self) -> None:
        """Open it."""
        (self.folder / "closed").unlink(missing_ok=True)

    def clear(self) -> None:
        """Close it."""
        self.folder.mkdir()
        (self.folder / "closed").touch()

    def wait(self, patience_s: float) -> None:
        """Wait until it is open."""
        _wait_for(lambda: not (self.folder / "closed").exists(), patience_s)

    def meet(self, count: int, patience_s: float) -> None:
        """Wait until ``count`` threads or processes are here."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{os.getpid()} {threading.get_ident()}").touch()
        _wait_for(lambda: len(list(self.folder.iterdir())) >= count, patience_s)


@dataclass
class Seen:
    """A batch: the rows that ran, and what the job that built it had seen."""

    rows: list[int]
    begun: list[int]
    started: list[int]
    pid: int


class Recorder(Job):
    """A job that notes which rows ran, and fails where it is told to."""

    def __init__(self, rows: int = 10, fail: dict[int, BaseException] | None = None) -> None:
        self.rows, self.fail = rows, fail or {}
        self.trace = Trace()
        self.watch: Watch | None = None
        self.begun: list[int] = []
        self.started: list[int] = []
        self.gate = Gate()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "trace": None, "watch": None}  # as jobs are sent

    def worker_start(self, worker: int, last: TaskResult | None = None, samples: int = 0) -> WorkerStart:
        """Nothing to say."""
        return WorkerStart(worker=worker)

    def start_epoch(self, start: WorkerStart) -> Any:
        """Nothing to open."""

    def deliver(self, batch: Any) -> Any:
        """As it is."""
        return batch

    def attach(self, memory: Any, trace: Any, watch: Any) -> None:
        """Nothing to bring."""
        self.trace, self.watch = trace, watch

    def begin(self, task: Task) -> Any:
        """A build that collects rows."""
        self.begun.append(task.seq)
        return _Build(self, task)

    def start_worker(self, worker: int) -> None:
        """Note the worker."""
        self.started.append(worker)


class _Build(BatchBuild):
    def __init__(self, job: Recorder, task: Task) -> None:
        self.job, self.seq, self.rows, self.state = job, task.seq, job.rows, f"state {task.seq}"
        self.ran: list[tuple[int, int]] = []

    def run(self, start: int, stop: int) -> None:
        self.job.gate.wait(60)
        for row in range(start, stop):
            if row in self.job.fail:
                raise self.job.fail[row]
        self.ran.append((start, stop))

    def finish(self) -> Any:
        rows = sorted(row for start, stop in self.ran for row in range(start, stop))
        return Seen(rows, list(self.job.begun), sorted(self.job.started), os.getpid())


def shares_memory(backend: Backend) -> bool:
    """Whether the job that works is the one that was given, not a copy."""
    return not backend.capabilities.isolated


def workers_of(backend: Any) -> list[Any]:
    """Threads or processes: they can be joined, and say whether they are alive."""
    if not shares_memory(backend):
        return list(backend.processes)
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-worker")]


def task(seq: int) -> Task:
    """A task without meaning."""
    indices = np.arange(10, dtype=np.int64)
    return Task(seq, indices, SampleKeys(0, 0, indices))


ISOLATED = ("processes", "ray")
"""They ignore the size of chunks."""

NAMES = [pytest.param(name, marks=pytest.mark.cluster if name == "ray" else ()) for name in BACKENDS]


@pytest.fixture
def ray() -> Any:
    """Ray, which gets what this module defines by value."""
    started = use_local_ray()
    send_by_value(__name__)
    return started


@pytest.fixture(
    params=[
        pytest.param((name.values[0], chunk), marks=name.marks)
        for name in NAMES
        for chunk in ((None,) if name.values[0] in ISOLATED else (None, 1, 3, 100))
    ],
    ids=str,
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """One of each kind, with several sizes of chunks."""
    name, chunk = request.param
    if name == "ray":
        request.getfixturevalue("ray")
    made = BACKENDS.get(name)(0 if name == "serial" else 2 if name == "ray" else 3, chunk)
    yield made
    made.close()


def results(backend: Backend, count: int) -> list[TaskResult]:
    """That many results, in order of their numbers."""
    found = [backend.result(120) for _ in range(count)]
    assert None not in found
    return sorted((done for done in found if done is not None), key=lambda done: done.seq)


def test_every_row_of_every_task_runs_once(backend: Backend) -> None:
    """Chunks cover a build's rows exactly, and it is finished after the last."""
    job = Recorder(rows=10)
    backend.start(job)
    for seq in range(20):
        backend.submit(task(seq))

    done = results(backend, 20)

    assert [d.seq for d in done] == list(range(20))
    assert all(d.batch.rows == list(range(10)) and d.error is None for d in done)
    assert [d.state for d in done] == [f"state {seq}" for seq in range(20)]


def test_tasks_are_begun_in_order(backend: Backend) -> None:
    """By each copy of the job: by the job itself, where workers share it, from the first task to the last."""
    job = Recorder(rows=10)
    backend.start(job)
    for seq in range(20):
        backend.submit(task(seq))

    done = results(backend, 20)

    assert all(d.batch.begun == sorted(d.batch.begun) and d.seq in d.batch.begun for d in done)
    assert job.begun == (list(range(20)) if shares_memory(backend) else [])


def test_a_result_brings_its_task_back(backend: Backend) -> None:
    """The very object that was submitted, with what the loader carries in it."""
    tasks = [task(seq) for seq in range(5)]
    backend.start(Recorder())
    for given in tasks:
        backend.submit(given)

    assert [id(d.task) for d in results(backend, 5)] == [id(given) for given in tasks]


def test_a_build_without_rows_is_finished(backend: Backend) -> None:
    """An empty batch is no reason to wait for ever."""
    backend.start(Recorder(rows=0))
    backend.submit(task(0))

    assert results(backend, 1)[0].batch.rows == []


def test_the_lowest_failing_row_is_the_error(backend: Backend) -> None:
    """Of several errors in a build the first by row is reported; other tasks go on."""
    backend.start(Recorder(rows=10, fail={4: ValueError("first"), 9: ValueError("second")}))
    for seq in range(5):
        backend.submit(task(seq))

    done = results(backend, 5)

    assert all(type(d.error) is ValueError for d in done)
    assert all("first" in str(d.error) and "second" not in str(d.error) for d in done)


def test_an_error_is_the_object_that_was_raised(backend: Backend) -> None:
    """Where memory is shared; across processes it is one like it, with the worker's traceback."""
    error = ValueError("this one")
    backend.start(Recorder(rows=10, fail={4: error}))
    backend.submit(task(0))

    found = results(backend, 1)[0].error

    assert found is error or (not shares_memory(backend) and "in run" in str(found))


def test_an_error_at_the_beginning_is_a_result(backend: Backend) -> None:
    """A job that cannot begin a task fails that task."""

    class Bad(Recorder):
        def begin(self, task: Task) -> Any:
            raise KeyError("no")

    backend.start(Bad())
    backend.submit(task(3))

    done = results(backend, 1)[0]

    assert (done.seq, type(done.error)) == (3, KeyError)


def test_another_epoch_finds_the_workers_there(backend: Backend) -> None:
    """Between epochs the job is let go; workers are not started again."""
    job = Recorder(rows=1)
    backend.start(job)
    backend.submit(task(0))
    first = results(backend, 1)[0].batch
    backend.pause()

    backend.start(job)
    backend.submit(task(0))
    second = results(backend, 1)[0].batch

    assert second.pid == first.pid
    assert second.begun == [0, 0]
    assert second.started == sorted(set(second.started))


def test_a_second_job_takes_over(backend: Backend) -> None:
    """Between epochs another job may come; a process goes on with the copy that it has."""
    one, two = Recorder(rows=1), Recorder(rows=2)
    backend.start(one)
    backend.submit(task(0))
    results(backend, 1)
    backend.pause()

    backend.start(two)
    backend.submit(task(1))

    assert results(backend, 1)[0].batch.rows == ([0, 1] if shares_memory(backend) else [0])
    assert two.started == []


def test_a_paused_backend_lets_the_job_go(backend: Backend) -> None:
    """Idle workers must not keep the loader that they belong to."""
    job = Recorder()
    backend.start(job)
    backend.submit(task(0))
    results(backend, 1)

    backend.pause()
    ref = weakref.ref(job)
    del job
    gc.collect()

    assert ref() is None


def test_close_drops_what_is_queued_and_is_idempotent(backend: Backend) -> None:
    """After close() nothing comes any more, and nothing waits."""
    backend.start(Recorder())
    for seq in range(50):
        backend.submit(task(seq))

    backend.close()
    backend.close()

    assert backend.result(0.01) is None


def test_closing_what_never_started_is_nothing(backend: Backend) -> None:
    """No threads, no trouble."""
    backend.close()

    assert backend.progress() == 0


def test_an_idle_backend_keeps_no_batch_alive(backend: Backend) -> None:
    """What was delivered belongs to the receiver alone: its memory is free when it lets go."""

    class Large(Recorder):
        def begin(self, task: Task) -> Any:
            build = super().begin(task)
            build.finish = lambda: np.zeros(10 ** (task.seq + 1))
            return build

    backend.start(Large())
    for seq in range(4):
        backend.submit(task(seq))
    done = results(backend, 4)
    refs = [weakref.ref(d.batch) for d in done]
    del done
    deadline = time.monotonic() + 60
    while any(ref() is not None for ref in refs) and time.monotonic() < deadline:
        time.sleep(0.001)
        gc.collect(0)

    assert all(ref() is None for ref in refs)


@pytest.fixture(params=[name for name in NAMES if name.values != ("serial",)])
def name(request: pytest.FixtureRequest) -> str:
    """The name of each kind that has workers."""
    if request.param == "ray":
        request.getfixturevalue("ray")
    return str(request.param)


SPLITTING = pytest.mark.parametrize("name", ["threads"])  # a process gets whole batches: rows of one lie in one slot


def test_result_waits_no_longer_than_told(name: str) -> None:
    """With nothing ready, result(timeout) is None; stuck() says what each busy worker is doing."""
    backend, job = BACKENDS.get(name)(2, 5), Recorder(rows=10)
    job.gate.clear()
    backend.start(job)
    for seq in (6, 7):
        backend.submit(task(seq))
    _wait_for(lambda: backend.describe_workers().count("batch") >= 2)  # both have begun

    nothing, said = backend.result(0.05), backend.describe_workers()
    job.gate.set()
    done = results(backend, 2)
    backend.close()

    assert nothing is None
    assert "batch 6" in said
    assert "worker 0" in said
    assert "worker 1" in said
    assert "in run" in said
    assert all(d.batch.rows == list(range(10)) for d in done)


def test_a_call_says_how_many_samples_it_asks_for(name: str) -> None:
    """A chunk counts as one call for all of its rows, as long as the job says no more; an idle worker asks for one."""
    backend, job = BACKENDS.get(name)(1, 5), Recorder(rows=10)
    job.gate.clear()
    backend.start(job)
    before = backend.samples_per_call()
    backend.submit(task(0))
    _wait_for(lambda: backend.describe_workers().count("batch") >= 1)
    during, said = backend.samples_per_call(), backend.describe_workers()
    job.gate.set()
    results(backend, 1)
    after = backend.samples_per_call()
    backend.close()

    rows = 5 if name in SPLITTING.args[1] else 10
    assert (before, during, after) == (1, rows, 1)
    assert f"samples 0..{rows - 1} of batch 0 (indices {', '.join(map(str, range(rows)))})" in said


def test_progress_tells_slow_from_stuck(name: str) -> None:
    """It grows while a worker gets on, and stands still while none does."""
    backend, job = BACKENDS.get(name)(1, None), Recorder(rows=1)
    backend.start(job)
    backend.submit(task(0))
    results(backend, 1)
    before = backend.progress()
    backend.submit(task(1))
    results(backend, 1)
    after = backend.progress()
    job.gate.clear()
    backend.submit(task(2))
    backend.result(0.3)
    held = backend.progress()
    backend.result(0.2)
    still = backend.progress()
    job.gate.set()
    backend.close()

    assert before < after
    assert held == still


@SPLITTING
def test_one_batch_is_built_by_all_workers(name: str) -> None:
    """Chunks of a single task run at the same time: three workers meet in one batch."""
    meeting = threading.Barrier(3)

    class Meet(Recorder):
        def begin(self, task: Task) -> Any:
            build = super().begin(task)
            build.run = lambda start, stop: meeting.wait(60)
            return build

    backend = BACKENDS.get(name)(3, 1)
    backend.start(Meet(rows=3))
    backend.submit(task(0))
    done = backend.result(60)
    backend.close()

    assert done.error is None


def test_batches_are_built_at_the_same_time(name: str) -> None:
    """Two workers meet in two batches."""
    meeting = Gate()

    class Meet(Recorder):
        def begin(self, task: Task) -> Any:
            build = super().begin(task)
            build.run = lambda start, stop: meeting.meet(2, 60)
            return build

    backend = BACKENDS.get(name)(2, None)
    backend.start(Meet(rows=1))
    for seq in range(2):
        backend.submit(task(seq))
    done = results(backend, 2)
    backend.close()

    assert [d.error for d in done] == [None, None]


def test_a_forgotten_backend_ends_its_workers(name: str) -> None:
    """Dropping the last reference is enough."""
    backend = BACKENDS.get(name)(2, 1)
    backend.start(Recorder())
    workers = workers_of(backend)
    del backend
    gc.collect()
    for worker in workers:
        worker.join(60)

    assert len(workers) >= 2
    assert not any(worker.is_alive() for worker in workers)


def test_close_leaves_no_worker(name: str) -> None:
    """Not even one that is in the middle of a batch, if the batch ends."""
    backend, job = BACKENDS.get(name)(2, None), Recorder()
    backend.start(job)
    for seq in range(10):
        backend.submit(task(seq))
    workers = workers_of(backend)

    backend.close()

    assert not any(worker.is_alive() for worker in workers)


def test_a_worker_that_fails_to_start_fails_one_task(name: str) -> None:
    """Its error stands for the first batch that it would have worked on; nothing waits for ever for the others.

    A thread goes on; a process, which has opened nothing, says the same again.
    """

    class Bad(Recorder):
        def start_worker(self, worker: int) -> None:
            raise LookupError("start")

    backend = BACKENDS.get(name)(1, None)
    backend.start(Bad())
    for seq in range(3):
        backend.submit(task(seq))
    done = results(backend, 3)
    backend.close()

    assert [type(d.error) for d in done] == [LookupError, *[type(None) if name == "threads" else LookupError] * 2]
    assert done[0].error is not None
    assert re.search("worker(=| process )0", "".join([str(done[0].error), *getattr(done[0].error, "__notes__", [])]))


def _wait_for(condition: Callable[[], object], patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)
