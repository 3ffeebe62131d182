"""What penstock asks of the operating system: cores, memory, and that a forked child shares no lock with its parent.

This is the one place that knows Linux from another system; limits of a control group are read by
:mod:`penstock.system.control_group`.

Other systems lack ``/proc``, memory files and the affinity of processes. Importing, packing, decoding, and loading
without workers or with threads need none of these: the functions here have another way. Worker processes do need them,
and :func:`require_worker_processes` says so before one starts. The doctor reads ``/proc`` by
:mod:`penstock.system.system_files`, where any file may be missing.

A lock that another thread holds at the moment of a fork stays locked for ever in the child, which does not have that
thread. A file descriptor is shared with the parent, and with it the locks of its file. An object that has either calls
:func:`watch` when it is made; its ``renew_in_child`` is called in each forked child before other code runs there.

A library with threads of its own may not work in a forked child at all: its threads are missing there, and the memory
that they shared is as they left it. :func:`note_use` remembers that such a library was used. JAX, which penstock
does not import, is one as soon as it has a device.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import WorkerError

__all__ = [
    "Renewable",
    "core_numbers",
    "libraries_without_fork",
    "memory_file",
    "note_use",
    "open_descriptor_of",
    "require_worker_processes",
    "used_before_fork",
    "watch",
]

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
    """Return a descriptor of what another process has open as ``fd``.

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


# ------------------------------------------------------------------------------------------------ forks


class Renewable(Protocol):
    """An object that must not share everything with its copy in a forked child."""

    def renew_in_child(self) -> None:
        """Replace what the child must not share with its parent; fast, and never raises."""
        ...


_watched: weakref.WeakSet[Renewable] = weakref.WeakSet()


def watch(owner: Renewable) -> None:
    """Have ``owner.renew_in_child()`` called in each forked child, as long as ``owner`` is alive."""
    _watched.add(owner)


_users: dict[str, int] = {}
"""Libraries that do not support fork, and the process that used each first."""


def note_use(library: str) -> None:
    """Remember that this process uses a library that does not work in its forked children."""
    _users.setdefault(library, os.getpid())


def used_before_fork(library: str) -> bool:
    """Return whether this process was forked from one that had used the library."""
    return _users.get(library, os.getpid()) != os.getpid()


def libraries_without_fork() -> list[str]:
    """Return the libraries that this process uses and that its forked children cannot use."""
    users = [library for library, process in _users.items() if process == os.getpid()]
    has_devices = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    return [*users, "JAX"] if has_devices else users


def _renew_all() -> None:
    for owner in list(_watched):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
