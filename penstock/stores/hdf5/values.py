"""What the stored values of a field become: images as HWC RGB, numbers, texts, small arrays.

::

    FieldSource ──make_reader──> DatasetReader    one a field, made at its first use
                                    read(row) ──> value of the record

Numbers and texts are columns, read once; of other fields one record is read at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from penstock.sample import Array, ArrayKind
from penstock.stores.common.keys import KeyList
from penstock.stores.hdf5.files import Hdf5Files
from penstock.stores.hdf5.format import array_kind
from penstock.stores.hdf5.roles import FieldSource
from penstock.stores.hdf5.rows import LibraryFiles, RowReader

__all__ = ["DatasetReader", "NumberReader", "make_reader", "read_texts"]

_LARGEST: Final = 2**63 - 1
_ORDERS: Final = {"NCHW": (1, 2, 0), "NCWH": (2, 1, 0), "NWH": (1, 0, 2)}
_Convert = Callable[[Any], Any]


class DatasetReader(Protocol):
    """Reads one field of records."""

    def read(self, row: int, files: LibraryFiles) -> Any:
        """The value of a record; None if it has none. ValueError if it is damaged."""
        ...


class NumberReader:
    """The numbers of all records, and which records have none.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The numbers as stored.
    is_float : bool
        Whether they are floats; else 64-bit integers.
    missing_value : int, optional
        What stands where a record has none.
    missing : ndarray of bool, optional
        Whether each record has none.

    Raises
    ------
    ValueError
        If a number needs more than 64 bits.
    """

    def __init__(
        self, values: Array, *, is_float: bool, missing_value: int | None = None, missing: Array | None = None
    ) -> None:
        if not is_float and values.dtype == np.uint64 and len(values) and int(values.max()) > _LARGEST:
            raise ValueError(f"integers must be at most {_LARGEST}, got {int(values.max())}")
        column = np.array(values, np.float64 if is_float else np.int64)
        is_missing = np.zeros(len(column), np.bool_) if missing is None else missing
        if missing_value is not None:
            is_missing = is_missing | (values == missing_value)
        column[is_missing] = np.nan if is_float else -1
        column.flags.writeable = False
        self.column = column
        self._values = column.data
        self._is_missing = is_missing.data if is_missing.any() else None

    def read(self, row: int, files: LibraryFiles) -> int | float | None:  # noqa: ARG002  # it is read already
        """See :class:`DatasetReader`."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        value: int | float = self._values[row]
        return value


class _TextReader:
    """The texts of all records, parsed where they are JSON."""

    def __init__(self, texts: KeyList, missing: Array | None, *, is_json: bool) -> None:
        self._texts, self._is_json = texts, is_json
        self._is_missing = None if missing is None else missing.data

    def read(self, row: int, files: LibraryFiles) -> Any:  # noqa: ARG002  # they are read already
        """See :class:`DatasetReader`."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        return json.loads(self._texts[row]) if self._is_json else self._texts[row]


class _ArrayReader:
    """Images and small arrays: one record is read at a time."""

    def __init__(self, rows: RowReader, convert: _Convert | None, missing: Array | None) -> None:
        self._rows, self._convert = rows, convert
        self._is_missing = None if missing is None else missing.data

    def read(self, row: int, files: LibraryFiles) -> Any:
        """See :class:`DatasetReader`."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        value = self._rows.read(row, files)
        return value if self._convert is None else self._convert(value)


class _ShapedReader:
    """Arrays whose shapes are stored beside them."""

    def __init__(self, rows: RowReader, kind: ArrayKind, shapes: Array, missing: Array | None) -> None:
        self._rows, self._kind, self._shapes = rows, kind, shapes
        self._is_missing = None if missing is None else missing.data

    def read(self, row: int, files: LibraryFiles) -> Array | None:
        """See :class:`DatasetReader`."""
        if self._is_missing is not None and self._is_missing[row]:
            return None
        shape = tuple(self._shapes[row].tolist())
        if min(shape) < 0 or not self._kind.allows(shape):
            raise ValueError(f"its shape {shape} must be that of {self._kind}")
        return _freeze(np.asarray(self._rows.read(row, files)).astype(self._kind.dtype, copy=False).reshape(shape))


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
        return NumberReader(values, is_float=source.field.kind == "float", missing_value=missing_label, missing=missing)
    if source.is_text:
        texts = read_texts(files.read_all(source.dataset)[:count])
        return _TextReader(texts, missing, is_json=source.field.kind == "json")
    rows = files.open_rows(source.dataset)
    kind = array_kind(source.field)
    if source.shapes is not None:
        assert kind is not None, "only arrays have shapes"
        return _ShapedReader(rows, kind, files.read_all(source.shapes), missing)
    if source.axes:
        return _ArrayReader(rows, _make_pixel_converter(source), missing)
    return _ArrayReader(rows, _view_bytes if kind is None else _make_array_converter(source, kind), missing)


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


def _view_bytes(value: Any) -> bytes | memoryview:
    """The bytes of an encoded image; h5py gives an array."""
    return value.data if isinstance(value, np.ndarray) else value


def _freeze(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _make_array_converter(source: FieldSource, kind: ArrayKind) -> _Convert | None:
    """Numbers to the shape and dtype of the field; None where they have them."""
    dtype = kind.dtype
    rest = tuple(-1 if lengths is None else lengths[0] for lengths in kind.axes)
    is_fixed = kind.shape is not None
    shape = rest if is_fixed else (-1, *rest[1:])
    is_same = source.dataset.dtype == dtype and source.dataset.dtype.isnative and dtype != np.uint8
    if is_same and (is_fixed or len(shape) == 1):
        return None
    return lambda value: _freeze(np.asarray(value).astype(dtype, copy=False).reshape(shape))


def _make_pixel_converter(source: FieldSource) -> _Convert | None:
    """Pixels to HWC, three channels RGB, in native byte order; None where the file has them so."""
    axes, is_bgr = source.axes, source.is_bgr
    native = source.dataset.dtype.newbyteorder("=")
    if axes == "NHWC" and not is_bgr and source.dataset.dtype.isnative:
        return None

    order = _ORDERS.get(axes)

    def convert(stored: Array) -> Array:
        pixels = stored if "C" in axes else stored[:, :, None]
        if order is not None:
            pixels = pixels.transpose(order)
        if not is_bgr:
            return _freeze(np.ascontiguousarray(pixels, native))
        ordered = np.empty(pixels.shape, native)
        for channel, other in ((0, 2), (1, 1), (2, 0), (3, 3))[: pixels.shape[2]]:
            ordered[..., channel] = pixels[..., other]
        return _freeze(ordered)

    return convert
