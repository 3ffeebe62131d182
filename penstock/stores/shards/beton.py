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
from typing import ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, check_choice
from penstock.sample import Array, Field, Record
from penstock.stores.base import PathLike
from penstock.stores.common.keys import make_keys
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.container import ContainerStore, select_given
from penstock.stores.fields.column_names import name_columns, select_columns
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.indices import spread_indices
from penstock.stores.shards.beton_fields import (
    VERSION,
    OpenedBeton,
    ReadValue,
    locate_value,
    make_reader,
    parse_head,
)
from penstock.wording import counted

__all__ = ["BetonStore"]

_ALLOCATION: Final = np.dtype([("record", "<u8"), ("place", "<u8"), ("nbytes", "<u8")])
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
        check_choice("raw", raw, _RAW)
        stated = {"image": image, "label": label, "key": key}
        options = select_given(type(self), **stated, fields=fields, raw=raw)
        super().__init__(path, files=None, **options)
        with self.opening(".beton file"):
            self._head = parse_head(MappedFiles(self._files).ranges(0))
        names = [field.name for field in self._head.fields]
        wanted = select_columns(names, cast("Sequence[str] | None", options.get("fields")), stated=stated)
        opened = self._opened.get()
        kinds = {name: Field(self._find_kind(opened, names.index(name))) for name in wanted}
        self._named = name_columns(kinds, image=image, label=label, key=key, store=self.url)
        self._schema = self._named.schema
        self._readers: dict[str, tuple[int, ReadValue]] = {}
        for name, column in zip(self.schema.fields, self._named.columns, strict=True):
            number = names.index(column)
            encodes_raw = raw == "ppm" and kinds[column].pixels is None
            self._readers[name] = number, make_reader(self._head.fields[number], self._head, encodes_raw=encodes_raw)

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Whether the header is that of such a file, and agrees with its size."""
        try:
            parse_head(MappedFiles([Path(path)]).ranges(0))
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
        view = MappedFiles(self._files).ranges(0)
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
        """What each record has in the pages."""
        for index in indices:
            entry = opened.metadata[index].item()
            for number, _ in self._readers.values():
                if (place := locate_value(self._head.fields[number], opened, entry[number], index)) is not None:
                    yield 0, *place

    def read_record(self, opened: OpenedBeton, index: int) -> Record:
        """One record; images are views of the mapped file."""
        entry = opened.metadata[index].item()
        values = {name: read(opened, entry[number], index) for name, (number, read) in self._readers.items()}
        key = str(index) if self._named.key is None else str(values[self._key_field])
        return Record(index, key, values)

    def make_blob_reader(self, opened: OpenedBeton, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """What gives one field, without the others."""
        del indices
        number, read = self._readers[field]
        metadata = opened.metadata
        return lambda index: read(opened, metadata[index].item()[number], index)

    def read_column(self, opened: OpenedBeton, field: str) -> Iterable[object]:
        """The values of one field; numbers are taken from the metadata at once."""
        number, _ = self._readers[field]
        if self._head.fields[number].type in {0, 1}:
            values: list[object] = opened.metadata[f"f{number}"]["number"].tolist()
            return values
        return map(self.make_blob_reader(opened, field, ()), self.iterate(opened))

    def read_keys(self) -> Sequence[str]:
        """The values of the field of the keys; else the numbers of the rows."""
        if self._named.key is None:
            return super().read_keys()
        return make_keys(map(str, self.read_column(self.get_opened(), self._key_field)))

    @property
    def _key_field(self) -> str:
        return list(self.schema.fields)[self._named.columns.index(str(self._named.key))]

    def _find_sizes(self, view: ByteRanges, places: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of bytes allocated at each place; -1 where none are."""
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
        """Whether the bytes of some records, evenly spread, are images; those that are damaged are left out."""
        read = make_reader(self._head.fields[number], self._head)
        contents = []
        for index in spread_indices(len(self)):
            with contextlib.suppress(ValueError, IndexError):
                contents.append(read(opened, opened.metadata[index].item()[number], index))
        return are_images(cast("list[bytes]", contents))
