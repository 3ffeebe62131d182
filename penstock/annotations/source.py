"""The files of a source of annotations: found, listed once, and read with limits.

::

    "dataset/"                                       root: the folder
    "dataset/data.yaml"                              root: the folder of the file
    {"annotations": "a/x.json", "images": "a/train"} root: the folder that holds all of them, "a"
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from PIL import Image, UnidentifiedImageError

from penstock.errors import AnnotationError, ArgumentError
from penstock.orientation import PictureHeader
from penstock.paths import IMAGE_SUFFIXES, MAX_PATH, FolderListings, find_encoding, refuse_remote, split_path
from penstock.registry import require
from penstock.sample import Value

__all__ = ["AnnotationSource", "find_split", "open_picture"]

_ROLES: Final = ("annotations", "images", "classes")
_MAX_EXAMINED: Final = 8
_REMEMBERED: Final = 1024
"""Names whose images are remembered: lists name one image several times in a row."""
_MAX_TEXT_NBYTES: Final = 1 << 31
_PACKAGES: Final = {
    **dict.fromkeys((".heic", ".heif", ".hif"), ("pillow_heif", "HeifImageFile", "heif")),
    ".jxl": ("pillow_jxl.JpegXLImagePlugin", "JXLImageFile", "jxl"),
}
"""Packages that read pictures for Pillow: the module, its class, and the extra that installs it."""

_SPLIT: Final = re.compile(
    r"(?:\w+[-_])?(?:(train)(?:ing)?|(val)(?:id(?:ation)?)?|(test)(?:ing)?|(dev))(?:[-_]?(?:19|20)\d\d)?", re.IGNORECASE
)
"""The name of a split, or of a folder of one: "train", "valid", "val2017", "WIDER_val"; none is "trainval"."""
_MAY_NAME_SPLIT: Final = re.compile(r"train|val|test|dev", re.IGNORECASE)


def open_picture(path: Path) -> Image.Image:
    """Return a picture whose header has been read, to be closed by the caller; raises what Pillow raises."""
    try:
        return Image.open(path)
    except UnidentifiedImageError:
        if (reader := _PACKAGES.get(path.suffix.lower())) is None:
            raise
    module, name, extra = reader
    require(module.partition(".")[0], extra=extra, purpose=f"to read {path.name}")
    opened: Image.Image = getattr(importlib.import_module(module), name)(path)
    return opened


class AnnotationSource:
    """A folder, a file, or separate places of annotations, images and classes; made by :meth:`open`.

    Parameters
    ----------
    root : Path
        The folder that the paths of images are relative to.
    path : Path, optional
        The folder or file that was given; None where a mapping was given without ``annotations``.
    images, classes : Path, optional
        Where they were said to be.
    """

    def __init__(self, root: Path, path: Path, images: Path | None, classes: Path | None) -> None:
        self.root, self.path, self.images, self.classes = root, path, images, classes
        self._below = os.path.join(root, "")  # noqa: PTH118  # ends with a separator
        self._pictures: dict[Path, PictureHeader | str] = {}
        self._listings = FolderListings()
        self._find_once = functools.lru_cache(_REMEMBERED)(self._find_image)

    @classmethod
    def open(cls, given: object, images: str | os.PathLike[str] | None) -> AnnotationSource:
        """Return a source from what a caller of :func:`penstock.annotations.read` gave.

        Raises
        ------
        ArgumentError
            If it is neither a path nor a mapping of the known names to paths.
        AnnotationError
            If one of the paths does not exist.
        """
        if isinstance(given, Mapping):
            if unknown := [name for name in given if name not in _ROLES]:
                raise ArgumentError(f"a source must have the names {', '.join(_ROLES)}, got {unknown[0]!r}")
            roles = {name: Path(os.fspath(value)) for name, value in given.items()}
            if "annotations" not in roles and "images" not in roles:
                raise ArgumentError("a source must name annotations or images, got neither")
        elif isinstance(given, str | os.PathLike):
            roles = {"annotations": Path(os.fspath(given))}
        else:
            raise ArgumentError(f"a source must be a path or a mapping of names to paths, got {given!r:.200}")
        if images is not None:
            roles["images"] = Path(os.fspath(images))
        refuse_remote(list(roles.values()))
        # `resolve` would follow links, and paths would no longer be those that were given
        roles = {name: Path(os.path.abspath(path)) for name, path in roles.items()}  # noqa: PTH100
        for name, path in roles.items():
            if not path.exists():
                raise AnnotationError(f"there is nothing at {path}, which was given as {name}")
        main = roles.get("annotations") or roles["images"]
        folders = [each if each.is_dir() else each.parent for each in roles.values()]
        root = Path(os.path.commonpath(folders))
        return cls(root, main, roles.get("images"), roles.get("classes"))

    @cached_property
    def folder(self) -> Path:
        """The folder that was given, or that of the file that was given."""
        return self.path if self.path.is_dir() else self.path.parent

    @cached_property
    def _places(self) -> list[str]:
        """Folders in which every image is looked for."""
        return [os.fspath(each) for each in (self.images, self.folder, self.root) if each is not None]

    def relative(self, path: Path) -> str:
        """Return a path as records and problems have it: below the root, with slashes."""
        text = os.fspath(path)
        if text.startswith(self._below):  # as a rule; `relative_to` takes longer than all else of an image
            return text[len(self._below) :].replace(os.sep, "/")
        return Path(os.path.relpath(path, self.root)).as_posix()

    def list_files(self, folder: Path | None = None, *suffixes: str) -> list[Path]:
        """Return the files below a folder whose names end so, in small letters, sorted by path, without hidden ones."""
        found: list[Path] = []
        for parent, folders, names in os.walk(self.folder if folder is None else folder):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__MACOSX")
            found += [
                Path(parent, name)
                for name in names
                if not name.startswith(".") and (not suffixes or name.lower().endswith(suffixes))
            ]
        return sorted(found)

    def list_given(self, suffix: str) -> list[Path]:
        """Return the file that was given, or those below the folder that was given whose names end so."""
        return [self.path] if self.path.is_file() else self.list_files(None, suffix)

    def begins(self, suffix: str, nbytes: int, pattern: re.Pattern[bytes]) -> bool:
        """Whether one of the first files with this suffix has a pattern in its first bytes, in UTF-8 or UTF-16."""
        heads = (
            self.read_start(path, nbytes)
            for path in self.list_given(suffix)[:_MAX_EXAMINED]
            if path.suffix.lower() == suffix
        )
        return any(pattern.search(head.replace(b"\0", b"")) for head in heads)  # UTF-16 has a zero beside each letter

    @cached_property
    def image_files(self) -> dict[str, list[Path]]:
        """The images below the folder of images, by name without folder and suffix."""
        found: dict[str, list[Path]] = {}
        for path in self.list_files(self.images or self.root, *IMAGE_SUFFIXES):
            found.setdefault(path.stem, []).append(path)
        return found

    def read_text(self, path: Path) -> str:
        """A text file in UTF-8 or UTF-16 by its mark, or in UTF-8 without one; lines end with a line feed.

        Raises AnnotationError if it is missing, too large, or no such text.
        """
        content = self.read_bytes(path)
        try:
            return content.decode(find_encoding(content)).replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise AnnotationError(
                f"{self.relative(path)} must be text in UTF-8, got other bytes at {error.start}", source=str(self.root)
            ) from error

    def read_lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield the lines of a text file that are not empty, with their numbers from 1, without spaces around them."""
        text = self.read_text(path)
        begin, number = 0, 1
        while begin < len(text):  # not `split`: a list of short lines takes thirty times as much memory as the text
            end = text.find("\n", begin)
            end = len(text) if end < 0 else end
            stripped = text[begin:end].strip("\x00 \t\v\f\ufeff")
            if stripped and not stripped.isspace():  # as separators are, by which words are split
                yield number, stripped
            begin, number = end + 1, number + 1

    def read_json(self, path: Path) -> Value:
        """Return the content of a JSON file.

        Raises AnnotationError as :meth:`read_text`, or if it is no JSON.
        """
        try:
            return json.loads(self.read_text(path))
        except (ValueError, RecursionError) as error:
            if isinstance(error, AnnotationError):
                raise
            raise AnnotationError(f"{self.relative(path)} is no JSON: {error}", source=str(self.root)) from error

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a regular file, at most 2 GiB.

        Raises AnnotationError if it is missing, no regular file, or too large.
        """
        try:
            if not path.is_file():
                raise FileNotFoundError(2, "no such file")
            if (nbytes := path.stat().st_size) > _MAX_TEXT_NBYTES:
                raise OSError(27, f"it has {nbytes} bytes, more than {_MAX_TEXT_NBYTES}")  # noqa: TRY301
            return path.read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AnnotationError(f"{self.relative(path)} cannot be read: {reason}", source=str(self.root)) from error

    def read_start(self, path: Path, nbytes: int) -> bytes:
        """Return the first bytes of a file, to recognise what may be large; none of one that cannot be read."""
        try:
            with path.open("rb") as file:
                return file.read(nbytes)
        except OSError:
            return b""

    def read_head(self, path: Path, nbytes: int) -> str:
        """Decode the first bytes of a file by their byte order mark; U+FFFD stands for what cannot be decoded."""
        return (head := self.read_start(path, nbytes)).decode(find_encoding(head), "replace")

    def open_image(self, path: Path) -> Image.Image:
        """Return a picture whose header has been read, to be closed by the caller; raises what Pillow raises."""
        return open_picture(path)

    def find_image(self, name: str, *folders: Path, split: str | None = None) -> Path | None:
        """Return the image that an annotation names: below one of the folders, or anywhere by the end of its path.

        Absolute paths, and paths of other systems, are found by their last parts, but not in a folder of another split:
        than ``split``, or that of the name, or that of the first folder. A name never leads out of the folders of the
        source, and has at most 4,096 characters.
        """
        return self._find_once(name, folders, split) if len(name) <= MAX_PATH and "\0" not in name else None

    def _find_image(self, name: str, folders: tuple[Path, ...], split: str | None) -> Path | None:
        parts = split_path(name)
        if not parts:
            return None
        if ".." not in parts:
            for folder in dict.fromkeys([*map(os.fspath, folders), *self._places]):
                path = self._listings.find(folder, parts)
                if path is not None:
                    return path
        stem = os.path.splitext(parts[-1])[0]  # noqa: PTH122  # a text
        candidates = [path for path in self.image_files.get(stem, ()) if path.name == parts[-1]]
        if not candidates:
            return None
        named = "/".join(parts[:-1])
        own = find_split(split or "") or find_split(named) or find_split(self.relative(folders[0]) if folders else "")
        most = min(len(parts), max(len(path.parts) for path in candidates))
        for count in range(most, 0, -1):  # the longest end of the path that names one file
            end = tuple(parts[-count:])
            ends = [path for path in candidates if path.parts[-count:] == end]
            ends = [path for path in ends if self.is_of_split(Path(*path.parts[:-count]), own)]
            if ends:
                return ends[0] if len(ends) == 1 else None
        return None

    def is_of_split(self, folder: Path, split: str | None) -> bool:
        """Return whether a folder of the source is not one of another split than that of a name or path."""
        return find_split(split or "") in {None, find_split(self.relative(folder)) or find_split(split or "")}

    def measure_image(self, path: Path) -> PictureHeader:
        """Return the size and orientation of an image, by its header.

        Raises ValueError if it is no image.
        """
        if path not in self._pictures:
            try:
                with self.open_image(path) as image:
                    self._pictures[path] = PictureHeader.of(image)
            except Exception as error:  # noqa: BLE001  # Pillow raises errors of many kinds for damaged files
                self._pictures[path] = f"{type(error).__name__}: {error}"
        found = self._pictures[path]
        if isinstance(found, str):
            raise ValueError(f"it is no image: {found:.300}")  # noqa: TRY004  # the file is wrong, not the argument
        return found


def find_split(path: str) -> str | None:
    """The split that the last part of a path names that names one: "train", "val", "test" or "dev"."""
    if _MAY_NAME_SPLIT.search(path) is None:  # as a rule
        return None
    found = (_SPLIT.fullmatch(part) for part in reversed(re.split(r"[/\\]", path)))
    return next((match[match.lastindex or 0].lower() for match in found if match), None)
