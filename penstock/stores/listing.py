"""Lists a folder of images: which files are records, of which class, and what else lies there.

::

    photos/10/img2.jpg      class 0 ("10")     classes in plain string order, as torchvision numbers them
    photos/10/img10.jpg     class 0            records inside a class in natural order: img2 before img10
    photos/2/a/7.png        class 1 ("2")      folders below a class belong to it, after the class's own files
    photos/README.md        ignored            not an image by its name
    photos/2/gone.jpg       unreadable         a symbolic link that leads nowhere

Called by :class:`~penstock.stores.files.FilesStore`. No file is opened: the name's ending makes a file an image. What
is left out is listed, but for names that begin with a dot. The listing is what a pickled store carries to a worker:
nothing is listed there again.
"""

from __future__ import annotations

import os
import stat
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.plurals import counted
from penstock.stores.base import Skipped
from penstock.stores.names import listed, natural_key

__all__ = ["IMAGE_SUFFIXES", "KeyList", "Listing", "list_folder", "name_kind"]

IMAGE_SUFFIXES: Final = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".avif"}
)
"""Endings, in lower case, that make a file an image of the store: of the formats that decoding reads."""

_UNREAD_SUFFIXES: Final = frozenset(
    {".heic", ".heif", ".hif", ".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".jxl", ".jxr", ".tga", ".psd", ".exr"}
    | {".hdr", ".qoi", ".dds", ".pcx", ".sgi", ".pfm", ".dcm", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf"}
)
"""Endings of images that decoding does not read: such a file is not ignored, as a README is."""

_SYSTEM_FOLDERS: Final = frozenset(
    {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__pycache__"}
)
"""Folders that operating systems and tools leave beside files; some hold thumbnails."""

_FEW: Final = 5
_IGNORED_NAMED: Final = 1000
_NO_IMAGE: Final = "a folder without any image"
_KINDS: Final = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


class KeyList(Sequence[str]):
    """Names of records in one piece of memory: a million take some 30 MB, where a list of str takes 90.

    Parameters
    ----------
    joined : bytes
        The names in UTF-8, each with a zero byte behind it.
    """

    def __init__(self, joined: bytes) -> None:
        self.joined = joined
        ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == 0)
        self._begins = np.append(0, ends + 1).data  # and one more, where the next name would begin

    @classmethod
    def of(cls, names: Iterable[str]) -> KeyList:
        """A list of these names, none of which may hold a zero character."""
        return cls("".join(f"{name}\0" for name in names).encode())

    def __len__(self) -> int:
        return len(self._begins) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        begins = self._begins
        number = index if index >= 0 else index + len(begins) - 1
        if not 0 <= number < len(begins) - 1:
            raise IndexError(f"index {index} is outside this list of {counted(len(self), 'name')}")
        return self.joined[begins[number] : begins[number + 1] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.joined.decode().split("\0")[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyList, (self.joined,)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'name')}>"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder of images held when it was listed.

    Parameters
    ----------
    keys : KeyList
        Paths of the records below the folder, with forward slashes.
    labels, sizes : ndarray of int64
        The class of each, and its bytes; read-only.
    classes : tuple of str
        Names of the classes, by number.
    problems : tuple of Skipped
        Everything else, with the reason.
    unreadable : tuple of Skipped
        Those of the problems that may be images, or hold some.
    digest : str
        A hash of all of it and of the files' times of change, but for problems that are certainly no images.
    """

    keys: KeyList
    labels: NDArray[np.int64]
    sizes: NDArray[np.int64]
    classes: tuple[str, ...]
    problems: tuple[Skipped, ...]
    unreadable: tuple[Skipped, ...]
    digest: str

    def compressed(self) -> tuple[Any, ...]:
        """The same in few bytes (some eight a file), for a pickle; :meth:`decompressed` is the inverse."""
        starts = np.flatnonzero(np.diff(self.labels, prepend=-1))
        runs = self.labels[starts].tolist(), np.diff(starts, append=len(self.labels)).tolist()
        dtype = "<u4" if self.sizes.max(initial=0) < 1 << 32 else "<i8"
        sizes = dtype, zlib.compress(self.sizes.astype(dtype).tobytes(), 1)
        names = zlib.compress(self.keys.joined, 1)
        return names, runs, sizes, self.classes, self.problems, self.unreadable, self.digest

    @classmethod
    def decompressed(cls, compressed: tuple[Any, ...]) -> Listing:
        """The listing that :meth:`compressed` was asked of."""
        names, (labels, counts), (dtype, sizes), *rest = compressed
        return cls(
            KeyList(zlib.decompress(names)),
            _read_only(np.repeat(np.array(labels, np.int64), counts)),
            _read_only(np.frombuffer(zlib.decompress(sizes), dtype).astype(np.int64)),
            *rest,
        )


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
    folders = walk.scan("", ())
    loose = len(walk.keys)
    found: dict[str, int] = {}
    for folder, ancestors in sorted(folders):
        before = len(walk.keys)
        walk.add_folder(folder, ancestors)
        if len(walk.keys) > before:
            found[folder] = len(walk.keys) - before
        elif folder not in walk.cycles and folder not in walk.unlisted:
            walk.ignore(f"{folder}/", _NO_IMAGE)
    walk.close()
    if loose and found:
        raise StoreFormatError(
            f"{counted(loose, 'image')} beside the class folders ({listed(walk.keys[:loose])}); each image must be "
            "inside a class folder, or all of them directly in the folder",
            store=url,
        )
    if loose:
        found = {root.resolve().name or "root": loose}
    if not found:
        others = [*walk.unreadable, *walk.problems][:1]
        raise StoreFormatError(
            f"there is no image in this folder: {counted(len(walk.problems), 'other entry')}"
            f"{''.join(f', such as {key!r} ({reason})' for key, reason in others)}; images end in "
            f"{', '.join(sorted(IMAGE_SUFFIXES))}",
            store=url,
        )
    if classes is None:
        if not loose:
            _refuse_empty(walk, [folder for folder, _ in folders if folder not in found], list(found), url)
        classes = tuple(found)
    _refuse_unnamed(found, classes, url)
    return _described(walk, found, classes)


def _described(walk: _Walk, found: Mapping[str, int], classes: tuple[str, ...]) -> Listing:
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.repeat(np.array([numbers[name] for name in found], np.int64), list(found.values()))
    keys, sizes = KeyList.of(walk.keys), np.array(walk.sizes, np.int64)
    state = xxhash.xxh3_128(keys.joined)
    for column in (labels, sizes, np.array(walk.times, np.int64)):
        state.update(column.astype("<i8").tobytes())
    state.update(repr((classes, walk.unreadable)).encode())
    return Listing(
        keys,
        _read_only(labels),
        _read_only(sizes),
        classes,
        tuple(walk.problems),
        tuple(walk.unreadable),
        state.hexdigest(),
    )


def _read_only(column: NDArray[np.int64]) -> NDArray[np.int64]:
    column.flags.writeable = False
    return column


def name_kind(mode: int) -> str:
    """What kind of file a mode says that something is, in words."""
    return "a folder" if stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "something")


def _refuse_empty(walk: _Walk, without: Sequence[str], found: Sequence[str], url: str) -> None:
    """Refuse what may be a class and has no images: leaving it out would renumber the others."""
    empty = {name: walk.unlisted.get(name, "") for name in without if name not in walk.cycles}
    empty.update({name: reason for name, reason in walk.unlisted.items() if "/" not in name})
    if not empty:
        return
    reasons = "".join(f" ({reason})" for reason in sorted({*empty.values()} - {""}))
    folders, them = ("folder", "it") if len(empty) == 1 else ("folders", "them")
    option = f"--classes {','.join(found)}" if len(found) <= _FEW else "--classes"
    raise StoreFormatError(
        f"there is no image in the {folders} {listed(sorted(empty))}{reasons}; each folder is a class and must hold "
        f"images. Remove {them}, or name the classes: classes=[{listed(found)}] ({option}) leaves {them} out; a class "
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

    ``keys`` are the records, with their ``sizes`` and ``times`` of change; ``problems`` is whatever is none, and
    ``unreadable`` those of them that may be images or hold some. ``unlisted`` names what may be a folder of images and
    cannot be listed, with the reason, and ``cycles`` links back to a folder above.
    """

    def __init__(self, root: Path) -> None:
        self.keys: list[str] = []
        self.sizes, self.times = array("q"), array("q")
        self.problems: list[Skipped] = []
        self.unreadable: list[Skipped] = []
        self.unlisted: dict[str, str] = {}
        self.cycles: set[str] = set()
        self._root = root
        self._ignored: Counter[str] = Counter()

    def add_folder(self, folder: str, ancestors: _Ancestors) -> None:
        """Take all that is below a folder, its files before its sub-folders, without recursion on Python's stack."""
        waiting = [(folder, ancestors)]
        while waiting:
            waiting.extend(reversed(self.scan(*waiting.pop())))

    def scan(self, folder: str, ancestors: _Ancestors) -> list[tuple[str, _Ancestors]]:
        """Take the images directly in ``folder``, in natural order; gives the folders in it."""
        folders: list[tuple[str, _Ancestors]] = []
        path = self._root / folder
        try:
            seen = path.stat()
            if (seen.st_dev, seen.st_ino) in ancestors:
                self.ignore(f"{folder}/", "a symbolic link to a folder that it is itself inside of")
                self.cycles.add(folder)
                return folders
            with os.scandir(path) as entries:
                ordered = sorted((entry for entry in entries if not entry.name.startswith(".")), key=_entry_key)
        except OSError as error:
            self.unlisted[folder] = f"a folder that cannot be listed: {error.strerror}"
            self._refuse(f"{folder}/", self.unlisted[folder])
            return folders
        ancestors = (*ancestors, (seen.st_dev, seen.st_ino))
        for entry in ordered:
            key = f"{folder}/{entry.name}" if folder else entry.name
            if self._is_folder(entry, key):
                folders.append((key, ancestors))
        return folders

    def close(self) -> None:
        """Note how many more files are no images than were named."""
        for suffix, count in self._ignored.items():
            if count > _IGNORED_NAMED:
                more = f"{counted(count - _IGNORED_NAMED, 'more file')} that are not images by their names"
                self.problems.append(Skipped(f"*{suffix}", more))

    def ignore_by_name(self, key: str, suffix: str) -> None:
        """Note a file that is not named as an image; of very many, as of texts beside each image, not every one."""
        self._ignored[suffix] += 1
        if self._ignored[suffix] <= _IGNORED_NAMED:
            self.ignore(key, "not an image by its name")

    def ignore(self, key: str, reason: str) -> None:
        """Note something that is neither an image nor holds any."""
        self.problems.append(Skipped(key, reason))

    def _refuse(self, key: str, reason: str) -> None:
        """Note something that may be an image, or hold some."""
        self.problems.append(Skipped(key, reason))
        self.unreadable.append(self.problems[-1])

    def _is_folder(self, entry: os.DirEntry[str], key: str) -> bool:
        """Whether an entry is a folder to enter; if not, it is taken as a record or noted as none."""
        suffix = entry.name[entry.name.rfind(".") :].lower()
        is_image = suffix in IMAGE_SUFFIXES
        is_folder = False
        try:
            is_folder = entry.is_dir()
            entry.name.encode()
            if not is_folder and suffix in _UNREAD_SUFFIXES and entry.is_file():
                self._refuse(key, f"an image of a format that is not read here ({suffix}); convert it to PNG or JPEG")
            elif not is_folder and not is_image and entry.is_file():
                self.ignore_by_name(key, suffix if suffix.startswith(".") else "")
            elif not is_folder:
                self._add_record(entry, key, is_image=is_image)
            elif entry.name in _SYSTEM_FOLDERS:
                self.ignore(f"{key}/", "a folder that an operating system or a tool keeps")
                return False
        except UnicodeEncodeError:
            if is_folder or is_image:
                self._refuse_unlisted(_spelt(key), "a name that is not UTF-8", is_image=not is_folder)
            else:
                self.ignore(_spelt(key), "a name that is not UTF-8")
            return False
        except FileNotFoundError:
            reason = "a symbolic link that leads nowhere" if entry.is_symlink() else "it vanished during listing"
            self._refuse_unlisted(key, reason, is_image=is_image)
            return False
        except OSError as error:
            self._refuse_unlisted(key, f"cannot be looked at: {error.strerror}", is_image=is_image)
            return False
        return is_folder

    def _add_record(self, entry: os.DirEntry[str], key: str, *, is_image: bool) -> None:
        """Take an image as a record; note what is no file."""
        seen = entry.stat()
        if stat.S_ISREG(seen.st_mode):
            self.keys.append(key)
            self.sizes.append(seen.st_size)
            self.times.append(seen.st_mtime_ns)
        else:
            reason = f"{name_kind(seen.st_mode)}, which is never opened"
            (self._refuse if is_image else self.ignore)(key, reason)

    def _refuse_unlisted(self, key: str, reason: str, *, is_image: bool) -> None:
        self._refuse(key, reason)
        if not is_image:
            self.unlisted[key] = reason


def _spelt(key: str) -> str:
    return key.encode(errors="backslashreplace").decode()


def _entry_key(entry: os.DirEntry[str]) -> tuple[tuple[str | int, ...], str]:
    return natural_key(entry.name)
