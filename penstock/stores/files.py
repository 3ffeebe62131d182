"""The ``files`` store: a folder of images as it is, a class per sub-folder.

::

    photos/cats/img2.jpg    key "cats/img2.jpg"   label 0 (cats)      natural order: img2 before img10
    photos/cats/img10.jpg   key "cats/img10.jpg"  label 0
    photos/dogs/a/7.png     key "dogs/a/7.png"    label 1 (dogs)      folders below a class belong to it

A folder without sub-folders is one class named like the folder. The folder is listed once, when the store is opened;
files are read anew each time. Only regular files are ever opened, also through symbolic links, since people link
data sets together. What is no image is never dropped silently: it is listed in :attr:`FilesStore.problems` (names that
begin with a dot are the exception). No image is decoded here; the suffix makes a file an image until packing checks it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.sample import Field, Record, Schema
from penstock.stores.base import Skipped, Store
from penstock.stores.names import natural_key

__all__ = ["IMAGE_SUFFIXES", "FilesStore"]

IMAGE_SUFFIXES: Final = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"}
)
"""Endings, in lower case, that make a file an image of the store."""

_MANY: Final = 5
_KINDS: Final = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


class FilesStore(Store):
    """A folder of image files.

    Parameters
    ----------
    path : str or path
        The folder.

    Raises
    ------
    StoreNotFoundError
        If there is no such folder.
    StoreFormatError
        If it holds no image, or images both beside and inside its class folders.
    """

    kind: ClassVar[str] = "files"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        if not self._path.is_dir():
            raise StoreNotFoundError("there is no such folder", store=self.url)
        listing = _list(self._path, self.url)
        self._keys: Sequence[str] = listing.keys
        self._problems = tuple(listing.problems)
        self._labels = np.array(listing.labels, np.int64)
        self._labels.flags.writeable = False
        self._schema = Schema({"image": Field("image"), "label": Field("label", tuple(listing.classes))})

    @property
    def schema(self) -> Schema:
        """``image`` (the file's bytes) and ``label`` (the number of its class folder)."""
        return self._schema

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[Record]:
        """The files at ``indices``, each read whole from disk; see :meth:`Store.read`."""
        self._refuse_closed()
        return [self._read(int(index)) for index in indices]

    def column(self, field: str) -> NDArray[Any]:
        """The labels; the images are no column."""
        self._refuse_closed()
        if self.schema[field].is_blob:
            raise ArgumentError(f"field {field!r} holds encoded bytes, not a column; the columns are: label")
        return self._labels

    def keys(self) -> Sequence[str]:
        """Paths below the folder, with forward slashes."""
        self._refuse_closed()
        return self._keys

    def digest(self) -> str:
        """A hash of names, sizes and times of change; looks at every file's directory entry."""
        self._refuse_closed()
        state = xxhash.xxh3_128()
        for key in self._keys:
            try:
                seen = os.stat(f"{self._path}/{key}")  # noqa: PTH116  # of a million files: pathlib takes twice as long
                state.update(f"{key}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
            except FileNotFoundError:
                state.update(f"{key}\0gone\n".encode())
        state.update(repr((self._schema.to_json(), self._problems)).encode())
        return state.hexdigest()

    def fingerprint(self) -> str:
        """A hash of names and labels: a copied folder has other times, and is the same all the same."""
        state = xxhash.xxh3_128(repr(self._schema.to_json()).encode())
        for key in self._keys:
            state.update(f"{key}\0".encode())
        state.update(self._labels.astype("<i8").tobytes())
        return state.hexdigest()

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Any folder."""
        return Path(path).is_dir()

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """Files that are no images, folders without any, links to nowhere or in circles; each with the reason."""
        return self._problems

    def _read(self, index: int) -> Record:
        self._refuse_outside(index)
        key = self._keys[index]
        try:
            content = _contents(f"{self._path}/{key}")
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                "this file vanished after the folder was listed", store=self.url, key=key, index=index
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"this file cannot be read: {reason}", store=self.url, key=key, index=index) from error
        return Record(index, key, {"image": content, "label": int(self._labels[index])})


def _contents(path: str) -> bytes:
    """All bytes of a regular file; one that grows or shrinks while it is read is refused."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO put in the file's place must not block
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, f"it is {_name_kind(before.st_mode)}, no longer a regular file")
        content = os.read(file, before.st_size + 1)  # one more than there is: a read that falls short met the end
        while 0 < len(content) < before.st_size and (part := os.read(file, before.st_size + 1 - len(content))):
            content += part  # the system gives 2 GiB at most at a time
        if len(content) != before.st_size:
            raise OSError(errno.EAGAIN, f"it changed while it was read ({before.st_size} bytes when opened)")
        return content
    finally:
        os.close(file)


def _name_kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "something")


