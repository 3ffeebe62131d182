"""What a machine gives a training script: cores, memory, disks, limits, versions.

Called by the doctor once for each script. All is read from files of the kernel, of which some may be missing; nothing
is started, and no library is imported for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from penstock.doctor.machine.control_group import ControlGroup, find_control_group
from penstock.doctor.machine.core_speed import measure_speed
from penstock.doctor.machine.mounts import describe_disk, measure_space, read_mounts
from penstock.doctor.machine.process_counters import ProcessCounters, list_children
from penstock.doctor.machine.processor_times import ProcessorTimes
from penstock.doctor.machine.system_files import SystemFiles, parse_cores

__all__ = ["count_usable", "describe_machine"]

PACKAGES: Final = {
    "numpy": "numpy", "torch": "torch", "torchvision": "torchvision", "pillow": "PIL", "opencv-python": "cv2",
    "opencv-python-headless": "cv2", "albumentations": "albumentations", "kornia": "kornia", "lightning": "lightning",
    "h5py": "h5py", "lmdb": "lmdb", "pyarrow": "pyarrow", "penstock-data": "penstock",
}  # fmt: skip
"""Packages whose versions change how fast samples are made, and the names by which they are imported."""

_THREAD_VARIABLES: Final = re.compile(
    r"(OMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|TBB|NUMBA|RAYON|OPENCV\w*|GOTO)_\w*(THREADS|AFFINITY|BIND|BLOCKTIME|PLACES)"
    r"|KMP_\w+|GOMP_\w+|MALLOC_\w+|LD_PRELOAD|PYTORCH_CUDA_ALLOC_CONF|CUDA_LAUNCH_BLOCKING|CUDA_VISIBLE_DEVICES"
    r"|PYTHONMALLOC|PYTHONDEVMODE"
)
_LIMITS: Final = {
    "Max open files": "open_files",
    "Max processes": "processes",
    "Max locked memory": "locked_bytes",
    "Max address space": "address_space_bytes",
}


def describe_machine(
    paths: Iterable[str | os.PathLike[str]] = (), *, files: SystemFiles | None = None
) -> dict[str, Any]:
    """Describe this machine, and what this process may use of it; takes less than a second.

    Parameters
    ----------
    paths : iterable of path
        Where the data are.
    files : SystemFiles, optional
        Reads the kernel's files.

    Returns
    -------
    dict
        Only numbers, text, lists and dicts; None for what cannot be known here.

        ``processor``
            ``model``, ``architecture``, ``mhz``, ``max_mhz``, ``governor``, ``is_virtual``, ``online`` and ``physical``
            (cores of the machine), ``affinity`` (numbers of those that this process may use), ``usable`` (how many it
            may keep busy, quota included).
        ``speed``
            See :func:`~penstock.doctor.machine.core_speed.measure_speed`.
        ``control_group``
            See :meth:`~penstock.doctor.machine.control_group.ControlGroup.describe`.
        ``numa``
            For each node ``node``, ``cores``, ``memory_bytes``, ``free_bytes``.
        ``load``
            ``average_1_min``; ``others_cores``, which other programs kept busy while the speed was measured;
            ``stolen``, the part of all processor time that a hypervisor gave to other machines since the start.
        ``memory``
            ``total_bytes``, ``usable_bytes`` (the group's limit included), ``available_bytes``, ``page_cache_bytes``,
            ``swap_used_bytes``, ``huge_pages``.
        ``shm``
            ``size_bytes`` and ``free_bytes`` of ``/dev/shm``.
        ``limits``
            ``open_files``, ``processes``, ``locked_bytes``, ``address_space_bytes``; None: unlimited.
        ``disks``
            See :func:`~penstock.doctor.machine.mounts.describe_disk`; one for each of ``paths``.
        ``versions``
            Of Python, of the kernel, and of packages that are installed.
        ``threads``
            ``environment``: variables that set numbers of threads, or change allocation; ``torch``, ``cv2``: threads of
            these libraries, where they are imported.
    """
    files = SystemFiles() if files is None else files
    group = find_control_group(files)
    memory = _describe_memory(files, group)
    before = _read_busy(files)
    speed = measure_speed(1 << 26 if (memory["available_bytes"] or 1 << 31) > 1 << 30 else 1 << 23)
    return {
        "processor": _describe_processor(files, group),
        "speed": speed,
        "control_group": group.describe(),
        "numa": _describe_nodes(files),
        "load": _describe_load(files, before),
        "memory": memory,
        "shm": measure_space(files.find("/dev/shm")),  # noqa: S108  # it is only measured
        "limits": _describe_limits(files),
        "disks": [describe_disk(files, read_mounts(files), path) for path in paths],
        "versions": _list_versions(),
        "threads": _describe_threads(),
    }


def count_usable(affinity: int, quota_cores: float | None) -> int:
    """Cores that a process can keep busy: those it may run on, at most its group's quota, rounded up."""
    return affinity if quota_cores is None else max(1, min(affinity, -int(-quota_cores // 1)))


def _describe_processor(files: SystemFiles, group: ControlGroup) -> dict[str, Any]:
    text = files.read("/proc/cpuinfo") or ""
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)]
    packages, cores = (re.findall(rf"^{name} id\s*:\s*(\d+)$", text, re.MULTILINE) for name in ("physical", "core"))
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", files.read("/proc/self/status") or "", re.MULTILINE)
    online = parse_cores(files.read("/sys/devices/system/cpu/online")) or list(range(os.cpu_count() or 1))
    affinity = parse_cores(allowed[1]) if allowed else online
    scaling = "/sys/devices/system/cpu/cpu0/cpufreq"
    max_khz = files.read_int(f"{scaling}/cpuinfo_max_freq")
    return {
        "model": model[1].strip() if model else files.read("/sys/firmware/devicetree/base/model"),
        "architecture": platform.machine(),
        "mhz": round(sum(clocks) / len(clocks), 1) if clocks else None,
        "max_mhz": None if max_khz is None else max_khz / 1000,
        "governor": files.read(f"{scaling}/scaling_governor"),
        "is_virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE)) if text else None,
        "online": len(online),
        "physical": len(set(zip(packages, cores, strict=False))) or None,
        "affinity": affinity,
        "usable": count_usable(len(affinity), group.quota_cores()),
    }


def _describe_nodes(files: SystemFiles) -> list[dict[str, Any]]:
    nodes = []
    names = files.list_folder("/sys/devices/system/node")
    for number in sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)):
        folder, memory = f"/sys/devices/system/node/node{number}", {}
        for line in (files.read(f"{folder}/meminfo") or "").splitlines():
            if found := re.fullmatch(r"Node \d+ (\w+):\s+(\d+) kB", line.strip()):
                memory[found[1]] = 1024 * int(found[2])
        node = {"node": number, "cores": parse_cores(files.read(f"{folder}/cpulist"))}
        nodes.append({**node, "memory_bytes": memory.get("MemTotal"), "free_bytes": memory.get("MemFree")})
    return nodes


