"""The end of a worker process: whether it has come, what it was, and how it is brought about in two seconds.

multiprocessing's own `join` trusts that a process whose sentinel is closed is gone, and waits without a limit for one
that only closed its descriptors; and it takes one that somebody else has waited for (a handler of SIGCHLD, or none:
``SIG_IGN``) for alive. Here the system is asked.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from multiprocessing import connection
from typing import Any, Final

__all__ = ["KILLED", "await_end", "end_all", "fate", "has_ended"]

_POLITE_S: Final = 0.8
_TERMINATED_S: Final = 0.4
_KILLED_S: Final = 0.6
"""What is waited for processes that were asked, terminated, killed."""
_LOOK_S: Final = 0.02
"""How often a process is looked at whose sentinel says nothing: one that it started may hold it."""
_PAUSE_S: Final = 0.0005


def has_ended(process: Any) -> bool:
    """Whether a process has ended; it is no zombie then."""
    if not process.is_alive():
        return True
    if getattr(process._popen, "method", None) == "forkserver" or not hasattr(os, "waitid"):  # noqa: SLF001  # whose child it is
        return False
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # somebody has waited for it: its number may be another's by now
        return True
    return False


def await_end(processes: Iterable[Any], patience_s: float) -> list[Any]:
    """Wait until all have ended, ``patience_s`` at most; those that have not."""
    deadline = time.monotonic() + patience_s
    while left := [process for process in processes if not has_ended(process)]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        if connection.wait([process.sentinel for process in left], min(left_s, _LOOK_S)):
            time.sleep(_PAUSE_S)  # it is on its way, or has closed what it had
        processes = left
    return left


def end_all(processes: Iterable[Any]) -> list[Any]:
    """End processes that have been asked to: terminate, then kill those that do not; those that even that leaves."""
    left = await_end(processes, _POLITE_S)
    for process in left:
        process.terminate()
    left = await_end(left, _TERMINATED_S)
    for process in left:
        process.kill()
    return await_end(left, _KILLED_S)


def fate(process: Any) -> str:
    """How it ended, after "it"."""
    code = process.exitcode
    if code is None:
        return "ended, nobody knows how: something else in this program waited for it"
    if code >= 0:
        return f"exited with code {code}"
    return _killed_by(-code)


def _killed_by(number: int) -> str:
    return f"is killed by signal: {signal.strsignal(number) or number}. "


KILLED: Final = _killed_by(signal.SIGKILL)
"""The :func:`fate` of one that was killed from outside, or by a system without memory."""
