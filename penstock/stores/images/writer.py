"""Writes a folder of images: a file for each record, a sub-folder for each class.

::

    record "cats/2.jpg", label 0 (cats)   ──>  photos/cats/2.jpg
    record "img7", label 1 (dogs)         ──>  photos/dogs/img7.png       the suffix is that of the format
    record "a/3", without a label         ──>  photos/images/a/3.jpg
    photos/.unfinished.json, .names            until the last file is written; the folder cannot be opened before

The names of files are made of the keys by :func:`file_name`. A name that two records would have is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.errors import ArgumentError, PackError, StoreError
from penstock.paths import IMAGE_SUFFIXES
from penstock.plurals import counted
from penstock.sample import Schema
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.image_signatures import find_image_suffix
from penstock.stores.images.listing import is_system_folder
from penstock.stores.location import Location
from penstock.stores.origin import Origin, write_origin
from penstock.stores.writing import UNFINISHED, CommittedRecords, Skipped, Writer

__all__ = ["FilesWriter", "PreparedFile", "file_name"]

_UNLABELLED: Final = "images"  # one folder: those of the keys would be classes
_PARTIAL: Final = ".unfinished.image"
_NAMES: Final = ".unfinished.names"
_COMMIT_RECORDS: Final = 1000
_MAX_NAME_NBYTES: Final = 255
PreparedFile = tuple[str, bytes | memoryview]
"""The path of a file below the folder, and its bytes."""


def file_name(key: str, fields: Mapping[str, Any], schema: Schema) -> str:
    """The path of a record's file below the folder.

    Raises
    ------
    PackError
        If no file name can be made of the key or of the class.
    """
    parts = [_visible(part) for part in key.split("/") if part not in {"", "."}]
    if ".." in parts or not parts or "\0" in key:
        raise PackError(f"a file name cannot be made of the key {key!r:.200}", key=key)
    if not parts[-1].lower().endswith(tuple(IMAGE_SUFFIXES)):
        parts[-1] += _find_suffix(fields["image"], key)
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


def _class_folder(fields: Mapping[str, Any], schema: Schema, key: str) -> str:
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


class FilesWriter(Writer[PreparedFile]):
    """Writes one folder; one of the same origin is resumed.

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

    def __init__(self, location: Location, schema: Schema, source: str, *, overwrite: bool = False) -> None:
        self._location, self._schema, self._source = location, schema, source
        self._root = location.local_path
        self._journal, self._names, self._partial = (self._root / name for name in (UNFINISHED, _NAMES, _PARTIAL))
        self._resumes = False
        self._committed = CommittedRecords()
        self._records = self._nbytes = 0
        self._skipped: list[Skipped] = []
        self._folders: set[str] = set()
        self._written: dict[str, None] = {}
        """Names of all files, also of those that an earlier run has committed."""
        self._uncommitted: list[str] = []
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._begin(overwrite=overwrite)
            self._commit()
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise self._make_write_error(error) from error

    @property
    def committed(self) -> CommittedRecords:
        """What is safe; records behind it are written again."""
        return self._committed

    def prepare(self, key: str, fields: Mapping[str, object]) -> PreparedFile:
        """Name and bytes of the file; thread-safe."""
        image = fields["image"]
        if not isinstance(image, bytes | memoryview):
            raise PackError(f"field 'image' must hold encoded bytes, got {type(image).__name__}", key=key)
        return file_name(key, fields, self._schema), image

    def append(self, prepared: PreparedFile) -> None:
        """Write the next file."""
        name, content = prepared
        folder = name.rpartition("/")[0]
        try:
            if folder not in self._folders:
                (self._root / folder).mkdir(parents=True, exist_ok=True)
                self._folders.add(folder)
            self._write(name, content)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise self._make_write_error(error) from error
        self._written[name] = None
        self._uncommitted.append(name)
        self._records += 1
        self._nbytes += len(content)
        if self._records + len(self._skipped) - self._committed.consumed >= _COMMIT_RECORDS:
            self._commit()

    def skip(self, skipped: Skipped) -> None:
        """Note a record that is left out."""
        self._skipped.append(skipped)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Remove the journal: the folder is a store."""
        del problems
        os.sync()
        self._commit()
        self._partial.unlink(missing_ok=True)
        self._names.unlink()
        self._journal.unlink()
        from penstock.stores.images.store import FilesStore  # which imports this module where it is written

        with FilesStore(self._location) as store:
            fingerprint = store.fingerprint()
        write_origin(self._location, fingerprint, Origin.from_text(self._source), self._committed)

    def close(self) -> None:
        """Stop writing; what is written stays."""

    def discard(self) -> None:
        """Remove the files that this run and the one it resumed wrote, and the folders that are empty then."""
        for name in self._written:
            (self._root / name).unlink(missing_ok=True)
        for path in (self._partial, self._names, self._journal):
            path.unlink(missing_ok=True)
        folders = {name.rpartition("/")[0] for name in self._written}
        for folder in sorted({*folders, *self._folders, ""}, key=len, reverse=True):
            path = self._root / folder
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def _write(self, name: str, content: bytes | memoryview) -> None:
        path = self._root / name
        if path.exists() or path.is_symlink():
            if self._resumes and name not in self._written and path.is_file() and path.read_bytes() == bytes(content):
                return  # written by the run that is resumed, after its last commit
            raise PackError(f"another record is the file {name!r} already", key=name)
        with self._partial.open("wb") as file:
            file.write(content)
        self._partial.rename(path)  # so that a file that exists is whole

    def _begin(self, *, overwrite: bool) -> None:
        entry = self._read_journal()
        if entry is None:
            if any(self._root.iterdir()):
                raise ArgumentError(
                    f"{self._location} holds files already; a folder of images is written to a folder that is empty or "
                    "does not exist"
                )
            return
        begun = entry["source"] == self._source and entry["schema"] == self._schema.to_json()
        if not begun and not overwrite:
            raise StoreError(
                f"an unfinished folder of {counted(int(entry['records']), 'record')} of another source is here; remove "
                "it, or write as before to resume it",
                store=str(self._location),
            )
        if begun:
            self._records, self._nbytes = int(entry["records"]), int(entry["nbytes"])
            self._skipped = [Skipped(str(key), str(reason)) for key, reason in entry["skipped"]]
            self._read_names()
            self._resumes = True

    def _read_names(self) -> None:
        """Read which files an earlier run has committed; what it noted after its last commit is dropped."""
        try:
            names = os.fsdecode(self._names.read_bytes()).split("\0")[: self._records]
        except FileNotFoundError:
            names = []
        if len(names) < self._records or (names and not names[-1]):
            raise StoreError(f"{_NAMES} is damaged; remove the folder", store=str(self._location))
        self._written = dict.fromkeys(names)
        self._names.write_bytes(b"".join(os.fsencode(name) + b"\0" for name in names))

    def _read_journal(self) -> dict[str, Any] | None:
        try:
            with os.fdopen(open_regular(self._journal), "rb") as file:
                entry: dict[str, Any] = json.loads(file.read())
            return entry if {"source", "schema", "records", "nbytes", "skipped"} <= entry.keys() else None
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(f"{UNFINISHED} is damaged; remove the folder", store=str(self._location)) from error

    def _commit(self) -> None:
        entry = {
            "source": self._source,
            "schema": self._schema.to_json(),
            "records": self._records,
            "nbytes": self._nbytes,
            "skipped": [list(each) for each in self._skipped],
        }
        with self._names.open("ab") as file:
            file.write(b"".join(os.fsencode(name) + b"\0" for name in self._uncommitted))
        self._uncommitted.clear()
        partial = Path(f"{self._journal}.new")
        partial.write_text(json.dumps(entry), encoding="utf-8")
        partial.replace(self._journal)
        self._committed = CommittedRecords(self._records, self._nbytes, tuple(self._skipped))

    def _make_write_error(self, error: OSError) -> StoreError:
        return StoreError(f"the folder cannot be written: {error.strerror or error}", store=str(self._location))
