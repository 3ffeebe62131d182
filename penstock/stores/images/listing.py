"""Lists a folder of images: which files are records, of which class, and what else is there.

::

    photos/10/img2.jpg      class 0 ("10")     classes in plain string order, as torchvision numbers them
    photos/10/img10.jpg     class 0            records inside a class in natural order: img2 before img10
    photos/2/a/7.png        class 1 ("2")      folders below a class belong to it, after the files of the class
    photos/README.md        ignored            not an image by its name
    photos/2/gone.jpg       unreadable         a broken symbolic link

Called by :class:`~penstock.stores.images.store.FilesStore`. No file is opened: a file is an image by the ending of its
name. Only a folder without images is searched for containers, which the error then names.
Every entry that is left out is listed, except names that begin with a dot. A pickled store carries its listing to a
worker, which does not list again.
"""

from __future__ import annotations

import stat
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import StoreFormatError
from penstock.paths import IMAGE_SUFFIXES, UNREAD_SUFFIXES
from penstock.sample import Field, Schema
from penstock.stores.common.keys import KeyList
from penstock.stores.fields.record_names import make_natural_key, quote_names
from penstock.stores.images.annotation_files import find_annotations, find_annotations_beside
from penstock.stores.images.folder_checks import (
    advise_without_images,
    refuse_empty,
    refuse_hidden,
    refuse_unnamed,
    warn_of_meanings,
    warn_of_similar,
)
from penstock.stores.images.trees import FolderEntry, FolderTree, LocalTree, ObjectTree
from penstock.stores.writing import Skipped
from penstock.wording import counted

__all__ = ["Listing", "describe_file_type", "is_system_folder", "list_folder"]

