"""Decode indices of a store's images, in a file of their own beside them (or anywhere).

::

    header, 64 bytes | table: offset, length, checksum of each record | entries, in the order they came

Any store may have one: it is added to, completed or removed without touching an image. Entries are opaque here (the
native decoder makes and checks them); this module knows which record they belong to, and that they are what was
written. One that is damaged or missing is None, never an error: the image is then decoded without it.

Several threads and processes may add entries to the same file at once. A file that was cut off when a program was
killed loses the entries at its end, nothing else.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import StoreError, StoreFormatError
from penstock.sample import refuse_field_name
from penstock.stores.regular import open_regular

__all__ = ["INDEX_KINDS", "IndexFile", "index_path"]

_HEADER: Final = struct.Struct("<16sII Q 16s 8x Q")
_MAGIC: Final = b"penstock.index\r\n"
_VERSION: Final = 1
_ENTRY: Final = np.dtype([("offset", "<u8"), ("length", "<u4"), ("check", "<u4")])
INDEX_KINDS: Final = ("rows", "tiles")
_MOST_NBYTES: Final = 64 << 20


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
    StoreFormatError
        If the file is not one of decode indices, belongs to another store, or to another kind of index.
    StoreError
        If it cannot be opened or made.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, count: int, kind: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._given = self.path, fingerprint, count, kind
        self._belongs = xxhash.xxh3_128_digest(f"{count}:{fingerprint}".encode())
        self._count, self._lock, self._process = count, threading.Lock(), os.getpid()
        try:
            self._fd = open_regular(self.path, os.O_RDONLY if kind is None else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise StoreError(f"its decode indices cannot be opened: {error.strerror}", store=str(self.path)) from error
        try:
            self.kind = self._begin(kind)
            self._table = self._read_table()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexFile, self._given

    def __len__(self) -> int:
        """Number of records that have an entry."""
        return int(np.count_nonzero(self._table["length"]))

    def get(self, indices: NDArray[np.int64] | Sequence[int]) -> list[bytes | None]:
        """The entries of these records; None where there is none."""
        self._follow_fork()
        return [self._entry(index, *place) for index, place in zip(indices, self._table[indices].tolist(), strict=True)]

    def missing(self) -> NDArray[np.int64]:
        """Records without an entry."""
        return np.flatnonzero(self._table["length"] == 0)

    def put(self, index: int, entry: bytes) -> None:
        """Keep an entry; of several for one record, the last counts.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        self._follow_fork()
        place = np.zeros((), _ENTRY)
        with self._lock, self._locked():
            at = os.fstat(self._fd).st_size
            place[()] = at, len(entry), _check(index, entry)
            try:
                if os.pwrite(self._fd, entry, at) != len(entry):
                    raise OSError(0, "no room for all of it")  # noqa: TRY301  # one end for both
                os.pwrite(self._fd, place.tobytes(), _HEADER.size + index * _ENTRY.itemsize)
            except OSError as error:
                reason = f"a decode index cannot be written: {error.strerror}"
                raise StoreError(reason, store=str(self.path), index=index) from error
            self._table[index] = place

    def close(self) -> None:
        """Let go of the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def _entry(self, index: int, offset: int, length: int, check: int) -> bytes | None:
        if not 0 < length <= _MOST_NBYTES:
            return None
        try:
            entry = os.pread(self._fd, length, offset)
        except (OSError, OverflowError):
            return None  # an offset that no file has, or a file that is gone: decoded without it
        return entry if _check(index, entry) == check else None

    def _begin(self, kind: str | None) -> str:
        """Check the header, or write it to a new file; the kind of its entries."""
        with self._locked() if kind is not None else _nothing():
            if kind is not None and os.fstat(self._fd).st_size == 0:
                head = _HEADER.pack(_MAGIC, _VERSION, INDEX_KINDS.index(kind), self._count, self._belongs, 0)[:-8]
                os.ftruncate(self._fd, _HEADER.size + self._count * _ENTRY.itemsize)
                os.pwrite(self._fd, head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)), 0)
            head = os.pread(self._fd, _HEADER.size, 0)
        if len(head) < _HEADER.size or head[:16] != _MAGIC:
            raise StoreFormatError("this is no file of decode indices", store=str(self.path))
        _, version, number, count, belongs, check = _HEADER.unpack(head)
        if version != _VERSION or number >= len(INDEX_KINDS) or check != xxhash.xxh3_64_intdigest(head[:-8]):
            raise StoreFormatError(
                "the header of these decode indices is damaged, or of a later version", store=str(self.path)
            )
        if count != self._count or belongs != self._belongs:
            raise StoreFormatError(
                "these decode indices belong to other records: make them again (`penstock index`)", store=str(self.path)
            )
        if kind is not None and kind != INDEX_KINDS[number]:
            raise StoreFormatError(
                f"these decode indices are of kind {INDEX_KINDS[number]!r}, not {kind!r}: remove the file first",
                store=str(self.path),
            )
        return INDEX_KINDS[number]

    def _read_table(self) -> NDArray[Any]:
        content = os.pread(self._fd, self._count * _ENTRY.itemsize, _HEADER.size)
        table = np.zeros(self._count, _ENTRY)
        whole = len(content) // _ENTRY.itemsize
        table[:whole] = np.frombuffer(content, _ENTRY, whole)
        return table

    def _follow_fork(self) -> None:
        """A descriptor that a fork carried along is shared with its locks: this process opens its own."""
        if self._process != os.getpid():
            with self._lock:
                flags = os.O_RDONLY if self._given[3] is None else os.O_RDWR
                self._fd, self._process = os.open(self.path, flags), os.getpid()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _check(index: int, entry: bytes) -> int:
    return xxhash.xxh3_64_intdigest(entry, seed=index) & 0xFFFF_FFFF
