"""Values of single rows of Arrow columns, as pyarrow's own arrays give them; blobs and numbers are not copied.

::

    ChunkedArray ──> chunk 0, chunk 1, ...        a row is found by the first rows of the chunks
                       └ array[row]; for blobs a view of Arrow's buffers (often pages of a mapped file)
    column.get(row) ──> view | int | float | str | array | JSON value | None

The stores of Arrow, Parquet, Lance and Hugging Face data read their records with it. Buffers may come from a hostile
file, and pyarrow's accessors trust them: chunks are validated in full when the column is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
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

_OFFSET_NBYTES: Final = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}


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


def descend(array: ArrowValue, path: Sequence[str]) -> ArrowValue:
    """The child of a struct array at ``path``; a row is null if it is null in an array on the way."""
    array = storage_of(array)
    for name in path:
        place = array.type.get_field_index(name)
        if place < 0:
            raise ValueError(f"a column of type {array.type!s:.200} must have one field {name!r}")
        array = storage_of(array.flatten()[place])
    return array


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
        If the buffers of a chunk do not hold what its length and its offsets say.
    """

    def __init__(self, chunks: Sequence[ArrowValue], path: Sequence[str] = ()) -> None:
        self._starts = [0]
        self._chunks: list[Any] = []
        for chunk in chunks:
            if len(chunk):
                chunk.validate()
                self._chunks.append(self._make_chunk(chunk, path))
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

    def _make_chunk(self, chunk: ArrowValue, path: Sequence[str]) -> Any:
        """What :meth:`_get` needs of a chunk."""
        array = descend(chunk, path)
        array.validate(full=True)
        return array

    @abstractmethod
    def _get(self, chunk: Any, row: int) -> Any:
        """The value of a row of a chunk."""


class BinaryColumn(ArrowColumn):
    """Bytes or text of any length: a read-only view of each value.

    pyarrow's scalars copy their bytes: 100 kB take 4 to 11 us. Values between offsets are therefore views of the
    buffer of the column, and their bounds are checked when they are read. Other layouts are copied.
    """

    def _make_chunk(self, chunk: ArrowValue, path: Sequence[str]) -> Any:
        array = descend(chunk, path)
        kind = str(array.type)
        nbytes = _OFFSET_NBYTES.get(kind)
        if nbytes is None:
            if "binary" not in kind and "string" not in kind:
                raise ValueError(f"a column of type {kind} holds no bytes")
            array.validate(full=True)
            return None, array, kind.startswith("dictionary")
        _, offsets, content = (memoryview(b"" if each is None else each).toreadonly() for each in array.buffers())
        whole = offsets.cast("B")[: len(offsets) // nbytes * nbytes].cast("q" if nbytes == 8 else "i")
        return whole[array.offset :], content.cast("B"), _find_nulls(array)

    def _get(self, chunk: Any, row: int) -> memoryview | None:
        offsets, content, nulls = chunk
        if offsets is None:
            scalar, has_dictionary = content[row], nulls
            if has_dictionary and scalar.is_valid:
                scalar = scalar.value
            return memoryview(scalar.as_buffer()).toreadonly().cast("B") if scalar.is_valid else None
        if nulls is not None and nulls[row]:
            return None
        begin, end = offsets[row], offsets[row + 1]
        if not 0 <= begin <= end <= len(content):
            raise ValueError(f"its bytes are from {begin} to {end}, and the column has {len(content)}")
        view: memoryview = content[begin:end]
        return view


class TextColumn(ArrowColumn):
    """Text: a str for each value. Values of other types are written as pyarrow converts them to Python."""

    def _get(self, chunk: Any, row: int) -> str | None:
        value = chunk[row].as_py()
        if value is None:
            return None
        return str(value, "utf-8") if isinstance(value, bytes) else str(value)


class NumberColumn(ArrowColumn):
    """Integers, floats and booleans."""

    def _make_chunk(self, chunk: ArrowValue, path: Sequence[str]) -> tuple[Array, Array | None]:
        array = super()._make_chunk(chunk, path)
        if str(array.type).startswith("dictionary"):
            array = array.dictionary_decode()
        nulls = _find_nulls(array)
        if str(array.type) == "null":
            return np.zeros(len(array), np.int64), nulls
        dtype = make_dtype(array.type)
        if dtype is None:
            raise ValueError(f"a column of type {array.type} holds no numbers")
        if nulls is not None:
            array = array.fill_null(dtype.type(0))
        numbers: Array = array.to_numpy(zero_copy_only=False)
        numbers.flags.writeable = False
        return numbers, nulls

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
                part[nulls] = missing
            parts.append(part)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype)
        whole = whole[:]
        whole.flags.writeable = False
        return whole


class ListColumn(ArrowColumn):
    """Lists of numbers, nested to any depth: an array for each row, a view of the column's values. A null is NaN.

    ``path`` may lead through lists of structs: ``objects.bbox`` of ``list<struct<bbox: list<float>>>``.
    """

    def _make_chunk(self, chunk: ArrowValue, path: Sequence[str]) -> Any:
        array, names = storage_of(chunk), list(path)
        while names and str(array.type).startswith("struct"):
            array = descend(array, [names.pop(0)])
        array.validate(full=True)
        steps: list[str | int] = []  # from a list to its numbers: the child of a struct; how long lists are, -1: any
        values = storage_of(array.values)
        while (dtype := make_dtype(values.type)) is None:
            kind = str(values.type)
            if kind.startswith("struct"):
                name = names.pop(0) if names else ""
                steps.append(name)
                values = descend(values, [name])
            elif kind.startswith(("fixed_size_list", "list<", "large_list<")):
                steps.append(values.type.list_size if kind.startswith("fixed") else -1)
                values = storage_of(values.values)
            else:
                raise ValueError(f"a column with values of type {kind} holds no lists of numbers")
        return array, steps, dtype

    def _get(self, chunk: Any, row: int) -> Array | None:
        array, steps, dtype = chunk
        values = array[row].values
        if values is None:
            return None
        shape = [len(values)]
        for step in steps:
            values = storage_of(values)
            if isinstance(step, str):
                values = descend(values, [step])
            else:
                begin, length = _measure(values) if step < 0 else (values.offset * step, step)
                values = values.values.slice(begin, len(values) * length)
                shape.append(length)
        values = storage_of(values)
        if values.null_count and dtype.kind != "f":
            raise ValueError(f"its list has nulls, and numbers of type {dtype} cannot be missing")
        numbers: Array = values.to_numpy(zero_copy_only=False)
        numbers.flags.writeable = False
        return numbers.reshape(shape)


class JsonColumn(ArrowColumn):
    """Any other value, as pyarrow converts it to Python: lists, mappings, numbers, text, None."""

    def _get(self, chunk: Any, row: int) -> Any:
        return _to_json(chunk[row].as_py())


def _find_nulls(array: ArrowValue) -> Array | None:
    """For each row whether it is null; None where no row is."""
    nulls: Array | None = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return nulls


def _measure(lists: ArrowValue) -> tuple[int, int]:
    """Where the values of some lists begin, and how many each list has."""
    offsets = lists.offsets.to_numpy()
    lengths = offsets[1:] - offsets[:-1]
    if (lengths != lengths[:1]).any():
        raise ValueError(f"its lists must have one length, got {lengths.tolist()!s:.80}")
    return int(offsets[0]), int(lengths[0]) if len(lengths) else 0


def _to_json(value: Any) -> Any:
    """A value that JSON can hold; dates and other objects become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return str(value)
