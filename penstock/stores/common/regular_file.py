"""Opens the files of a store: regular files only, without waiting.

A store may come from an archive of unknown origin that contains FIFOs, devices and symbolic links. Opening a FIFO waits
for a writer, and reading a device may never end. Every file of a store is therefore opened here, or with these checks.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import xxhash

from penstock.stores.common.mirrors import MirrorFile, MirrorIO, announce_ends, find_mirror, read_mended

__all__ = [
    "FileIdentity",
    "fingerprint_files",
    "has_magic",
    "identify",
    "name_failure",
    "open_by_library",
    "open_file",
    "open_regular",
    "read_json",
    "refuse_links",
    "remove_tree",
    "replace_json",
    "replacing_file",
]

_MAX_JSON_NBYTES: Final = 256 << 20
_SAMPLED_NBYTES: Final = 1 << 16


class FileIdentity(NamedTuple):
    """A file as it was when it was opened: device, inode, size in bytes, and time of change."""

    device: int
    inode: int
    nbytes: int
    changed_ns: int


def identify(path: str | Path) -> FileIdentity:
    """Return the identity of the file at a path; raises OSError. Of a copy of a remote object: that of the object."""
    if (mirror := find_mirror(path)) is not None:
        return FileIdentity(0, mirror.version, mirror.nbytes, mirror.version)  # a digest of times tells versions apart
    seen = os.stat(path)  # noqa: PTH116  # of a text too: for each read, without a Path
    return FileIdentity(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor, which child programs do not inherit.

    ``path``: the file; a copy of a remote object is fetched as a whole. ``flags``: as for :func:`os.open`. A file that
    is to be written should be opened with ``os.O_NOFOLLOW``. Raises OSError if it cannot be opened, or is not a regular
    file.
    """
    if flags == os.O_RDONLY and (mirror := find_mirror(path)) is not None:
        mirror.require()
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(
                errno.ELOOP, "it is a symbolic link, and links are not followed to write", str(path)
            ) from error
        raise
    try:
        is_regular = stat.S_ISREG(os.fstat(file).st_mode)
    except BaseException:
        os.close(file)
        raise
    if not is_regular:
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def open_file(
    path: str | Path,
    read_object: Callable[[MirrorFile], io.RawIOBase] = MirrorIO,
    buffer_nbytes: int = io.DEFAULT_BUFFER_SIZE,
) -> BinaryIO:
    """Open a regular file for reading; raises OSError. Of a copy of a remote object, what is read is fetched.

    ``read_object``: what reads such a copy, by default at any offset.
    """
    return io.BufferedReader(_open_raw(path, read_object), buffer_nbytes)


def open_by_library(path: Path) -> Path | MirrorIO:
    """Open for a library: the path of a regular file, or the bytes of a remote object, whose copy may be deleted.

    Raises OSError if it cannot be opened, or is not a regular file: a library would wait for the writer of a FIFO.
    """
    if isinstance(file := _open_raw(path), MirrorIO):
        return file
    file.close()
    return path


def _open_raw(path: str | Path, read_object: Callable[[MirrorFile], io.RawIOBase] = MirrorIO) -> io.RawIOBase:
    mirror = find_mirror(path)
    return io.FileIO(open_regular(path)) if mirror is None else read_object(mirror)


def name_failure(error: OSError) -> str:
    """Return what the system says of a file, after the name of the file where it is known."""
    name = Path(os.fsdecode(error.filename)).name if isinstance(error.filename, str | bytes | os.PathLike) else ""
    return f"{name}: {error.strerror or error}" if name else error.strerror or str(error)


def read_json(path: Path) -> Any:
    """Parse a file of JSON; raises OSError or ValueError."""
    return read_mended(lambda: _read_json(path), (ValueError,))


def _read_json(path: Path) -> Any:
    with open_file(path) as file:
        content = file.read(_MAX_JSON_NBYTES + 1)
    if len(content) > _MAX_JSON_NBYTES:
        raise ValueError(f"it must have at most {_MAX_JSON_NBYTES} bytes")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def fingerprint_files(paths: Iterable[Path], salt: str = "") -> str:
    """A hash of the sizes, and of the first and last 64 KiB, of some files; the same for copies of them."""
    state, files = xxhash.xxh3_128(salt.encode()), list(paths)
    announce_ends(files, _SAMPLED_NBYTES)
    announce_ends(files, _SAMPLED_NBYTES, last=True)
    for path in files:
        with open_file(path) as file:
            nbytes = file.seek(0, os.SEEK_END)
            state.update(f"\0{nbytes}\0".encode())
            for begin in sorted({0, max(0, nbytes - _SAMPLED_NBYTES)}):
                file.seek(begin)
                state.update(file.read(_SAMPLED_NBYTES))
    return state.hexdigest()


@contextlib.contextmanager
def replacing_file(path: Path, prefix: str = "") -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of ``path`` in one step when it is complete; raises OSError.

    Its name begins with ``prefix`` until then; by default with the name of the file.
    """
    partial = path.parent / f"{prefix or f'{path.name}.'}{uuid.uuid4().hex}.partial"
    # Others may read it as far as the umask lets them, as any file beside shared data; those of tempfile they may not.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def replace_json(path: Path, entry: Mapping[str, object], *, sync: bool = True) -> None:
    """Write a file of JSON in one step: a process that is killed leaves the file of before. ``sync``: onto the disk."""
    partial = Path(f"{path}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(open_regular(partial, flags), "w", encoding="utf-8") as file:
        file.write(json.dumps(entry))  # many times faster than `json.dump`
        file.flush()
        if sync:
            os.fsync(file.fileno())
    partial.replace(path)


def refuse_links(root: Path, path: Path) -> None:
    """Raise OSError if a path below ``root``, or a folder on the way to it, is a symbolic link.

    What is written or removed there would lie elsewhere.
    """
    for each in (path, *path.parents):
        if each == root:
            return
        if each.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, and links are not followed to write", str(each))


def remove_tree(path: Path) -> None:
    """Remove a folder, if it is there; of a symbolic link, only the link. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def has_magic(path: str | Path, magic: bytes, offsets: Sequence[int] = (0,)) -> bool:
    """Return whether a path is a regular file that has ``magic`` at one of the offsets; False if it cannot be read."""
    try:
        with _open_raw(path) as file:
            return any(file.seek(offset) == offset and file.read(len(magic)) == magic for offset in offsets)
    except OSError:
        return False
