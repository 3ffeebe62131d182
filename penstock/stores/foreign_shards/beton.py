"""FFCV's ``.beton`` files, read where they are; the format is that of version 2.

::

    header      version, fields, page size, records, where the table of allocations begins           24 bytes
    fields      type, name (16 bytes), arguments (1024 bytes)
    metadata    one entry for each record: numbers as they are, of others size and place
    pages       bytes of images, arrays, texts
    table       record, place, number of bytes: of every allocation in the pages

    type   field              metadata of a record                            value
    0, 1   float, int         the number                                      the number
    2      RGB image          mode (0 JPEG, 1 raw), width, height, place      JPEG bytes, or pixels
    3, 5   bytes, JSON        place, number of bytes                          bytes; JSON ends at a zero byte
    4, 6   array, tensor      place                                           an array of the field's dtype and shape

The file is mapped, and the metadata are one NumPy view. A JPEG is a view of the file; so are pixels. Places and sizes
come from the file: each is compared with its bounds. Source: FFCV's reader, its types and the fields of its writer.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, check_choice
from penstock.fields.roles import Candidate, Stated, choose_roles, select_paths
from penstock.sample import Array, DType, Field, Record
from penstock.stores.base import PathLike
from penstock.stores.common.keys import make_keys
from penstock.stores.common.mapped_files import open_source
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.container import ContainerStore, select_given
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.fields.values import read_json, view_array
from penstock.stores.indices import spread_indices
from penstock.wording import counted

__all__ = ["BetonStore"]

_ALLOCATION: Final = np.dtype([("record", "<u8"), ("place", "<u8"), ("nbytes", "<u8")])
_RAW: Final = ("pixels", "ppm")
VERSION: Final = 2
"""The version of the format that is read."""

FIELD_NBYTES: Final = 1041
_HEADER: Final = struct.Struct("<HHIQQ")
_NAME_NBYTES: Final = 16
_MAX_FIELDS: Final = 1000
_MAX_AXES: Final = 31
_MAX_TYPE_NBYTES: Final = 200
_DTYPE: Final = re.compile(r"[<|=]?(b1|[ui][1248]|f[248])")
_FLOAT: Final = np.dtype([("number", "<f8")], align=True)  # FFCV aligns these three, and not the next two
_INT: Final = np.dtype([("number", "<i8")], align=True)
_PLACE: Final = np.dtype([("place", "<u8")], align=True)
_IMAGE: Final = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")])
_BYTES: Final = np.dtype([("place", "<u8"), ("nbytes", "<u8")])
_TITLES: Final = ("float", "int", "RGB image", "bytes", "array", "JSON", "tensor")
_METADATA: Final = (_FLOAT, _INT, _IMAGE, _BYTES, _PLACE, _BYTES, _PLACE)
_CUSTOM: Final = 255


@dataclass(frozen=True, slots=True)
class BetonField:
    """A field: its name, the number of its type, and for arrays dtype and shape."""

    name: str
    type: int
    dtype: DType | None = None
    shape: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The type in words."""
        return _TITLES[self.type]


@dataclass(frozen=True, slots=True)
class BetonHead:
    """What the header says, and what follows from it.

    ``metadata``: dtype of the entry of a record, whose fields are ``f0``, ``f1``, ...; ``begin``: offset of the
    entries; ``data_begin`` and ``table``: where the pages begin and end.
    """

    fields: tuple[BetonField, ...]
    count: int
    metadata: DType
    begin: int
    data_begin: int
    table: int


@dataclass(frozen=True, slots=True)
class OpenedBeton:
    """A mapped file: its bytes, the metadata of all records, and the sizes of JPEGs, by the name of their field."""

    view: ByteRanges
    metadata: Array
    jpeg_nbytes: dict[str, NDArray[np.int64]]


ReadValue = Callable[[OpenedBeton, tuple[int, ...], int], object]
"""Reads a value of an opened file from the metadata of a field and the index of the record."""


