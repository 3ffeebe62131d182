"""A pool goes on: after an interrupt at any line, after tasks that cannot be sent, with slots that come back."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.workers import Task
from penstock.workers.jobs import SampleJob
from penstock.workers.processes import ProcessBackend


class Rows:
    """Samples large enough for a slot."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: Any) -> Any:
        return np.full(5000, index, np.float64)


@pytest.fixture
def backend() -> Iterator[ProcessBackend]:
    """Two workers that have begun."""
    made = ProcessBackend(2)
    made.start(SampleJob(Trace(), None, Rows(), np.stack, batched=True))
    made.wait_for_start()
    yield made
    made.close()


def submit(backend: ProcessBackend, seq: int, indices: Any = None) -> None:
    """One task of two samples."""
    drawn = np.array([seq, seq + 1], np.int64) if indices is None else indices
    backend.submit(Task(seq, drawn, SampleKeys(0, 0, drawn)))


PARENT_MODULES = tuple(
    f"processes/{name}.py"
    for name in (
        "backend",
        "running_process",
        "worker_process",
        "sockets",
        "channel",
        "batch_encoding",
        "memory",
        "messages",
    )
)


class At:
    """Interrupts the ``n``-th line that runs in this package's part of the parent, once."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: Any, event: str, _arg: Any) -> Any:  # noqa: D102  # what sys.settrace calls
        if not frame.f_code.co_filename.endswith(PARENT_MODULES):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def waited(backend: ProcessBackend, tracer: Any) -> None:
    """Wait once, traced, in a thread: an error of a trace function can leave its thread inside an ``except``."""

    def wait() -> None:
        sys.settrace(tracer)
        backend.wait(5)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(wait).result()


STEP = 24
"""Every 24th line in one test, others in the next."""


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] if first else []) for first in range(STEP)]
)
def test_an_interrupt_at_any_line_of_waiting_loses_nothing(backend: ProcessBackend, first: int) -> None:
    """Who catches Ctrl-C and goes on gets every batch, once, in the order of its worker: line after line."""
    seqs, interrupts = itertools.count(), 0
    for n in itertools.count(first + 1, STEP):
        mine = [next(seqs) for _ in range(4)]
        for seq in mine:
            submit(backend, seq)
        at = At(n)
        came: list[tuple[int, float]] = []
        while len(came) < 4:
            try:
                waited(backend, at)
            except KeyboardInterrupt:
                interrupts += 1
            backend.record_finished()
            came += [(done.seq, float(done.batch[0, 0])) for done in backend.done]
            backend.done.clear()

        assert sorted(came) == [(seq, float(seq)) for seq in mine]
        if at.left > 0:
            break
    assert interrupts > 10


def test_tasks_that_cannot_be_sent_cost_no_slots(backend: ProcessBackend) -> None:
    """Slots that came back meanwhile are told with the next task: memory does not grow by a sampler's oddities."""
    sizes = []
    for seq in range(0, 60, 2):
        submit(backend, seq)
        done = backend.result(60)
        assert done is not None
        assert done.error is None
        del done
        submit(backend, seq + 1, [lambda: 0])
        submit(backend, seq + 1 + (seq + 1) % 2, [lambda: 0])
        failed = [backend.result(60), backend.result(60)]
        assert all(done is not None and "cannot be sent" in str(done.error) for done in failed)
        connections: list[Any] = [worker.connection for worker in backend.workers]
        sizes.append(sum(len(connection._slots._mapped) for connection in connections))

    assert max(sizes) <= 3


def test_a_closed_pool_stays_closed(backend: ProcessBackend) -> None:
    """What is submitted to it is dropped: no worker is started again."""
    backend.close()
    submit(backend, 0)

    assert backend.result(0.1) is None
    assert not any(process.is_alive() for process in backend.processes)


def test_closing_that_is_interrupted_ends_the_workers_all_the_same(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while workers are waited for: the kernel kills them, as their lifelines close."""

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    processes = backend.processes
    monkeypatch.setattr("penstock.workers.processes.running_process.end_processes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.close()
    for process in processes:
        process.join(60)

    assert not any(process.is_alive() for process in processes)
