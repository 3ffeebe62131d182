"""Values of single rows of Arrow columns, as pyarrow's own arrays give them; blobs and numbers are not copied.

::

    chunks ──descend──> one array of chunks ──> array[row]; for blobs a view of Arrow's buffers (often a mapped file)
    column.get(row) ──> view | int | float | str | array | JSON value | None

The stores of Arrow, Parquet, Lance and Hugging Face data read their records with it. Buffers may come from a hostile
file, and pyarrow's accessors trust them: chunks are validated in full when the column is made.

pyarrow imports pandas, where it is installed, to convert an array to NumPy, to make a scalar, and to give a time in
nanoseconds: that takes seconds in each worker. Numbers are therefore views of Arrow's buffers.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import mmap
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock import _native
from penstock.sample import Array, DType
from penstock.stores.arrow.features import children_of, is_binary, is_list, is_text, make_dtype, storage_type_of
from penstock.stores.fields.exact_casts import UnfitValueError, cast_exactly

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BinaryColumn",
    "JsonColumn",
    "ListColumn",
    "NumberColumn",
    "TextColumn",
    "choose_conversion",
    "view_numbers",
]

_READ_AHEAD_NBYTES: Final = 1 << 28
"""Bytes that are read ahead at once."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Column(ABC):
    """One column, or one child of a struct column.

    ``chunks``: the chunks of the column. ``path``: names of children, from the column down. Raises ValueError if the
    buffers of a chunk do not hold what its length and its offsets say.
    """

    def __init__(self, chunks: Sequence[pa.Array], path: Sequence[str] = ()) -> None:
        import pyarrow as pa

        arrays, self._names = _descend_all(chunks, path)  # names of children that are in lists
        self._values = pa.chunked_array(arrays, arrays[0].type if arrays else pa.null())
        self._values.validate(full=True)

    @functools.cached_property
    def _to_python(self) -> Callable[[pa.Scalar], object]:
        return choose_conversion(self._values.type)

    def __len__(self) -> int:
        return len(self._values)

    @abstractmethod
    def get(self, row: int) -> object:
        """Return the value of a row, which is in the column; None if it is null."""


class BinaryColumn:
    """Bytes or text of any length: a read-only view of each value. The parameters are those of the other columns.

    pyarrow's scalars copy their bytes: 100 kB take 4 to 11 us. Values between offsets are therefore views of the
    buffer of the column, and their bounds are checked when they are read. Other layouts are copied.
    """

    def __init__(self, chunks: Sequence[pa.Array], path: Sequence[str] = ()) -> None:
        arrays, _ = _descend_all(chunks, path)
        self._chunks = [_open_bytes(array) for array in arrays]
        self._addresses = [
            each.buffers()[2].address if isinstance(chunk, tuple) and len(chunk[1]) else 0
            for each, chunk in zip(arrays, self._chunks, strict=True)
        ]
        self._starts = [0, *itertools.accumulate(map(len, arrays))]

    def __len__(self) -> int:
        return self._starts[-1]

    def get(self, row: int) -> memoryview | None:
        """Return the bytes of a row, which is in the column; None if it is null."""
        number = bisect_right(self._starts, row) - 1
        chunk, row = self._chunks[number], row - self._starts[number]
        if not isinstance(chunk, tuple):
            scalar = chunk[row]
            if not scalar.is_valid:
                return None
            scalar = getattr(scalar, "value", scalar)  # of a dictionary
            return memoryview(scalar.as_buffer()).toreadonly().cast("B")
        offsets, content, nulls = chunk
        if nulls is not None and nulls[row]:
            return None
        begin, end = offsets[row], offsets[row + 1]
        if not 0 <= begin <= end <= len(content):
            raise ValueError(f"its bytes are from {begin} to {end}, and the column has {len(content)}")
        view: memoryview = content[begin:end]
        return view

    def announce(self, rows: Sequence[int]) -> int:
        """Have the system read the bytes of some rows, if they are in a mapped file; how many it was asked for.

        It is only a hint: rows that cannot be read are left out.
        """
        addresses, sizes = list[int](), list[int]()
        for row in rows:
            number = bisect_right(self._starts, row) - 1
            chunk, at = self._chunks[number], row - self._starts[number]
            if isinstance(chunk, tuple) and 0 <= chunk[0][at] < chunk[0][at + 1] <= len(chunk[1]):
                addresses.append(self._addresses[number] + chunk[0][at])
                sizes.append(chunk[0][at + 1] - chunk[0][at])
        return _read_ahead(addresses, sizes)


class TextColumn(_Column):
    """Text: a str for each value. Values of other types are written as pyarrow converts them to Python."""

    def get(self, row: int) -> str | None:
        """Return the text of a row; None if it is null."""
        value = self._to_python(self._values[row])
        if value is None:
            return None
        return str(value, "utf-8") if isinstance(value, bytes) else str(value)


