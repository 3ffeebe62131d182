"""What penstock asks of the operating system beyond POSIX: the one place that knows Linux from another system.

Other systems lack ``/proc``, memory files and the affinity of processes. Importing, packing, decoding, and loading
without workers or with threads need none of these: the functions here have another way. Worker processes do need them,
and :func:`require_worker_processes` says so before one starts. The doctor reads ``/proc`` by
:mod:`penstock.doctor.machine.system_files`, where any file may be missing.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.errors import WorkerError

__all__ = ["core_numbers", "count_cores", "memory_file", "open_descriptor_of", "require_worker_processes"]

_LARGE: Final = 64 << 20
"""Bytes above which a request is compared with the memory that is available."""


def require_worker_processes() -> None:
    """Raise a WorkerError where workers cannot be processes: only Linux shares memory with them as they need it."""
    if sys.platform != "linux":
        raise WorkerError(
            f"worker processes need Linux, and this is {sys.platform}; use workers='threads', or num_workers=0"
        )


def core_numbers() -> list[int]:
    """Numbers of the cores that this process may use; all, where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count_cores() -> int:
    """The cores that this process may use."""
    return len(core_numbers())


def memory_file(name: str, nbytes: int) -> int:
    """A descriptor of ``nbytes`` of zeroed memory without a name in any file system; its pages are reserved.

    Without memory files, it is a temporary file that is deleted already.

    Raises
    ------
    OSError
        If there is not so much memory; without the reservation, a signal would end the process when it is written.
    """
    if nbytes > _LARGE and nbytes > _available_nbytes():  # or reserving the pages gets a process killed
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, nbytes)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_descriptor_of(process: int, fd: int) -> int:
    """A descriptor of what another process has open as ``fd``.

    Raises
    ------
    OSError
        If there is no such process or descriptor, if it is not readable here, or if this is not Linux.
    """
    return os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def _available_nbytes() -> int:
    """Bytes of memory that the system can provide now; 2**62 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        return 1 << 62
