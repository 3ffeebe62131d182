"""Records of an Arrow table: for each field of a plan, the value of a row as a record holds it.

::

    fields + chunks of their columns ──ColumnarReader──> read(row) ──> {"image": view, "label": 3, "boxes": array}
                                            └ the reader of a field is made when the field is first read

The stores of Arrow, Parquet, Lance and Hugging Face data share it. It opens no container; it opens the files of images
that a container names by their path.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Array, ArrayKind
from penstock.stores.arrow.columns import (
    ArrowColumn,
    BinaryColumn,
    JsonColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
)
from penstock.stores.arrow.fields import ColumnField
from penstock.stores.common.keys import LazyKeys
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.box_corners import to_corners

__all__ = [
    "ColumnKeys",
    "ColumnarReader",
    "FieldReader",
    "GetChunks",
    "ImageFiles",
    "TableReader",
    "make_column_values",
    "make_reader",
]

GetChunks = Callable[[str, Sequence[str]], Sequence[Any]]
"""Gives the chunks of a column by its name; of a struct, children other than the path that is given may be missing."""

_MAX_IMAGE_NBYTES = 1 << 31


class FieldReader(Protocol):
    """Gives the values of one field."""

    def get(self, row: int) -> Any:
        """The value of a row; None if it has none."""
        ...


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
        parts = PurePosixPath(path)
        if self._allow_paths:
            return (self._folder or Path()) / parts
        if self._folder is None or parts.is_absolute() or ".." in parts.parts:
            raise ArgumentError(
                f"the image is stored as the path {path!r:.200} outside of the container; open the store with "
                "allow_paths=True if files of this machine may be read by the paths in it"
            )
        where = self._folder / parts
        if not where.resolve().is_relative_to(self._folder.resolve()):
            raise ArgumentError(
                f"the image is stored as the path {path!r:.200}, a link out of the container; open the store with "
                "allow_paths=True if files of this machine may be read by the paths in it"
            )
        return where


class ColumnarReader(ABC):
    """Reads rows, field by field. Several threads may call everything.

    Parameters
    ----------
    fields : sequence of ColumnField
        The fields.
    files : ImageFiles
        For images that are stored as their paths.
    """

    def __init__(self, fields: Sequence[ColumnField], files: ImageFiles) -> None:
        self._files = files
        self._fields = {field.name: field for field in fields}
        self._readers: dict[str, FieldReader] = {}
        self._getters: list[tuple[str, Callable[[int], Any]]] | None = None

    def read(self, row: int) -> dict[str, Any]:
        """All fields of a row."""
        getters = self._getters
        if getters is None:
            getters = self._getters = [(name, self.get_reader(name).get) for name in self._fields]
        return {name: get(row) for name, get in getters}

    def get_reader(self, name: str) -> FieldReader:
        """The reader of a field. Two threads may make it twice; one of the two is then kept."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = self._make_reader(self._fields[name])
        return reader

    @abstractmethod
    def get_chunks(self, column: str, path: Sequence[str]) -> Sequence[Any]:
        """The chunks of a column; of a struct, children other than the one at ``path`` may be missing."""

    def _make_reader(self, field: ColumnField) -> FieldReader:
        return make_reader(field, self.get_chunks, self._files)


class TableReader(ColumnarReader):
    """Reads rows of a table whose columns are in memory, or mapped.

    Parameters
    ----------
    fields : sequence of ColumnField
        The fields.
    get_chunks : callable
        Gives the chunks of a column by its name.
    files : ImageFiles
        For images that are stored as their paths.
    """

    def __init__(
        self, fields: Sequence[ColumnField], get_chunks: Callable[[str], Sequence[Any]], files: ImageFiles
    ) -> None:
        super().__init__(fields, files)
        self._get_chunks = get_chunks

    def get_chunks(self, column: str, path: Sequence[str]) -> Sequence[Any]:
        """The chunks of a column, with all children."""
        del path
        return self._get_chunks(column)


def make_reader(
    field: ColumnField, get_chunks: GetChunks, files: ImageFiles, contents: FieldReader | None = None
) -> FieldReader:
    """The reader of a field.

    Parameters
    ----------
    field : ColumnField
        The field.
    get_chunks : callable
        Gives the chunks of its column.
    files : ImageFiles
        For images that are stored as their paths.
    contents : FieldReader, optional
        What gives the bytes of a large field, if not the chunks.
    """
    path = field.path
    if field.form in {"bytes", "pixels"}:
        values = contents or _make_contents(field, get_chunks(field.column, path))
        if field.form == "pixels":
            return _make_pixels(field, values, get_chunks)
        if not field.path_child:
            return values
        names = (*path[:-1], field.path_child)
        return _PathOrBytes(values, TextColumn(get_chunks(field.column, names), names), files)
    return _make_small(field, get_chunks(field.column, path))


def make_column_values(reader: FieldReader, kind: str, count: int) -> Array | list[Any]:
    """All values of a small field: without an object for each number where the column holds numbers."""
    if isinstance(reader, NumberColumn):
        if kind == "float":
            return reader.to_numpy(np.dtype(np.float64), np.nan)
        return reader.to_numpy(np.dtype(np.int64), -1)
    return reader.get_all() if isinstance(reader, ArrowColumn) else [reader.get(row) for row in range(count)]


