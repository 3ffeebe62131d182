"""The status of a worker can be read whatever the worker does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from penstock.workers.processes.status import StopWork, WorkerStatus, collect_stacks


def forked(act: Callable[[], None]) -> int:
    """The number of a child that runs ``act`` and nothing else."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
    finally:
        os._exit(0)


def wait_for(condition: Callable[[], bool]) -> None:
    """Up to a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the child did not enable dumps of its stack"
        time.sleep(0.005)


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning"
)  # a child that calls nothing of torch's


def test_a_new_status_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch, no row, just begun; it cannot be asked."""
    now = [500.0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: round(now[0] * 1e9))
    status = WorkerStatus()
    now[0] += 3

    assert (status.batch, status.row, status.count, status.progress, status.dumps_stacks) == (-1, -1, 1, 0, False)
    assert status.busy_s == 3
    assert "still starting" in collect_stacks([(status, os.getpid())])[0]
    status.close()


def test_what_is_said_can_be_read_and_progress_never_falls() -> None:
    """Batch, row and count as they are; each step counts; what was asked for is forgotten behind the batch."""
    status = WorkerStatus()
    seen, progress = [], []
    status.begin_batch(7)
    for call in ((0,), (1,), (2, 30), (-1, 32)):
        status.watch(*call)
        seen.append((status.batch, status.row, status.count))
        progress.append(status.progress)
    status.first_row = 32
    status.watch(3)
    seen.append((status.batch, status.row, status.count))
    status.watch(0, 32)
    status.end_batch()

    assert seen == [(7, 0, 1), (7, 1, 1), (7, 2, 30), (7, -1, 32), (7, 35, 1)]
    assert progress == [2, 3, 4, 5]
    assert (status.batch, status.count) == (-1, 1)
    status.close()


def test_a_worker_that_is_asked_to_stop_does_before_its_next_sample() -> None:
    """By an exception that no `except Exception` of the user's catches."""
    status = WorkerStatus()
    status.request_stop()

    with pytest.raises(StopWork):
        status.watch(3)
    assert not issubclass(StopWork, Exception)
    status.close()


def test_a_worker_shows_its_stack_again_and_again() -> None:
    """Each time the present one, alone."""
    status = WorkerStatus()

    def stuck_in_a_sample() -> None:
        status.enable_stack_dumps()
        time.sleep(60)

    pid = forked(stuck_in_a_sample)
    wait_for(lambda: status.dumps_stacks)
    stacks = [collect_stacks([(status, pid)], 60)[0] for _ in range(3)]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    [gone] = collect_stacks([(status, pid)])

    assert all(stack.count("stuck_in_a_sample") == 1 for stack in stacks)
    assert gone == "(the process has exited)"
    status.close()


def test_a_stopped_worker_is_not_waited_for() -> None:
    """It cannot answer; the parent says so in good time."""
    status = WorkerStatus()

    def sleep() -> None:
        status.enable_stack_dumps()
        time.sleep(60)

    pid = forked(sleep)
    wait_for(lambda: status.dumps_stacks)
    os.kill(pid, signal.SIGSTOP)
    [said] = collect_stacks([(status, pid)], 0.2)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    assert "stopped" in said
    status.close()


def test_many_stopped_workers_share_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many do not answer, the patience is spent once: all are asked before any is waited for."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    statuses = [WorkerStatus() for _ in range(20)]
    for status in statuses:
        monkeypatch.setattr(type(status), "dumps_stacks", True)

    said = collect_stacks([(status, 1) for status in statuses])

    assert said == ["(no answer: the process is stopped)"] * 20
    assert now[0] < 0.6
    for status in statuses:
        status.close()


CRASH = """
import os, signal, threading, time
from penstock.workers.processes.status import WorkerStatus, collect_stacks

status = WorkerStatus()

def crash_here():
    status.enable_stack_dumps()
    while status.batch < 0:
        time.sleep(0.01)
    os.abort()

if not (pid := os.fork()):
    try:
        crash_here()
    finally:
        os._exit(0)
while not status.dumps_stacks:
    time.sleep(0.005)
assert "crash_here" in collect_stacks([(status, pid)], 60)[0]
status.begin_batch(1)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGABRT
print(status.stacks())
status.close()
status.close()
"""


def test_a_crash_leaves_its_stack() -> None:
    """Also behind one that was asked for before."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=120, check=True)

    asked, _, crashed = done.stdout.partition("Fatal Python error: Aborted")
    assert "crash_here" in asked
    assert "crash_here" in crashed
