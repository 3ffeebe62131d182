"""Which file system a path is on, and which disk is below it: ``/proc/self/mountinfo`` and ``/sys``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.doctor.machine.system_files import SystemFiles

__all__ = ["Mount", "describe_disk", "find_block_device", "find_mount", "measure_space", "read_mounts"]

_NETWORK: Final = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "ocfs2",
        "gfs2", "orangefs", "pvfs2", "panfs", "wekafs",
    )
)  # fmt: skip
_NETWORK_FUSE: Final = re.compile(
    r"fuse\.(sshfs|s3fs|gcsfuse|goofys|rclone|mount-s3|juicefs|glusterfs|ceph.*|hf-mount|blobfuse2?|alluxio.*|weed.*)"
)
_DISK_FIELDS: Final = (
    "mount", "file_system", "source", "kind", "device", "is_rotational", "read_ahead_bytes", "size_bytes", "free_bytes",
)  # fmt: skip
_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_LAYERED: Final = frozenset({"overlay", "aufs", "unionfs"})


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``.

    Parameters
    ----------
    point : str
        Where it is mounted.
    root : str
        Which folder of the file system is seen there.
    file_system : str
        Its type, such as "ext4" or "nfs4".
    source : str
        The device, or the address of a server.
    device : str
        ``major:minor``.
    options : tuple of str
        Those of the file system itself.
    """

    point: str
    root: str
    file_system: str
    source: str
    device: str
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One of "disk", "network", "fuse", "memory" and "layers" (of a container)."""
        if self.file_system in _NETWORK or _NETWORK_FUSE.fullmatch(self.file_system):
            return "network"
        if self.file_system.startswith("fuse") and self.file_system != "fuseblk":
            return "fuse"
        if self.file_system in _MEMORY:
            return "memory"
        return "layers" if self.file_system in _LAYERED else "disk"


def read_mounts(files: SystemFiles) -> list[Mount]:
    """All mounts, in the order in which they were made."""
    mounts = []
    for line in (files.read("/proc/self/mountinfo") or "").splitlines():
        first, separator, last = line.partition(" - ")
        words, rest = first.split(" "), last.split(" ")
        if separator and len(words) >= 6 and len(rest) >= 2:
            options = tuple(rest[2].split(",")) if len(rest) > 2 else ()
            mounts.append(
                Mount(_unescape(words[4]), _unescape(words[3]), rest[0], _unescape(rest[1]), words[2], options)
            )
    return mounts


def find_mount(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount that an absolute path is on; of several at one point the newest, which hides the others."""
    best = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (
            best is None or len(point) >= len(best.point.rstrip("/"))
        ):
            best = mount
    return best


def describe_disk(files: SystemFiles, mounts: Iterable[Mount], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Where the files of ``path`` are.

    Returns
    -------
    dict
        ``path``; ``mount``, ``file_system``, ``source``, ``kind`` (:attr:`Mount.kind`); ``device``, the name of the
        disk; ``is_rotational``; ``read_ahead_bytes``; ``size_bytes`` and ``free_bytes``. None for what is unknown.
    """
    real = os.path.realpath(path)
    mount = find_mount(mounts, real)
    found: dict[str, Any] = {"path": os.fspath(path), **dict.fromkeys(_DISK_FIELDS)}
    if mount is None:
        return found
    found |= {"mount": mount.point, "file_system": mount.file_system, "kind": mount.kind}
    found["source"] = _hide_password(mount.source)
    read_ahead_kb = files.read_int(f"/sys/class/bdi/{mount.device}/read_ahead_kb")
    device = find_block_device(files, mount)
    if device is not None:
        found["device"] = Path(device).name
        found["is_rotational"] = _is_rotational(files, device)
        read_ahead_kb = read_ahead_kb or files.read_int(f"{device}/queue/read_ahead_kb")
    found["read_ahead_bytes"] = None if read_ahead_kb is None else 1024 * read_ahead_kb
    return found | measure_space(real)


def measure_space(path: str) -> dict[str, int | None]:
    """Size of a file system, and how much of it is free."""
    try:
        space = os.statvfs(path)
    except OSError:
        return {"size_bytes": None, "free_bytes": None}
    return {"size_bytes": space.f_frsize * space.f_blocks, "free_bytes": space.f_frsize * space.f_bavail}


def find_block_device(files: SystemFiles, mount: Mount) -> str | None:
    """The folder of the whole disk below a mount, such as ``/sys/block/sda``; None if there is none."""
    if mount.kind != "disk":
        return None
    # A file system of several devices (btrfs) has a number of its own; its source names one of them.
    for link in (f"/sys/dev/block/{mount.device}", f"/sys/class/block/{Path(mount.source).name}"):
        if not files.exists(link):
            continue
        folder = Path(files.find(link)).resolve()
        return f"/sys/block/{folder.parent.name if (folder / 'partition').exists() else folder.name}"
    return None


def _is_rotational(files: SystemFiles, device: str) -> bool | None:
    rotational = files.read_int(f"{device}/queue/rotational")
    if rotational is None or (rotational and Path(device).name.startswith(("vd", "xvd"))):
        return None  # virtual disks say that they rotate, whatever is below them
    return bool(rotational)


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _hide_password(source: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", source)