def parse_head(view: ByteRanges) -> BetonHead:
    """Return the header of a file.

    Raises StoreFormatError if it is not the header of such a file, or does not agree with the size of the file. Raises
    ArgumentError if a field has a custom type.
    """
    if len(view) < _HEADER.size:
        raise StoreFormatError(f"its {len(view)} bytes are shorter than the header of a .beton file")
    version, field_count, _, count, table = _HEADER.unpack(view[: _HEADER.size])
    if version != VERSION:
        raise StoreFormatError(f"the version of a .beton file must be {VERSION}, got {version}")
    begin = _HEADER.size + field_count * FIELD_NBYTES
    if not 0 < field_count <= _MAX_FIELDS or not begin <= table <= len(view):
        raise StoreFormatError(
            f"it is truncated, or no .beton file: {field_count} fields, a table at byte {table} of {len(view)}"
        )
    try:
        heads = view[_HEADER.size : begin]
        fields = tuple(_parse_field(heads, number * FIELD_NBYTES) for number in range(field_count))
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise StoreFormatError(f"its fields are damaged: {error}") from error
    if len({field.name for field in fields}) < len(fields):
        raise StoreFormatError(f"two of its fields have the same name: {', '.join(f.name for f in fields):.200}")
    metadata = np.dtype([(f"f{i}", _METADATA[field.type]) for i, field in enumerate(fields)], align=True)
    data_begin = begin + count * metadata.itemsize
    if data_begin > table:
        raise StoreFormatError(f"it is truncated: {count} records do not fit before byte {table}")
    return BetonHead(fields, count, metadata, begin, data_begin, table)


def locate_value(field: BetonField, opened: OpenedBeton, stored: tuple[int, ...], index: int) -> tuple[int, int] | None:
    """Offset and number of bytes of a value that is in the pages of a file; None for another."""
    if field.type == 2:
        mode, width, height, offset = stored
        return offset, width * height * 3 if mode else max(int(opened.jpeg_nbytes[field.name][index]), 0)
    if field.dtype is not None:
        return stored[0], math.prod(field.shape) * field.dtype.itemsize
    return (stored[0], stored[1]) if field.type in {3, 5} else None