class NumberColumn(_Column):
    """Integers and floats; booleans are 0 and 1."""

    def __init__(self, chunks: Sequence[pa.Array], path: Sequence[str] = ()) -> None:
        import pyarrow as pa

        super().__init__(chunks, path)
        values = self._values
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_null(values.type) or pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        dtype = make_dtype(values.type)
        if dtype is None:
            raise ValueError(f"a column of type {values.type} holds no numbers")
        parts = [view_numbers(chunk, dtype) for chunk in values.chunks]
        self._numbers = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])
        self._nulls: Array | None = None
        if values.null_count:
            self._nulls = np.concatenate([_find_nulls(chunk) for chunk in values.chunks])
            self._numbers = np.where(self._nulls, dtype.type(0), self._numbers)

    def get(self, row: int) -> int | float | None:
        """Return the number of a row; None if it is null."""
        if self._nulls is not None and self._nulls[row]:
            return None
        number: int | float = self._numbers.item(row)
        return number

    def to_numpy(self, *, is_float: bool) -> Array:
        """Return all values as 64-bit floats or integers, a null as NaN or -1: a view where they are stored so."""
        whole = cast_exactly(self._numbers, np.dtype(np.float64 if is_float else np.int64))[:]
        if self._nulls is not None:
            whole = np.where(self._nulls, np.nan if is_float else -1, whole)
        whole.flags.writeable = False
        return whole


class ListColumn(_Column):
    """Lists of numbers, nested to any depth: an array for each row, a view of the column's values. A null is NaN.

    ``path`` may lead through lists of structs: ``objects.bbox`` of ``list<struct<bbox: list<float>>>``.
    """

    def __init__(self, chunks: Sequence[pa.Array], path: Sequence[str] = ()) -> None:
        super().__init__(chunks, path)
        self._steps, self._dtype = list[str | int](), np.dtype(np.float64)  # of a column without rows
        if len(self):
            self._steps, self._dtype = _find_numbers(self._values.type, self._names)

    def get(self, row: int) -> Array | None:
        """Return the array of a row; None if it is null."""
        values = self._values[row].values
        if values is None:
            return None
        shape = [len(values)]
        for step in self._steps:
            values = _storage_of(values)
            if isinstance(step, str):
                values = values.flatten()[values.type.get_field_index(step)]
            else:
                begin, length = _measure(values) if step < 0 else (values.offset * step, step)
                values = values.values.slice(begin, len(values) * length)
                shape.append(length)
        values = _storage_of(values)
        if values.null_count and self._dtype.kind != "f":
            raise UnfitValueError(f"its list has nulls, and numbers of type {self._dtype} cannot be missing")
        numbers = view_numbers(values, self._dtype)
        if values.null_count:
            numbers = np.where(_find_nulls(values), self._dtype.type(np.nan), numbers)
        numbers.flags.writeable = False
        return numbers.reshape(shape)


class JsonColumn(_Column):
    """Other values, as pyarrow converts it to Python: lists, mappings, numbers, text, None."""

    def get(self, row: int) -> object:
        """Return the value of a row; None if it is null."""
        return _to_json(self._to_python(self._values[row]))


def view_numbers(array: pa.Array, dtype: DType) -> Array:
    """Return the numbers of a valid array of ``dtype``: a view, of booleans a copy.

    Where it has nulls, any number may be.
    """
    import pyarrow as pa

    content = (array.cast(pa.uint8()) if dtype.kind == "b" else array).buffers()[1]
    if content is None or not len(array):
        return np.zeros(len(array), dtype)
    begin = 0 if dtype.kind == "b" else array.offset
    return np.frombuffer(content, dtype, len(array), begin * dtype.itemsize)


def choose_conversion(arrow_type: pa.DataType) -> Callable[[pa.Scalar], object]:
    """Choose what converts values of a type to Python: as pyarrow, but times in nanoseconds become text.

    Python's times have no nanoseconds: those of pyarrow are pandas' where that is installed, and else errors.
    """
    children = [arrow_type.field(number).type for number in range(arrow_type.num_fields)]
    below = [*children, *(getattr(arrow_type, name, None) for name in ("storage_type", "value_type"))]
    has_nanoseconds = any(each is not None and choose_conversion(each) is _convert_nanoseconds for each in below)
    if has_nanoseconds or getattr(arrow_type, "unit", "") == "ns":
        return _convert_nanoseconds
    return _convert_simply


def _convert_simply(scalar: pa.Scalar) -> object:
    value: object = scalar.as_py()
    return value


def _convert_nanoseconds(scalar: pa.Scalar) -> object:
    """Return a value in which there may be times in nanoseconds."""
    from pyarrow import types

    kind = scalar.type
    if not scalar.is_valid or choose_conversion(kind) is _convert_simply:
        return _convert_simply(scalar)
    if types.is_struct(kind):
        return {name: _convert_nanoseconds(each) for name, each in scalar.items()}
    if types.is_map(kind):
        return [tuple(map(_convert_nanoseconds, pair.values())) for pair in scalar.values]
    if types.is_nested(kind):
        return list(map(_convert_nanoseconds, scalar.values))
    is_time = getattr(kind, "unit", "") == "ns"  # else the value of a dictionary, or below an extension type
    return _write_nanoseconds(scalar.value, kind) if is_time else _convert_nanoseconds(scalar.value)


