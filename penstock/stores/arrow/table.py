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
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Array, ArrayKind
from penstock.stores.arrow.columns import BinaryColumn, JsonColumn, ListColumn, NumberColumn, TextColumn
from penstock.stores.arrow.features import is_list, is_text, storage_type_of
from penstock.stores.arrow.fields import ColumnField
from penstock.stores.common.keys import LazyKeys
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.box_corners import to_corners
from penstock.stores.fields.exact_casts import UnfitValueError, cast_exactly
from penstock.stores.fields.pixels import PixelLayout

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnKeys", "ColumnarReader", "GetBytes", "GetChunks", "GetValue", "ImageFiles", "LargeColumn"]

T_stored = TypeVar("T_stored")

GetChunks = Callable[[str, Sequence[str]], "Sequence[pa.Array]"]
"""Gives the chunks of a column by its name; of a struct, children other than the path that is given may be missing."""

GetValue = Callable[[int], object]
"""Gives the value of a row; None if it has none."""

GetBytes = Callable[[int], "memoryview | Array | None"]
"""Gives the bytes of a row, or numbers where pixels are stored as lists of numbers; None if it has none."""

_MAX_IMAGE_NBYTES = 1 << 31


class LargeColumn(Protocol):
    """A column of bytes that can be read ahead."""

    def announce(self, rows: Sequence[int]) -> int:
        """Begin to read the bytes of some rows; how many the system was asked for."""


