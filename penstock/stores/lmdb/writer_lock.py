"""The lock of an unfinished pack: at most one process writes it. Called by the writer of packs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from penstock.errors import StoreError
from penstock.stores.common.regular_file import open_regular
from penstock.stores.lmdb.files import LOCK

__all__ = ["lock_pack"]


def lock_pack(folder: Path, url: str) -> tuple[int, str]:
    """Make the folder of a pack and lock it for this process.

    Returns
    -------
    int
        Descriptor of the lock file; closing it releases the lock.
    str
        The content of the lock file: the text of the origin of an unfinished pack, else empty.

    Raises
    ------
    StoreError
        If the folder cannot be written, or another process holds the lock.
    """
    path = folder / LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise StoreError(f"cannot write here: {error.filename}: {error.strerror}", store=url) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise StoreError(
                "another process is packing into this folder; wait for it, or stop it", store=url
            ) from error
        except OSError as error:
            os.close(file)
            raise StoreError(f"cannot lock {LOCK} here: {error.strerror}", store=url) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file, os.pread(file, 1024, 0).decode(errors="replace")
        os.close(file)  # the process that held the lock has finished and removed the file
