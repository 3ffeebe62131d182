"""Files of this machine that are copies of remote objects, and have only the pages that were read so far.

:func:`~penstock.stores.common.mapped_files.open_source` gives such a copy as it gives a file of this machine: as a
:class:`ByteSource`. Bytes are fetched by :mod:`penstock.stores.remote`; a process that opens no remote store never
imports it.
"""

from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import CorruptRecordError, PenstockError, StoreFormatError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "ByteRanges",
    "ByteSource",
    "MirrorBytes",
    "MirrorFile",
    "MirrorIO",
    "PageHashes",
    "announce_ends",
    "find_mirror",
    "note_read",
    "read_mended",
    "register_mirror",
]

T = TypeVar("T")

_FETCHED_AT_ONCE: Final = 1 << 10


class PageHashes(Protocol):
    """The hashes of the pages of an object, as it was written."""

    page_nbytes: int

    def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch those of the pages in some ranges of the object (offset, number of bytes)."""
        ...

    def fit(self, found: NDArray[np.uint64], first: int, *, again: bool) -> bool:
        """Return whether pages ``first`` and following have the hashes ``found``; ``again``: they had not, twice."""
        ...


class ByteSource(Protocol):
    """The bytes of one file of a store: of this machine, or a copy of a remote object. Thread-safe.

    ``window`` is a map of the file, in which bytes of an object that were not fetched are 0.
    """

    nbytes: int
    window: memoryview

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        """Bytes of the object, fetched if the copy does not have them; StoreError if that is impossible.

        ``keep``: they say where other bytes are, and are kept though the cache is full.
        """
        ...

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Have bytes of the object, by default all, in the file; StoreError if that is impossible."""
        ...

    def ranges(self, begin: int = 0, nbytes: int | None = None) -> ByteRanges:
        """Bytes of which slices are fetched when they are taken; by default all from one on."""
        ...

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Begin to fetch ranges (offset, number of bytes) that are read soon; how many bytes are asked for."""
        ...

    def submit(self, call: Callable[[], object]) -> Future[object]:
        """Call it once what was announced before is asked for: of an object, in another thread."""
        ...

    def forget(self, offset: int, nbytes: int) -> None:
        """Have bytes fetched again when they are read next."""
        ...


class MirrorFile(ByteSource, Protocol):
    """A copy of a remote object that is filled as it is read. Thread-safe."""

    version: int
    hashes: PageHashes | None

    def hold(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Fetch what is missing of some ranges, at once; False if the file does not have all of it then."""
        ...

    def make_reader(self) -> Callable[[int, int], bytes]:
        """Make what reads bytes (offset, number) past the copy, mostly in order, to say what is wrong with the object.

        Bytes that do not have their hashes are fetched again, and returned nevertheless if they stay so.
        """
        ...

    def doubt(self, offset: int, nbytes: int) -> bool:
        """Forget bytes in which a store found damage; False, and nothing is forgotten, after three times.

        Bytes that were compared with the hashes of the object are not doubted.
        """
        ...


