"""Writes tar files that webdataset reads: one file of the archive for each image, label and array of a record.

::

    key "cats/2.jpg"    image              cats/2.jpg      the ending of the key, or that of the image's format
                        label              cats/2.cls      the number
                        boxes              cats/2.boxes.npy
                        width, caption     cats/2.json     {"width": 640, "caption": "..."}
    __penstock__        what the fields are; other readers leave it out, as it has no suffix

The same records give the same bytes. Called through
:meth:`TarStore.writer <penstock.stores.tar.store.TarStore.writer>`.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import xxhash

from penstock.errors import ArgumentError, PackError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Field, Schema
from penstock.stores.common.file_writer import FileWriter
from penstock.stores.fields.image_signatures import find_image_suffix
from penstock.stores.fields.small_fields import check_pixels, check_small
from penstock.stores.location import Location
from penstock.stores.tar.fields import DECLARATION, FieldPlan, StoredField, plan_fields
from penstock.stores.tar.format import BLOCK_NBYTES, MemberScan, encode_header
from penstock.stores.tar.index import TarScan, group_members

__all__ = ["PreparedFiles", "TarWriter", "find_free_key", "hash_key", "store_fields"]

_ARCHIVE_NBYTES: Final = 20 * BLOCK_NBYTES  # archives are padded to a multiple of this, as tar pads them
_PLAIN_SUFFIX: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_RESERVED: Final = frozenset({"cls", "json", "__key__", "__url__", "__local_path__"})
_ENDINGS: Final = {"image": ".jpg", "mask": ".png"}
_UNUSABLE: Final = re.compile(r"[\x00-\x1f\x7f]")
_UNKNOWN_IMAGE: Final = "jpg"
Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """The files of a record, by suffix."""

    key: str
    files: list[tuple[bytes, Buffer]]
    nbytes: int


def store_fields(schema: Schema) -> tuple[StoredField, ...]:
    """Return where each field is stored."""
    used: set[str] = set(_RESERVED)
    fields: list[StoredField] = []
    for name, field in schema.fields.items():
        if name == "image" and field.kind == "image":
            fields.append(StoredField(name, field, ""))
        elif name == "label" and field.kind == "label":
            fields.append(StoredField(name, field, "cls"))
        elif not field.is_blob and field.array is None:
            fields.append(StoredField(name, field, "json", in_object=True))
        else:
            fields.append(StoredField(name, field, _choose_suffix(name, field, used)))
    in_object = [each for each in fields if each.in_object]
    if len(in_object) == 1 and in_object[0].name == in_object[0].field.kind == "json":
        fields[fields.index(in_object[0])] = StoredField("json", in_object[0].field, "json")
    return tuple(fields)


def _choose_suffix(name: str, field: Field, used: set[str]) -> str:
    ending = ".npy" if field.pixels is not None or field.array is not None else _ENDINGS.get(field.kind, "")
    suffix = name.lower() if _PLAIN_SUFFIX.fullmatch(name.lower()) and len(name) <= 80 else "field"
    if not suffix.endswith(ending):
        suffix += ending
    if f".{suffix}" in IMAGE_SUFFIXES:
        suffix = f"field.{suffix}"
    choice, number = suffix, 1
    while choice in used:
        number += 1
        choice = f"{number}.{suffix}"
    used.add(choice)
    return choice


def _is_plain(fields: Sequence[StoredField]) -> bool:
    """Return whether a reader finds the same fields without the declaration."""
    suffixes = [each.suffix or _UNKNOWN_IMAGE for each in fields]
    try:
        found = plan_fields(suffixes, [suffixes], {})
    except ArgumentError:  # a reader must be told which of them is the image
        return False
    return len(set(suffixes)) == len(suffixes) and found.fields == tuple(fields)


class TarWriter(FileWriter[PreparedFiles]):
    """Writes a tar file.

    Parameters
    ----------
    location, schema, source, overwrite
        As for :class:`FileWriter`. Every schema can be stored.

    Notes
    -----
    The last part of a key is stored without the ending of an image, and its dots become ``_``, because a key ends at
    the first dot: ``cats/2.jpg`` is read back as ``cats/2``, and ``a.b.jpg`` as ``a_b``. If a key would be that of a
    record before it (``2.jpg``, ``2.png``), a number is added. Hashes of all keys of a file are in memory.
    """

    def __init__(
        self, location: Location, schema: Schema, source: str, *, overwrite: bool = False, **options: object
    ) -> None:
        self._fields = store_fields(schema)
        self._used: set[bytes] = set()
        self._declaration = b"" if _is_plain(self._fields) else FieldPlan(self._fields).to_declaration()
        super().__init__(location, schema, source, overwrite=overwrite, options=options)

    def prepare(self, key: str, fields: Mapping[str, object]) -> PreparedFiles:
        """Encode the values of a record; thread-safe."""
        files: list[tuple[bytes, Buffer]] = []
        entries: dict[str, object] = {}
        nbytes = 0
        try:
            key.encode(errors="surrogateescape")
        except UnicodeEncodeError as error:
            raise PackError(f"a key must be valid Unicode, got {key!a:.200}") from error
        for each in self._fields:
            value = fields[each.name]
            if each.in_object:
                entries[each.name] = None if value is None else _check_small(each, value, key)
            elif value is not None:
                suffix, content = _encode_value(each, value, key)
                files.append((suffix.encode(), content))
                nbytes += len(content) if each.field.is_blob else 0
        if entries:
            files.append((b"json", json.dumps(entries, ensure_ascii=False, allow_nan=True).encode()))
        if not files:
            raise PackError("a record in a tar file must have a value in one field at least", key=key)
        return PreparedFiles(key, files, nbytes)

    def write_record(self, prepared: PreparedFiles) -> int:
        """Append the files of a record; before the first one, what declares the fields."""
        archive = self.files[0]
        if not archive.tell():
            self._used = set()
            if self._declaration:
                _write_member(archive, DECLARATION, self._declaration)
        elif not self._used:  # it was resumed
            self._used = _list_used(self._partials[0])
        key = find_free_key(prepared.key, self._used)
        self._used.add(hash_key(key))
        name = key.encode(errors="surrogateescape")
        for suffix, content in prepared.files:
            _write_member(archive, name + b"." + suffix, content)
        return prepared.nbytes

    def write_end(self) -> None:
        """Append the end of an archive."""
        archive = self.files[0]
        archive.write(bytes(2 * BLOCK_NBYTES))
        archive.write(bytes(-archive.tell() % _ARCHIVE_NBYTES))


def find_free_key(key: str, used: Collection[bytes]) -> str:
    """Return the key under which a record is stored: one that is read back, and is not that of a record before it.

    ``used``: hashes of the keys before it, as :func:`hash_key` gives them.

    Examples
    --------
    >>> find_free_key("cats/2.jpg", ()), find_free_key("cats/2.png", {hash_key("cats/2")}), find_free_key("a.b/c.d", ())
    ('cats/2', 'cats/2_2', 'a.b/c_d')
    """
    folder, slash, last = _UNUSABLE.sub("_", key).rpartition("/")
    stem, dot, ending = last.rpartition(".")
    if dot and f".{ending.lower()}" in IMAGE_SUFFIXES:
        last = stem
    stored = f"{folder}{slash}{last.replace('.', '_') or '_'}"
    numbered = (f"{stored}_{number}" for number in itertools.chain([2], itertools.count(len(used) + 1)))
    return next(each for each in map(_protect, itertools.chain([stored], numbered)) if hash_key(each) not in used)


def hash_key(key: str) -> bytes:
    """Hash a key to eight bytes."""
    return xxhash.xxh3_64_digest(key.encode(errors="surrogateescape"))


def _list_used(path: Path) -> set[bytes]:
    """Hashes of the keys of a file that a writer has begun."""
    with path.open("rb") as file:

        def read(at: int, nbytes: int) -> bytes:
            file.seek(at)
            return file.read(nbytes)

        members = group_members(MemberScan(read), TarScan())
        return {xxhash.xxh3_64_digest(key) for key, _ in members}


def _protect(key: str) -> str:
    """Return a key that no reader takes for metadata (``__name__``)."""
    return f"./{key}" if key.startswith("__") else key


def _write_member(archive: BinaryIO, name: bytes, content: Buffer) -> None:
    nbytes = len(content)
    archive.write(encode_header(name, nbytes))
    archive.write(content)
    if padding := -nbytes % BLOCK_NBYTES:
        archive.write(bytes(padding))


def _encode_value(each: StoredField, value: object, key: str) -> tuple[str, Buffer]:
    """Return suffix and bytes of a value."""
    field = each.field
    if field.is_blob and field.pixels is None:
        content = cast("Buffer", value)
        return each.suffix or _find_ending(key, content), content
    checked: object = (
        _check_small(each, value, key) if field.pixels is None else check_pixels(each.name, field.pixels, value)
    )
    if isinstance(checked, np.ndarray):
        file = io.BytesIO()
        np.lib.format.write_array(file, checked, allow_pickle=False)
        return each.suffix, file.getbuffer()
    text = json.dumps(checked, ensure_ascii=False) if field.kind == "json" else str(checked)
    return each.suffix, text.encode()


def _check_small(each: StoredField, value: object, key: str) -> object:
    try:
        checked = check_small(each.name, each.field, value)
    except PackError as error:
        error.locate(key=key)
        raise
    return value if each.field.kind == "json" else checked


def _find_ending(key: str, image: Buffer) -> str:
    """Return the suffix of an image: the ending of its key, or that of its format."""
    ending = key.rpartition(".")[2].lower()
    if f".{ending}" in IMAGE_SUFFIXES:
        return ending
    suffix = find_image_suffix(image)
    return suffix if f".{suffix}" in IMAGE_SUFFIXES else _UNKNOWN_IMAGE
