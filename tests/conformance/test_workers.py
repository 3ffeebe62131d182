"""What every worker backend registered in penstock.workers promises."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.workers import BACKENDS, Backend, Done, Task


class Recorder:
    """A job that notes which rows ran, and fails where it is told to."""

    def __init__(self, rows: int = 10, fail: dict[int, BaseException] | None = None) -> None:
        self.rows, self.fail = rows, fail or {}
        self.trace = Trace()
        self.begun: list[int] = []
        self.started: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def opening(self, worker: int, last: Done | None = None, samples: int = 0) -> Any:
        """Nothing to say."""

    def open(self, opening: Any) -> Any:
        """Nothing to open."""

    def deliver(self, batch: Any) -> Any:
        """As it is."""
        return batch

    def move_in(self, memory: Any, trace: Any, watch: Any) -> None:
        """Nothing to bring."""

    def begin(self, task: Task) -> Any:
        """A build that collects rows."""
        self.begun.append(task.seq)
        return _Build(self, task)

    def start_worker(self, worker: int) -> None:
        """Note the worker."""
        self.started.append(worker)


class _Build:
    def __init__(self, job: Recorder, task: Task) -> None:
        self.job, self.seq, self.rows, self.state = job, task.seq, job.rows, f"state {task.seq}"
        self.ran: list[tuple[int, int]] = []

    def run(self, start: int, stop: int) -> None:
        self.job.gate.wait(30)
        for row in range(start, stop):
            if row in self.job.fail:
                raise self.job.fail[row]
        self.ran.append((start, stop))

    def finish(self) -> Any:
        return sorted(row for start, stop in self.ran for row in range(start, stop))


def task(seq: int) -> Task:
    """A task without meaning."""
    indices = np.arange(10, dtype=np.int64)
    return Task(seq, indices, SampleKeys(0, 0, indices))


@pytest.fixture(params=[(name, chunk) for name in BACKENDS for chunk in (None, 1, 3, 100)], ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """One of each kind, with several sizes of chunks."""
    name, chunk = request.param
    made = BACKENDS.get(name)(0 if name == "serial" else 3, chunk)
    yield made
    made.close()


def results(backend: Backend, count: int) -> list[Done]:
    """That many results, in order of their numbers."""
    found = [backend.result(30) for _ in range(count)]
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
    assert all(d.batch == list(range(10)) and d.error is None for d in done)
    assert [d.state for d in done] == [f"state {seq}" for seq in range(20)]
    assert job.begun == list(range(20))


def test_a_build_without_rows_is_finished(backend: Backend) -> None:
    """An empty batch is no reason to wait for ever."""
    backend.start(Recorder(rows=0))
    backend.submit(task(0))

    assert results(backend, 1)[0].batch == []


def test_the_lowest_failing_row_is_the_error(backend: Backend) -> None:
    """Of several errors in a build the first by row is reported, the very object; other tasks go on."""
    first, second = ValueError("first"), ValueError("second")
    backend.start(Recorder(rows=10, fail={4: first, 9: second}))
    for seq in range(5):
        backend.submit(task(seq))

    assert all(done.error is first for done in results(backend, 5))


def test_an_error_at_the_beginning_is_a_result(backend: Backend) -> None:
    """A job that cannot begin a task fails that task."""

    class Bad(Recorder):
        def begin(self, task: Task) -> Any:
            raise KeyError("no")

    backend.start(Bad())
    backend.submit(task(3))

    done = results(backend, 1)[0]

    assert (done.seq, type(done.error)) == (3, KeyError)


def test_a_second_job_takes_over(backend: Backend) -> None:
    """Between epochs the job is let go, and another may come: workers are not started again."""
    one, two = Recorder(rows=1), Recorder(rows=2)
    backend.start(one)
    backend.submit(task(0))
    results(backend, 1)
    backend.pause()

    backend.start(two)
    backend.submit(task(1))

    assert results(backend, 1)[0].batch == [0, 1]
    assert two.started == []


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
    import weakref

    class Job(Recorder):
        def begin(self, task: Task) -> Any:
            build = super().begin(task)
            build.finish = lambda: np.zeros(3)
            return build

    backend.start(Job())
    backend.submit(task(0))
    done = results(backend, 1)
    refs = [weakref.ref(d.batch) for d in done]
    del done
    deadline = time.monotonic() + 5
    while any(ref() is not None for ref in refs) and time.monotonic() < deadline:
        time.sleep(0.001)
        gc.collect(0)

    assert [ref() for ref in refs] == [None]


THREADED = pytest.mark.parametrize("name", [name for name in BACKENDS if name != "serial"])


@THREADED
def test_result_waits_no_longer_than_told(name: str) -> None:
    """With nothing ready, result(timeout) is None; stuck() says what each busy worker is doing."""
    backend, job = BACKENDS.get(name)(2, 5), Recorder(rows=10)
    job.gate.clear()
    backend.start(job)
    backend.submit(task(7))

    nothing, said = backend.result(0.05), backend.stuck()
    job.gate.set()
    done = backend.result(30)
    backend.close()

    assert nothing is None
    assert "batch 7" in said
    assert "worker 0" in said
    assert "worker 1" in said
    assert "gate.wait" in said
    assert done.batch == list(range(10))


@THREADED
def test_one_batch_is_built_by_all_workers(name: str) -> None:
    """Chunks of a single task run at the same time: three workers meet in one batch."""
    meeting = threading.Barrier(3)

    class Meet(Recorder):
        def begin(self, task: Task) -> Any:
            build = super().begin(task)
            build.run = lambda start, stop: meeting.wait(30)
            return build

    backend = BACKENDS.get(name)(3, 1)
    backend.start(Meet(rows=3))
    backend.submit(task(0))
    done = backend.result(30)
    backend.close()

    assert done.error is None


@THREADED
def test_a_forgotten_backend_ends_its_workers(name: str) -> None:
    """Dropping the last reference is enough."""
    backend = BACKENDS.get(name)(2, 1)
    backend.start(Recorder())
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-worker")]
    del backend
    gc.collect()
    for thread in threads:
        thread.join(5)

    assert len(threads) >= 2
    assert not any(thread.is_alive() for thread in threads)


@THREADED
def test_a_worker_that_fails_to_start_fails_one_task(name: str) -> None:
    """Its error stands for the first batch that it would have worked on; the worker goes on."""

    class Bad(Recorder):
        def start_worker(self, worker: int) -> None:
            raise LookupError("start")

    backend = BACKENDS.get(name)(1, None)
    backend.start(Bad())
    for seq in range(3):
        backend.submit(task(seq))
    done = results(backend, 3)
    backend.close()

    assert [type(d.error) for d in done] == [LookupError, type(None), type(None)]
    assert done[0].error is not None
    assert "worker=0" in done[0].error.__notes__[0]
