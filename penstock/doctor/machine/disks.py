"""Which file system a path is on, and which disk is below it: ``/proc/self/mountinfo`` and ``/sys``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.system.system_files import SystemFiles

__all__ = ["Mount", "describe_disk", "find_mount", "measure_space"]

_NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|ceph|lustre|gpfs|beegfs|afs|glusterfs|ocfs2|gfs2|orangefs|pvfs2|panfs|wekafs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|goofys|rclone|mount-s3|juicefs|glusterfs|ceph.*|hf-mount|blobfuse2?|alluxio.*|weed.*)"
)
_DISK_FIELDS: Final = (
    "mount", "file_system", "source", "kind", "device", "is_rotational", "size_bytes", "free_bytes",
)  # fmt: skip
_KINDS: Final = {
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), "memory"),
    **dict.fromkeys(("overlay", "aufs", "unionfs"), "layers"),
}


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    point: str  # where it is mounted
    file_system: str  # its type, such as "ext4" or "nfs4"
    source: str  # the device, or the address of a server
    device: str  # ``major:minor``

    @property
    def kind(self) -> str:
        """One of "disk", "network", "fuse", "memory" and "layers" (of a container)."""
        if _NETWORK.fullmatch(self.file_system):
            return "network"
        if self.file_system.startswith("fuse") and self.file_system != "fuseblk":
            return "fuse"
        return _KINDS.get(self.file_system, "disk")


def find_mount(files: SystemFiles, path: str) -> Mount | None:
    """Return the mount that an absolute path is on; of several at one point the newest, which hides the others."""
    best = None
    for line in (files.read("/proc/self/mountinfo") or "").splitlines():
        first, separator, last = line.partition(" - ")
        words, rest = first.split(" "), last.split(" ")
        if separator and len(words) >= 6 and len(rest) >= 2:
            mount = Mount(_unescape(words[4]), rest[0], _unescape(rest[1]), words[2])
            is_above = f"{path}/".startswith(f"{mount.point.rstrip('/')}/")
            if is_above and (best is None or len(mount.point) >= len(best.point)):
                best = mount
    return best


def describe_disk(files: SystemFiles, path: str | os.PathLike[str]) -> dict[str, object]:
    """Return where the files of ``path`` are.

    Returns
    -------
    dict
        ``path``; ``mount``, ``file_system``, ``source``, ``kind`` (:attr:`Mount.kind`); ``device``, the name of the
        disk; ``is_rotational``; ``size_bytes`` and ``free_bytes``. None for what is unknown.
    """
    real = os.path.realpath(path)
    mount = find_mount(files, real)
    found: dict[str, object] = {"path": os.fspath(path), **dict.fromkeys(_DISK_FIELDS)}
    if mount is None:
        return found
    found |= {"mount": mount.point, "file_system": mount.file_system, "kind": mount.kind}
    found["source"] = re.sub(r"//[^/@\s]*@", "//", mount.source)  # without a password
    device = _find_block_device(files, mount)
    if device is not None:
        found["device"] = Path(device).name
        found["is_rotational"] = _is_rotational(files, device)
    return found | measure_space(real)


def measure_space(path: str) -> dict[str, int | None]:
    """Size of a file system, and how much of it is free."""
    try:
        space = os.statvfs(path)
    except OSError:
        return {"size_bytes": None, "free_bytes": None}
    return {"size_bytes": space.f_frsize * space.f_blocks, "free_bytes": space.f_frsize * space.f_bavail}


def _find_block_device(files: SystemFiles, mount: Mount) -> str | None:
    """Return the folder of the whole disk below a mount, such as ``/sys/block/sda``; None if there is none."""
    if mount.kind != "disk":
        return None
    # A file system of several devices (btrfs) has a number of its own; its source names one of them.
    for link in (f"/sys/dev/block/{mount.device}", f"/sys/class/block/{Path(mount.source).name}"):
        if files.exists(link):
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
