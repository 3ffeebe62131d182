"""Compressed files that need random access: each is decompressed once, to a file that is mapped and used again.

::

    train.tar.gz ──once──> .train.tar.gz.5f0c...e1.decompressed       beside it, or in the user's cache folder
                                         └ of size and time of change: an older one is deleted

Stores of compressed tar and TFRecord files, and of compressed MDS and LitData shards, use it. Where the copies lie and
how many bytes they may have is the same for all of them: the options ``cache`` and ``cache_nbytes`` of these stores.
The compressions themselves: :mod:`penstock.stores.common.compression`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.stores.common.compression import decompress_chunks
from penstock.stores.common.regular_file import open_regular, replacing_file
from penstock.stores.location import cache_folder

__all__ = ["DecompressedCopies", "Expand", "select_cache_options"]

Expand = Callable[[BinaryIO], Iterator[bytes]]
"""Yields the decompressed bytes of an open file, in order."""

_logger = logging.getLogger(__name__)

_MOST_RATIO: Final = 64
_LEAST_LIMIT: Final = 4 << 30
_FREE_NBYTES: Final = 1 << 30  # what a copy leaves free on the disk
_SUFFIX: Final = ".decompressed"
_DIGEST_NBYTES: Final = 8


def select_cache_options(cache: str | os.PathLike[str] | None, cache_nbytes: int | None) -> dict[str, str | int]:
    """The options ``cache`` and ``cache_nbytes`` of a store, where they are given.

    Raises ArgumentError if ``cache_nbytes`` is not positive.
    """
    if cache_nbytes is not None and cache_nbytes < 1:
        raise ArgumentError(f"cache_nbytes must be at least 1, got {cache_nbytes}")
    options: dict[str, str | int] = {}
    if cache is not None:
        options["cache"] = os.fspath(cache)
    if cache_nbytes is not None:
        options["cache_nbytes"] = cache_nbytes
    return options


class DecompressedCopies:
    """The decompressed copies of the compressed files of a store. 1 GiB of the disk, or 1/16 of it, stays free.

    Parameters
    ----------
    sources : sequence of Path
        The compressed files.
    cache : str or path, optional
        The folder of the copies. By default a copy is beside its source, with a name that begins with a dot; where
        nothing can be written there, in ``decompressed`` in the user's cache folder.
    cache_nbytes : int, optional
        The most bytes of all copies together. By default a copy may have 64 times the size of its source, or 4 GiB.
    """

    def __init__(
        self,
        sources: Sequence[Path],
        cache: str | os.PathLike[str] | None = None,
        cache_nbytes: int | None = None,
    ) -> None:
        self._sources, self._cache, self._most_nbytes = tuple(sources), cache, cache_nbytes

    def find(self, source: Path, codec: str, *, nbytes: int | None = None, expand: Expand | None = None) -> Path:
        """Return the file with the decompressed bytes of ``source``; it is written if it is not there yet.

        Several processes may call this at once: each writes a file of its own, and the last one stays.

        Parameters
        ----------
        source : Path
            One of the compressed files.
        codec : str
            One of :data:`~penstock.stores.common.compression.CODECS`.
        nbytes : int, optional
            The number of decompressed bytes, where it is known; another number is an error.
        expand : callable, optional
            Decompresses in place of ``codec``, for files that are compressed in parts.

        Raises
        ------
        CorruptRecordError
            If the compressed bytes are damaged or truncated.
        StoreError
            If the file cannot be read, or its decompressed bytes cannot be written or are more than allowed.
        OptionalPackageError
            If the compression needs pyarrow.
        """
        with os.fdopen(open_regular(source), "rb") as file:
            seen = os.fstat(file.fileno())
            state = f"{seen.st_size} {seen.st_mtime_ns} {nbytes}".encode()
            name = f"{hashlib.blake2b(state, digest_size=_DIGEST_NBYTES).hexdigest()}{_SUFFIX}"
            places = self._list_places(source)
            for folder, prefix in places:
                path = folder / f"{prefix}{name}"
                is_there = path.is_file() and os.access(path, os.R_OK)
                if is_there and (nbytes is None or path.stat().st_size == nbytes):
                    return path
            limit = self._find_limit(source, seen.st_size)
            failure: OSError | None = None
            for folder, prefix in places:
                try:
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    return _write(file, folder, prefix, name, _limited(source, file, codec, expand, limit, nbytes))
                except StoreError:
                    raise
                except OSError as error:
                    failure = error
                    if error.errno == errno.EIO:
                        break
        raise StoreError(
            f"{source.name} is compressed, and its decompressed bytes cannot be written to a file in "
            f"{' or '.join(str(folder) for folder, _ in places)}: {failure.strerror if failure else ''}; "
            "decompress it, make space, or name another folder with cache=...",
            store=str(source),
        ) from failure

    def _list_places(self, source: Path) -> list[tuple[Path, str]]:
        """Folders, and how the names of the copies of a file begin there; the first one that can be written is used."""
        elsewhere = f"{hashlib.blake2b(os.fsencode(source.absolute()), digest_size=8).hexdigest()}.{source.name}."
        if self._cache is not None:
            return [(Path(self._cache), elsewhere)]
        return [(source.parent, f".{source.name}."), (cache_folder() / "decompressed", elsewhere)]

    def _find_limit(self, source: Path, source_nbytes: int) -> int:
        """Return the most bytes that the copy of a file may have."""
        if self._most_nbytes is None:
            return _find_most(source_nbytes)
        places = {place for each in self._sources if each != source for place in self._list_places(each)}
        used = 0
        for folder in {folder for folder, _ in places}:
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    prefix = entry.name[: -2 * _DIGEST_NBYTES - len(_SUFFIX)]
                    if entry.name.endswith(_SUFFIX) and (folder, prefix) in places:
                        used += entry.stat().st_size
        return self._most_nbytes - used


def _limited(
    source: Path, file: BinaryIO, codec: str, expand: Expand | None, allowed: int, nbytes: int | None
) -> Iterator[bytes]:
    """Yield the decompressed bytes; damage, and more or fewer bytes than allowed, are errors that name the file."""
    written = 0
    file.seek(0)
    try:
        if nbytes is not None and nbytes > _find_most(os.fstat(file.fileno()).st_size):
            raise ValueError(f"it cannot decompress to {nbytes} bytes")  # noqa: TRY301  # one place for damage
        for piece in expand(file) if expand is not None else decompress_chunks(file, codec, nbytes):
            written += len(piece)
            if nbytes is not None and written > nbytes:
                raise ValueError(f"it decompresses to more than {nbytes} bytes")  # noqa: TRY301  # as above
            if written > allowed:
                raise StoreError(  # no damage
                    f"the decompressed copy of {source.name} has more than the {max(allowed, 0)} bytes that it may "
                    "have; decompress it yourself, or give cache_nbytes=... and a folder with cache=...",
                    store=str(source),
                )
            yield piece
        if nbytes is not None and written != nbytes:
            raise ValueError(f"it decompresses to {written} bytes, not {nbytes}")  # noqa: TRY301  # as above
    except (ValueError, EOFError) as error:
        raise CorruptRecordError(f"the compressed file {source.name} is damaged: {error}", store=str(source)) from error


def _find_most(nbytes: int) -> int:
    """Return the most bytes to which a file of a size is decompressed, where nothing else is stated."""
    return max(_LEAST_LIMIT, _MOST_RATIO * nbytes)


def _write(file: BinaryIO, folder: Path, prefix: str, name: str, pieces: Iterator[bytes]) -> Path:
    """Write the pieces to a file that then gets its name in one step, and delete older ones; raises OSError."""
    disk = shutil.disk_usage(folder)
    free = disk.free - min(_FREE_NBYTES, disk.total // 16)
    path = folder / f"{prefix}{name}"
    with replacing_file(path, prefix) as out:
        for piece in pieces:
            free -= len(piece)
            if free < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            out.write(piece)
        os.fchmod(out.fileno(), os.fstat(file.fileno()).st_mode & 0o666)  # who may read the one may read the other
    for other in folder.iterdir():
        if other.name.startswith(prefix) and other.name.endswith(_SUFFIX) and other != path:
            with contextlib.suppress(OSError):
                other.unlink()
    _logger.info("%s was decompressed to %s: compressed files have no random access", file.name, path)
    return path
