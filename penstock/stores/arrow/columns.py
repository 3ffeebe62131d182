"""Values of single rows of Arrow columns, read from the columns' own buffers: nothing is copied for blobs and numbers.

::

    ChunkedArray ──> chunk 0, chunk 1, ...        a row is found by the first rows of the chunks
                       └ offsets, validity, bytes     memoryviews of Arrow's buffers (often pages of a mapped file)
    column.get(row) ──> view | int | float | str | array | JSON value | None

The stores of Arrow, Parquet, Lance and Hugging Face data read their records with it. Buffers may come from a hostile
file: chunks are validated before Arrow's own code touches them, and each range of bytes is checked when it is read.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from penstock.sample import Array

__all__ = [
    "ArrowColumn",
    "BinaryColumn",
    "JsonColumn",
    "ListColumn",
    "NumberColumn",
    "TextColumn",
    "descend",
    "is_number",
    "make_dtype",
    "storage_of",
]

ArrowValue = Any
"""A pyarrow object; pyarrow ships no types."""

_DTYPES: Final = {
    "bool": np.dtype(np.bool_),
    "halffloat": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}


def make_dtype(arrow_type: ArrowValue) -> np.dtype[Any] | None:
    """The NumPy dtype of an Arrow type of numbers; None for other types."""
    return _DTYPES.get(str(arrow_type))


def is_number(arrow_type: ArrowValue) -> bool:
    """Whether values of an Arrow type are numbers or booleans."""
    return str(arrow_type) in _DTYPES


def storage_of(array: ArrowValue) -> ArrowValue:
    """The array below an extension type, such as those that ``datasets`` registers."""
    while hasattr(array, "storage"):
        array = array.storage
    return array


def descend(array: ArrowValue, path: Sequence[str]) -> tuple[ArrowValue, list[ArrowValue]]:
    """The child of a struct array at ``path``, and the arrays on the way, whose validity counts for it too."""
    array = storage_of(array)
    parents = []
    for name in path:
        parents.append(array)
        array = storage_of(array.field(name))
    return array, parents


class ArrowColumn(ABC):
    """One column, or one child of a struct column.

    Parameters
    ----------
    chunks : sequence of pyarrow.Array
        The chunks of the column.
    path : sequence of str
        Names of children, from the column down.

    Raises
    ------
    ValueError
        If the buffers of a chunk do not hold what its length says.
    """

    validates_fully: bool = False
    """Whether every value is checked when the column is made, since pyarrow's own code reads it."""

    def __init__(self, chunks: Sequence[ArrowValue], path: Sequence[str] = ()) -> None:
        self._path = tuple(path)
        self._starts = [0]
        self._chunks: list[Any] = []
        for chunk in chunks:
            if len(chunk):
                chunk.validate(full=self.validates_fully)
                self._chunks.append(self._make_chunk(chunk))
                self._starts.append(self._starts[-1] + len(chunk))
        self._is_single = len(self._chunks) == 1

    def __len__(self) -> int:
        return self._starts[-1]

    def get(self, row: int) -> Any:
        """The value of a row, which is in the column; None if it is null."""
        if self._is_single:
            return self._get(self._chunks[0], row)
        number = bisect_right(self._starts, row) - 1
        return self._get(self._chunks[number], row - self._starts[number])

    def get_all(self) -> list[Any]:
        """The values of all rows."""
        return [
            self._get(chunk, row)
            for chunk, begin, end in zip(self._chunks, self._starts, self._starts[1:], strict=False)
            for row in range(end - begin)
        ]

    def _make_chunk(self, chunk: ArrowValue) -> Any:
        array, parents = descend(chunk, self._path)
        return self._prepare(array, _find_nulls([*parents, array]))

    @abstractmethod
    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        """What :meth:`_get` needs of a chunk."""

    @abstractmethod
    def _get(self, chunk: Any, row: int) -> Any:
        """The value of a row of a chunk."""