def _describe_load(files: SystemFiles, before: tuple[float, float] | None) -> dict[str, float | None]:
    times, after = ProcessorTimes.read(files), _read_busy(files)
    average = re.match(r"[0-9.]+", files.read("/proc/loadavg") or "")
    others = None
    if before is not None and after is not None:
        others = round(max(0.0, (after[0] - before[0]) / (after[1] - before[1])), 2)
    return {
        "average_1_min": float(average[0]) if average else None,
        "others_cores": others,
        "stolen": None if times is None else round(times.stolen_s / max(times.all_s, 1e-9), 4),
    }


def _read_busy(files: SystemFiles) -> tuple[float, float] | None:
    """Seconds that other programs than this one and its child processes have computed up to now, and the time."""
    times, now_s, pid = ProcessorTimes.read(files), time.perf_counter_ns() / 1e9, os.getpid()
    if times is None:
        return None
    counters = (ProcessCounters.read(files, each) for each in (pid, *list_children(files, pid)))
    return times.busy_s - sum(own.cpu_ns for own in counters if own is not None) / 1e9, now_s


def _describe_memory(files: SystemFiles, group: ControlGroup) -> dict[str, Any]:
    pairs = files.read_pairs("/proc/meminfo")
    total, limit = pairs.get("MemTotal"), group.memory_limit()
    huge = re.search(r"\[(\w+)\]", files.read("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {
        "total_bytes": total,
        "usable_bytes": min((size for size in (total, limit) if size is not None), default=None),
        "available_bytes": pairs.get("MemAvailable"),
        "page_cache_bytes": pairs["Cached"] + pairs.get("Buffers", 0) - pairs.get("Shmem", 0)
        if "Cached" in pairs
        else None,
        "swap_used_bytes": pairs["SwapTotal"] - pairs.get("SwapFree", 0) if "SwapTotal" in pairs else None,
        "huge_pages": huge[1] if huge else None,
    }


def _describe_limits(files: SystemFiles) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for line in (files.read("/proc/self/limits") or "").splitlines():
        for title, name in _LIMITS.items():
            if line.startswith(title):
                soft = line[len(title) :].split()[0]
                limits[name] = int(soft) if soft.isdecimal() else None
    return limits


def _list_versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    for package, name in PACKAGES.items():
        version = getattr(sys.modules.get(name), "__version__", None)  # what is imported is what counts
        try:
            versions[package] = str(version or importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _describe_threads() -> dict[str, Any]:
    environment = {name: value for name, value in sorted(os.environ.items()) if _THREAD_VARIABLES.fullmatch(name)}
    threads: dict[str, Any] = {"environment": environment}
    for module, function in (("torch", "get_num_threads"), ("cv2", "getNumThreads")):
        count = getattr(sys.modules.get(module), function, None)
        threads[module] = None if count is None else count()
    return threads
