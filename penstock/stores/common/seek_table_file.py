"""The file of seek tables of a store: for each JPEG, where decoding may begin. Users call them decode indices.

::

    header, 64 bytes | directory: offset, length, checksum for each record | seek tables, in the order they were added

Every store may have such a file. It is made, extended or removed without changing an image. This module does not read
the contents of a seek table: the native decoder makes and checks them. It knows the record of each, and compares
checksums. A seek table that is damaged or missing is None, never an error: the image is then decoded without it.

Several threads and processes may add to one file at once; each waits for the lock at most :data:`LOCK_WAIT_S`. An error
of the operating system is a StoreError. A file that is truncated, because a program was killed, loses only the entries
at its end. A forked process opens the file again at its next use.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, overload

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock import _native, system
from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.sample import Array, refuse_field_name
from penstock.stores.common.regular_file import open_regular
from penstock.stores.location import Location
from penstock.system.interrupts import pass_on_interrupts

__all__ = ["LOCK_WAIT_S", "SEEK_TABLE_KINDS", "SeekTableFile", "TablesInFile", "seek_table_path"]

pass_on_interrupts()

LOCK_WAIT_S: Final = 5.0
"""The longest time to wait for other threads and processes that add to the same file, in seconds."""

_HEADER: Final = struct.Struct("<16sII Q 16s 8x Q")
_MAGIC: Final = b"penstock.index\r\n"
_VERSION: Final = 1
_ENTRY: Final = np.dtype([("offset", "<u8"), ("length", "<u4"), ("check", "<u4")])
SEEK_TABLE_KINDS: Final = ("rows", "tiles")
_FIRST_PAUSE_S: Final = 0.0005
_MAX_PAUSE_S: Final = 0.02


def seek_table_path(store: Location, field: str) -> Path:
    """The path of the file of seek tables of a store, whether the file exists or not.

    Raises ArgumentError if ``field`` cannot be the name of a field: it becomes a part of a file name.
    """
    refuse_field_name(field)
    return store.sidecar(f"{field}.index")


@dataclass(slots=True)
class TablesInFile(Sequence[bytes | None]):
    """Places of seek tables in a file: the native core reads them while it decodes, without an object for each.

    As a sequence, it has the tables themselves, which are read when they are asked for; an OSError is raised.
    """

    fd: int  # descriptor of the file
    entries: NDArray[np.uint8]  # (m, 16): the directory: an entry for each record of the store
    numbers: NDArray[np.int64]  # (n,): the numbers of the records
    errors: list[OSError] = field(default_factory=list)  # appended by the native core: why tables could not be read

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> TablesInFile: ...
    def __getitem__(self, index: int | slice) -> bytes | TablesInFile | None:
        """Return one table, or the places of some."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return next(iter(self.take(np.array([index]))))

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(_native.read_tables(self.fd, self.entries, self.numbers))

    def take(self, positions: NDArray[np.int64]) -> TablesInFile:
        """Return the tables at some positions; errors are shared."""
        return TablesInFile(self.fd, self.entries, self.numbers[positions], self.errors)


