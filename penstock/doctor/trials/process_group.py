"""Processes of a group: finds them, and kills them without leaving shared memory behind.

torch's workers put batches into files in ``/dev/shm`` that they name after themselves and unlink at once. A worker that
is killed in between leaves its file, which would take memory until the machine restarts.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

__all__ = ["find_members", "kill_group"]

_PROC: Final = Path("/proc")
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # where the system keeps shared memory


def find_members(group: int, proc: Path = _PROC) -> list[int]:
    """Processes of the group, zombies too."""
    members = []
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended, or belongs to another user
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                members.append(int(folder.name))
    return members


def kill_group(leader: int, shared_memory: Path = _SHARED_MEMORY) -> None:
    """Kill a child process, which may lead a group, with all processes of that group; the caller waits for the child.

    Shared memory files of torch that belong to the group are removed.
    """
    _signal_group(leader, signal.SIGSTOP)  # no process starts another one, or makes a file, while they are listed
    members = find_members(leader)
    _signal_group(leader, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, signal.SIGKILL)  # the group may not have begun yet
    names = {str(member) for member in members}
    for path in shared_memory.glob("torch_*_*_*"):
        if path.name.split("_")[1] in names:
            with contextlib.suppress(OSError):
                path.unlink()


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
