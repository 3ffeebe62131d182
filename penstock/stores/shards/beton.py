"""FFCV's ``.beton`` files, read where they are; the format is that of version 2.

::

    header      version, fields, page size, records, where the table of allocations begins           24 bytes
    fields      type, name (16 bytes), arguments (1024 bytes); see :mod:`penstock.stores.shards.beton_fields`
    metadata    one entry for each record: numbers as they are, of others size and place
    pages       bytes of images, arrays, texts
    table       record, place, number of bytes: of every allocation in the pages

The file is mapped, and the metadata are one NumPy view. A JPEG is a view of the file; so are pixels. Source: FFCV's
reader, its types and the fields of its writer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.sample import Array, Field, Record
from penstock.stores.base import PathLike
from penstock.stores.common.keys import make_keys
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.container import ContainerStore, select_given
from penstock.stores.fields.column_names import name_columns, select_columns
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.shards.beton_fields import (
    VERSION,
    BetonField,
    BetonHead,
    OpenedBeton,
    ReadValue,
    make_reader,
    parse_head,
)
from penstock.wording import counted

__all__ = ["BetonStore"]

_ALLOCATION: Final = np.dtype([("record", "<u8"), ("place", "<u8"), ("nbytes", "<u8")])
_PROBED: Final = 16
_RAW: Final = ("pixels", "ppm")


class BetonStore(ContainerStore[OpenedBeton]):
    """A file that FFCV's ``DatasetWriter`` wrote.

    Parameters
    ----------
    path : str, path or Location
        The file.
    image, label, key : str, optional
        The fields of the image, the label and the keys. By default: ``image``, or the only field with images; ``label``
        or another usual name, if it has numbers. Without ``key``, keys are the numbers of the rows.
    fields : sequence of str, optional
        The fields that are read, by default all.
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
        fields: Sequence[str] | None = None,
        raw: str = "pixels",
    ) -> None:
        if raw not in _RAW:
            raise ArgumentError(f"raw must be one of {', '.join(_RAW)}, got {raw!r:.100}")
        stated = {"image": image, "label": label, "key": key}
        options = select_given(type(self), **stated, fields=fields, raw=raw)
        super().__init__(path, **options)
        self._encodes_raw = raw == "ppm"
        self._head = self._read_head()
        names = [field.name for field in self._head.fields]
        wanted = select_columns(names, options.get("fields"), stated=stated)
        self._chosen = [field for field in self._head.fields if field.name in wanted]
        opened = self._opened.get()
        kinds = {field.name: Field(self._find_kind(opened, field)) for field in self._chosen}
        self._named = name_columns(kinds, image=image, label=label, key=key, store=self.url)
        self._schema = self._named.schema
        self._readers = [
            self._make_reader(names.index(column), encodes_raw=self._encodes_raw and kinds[column].pixels is None)
            for column in self._named.columns
        ]
        self._reader_of = dict(zip(self.schema.fields, self._readers, strict=True))

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Whether the header is that of such a file, and agrees with its size."""
        try:
            parse_head(MappedFiles([Path(path)]).whole(0))
        except ArgumentError:
            return True  # a field of a custom type
        except (OSError, ValueError, PenstockError):
            return False
        return True

    @property
    def description(self) -> str:
        """The types of the fields."""
        fields = ", ".join(f"{field.name} ({field.title})" for field in self._head.fields)
        return f"beton: FFCV, version {VERSION}, fields {fields}; {counted(len(self), 'record')}"

    def __len__(self) -> int:
        return self._head.count

    def open_files(self) -> OpenedBeton:
        """Map the file, and find the sizes of its JPEGs in the table of allocations."""
        view = MappedFiles(self._files).whole(0)
        head = self._head
        if len(view) < head.table:
            raise StoreFormatError("the file is truncated", store=self.url)
        metadata = np.frombuffer(view, head.metadata, head.count, head.begin)
        nbytes = {}
        for number, field in enumerate(head.fields):
            if field.type == 2 and (entries := metadata[f"f{number}"])["mode"].min(initial=1) == 0:
                nbytes[field.name] = self._find_sizes(view, entries["place"])
        return OpenedBeton(view, metadata, nbytes)

    def read_record(self, opened: OpenedBeton, index: int) -> Record:
        """One record; images are views of the mapped file."""
        numbers = self._read_numbers(opened, index)
        values = [read(opened, numbers, index) for read in self._readers]
        key = str(index) if self._named.key is None else str(values[self._named.columns.index(self._named.key)])
        return Record(index, key, dict(zip(self.schema.fields, values, strict=True)))

    def make_blob_reader(self, opened: OpenedBeton, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """What gives one field, without the others."""
        del indices
        read = self._reader_of[field]
        return lambda index: read(opened, self._read_numbers(opened, index), index)

    def _read_numbers(self, opened: OpenedBeton, index: int) -> tuple[int, ...]:
        """The numbers that the table has for a record."""
        numbers = self._head.numbers
        return numbers.unpack_from(opened.view, self._head.begin + index * numbers.size)

    def read_column(self, opened: OpenedBeton, field: str) -> Iterable[object]:
        """The values of one field; numbers are taken from the metadata at once."""
        place = list(self.schema.fields).index(field)
        number = [each.name for each in self._head.fields].index(self._named.columns[place])
        if self._head.fields[number].type in {0, 1}:
            values: list[object] = opened.metadata[f"f{number}"].tolist()
            return values
        return map(self.make_blob_reader(opened, field, ()), range(len(self)))

    def read_keys(self) -> Sequence[str]:
        """The values of the field of the keys; else the numbers of the rows."""
        if self._named.key is None:
            return super().read_keys()
        field = list(self.schema.fields)[self._named.columns.index(self._named.key)]
        return make_keys(map(str, self.read_column(self.get_opened(), field)))

    def _read_head(self) -> BetonHead:
        try:
            return parse_head(MappedFiles(self._files).whole(0))
        except FileNotFoundError as error:
            raise StoreNotFoundError("there is no store at this path", store=self.url) from error
        except PenstockError as error:
            error.locate(store=self.url)
            raise
        except OSError as error:
            raise StoreError(f"the file cannot be read: {error.strerror}", store=self.url) from error

    def _find_sizes(self, view: memoryview, places: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of bytes allocated at each place; -1 where none are."""
        rest = len(view) - self._head.table
        if rest % _ALLOCATION.itemsize or not rest:
            raise StoreFormatError(f"its table of allocations is truncated: {rest} bytes", store=self.url)
        table: Array = np.frombuffer(view, _ALLOCATION, rest // _ALLOCATION.itemsize, self._head.table)
        table = table[np.lexsort((table["nbytes"], table["place"]))]
        found = np.searchsorted(table["place"], places, side="right") - 1
        is_there = (found >= 0) & (table["place"][found] == places)
        sizes = np.minimum(table["nbytes"][found], np.uint64(len(view) + 1)).astype(np.int64)
        return np.where(is_there, sizes, -1)

    def _find_kind(self, opened: OpenedBeton, field: BetonField) -> str:
        if field.type == 2:
            entries = opened.metadata[f"f{self._head.fields.index(field)}"]
            if not len(entries) or (entries["mode"] != 1).any():
                return "image"
            height, width = (
                str(axis[0]) if axis[0] and (axis == axis[0]).all() else "*"
                for axis in (entries["height"], entries["width"])
            )
            return f"pixels:uint8[{height},{width},3]"
        if field.type == 3:
            return "image" if self._holds_images(opened, field) else "bytes"
        if field.dtype is not None:
            return f"{field.dtype.name}[{','.join(map(str, field.shape))}]"
        return {0: "float", 1: "int", 5: "json"}[field.type]

    def _holds_images(self, opened: OpenedBeton, field: BetonField) -> bool:
        """Whether the bytes of some records, evenly spread, are images; those that are damaged are left out."""
        read = self._make_reader(self._head.fields.index(field))
        entry, contents = self._head.numbers, []
        for index in sorted(set(np.linspace(0, max(len(self) - 1, 0), _PROBED, dtype=np.int64).tolist())):
            with contextlib.suppress(ValueError, IndexError):
                numbers = entry.unpack_from(opened.view, self._head.begin + index * entry.size)
                contents.append(read(opened, numbers, index))
        return are_images(contents)  # type: ignore[arg-type]  # bytes

    def _make_reader(self, number: int, *, encodes_raw: bool = False) -> ReadValue:
        return make_reader(self._head.fields[number], self._head.places[number], self._head, encodes_raw=encodes_raw)
