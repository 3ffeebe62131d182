"""What a report of a fault needs to know of an installation and its machine: ``penstock env``.

Versions are read from metadata, so that no library is imported. Nothing private is in it: no path, no name of a user or
a host, no value of a variable.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import multiprocessing
import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import Final

from penstock.doctor.machine.disks import measure_space
from penstock.doctor.machine.machine import PACKAGES, describe_memory, describe_processor
from penstock.system.control_group import find_control_group
from penstock.system.system_files import SystemFiles

__all__ = ["DISTRIBUTION", "describe_environment"]

DISTRIBUTION: Final = "penstock-data"


def describe_environment(files: SystemFiles | None = None) -> dict[str, dict[str, object]]:
    """Describe the installation and the machine.

    Parameters
    ----------
    files : SystemFiles, optional
        Reads the kernel's files.

    Returns
    -------
    dict
        Only numbers, text, lists and dicts; None for what cannot be known here.

        ``versions``
            ``penstock``, ``python``, and packages that penstock can use and that are installed, by distribution.
        ``absent``
            Under ``packages``: those that are not installed.
        ``python``
            ``implementation``, ``has_gil``, ``start_method`` (the default of multiprocessing).
        ``system``
            ``name`` (of the distribution), ``kernel``, ``libc``, ``cuda`` (of the installed torch), ``nvidia_driver``.
        ``processor``
            ``model``, ``architecture``, ``features`` (that the native core uses), ``online`` (cores of the machine),
            ``affinity`` (how many of them this process may use), ``quota_cores``, ``usable``.
        ``memory``
            ``total_bytes``, ``available_bytes``, ``limit_bytes`` (of the control group), ``shm_bytes``,
            ``shm_free_bytes``.
    """
    from penstock.transforms.decoding.native_pixels import list_processor_features

    files = SystemFiles() if files is None else files
    group = find_control_group(files)
    processor, memory = describe_processor(files), describe_memory(files, group)
    affinity = processor["affinity"]
    shm = measure_space(files.find("/dev/shm"))  # noqa: S108  # it is only measured
    versions, absent = _list_versions()
    return {
        "versions": versions,
        "absent": {"packages": absent},
        "python": {
            "implementation": platform.python_implementation(),
            "has_gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
            "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            "start_method": multiprocessing.get_all_start_methods()[0],
        },
        "system": {
            "name": _find_system_name(), "kernel": f"{platform.system()} {platform.release()}", "libc": _find_libc(),
            "cuda": _find_cuda(), "nvidia_driver": _find_driver(files),
        },
        "processor": {
            **{name: processor[name] for name in ("model", "architecture", "online", "usable")},
            "affinity": len(affinity) if isinstance(affinity, list) else None, "quota_cores": group.quota_cores(),
            "features": list_processor_features(),
        },
        "memory": {
            "total_bytes": memory["total_bytes"], "available_bytes": memory["available_bytes"],
            "limit_bytes": group.memory_limit(), "shm_bytes": shm["size_bytes"], "shm_free_bytes": shm["free_bytes"],
        },
    }  # fmt: skip


def _list_versions() -> tuple[dict[str, object], list[str]]:
    """Versions by distribution, and the distributions that are absent."""
    try:
        needs = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from its source
        needs = []
    names = [match[0].lower() for need in needs if (match := re.match(r"[\w.-]+", need))]
    names = sorted({*names, *PACKAGES} - {DISTRIBUTION})
    from penstock import __version__

    versions: dict[str, object] = {"penstock": __version__, "python": platform.python_version()}
    absent = []
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return versions, absent


def _find_system_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _find_libc() -> str | None:
    name, version = platform.libc_ver()
    if name:
        return f"{name} {version}"
    return "musl" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else None


def _find_cuda() -> str | None:
    """Return the version of CUDA that the installed torch was built for, by its file ``version.py``."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _find_driver(files: SystemFiles) -> str | None:
    found = re.search(r"(?:Module|x86_64|aarch64)\s+([\d.]+)\s", files.read("/proc/driver/nvidia/version") or "")
    return found[1] if found else None
