"""Records of an Arrow table: for each field of a plan, the value of a row as a record holds it.

::

    fields + chunks of their columns ──ColumnarReader──> read(row) ──> {"image": view, "label": 3, "boxes": array}
                                            └ the reader of a field is made when the field is first read

The stores of Arrow, Parquet, Lance and Hugging Face data share it. It opens no container; it opens the files of images
that a container names by their path.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Array, ArrayKind
from penstock.stores.arrow.columns import BinaryColumn, JsonColumn, ListColumn, NumberColumn, TextColumn
from penstock.stores.arrow.features import is_list, storage_type_of
from penstock.stores.arrow.fields import ColumnField
from penstock.stores.common.keys import LazyKeys
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.box_corners import to_corners
from penstock.stores.fields.pixels import PixelLayout

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnKeys", "ColumnarReader", "FieldReader", "GetChunks", "ImageFiles", "Stored"]

T_value_co = TypeVar("T_value_co", covariant=True)
T_stored = TypeVar("T_stored")

GetChunks = Callable[[str, Sequence[str]], "Sequence[pa.Array]"]
"""Gives the chunks of a column by its name; of a struct, children other than the path that is given may be missing."""

_MAX_IMAGE_NBYTES = 1 << 31


class FieldReader(Protocol[T_value_co]):
    """Gives the values of one field."""

    def get(self, row: int) -> T_value_co | None:
        """The value of a row; None if it has none."""
        ...


Stored = FieldReader["memoryview | Array"]
"""Gives bytes, or numbers where pixels are stored as lists of numbers."""


class ImageFiles:
    """Files of images that a container names by their path instead of holding their bytes.

    Parameters
    ----------
    folder : Path or None
        Where relative paths begin; None if the container is in memory.
    allow_paths : bool
        Whether files outside of ``folder`` may be read. A container from elsewhere could name any file of this machine.
    """

    def __init__(self, folder: Path | None, *, allow_paths: bool = False) -> None:
        self._folder, self._allow_paths = folder, allow_paths

    def read(self, path: str) -> bytes:
        """The bytes of an image file.

        Raises
        ------
        ArgumentError
            If the path leads out of the folder, and that was not allowed.
        StoreError
            If the file cannot be read.
        """
        where = self._resolve(path)
        try:
            with os.fdopen(open_regular(where), "rb") as file:
                return file.read(_MAX_IMAGE_NBYTES)
        except (OSError, ValueError) as error:
            raise StoreError(f"the image is stored as the path {path!r:.200}, which cannot be read: {error}") from error

    def _resolve(self, path: str) -> Path:
        parts, folder = PurePosixPath(path), self._folder
        if self._allow_paths:
            return (folder or Path()) / parts
        is_inside = folder is not None and not parts.is_absolute() and ".." not in parts.parts
        if folder is None or not is_inside or not (folder / parts).resolve().is_relative_to(folder.resolve()):
            raise ArgumentError(
                f"the image is stored as the path {path!r:.200}, outside of the container or a link out of it; open "
                "the store with allow_paths=True if files of this machine may be read by the paths in it"
            )
        return folder / parts


class ColumnarReader:
    """Reads rows, field by field. Several threads may call everything.

    Parameters
    ----------
    fields : sequence of ColumnField
        The fields.
    get_chunks : callable
        Gives the chunks of a column; see :data:`GetChunks`.
    files : ImageFiles
        For images that are stored as their paths.
    """

    def __init__(self, fields: Sequence[ColumnField], get_chunks: GetChunks, files: ImageFiles) -> None:
        self.get_chunks, self._files = get_chunks, files
        self._fields = {field.name: field for field in fields}
        self._readers: dict[str, FieldReader[object]] = {}
        self._getters: list[tuple[str, Callable[[int], object]]] | None = None

    def read(self, row: int) -> dict[str, object]:
        """All fields of a row."""
        getters = self._getters
        if getters is None:
            getters = self._getters = [(name, self.get_reader(name).get) for name in self._fields]
        return {name: get(row) for name, get in getters}

    def get_reader(self, name: str) -> FieldReader[object]:
        """The reader of a field. Two threads may make it twice; one of the two is then kept."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = self._make_reader(self._fields[name])
        return reader

    def open_bytes(self, column: str, path: Sequence[str]) -> Stored:
        """The reader of a column of bytes, or of a child of it; pixels may also be lists of numbers."""
        chunks = self.get_chunks(column, path)
        has_lists = bool(chunks) and is_list(storage_type_of(chunks[0].type))
        return ListColumn(chunks, path) if has_lists else BinaryColumn(chunks, path)

    def _make_reader(self, field: ColumnField) -> FieldReader[object]:
        form, kind, column, path = field.form, field.field, field.column, field.path
        if form == "pixels":
            return self._make_pixels(field)
        if form == "bytes":
            contents = self.open_bytes(column, path)
            names = (*path[:-1], field.path_child)
            texts = TextColumn(self.get_chunks(column, names), names) if field.path_child else None
            return contents if texts is None else _PathOrBytes(contents, texts, self._files)
        chunks = self.get_chunks(column, path)
        if form == "array":
            assert kind.array is not None, "so it was planned"
            return _Converted(ListColumn(chunks, path), functools.partial(_to_kind, kind=kind.array))
        if form == "boxes":
            convert = functools.partial(_to_boxes, is_xywh=field.boxes_format == "xywh")
            return _Converted(ListColumn(chunks, path), convert)
        if form == "parsed":
            return _Converted(TextColumn(chunks, path), json.loads)
        kinds: dict[str, type[NumberColumn | TextColumn | JsonColumn]] = {
            "number": NumberColumn, "text": TextColumn, "json": JsonColumn,
        }  # fmt: skip
        return kinds[form](chunks, path)

    def _make_pixels(self, field: ColumnField) -> FieldReader[object]:
        kind, path = field.field.pixels, field.path
        assert kind is not None, "so it was planned"
        paths = [(*path[:-1], child) for child in field.size_children]
        sizes = [NumberColumn(self.get_chunks(field.column, each), each) for each in paths]
        return _Pixels(self.open_bytes(field.column, path), kind, sizes, PixelLayout(field.channels))


