"""Whether a process has ended is the system's to say, and ending one has a limit."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.workers.processes import termination
from penstock.workers.processes.termination import SIGKILL_EXIT, describe_exit, end_processes, has_exited, wait_for_exit

FORK = multiprocessing.get_context("fork")


def sleep_on() -> None:
    """For longer than any test."""
    time.sleep(60)


def close_everything() -> None:
    """As a program that becomes a daemon does, which then goes on."""
    os.closerange(3, 256)
    time.sleep(60)


def defy() -> None:
    """Does not care about being terminated."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts processes, and kills them in the end."""
    started = []

    def start(target: Callable[[], None]) -> Any:
        process = FORK.Process(target=target, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if not has_exited(process):
            process.kill()
            process.join()


def test_a_process_that_runs_has_not_ended_and_one_that_was_killed_has(start: Any) -> None:
    """And is no zombie then; what it died of is in torch's words."""
    process = start(sleep_on)
    before = has_exited(process)
    process.kill()
    left = wait_for_exit([process], 30)

    assert (before, left, has_exited(process)) == (False, [], True)
    assert describe_exit(process) == SIGKILL_EXIT == "is killed by signal: Killed. "
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_one_that_closed_its_descriptors_is_waited_for_with_a_limit(start: Any) -> None:
    """It looks as if it had ended; `join` would wait for it for ever."""
    process = start(close_everything)
    multiprocessing.connection.wait([process.sentinel], 30)

    assert wait_for_exit([process], 0.2) == [process]
    assert not has_exited(process)


def test_one_that_somebody_waited_for_has_ended(start: Any) -> None:
    """A handler of SIGCHLD does it, or the system, if nobody wants to know: its number may be another's by now.

    multiprocessing, which would signal that number when the program ends, lists it no more.
    """
    process = start(sleep_on)
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)

    assert has_exited(process)
    assert wait_for_exit([process], 30) == []
    assert "unknown code" in describe_exit(process)
    assert process not in multiprocessing.active_children()


@pytest.mark.parametrize("target", [sleep_on, defy, close_everything])
def test_all_are_ended(start: Any, target: Any) -> None:
    """Whatever they do, the defiant too; none is left as a zombie. A busy machine may take longer for it."""
    processes = [start(target) for _ in range(3)]

    assert wait_for_exit(end_processes(processes), 30) == []
    assert all(map(has_exited, processes))


class Immortal:
    """A process that does not exit; notes at which time it was told to."""

    pid, sentinel = -1, -1

    def __init__(self, now: list[float]) -> None:
        self.now = now
        self.told: dict[str, float] = {}

    def terminate(self) -> None:
        """Note it."""
        self.told["terminate"] = self.now[0]

    def kill(self) -> None:
        """Note it."""
        self.told["kill"] = self.now[0]


def test_all_together_have_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many do not exit, they are asked, terminated and killed together."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(multiprocessing.connection, "wait", lambda _, wait_s: now.__setitem__(0, now[0] + wait_s))
    monkeypatch.setattr(termination, "has_exited", lambda _: False)
    processes: list[Any] = [Immortal(now) for _ in range(20)]

    left = end_processes(processes)

    assert left == processes
    assert [sorted(process.told) for process in processes] == [["kill", "terminate"]] * 20
    assert all(process.told["terminate"] < process.told["kill"] < 1.5 for process in processes)
    assert now[0] < 2


def test_an_exit_is_told_with_its_code(start: Any) -> None:
    """Zero is told, too: a worker does not end by itself."""
    process = start(lambda: os._exit(0))
    wait_for_exit([process], 30)

    assert describe_exit(process) == "exited with code 0"
