"""What the stored values of a field become: images as HWC RGB, numbers, texts, small arrays.

::

    FieldSource ──make_reader──> DatasetReader    one a field, made at its first use
                                    read(row) ──> value of the record

Numbers and texts are columns, read once; of other fields one record is read at a time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Final

import numpy as np

from penstock.sample import Array, ArrayKind
from penstock.stores.common.keys import KeyList
from penstock.stores.fields.pixels import PixelLayout
from penstock.stores.hdf5.files import Hdf5Files
from penstock.stores.hdf5.format import array_kind
from penstock.stores.hdf5.roles import FieldSource
from penstock.stores.hdf5.rows import LibraryFiles, LocateRow, ReadRow

__all__ = ["DatasetReader", "make_reader", "read_texts"]

_LARGEST: Final = 2**63 - 1
_ORDERS: Final = {"NCHW": (1, 2, 0), "NCWH": (2, 1, 0), "NWH": (1, 0)}


class DatasetReader:
    """Reads one field of records.

    Parameters
    ----------
    read : callable
        Gives the value of a row; ValueError if it is damaged.
    missing : ndarray of bool, optional
        Whether each record has none.
    column : ndarray, optional
        Of a field of numbers: those of all records.
    locate : callable, optional
        Where in the files the value of a row is.
    """

    def __init__(
        self,
        read: Callable[[int, LibraryFiles], object],
        missing: Array | None,
        column: Array | None = None,
        locate: LocateRow | None = None,
    ) -> None:
        self._read, self.column, self.locate = read, column, locate
        self._is_missing = missing.data if missing is not None and missing.any() else None

    def read(self, row: int, files: LibraryFiles) -> object:
        """The value of a record; None if it has none."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        return self._read(row, files)


def make_reader(source: FieldSource, files: Hdf5Files, count: int, missing_label: int | None) -> DatasetReader:
    """The reader of a field.

    Parameters
    ----------
    source : FieldSource
        The field and its dataset.
    files : Hdf5Files
        The files.
    count : int
        Number of records.
    missing_label : int, optional
        The label that says that a record has none.

    Raises
    ------
    ValueError, and others of :data:`~penstock.stores.hdf5.survey.LIBRARY_ERRORS`
        If the files are damaged.
    """
    missing = None if source.missing is None else _flag_rows(files.read_all(source.missing), count)
    if source.is_number:
        values = files.read_all(source.dataset)[:count].reshape(-1)
        if missing_label is not None:
            missing = (values == missing_label) if missing is None else missing | (values == missing_label)
        column = _make_column(values, missing, is_float=source.field.kind == "float")
        return DatasetReader(lambda row, _: column.item(row), missing, column)
    if source.is_text:
        texts = read_texts(files.read_all(source.dataset)[:count])
        parse = json.loads if source.field.kind == "json" else str
        return DatasetReader(lambda row, _: parse(texts[row]), missing)
    read, locate = files.open_rows(source.dataset)
    if source.shapes is not None:
        return DatasetReader(_shape_values(read, source, files.read_all(source.shapes)), missing, None, locate)
    convert = _make_converter(source)
    converted = read if convert is None else lambda row, opened: convert(read(row, opened))
    return DatasetReader(converted, missing, None, locate)


def _make_column(values: Array, missing: Array | None, *, is_float: bool) -> Array:
    """Numbers in 64 bits, those of records without one as NaN or -1."""
    if not is_float and values.dtype == np.uint64 and len(values) and int(values.max()) > _LARGEST:
        raise ValueError(f"integers must be at most {_LARGEST}, got {int(values.max())}")
    column = np.array(values, np.float64 if is_float else np.int64)
    if missing is not None:
        column[missing] = np.nan if is_float else -1
    column.flags.writeable = False
    return column


def read_texts(values: Array) -> KeyList:
    """A column of texts, or of integers that are names. Bytes that are no UTF-8, and zeros, are escaped."""
    if values.dtype.kind in "iu":
        return KeyList.from_names(map(str, values.tolist()))
    return KeyList.from_names(_decode(value) for value in values.tolist())


def _decode(value: bytes | str) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _flag_rows(rows: Array, count: int) -> Array:
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise ValueError("a row without a value is outside the column")
    flags = np.zeros(count, np.bool_)
    flags[rows] = True
    return flags


def _shape_values(read: ReadRow, source: FieldSource, shapes: Array) -> Callable[[int, LibraryFiles], Array]:
    """What reads arrays whose shapes are stored beside them."""
    kind = array_kind(source.field)
    assert kind is not None, "only arrays have shapes"

    def read_array(row: int, files: LibraryFiles) -> Array:
        shape = tuple(shapes[row].tolist())
        if min(shape) < 0 or not kind.allows(shape):
            raise ValueError(f"its shape {shape} must be that of {kind}")
        return _to_shape(read(row, files), kind, shape)

    return read_array


def _make_converter(source: FieldSource) -> Callable[..., object] | None:
    """What makes a value of the field of a stored one; None where it is stored so."""
    kind, dtype = array_kind(source.field), source.dataset.dtype
    if source.axes:
        return _make_pixel_converter(source)
    if kind is None:
        return _view_bytes
    rest = tuple(-1 if lengths is None else lengths[0] for lengths in kind.axes)
    is_fixed = kind.shape is not None
    if dtype == kind.dtype and dtype.isnative and dtype != np.uint8 and (is_fixed or len(rest) == 1):
        return None
    return functools.partial(_to_shape, kind=kind, shape=rest if is_fixed else (-1, *rest[1:]))


def _view_bytes(value: bytes | memoryview | Array) -> bytes | memoryview:
    """The bytes of an encoded image; h5py gives an array."""
    return value.data if isinstance(value, np.ndarray) else value


def _to_shape(value: object, kind: ArrayKind, shape: tuple[int, ...]) -> Array:
    array = np.asarray(value).astype(kind.dtype, copy=False).reshape(shape)
    array.flags.writeable = False
    return array


def _make_pixel_converter(source: FieldSource) -> Callable[[Array], Array] | None:
    """Pixels to HWC, three channels RGB, in native byte order; None where the file has them so."""
    if source.axes == "NHWC" and not source.is_bgr and source.dataset.dtype.isnative:
        return None
    layout, order = PixelLayout("BGR" if source.is_bgr else "RGB"), _ORDERS.get(source.axes)
    return lambda stored: layout.convert(stored if order is None else stored.transpose(order))
