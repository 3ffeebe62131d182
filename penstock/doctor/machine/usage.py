"""What the processes of a script use: processor time, threads, reads, waiting for a core.

::

    UsageSampler.start() ── a thread, every half second ── /proc/PID of the script and of its child processes
                 stop()  ──> result(): one ProcessUsage each      system(): what other programs took meanwhile

A process that ends loses what it used after the last sample of it, half a second as a rule.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from penstock.doctor.machine.process_counters import TICK_NS, list_children, read_busy_ns, read_counters
from penstock.doctor.machine.sampling_thread import SamplingThread
from penstock.system.system_files import SystemFiles

__all__ = ["ProcessUsage", "UsageSampler"]

_SHARE: Final = 0.002
"""Most processor time of samples, as a part of a core."""


@dataclass(slots=True)
class ProcessUsage:
    """What one process used while it was watched."""

    role: str  # "main", "worker 0" ..., "other" for child processes of the script that are no workers
    pid: int  # number of the process
    cpu_ns: int  # processor time of all threads
    wall_ns: int  # for how long the process was watched
    threads: int = 1  # most threads at one time
    read_calls_bytes: int = 0  # passed to read calls
    waiting_for_cpu_ns: int = -1  # runnable, but not running (/proc/PID/schedstat); -1: not measured


@dataclass(slots=True)
class _Watched:
    """One process: its counters when watching began, and the largest since; times of ``time.perf_counter_ns``."""

    first: Mapping[str, int]
    last: Mapping[str, int]
    began_ns: int
    ended_ns: int

    def update(self, new: Mapping[str, int], now_ns: int) -> None:
        """Take new counters; none gets smaller, also if its file cannot be read any more."""
        self.last = {name: max(self.last[name], count) for name, count in new.items()}
        self.ended_ns = now_ns

    def describe(self, role: str, pid: int) -> ProcessUsage:
        """Return what the process has used."""
        used = {
            name: count if name == "threads" or count < 0 else count - max(0, self.first.get(name, 0))
            for name, count in self.last.items()
        }
        return ProcessUsage(role, pid, wall_ns=self.ended_ns - self.began_ns, **used)


class UsageSampler:
    """Samples a process and its child processes; a context manager.

    The processor time of its thread is measured: periods grow so that it uses at most 0.2 % of a core.

    Parameters
    ----------
    pid : int, optional
        The main process; by default this one.
    period_s : float
        Seconds between samples, at least.
    files : SystemFiles, optional
        Reads the kernel's files.

    Examples
    --------
    >>> import time
    >>> with UsageSampler(period_s=0.01) as sampler:
    ...     time.sleep(0.1)
    >>> sampler.result()[0].role
    'main'
    """

    def __init__(self, pid: int | None = None, *, period_s: float = 0.5, files: SystemFiles | None = None) -> None:
        self.pid = os.getpid() if pid is None else pid
        self._files = SystemFiles() if files is None else files
        self._thread = SamplingThread(self.sample, period_s=period_s, most_share=_SHARE, name="penstock-usage")
        self._lock = threading.Lock()
        self._processes: dict[tuple[int, int], _Watched] = {}
        self._first: tuple[int, int] | None = None  # time, and that of all programs
        self._last: tuple[int, int] | None = None  # when watching ended
        self._is_stopped = False
        self._uptime_ns = 0  # when watching began, on the clock of /proc/uptime

    @property
    def cpu_ns(self) -> int:
        """Processor time of its own thread so far."""
        return self._thread.cpu_ns

    def start(self) -> Self:
        """Take a sample, and begin, or go on. Does nothing while the sampler is running."""
        if self._thread.is_running:
            return self
        self._is_stopped, self._last = False, None
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take the last sample. Idempotent."""
        if self._is_stopped:
            return
        self.pause()
        self._is_stopped = True
        self._last = self._read_busy()

    def pause(self) -> None:
        """End the thread until :meth:`start`: a process that forks should have none."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def sample(self) -> None:
        """Look at all processes once. Called by the thread; a caller with a thread of its own calls it instead."""
        if self._first is None:
            self._first = self._read_busy()
            self._uptime_ns = _read_uptime_ns(self._files)
        for pid in (self.pid, *list_children(self._files, self.pid)):
            self._record(pid)

    def result(self) -> list[ProcessUsage]:
        """Return what each process has used while it was watched: the main process ("main"), then others ("other")."""
        with self._lock:
            watched = [(pid, process) for (pid, _), process in self._processes.items()]
        found = [process.describe("main" if pid == self.pid else "other", pid) for pid, process in watched]
        return sorted(found, key=lambda usage: usage.role != "main")

    def system(self) -> dict[str, float]:
        """Return ``seconds``, and ``others_cores``, which other programs kept busy meanwhile, as far as it is known."""
        if self._first is None:
            return {}
        (began_ns, before), (now_ns, after) = self._first, self._last or self._read_busy()
        seconds = max(1e-9, (now_ns - began_ns) / 1e9)
        if before < 0 or after < 0:
            return {"seconds": seconds}
        others_ns = after - before - sum(usage.cpu_ns for usage in self.result())
        return {"seconds": round(seconds, 3), "others_cores": round(max(0.0, others_ns / 1e9 / seconds), 3)}

    def _read_busy(self) -> tuple[int, int]:
        return time.perf_counter_ns(), read_busy_ns(self._files)

    def _record(self, pid: int) -> None:
        found = read_counters(self._files, pid)
        if found is None:
            return
        began_ns, counters = found
        now_ns = time.perf_counter_ns()
        with self._lock:
            watched = self._processes.get((pid, began_ns))
            if watched is None:
                watched = self._processes[pid, began_ns] = self._begin_watching(began_ns, counters, now_ns)
            watched.update(counters, now_ns)

    def _begin_watching(self, began_ns: int, counters: Mapping[str, int], now_ns: int) -> _Watched:
        age_ns = self._uptime_ns - began_ns  # when watching began
        if self._first is None:
            return _Watched(counters, counters, now_ns, now_ns)
        if not self._uptime_ns or age_ns > TICK_NS:
            return _Watched(counters, counters, self._first[0], now_ns)
        # A process that began later counts from its beginning.
        return _Watched({}, counters, min(now_ns, self._first[0] - age_ns), now_ns)


def _read_uptime_ns(files: SystemFiles) -> int:
    words = (files.read("/proc/uptime") or "").split()
    return int(float(words[0]) * 1e9) if words else 0
