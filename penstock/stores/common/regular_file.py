"""Opens the files of a store: regular files only, without waiting.

A store may come from an archive of unknown origin that contains FIFOs, devices and symbolic links. Opening a FIFO waits
for a writer, and reading a device may never end. Every file of a store is therefore opened here, or with these checks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

__all__ = ["has_magic", "open_regular"]


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor, which child programs do not inherit.

    Parameters
    ----------
    path : str or Path
        The file.
    flags : int
        As for :func:`os.open`. A file that is to be written should be opened with ``os.O_NOFOLLOW``.

    Raises
    ------
    OSError
        If it cannot be opened, or is not a regular file.
    """
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(
                errno.ELOOP, "it is a symbolic link, and links are not followed to write", str(path)
            ) from error
        raise
    try:
        is_regular = stat.S_ISREG(os.fstat(file).st_mode)
    except BaseException:
        os.close(file)
        raise
    if not is_regular:
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def has_magic(path: str | Path, magic: bytes, offsets: Sequence[int] = (0,)) -> bool:
    """Whether a path is a regular file that has ``magic`` at one of the offsets; False if it cannot be read."""
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            return any(os.pread(file.fileno(), len(magic), offset) == magic for offset in offsets)
    except OSError:
        return False
