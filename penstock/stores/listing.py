"""Lists a folder of images: which files are records, of which class, and what else lies there.

::

    photos/10/img2.jpg      class 0 ("10")     classes in plain string order, as torchvision numbers them
    photos/10/img10.jpg     class 0            records inside a class in natural order: img2 before img10
    photos/2/a/7.png        class 1 ("2")      folders below a class belong to it, after the class's own files
    photos/README.md        ignored            not an image by its name
    photos/2/gone.jpg       unreadable         a symbolic link that leads nowhere

Called by :class:`~penstock.stores.files.FilesStore`. No file is opened: the name's ending makes a file an image. What
is left out is listed, but for names that begin with a dot.
"""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError, StoreFormatError
from penstock.plurals import counted
from penstock.stores.base import Skipped
from penstock.stores.names import listed, natural_key

__all__ = ["IMAGE_SUFFIXES", "Listing", "list_folder", "name_kind"]

IMAGE_SUFFIXES: Final = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"}
)
"""Endings, in lower case, that make a file an image of the store."""

_SYSTEM_FOLDERS: Final = frozenset(
    {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__pycache__"}
)
"""Folders that operating systems and tools leave beside files; some hold thumbnails."""

_NO_IMAGE: Final = "a folder without any image"
_KINDS: Final = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder of images holds.

    Parameters
    ----------
    keys : list of str
        Paths of the records below the folder, with forward slashes.
    labels : list of int
        The class of each.
    classes : tuple of str
        Names of the classes, by number.
    problems : tuple of Skipped
        Everything else, with the reason.
    unreadable : tuple of Skipped
        Those of the problems that may be images, or hold some.
    """

    keys: list[str]
    labels: list[int]
    classes: tuple[str, ...]
    problems: tuple[Skipped, ...]
    unreadable: tuple[Skipped, ...]


def list_folder(root: Path, url: str, classes: tuple[str, ...] | None = None) -> Listing:
    """List a folder: first its own files, then each class.

    Parameters
    ----------
    root : Path
        The folder.
    url : str
        The store, for errors.
    classes : tuple of str, optional
        Names of the classes, by number; by default the sub-folders' names in plain string order.

    Raises
    ------
    StoreFormatError
        If there is no image, if images lie both beside and inside the class folders, or if a class folder has no image
        and ``classes`` is not given.
    ArgumentError
        If ``classes`` does not name a folder that holds images.
    """
    walk = _Walk(root)
    loose, folders = walk.scan("", ())
    found: dict[str, list[str]] = {}
    for folder, ancestors in sorted(folders):
        images = list(walk.below(folder, ancestors))
        if images:
            found[folder] = images
        elif folder not in walk.circles and folder not in walk.lost:
            walk.ignore(f"{folder}/", _NO_IMAGE)
    if loose and found:
        raise StoreFormatError(
            f"{counted(len(loose), 'image')} beside the class folders ({listed(loose)}); each image must be inside a "
            "class folder, or all of them directly in the folder",
            store=url,
        )
    if loose:
        found = {root.resolve().name or "root": loose}
    if not found:
        raise StoreFormatError(
            f"there is no image in this folder ({counted(len(walk.problems), 'other entry')}; images end in "
            f"{', '.join(sorted(IMAGE_SUFFIXES))})",
            store=url,
        )
    if classes is None:
        if not loose:
            _refuse_empty(walk, [folder for folder, _ in folders if folder not in found], list(found), url)
        classes = tuple(found)
    _refuse_unnamed(found, classes, url)
    numbers = {name: number for number, name in enumerate(classes)}
    return Listing(
        keys=[key for images in found.values() for key in images],
        labels=[numbers[name] for name, images in found.items() for _ in images],
        classes=classes,
        problems=tuple(walk.problems),
        unreadable=tuple(walk.unreadable),
    )


def name_kind(mode: int) -> str:
    """What kind of file a mode says that something is, in words."""
    return "a folder" if stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "something")


def _refuse_empty(walk: _Walk, without: Sequence[str], found: Sequence[str], url: str) -> None:
    """Refuse what may be a class and has no images: leaving it out would renumber the others."""
    empty = {name: walk.lost.get(name, "") for name in without if name not in walk.circles}
    empty.update({name: reason for name, reason in walk.lost.items() if "/" not in name})
    if not empty:
        return
    reasons = "".join(f" ({reason})" for reason in sorted({*empty.values()} - {""}))
    folders, them = ("folder", "it") if len(empty) == 1 else ("folders", "them")
    raise StoreFormatError(
        f"there is no image in the {folders} {listed(sorted(empty))}{reasons}; each folder is a class and must hold "
        f"images. Remove {them}, or name the classes: classes=[{listed(found)}] (--classes) leaves {them} out; a class "
        "that is named keeps its number, with or without images",
        store=url,
    )


def _refuse_unnamed(found: Iterable[str], classes: tuple[str, ...], url: str) -> None:
    if unnamed := sorted(set(found) - set(classes)):
        raise ArgumentError(
            f"classes does not name the {'folder' if len(unnamed) == 1 else 'folders'} {listed(unnamed)}, which "
            f"{'holds' if len(unnamed) == 1 else 'hold'} images; it names {listed(classes)}",
            store=url,
        )


_Ancestors = tuple[tuple[int, int], ...]


class _Walk:
    """One walk through a folder.

    ``problems`` is whatever is no record, ``unreadable`` those of them that may be images or hold some; ``lost`` names
    what may be a folder of images and cannot be listed, with the reason, and ``circles`` links back to a folder above.
    """

    def __init__(self, root: Path) -> None:
        self.problems: list[Skipped] = []
        self.unreadable: list[Skipped] = []
        self.lost: dict[str, str] = {}
        self.circles: set[str] = set()
        self._root = root

    def below(self, folder: str, ancestors: _Ancestors) -> Iterator[str]:
        """Images below a folder, a folder's files before its sub-folders, without recursion on Python's stack."""
        waiting = [(folder, ancestors)]
        while waiting:
            folder, ancestors = waiting.pop()
            images, folders = self.scan(folder, ancestors)
            yield from images
            waiting.extend(reversed(folders))

    def scan(self, folder: str, ancestors: _Ancestors) -> tuple[list[str], list[tuple[str, _Ancestors]]]:
        """Images and folders directly in ``folder``, in natural order."""
        images: list[str] = []
        folders: list[tuple[str, _Ancestors]] = []
        path = self._root / folder
        seen = path.stat()
        if (seen.st_dev, seen.st_ino) in ancestors:
            self.ignore(f"{folder}/", "a symbolic link to a folder that it is itself inside of")
            self.circles.add(folder)
            return images, folders
        ancestors = (*ancestors, (seen.st_dev, seen.st_ino))
        try:
            with os.scandir(path) as entries:
                ordered = sorted((entry for entry in entries if not entry.name.startswith(".")), key=_entry_key)
        except PermissionError:
            self._refuse(f"{folder}/", "a folder that may not be read")
            self.lost[folder] = "a folder that may not be read"
            return images, folders
        for entry in ordered:
            key = f"{folder}/{entry.name}" if folder else entry.name
            kind = self._look(entry, key)
            if kind is _Kind.IMAGE:
                images.append(key)
            elif kind is _Kind.FOLDER:
                folders.append((key, ancestors))
        return images, folders

    def ignore(self, key: str, reason: str) -> None:
        """Note something that is neither an image nor holds any."""
        self.problems.append(Skipped(key, reason))

    def _refuse(self, key: str, reason: str) -> None:
        """Note something that may be an image, or hold some."""
        self.problems.append(Skipped(key, reason))
        self.unreadable.append(self.problems[-1])

    def _look(self, entry: os.DirEntry[str], key: str) -> _Kind:
        """What an entry is; what is neither an image nor a folder to enter is noted."""
        is_image = entry.name[entry.name.rfind(".") :].lower() in IMAGE_SUFFIXES
        try:
            if entry.is_dir():
                return self._look_at_folder(entry, key)
            entry.name.encode()
            if not entry.is_file():
                reason = f"{name_kind(entry.stat().st_mode)}, which is never opened"
                (self._refuse if is_image else self.ignore)(key, reason)
            elif is_image:
                return _Kind.IMAGE
            else:
                self.ignore(key, "not an image by its name")
        except UnicodeEncodeError:
            (self._refuse if is_image else self.ignore)(_spelt(key), "a name that is not UTF-8")
        except FileNotFoundError:
            self._lose(key, "a symbolic link that leads nowhere", is_image=is_image)
        except OSError as error:
            self._lose(key, f"cannot be looked at: {error.strerror}", is_image=is_image)
        return _Kind.OTHER

    def _look_at_folder(self, entry: os.DirEntry[str], key: str) -> _Kind:
        if entry.name in _SYSTEM_FOLDERS:
            self.ignore(f"{key}/", "a folder that an operating system or a tool keeps")
            return _Kind.OTHER
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            self._lose(_spelt(key), "a name that is not UTF-8", is_image=False)
            return _Kind.OTHER
        return _Kind.FOLDER

    def _lose(self, key: str, reason: str, *, is_image: bool) -> None:
        self._refuse(key, reason)
        if not is_image:
            self.lost[key] = reason


class _Kind(enum.Enum):
    IMAGE = enum.auto()
    FOLDER = enum.auto()
    OTHER = enum.auto()


def _spelt(key: str) -> str:
    return key.encode(errors="backslashreplace").decode()


def _entry_key(entry: os.DirEntry[str]) -> tuple[tuple[str | int, ...], str]:
    return natural_key(entry.name)
