"""Decode indices of a dataset's images: taken from where they are kept, learned where they are not.

::

    store's own file (`penstock index`) ──┐
    cache file, if one is named ──────────┼──entries──> fill ──found──> cache file, else memory within a budget
    memory ───────────────────────────────┘

An index only says where decoding may begin: pixels are the same without one, and with a wrong one, which the decoder
notices. So nothing here ever fails a sample: what cannot be read, kept or locked, or does not fit, is told once, and
done without. Only a path that cannot be right is refused, when the dataset is made.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock import forks
from penstock.errors import ArgumentError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.base import Store
from penstock.stores.index_file import INDEX_KINDS, IndexFile, index_path
from penstock.transforms.chunk import Indexed

__all__ = ["MEMORY_NBYTES", "DecodeIndices"]

MEMORY_NBYTES: Final = 256 << 20
"""Most bytes that indices learned in memory take, by default: those of about 700,000 photographs of 500 x 375."""

_ENTRY_NBYTES: Final = 160
"""What an entry costs besides its content: objects and its place in a dict."""

_WRONG_PATH: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EACCES,
        errno.EPERM,
    }
)
"""What the system says of a path that is the caller's mistake; all else may pass, and is done without."""

_logger = logging.getLogger(__name__)


class DecodeIndices:
    """The decode indices of one field of a store.

    Parameters
    ----------
    store : Store
        Whose images.
    field : str
        Which of its fields.
    where : {"auto", "rows", "tiles"} or path
        "auto": the file beside the store, if it has one; else, and for what that lacks, memory. A kind:
        likewise, but a file of the other kind is left alone, and this one is learned ("auto" learns rows). A path: a
        cache file, made if it is not there.
    memory : int
        Most bytes that are learned in memory; 0: nothing is.

    Raises
    ------
    ArgumentError
        If the cache file belongs to other records, or there can be no file at its path; "none", which is no file. What
        may pass (a full disk, a file system without locks) is a warning, and indices are learned in memory.
    """

    def __init__(self, store: Store, field: str, where: str | os.PathLike[str], memory: int = MEMORY_NBYTES) -> None:
        if where == "none":
            raise ArgumentError("index='none' is no file; index=None does without decode indices")
        self._store, self._field, self._where, self._budget = store, field, where, memory
        self._begin(check=True)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_store", "_field", "_where", "_budget")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin(check=False)  # in a worker: what was usable when the dataset was made is done without here

    def renew_in_child(self) -> None:
        """In a forked child: forget who holds the lock."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many images have an index, whole or not."""
        kept = set(self._learned)
        if self._file is not None:
            kept.update(range(len(self._store)))
            kept.difference_update(set(self._file.missing().tolist()) - set(self._learned))
        return len(kept)

    def of(self, indices: NDArray[np.int64] | Sequence[int]) -> Indexed:
        """What a call of ``fill`` is to be given for these records."""
        learned, file = self._learned, self._file
        entries: list[bytes | None] = [None] * len(indices)
        if file is not None:
            try:
                entries = file.get(indices)
            except StoreError as error:
                self._give_up(file, error)
        if learned:
            for i, index in enumerate(indices):
                if (entry := learned.get(int(index))) is not None:
                    entries[i] = entry or None
        return Indexed(entries, self._kind if self._learns else None)

    def keep(self, indices: NDArray[np.int64] | Sequence[int], indexed: Indexed) -> None:
        """Keep what a call of ``fill`` has found."""
        for position, damaged, entry in indexed.found:
            index = int(indices[position])
            if damaged:
                _logger.warning(
                    "%s: the decode index of record %d is damaged or another image's; it is decoded without (record "
                    "%r; `penstock index --overwrite` makes all of them again)",
                    self._store.url, index, self._store.read([index])[0].key,
                )  # fmt: skip
            if entry is None and not damaged:
                continue
            if not (self._caches and entry is not None and self._cached(index, entry)):
                self._remember(index, entry or b"")

    def _begin(self, *, check: bool) -> None:
        """Open the file, if there is one; ``check``: what is wrong with a cache that is named is an ArgumentError."""
        self._lock = threading.Lock()
        self._learned: dict[int, bytes] = {}
        self._nbytes = 0
        named = next((kind for kind in INDEX_KINDS if kind == self._where), None)
        self._caches = named is None and self._where != "auto"
        self._file = self._open_cache(check=check) if self._caches else self._open_beside()
        if self._file is not None and named not in (None, self._file.kind):
            self._file = None
        self._kind = self._file.kind if self._file is not None else named or "rows"
        self._learns = self._caches or self._budget > 0
        forks.watch(self)

    def _open_beside(self) -> IndexFile | None:
        path = index_path(self._store.url.partition("://")[2], self._field)
        try:
            return IndexFile(path, self._store.fingerprint(), len(self._store))
        except StoreNotFoundError:
            return None
        except StoreError as error:
            _logger.warning("%s: %s; images are decoded without", path, error.message)
            return None

    def _open_cache(self, *, check: bool) -> IndexFile | None:
        """The cache that is named: to be added to, else to be read, else none, and memory is learned in."""
        identity = Path(self._where).resolve(), self._store.fingerprint(), len(self._store)
        try:
            return IndexFile(*identity, kind="rows")
        except StoreError as error:
            failed = error
        self._caches = False
        try:
            if not isinstance(failed, StoreFormatError):
                file = IndexFile(*identity)
                _logger.warning("%s; they are read, and new ones are kept in memory", failed)
                return file
        except StoreError:
            pass  # what is said is why the file cannot be added to
        if check and (isinstance(failed, StoreFormatError) or getattr(failed.__cause__, "errno", 0) in _WRONG_PATH):
            raise ArgumentError(f"index={os.fsdecode(self._where)!r} cannot be used: {failed.message}") from failed
        _logger.warning("%s; decode indices are kept in memory", failed)
        return None

    def _give_up(self, file: IndexFile, error: StoreError) -> None:
        """Go on without a file that can no longer be read; only the first of several threads says so."""
        with self._lock:
            first, self._file = self._file is file, None
            self._caches, self._learns = False, self._budget > 0
        if first:
            _logger.warning("%s; images are decoded without, new decode indices are kept in memory", error)

    def _cached(self, index: int, entry: bytes) -> bool:
        file = self._file
        if file is None:
            return False
        try:
            file.put(index, entry)
        except StoreError as error:
            with self._lock:
                first, self._caches, self._learns = self._caches, False, self._budget > 0
            if first:
                _logger.warning("%s; new decode indices are kept in memory from now on", error)
            return False
        return True

    def _remember(self, index: int, entry: bytes) -> None:
        with self._lock:
            before = self._learned.get(index)
            grown = len(entry) + _ENTRY_NBYTES if before is None else len(entry) - len(before)
            if entry and self._nbytes + grown > self._budget:
                if self._learns and not self._caches:
                    self._learns = False
                    _logger.info(
                        "%s: decode indices of %d images fill the %d MB that they may take (index_memory); those of "
                        "the other images are not kept", self._store.url, len(self._learned), self._budget >> 20,
                    )  # fmt: skip
                return
            self._learned[index] = entry
            self._nbytes += grown
