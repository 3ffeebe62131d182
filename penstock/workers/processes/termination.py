"""How worker processes are waited for and ended, within about two seconds, and how they exited.

multiprocessing's ``join`` takes a process whose sentinel is closed for one that has exited, and waits without a limit
for one that only closed its descriptors. It takes a process for alive that something else has waited for (a handler of
SIGCHLD, or ``SIG_IGN``). The functions here ask the system.
"""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import time
from collections.abc import Iterable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Final

__all__ = ["SIGKILL_EXIT", "describe_exit", "end_processes", "has_exited", "wait_for_exit"]

_REQUESTED_S: Final = 0.8
_TERMINATED_S: Final = 0.4
_KILLED_S: Final = 0.6
"""Longest waits for processes that were asked to exit, terminated, killed."""
_POLL_S: Final = 0.02
"""Interval of looking at a process whose sentinel stays open: a process that it started may hold it."""
_PAUSE_S: Final = 0.0005


def has_exited(process: BaseProcess) -> bool:
    """Return whether a process has exited; it is no zombie then."""
    if not process.is_alive():
        return True
    if getattr(process._popen, "method", None) == "forkserver" or not hasattr(os, "waitid"):  # type: ignore[attr-defined]  # noqa: SLF001  # whose child it is
        return False
    assert process.pid is not None, "it was started"
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # something else has waited for it: the pid may belong to another process by now
        multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]  # noqa: SLF001  # which it signals at exit
        return True
    return False


def wait_for_exit(processes: Iterable[BaseProcess], timeout_s: float) -> list[BaseProcess]:
    """Wait until all processes have exited, ``timeout_s`` at most; returns those that have not."""
    deadline = time.monotonic() + timeout_s
    while left := [process for process in processes if not has_exited(process)]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        if connection.wait([process.sentinel for process in left], min(left_s, _POLL_S)):
            time.sleep(_PAUSE_S)  # it is exiting, or has closed its descriptors
        processes = left
    return left


def end_processes(processes: Iterable[BaseProcess]) -> list[BaseProcess]:
    """Wait for processes that were asked to exit, then terminate, then kill the rest; returns those still alive."""
    left = wait_for_exit(processes, _REQUESTED_S)
    for process in left:
        process.terminate()
    left = wait_for_exit(left, _TERMINATED_S)
    for process in left:
        process.kill()
    return wait_for_exit(left, _KILLED_S)


def describe_exit(process: BaseProcess) -> str:
    """Return how a process exited, as a predicate: "exited with code 1"."""
    code = process.exitcode
    if code is None:
        return "exited with an unknown code: something else in this program waited for it"
    if code >= 0:
        return f"exited with code {code}"
    return _describe_signal(-code)


def _describe_signal(number: int) -> str:
    return f"is killed by signal: {signal.strsignal(number) or number}. "


SIGKILL_EXIT: Final = _describe_signal(signal.SIGKILL)
""":func:`describe_exit` of a process that was killed from outside, or by a system without memory."""
