"""The control group of a process: how much processor time and memory it may use, and how often it was held back.

Both versions are read, where systemd and container runtimes mount them. Limits of all folders from the group's own up
to the mount hold, so the smallest counts. In a container the group's folder often is the root of its mount, whatever
``/proc/PID/cgroup`` calls it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from penstock.system import core_numbers
from penstock.system.system_files import SystemFiles

__all__ = ["ControlGroup", "count_usable_cores", "find_control_group"]

_ROOT: Final = "/sys/fs/cgroup"
_UNLIMITED: Final = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """Where the files of a process's group are."""

    files: SystemFiles  # reads them
    version: int  # 1 or 2; 0 if there is no group
    folders: dict[str, list[str]]  # for "cpu" and "memory": the group's folder, and those above it up to the mount

    def describe(self) -> dict[str, float | None]:
        """Limits and counters as numbers; None where there is no limit, or it cannot be known."""
        used = [*self._read("memory", "memory.current"), *self._read("memory", "memory.usage_in_bytes"), None]
        return {
            "version": self.version,
            "quota_cores": self.quota_cores(),
            "memory_limit_bytes": self.memory_limit(),
            "memory_used_bytes": used[0],
            **self.throttling(),
        }

    def quota_cores(self) -> float | None:
        """Processor time that the group may use per time: 1.5 is one and a half cores; None without a quota."""
        quotas = (self._read_quota(folder) for folder in self.folders["cpu"])
        return min((quota for quota in quotas if quota is not None), default=None)

    def memory_limit(self) -> int | None:
        """Most bytes, page cache included; None without a limit."""
        names = ("memory.max", "memory.high", "memory.limit_in_bytes")
        limits = [number for name in names for number in self._read("memory", name)]
        return min((number for number in limits if number < _UNLIMITED), default=None)

    def throttling(self) -> dict[str, int]:
        """Return how often the group was held back by its quota since it was made, and for how long.

        Returns
        -------
        dict
            ``periods``, ``throttled_periods`` and ``throttled_ns``, summed over its folders, since the quota may be
            that of a folder above; zero if unknown.
        """
        counts = {"periods": 0, "throttled_periods": 0, "throttled_ns": 0}
        for folder in self.folders["cpu"]:
            pairs = self.files.read_pairs(f"{folder}/cpu.stat")
            counts["periods"] += pairs.get("nr_periods", 0)
            counts["throttled_periods"] += pairs.get("nr_throttled", 0)
            counts["throttled_ns"] += pairs.get("throttled_time", 1000 * pairs.get("throttled_usec", 0))
        return counts

    def _read(self, controller: str, name: str) -> list[int]:
        """Return the numbers of a file in each of the controller's folders that has one."""
        numbers = (self.files.read_int(f"{folder}/{name}") for folder in self.folders[controller])
        return [number for number in numbers if number is not None]

    def _read_quota(self, folder: str) -> float | None:
        text = self.files.read(f"{folder}/cpu.max")
        if text is None:
            quota_us, period_us = (self.files.read_int(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        else:
            words = [int(word) if word.isdecimal() else None for word in text.split()]
            quota_us, period_us = [*words, None, None][:2]
        return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def count_usable_cores(files: SystemFiles | None = None) -> int:
    """Cores that this process can keep busy: those it may run on, at most its group's quota, rounded up."""
    cores = len(core_numbers())
    quota = _find_own_quota() if files is None else find_control_group(files).quota_cores()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


@functools.cache
def _find_own_quota() -> float | None:
    """Return the quota of this process; read once, as it is asked for where an image is decoded."""
    return find_control_group(SystemFiles()).quota_cores()


def find_control_group(files: SystemFiles, pid: int | str = "self") -> ControlGroup:
    """The group of a process; one without folders where there is none."""
    version = 2 if files.exists(f"{_ROOT}/cgroup.controllers") else 1
    paths: dict[str, str] = {}
    for line in (files.read(f"/proc/{pid}/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths |= dict.fromkeys(controllers.split(","), path)
    folders = {}
    for controller in ("cpu", "memory"):
        mount = _ROOT if version == 2 else f"{_ROOT}/{controller}"
        path = paths.get("" if version == 2 else controller, "")
        folders[controller] = _list_folders(files, mount, path) if files.exists(mount) else []
    return ControlGroup(files, version if any(folders.values()) else 0, folders)


def _list_folders(files: SystemFiles, mount: str, path: str) -> list[str]:
    """The group's folder in a mount, and those above it.

    A mount may show a part of the hierarchy, or the path may be that of another name space: names at its beginning are
    left out until there is such a folder.
    """
    names = [] if "/.." in path else [name for name in path.split("/") if name]
    while names and not files.exists("/".join([mount, *names])):
        names = names[1:]
    return ["/".join([mount, *names[:count]]) for count in range(len(names), -1, -1)]
