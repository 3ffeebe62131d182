"""Packages that the machine lacks: wheels that were carried along, unpacked beside those that are there.

A package that the machine has stays: its torch, NumPy and CUDA fit together. penstock is always the carried one, and so
are NVIDIA's libraries of codecs, which DALI's find beside each other.
Nothing is downloaded, and pip is not needed: a wheel is an archive of the folder that it is installed to.
"""

from __future__ import annotations

import re
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

__all__ = ["unpack_missing", "wheel_name"]

ALWAYS: Final = ("penstock-data", "nvidia-")
"""Beginnings of names."""


def unpack_missing(wheels: Path, target: Path) -> list[str]:
    """Unpack the wheels of a folder whose package is not installed, and penstock's; return what was unpacked.

    Parameters
    ----------
    wheels : Path
        A folder of wheels, of one version each.
    target : Path
        The folder to put first on ``PYTHONPATH``.

    Returns
    -------
    list of str
        Names and versions.
    """
    target.mkdir(parents=True, exist_ok=True)
    unpacked = []
    for wheel in sorted(wheels.glob("*.whl")) if wheels.is_dir() else []:
        name, release = wheel_name(wheel)
        if not name.startswith(ALWAYS) and _is_installed(name):
            continue
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
        _move_parts(target)
        unpacked.append(f"{name} {release}")
    return unpacked


def wheel_name(wheel: Path) -> tuple[str, str]:
    """Name, as in requirements, and version of a wheel's package."""
    name, release = wheel.name.split("-")[:2]
    return re.sub(r"[-_.]+", "-", name).lower(), release


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _move_parts(target: Path) -> None:
    """Wheels may have ``NAME.data/purelib`` and ``platlib``, whose content belongs beside it."""
    for part in (*target.glob("*.data/purelib"), *target.glob("*.data/platlib")):
        for path in sorted(part.rglob("*")):
            moved = target / path.relative_to(part)
            if path.is_dir():
                moved.mkdir(exist_ok=True)
            else:
                path.replace(moved)