class SeekTableFile:
    """Seek tables by record.

    Parameters
    ----------
    path : str or path
        The file. A symbolic link is followed to read, never to write.
    fingerprint : str
        Of the store (:meth:`penstock.stores.base.Store.fingerprint`): a file made for other records is refused.
    count : int
        Number of records of the store.
    kind : {"rows", "tiles"}, optional
        If given, the file is made if it does not exist, and can be added to. Otherwise it is only read.

    Raises
    ------
    StoreNotFoundError
        If the file does not exist, and ``kind`` is not given.
    StoreFormatError
        If it is no file of seek tables, belongs to another store, or has another kind.
    StoreError
        If it cannot be opened, made or locked.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, count: int, kind: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._given = self.path, fingerprint, count, kind
        self._owner = xxhash.xxh3_128_digest(f"{count}:{fingerprint}".encode())
        self._count, self._writable = count, kind is not None
        self._fd, self._closed = -1, False
        self._lock = threading.Lock()
        self._directory = np.zeros(0, _ENTRY)
        self._entries = np.zeros((0, _ENTRY.itemsize), np.uint8)
        self.kind = self._open(kind)
        system.watch(self)

    def __reduce__(self) -> tuple[object, ...]:
        return SeekTableFile, self._given

    def renew_in_child(self) -> None:
        """Close in a forked child the parent's descriptor, whose file lock it shares, and replace the thread lock."""
        self._lock = threading.Lock()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def __len__(self) -> int:
        """Number of records that have a seek table."""
        return self._count - len(self.missing())

    def get(self, indices: NDArray[np.int64] | Sequence[int]) -> list[bytes | None]:
        """The seek tables of these records; None for a record without one.

        Raises StoreError if the file can no longer be read, or (in a forked process) opened.
        """
        try:
            return list(self.locate(indices))
        except OSError as error:
            raise self.make_read_error(error) from error

    def locate(self, indices: NDArray[np.int64] | Sequence[int]) -> TablesInFile:
        """Return where the seek tables of these records are, for the native core to read; StoreError as :meth:`get`."""
        fd = self._get_descriptor()
        return TablesInFile(fd, self._entries, np.ascontiguousarray(indices, np.int64))

    def make_read_error(self, error: OSError) -> StoreError:
        """Return the error to report if the file cannot be read."""
        return self._make_error("cannot be read", error)

    def missing(self) -> NDArray[np.int64]:
        """Records without a seek table."""
        self._get_descriptor()
        return np.flatnonzero(self._directory["length"] == 0)

    def put(self, index: int, table: bytes) -> None:
        """Add the seek table of a record, or replace it.

        Raises StoreError if it cannot be written, or others hold the lock of the file for :data:`LOCK_WAIT_S`.
        """
        fd = self._get_descriptor()
        entry = np.zeros((), _ENTRY)
        try:
            with self._lock_file(fd):
                at = max(os.fstat(fd).st_size, self._tables_begin)  # a truncated file may end in its directory
                entry[()] = at, len(table), _hash_table(index, table)
                _write(fd, table, at)
                _write(fd, entry.tobytes(), _HEADER.size + index * _ENTRY.itemsize)
                self._directory[index] = entry
        except OSError as error:
            raise self._make_error("cannot be written", error, index=index) from error

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def _tables_begin(self) -> int:
        return _HEADER.size + self._count * _ENTRY.itemsize

    def _get_descriptor(self) -> int:
        """Return the descriptor of this process; after a fork, the file is opened and its directory read again."""
        fd = self._fd
        if fd < 0:
            with self._lock:
                if self._fd < 0:
                    self._open(self.kind)
                fd = self._fd
        return fd

    def _open(self, kind: str | None) -> str:
        """Open the file and read its directory; return the kind of its seek tables."""
        if self._closed:
            raise StoreError("these decode indices are closed", store=str(self.path))
        try:
            fd = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW if self._writable else os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                f"its decode indices cannot be opened: {error.strerror}", store=str(self.path)
            ) from error
        except OSError as error:
            raise self._make_error("cannot be opened", error) from error
        try:
            found = self._check_header(fd, kind)
            self._directory = self._read_directory(fd)
            self._entries = self._directory.view(np.uint8).reshape(-1, _ENTRY.itemsize)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                raise self._make_error("cannot be used", error) from error
            raise
        self._fd = fd  # last: a thread that sees it must see the directory
        return found

    def _check_header(self, fd: int, kind: str | None) -> str:
        """Check the header, or write it to a new file; return the kind of the seek tables."""
        if self._writable and os.fstat(fd).st_size == 0:
            assert kind is not None, "a writable file has a kind"
            with self._lock_processes(fd, time.monotonic() + LOCK_WAIT_S):
                if os.fstat(fd).st_size == 0:
                    head = _HEADER.pack(_MAGIC, _VERSION, SEEK_TABLE_KINDS.index(kind), self._count, self._owner, 0)[
                        :-8
                    ]
                    _write(fd, head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)), 0)
                    os.ftruncate(fd, self._tables_begin)
        head = os.pread(fd, _HEADER.size, 0)
        if len(head) < _HEADER.size or head[:16] != _MAGIC:
            raise StoreFormatError("this is not a file of decode indices", store=str(self.path))
        _, version, number, count, owner, check = _HEADER.unpack(head)
        if version != _VERSION or number >= len(SEEK_TABLE_KINDS) or check != xxhash.xxh3_64_intdigest(head[:-8]):
            raise StoreFormatError(
                "the header of these decode indices is damaged, or of a later version", store=str(self.path)
            )
        if count != self._count or owner != self._owner:
            raise StoreFormatError(
                "these decode indices belong to other records: make them again (`penstock index --overwrite`)",
                store=str(self.path),
            )
        if kind is not None and kind != SEEK_TABLE_KINDS[number]:
            raise StoreFormatError(
                f"the kind of these decode indices must be {kind!r}, got {SEEK_TABLE_KINDS[number]!r}",
                store=str(self.path),
            )
        return SEEK_TABLE_KINDS[number]

    def _read_directory(self, fd: int) -> Array:
        directory = np.zeros(self._count, _ENTRY)
        content = directory.view(np.uint8).data
        at = 0
        while at < len(content) and (got := os.preadv(fd, [content[at:]], _HEADER.size + at)):
            at += got  # one read gives 2 GiB at most; a truncated file gives less
        directory[at // _ENTRY.itemsize :] = 0
        return directory

    @contextmanager
    def _lock_file(self, fd: int) -> Iterator[None]:
        """Lock the file against other threads and processes; TimeoutError if they hold it too long."""
        until = time.monotonic() + LOCK_WAIT_S
        lock = self._lock
        if not lock.acquire(timeout=LOCK_WAIT_S):
            raise TimeoutError(errno.ETIMEDOUT, f"another thread held their lock for {LOCK_WAIT_S:g} s")
        try:
            with self._lock_processes(fd, until):
                yield
        finally:
            lock.release()

    @contextmanager
    def _lock_processes(self, fd: int, until: float) -> Iterator[None]:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a blocking lock has no time limit
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise TimeoutError(
                        errno.ETIMEDOUT, f"another process held their lock for {LOCK_WAIT_S:g} s"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _make_error(self, what: str, error: OSError, index: int | None = None) -> StoreError:
        """Return a StoreError for an error of the operating system; a StoreError is returned as it is."""
        if isinstance(error, StoreError):
            return error
        return StoreError(f"its decode indices {what}: {error.strerror or error}", store=str(self.path), index=index)


def _write(fd: int, content: bytes, at: int) -> None:
    if os.pwrite(fd, content, at) != len(content):
        raise OSError(errno.ENOSPC, "the disk is full")


def _hash_table(index: int, table: bytes) -> int:
    return xxhash.xxh3_64_intdigest(table, seed=index) & 0xFFFF_FFFF