class BinaryColumn(ArrowColumn):
    """Bytes or text of any length: a read-only view of each value."""

    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        kind = str(array.type)
        if kind.startswith("dictionary"):
            values = self._prepare(storage_of(array.dictionary), _find_nulls([array.dictionary]))
            return _read_from_dictionary, (_numbers_of(array.indices, None), values, self._get), nulls
        buffers: list[Any] = [None if buffer is None else _view_bytes(buffer) for buffer in array.buffers()]
        if kind in {"binary_view", "string_view"}:
            views = buffers[1] if buffers[1] is not None else memoryview(b"")
            return _read_view, (views, array.offset, [buffer or memoryview(b"") for buffer in buffers[2:]]), nulls
        if kind.startswith("fixed_size_binary"):
            return _read_fixed, (buffers[1], array.offset, array.type.byte_width), nulls
        if kind not in {"binary", "string", "large_binary", "large_string"}:
            raise ValueError(f"a column of type {kind} holds no bytes")
        nbytes = 8 if kind.startswith("large") else 4
        offsets = buffers[1] if buffers[1] is not None else memoryview(b"")
        whole = offsets[: len(offsets) // nbytes * nbytes].cast("q" if nbytes == 8 else "i")
        content = buffers[2] if buffers[2] is not None else memoryview(b"")
        return _read_between, (whole[array.offset :], content), nulls

    def _get(self, chunk: Any, row: int) -> memoryview | None:
        read, content, nulls = chunk
        if nulls is not None and nulls[row]:
            return None
        view: memoryview | None = read(content, row)
        return view


class TextColumn(ArrowColumn):
    """Text: a str for each value. Values of other types are written as pyarrow converts them to Python."""

    validates_fully = True

    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        if "string" in str(array.type) or "binary" in str(array.type):
            return None, BinaryColumn([array]), nulls
        return array, None, nulls

    def _get(self, chunk: Any, row: int) -> str | None:
        array, binary, nulls = chunk
        if nulls is not None and nulls[row]:
            return None
        if binary is None:
            value = array[row].as_py()
            return None if value is None else str(value)
        view = binary.get(row)
        return None if view is None else str(view, "utf-8")


class NumberColumn(ArrowColumn):
    """Integers, floats and booleans."""

    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        kind = str(array.type)
        if kind.startswith("dictionary"):
            values = _numbers_of(storage_of(array.dictionary), None)
            if not len(values) and nulls is not None and nulls.all():
                return np.zeros(len(array), values.dtype), nulls
            return values[_numbers_of(array.indices, nulls)], nulls
        return _numbers_of(array, nulls), nulls

    def _get(self, chunk: Any, row: int) -> int | float | bool | None:
        numbers, nulls = chunk
        if nulls is not None and nulls[row]:
            return None
        number: int | float | bool = numbers.item(row)
        return number

    def to_numpy(self, dtype: np.dtype[Any], missing: float) -> Array:
        """All values in one array: a view where there is one chunk of this dtype without nulls."""
        parts = []
        for numbers, nulls in self._chunks:
            part = numbers.astype(dtype, copy=nulls is not None)
            if nulls is not None:
                part[nulls[: len(part)]] = missing
            parts.append(part)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype)
        whole = whole[:]
        whole.flags.writeable = False
        return whole


class ListColumn(ArrowColumn):
    """Lists of numbers, nested to any depth: an array for each row, a view of the column's values. A null is NaN.

    ``path`` may lead through lists of structs: ``objects.bbox`` of ``list<struct<bbox: list<float>>>``.
    """

    def _make_chunk(self, chunk: ArrowValue) -> Any:
        array = storage_of(chunk)
        outer = [array]
        levels: list[Callable[[int, int], tuple[int, int, int]]] = []
        names = list(self._path)
        while True:
            kind = str(array.type)
            if kind.startswith("struct"):
                if not names:
                    raise ValueError(f"a column of type {kind} holds no lists of numbers")
                array = storage_of(array.field(names.pop(0)))
                if not levels:
                    outer.append(array)
            elif kind.startswith("fixed_size_list"):
                size = array.type.list_size
                levels.append(_make_fixed_level(size))
                array = storage_of(array.values.slice(array.offset * size, len(array) * size))
            elif kind.startswith(("list<", "large_list<")):
                levels.append(_make_level(_numbers_of(array.offsets, None)))
                array = storage_of(array.values)
            else:
                return levels, _numbers_of(array, None), _find_nulls([array]), _find_nulls(outer)

    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        raise NotImplementedError  # _make_chunk does it

    def _get(self, chunk: Any, row: int) -> Array | None:
        levels, numbers, missing, nulls = chunk
        if nulls is not None and nulls[row]:
            return None
        begin, end = row, row + 1
        shape = []
        for level in levels:
            begin, end, length = level(begin, end)
            shape.append(length)
        if not 0 <= begin <= end <= len(numbers):
            raise ValueError(f"its list is from number {begin} to {end}, and the column has {len(numbers)}")
        values: Array = numbers[begin:end]
        if missing is not None and missing[begin:end].any():
            if values.dtype.kind != "f":
                raise ValueError(f"its list has nulls, and numbers of type {values.dtype} cannot be missing")
            values = np.where(missing[begin:end], np.array(np.nan, values.dtype), values)
        return values.reshape(shape)


class JsonColumn(ArrowColumn):
    """Any other value, as pyarrow converts it to Python: lists, mappings, numbers, text, None."""

    validates_fully = True

    def _prepare(self, array: ArrowValue, nulls: Array | None) -> Any:
        return array, nulls

    def _get(self, chunk: Any, row: int) -> Any:
        array, nulls = chunk
        return None if nulls is not None and nulls[row] else _to_json(array[row].as_py())


