"""What the whole machine did while a script was watched: other programs, throttling, pressure, disks, page cache.

Two snapshots of counters are compared. All are of the machine, or of the control group, not of the script alone.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.doctor.machine.control_group import ControlGroup, find_control_group
from penstock.doctor.machine.processor_times import ProcessorTimes
from penstock.doctor.machine.system_files import SystemFiles

__all__ = ["SystemCounters"]

_SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, whatever the disk's own sectors are."""


@dataclass(frozen=True, slots=True)
class SystemCounters:
    """One snapshot.

    Parameters
    ----------
    now_ns : int
        When it was taken (``time.perf_counter_ns``).
    processors : ProcessorTimes, optional
        Of all cores.
    throttling : dict of str to int
        See :meth:`~penstock.doctor.machine.control_group.ControlGroup.throttling`.
    pressure_us : dict of str to int
        Microseconds of ``cpu.some``, ``io.full`` and so on, in which some or all tasks waited for a resource.
    disks : dict of str to tuple
        For each disk: bytes read, bytes written, nanoseconds busy.
    page_cache_bytes, refaulted_bytes, swapped_in_bytes : int
        Size of the page cache; what it had dropped and had to read again; what was read from swap.
    """

    now_ns: int
    processors: ProcessorTimes | None
    throttling: dict[str, int]
    pressure_us: dict[str, int] = field(default_factory=dict)
    disks: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    page_cache_bytes: int = 0
    refaulted_bytes: int = 0
    swapped_in_bytes: int = 0

    @classmethod
    def read(cls, files: SystemFiles, group: ControlGroup | None = None) -> SystemCounters:
        """The counters now."""
        group = find_control_group(files) if group is None else group
        memory, pages = files.read_pairs("/proc/meminfo"), files.read_pairs("/proc/vmstat")
        page = os.sysconf("SC_PAGE_SIZE")
        cached = memory.get("Cached", 0) + memory.get("Buffers", 0) - memory.get("Shmem", 0)
        return cls(
            time.perf_counter_ns(),
            ProcessorTimes.read(files),
            group.throttling(),
            _read_pressure(files, group),
            _read_disks(files),
            max(0, cached),
            page * pages.get("workingset_refault_file", pages.get("workingset_refault", 0)),
            page * pages.get("pswpin", 0),
        )

    def since(self, before: SystemCounters, watched_s: float) -> dict[str, Any]:
        """What happened from ``before`` to this snapshot.

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
            the control group; ``pressure``, parts of the time (``cpu.some``, ``io.full`` ...); ``disks``, for each that
            was used ``read_bytes``, ``written_bytes`` and ``busy``, a part of the time; ``page_cache_bytes`` at the
            end, ``page_cache_grown_bytes``, ``refaulted_bytes``, ``swapped_in_bytes``. None for what is unknown.
        """
        seconds = max(1e-9, (self.now_ns - before.now_ns) / 1e9)
        shares = _compare_processors(before.processors, self.processors, seconds, watched_s)
        counts = {name: count - before.throttling[name] for name, count in self.throttling.items()}
        disks = {}
        for name, (read, written, busy_ns) in self.disks.items():
            first = before.disks.get(name, (0, 0, 0))
            if (read, written) != first[:2]:
                busy = round(min(1.0, (busy_ns - first[2]) / 1e9 / seconds), 4)
                disks[name] = {"read_bytes": read - first[0], "written_bytes": written - first[1], "busy": busy}
        return {
            "seconds": round(seconds, 3),
            **shares,
            "periods": counts["periods"],
            "throttled_periods": counts["throttled_periods"],
            "throttled_s": counts["throttled_ns"] / 1e9,
            "pressure": {
                name: round((total - before.pressure_us[name]) / 1e6 / seconds, 4)
                for name, total in self.pressure_us.items()
                if name in before.pressure_us
            },
            "disks": disks,
            "page_cache_bytes": self.page_cache_bytes,
            "page_cache_grown_bytes": self.page_cache_bytes - before.page_cache_bytes,
            "refaulted_bytes": self.refaulted_bytes - before.refaulted_bytes,
            "swapped_in_bytes": self.swapped_in_bytes - before.swapped_in_bytes,
        }


def _compare_processors(
    before: ProcessorTimes | None, after: ProcessorTimes | None, seconds: float, watched_s: float
) -> dict[str, float | None]:
    watched = round(watched_s / seconds, 3)
    if before is None or after is None:
        unknown = dict.fromkeys(("busy_cores", "others_cores", "stolen", "waiting_for_disk"))
        return {**unknown, "watched_cores": watched}
    busy = (after.busy_s - before.busy_s) / seconds
    whole = max(1e-9, after.all_s - before.all_s)
    return {
        "busy_cores": round(busy, 3),
        "watched_cores": watched,
        "others_cores": round(max(0.0, busy - watched), 3),
        "stolen": round((after.stolen_s - before.stolen_s) / whole, 4),
        "waiting_for_disk": round((after.waiting_s - before.waiting_s) / whole, 4),
    }


def _read_pressure(files: SystemFiles, group: ControlGroup) -> dict[str, int]:
    totals = {}
    for resource in ("cpu", "memory", "io"):
        text = group.pressure(resource) or files.read(f"/proc/pressure/{resource}") or ""
        for name, total in re.findall(r"^(some|full)\b.*\btotal=(\d+)", text, re.MULTILINE):
            totals[f"{resource}.{name}"] = int(total)
    return totals


def _read_disks(files: SystemFiles) -> dict[str, tuple[int, int, int]]:
    """Whole disks: partitions are parts of them, and loops and compressed memory lie on something else."""
    disks = {}
    for line in (files.read("/proc/diskstats") or "").splitlines():
        words = line.split()
        if len(words) < 14 or not all(words[place].isdecimal() for place in (5, 9, 12)):
            continue
        name = words[2]
        if not re.match(r"loop|ram|zram|dm-|md", name) and files.exists(f"/sys/block/{name}"):
            disks[name] = (_SECTOR * int(words[5]), _SECTOR * int(words[9]), 1_000_000 * int(words[12]))
    return disks
