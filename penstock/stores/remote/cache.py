"""The folder in which copies of remote objects are kept, of all processes of this machine.

::

    folder/<hash of URL and version>/photos.lmdb/data.mdb           the copy: a sparse file
                                     photos.lmdb/data.mdb.pages     the hash of each page that it has, else 0
                                     about.json                     URL, version, size

What a run has once is kept until the folder is full; then pages are no longer added, and copies of other stores that
nobody has opened for longest are deleted. A page that is kept is not replaced by another of the same store: with the
fraction c of a store in the folder, each epoch finds the fraction c there, in whatever order it reads (an LRU of the
same size would find c + (1 - c) ln(1 - c)).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from penstock import paths
from penstock.errors import ArgumentError, StoreError
from penstock.stores.common.regular_file import remove_tree, replacing_file
from penstock.stores.location import cache_folder

__all__ = ["CacheFolder", "check_folder", "delete_copies", "delete_older", "list_copies", "parse_size"]

_COUNT_SECONDS: Final = 5.0
IN_USE_SECONDS: Final = 24 * 3600
"""Copies of a store that was not opened for so long make room for others."""
DEFAULT_NBYTES: Final = 50 * 10**9
FREE_NBYTES: Final = 10**9
"""Bytes of the disk that are left free, whatever the limit of the folder."""


def check_folder(given: object) -> str | None:
    """Return the path of a folder; ArgumentError for what is none."""
    if given is None or isinstance(given, str | os.PathLike):
        return None if given is None else os.fsdecode(given)
    raise ArgumentError(f"cache must be the path of a folder, got {type(given).__name__}")


def parse_size(given: object) -> int:
    """Bytes of the cache: ``"200GB"``, ``"500 MB"`` or a number; ArgumentError for what is none of these."""
    return DEFAULT_NBYTES if given is None else paths.parse_size(given, "cache_size")


class CacheFolder:
    """A folder of copies, with a limit. Any number of processes use one at once; nothing is locked.

    Parameters
    ----------
    path : path, optional
        By default ``remote`` in penstock's folder of the user's cache.
    max_nbytes : int
        What all copies together may take.
    """

    def __init__(self, path: str | os.PathLike[str] | None, max_nbytes: int) -> None:
        self.path = Path(path).expanduser().absolute() if path else cache_folder() / "remote"
        self.max_nbytes = max_nbytes
        self._lock = threading.Lock()
        self._counted = -_COUNT_SECONDS
        self._nbytes = self._limit = 0

    @staticmethod
    def share(path: str | os.PathLike[str] | None, max_nbytes: int) -> CacheFolder:
        """The one of this process that is in use with these arguments, so that a thousand shards are counted once."""
        made = CacheFolder(path, max_nbytes)
        return _shared.setdefault((made.path, max_nbytes), made)

    def locate_folder(self, url: str, version: str) -> Path:
        """The folder of one version of a store, which may not exist."""
        return self.path / hashlib.blake2b(f"{url}\0{version}".encode(), digest_size=16).hexdigest()

    def make_folder(self, url: str, version: str) -> Path:
        """The folder of one version of a store, which is made, and marked as in use."""
        folder = self.locate_folder(url, version)
        if folder.is_symlink():
            raise StoreError(f"{folder} is a symbolic link, and links are not followed to write; remove it", store=url)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for last in (False, False, True):
                try:
                    _mark_used(folder, url, version)
                    break
                except FileNotFoundError:  # another process deletes it at this moment, as one that nobody used
                    if last:
                        raise
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(
                f"the cache folder {self.path} cannot be written ({error.strerror}); cache= names another", store=url
            ) from error
        return folder

    def admit(self, nbytes: int, folder: Path) -> bool:
        """Return whether that much more may be written to a copy in ``folder``; it is counted as written."""
        with self._lock:
            if time.monotonic() - self._counted > _COUNT_SECONDS:
                self._count()
            if self._nbytes + nbytes > self._limit and not self._make_room(nbytes, folder):
                return False
            self._nbytes += nbytes
            return True

    def close(self) -> None:
        """Write nothing more in this process: the disk is full, or broken."""
        self.max_nbytes = self._limit = 0

    def _count(self) -> None:
        """Measure what the copies take, and what more they may take."""
        self._nbytes, self._counted = _measure(self.path), time.monotonic()
        try:
            free = shutil.disk_usage(self.path).free
        except OSError:
            free = -self._nbytes
        self._limit = min(self.max_nbytes, self._nbytes + free - FREE_NBYTES)

    def _make_room(self, nbytes: int, folder: Path) -> bool:
        """Delete copies that were not opened for a day, the oldest first. Who still has one open keeps its bytes."""
        for used_s, each in sorted(list_copies(self.path)):
            if each == folder or time.time() - used_s < IN_USE_SECONDS:
                continue
            delete_copies(each)
            self._count()
            if self._nbytes + nbytes <= self._limit:
                return True
        return False


_shared: WeakValueDictionary[tuple[Path, int], CacheFolder] = WeakValueDictionary()


def list_copies(folder: Path) -> list[tuple[float, Path]]:
    """The folders of copies in a cache folder, each with the second (since 1970) in which it was opened last.

    Those that another process deletes meanwhile are left out.
    """
    found = []
    with contextlib.suppress(FileNotFoundError):
        for about in folder.glob("*/about.json"):
            with contextlib.suppress(OSError):
                found.append((about.stat().st_mtime, about.parent))
    return found


def delete_copies(folder: Path) -> None:
    """Delete a folder of copies: at once for whoever opens the store now, who makes another one."""
    doomed = folder.with_name(f"{folder.name[:32]}.{uuid.uuid4().hex}.deleted")
    with contextlib.suppress(OSError):  # another process deletes it, too
        folder.rename(doomed)
        remove_tree(doomed)


def delete_older(file: Path, pattern: str) -> None:
    """Mark a copy as in use, and delete others of its folder that fit a pattern and were not opened for a day."""
    table = Path(f"{file}.pages")
    with contextlib.suppress(OSError):  # another process deletes them, too
        os.utime(table)
        for each in file.parent.glob(f"{pattern}.pages"):
            if each != table and time.time() - each.stat().st_mtime >= IN_USE_SECONDS:
                each.with_suffix("").unlink(missing_ok=True)
                each.unlink(missing_ok=True)


def _mark_used(folder: Path, url: str, version: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_owner(folder, url)
    if not (folder / "about.json").exists():
        with replacing_file(folder / "about.json") as file:  # other processes may do so at once
            file.write(json.dumps({"url": url, "version": version}).encode())
    os.utime(folder / "about.json")


def _check_owner(folder: Path, url: str) -> None:
    """Have the folder of a store's copies belong to this user, and nobody else read it."""
    about = folder.stat()
    if about.st_uid not in {os.geteuid(), 0} and os.geteuid():
        raise StoreError(
            f"{folder} belongs to another user, whose copies are not trusted; cache= names a folder of your own",
            store=url,
        )
    if about.st_mode & 0o077:
        folder.chmod(0o700)


def _measure(folder: Path) -> int:
    """Return the bytes that files below a folder take on the disk."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_blocks * 512  # noqa: PTH116, PTH118  # thousands of them
            except OSError:
                continue  # deleted in between
    return total