def _write_nanoseconds(value: int, kind: pa.DataType) -> str:
    """Return a time in nanoseconds, as Python writes times in microseconds; with nine digits where it has more."""
    from pyarrow import types
    from pyarrow.lib import string_to_tzinfo

    seconds, fraction = divmod(value, 10**9)
    passed = dt.timedelta(seconds=seconds)
    digits = f".{fraction:09d}".removesuffix("000") if fraction else ""
    if not types.is_timestamp(kind):
        return f"{passed if types.is_duration(kind) else (_EPOCH + passed).time()}{digits}"
    moment = _EPOCH + passed
    text = str(moment.replace(tzinfo=None) if kind.tz is None else moment.astimezone(string_to_tzinfo(kind.tz)))
    return f"{text[:19]}{digits}{text[19:]}"


def _find_nulls(array: pa.Array) -> Array:
    """Find which values of an array are null."""
    return view_numbers(array.is_null(), np.dtype(np.bool_))


def _descend_all(chunks: Sequence[pa.Array], path: Sequence[str]) -> tuple[list[pa.Array], list[str]]:
    """Return the arrays at a path of those chunks that have rows; a row is null if it is null in an array on the way.

    The path ends at a list: the names that are left are those of children in the list.
    """
    arrays, names = [], list(path)
    for chunk in chunks:
        if len(chunk):
            chunk.validate()
            array, names = _storage_of(chunk), list(path)
            while names and not is_list(array.type):
                if names[0] not in children_of(array.type):
                    raise ValueError(f"a column of type {array.type!s:.200} must have one field {names[0]!r}")
                array = _storage_of(array.flatten()[array.type.get_field_index(names.pop(0))])
            arrays.append(array)
    return arrays, names


def _storage_of(array: pa.Array) -> pa.Array:
    """Return the array below an extension type, such as those that ``datasets`` registers."""
    while hasattr(array, "storage"):
        array = array.storage
    return array


def _open_bytes(array: pa.Array) -> pa.Array | tuple[memoryview, memoryview, Array | None]:
    """Return the offsets, the bytes and the nulls of an array of bytes or text; the array, if it has another layout."""
    from pyarrow import types

    kind = array.type
    is_long = types.is_large_binary(kind) or types.is_large_string(kind)
    if not (is_long or types.is_binary(kind) or types.is_string(kind)):
        if not (is_binary(kind) or is_text(getattr(kind, "value_type", kind))):
            raise ValueError(f"a column of type {kind} holds no bytes")
        array.validate(full=True)
        return array
    _, offsets, content = (memoryview(b"" if each is None else each).toreadonly() for each in array.buffers())
    nbytes = 8 if is_long else 4
    whole = offsets.cast("B")[: len(offsets) // nbytes * nbytes].cast("q" if is_long else "i")
    nulls = _find_nulls(array) if array.null_count else None
    return whole[array.offset :], content.cast("B"), nulls


def _read_ahead(addresses: Sequence[int], sizes: Sequence[int]) -> int:
    """Have the system read ranges of memory that is mapped; return the bytes it was asked for: 0 if they are there.

    The system is told addresses alone: what is between the ranges may be no memory, and is not read.
    """
    if not addresses:
        return 0
    import pyarrow as pa

    begins, lengths = np.array(addresses, np.int64), np.array(sizes, np.int64)
    first = int(begins.min()) // mmap.PAGESIZE * mmap.PAGESIZE
    around = pa.foreign_buffer(first, int((begins + lengths).max()) - first)
    return _native.read_ahead(around, begins - first, lengths, most_nbytes=_READ_AHEAD_NBYTES)


def _find_numbers(arrow_type: pa.DataType, names: list[str]) -> tuple[list[str | int], DType]:
    """The steps from lists to their numbers, and their dtype: a child of a struct, or how long lists are (-1: any)."""
    steps: list[str | int] = []
    kind = storage_type_of(getattr(arrow_type, "value_type", arrow_type))
    while (dtype := make_dtype(kind)) is None:
        children = children_of(kind)
        if is_list(kind):
            steps.append(getattr(kind, "list_size", -1))
            kind = storage_type_of(kind.value_type)
        elif names and names[0] in children:
            steps.append(names[0])
            kind = children[names.pop(0)]
        else:
            raise ValueError(f"a column with values of type {kind} holds no lists of numbers")
    return steps, dtype


def _measure(lists: pa.Array) -> tuple[int, int]:
    """Return where the values of some lists begin, and how many each list has."""
    offsets = view_numbers(lists.offsets, np.dtype(np.int32 if lists.offsets.type.bit_width == 32 else np.int64))
    lengths = offsets[1:] - offsets[:-1]
    if (lengths != lengths[:1]).any():
        raise UnfitValueError(f"its lists must have one length, got {lengths.tolist()!s:.80}")
    return int(offsets[0]), int(lengths[0]) if len(lengths) else 0


def _to_json(value: object) -> object:
    """Return a value that JSON can hold; dates and other objects become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return str(value)
