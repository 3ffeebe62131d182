"""Keeps compiled kernels in the user's cache folder, and returns those that are whole and that only the user can write.

::

    ~/.cache/penstock/kernels/sm_90-<digest of what was compiled>.cubin      SHA-256 of the rest, 32 bytes; the code

A file is written beside its name and then renamed, so that no other process reads a part of it. Where nothing can be
read or written, each process compiles. A file that is damaged, or that another user can write, is compiled again and
replaced: a driver runs what it is given.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

from penstock.stores.common.regular_file import open_regular, replacing_file

__all__ = ["find_cache_folder", "read_cached", "write_cached"]

_logger = logging.getLogger(__name__)

_DIGEST_NBYTES: Final = 32

_WRITABLE_BY_OTHERS: Final = 0o022


def find_cache_folder() -> Path | None:
    """Return the folder of compiled kernels, which need not exist; None if the user has no home directory."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or Path.home() / ".cache") / "penstock" / "kernels"
    except RuntimeError:
        return None


def read_cached(path: Path) -> bytes | None:
    """Return the code that :func:`write_cached` wrote; None if there is none, or none that may be loaded."""
    try:
        _check_folder(path.parent)
        with os.fdopen(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            _check_owner(os.fstat(file.fileno()), path)
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        _logger.info("compiled kernels are not loaded: %s", error)
        return None
    code = content[_DIGEST_NBYTES:]
    if hashlib.sha256(code).digest() != content[:_DIGEST_NBYTES]:
        _logger.info("%s is damaged; the kernels are compiled again", path)
        return None
    return code


def write_cached(path: Path, code: bytes) -> None:
    """Keep code for :func:`read_cached`, if that is possible."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folder(path.parent)
        with replacing_file(path) as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask is
            file.write(hashlib.sha256(code).digest() + code)
    except OSError as error:
        _logger.info("the compiled kernels are not kept: %s", error)


def _check_folder(folder: Path) -> None:
    """Have a folder belong to this user, and let nobody else write to it.

    Raises
    ------
    OSError
        If it belongs to another user, or does not exist.
    """
    found = folder.stat()
    if found.st_uid == os.geteuid() and found.st_mode & _WRITABLE_BY_OTHERS:
        folder.chmod(found.st_mode & 0o755)
        found = folder.stat()
    _check_owner(found, folder)


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(f"{path} belongs to another user, or others may write to it")