_SYSTEM_FOLDERS: Final = frozenset(
    {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__pycache__"}
)
"""Folders that operating systems and tools create; some contain thumbnails."""

_MAX_IGNORED_NAMES: Final = 1000
_NO_IMAGE: Final = "a folder without images"
_FILE_TYPES: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of a folder of images, at the time when it was listed."""

    keys: KeyList  # paths of the records below the folder, with forward slashes
    labels: NDArray[np.int64]  # the class number of each record; read-only
    sizes: NDArray[np.int64]  # bytes of each record; read-only
    classes: tuple[str, ...]  # names of the classes, by number
    problems: tuple[Skipped, ...]  # every entry that is not a record, with the reason
    unreadable: tuple[Skipped, ...]  # those of the problems that may be images, or contain some
    digest: str  # a hash of the records, their times of change or versions, the classes and the unreadable entries
    versions: KeyList | None = None  # the version of each record in object storage

    @property
    def schema(self) -> Schema:
        """The fields of the records."""
        return Schema({"image": Field("image"), "label": Field("label", self.classes)})

    def fingerprint(self) -> str:
        """A hash of names and labels; the same for a copy of the folder."""
        state = xxhash.xxh3_128(repr(self.schema.to_json()).encode())
        state.update(self.keys.joined)
        state.update(self.labels.astype("<i8").tobytes())
        return state.hexdigest()


def is_system_folder(name: str) -> bool:
    """Return whether folders of this name are made by operating systems and tools, and are not listed."""
    return name in _SYSTEM_FOLDERS


def list_folder(tree: FolderTree, url: str, classes: tuple[str, ...] | None = None) -> Listing:
    """List a folder: first the files directly in it, then each class folder.

    Parameters
    ----------
    tree : FolderTree
        The folder.
    url : str
        The store, for errors.
    classes : tuple of str, optional
        Names of the classes, by number; by default the sub-folders' names in plain string order.

    Raises
    ------
    StoreFormatError
        If there is no image, if images are both beside and inside the class folders, or if a class folder has no image
        and ``classes`` is not given.
    ArgumentError
        If ``classes`` does not name a folder that contains images.
    """
    scan = _FolderScan(tree, classes or ())
    folders = scan.list_entries("", ())
    loose = len(scan.keys)
    found: dict[str, int] = {}
    for folder, ancestors in sorted(folders):
        before = len(scan.keys)
        scan.add_folder(folder, ancestors)
        if len(scan.keys) > before:
            found[folder] = len(scan.keys) - before
        elif folder not in scan.cycles and folder not in scan.unlisted:
            scan.note(f"{folder}/", _NO_IMAGE)
    scan.close()
    if loose and found:
        raise StoreFormatError(
            f"{counted(loose, 'image')} beside the class folders ({quote_names(scan.keys[:loose])}); every image must "
            "be inside a class folder, or all must be directly in the folder",
            store=url,
        )
    if loose:
        found = {tree.name or "root": loose}
    if not found:
        others = [*scan.unreadable, *scan.problems][:1]
        advice = advise_without_images(tree, scan.problems, scan.suffixes)
        raise StoreFormatError(
            f"there is no image in this folder: {counted(len(scan.problems), 'other entry')}"
            f"{''.join(f', such as {key!r} ({reason})' for key, reason in others)}; images end in "
            f"{', '.join(sorted(IMAGE_SUFFIXES))}{advice}",
            store=url,
        )
    if classes is None:
        root = tree.root if isinstance(tree, LocalTree) else None
        annotations = find_annotations(root, scan.keys, (key for key, _ in scan.problems), url)
        if not loose:
            empty = scan.list_empty(folder for folder, _ in folders if folder not in found)
            refuse_empty(empty, list(found), annotations, url)
            refuse_hidden(tree, scan.hidden, list(found), IMAGE_SUFFIXES, url)
        classes = tuple(found)
        warn_of_similar(classes)
        if annotations is None and root is not None and loose:
            annotations = find_annotations_beside(root, scan.keys)
        warn_of_meanings(annotations, classes, scan.keys)
    refuse_unnamed(found, classes, url)
    versions = tree.pick_versions(scan.times) if isinstance(tree, ObjectTree) else None
    return _make_listing(scan, found, classes, versions)


def _make_listing(
    scan: _FolderScan, found: Mapping[str, int], classes: tuple[str, ...], versions: KeyList | None
) -> Listing:
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.repeat(np.array([numbers[name] for name in found], np.int64), list(found.values()))
    keys, sizes = KeyList.from_names(scan.keys), np.array(scan.sizes, np.int64)
    state = xxhash.xxh3_128(keys.joined)
    for column in (labels, sizes):
        state.update(column.astype("<i8").tobytes())
    state.update(np.array(scan.times, "<i8").tobytes() if versions is None else versions.joined)
    state.update(repr((classes, scan.unreadable)).encode())
    return Listing(
        keys,
        _make_read_only(labels),
        _make_read_only(sizes),
        classes,
        tuple(scan.problems),
        tuple(scan.unreadable),
        state.hexdigest(),
        versions,
    )


def _make_read_only(column: NDArray[np.int64]) -> NDArray[np.int64]:
    column.flags.writeable = False
    return column


def describe_file_type(mode: int) -> str:
    """Return the type of a file by its mode, in words: "a folder", "a FIFO"."""
    return "a folder" if stat.S_ISDIR(mode) else _FILE_TYPES.get(stat.S_IFMT(mode), "something")


_Ancestors = tuple[tuple[int, int], ...]


class _FolderScan:
    """Collects the contents of a folder.

    ``keys`` are the records, with their ``sizes`` and ``times`` of change (of objects: their numbers). ``problems`` are
    the other entries, and ``unreadable`` those of them that may be images or contain some. ``unlisted`` maps entries
    that may be folders of images and cannot be listed to the reason. ``cycles`` are links to a folder that contains
    them. ``hidden`` are the names at the top that begin with a dot. ``suffixes`` count the files that are no images by
    their names.
    """

    def __init__(self, tree: FolderTree, classes: Collection[str]) -> None:
        self.keys: list[str] = []
        self.sizes, self.times = array("q"), array("q")
        self.problems: list[Skipped] = []
        self.unreadable: list[Skipped] = []
        self.unlisted: dict[str, str] = {}
        self.cycles: set[str] = set()
        self.hidden: list[str] = []
        self._tree, self._classes = tree, frozenset(classes)
        self.suffixes: Counter[str] = Counter()

    def add_folder(self, folder: str, ancestors: _Ancestors) -> None:
        """Add all entries below a folder, its files before its sub-folders; not recursive: folders may be deep."""
        pending = [(folder, ancestors)]
        while pending:
            pending.extend(reversed(self.list_entries(*pending.pop())))

    def list_entries(self, folder: str, ancestors: _Ancestors) -> list[tuple[str, _Ancestors]]:
        """Add the images directly in ``folder``, in natural order; returns the folders in it."""
        folders: list[tuple[str, _Ancestors]] = []
        try:
            identity = self._tree.identify(folder)
            if identity in ancestors:
                self.note(f"{folder}/", "a symbolic link to a folder that contains it")
                self.cycles.add(folder)
                return folders
            listed = [each for each in self._tree.list_entries(folder) if self._is_listed(each, folder)]
            listed.sort(key=lambda entry: make_natural_key(entry.name))
        except OSError as error:
            self.note(f"{folder}/", f"a folder that cannot be listed: {error.strerror}", may_be_folder=True)
            return folders
        ancestors = (*ancestors, identity)
        for entry in listed:
            key = f"{folder}/{entry.name}" if folder else entry.name
            if self._is_folder(entry, key):
                folders.append((key, ancestors))
        return folders

    def list_empty(self, folders: Iterable[str]) -> dict[str, str]:
        """Return which folders without images, and which other entries, may be classes, with the reason."""
        empty = {name: self.unlisted.get(name, "") for name in folders if name not in self.cycles}
        return empty | {name: reason for name, reason in self.unlisted.items() if "/" not in name}

    def close(self) -> None:
        """Add one entry for each suffix of which not every file was named."""
        for suffix, count in self.suffixes.items():
            if count > _MAX_IGNORED_NAMES:
                more = f"{counted(count - _MAX_IGNORED_NAMES, 'more file')} that are not images by their names"
                self.problems.append(Skipped(f"*{suffix}", more))

    def ignore_by_name(self, key: str, suffix: str) -> None:
        """Note a file that is no image by its name; of a suffix, at most 1,000 files are named."""
        self.suffixes[suffix] += 1
        if self.suffixes[suffix] <= _MAX_IGNORED_NAMES:
            self.note(key, "not an image by its name")

    def note(self, key: str, reason: str, *, may_be_image: bool = False, may_be_folder: bool = False) -> None:
        """Note an entry that is no record: whether it may be an image, or a folder that contains some."""
        self.problems.append(Skipped(key, reason))
        if may_be_image or may_be_folder:
            self.unreadable.append(self.problems[-1])
        if may_be_folder:
            self.unlisted[key.removesuffix("/")] = reason

    def _is_listed(self, entry: FolderEntry, folder: str) -> bool:
        """Return whether an entry is not hidden, or a class that was named.

        Others of the top are kept in ``hidden``.
        """
        is_listed = not entry.name.startswith(".") or (not folder and entry.name in self._classes)
        if not is_listed and not folder:
            self.hidden.append(entry.name)
        return is_listed

    def _is_folder(self, entry: FolderEntry, key: str) -> bool:
        """Return whether an entry is a folder to list; any other entry is added as a record or noted as a problem."""
        suffix = entry.name[entry.name.rfind(".") :].lower()
        is_image = suffix in IMAGE_SUFFIXES
        is_folder = False
        try:
            is_folder = entry.is_dir()
            entry.name.encode()
            if not is_folder and suffix in UNREAD_SUFFIXES and entry.is_file():
                reason = f"an image of a format that cannot be decoded ({suffix}); convert it to PNG or JPEG"
                self.note(key, reason, may_be_image=True)
            elif not is_folder and not is_image and entry.is_file():
                self.ignore_by_name(key, suffix if suffix.startswith(".") else "")
            elif not is_folder:
                self._add_record(entry, key, is_image=is_image)
            elif entry.name in _SYSTEM_FOLDERS:
                self.note(f"{key}/", "a folder that an operating system or a tool created")
                return False
        except UnicodeEncodeError:
            shown = key.encode(errors="backslashreplace").decode()
            self.note(shown, "a name that is not UTF-8", may_be_image=is_image, may_be_folder=is_folder)
            return False
        except FileNotFoundError:
            reason = "a broken symbolic link" if entry.is_symlink() else "it vanished during listing"
            self.note(key, reason, may_be_image=is_image, may_be_folder=not is_image)
            return False
        except OSError as error:
            reason = f"cannot be looked at: {error.strerror}"
            self.note(key, reason, may_be_image=is_image, may_be_folder=not is_image)
            return False
        return is_folder

    def _add_record(self, entry: FolderEntry, key: str, *, is_image: bool) -> None:
        """Add an image as a record; note an entry that is no regular file."""
        seen = entry.stat()
        if stat.S_ISREG(seen.st_mode):
            self.keys.append(key)
            self.sizes.append(seen.st_size)
            self.times.append(seen.st_mtime_ns)
        else:
            reason = f"{describe_file_type(seen.st_mode)}, which is never opened"
            self.note(key, reason, may_be_image=is_image)
