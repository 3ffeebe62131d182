"""What a machine gives a training script: cores, memory, disks, versions.

Called by the doctor once for each script. Files of the kernel may be missing; nothing is started, and no library is
imported for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from penstock.doctor.machine.disks import describe_disk
from penstock.system import core_numbers
from penstock.system.control_group import ControlGroup, count_usable_cores, find_control_group
from penstock.system.system_files import SystemFiles

__all__ = ["PACKAGES", "describe_machine", "describe_memory", "describe_processor"]

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


def describe_machine(
    paths: Iterable[str | os.PathLike[str]] = (), *, files: SystemFiles | None = None
) -> dict[str, Any]:
    """Describe this machine, and what this process may use of it.

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
            ``model``, ``architecture``, ``online`` (cores of the machine), ``affinity`` (numbers of those that this
            process may use), ``usable`` (how many it may keep busy, quota included).
        ``control_group``
            See :meth:`~penstock.system.control_group.ControlGroup.describe`.
        ``load``
            ``average_1_min``.
        ``memory``
            ``total_bytes``, ``usable_bytes`` (the group's limit included), ``available_bytes``.
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
    return {
        "processor": describe_processor(files),
        "control_group": group.describe(),
        "load": {"average_1_min": os.getloadavg()[0]},
        "memory": describe_memory(files, group),
        "disks": [describe_disk(files, path) for path in paths],
        "versions": _list_versions(),
        "threads": _describe_threads(),
    }


def describe_processor(files: SystemFiles) -> dict[str, object]:
    """Make the part ``processor`` of :func:`describe_machine`."""
    text = files.read("/proc/cpuinfo") or ""
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return {
        "model": model[1].strip() if model else files.read("/sys/firmware/devicetree/base/model"),
        "architecture": platform.machine(),
        "online": os.cpu_count(),
        "affinity": core_numbers(),
        "usable": count_usable_cores(files),
    }


def describe_memory(files: SystemFiles, group: ControlGroup) -> dict[str, object]:
    """Make the part ``memory`` of :func:`describe_machine`."""
    pairs = files.read_pairs("/proc/meminfo")
    total, limit = pairs.get("MemTotal"), group.memory_limit()
    return {
        "total_bytes": total,
        "usable_bytes": min((size for size in (total, limit) if size is not None), default=None),
        "available_bytes": pairs.get("MemAvailable"),
    }


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
