"""Decode indices of a store's images, in a file of their own beside them (or anywhere).

::

    header, 64 bytes | table: offset, length, checksum of each record | entries, in the order they came

Any store may have one: it is added to, completed or removed without touching an image. Entries are opaque here (the
native decoder makes and checks them); this module knows which record they belong to, and that they are what was
written. One that is damaged or missing is None, never an error: the image is then decoded without it.

Several threads and processes may add entries to the same file at once; none of them waits for the others' lock longer
than :data:`LOCK_WAIT_S`. Whatever the system refuses is a StoreError. A file that was cut off when a program was killed
loses the entries at its end, nothing else. A forked process opens the file anew at its next use.
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
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock import forks
from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.sample import refuse_field_name
from penstock.stores.regular import open_regular

__all__ = ["INDEX_KINDS", "LOCK_WAIT_S", "IndexFile", "index_path"]

LOCK_WAIT_S: Final = 5.0
"""Longest wait for other threads and processes that add to the same file, in seconds."""

_HEADER: Final = struct.Struct("<16sII Q 16s 8x Q")
_MAGIC: Final = b"penstock.index\r\n"
_VERSION: Final = 1
_ENTRY: Final = np.dtype([("offset", "<u8"), ("length", "<u4"), ("check", "<u4")])
INDEX_KINDS: Final = ("rows", "tiles")
_MOST_NBYTES: Final = 64 << 20
_LAST_OFFSET: Final = (1 << 62) - 1  # beyond any file, and the system takes no larger ones
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02


def index_path(store: str | os.PathLike[str], field: str) -> Path:
    """Where the decode indices of a store lie, if it has them: in its folder, or beside its file.

    Raises
    ------
    ArgumentError
        If ``field`` is no name of a field: it would not be a file's name.
    """
    refuse_field_name(field)
    path = Path(store)
    name = f".{field}.index" if path.is_dir() else f"{path.name}.{field}.index"
    assert Path(name).name == name, "a name of a field has no separators"
    return path / name if path.is_dir() else path.with_name(name)


class IndexFile:
    """Decode indices by record.

    Parameters
    ----------
    path : str or path
        The file. A symbolic link is followed to read, never to write.
    fingerprint : str
        The store's (:meth:`penstock.stores.base.Store.fingerprint`): a file made for other records is refused.
    count : int
        Records of the store.
    kind : {"rows", "tiles"}, optional
        Given: the file is made if it is not there, and may be added to. Not given: it is only read.

    Raises
    ------
    StoreNotFoundError
        If there is no file, and none is to be made.
    StoreFormatError
        If the file is not one of decode indices, belongs to another store, or to another kind of index.
    StoreError
        If it cannot be opened, made or locked.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, count: int, kind: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._given = self.path, fingerprint, count, kind
        self._belongs = xxhash.xxh3_128_digest(f"{count}:{fingerprint}".encode())
        self._count, self._writable = count, kind is not None
        self._fd, self._closed = -1, False
        self._lock = threading.Lock()
        self._table = np.zeros(0, _ENTRY)
        self.kind = self._open(kind)
        forks.watch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexFile, self._given

    def renew_in_child(self) -> None:
        """In a forked child: close the parent's descriptor, whose locks it shares, and forget who holds the lock."""
        self._lock = threading.Lock()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def __len__(self) -> int:
        """Number of records that have an entry."""
        return self._count - len(self.missing())

    def get(self, indices: NDArray[np.int64] | Sequence[int]) -> list[bytes | None]:
        """The entries of these records; None where there is none.

        Raises
        ------
        StoreError
            If the file can no longer be read, or (in a forked process) opened.
        """
        fd = self._opened()
        try:
            places = self._table[indices].tolist()
            return [_entry(fd, index, *place) for index, place in zip(indices, places, strict=True)]
        except OSError as error:
            raise self._failed("cannot be read", error) from error

    def missing(self) -> NDArray[np.int64]:
        """Records without an entry."""
        self._opened()
        return np.flatnonzero(self._table["length"] == 0)

    def put(self, index: int, entry: bytes) -> None:
        """Keep an entry; of several for one record, the last counts.

        Raises
        ------
        StoreError
            If it cannot be written, or others hold the file's lock for :data:`LOCK_WAIT_S`.
        """
        fd = self._opened()
        place = np.zeros((), _ENTRY)
        try:
            with self._alone(fd):
                at = max(os.fstat(fd).st_size, self._entries_begin)  # a file that was cut off may end in its table
                place[()] = at, len(entry), _check(index, entry)
                _write(fd, entry, at)
                _write(fd, place.tobytes(), _HEADER.size + index * _ENTRY.itemsize)
                self._table[index] = place
        except OSError as error:
            raise self._failed("cannot be written", error, index=index) from error

    def close(self) -> None:
        """Let go of the file."""
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
    def _entries_begin(self) -> int:
        return _HEADER.size + self._count * _ENTRY.itemsize

    def _opened(self) -> int:
        """The descriptor of this process; after a fork the file is opened, and its table read, anew."""
        fd = self._fd
        if fd < 0:
            with self._lock:
                if self._fd < 0:
                    self._open(self.kind)
                fd = self._fd
        return fd

    def _open(self, kind: str | None) -> str:
        """Open the file and read its table; gives the kind of its entries, which is ``kind`` if that is given."""
        if self._closed:
            raise StoreError("these decode indices are closed", store=str(self.path))
        try:
            fd = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW if self._writable else os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                f"its decode indices cannot be opened: {error.strerror}", store=str(self.path)
            ) from error
        except OSError as error:
            raise self._failed("cannot be opened", error) from error
        try:
            found = self._begin(fd, kind)
            self._table = self._read_table(fd)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                raise self._failed("cannot be used", error) from error
            raise
        self._fd = fd  # last: a thread that sees it must see the table
        return found

    def _begin(self, fd: int, kind: str | None) -> str:
        """Check the header, or write it to a new file; the kind of its entries."""
        if self._writable and os.fstat(fd).st_size == 0:
            assert kind is not None, "a file is only made of a kind"
            with self._locked(fd, time.monotonic() + LOCK_WAIT_S):
                if os.fstat(fd).st_size == 0:
                    head = _HEADER.pack(_MAGIC, _VERSION, INDEX_KINDS.index(kind), self._count, self._belongs, 0)[:-8]
                    _write(fd, head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)), 0)
                    os.ftruncate(fd, self._entries_begin)
        head = os.pread(fd, _HEADER.size, 0)
        if len(head) < _HEADER.size or head[:16] != _MAGIC:
            raise StoreFormatError("this is no file of decode indices", store=str(self.path))
        _, version, number, count, belongs, check = _HEADER.unpack(head)
        if version != _VERSION or number >= len(INDEX_KINDS) or check != xxhash.xxh3_64_intdigest(head[:-8]):
            raise StoreFormatError(
                "the header of these decode indices is damaged, or of a later version", store=str(self.path)
            )
        if count != self._count or belongs != self._belongs:
            raise StoreFormatError(
                "these decode indices belong to other records: make them again (`penstock index --overwrite`)",
                store=str(self.path),
            )
        if kind is not None and kind != INDEX_KINDS[number]:
            raise StoreFormatError(
                f"these decode indices are of kind {INDEX_KINDS[number]!r}, not {kind!r}",
                store=str(self.path),
            )
        return INDEX_KINDS[number]

    def _read_table(self, fd: int) -> NDArray[Any]:
        table = np.zeros(self._count, _ENTRY)
        content = table.view(np.uint8).data
        at = 0
        while at < len(content) and (got := os.preadv(fd, [content[at:]], _HEADER.size + at)):
            at += got  # the system gives 2 GiB at most at a time; a file that was cut off ends sooner
        table[at // _ENTRY.itemsize :] = 0
        return table

    @contextmanager
    def _alone(self, fd: int) -> Iterator[None]:
        """Keep out the other threads of this process, and other processes; TimeoutError if they do not let go."""
        until = time.monotonic() + LOCK_WAIT_S
        lock = self._lock
        if not lock.acquire(timeout=LOCK_WAIT_S):
            raise TimeoutError(errno.ETIMEDOUT, f"another thread held their lock for {LOCK_WAIT_S:g} s")
        try:
            with self._locked(fd, until):
                yield
        finally:
            lock.release()

    @contextmanager
    def _locked(self, fd: int, until: float) -> Iterator[None]:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a lock that is waited for cannot be given up
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise TimeoutError(
                        errno.ETIMEDOUT, f"another process held their lock for {LOCK_WAIT_S:g} s"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _failed(self, what: str, error: OSError, index: int | None = None) -> StoreError:
        """A StoreError for what the system refused; one that is there already is kept."""
        if isinstance(error, StoreError):
            return error
        return StoreError(f"its decode indices {what}: {error.strerror or error}", store=str(self.path), index=index)


def _entry(fd: int, index: int, offset: int, length: int, check: int) -> bytes | None:
    if not 0 < length <= _MOST_NBYTES or offset > _LAST_OFFSET:
        return None
    entry = os.pread(fd, length, offset)
    return entry if _check(index, entry) == check else None


def _write(fd: int, content: bytes, at: int) -> None:
    if os.pwrite(fd, content, at) != len(content):
        raise OSError(errno.ENOSPC, "there is no room for all of it")


def _check(index: int, entry: bytes) -> int:
    return xxhash.xxh3_64_intdigest(entry, seed=index) & 0xFFFF_FFFF