class ColumnKeys(LazyKeys):
    """The keys of records that a column holds; a row without one has its number."""

    def __init__(self, column: TextColumn, rows: Array | None = None) -> None:
        self._column, self._rows = column, rows
        self._count = len(column) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> str:
        """The value of the row; its number if it has none."""
        key = self._column.get(number if self._rows is None else int(self._rows[number]))
        return str(number) if key is None else key


class _PathOrBytes:
    """Images that are stored as their bytes, or as the path of their file."""

    def __init__(self, contents: FieldReader[object], names: TextColumn, files: ImageFiles) -> None:
        self._contents, self._names, self._files = contents, names, files

    def get(self, row: int) -> object:
        content = self._contents.get(row)
        if content is not None:
            return content
        path = self._names.get(row)
        return self._files.read(path) if path else None


class _Converted(Generic[T_stored]):
    """Values that are converted when they are read."""

    def __init__(self, column: FieldReader[T_stored], convert: Callable[[T_stored], object]) -> None:
        self._column, self._convert = column, convert

    def get(self, row: int) -> object:
        value = self._column.get(row)
        return None if value is None else self._convert(value)


class _Pixels:
    """Pixels that are stored as their bytes, or as lists of numbers."""

    def __init__(self, column: Stored, kind: ArrayKind, sizes: Sequence[NumberColumn], layout: PixelLayout) -> None:
        self._column, self._sizes, self._layout = column, sizes, layout
        self._shape = [-1 if lengths is None else lengths[0] for lengths in kind.axes]
        self._dtype = kind.dtype.newbyteorder("<")

    def get(self, row: int) -> Array | None:
        values = self._column.get(row)
        if values is None:
            return None
        stated = [int(column.get(row) or 0) for column in self._sizes]
        if stated and min(stated) < 1:
            raise ValueError(f"its height, width and channels must be at least 1, got {stated}")
        pixels: Array = np.frombuffer(values, self._dtype) if isinstance(values, memoryview) else values
        return self._layout.convert(pixels.reshape([*stated, *self._shape[len(stated) :]]))


def _to_boxes(values: Array, *, is_xywh: bool) -> Array:
    """Boxes as xyxy."""
    if values.shape == (4,):  # one box for a record
        values = values.reshape(1, 4)
    elif values.size == 0:
        values = values.reshape(0, 4)
    if values.ndim != 2 or values.shape[1] != 4:
        raise ValueError(f"its boxes must have 4 numbers each, got shape {values.shape}")
    return to_corners(values.astype(np.float64), "xywh") if is_xywh else to_corners(values)


def _to_kind(values: Array, kind: ArrayKind) -> Array:
    """An array in dtype and shape of its kind; lists without numbers have lost the lengths of their inner axes."""
    if not values.size and not kind.allows(values.shape) and values.ndim <= len(kind.axes):
        lengths = [*values.shape, *(0 for _ in range(len(kind.axes) - values.ndim))]
        shape = [stored if allowed is None else allowed[0] for stored, allowed in zip(lengths, kind.axes, strict=True)]
        if 0 in shape:
            values = values.reshape(shape)
    if not kind.allows(values.shape):
        raise ValueError(f"its array must be {kind}, got shape {values.shape}")
    values = values.astype(kind.dtype, copy=False)
    values.flags.writeable = False
    return values