class ImageFiles:
    """Files of images that a container names by their path instead of holding their bytes.

    ``folder``: where relative paths begin; None if the container is in memory. ``allow_paths``: whether files outside
    of ``folder`` may be read. A container from elsewhere could name any file of this machine.
    """

    def __init__(self, folder: Path | None, *, allow_paths: bool = False) -> None:
        self._folder, self._allow_paths = folder, allow_paths

    def read(self, path: str) -> bytes:
        """Return the bytes of an image file.

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
        if (
            folder is None
            or not is_inside
            or not Path(os.path.realpath(folder / parts)).is_relative_to(os.path.realpath(folder))
        ):
            raise ArgumentError(
                f"the image is stored as the path {path!r:.200}, outside of the container or a link out of it; open "
                "the store with allow_paths=True if files of this machine may be read by the paths in it"
            )
        return folder / parts


class ColumnarReader:
    """Reads rows, field by field. Several threads may call everything.

    ``get_chunks``: gives the chunks of a column; see :data:`GetChunks`. ``files``: for images that are stored as their
    paths.
    """

    def __init__(self, fields: Sequence[ColumnField], get_chunks: GetChunks, files: ImageFiles) -> None:
        self.get_chunks, self._files = get_chunks, files
        self._fields = {field.name: field for field in fields}
        self._getters: dict[str, GetValue] = {}
        self._all: list[tuple[str, GetValue]] | None = None
        self._numbers: dict[str, NumberColumn] = {}
        self._large: dict[tuple[str, ...], LargeColumn] = {}
        """The columns of bytes that were opened, by their names and paths."""

    def read(self, row: int) -> dict[str, object]:
        """Return all fields of a row."""
        getters = self._all
        if getters is None:
            getters = self._all = [(name, self.open_field(name)) for name in self._fields]
        return {name: get(row) for name, get in getters}

    def announce(self, rows: Sequence[int], name: str | None = None) -> int:
        """Begin to read the encoded fields of some rows, or one of them; how many bytes the system was asked for."""
        asked = 0
        for field in self._fields.values():
            if field.field.is_blob and name in {None, field.name}:
                self.open_field(field.name)
                column = self._large.get((field.column, *field.path))
                asked += 0 if column is None else column.announce(rows)
        return asked

    def open_field(self, name: str) -> GetValue:
        """Return what gives the values of a field. Two threads may make it twice; one of the two is then kept."""
        get = self._getters.get(name)
        if get is None:
            get = self._getters[name] = self._open_field(self._fields[name])
        return get

    def read_column(self, name: str, count: int, rows: Array | None) -> Array | list[object]:
        """Return the values of some rows, or of all of them, without an object for each number."""
        get, numbers = self.open_field(name), self._numbers.get(name)
        if numbers is None:
            return [get(row) for row in (range(count) if rows is None else rows.tolist())]
        values = numbers.to_numpy(is_float=self._fields[name].field.kind == "float")
        if rows is not None:
            values = values[rows]
            values.flags.writeable = False
        return values

    def open_bytes(self, column: str, path: Sequence[str]) -> GetBytes:
        """Return what gives the values of a column of bytes, or of a child of it.

        Pixels may also be lists of numbers.
        """
        chunks = self.get_chunks(column, path)
        if chunks and is_list(storage_type_of(chunks[0].type)):
            return ListColumn(chunks, path).get
        opened = self._large[column, *path] = BinaryColumn(chunks, path)
        return opened.get

    def _open_field(self, field: ColumnField) -> GetValue:
        kind, column, path = field.field, field.column, field.path
        if kind.is_blob:
            contents = self.open_bytes(column, path)
            if kind.pixels is not None:
                return self._read_pixels(contents, kind.pixels, field)
            names = (*path[:-1], field.path_child)
            texts = TextColumn(self.get_chunks(column, names), names) if field.path_child else None
            return contents if texts is None else _read_path_or_bytes(contents, texts, self._files)
        chunks = self.get_chunks(column, path)
        if kind.array is not None:
            convert = functools.partial(_to_kind, kind=kind.array)
            if kind.kind == "boxes":
                convert = functools.partial(_to_boxes, is_xywh=field.boxes_format == "xywh")
            return _convert(ListColumn(chunks, path).get, convert)
        if kind.kind not in {"text", "json"}:
            self._numbers[field.name] = numbers = NumberColumn(chunks, path)
            return numbers.get
        is_parsed = kind.kind == "json" and bool(chunks) and is_text(chunks[0].type)  # in a file of penstock
        if kind.kind == "json" and not is_parsed:
            return JsonColumn(chunks, path).get
        texts = TextColumn(chunks, path)
        return _convert(texts.get, json.loads) if is_parsed else texts.get

    def _read_pixels(self, contents: GetBytes, kind: ArrayKind, field: ColumnField) -> GetValue:
        layout = PixelLayout(field.channels)
        paths = [(*field.path[:-1], child) for child in field.size_children]
        sizes = [NumberColumn(self.get_chunks(field.column, path), path) for path in paths]
        shape = [-1 if lengths is None else lengths[0] for lengths in kind.axes]
        dtype = kind.dtype.newbyteorder("<")

        def read(row: int) -> Array | None:
            values = contents(row)
            if values is None:
                return None
            stated = [int(column.get(row) or 0) for column in sizes]
            if stated and min(stated) < 1:
                raise ValueError(f"its height, width and channels must be at least 1, got {stated}")
            pixels: Array = np.frombuffer(values, dtype) if isinstance(values, memoryview) else values
            return layout.convert(pixels.reshape([*stated, *shape[len(stated) :]]))

        return read


class ColumnKeys(LazyKeys):
    """The keys of records that a column holds; a row without one has its number."""

    def __init__(self, column: TextColumn, rows: Array | None = None) -> None:
        self._column, self._rows = column, rows
        self._count = len(column) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> str:
        """Return the value of the row; its number if it has none."""
        key = self._column.get(number if self._rows is None else int(self._rows[number]))
        return str(number) if key is None else key


def _read_path_or_bytes(contents: GetBytes, names: TextColumn, files: ImageFiles) -> GetValue:
    """Return what gives images that are stored as their bytes, or as the path of their file."""

    def read(row: int) -> object:
        content = contents(row)
        path = names.get(row) if content is None else None
        return files.read(path) if path else content

    return read


def _convert(get: Callable[[int], T_stored | None], convert: Callable[[T_stored], object]) -> GetValue:
    """Return what gives values that are converted when they are read."""

    def read(row: int) -> object:
        value = get(row)
        return None if value is None else convert(value)

    return read


def _to_boxes(values: Array, *, is_xywh: bool) -> Array:
    """Convert boxes to xyxy."""
    if values.shape == (4,):  # one box for a record
        values = values.reshape(1, 4)
    elif values.size == 0:
        values = values.reshape(0, 4)
    if values.ndim != 2 or values.shape[1] != 4:
        raise UnfitValueError(f"its boxes must have 4 numbers each, got shape {values.shape}")
    return to_corners(values.astype(np.float64), "xywh") if is_xywh else to_corners(values)


def _to_kind(values: Array, kind: ArrayKind) -> Array:
    """Return an array in dtype and shape of its kind.

    Lists without numbers have lost the lengths of their inner axes.
    """
    if not values.size and not kind.allows(values.shape) and values.ndim <= len(kind.axes):
        lengths = [*values.shape, *(0 for _ in range(len(kind.axes) - values.ndim))]
        shape = [stored if allowed is None else allowed[0] for stored, allowed in zip(lengths, kind.axes, strict=True)]
        if 0 in shape:
            values = values.reshape(shape)
    if not kind.allows(values.shape):
        raise UnfitValueError(f"its array must be {kind}, got shape {values.shape}")
    values = cast_exactly(values, kind.dtype)
    values.flags.writeable = False
    return values