@dataclass(slots=True)
class _Listing:
    keys: list[str]
    labels: list[int]
    classes: list[str]
    problems: list[Skipped]


def _list(root: Path, url: str) -> _Listing:
    """Walk the folder: first its own files, then each class."""
    problems: list[Skipped] = []
    loose, folders = _scan(root, "", (), problems)
    found: list[tuple[str, list[str]]] = []
    for folder, ancestors in folders:
        images = list(_walk(root, folder, ancestors, problems))
        if images:
            found.append((folder, images))
        else:
            problems.append(Skipped(f"{folder}/", "a folder without any image"))
    if loose and found:
        names = ", ".join(map(repr, loose[:_MANY])) + (f" and {len(loose) - _MANY} more" if len(loose) > _MANY else "")
        raise StoreFormatError(
            f"{len(loose)} images lie beside the class folders ({names}); each image must be inside a class folder, "
            "or all of them directly in the folder",
            store=url,
        )
    if loose:
        found = [(root.resolve().name or "root", loose)]
    if not found:
        raise StoreFormatError(
            f"there is no image in this folder ({len(problems)} other entries; images end in "
            f"{', '.join(sorted(IMAGE_SUFFIXES))})",
            store=url,
        )
    listing = _Listing([], [], [name for name, _ in found], problems)
    for label, (_, images) in enumerate(found):
        listing.keys += images
        listing.labels += [label] * len(images)
    return listing


_Ancestors = tuple[tuple[int, int], ...]


def _walk(root: Path, folder: str, ancestors: _Ancestors, problems: list[Skipped]) -> Iterator[str]:
    """Images below a class folder, a folder's files before its sub-folders, without recursion on Python's stack."""
    waiting = [(folder, ancestors)]
    while waiting:
        folder, ancestors = waiting.pop()
        images, folders = _scan(root, folder, ancestors, problems)
        yield from images
        waiting.extend(reversed(folders))


def _scan(
    root: Path, folder: str, ancestors: _Ancestors, problems: list[Skipped]
) -> tuple[list[str], list[tuple[str, _Ancestors]]]:
    """Images and folders directly in ``folder``, in natural order; all else goes to ``problems``."""
    images: list[str] = []
    folders: list[tuple[str, _Ancestors]] = []
    path = root / folder
    seen = path.stat()
    if (seen.st_dev, seen.st_ino) in ancestors:
        problems.append(Skipped(f"{folder}/", "a symbolic link to a folder that it is itself inside of"))
        return images, folders
    ancestors = (*ancestors, (seen.st_dev, seen.st_ino))
    try:
        with os.scandir(path) as entries:
            ordered = sorted((entry for entry in entries if not entry.name.startswith(".")), key=_entry_key)
    except PermissionError:
        problems.append(Skipped(f"{folder}/", "a folder that may not be read"))
        return images, folders
    for entry in ordered:
        key = f"{folder}/{entry.name}" if folder else entry.name
        reason = _refusal(entry)
        if reason is not None:
            problems.append(Skipped(key.encode(errors="backslashreplace").decode(), reason))
        elif entry.is_dir():
            folders.append((key, ancestors))
        else:
            images.append(key)
    return images, folders


def _entry_key(entry: os.DirEntry[str]) -> tuple[tuple[str | int, ...], str]:
    return natural_key(entry.name)


def _refusal(entry: os.DirEntry[str]) -> str | None:
    """Why an entry is neither a folder to enter nor an image; None if it is one."""
    reason = None
    try:
        entry.name.encode()
        if entry.is_file():
            if PurePosixPath(entry.name).suffix.lower() not in IMAGE_SUFFIXES:
                reason = "not an image by its name"
        elif not entry.is_dir():
            reason = f"{_name_kind(entry.stat().st_mode)}, which is never opened"
    except UnicodeEncodeError:
        reason = "a name that is not UTF-8"
    except FileNotFoundError:
        reason = "a symbolic link that leads nowhere"
    except OSError as error:
        reason = f"cannot be looked at: {error.strerror}"
    return reason
