"""What the processes of a script use: processor time, memory, page faults, reads, files, waiting for a core.

::

    UsageSampler.start() ── a thread, every half second ── /proc/PID of the script and of its child processes
                        └── a thread, every second or more ── memory of one of them, in turns
                 stop()  ──> result(): one ProcessUsage each      system(): what the whole machine did meanwhile

A process that ends loses what it used after the last sample of it, half a second as a rule. Sizes of memory cost more
than all else (10 ms for a gigabyte of small pages), so that they are read rarely, and of all processes at the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from penstock.doctor.machine.disks import measure_space
from penstock.doctor.machine.process_counters import MOST, TICK_NS, list_children, read_counters, read_pss
from penstock.doctor.machine.sampling_thread import SamplingThread
from penstock.doctor.machine.system_counters import SystemCounters
from penstock.system.control_group import find_control_group
from penstock.system.system_files import SystemFiles

__all__ = ["ProcessUsage", "UsageSampler"]

_SHARE: Final = 0.0015
_MEMORY_SHARE: Final = 0.0005
"""Most processor time of samples, and of reading sizes of memory, as parts of a core."""


@dataclass(slots=True)
class ProcessUsage:
    """What one process used while it was watched."""

    role: str  # "main", "worker 0" ..., "other" for child processes of the script that are no workers
    pid: int  # number of the process
    cpu_ns: int  # processor time of all threads
    wall_ns: int  # for how long the process was watched
    threads: int = 1  # most threads at one time
    pss_bytes: int = -1
    """The part of the memory that the process uses, shared pages divided; the largest value seen; -1: not measured."""
    major_faults: int = 0
    minor_faults: int = 0
    """``major_faults`` and ``minor_faults``: page faults."""
    read_bytes: int = 0  # read from block devices; ``read_calls_bytes`` also from the page cache
    read_calls_bytes: int = 0  # passed to read calls
    descriptors: int = 0  # most open files at one time
    waiting_for_cpu_ns: int = -1  # runnable, but not running (/proc/PID/schedstat); -1: not measured


@dataclass(slots=True)
class _Watched:
    """One process: its counters when watching began, and the largest since; times of ``time.perf_counter_ns``."""

    first: Mapping[str, int]
    last: Mapping[str, int]
    began_ns: int
    ended_ns: int
    pss_bytes: int = -1
    pss_read_ns: int = 0

    def update(self, new: Mapping[str, int], now_ns: int) -> None:
        """Take new counters; none gets smaller, also if its file cannot be read any more."""
        self.last = {name: max(self.last[name], count) for name, count in new.items()}
        self.ended_ns = now_ns

    def describe(self, role: str, pid: int) -> ProcessUsage:
        """Return what the process has used."""
        used = {
            name: count if name in MOST or count < 0 else count - max(0, self.first.get(name, 0))
            for name, count in self.last.items()
        }
        return ProcessUsage(role, pid, wall_ns=self.ended_ns - self.began_ns, pss_bytes=self.pss_bytes, **used)


class UsageSampler:
    """Samples a process and its child processes; a context manager.

    The processor time of its threads is measured: periods grow so that they use at most 0.2 % of a core.

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
        self._group = find_control_group(self._files, self.pid)
        self._thread = SamplingThread(self.sample, period_s=period_s, most_share=_SHARE, name="penstock-usage")
        self._memory_thread = SamplingThread(
            self.sample_memory,
            period_s=2 * period_s,
            most_share=_MEMORY_SHARE,
            name="penstock-memory",
            samples_at_ends=False,
        )
        self._lock = threading.Lock()
        self._processes: dict[tuple[int, int], _Watched] = {}
        self._first: SystemCounters | None = None
        self._last: SystemCounters | None = None  # when watching ended
        self._is_stopped = False
        self._sampled_ns = 0  # when the last sample began
        self._uptime_ns = 0  # when watching began, on the clock of /proc/uptime
        self._shm_bytes = 0

    @property
    def cpu_ns(self) -> int:
        """Processor time of its own threads so far."""
        return self._thread.cpu_ns + self._memory_thread.cpu_ns

    def start(self) -> Self:
        """Take a sample, and begin, or go on. Does nothing while the sampler is running."""
        if self._thread.is_running:
            return self
        self._is_stopped, self._last = False, None
        self._thread.start()
        self._memory_thread.start()
        return self

    def stop(self) -> None:
        """Take the last sample, and the memory of all processes that live. Idempotent."""
        if self._is_stopped:
            return
        self.pause()
        self._is_stopped = True
        self._last = SystemCounters.read(self._files, self._group)
        for _ in range(len(self._processes)):
            self.sample_memory()

    def pause(self) -> None:
        """End the threads until :meth:`start`: a process that forks should have none."""
        self._memory_thread.stop()
        self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def sample(self) -> None:
        """Look at all processes once. Called by the thread; a caller with a thread of its own calls it instead."""
        if self._first is None:
            self._first = SystemCounters.read(self._files, self._group)
            self._uptime_ns = _read_uptime_ns(self._files)
        self._sampled_ns = time.perf_counter_ns()
        space = measure_space(self._files.find("/dev/shm"))  # noqa: S108  # it is only measured
        self._shm_bytes = max(self._shm_bytes, (space["size_bytes"] or 0) - (space["free_bytes"] or 0))
        for pid in (self.pid, *list_children(self._files, self.pid)):
            self._record(pid)

    def sample_memory(self) -> None:
        """Read the memory of one process: of those that lived in the last sample, that which was read longest ago."""
        with self._lock:
            alive = [item for item in self._processes.items() if item[1].ended_ns >= self._sampled_ns]
            if not alive:
                return
            (pid, _), watched = min(alive, key=lambda item: item[1].pss_read_ns)
            watched.pss_read_ns = time.perf_counter_ns()
        nbytes = read_pss(self._files, pid)
        watched.pss_bytes = max(watched.pss_bytes, nbytes)

    def result(self) -> list[ProcessUsage]:
        """Return what each process has used while it was watched: the main process ("main"), then others ("other")."""
        with self._lock:
            watched = [(pid, process) for (pid, _), process in self._processes.items()]
        found = [process.describe("main" if pid == self.pid else "other", pid) for pid, process in watched]
        return sorted(found, key=lambda usage: usage.role != "main")

    def system(self) -> dict[str, object]:
        """Return what the whole machine did meanwhile.

        Returns
        -------
        dict
            See :meth:`~.system_counters.SystemCounters.since`; and ``shm_used_bytes``, the most of
            ``/dev/shm`` at one time; ``samples`` and ``sampler_cpu_s``, what watching cost meanwhile. Empty before the
            first sample.
        """
        if self._first is None:
            return {}
        last = SystemCounters.read(self._files, self._group) if self._last is None else self._last
        cpu_s = sum(usage.cpu_ns for usage in self.result()) / 1e9
        return {
            **last.since(self._first, cpu_s),
            "shm_used_bytes": self._shm_bytes,
            "samples": self._thread.samples,
            "sampler_cpu_s": self.cpu_ns / 1e9,
        }

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
            return _Watched(counters, counters, self._first.now_ns, now_ns)
        # A process that began later counts from its beginning.
        return _Watched({}, counters, min(now_ns, self._first.now_ns - age_ns), now_ns)


def _read_uptime_ns(files: SystemFiles) -> int:
    words = (files.read("/proc/uptime") or "").split()
    return int(float(words[0]) * 1e9) if words else 0