def _find_nulls(arrays: Sequence[ArrowValue]) -> Array | None:
    """For each row whether it is null in one of some arrays of one length; None where no row is."""
    nulls: Array | None = None
    for array in arrays:
        if not array.null_count:
            continue
        if str(array.type) == "null":
            return np.ones(len(array), np.bool_)
        buffer = array.buffers()[0]
        begin, end = array.offset, array.offset + len(array)
        packed = np.frombuffer(buffer, np.uint8)[begin // 8 : (end + 7) // 8]
        valid = np.unpackbits(packed, bitorder="little")[begin % 8 :][: len(array)]
        nulls = valid == 0 if nulls is None else nulls | (valid == 0)
    return nulls


def _numbers_of(array: ArrowValue, nulls: Array | None) -> Array:
    """The numbers of an array, without copying except for booleans; what stands in null rows is undefined."""
    del nulls
    kind = str(array.type)
    if kind == "null":
        return np.zeros(len(array), np.int64)
    dtype = _DTYPES.get(kind)
    if dtype is None:
        raise ValueError(f"a column of type {kind} holds no numbers")
    buffer = array.buffers()[1]
    begin, end = array.offset, array.offset + len(array)
    content = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(0, np.uint8)
    if dtype == np.bool_:
        packed = content[begin // 8 : (end + 7) // 8]
        numbers: Array = np.unpackbits(packed, bitorder="little")[begin % 8 :][: len(array)].view(np.bool_)
    else:
        numbers = content[begin * dtype.itemsize : end * dtype.itemsize].view(dtype)
    if len(numbers) != len(array):
        raise ValueError(f"a column has {len(array)} rows, and the bytes of {len(numbers)}")
    numbers.flags.writeable = False
    return numbers


def _view_bytes(buffer: ArrowValue) -> memoryview:
    """A read-only view of a buffer: Arrow's own are writable where a table is in memory, and of signed bytes."""
    return memoryview(buffer).toreadonly().cast("B")


def _read_between(content: tuple[Any, memoryview], row: int) -> memoryview:
    offsets, values = content
    begin, end = offsets[row], offsets[row + 1]
    if not 0 <= begin <= end <= len(values):
        raise ValueError(f"its bytes are from {begin} to {end}, and the column has {len(values)}")
    return values[begin:end]


def _read_fixed(content: tuple[memoryview, int, int], row: int) -> memoryview:
    values, offset, width = content
    begin = (offset + row) * width
    if begin + width > len(values):
        raise ValueError(f"its bytes are from {begin} to {begin + width}, and the column has {len(values)}")
    return values[begin : begin + width]


def _read_view(content: tuple[memoryview, int, Sequence[memoryview]], row: int) -> memoryview:
    views, offset, buffers = content
    at = 16 * (offset + row)
    if at + 16 > len(views):
        raise ValueError(f"its view is at {at}, and the column has {len(views)} bytes of views")
    nbytes, _, number, begin = struct.unpack_from("<iiii", views, at)
    if 0 <= nbytes <= 12:
        return views[at + 4 : at + 4 + nbytes]
    if nbytes < 0 or not 0 <= number < len(buffers) or begin < 0 or begin + nbytes > len(buffers[number]):
        raise ValueError(f"its bytes are {nbytes} from {begin} in buffer {number}, which is outside the column")
    view: memoryview = buffers[number][begin : begin + nbytes]
    return view


def _read_from_dictionary(content: tuple[Any, Any, Callable[[Any, int], Any]], row: int) -> Any:
    indices, values, get = content
    index = indices.item(row)
    if index < 0:
        raise ValueError(f"its number in the dictionary is {index}")
    return get(values, index)  # which checks that the dictionary has it


def _make_level(offsets: Array) -> Callable[[int, int], tuple[int, int, int]]:
    """Where the children of rows begin and end, and how many each row has, from the offsets of a list array."""

    def level(begin: int, end: int) -> tuple[int, int, int]:
        ends = offsets[begin : end + 1]
        if not 0 <= begin <= end or len(ends) != end - begin + 1:
            raise ValueError(f"its lists are from {begin} to {end}, and the column has {len(offsets) - 1}")
        lengths = ends[1:] - ends[:-1]
        length = int(lengths[0]) if len(lengths) else 0
        if length < 0 or (len(lengths) > 1 and (lengths != length).any()):
            raise ValueError(f"its lists must have one length, got {lengths.tolist()!s:.80}")
        return int(ends[0]), int(ends[-1]), length

    return level


def _make_fixed_level(size: int) -> Callable[[int, int], tuple[int, int, int]]:
    return lambda begin, end: (begin * size, end * size, size)


def _to_json(value: Any) -> Any:
    """A value that JSON can hold; dates and other objects become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return str(value)
