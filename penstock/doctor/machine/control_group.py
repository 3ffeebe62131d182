"""The control group of a process: how much processor time and memory it may use, and how often it was held back.

Both versions are read. Limits of all folders from the group's own up to the mount hold, so the smallest counts. In a
container the group's folder often is the root of its mount, whatever ``/proc/PID/cgroup`` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.doctor.machine.mounts import Mount, read_mounts
from penstock.doctor.machine.system_files import SystemFiles

__all__ = ["ControlGroup", "find_control_group"]

_UNLIMITED: Final = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page."""

_CONTROLLERS: Final = ("cpu", "memory", "pids")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """Where the files of a process's group are.

    Parameters
    ----------
    files : SystemFiles
        Reads them.
    version : int
        1 or 2; 0 if there is no group.
    folders : dict of str to list of str
        For each controller ("cpu", "memory", "pids"): the group's folder, and those above it up to the mount.
    """

    files: SystemFiles
    version: int
    folders: dict[str, list[str]]

    def describe(self) -> dict[str, Any]:
        """Limits and counters as numbers; None where there is no limit, or it cannot be known."""
        used = [number for name in ("memory.current", "memory.usage_in_bytes") for number in self._read("memory", name)]
        return {
            "version": self.version,
            "quota_cores": self.quota_cores(),
            "memory_limit_bytes": self.memory_limit(),
            "memory_used_bytes": used[0] if used else None,
            "page_cache_bytes": self.page_cache(),
            "processes_limit": min(self._read("pids", "pids.max"), default=None),
            **self.throttling(),
        }

    def quota_cores(self) -> float | None:
        """Processor time that the group may use per time: 1.5 is one and a half cores; None without a quota."""
        quotas = (self._read_quota(folder) for folder in self.folders.get("cpu", []))
        return min((quota for quota in quotas if quota is not None), default=None)

    def memory_limit(self) -> int | None:
        """Most bytes, page cache included; None without a limit."""
        names = ("memory.max", "memory.high", "memory.limit_in_bytes")
        limits = [number for name in names for number in self._read("memory", name)]
        return min((number for number in limits if number < _UNLIMITED), default=None)

    def page_cache(self) -> int | None:
        """Bytes of the group's page cache."""
        for folder in self.folders.get("memory", [])[:1]:
            pairs = self.files.read_pairs(f"{folder}/memory.stat")
            return pairs.get("file", pairs.get("total_cache", pairs.get("cache")))
        return None

    def throttling(self) -> dict[str, int]:
        """How often the group was held back by its quota since it was made, and for how long.

        Returns
        -------
        dict
            ``periods``, ``throttled_periods`` and ``throttled_ns``, summed over its folders, since the quota may be
            that of a folder above; zero if unknown.
        """
        counts = {"periods": 0, "throttled_periods": 0, "throttled_ns": 0}
        for folder in self.folders.get("cpu", []):
            pairs = self.files.read_pairs(f"{folder}/cpu.stat")
            counts["periods"] += pairs.get("nr_periods", 0)
            counts["throttled_periods"] += pairs.get("nr_throttled", 0)
            counts["throttled_ns"] += pairs.get("throttled_time", 1000 * pairs.get("throttled_usec", 0))
        return counts

    def pressure(self, resource: str) -> str | None:
        """The text of the group's pressure file for "cpu", "memory" or "io"; None with version 1."""
        folders = self.folders.get("cpu", []) if self.version == 2 else []
        return self.files.read(f"{folders[0]}/{resource}.pressure") if folders else None

    def _read(self, controller: str, name: str) -> list[int]:
        """The numbers of a file in each of the controller's folders that has one."""
        numbers = (self.files.read_int(f"{folder}/{name}") for folder in self.folders.get(controller, []))
        return [number for number in numbers if number is not None]

    def _read_quota(self, folder: str) -> float | None:
        text = self.files.read(f"{folder}/cpu.max")
        if text is None:
            quota_us, period_us = (self.files.read_int(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        else:
            words = [int(word) if word.isdecimal() else None for word in text.split()]
            quota_us, period_us = [*words, None, None][:2]
        return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def find_control_group(files: SystemFiles, pid: int | str = "self") -> ControlGroup:
    """The group of a process; one without folders where there is none."""
    paths = dict(_parse_membership(files.read(f"/proc/{pid}/cgroup") or ""))
    mounts = [mount for mount in read_mounts(files) if mount.file_system in {"cgroup", "cgroup2"}]
    folders: dict[str, list[str]] = {}
    for mount in mounts:
        if mount.file_system == "cgroup":
            for controller in set(_CONTROLLERS) & set(mount.options):
                folders[controller] = _list_folders(files, mount, paths.get(controller, "/"))
    if folders:
        return ControlGroup(files, 1, folders)
    for mount in mounts:
        if mount.file_system == "cgroup2":
            found = _list_folders(files, mount, paths.get("", "/"))
            return ControlGroup(files, 2, dict.fromkeys(_CONTROLLERS, found))
    return ControlGroup(files, 0, {})


def _parse_membership(text: str) -> Iterable[tuple[str, str]]:
    """Controllers and the group's path in each; version 2 has the controller ""."""
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(","):
            yield controller, path


def _list_folders(files: SystemFiles, mount: Mount, path: str) -> list[str]:
    """The group's folder in a mount, and those above it."""
    below = path
    if mount.root != "/" and (path == mount.root or path.startswith(mount.root + "/")):
        below = path[len(mount.root) :]  # the mount shows a part of the hierarchy
    folder = (mount.point + "/" + below.strip("/")).rstrip("/")
    if "/.." in folder or not files.exists(folder):
        folder = mount.point  # the path is that of another name space
    folders = [folder]
    while folders[-1] != mount.point:
        folders.append(folders[-1].rpartition("/")[0])
    return folders