class ColumnKeys(LazyKeys):
    """The keys of records that a column holds; a row without one has its number."""

    def __init__(self, column: ArrowColumn, rows: Array | None = None) -> None:
        self._column, self._rows = column, rows
        self._count = len(column) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> str:
        """The value of the row; its number if it has none."""
        key = self._column.get(number if self._rows is None else int(self._rows[number]))
        return str(number) if key is None else str(key)

    def __iter__(self) -> Iterator[str]:
        if self._rows is not None:
            return super().__iter__()
        return (str(number) if key is None else str(key) for number, key in enumerate(self._column.get_all()))


class _Integers(NumberColumn):
    """Integers; booleans are converted."""

    def _get(self, chunk: Any, row: int) -> int | None:
        number = super()._get(chunk, row)
        return None if number is None else int(number)


class _PathOrBytes:
    """Images that are stored as their bytes, or as the path of their file."""

    def __init__(self, contents: FieldReader, names: TextColumn, files: ImageFiles) -> None:
        self._contents, self._names, self._files = contents, names, files

    def get(self, row: int) -> memoryview | bytes | None:
        content: memoryview | None = self._contents.get(row)
        if content is not None:
            return content
        path = self._names.get(row)
        return self._files.read(path) if path else None


class _Arrays:
    """Small arrays of a declared kind."""

    def __init__(self, column: ListColumn, kind: ArrayKind) -> None:
        self._column, self._kind = column, kind

    def get(self, row: int) -> Array | None:
        values: Array | None = self._column.get(row)
        return None if values is None else _to_kind(values, self._kind)


class _Boxes:
    """Boxes as xyxy."""

    def __init__(self, column: ListColumn, *, is_xywh: bool) -> None:
        self._column, self._is_xywh = column, is_xywh

    def get(self, row: int) -> Array | None:
        values: Array | None = self._column.get(row)
        if values is None:
            return None
        if values.shape == (4,):  # one box for a record
            values = values.reshape(1, 4)
        elif values.size == 0:
            values = values.reshape(0, 4)
        if values.ndim != 2 or values.shape[1] != 4:
            raise ValueError(f"its boxes must have 4 numbers each, got shape {values.shape}")
        return to_corners(values.astype(np.float64), "xywh") if self._is_xywh else to_corners(values)


class _Pixels:
    """Pixels that are stored as their bytes, or as lists of numbers."""

    def __init__(self, column: FieldReader, kind: ArrayKind, sizes: Sequence[NumberColumn], *, is_bgr: bool) -> None:
        self._column, self._kind, self._sizes, self._is_bgr = column, kind, sizes, is_bgr
        self._dtype = kind.dtype.newbyteorder("<")

    def get(self, row: int) -> Array | None:
        values = self._column.get(row)
        if values is None:
            return None
        shape = [None if lengths is None else lengths[0] for lengths in self._kind.axes]
        if self._sizes:
            stated = [int(column.get(row)) for column in self._sizes]
            if min(stated) < 1:
                raise ValueError(f"its height, width and channels must be at least 1, got {stated}")
            shape[: len(stated)] = stated
        pixels: Array = np.frombuffer(values, self._dtype) if isinstance(values, memoryview) else values
        pixels = pixels.reshape([int(length or -1) for length in shape])
        if self._is_bgr:
            pixels = np.ascontiguousarray(pixels[..., ::-1])
        if pixels.flags.writeable:
            pixels.flags.writeable = False
        return pixels


class _ParsedJson:
    """What JSON can hold, stored as text."""

    def __init__(self, column: TextColumn) -> None:
        self._column = column

    def get(self, row: int) -> Any:
        text = self._column.get(row)
        return None if text is None else json.loads(text)


def _make_small(field: ColumnField, chunks: Sequence[Any]) -> FieldReader:
    """The reader of a small field."""
    if field.form == "array":
        assert field.field.array is not None, "so it was planned"
        return _Arrays(ListColumn(chunks, field.path), field.field.array)
    if field.form == "boxes":
        return _Boxes(ListColumn(chunks, field.path), is_xywh=field.boxes_format == "xywh")
    if field.form == "parsed":
        return _ParsedJson(TextColumn(chunks, field.path))
    kinds: dict[str, type[ArrowColumn]] = {"number": _Integers, "text": TextColumn, "json": JsonColumn}
    return (NumberColumn if field.field.kind == "float" else kinds[field.form])(chunks, field.path)


def _make_contents(field: ColumnField, chunks: Sequence[Any]) -> FieldReader:
    if chunks and "list" in str(chunks[0].type):
        return ListColumn(chunks, field.path)
    return BinaryColumn(chunks, field.path)


def _make_pixels(field: ColumnField, contents: FieldReader, get_chunks: GetChunks) -> _Pixels:
    kind = field.field.pixels
    assert kind is not None, "so it was planned"
    paths = [(*field.path[:-1], child) for child in field.size_children]
    sizes = [NumberColumn(get_chunks(field.column, path), path) for path in paths]
    return _Pixels(contents, kind, sizes, is_bgr=field.channels == "BGR")


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
    if values.flags.writeable:
        values.flags.writeable = False
    return values
