"""Files that are read once from their beginning to their end, as streams of shards are.

Of a copy of a remote object the next parts are fetched while one is read; other files are left to the system, which
reads ahead itself.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock.errors import StoreError
from penstock.stores.common.mirrors import MirrorFile, find_mirror
from penstock.stores.common.regular_file import open_regular

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["open_sequential"]

_PART_NBYTES: Final = 4 << 20
_FIRST_NBYTES: Final = 1 << 16
_PARTS_AHEAD: Final = 8
"""Parts that are asked for at once: 32 MiB are 160 MB/s where a request takes 200 ms."""


def open_sequential(path: Path) -> BinaryIO:
    """Open a regular file that is read in order.

    Raises
    ------
    OSError
        If it cannot be opened. Of a copy of a remote object also when it is read, as StoreError with the offset.
    """
    if (mirror := find_mirror(path)) is not None:
        return io.BufferedReader(_SequentialReader(mirror), 1 << 16)
    return os.fdopen(open_regular(path), "rb")


class _SequentialReader(io.RawIOBase):
    """The bytes of a copy of a remote object, which is referenced until the reader is closed."""

    def __init__(self, mirror: MirrorFile) -> None:
        super().__init__()
        self._mirror: MirrorFile | None = mirror
        self._at = self._announced = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read the next bytes; their number, 0 at the end."""
        if not self._rest and self._mirror is not None:
            self._rest = self._read_part(self._mirror)
        target = memoryview(buffer).cast("B")
        content = self._rest[: len(target)]
        target[: len(content)] = content
        self._rest = self._rest[len(content) :]
        return len(content)

    def close(self) -> None:
        """Let go of the copy."""
        self._mirror, self._rest = None, memoryview(b"")
        super().close()

    def _read_part(self, mirror: MirrorFile) -> memoryview:
        """The next part, after those behind it were announced; at first few bytes, which may be all that is read."""
        begin = self._at
        if not begin:
            self._at = min(_FIRST_NBYTES, _PART_NBYTES, mirror.nbytes)
            return mirror.read(0, self._at)
        end = min(begin + _PART_NBYTES * (_PARTS_AHEAD + 1), mirror.nbytes)
        ahead = range(max(begin + _PART_NBYTES, self._announced), end, _PART_NBYTES)
        mirror.announce([(at, min(_PART_NBYTES, mirror.nbytes - at)) for at in ahead])
        self._announced = max(self._announced, ahead.stop)
        self._at = min(begin + _PART_NBYTES, mirror.nbytes)
        try:
            return mirror.read(begin, self._at - begin)
        except StoreError as error:
            error.locate(offset=begin)
            raise
