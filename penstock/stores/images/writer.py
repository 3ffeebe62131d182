"""Writes a folder of images: a file for each record, a sub-folder for each class.

::

    record "cats/2.jpg", label 0 (cats)   ──>  photos/cats/2.jpg
    record "img7", label 1 (dogs)         ──>  photos/dogs/img7.png       the suffix is that of the format
    record "a/3", without a label         ──>  photos/images/a/3.jpg
    photos/.unfinished.json, .names            until the last file is written; the folder cannot be opened before

The names of files are made of the keys by :func:`file_name`. A name that two records would have is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from penstock.errors import ArgumentError, PackError, StoreError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Schema
from penstock.stores.common.file_writer import FileWriter
from penstock.stores.common.journal import Journal
from penstock.stores.common.regular_file import refuse_links
from penstock.stores.fields.image_signatures import find_image_suffix
from penstock.stores.images.listing import is_system_folder, list_folder
from penstock.stores.images.trees import LocalTree
from penstock.stores.location import Location
from penstock.stores.writing import UNFINISHED, CommittedRecords

__all__ = ["FilesWriter", "PreparedFile", "file_name"]

_UNLABELLED: Final = "images"  # one folder: those of the keys would be classes
_PARTIAL: Final = ".unfinished.image"
_NAMES: Final = ".unfinished.names"
_MAX_NAME_NBYTES: Final = 255
PreparedFile = tuple[str, bytes | memoryview]
"""The path of a file below the folder, and its bytes."""


def file_name(key: str, fields: Mapping[str, object], schema: Schema) -> str:
    """The path of a record's file below the folder.

    Raises PackError if no file name can be made of the key or of the class.
    """
    parts = [_visible(part) for part in key.split("/") if part not in {"", "."}]
    if ".." in parts or not parts or "\0" in key:
        raise PackError(f"a file name cannot be made of the key {key!r:.200}", key=key)
    if not parts[-1].lower().endswith(tuple(IMAGE_SUFFIXES)):
        parts[-1] += _find_suffix(cast("bytes", fields["image"]), key)
    folder = _class_folder(fields, schema, key)
    if len(parts) < 2 or parts[0] != folder:
        parts.insert(0, folder)
    try:
        if max(len(part.encode()) for part in parts) > _MAX_NAME_NBYTES:
            raise PackError(
                f"a file name must have at most {_MAX_NAME_NBYTES} bytes, got {max(parts, key=len)!r}", key=key
            )
    except UnicodeEncodeError as error:
        raise PackError(f"a file name must be valid Unicode, got {key!a:.200}", key=key) from error
    return "/".join(parts)


def _visible(part: str) -> str:
    """A part of a name that does not begin with a dot, which would hide the file."""
    return f"_{part}" if part.startswith(".") and part not in {".", ".."} else part


def _class_folder(fields: Mapping[str, object], schema: Schema, key: str) -> str:
    if "label" not in schema:
        return _UNLABELLED
    classes, label = schema["label"].classes, fields["label"]
    if type(label) is not int or label < 0 or (classes and label >= len(classes)):
        raise PackError(f"a folder of images has a sub-folder for each class, and the label is {label!r}", key=key)
    name = classes[label] if classes else f"{label:06d}"
    if not name or name.startswith(".") or "/" in name or "\0" in name or is_system_folder(name):
        raise PackError(f"a folder cannot be named like the class {name!r:.200}", key=key)
    return name


def _find_suffix(image: bytes | memoryview, key: str) -> str:
    suffix = f".{find_image_suffix(image)}"
    if suffix not in IMAGE_SUFFIXES:
        raise PackError(f"the name of an image file has a suffix, and the format of {key!r:.200} is not known", key=key)
    return suffix


class FilesWriter(FileWriter[PreparedFile]):
    """Writes one folder; one of the same origin is resumed. The file that grows has the names of the images.

    Parameters
    ----------
    location : Location
        The folder; made if it does not exist.
    schema : Schema
        With ``image``, and ``label`` for sub-folders.
    source : str
        The text of the origin.
    overwrite : bool
        Whether an unfinished folder of another origin is continued with this source. Files are never removed.

    Raises
    ------
    ArgumentError
        If the folder holds files, and is no unfinished folder.
    StoreError
        If it is an unfinished folder of another origin, or cannot be written.
    """

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
    ) -> None:
        self._root = location.local_path
        self._partial = self._root / _PARTIAL
        self._folders: set[str] = set()
        self._written: dict[str, None] = {}
        """Names of all files, also of those that an earlier run has committed."""
        self._resumes = False
        super().__init__(location, schema, source, overwrite=overwrite)
        with self.journal.writing():
            self._commit()

    def locate_unfinished(self) -> tuple[list[Path], Path]:
        """The names of the images, and the journal; the folder cannot be opened while it is there."""
        return [self._root / _NAMES], self._root / UNFINISHED

    def make_journal(self, source: str, options: Mapping[str, object]) -> Journal:
        """Make a journal without a version."""
        return Journal(str(self.location), "folder", source, self.schema, options, anew="remove the folder")

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Raise ArgumentError if the folder holds files, and no journal."""
        del overwrite
        names = {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()
        if names - {_NAMES, f"{UNFINISHED}.new"} and UNFINISHED not in names:
            raise ArgumentError(
                f"{self.location} holds files already; a folder of images is written to a folder that is empty or "
                "does not exist"
            )

    def read_state(self, entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """The names that were committed; what was noted behind them is cut off."""
        names = self._partials[0].read_bytes().split(b"\0")[: entry["records"] + 1]
        if len(names) <= entry["records"] or b"" in names[:-1]:
            raise ValueError(f"{_NAMES} has too few names")
        self._written = dict.fromkeys(map(os.fsdecode, names[:-1]))
        self._resumes = True
        return {}, [sum(len(name) + 1 for name in names[:-1])]

    def prepare(self, key: str, fields: Mapping[str, object]) -> PreparedFile:
        """Name and bytes of the file; thread-safe."""
        image = fields["image"]
        if not isinstance(image, bytes | memoryview):
            raise PackError(f"field 'image' must hold encoded bytes, got {type(image).__name__}", key=key)
        return file_name(key, fields, self.schema), image

    def write_record(self, prepared: PreparedFile) -> int:
        """Write the next file, and note its name."""
        name, content = prepared
        folder = name.rpartition("/")[0]
        if folder not in self._folders:
            refuse_links(self._root, self._root / folder)
            (self._root / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        self._write(name, content)
        self._written[name] = None
        self.files[0].write(os.fsencode(name) + b"\0")
        return len(content)

    def write_end(self) -> None:
        """Bring all images onto the disk."""
        os.sync()

    def place_files(self, partials: Sequence[Path], finals: Sequence[Path]) -> None:
        """Let the folder be opened; the images are in their places."""
        del partials, finals
        self._partial.unlink(missing_ok=True)
        self._journal_path.unlink()

    def fingerprint(self) -> str:
        """Return that of the store, which cannot be opened before the journal is removed."""
        return list_folder(LocalTree(self._root), str(self.location)).fingerprint()

    def discard(self) -> None:
        """Remove the files that this run and the one it resumed wrote, and the folders that are empty then."""
        for path in map(self._root.joinpath, self._written):
            with contextlib.suppress(OSError):  # a folder that is a link now: what lies elsewhere stays
                refuse_links(self._root, path.parent)
                path.unlink(missing_ok=True)
        self._partial.unlink(missing_ok=True)
        super().discard()
        folders = {name.rpartition("/")[0] for name in self._written}
        for folder in sorted({*folders, *self._folders, ""}, key=len, reverse=True):
            path = self._root / folder
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def _read_journal(self, *, overwrite: bool) -> list[int] | None:
        try:
            return super()._read_journal(overwrite=False)
        except StoreError:
            if not overwrite:
                raise
            self.journal.restore(CommittedRecords())
            return None

    def _write(self, name: str, content: bytes | memoryview) -> None:
        path = self._root / name
        if path.exists() or path.is_symlink():
            if self._resumes and name not in self._written and path.is_file() and path.read_bytes() == bytes(content):
                return  # written by the run that is resumed, after its last commit
            raise PackError(f"another record is the file {name!r} already", key=name)
        self._partial.unlink(missing_ok=True)  # a link, where it would be followed
        with self._partial.open("xb") as file:
            file.write(content)
        self._partial.rename(path)  # so that a file that exists is whole
