"""What the whole machine did while a script was watched: other programs, throttling, disks, page cache.

Two snapshots of counters are compared. All are of the machine, or of the control group, not of the script alone.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Final

from penstock.system.control_group import ControlGroup
from penstock.system.system_files import SystemFiles

__all__ = ["ProcessorTimes", "SystemCounters"]

_SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, whatever the disk's own sectors are."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Processor time of the whole machine since its start in seconds, summed over all cores: ``/proc/stat``."""

    busy_s: float  # in which programs or the kernel ran
    idle_s: float  # in which nothing ran; ``waiting_s`` of it while a disk was waited for
    waiting_s: float  # see ``idle_s``
    stolen_s: float  # in which something could have run here, but the hypervisor ran another machine

    @classmethod
    def read(cls, files: SystemFiles) -> ProcessorTimes | None:
        """Return the times up to now; None if they cannot be read."""
        name, *words = (files.read("/proc/stat") or "").partition("\n")[0].split() or [""]
        ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in words if word.isdecimal()]
        if name != "cpu" or len(ticks) < 4:
            return None
        user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = [*ticks, 0.0, 0.0, 0.0, 0.0][:8]
        return cls(user + nice + system + interrupts + soft_interrupts, idle + waiting, waiting, stolen)

    @property
    def all_s(self) -> float:
        """The time of all cores, busy or not."""
        return self.busy_s + self.idle_s + self.stolen_s


@dataclass(frozen=True, slots=True)
class SystemCounters:
    """Counters of the whole machine at one moment."""

    now_ns: int  # when it was taken (``time.perf_counter_ns``)
    processors: ProcessorTimes | None  # of all cores
    totals: dict[str, int]
    """``periods``, ``throttled_periods`` and ``throttled_ns`` of the control group; ``refaulted_bytes``, which the page
    cache had dropped and had to read again; ``swapped_in_bytes``."""
    disks: dict[str, tuple[int, int, int]]  # for each disk: bytes read, bytes written, nanoseconds busy
    page_cache_bytes: int  # size of the page cache

    @classmethod
    def read(cls, files: SystemFiles, group: ControlGroup) -> SystemCounters:
        """Read the counters now."""
        memory, pages = files.read_pairs("/proc/meminfo"), files.read_pairs("/proc/vmstat")
        page, refaults = os.sysconf("SC_PAGE_SIZE"), pages.get("workingset_refault", 0)
        totals = {
            **group.throttling(),
            "refaulted_bytes": page * pages.get("workingset_refault_file", refaults),
            "swapped_in_bytes": page * pages.get("pswpin", 0),
        }
        cached = memory.get("Cached", 0) + memory.get("Buffers", 0) - memory.get("Shmem", 0)
        return cls(time.perf_counter_ns(), ProcessorTimes.read(files), totals, _read_disks(files), max(0, cached))

    def since(self, before: SystemCounters, watched_s: float) -> dict[str, object]:
        """Return what happened from ``before`` to this snapshot.

        Parameters
        ----------
        before : SystemCounters
            The earlier one.
        watched_s : float
            Processor time of the watched processes meanwhile.

        Returns
        -------
        dict
            ``seconds``; mean numbers of cores: ``busy_cores``, ``watched_cores``, ``others_cores``; ``stolen`` and
            ``waiting_for_disk``, parts of all processor time; ``periods``, ``throttled_periods``, ``throttled_s`` of
            the control group; ``disks``, for each that was used ``read_bytes``, ``written_bytes`` and ``busy``, a part
            of the time; ``page_cache_bytes`` at the end, ``page_cache_grown_bytes``, ``refaulted_bytes``,
            ``swapped_in_bytes``. None for what is unknown.
        """
        seconds = max(1e-9, (self.now_ns - before.now_ns) / 1e9)
        totals = {name: total - before.totals[name] for name, total in self.totals.items()}
        throttled_s = totals.pop("throttled_ns") / 1e9
        disks = {}
        for name, (read, written, busy_ns) in self.disks.items():
            first = before.disks.get(name, (0, 0, 0))
            if (read, written) != first[:2]:
                busy = round(min(1.0, (busy_ns - first[2]) / 1e9 / seconds), 4)
                disks[name] = {"read_bytes": read - first[0], "written_bytes": written - first[1], "busy": busy}
        return {
            "seconds": round(seconds, 3),
            "watched_cores": round(watched_s / seconds, 3),
            **_compare_processors(before.processors, self.processors, seconds, watched_s),
            **totals,
            "throttled_s": throttled_s,
            "disks": disks,
            "page_cache_bytes": self.page_cache_bytes,
            "page_cache_grown_bytes": self.page_cache_bytes - before.page_cache_bytes,
        }


def _compare_processors(
    before: ProcessorTimes | None, after: ProcessorTimes | None, seconds: float, watched_s: float
) -> dict[str, float | None]:
    if before is None or after is None:
        return dict.fromkeys(("busy_cores", "others_cores", "stolen", "waiting_for_disk"))
    busy_s, whole_s = after.busy_s - before.busy_s, max(1e-9, after.all_s - before.all_s)
    return {
        "busy_cores": round(busy_s / seconds, 3),
        "others_cores": round(max(0.0, busy_s - watched_s) / seconds, 3),
        "stolen": round((after.stolen_s - before.stolen_s) / whole_s, 4),
        "waiting_for_disk": round((after.waiting_s - before.waiting_s) / whole_s, 4),
    }


def _read_disks(files: SystemFiles) -> dict[str, tuple[int, int, int]]:
    """Return whole disks: partitions are parts of them, and loops and compressed memory lie on something else."""
    disks = {}
    for line in (files.read("/proc/diskstats") or "").splitlines():
        words = line.split()
        if len(words) < 14 or not all(words[place].isdecimal() for place in (5, 9, 12)):
            continue
        name = words[2]
        if not re.match(r"loop|ram|zram|dm-|md", name) and files.exists(f"/sys/block/{name}"):
            disks[name] = (_SECTOR * int(words[5]), _SECTOR * int(words[9]), 1_000_000 * int(words[12]))
    return disks
