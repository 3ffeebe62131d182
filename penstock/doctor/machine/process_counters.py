"""Counters of one process, read from ``/proc/PID``, and the processor time of all of them."""

from __future__ import annotations

import os
import re
from typing import Final

from penstock.system.system_files import SystemFiles

__all__ = ["TICK_NS", "list_children", "read_busy_ns", "read_counters", "read_pss"]

TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def read_counters(files: SystemFiles, pid: int) -> tuple[int, dict[str, int]] | None:
    """Return what process ``pid`` has used since it began, also if it has ended and is not waited for.

    It is None if there is none.

    Returns
    -------
    tuple of int and dict of str to int, optional
        When it began, on the clock of ``/proc/uptime``: with the number of the process it names one process. Its
        counters, of all threads, by their names in :class:`~penstock.doctor.watching.recording.ProcessUsage`; what may
        not be read is 0.
    """
    text = files.read(f"/proc/{pid}/stat") or ""
    words = text.rpartition(")")[2].split()  # the name before it may hold anything
    if len(words) < 20 or not all(word.lstrip("-").isdecimal() for word in words[1:20]):
        return None
    io = files.read_pairs(f"/proc/{pid}/io")
    return int(words[19]) * TICK_NS, {
        "cpu_ns": (int(words[11]) + int(words[12])) * TICK_NS,
        "threads": int(words[17]),
        "read_calls_bytes": io.get("rchar", 0),
        "waiting_for_cpu_ns": _read_delay(files, pid),
    }


def read_busy_ns(files: SystemFiles) -> int:
    """Nanoseconds that all programs and the kernel have computed since the machine's start; -1 if that is unknown."""
    name, *words = (files.read("/proc/stat") or "").partition("\n")[0].split() or [""]
    ticks = [int(word) for word in words if word.isdecimal()]
    if name != "cpu" or len(ticks) < 4:  # user, nice, system, idle, waiting for disks, two kinds of interrupts
        return -1
    return TICK_NS * (sum(ticks[:3]) + sum(ticks[5:7]))


def read_pss(files: SystemFiles, pid: int) -> int:
    """Bytes of memory of a process, shared pages divided among those that share them; -1 if unknown.

    The kernel walks all pages of the process, and holds its address space meanwhile: milliseconds for each gigabyte.
    """
    return files.read_pairs(f"/proc/{pid}/smaps_rollup").get("Pss", -1)


def list_children(files: SystemFiles, pid: int) -> list[int]:
    """Return child processes of ``pid``, and theirs."""
    found = [pid]
    for parent in found:  # grows while it is walked
        for task in files.list_folder(f"/proc/{parent}/task"):
            children = re.findall(r"\d+", files.read(f"/proc/{parent}/task/{task}/children") or "")
            found.extend(int(word) for word in children if int(word) not in found)
    return found[1:]


def _read_delay(files: SystemFiles, pid: int) -> int:
    """Nanoseconds in which threads of a process could run but did not; each thread has a count of its own."""
    delays = []
    for task in files.list_folder(f"/proc/{pid}/task"):
        words = (files.read(f"/proc/{pid}/task/{task}/schedstat") or "").split()
        if len(words) == 3 and words[1].isdecimal():
            delays.append(int(words[1]))
    return sum(delays) if delays else -1