def make_reader(field: BetonField, head: BetonHead, *, encodes_raw: bool = False) -> ReadValue:
    """Return what reads the values of a field. ``encodes_raw``: raw images become the bytes of a PPM file."""
    if field.type in {0, 1}:
        return lambda opened, stored, index: stored[0]  # noqa: ARG005  # the signature of ReadValue
    if field.type == 2:
        return _make_image_reader(field, head, encodes_raw=encodes_raw)
    if field.type in {3, 5}:
        is_json = field.type == 5

        def read_bytes(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
            del index
            content = _slice(opened.view, head, *stored)
            return read_json(memoryview(bytes(content).split(b"\0", 1)[0])) if is_json else content

        return read_bytes
    dtype, shape = field.dtype, field.shape
    assert dtype is not None, "an array has a dtype"
    nbytes = math.prod(shape) * dtype.itemsize

    def read_array(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
        del index
        return view_array(_slice(opened.view, head, stored[0], nbytes), dtype, shape)

    return read_array


def _make_image_reader(field: BetonField, head: BetonHead, *, encodes_raw: bool) -> ReadValue:
    name = field.name

    def read(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
        mode, width, height, offset = stored
        if mode == 0:
            nbytes = int(opened.jpeg_nbytes[name][index])
            if nbytes <= 0:
                raise ValueError(f"no allocation begins at its place, byte {offset}")
            return _slice(opened.view, head, offset, nbytes)
        if mode != 1:
            raise ValueError(f"the mode of an image must be 0 (JPEG) or 1 (raw), got {mode}")
        raw = _slice(opened.view, head, offset, width * height * 3)
        if encodes_raw:
            return b"".join((b"P6 %d %d 255\n" % (width, height), raw))
        return view_array(raw, np.dtype(np.uint8), (height, width, 3))

    return read


def _slice(view: ByteRanges, head: BetonHead, offset: int, nbytes: int) -> memoryview:
    if nbytes and not head.data_begin <= offset <= offset + nbytes <= head.table:
        raise ValueError(f"its bytes {offset} to {offset + nbytes} are not inside the pages of the file")
    return view[offset : offset + nbytes]


def _parse_field(view: memoryview, at: int) -> BetonField:
    number = view[at]
    name = bytes(view[at + 1 : at + 1 + _NAME_NBYTES]).rstrip(b"\0").decode("utf-8", "strict")
    if not name:
        raise ValueError("a field has no name")
    if number == _CUSTOM:
        raise ArgumentError(
            f"field {name!r} is of a custom type, whose size is not in the file; write the file again without it"
        )
    if number >= len(_TITLES):
        raise ValueError(f"field {name!r} has the unknown type {number}")
    if number not in {4, 6}:
        return BetonField(name, number)
    arguments = view[at + 1 + _NAME_NBYTES : at + FIELD_NBYTES]
    *lengths, type_nbytes = struct.unpack_from("<33Q", arguments)
    while lengths and not lengths[-1]:
        lengths.pop()
    if type_nbytes > _MAX_TYPE_NBYTES or len(lengths) > _MAX_AXES:
        raise ValueError(f"field {name!r} has {len(lengths)} axes, and a dtype of {type_nbytes} bytes")
    described = json.loads(bytes(arguments[264 : 264 + type_nbytes]))
    text = described[0][1] if isinstance(described, list) and len(described) == 1 and len(described[0]) == 2 else ""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text) or math.prod(lengths) > 1 << 40:
        raise ValueError(f"field {name!r} has the dtype {described!r:.100} and the shape {lengths!r:.100}")
    return BetonField(name, number, np.dtype(text), tuple(lengths) or (1,))


class BetonStore(ContainerStore[OpenedBeton]):
    """A file that FFCV's ``DatasetWriter`` wrote.

    Parameters
    ----------
    path : str, path or Location
        The file.
    image, label, key : str, optional
        The fields of the image, the label and the keys, as for :class:`~.mds.MdsStore`. Without ``key``, keys are the
        numbers of the rows.
    fields : sequence of str or mapping of str to str, optional
        The fields that are read, by default all, or new names and these fields.
    raw : {"pixels", "ppm"}
        What raw images are in a field that has JPEGs, too (``write_mode="smart"`` or ``"proportion"``): arrays as they
        are stored, or the bytes of PPM files with the same pixels, which data sets and other stores take.

    Raises
    ------
    StoreFormatError
        If it is no such file, of another version, or truncated.
    ArgumentError
        If it has a field of a custom type: the size of its metadata is not in the file.

    Notes
    -----
    If all images of a field are JPEGs, it is of kind ``image``; if all are raw, it has pixels, HWC uint8 RGB. A field
    that has both has kind ``image``; see ``raw``.
    Samples have no checksums.
    """

    kind: ClassVar[str] = "beton"

    def __init__(
        self,
        path: PathLike,
        *,
        image: str | None = None,
        label: str | None = None,
        key: str | None = None,
        fields: Sequence[str] | Mapping[str, str] | None = None,
        raw: str = "pixels",
    ) -> None:
        check_choice("raw", raw, _RAW)
        stated = Stated(image, label, key, fields)
        options = select_given(type(self), image=image, label=label, key=key, fields=stated.fields, raw=raw)
        super().__init__(path, files=None, **options)
        with self.opening(".beton file"):
            self._head = parse_head(open_source(self._files[0]).ranges())
        names = [field.name for field in self._head.fields]
        opened = self._opened.get()
        wanted = [(name, names.index(name)) for name in select_paths(names, stated)]
        kinds = {name: Field(self._find_kind(opened, number)) for name, number in wanted}
        self._roles = choose_roles([Candidate(*found) for found in kinds.items()], stated)
        self._schema = self._roles.schema
        readers = {
            name: (number, make_reader(self._head.fields[number], self._head, encodes_raw=encodes_raw))
            for name, number in wanted
            for encodes_raw in [raw == "ppm" and kinds[name].pixels is None]
        }
        self._readers = {field: readers[each.path] for field, each in self._roles.fields.items()}
        self._key_reader = readers.get(str(self._roles.key))

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Return whether the header is that of such a file, and agrees with its size."""
        try:
            parse_head(open_source(Path(path)).ranges())
        except ArgumentError:
            return True  # a field of a custom type
        except (OSError, ValueError, PenstockError):
            return False
        return True

    @property
    def description(self) -> str:
        """The types of the fields."""
        fields = ", ".join(f"{field.name} ({field.title})" for field in self._head.fields)
        roles = self._roles.describe()
        return f"beton: FFCV, version {VERSION}, fields {fields}; {counted(len(self), 'record')}; {roles}"

    def __len__(self) -> int:
        return self._head.count

    def open_files(self) -> OpenedBeton:
        """Map the file, and find the sizes of its JPEGs in the table of allocations."""
        view = open_source(self._files[0]).ranges()
        head = self._head
        if len(view) < head.table:
            raise StoreFormatError("the file is truncated", store=self.url)
        metadata = np.frombuffer(view[head.begin : head.data_begin], head.metadata, head.count)
        nbytes = {}
        for number, field in enumerate(head.fields):
            if field.type == 2 and (entries := metadata[f"f{number}"])["mode"].min(initial=1) == 0:
                nbytes[field.name] = self._find_sizes(view, entries["place"])
        return OpenedBeton(view, metadata, nbytes)

    def ranges_of(self, opened: OpenedBeton, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """Return what each record has in the pages."""
        for index in indices:
            entry = opened.metadata[index].item()
            for number, _ in self._readers.values():
                if (place := locate_value(self._head.fields[number], opened, entry[number], index)) is not None:
                    yield 0, *place

    def read_record(self, opened: OpenedBeton, index: int) -> Record:
        """Read one record; images are views of the mapped file."""
        entry = opened.metadata[index].item()
        values = {name: read(opened, entry[number], index) for name, (number, read) in self._readers.items()}
        key: object = index
        if self._key_reader is not None:
            number, read = self._key_reader
            key = read(opened, entry[number], index)
        return Record(index, str(key), values)

    def make_blob_reader(self, opened: OpenedBeton, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """Return what gives one field, without the others."""
        del indices
        number, read = self._readers[field]
        metadata = opened.metadata
        return lambda index: read(opened, metadata[index].item()[number], index)

    def read_column(self, opened: OpenedBeton, field: str) -> Iterable[object]:
        """Return the values of one field; numbers are taken from the metadata at once."""
        return self._iterate(opened, *self._readers[field])

    def read_keys(self) -> Sequence[str]:
        """Return the values of the field of the keys; else the numbers of the rows."""
        if self._key_reader is None:
            return super().read_keys()
        return make_keys(map(str, self._iterate(self.get_opened(), *self._key_reader)))

    def _iterate(self, opened: OpenedBeton, number: int, read: ReadValue) -> Iterable[object]:
        metadata = opened.metadata
        if self._head.fields[number].type in {0, 1}:
            values: list[object] = metadata[f"f{number}"]["number"].tolist()
            return values
        return (read(opened, metadata[index].item()[number], index) for index in self.iterate(opened))

    def _find_sizes(self, view: ByteRanges, places: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the number of bytes allocated at each place; -1 where none are."""
        rest = len(view) - self._head.table
        if rest % _ALLOCATION.itemsize or not rest:
            raise StoreFormatError(f"its table of allocations is truncated: {rest} bytes", store=self.url)
        table: Array = np.frombuffer(view[self._head.table :], _ALLOCATION)
        table = table[np.lexsort((table["nbytes"], table["place"]))]
        found = np.searchsorted(table["place"], places, side="right") - 1
        is_there = (found >= 0) & (table["place"][found] == places)
        sizes = np.minimum(table["nbytes"][found], np.uint64(len(view) + 1)).astype(np.int64)
        return np.where(is_there, sizes, -1)

    def _find_kind(self, opened: OpenedBeton, number: int) -> str:
        field = self._head.fields[number]
        if field.type == 2:
            entries = opened.metadata[f"f{number}"]
            if not len(entries) or (entries["mode"] != 1).any():
                return "image"
            height, width = (
                str(axis[0]) if axis[0] and (axis == axis[0]).all() else "*"
                for axis in (entries["height"], entries["width"])
            )
            return f"pixels:uint8[{height},{width},3]"
        if field.type == 3:
            return "image" if self._holds_images(opened, number) else "bytes"
        if field.dtype is not None:
            return f"{field.dtype.name}[{','.join(map(str, field.shape))}]"
        return {0: "float", 1: "int", 5: "json"}[field.type]

    def _holds_images(self, opened: OpenedBeton, number: int) -> bool:
        """Return whether the bytes of some records, evenly spread, are images; those that are damaged are left out."""
        read = make_reader(self._head.fields[number], self._head)
        contents = []
        for index in spread_indices(len(self)):
            with contextlib.suppress(ValueError, IndexError):
                contents.append(read(opened, opened.metadata[index].item()[number], index))
        return are_images(cast("list[bytes]", contents))
