"""What a folder of images contains: entries of folders on this machine, and of objects in object storage.

Listed by :func:`penstock.stores.images.listing.list_folder`, by the same rules for both.
"""

from __future__ import annotations

import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.stores.common.keys import KeyList

__all__ = ["FolderEntry", "FolderTree", "LocalTree", "ObjectEntry", "ObjectTree"]


@dataclass(frozen=True)
class LocalTree:
    """A folder of this machine."""

    root: Path

    @property
    def name(self) -> str:
        """The name of the folder, to which a link leads."""
        return self.root.resolve().name

    def identify(self, folder: str) -> tuple[int, int]:
        """Return device and inode of a folder; raises OSError."""
        seen = (self.root / folder).stat()
        return seen.st_dev, seen.st_ino

    def list_entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """Return the entries directly in a folder, in any order; raises OSError."""
        with os.scandir(self.root / folder) as entries:
            return list(entries)

    def iter_names(self, folder: str) -> Iterable[str]:
        """The names of all files below a folder; links to folders are not followed."""
        return (name for _, _, names in os.walk(self.root / folder) for name in names)

    def has(self, name: str) -> bool:
        """Return whether there is something of this name, a broken link included."""
        return os.path.lexists(self.root / name)


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object, or a folder that the names of objects make; ``st_mtime_ns`` is the number of the object."""

    name: str
    st_mode: int
    st_size: int = 0
    st_mtime_ns: int = 0

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return stat.S_ISDIR(self.st_mode)

    def is_file(self) -> bool:
        """Return whether it is an object."""
        return not self.is_dir()

    def is_symlink(self) -> bool:
        """There are no links."""
        return False

    def stat(self) -> ObjectEntry:
        """Itself, which has what is asked of :class:`os.stat_result`."""
        return self


class ObjectTree:
    """The objects below a URL.

    Parameters
    ----------
    name : str
        The last part of the URL.
    names : sequence of str
        Names of the objects below the URL, each once, in any order.
    sizes : sequence of int
        Their bytes.
    versions : sequence of str
        Texts that differ when an object is replaced.
    """

    def __init__(self, name: str, names: Sequence[str], sizes: Sequence[int], versions: Sequence[str]) -> None:
        self.name = name
        order = sorted(range(len(names)), key=names.__getitem__)
        self._names = [names[i] for i in order]
        self._sizes = array("q", (sizes[i] for i in order))
        self._versions = [versions[i] for i in order]

    def __len__(self) -> int:
        return len(self._names)

    def identify(self, folder: str) -> tuple[int, int]:
        """Return the depth and the first object: there are no links."""
        return folder.count("/") + bool(folder), self._find(folder)[0]

    def list_entries(self, folder: str) -> Sequence[ObjectEntry]:
        """Objects, and the folders that names below them make."""
        return list(self._iter_entries(folder))

    def iter_names(self, folder: str) -> Iterable[str]:
        """Names of all objects below a folder, from there on."""
        at, end = self._find(folder)
        cut = len(folder) + bool(folder)
        return (self._names[i][cut:] for i in range(at, end))

    def has(self, name: str) -> bool:
        """Return whether there is an object of this name, or below it."""
        at = bisect_left(self._names, name)
        return (at < len(self._names) and self._names[at] == name) or self._has_folder(name)

    def pick_versions(self, numbers: Iterable[int]) -> KeyList:
        """Return the versions of some objects."""
        return KeyList.from_names(self._versions[number].replace("\0", "") for number in numbers)

    def _iter_entries(self, folder: str) -> Iterator[ObjectEntry]:
        names = self._names
        at, end = self._find(folder)
        cut = len(folder) + bool(folder)
        while at < end:
            name, slash, _ = names[at][cut:].partition("/")
            if slash:
                yield ObjectEntry(name, stat.S_IFDIR)
                at = self._find(names[at][: cut + len(name)])[1]
                continue
            if name and not self._has_folder(names[at]):  # programs mark folders by empty objects of their names
                yield ObjectEntry(name, stat.S_IFREG, self._sizes[at], at)
            at += 1

    def _find(self, folder: str) -> tuple[int, int]:
        """Return the objects below a folder: the first, and behind the last."""
        if not folder:
            return 0, len(self._names)
        return bisect_left(self._names, f"{folder}/"), bisect_left(self._names, f"{folder}0")  # 0 follows /

    def _has_folder(self, name: str) -> bool:
        at = self._find(name)[0]
        return at < len(self._names) and self._names[at].startswith(f"{name}/")


FolderEntry = os.DirEntry[str] | ObjectEntry
"""A file or a folder."""
FolderTree = LocalTree | ObjectTree
"""A folder and all that is below it; names of folders are relative, and that of the folder itself is empty."""
