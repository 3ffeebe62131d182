"""What a machine gives a training script: cores and their speed, memory, disks, limits, versions.

Called by the doctor once for each script. Files of the kernel may be missing; nothing is started, and no library is
imported for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from penstock.doctor.machine.disks import describe_disk, measure_space
from penstock.doctor.machine.process_counters import list_children, read_counters
from penstock.doctor.machine.system_counters import ProcessorTimes
from penstock.system import core_numbers
from penstock.system.control_group import ControlGroup, count_usable_cores, find_control_group
from penstock.system.system_files import SystemFiles

__all__ = ["PACKAGES", "describe_machine", "describe_memory", "describe_processor", "measure_speed"]

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
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "locked_bytes": resource.RLIMIT_MEMLOCK,
    "address_space_bytes": resource.RLIMIT_AS,
}
_LOOPS: Final = 50_000
_REPETITIONS: Final = 5


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
            See :func:`measure_speed`.
        ``control_group``
            See :meth:`~penstock.system.control_group.ControlGroup.describe`.
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
            See :func:`~penstock.doctor.machine.disks.describe_disk`; one for each of ``paths``.
        ``versions``
            Of Python, of the kernel, and of packages that are installed.
        ``threads``
            ``environment``: variables that set numbers of threads, or change allocation; ``torch``, ``cv2``: threads of
            these libraries, where they are imported.
    """
    files = SystemFiles() if files is None else files
    group = find_control_group(files)
    memory = describe_memory(files, group)
    before = _read_busy(files)
    available = files.read_pairs("/proc/meminfo").get("MemAvailable", 1 << 31)
    speed = measure_speed(1 << 26 if available > 1 << 30 else 1 << 23)
    return {
        "processor": describe_processor(files),
        "speed": speed,
        "control_group": group.describe(),
        "load": _describe_load(files, before),
        "memory": memory,
        "shm": measure_space(files.find("/dev/shm")),  # noqa: S108  # it is only measured
        "limits": {name: _read_limit(number) for name, number in _LIMITS.items()},
        "disks": [describe_disk(files, path) for path in paths],
        "versions": _list_versions(),
        "threads": _describe_threads(),
    }


def describe_processor(files: SystemFiles) -> dict[str, object]:
    """Make the part ``processor`` of :func:`describe_machine`."""
    text = files.read("/proc/cpuinfo") or ""
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)]
    packages, cores = (re.findall(rf"^{name} id\s*:\s*(\d+)$", text, re.MULTILINE) for name in ("physical", "core"))
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    scaling = "/sys/devices/system/cpu/cpu0/cpufreq"
    max_khz = files.read_int(f"{scaling}/cpuinfo_max_freq")
    return {
        "model": model[1].strip() if model else files.read("/sys/firmware/devicetree/base/model"),
        "architecture": platform.machine(),
        "mhz": round(sum(clocks) / len(clocks), 1) if clocks else None,
        "max_mhz": None if max_khz is None else max_khz / 1000,
        "governor": files.read(f"{scaling}/scaling_governor"),
        "is_virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE)) if text else None,
        "online": os.cpu_count(),
        "physical": len(set(zip(packages, cores, strict=False))) or None,
        "affinity": core_numbers(),
        "usable": count_usable_cores(files),
    }


def _describe_load(files: SystemFiles, before: tuple[float, float] | None) -> dict[str, float | None]:
    times, after = ProcessorTimes.read(files), _read_busy(files)
    others = None
    if before is not None and after is not None:
        others = round(max(0.0, (after[0] - before[0]) / (after[1] - before[1])), 2)
    return {
        "average_1_min": os.getloadavg()[0],
        "others_cores": others,
        "stolen": None if times is None else round(times.stolen_s / max(times.all_s, 1e-9), 4),
    }


def _read_busy(files: SystemFiles) -> tuple[float, float] | None:
    """Seconds that other programs than this one and its child processes have computed up to now, and the time."""
    times, now_s, pid = ProcessorTimes.read(files), time.perf_counter_ns() / 1e9, os.getpid()
    if times is None:
        return None
    found = (read_counters(files, each) for each in (pid, *list_children(files, pid)))
    return times.busy_s - sum(each[1]["cpu_ns"] for each in found if each is not None) / 1e9, now_s


def describe_memory(files: SystemFiles, group: ControlGroup) -> dict[str, object]:
    """Make the part ``memory`` of :func:`describe_machine`."""
    pairs = files.read_pairs("/proc/meminfo")
    total, limit = pairs.get("MemTotal"), group.memory_limit()
    huge = re.search(r"\[(\w+)\]", files.read("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {
        "total_bytes": total,
        "usable_bytes": min((size for size in (total, limit) if size is not None), default=None),
        "available_bytes": pairs.get("MemAvailable"),
        "page_cache_bytes": pairs.get("Cached", 0) + pairs.get("Buffers", 0) - pairs.get("Shmem", 0),
        "swap_used_bytes": pairs["SwapTotal"] - pairs.get("SwapFree", 0) if "SwapTotal" in pairs else None,
        "huge_pages": huge[1] if huge else None,
    }


def _read_limit(number: int) -> int | None:
    soft = resource.getrlimit(number)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _list_versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    for package, name in PACKAGES.items():
        version = getattr(sys.modules.get(name), "__version__", None)  # what is imported is what counts
        try:
            versions[package] = str(version or importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _describe_threads() -> dict[str, object]:
    environment = {name: value for name, value in sorted(os.environ.items()) if _THREAD_VARIABLES.fullmatch(name)}
    threads: dict[str, object] = {"environment": environment}
    for module, function in (("torch", "get_num_threads"), ("cv2", "getNumThreads")):
        count = getattr(sys.modules.get(module), function, None)
        threads[module] = None if count is None else count()
    return threads


def measure_speed(copy_bytes: int = 1 << 26) -> dict[str, float]:
    """Measure this machine; takes about 0.2 s.

    Processor time of the calling thread counts, and the best of five runs, so that other programs change little.

    Parameters
    ----------
    copy_bytes : int
        Size of the block that is copied; more than the caches hold.

    Returns
    -------
    dict of str to float
        ``python_loops_per_us``: turns of a loop of Python integers; it depends on the version of Python.
        ``compressed_mb_per_s``: DEFLATE of fixed bytes, native code of branches and small tables, as decoders are.
        ``memory_gb_per_s``: bytes copied by one core from memory to memory.
    """
    words = np.random.default_rng(0).integers(0, 24, 1 << 17).astype(np.uint8).tobytes()
    source = np.ones(copy_bytes, np.uint8)
    target = np.zeros_like(source)
    target[:] = 1  # the pages are there before the first run
    return {
        "python_loops_per_us": 1000 * _LOOPS / _time_best(_loop),
        "compressed_mb_per_s": 1000 * len(words) / _time_best(lambda: zlib.compress(words, 1)),
        "memory_gb_per_s": copy_bytes / _time_best(lambda: np.copyto(target, source)),
    }


def _loop() -> None:
    total = 0
    for number in range(_LOOPS):
        total = (total * 31 + number) & 0xFFFF


def _time_best(work: Callable[[], object]) -> float:
    """Nanoseconds of the fastest run."""
    times = []
    for _ in range(_REPETITIONS):
        start = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - start)
    return max(1, min(times))