class ByteRanges(Protocol):
    """Bytes of which slices are taken: a ``memoryview``, or :class:`MirrorBytes`."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> memoryview: ...


class MirrorBytes:
    """The bytes of a remote object, or a part of them; a slice is fetched when it is taken, if the copy lacks it."""

    def __init__(self, mirror: MirrorFile, begin: int = 0, nbytes: int | None = None) -> None:
        self._mirror, self._begin = mirror, begin
        self._nbytes = mirror.nbytes - begin if nbytes is None else nbytes
        if not 0 <= begin <= begin + self._nbytes <= mirror.nbytes:
            raise ValueError(f"bytes {begin} to {begin + self._nbytes} must be inside an object of {mirror.nbytes}")

    def __len__(self) -> int:
        return self._nbytes

    def __getitem__(self, key: slice, /) -> memoryview:
        begin, end, _ = key.indices(self._nbytes)
        return self._mirror.read(self._begin + begin, max(end - begin, 0))

    def fetch(self, offsets: Sequence[int], nbytes: int) -> None:
        """Fetch so many bytes at each of some offsets, many at once; those that are outside are left out."""
        inside = [self._begin + at for at in offsets if 0 <= at <= self._nbytes - nbytes]
        for first in range(0, len(inside), _FETCHED_AT_ONCE):
            part = inside[first : first + _FETCHED_AT_ONCE]
            self._mirror.announce((at, nbytes) for at in part)
            for at in part:
                self._mirror.read(at, nbytes)


class MirrorIO(io.RawIOBase):
    """The bytes of a remote object as a file that is open for reading. For one thread at a time."""

    def __init__(self, mirror: MirrorFile) -> None:
        super().__init__()
        self._mirror, self._at = mirror, 0

    def readable(self) -> bool:
        """Return True: the object can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: any byte can be read."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to an offset from the beginning, from here, or from the end."""
        self._at = max(offset + (0, self._at, self._mirror.nbytes)[whence], 0)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read the next bytes; their number."""
        target = memoryview(buffer).cast("B")
        nbytes = max(min(len(target), self._mirror.nbytes - self._at), 0)
        if nbytes:
            target[:nbytes] = self._mirror.read(self._at, nbytes)
        self._at += nbytes
        return nbytes


_mirrors: dict[str, list[weakref.ref[MirrorFile]]] = {}
"""By path, the newest first: a process that opens a store twice has two copies of one object."""


def register_mirror(path: str | Path, mirror: MirrorFile) -> None:
    """Have :func:`find_mirror` find it as long as it is referenced."""
    known = [each for each in _mirrors.get(os.fspath(path), ()) if each() is not None]
    _mirrors[os.fspath(path)] = [weakref.ref(mirror), *known]


def find_mirror(path: str | Path) -> MirrorFile | None:
    """Return the remote object of which a file is a copy; None for all other files."""
    if not _mirrors:
        return None
    return next((mirror for each in _mirrors.get(os.fspath(path), ()) if (mirror := each()) is not None), None)


_noted: dict[int, list[tuple[MirrorFile, int, int]]] = {}
"""What is read of remote objects, for each thread that looks for damage: of all threads, since libraries have some."""


def note_read(mirror: MirrorFile, offset: int, nbytes: int) -> None:
    """Have :func:`read_mended` know that these bytes are read."""
    for each in tuple(_noted.values()):  # other threads add theirs, and take them away
        each.append((mirror, offset, nbytes))


def read_mended(
    read: Callable[[], T],
    damage: tuple[type[Exception], ...] = (),
    find: Callable[[Exception], object] | None = None,
) -> T:
    """Return what ``read`` returns, after damaged bytes of remote objects were fetched again.

    A cache that kept an answer that was wrong is not an object that is damaged: what is read while the damage is found
    again is forgotten, up to three times in this process, and ``read`` is called again.

    Parameters
    ----------
    read : callable
        Raises CorruptRecordError, StoreFormatError, or one of ``damage`` where bytes are wrong.
    damage : tuple of exception classes
        Others that a library raises for wrong bytes.
    find : callable, optional
        Called with the error, reads what is damaged, and as little else as possible; by default ``read``.
    """
    known: tuple[type[Exception], ...] = (CorruptRecordError, StoreFormatError, *damage)
    while True:
        try:
            return read()
        except known as error:
            is_damage = isinstance(error, known[:2]) or type(error) in damage
            if not _mirrors or (isinstance(error, PenstockError) and not is_damage):
                raise
            noted: list[tuple[MirrorFile, int, int]] = []
            _noted[id(noted)] = noted
            try:
                with contextlib.suppress(PenstockError, *damage):
                    _ = read() if find is None else find(error)
            finally:
                del _noted[id(noted)]
            if not sum([mirror.doubt(offset, nbytes) for mirror, offset, nbytes in noted]):
                raise


def announce_ends(paths: Iterable[Path], nbytes: int = io.DEFAULT_BUFFER_SIZE, *, last: bool = False) -> None:
    """Begin to fetch the first bytes of those files that are copies of remote objects, or the last ones."""
    for path in paths:
        if (mirror := find_mirror(path)) is not None:
            size = min(nbytes, mirror.nbytes)
            mirror.announce([(mirror.nbytes - size if last else 0, size)])
