"""What the writers of LMDB environments share: when they commit, transactions, the map that grows, the complete file.

::

    entries ──due──> commit: the environment is opened anew, one transaction ──> complete_file: its last pages are there

LMDB carries nothing from one transaction to the next: the bytes that a commit writes depend on the entries alone.
``writemap`` is not used, because a full disk would kill the process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from penstock.errors import StoreError
from penstock.stores.common.journal import Journal, JournaledWriter
from penstock.stores.common.lmdb.pages import FILE, PageFile
from penstock.wording import counted

if TYPE_CHECKING:
    import lmdb

__all__ = ["CommitLimits", "EnvironmentWriter"]

T_prepared = TypeVar("T_prepared")
_SLACK_NBYTES: Final = 1 << 20  # what a commit writes beside its entries, about


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """When a commit is due, and how large the map is at first. The bytes of the file depend on these numbers."""

    records: int = 16384  # largest number of records of a commit
    nbytes: int = 8 << 20
    """Number of bytes that make a commit due at first; it is small, such that writing begins while the rest is read.
    Once eight times as many are committed, commits are eight times as large, and each is synced. A kill of the process
    loses at most the pending records, a power failure at most those and the first 64 MB."""
    map_nbytes: int = 1 << 30  # the first size of the map

    def is_due(self, records: int, nbytes: int, committed_nbytes: int) -> bool:
        """Return whether pending records must be committed now."""
        enough = 8 * self.nbytes if self.must_sync(committed_nbytes) else self.nbytes
        return records >= self.records or nbytes >= enough

    def must_sync(self, committed_nbytes: int) -> bool:
        """Return whether a commit that makes this many bytes must reach the disk before packing goes on."""
        return committed_nbytes >= 8 * self.nbytes


class EnvironmentWriter(JournaledWriter[T_prepared]):
    """Writes the environment in one folder.

    ``folder``: where ``data.mdb`` is written. ``journal``: of this writer. ``limits``: for tests.
    """

    def __init__(self, folder: Path, journal: Journal, limits: CommitLimits | None) -> None:
        self.folder, self.journal = folder, journal
        self.limits = limits or CommitLimits()
        self.map_nbytes = self.limits.map_nbytes
        self.lock = -1
        """The descriptor of the lock file, where it is held."""

    def transact(
        self, put: Callable[[lmdb.Environment, lmdb.Transaction], None], nbytes: int, *, must_sync: bool = True
    ) -> None:
        """Commit what ``put`` puts, ``nbytes`` about, in one transaction.

        The meta page is synced after its data, with the next commit or when the file is complete.
        """
        import lmdb  # not before something is written: free-threaded CPython turns its lock on

        self._refuse_full_disk(nbytes)
        while True:
            try:
                with (
                    lmdb.open(
                        str(self.folder),
                        map_size=self.map_nbytes,
                        lock=False,
                        max_dbs=8,
                        metasync=False,
                        sync=must_sync,
                    ) as environment,
                    environment.begin(write=True) as transaction,
                ):
                    put(environment, transaction)
                break
            except lmdb.MapFullError:
                self.map_nbytes *= 2
            except lmdb.Error as error:
                self._refuse_full_disk(nbytes, error)
                raise StoreError(f"LMDB could not write: {error}", store=self.journal.url) from error

    def open_complete(self) -> BinaryIO:
        """Return the file, open, with all its pages: LMDB leaves free pages at the end unwritten."""
        path = self.folder / FILE
        with PageFile(path, self.journal.url, may_lack_pages=True) as pages:
            want = pages.meta.nbytes
        file = path.open("r+b")
        if os.fstat(file.fileno()).st_size < want:
            file.truncate(want)
        return file

    def close(self) -> None:
        """Release the lock. What was committed stays."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def _refuse_full_disk(self, nbytes: int, cause: Exception | None = None) -> None:
        need, free = nbytes + _SLACK_NBYTES, shutil.disk_usage(self.folder).free
        if free < need:
            raise StoreError(
                f"the disk is full: the next commit needs {need} bytes and {free} are free; "
                f"{counted(self.committed.records, 'record')} so far are safe. Free some space and write again to "
                "resume",
                store=self.journal.url,
            ) from cause
