"""What the tests of faults share: scripts that may die, and what the system knows of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

__all__ = [
    "Indices",
    "alive",
    "drain",
    "kill_once",
    "run_script",
    "running_script",
    "wait_until",
    "wait_until_gone",
    "workers_of",
]

PATIENCE_S: Final = 60.0
"""Longest wait for what must come about, on the busiest of machines; what hangs, hangs for an hour."""

PREAMBLE: Final = """
import gc, json, os, resource, signal, sys, threading, time
import numpy as np
import penstock as ps

class Indices:
    def __init__(self, n=64, width=1, sleep_s=0.0):
        self.n, self.width, self.sleep_s = n, width, sleep_s
    def __len__(self):
        return self.n
    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return np.full(self.width, index, np.float32)

def children():
    own = open("/proc/self/cmdline").read()
    pids = [int(p) for t in os.listdir("/proc/self/task") for p in open(f"/proc/self/task/{t}/children").read().split()]
    return [pid for pid in pids if alive(pid)]

def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def say(**what):
    print(json.dumps(what), flush=True)

def wait_until(condition):
    while not condition():
        time.sleep(0.01)
"""


class Indices:
    """``dataset[index]`` is the index, or an array of ``width`` times it."""

    def __init__(self, n: int = 64, width: int = 0) -> None:
        self.n, self.width = n, width

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return np.full(self.width, index, np.float32) if self.width else index


def kill_once(marker: Path, sig: int = signal.SIGKILL) -> None:
    """Send this process ``sig``, if nobody has before: ``marker`` remembers."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), sig)


def drain(iterator: Any) -> tuple[list[Any], list[Any]]:
    """Everything that an iterator gives, and everything it raises on the way."""
    batches: list[Any] = []
    errors: list[Any] = []
    while True:
        try:
            batches.append(next(iterator))
        except StopIteration:
            return batches, errors
        except Exception as error:  # noqa: BLE001  # it is what the test looks at
            errors.append(error)


def alive(pid: int) -> bool:
    """Whether a process still does something: one that nobody has waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def children_of(pid: int) -> list[int]:
    """Children of a process that were forked from it and not yet something else."""
    own = f"/proc/{pid}"
    found = []
    for thread in Path(own, "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found += [int(child) for child in (thread / "children").read_text().split()]
    program = Path(own, "cmdline").read_bytes()
    return [child for child in found if alive(child) and Path(f"/proc/{child}/cmdline").read_bytes() == program]


children_before: Final[set[int]] = set()
"""Children of this process that there were before the test: they may be another test's, and still ending."""


def workers_of(pid: int | None = None) -> list[int]:
    """Children of a process; of this one by default, without those of before the test."""
    return children_of(pid) if pid else [child for child in children_of(os.getpid()) if child not in children_before]


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` has come about; ``what`` is said if it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:g} seconds"
        time.sleep(0.01)


def wait_until_gone(pids: list[int]) -> None:
    """Wait until no process of ``pids`` is alive."""
    wait_until(lambda: not any(map(alive, pids)), f"processes {pids} have ended")


def _write(folder: Path, body: str) -> Path:
    script = folder / "script.py"
    script.write_text(PREAMBLE + textwrap.dedent(body))
    return script


def run_script(folder: Path, body: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run ``body`` behind :data:`PREAMBLE` as a program of its own; a hang is a failure."""
    return subprocess.run(
        [sys.executable, str(_write(folder, body))], capture_output=True, text=True, timeout=timeout_s, check=False
    )


@contextmanager
def running_script(folder: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """The same while it runs, in a process group of its own, which is killed at the end."""
    with subprocess.Popen(
        [sys.executable, str(_write(folder, body))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
