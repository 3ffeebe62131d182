"""Values of Arrow columns, read from their buffers: the same as pyarrow converts them to Python."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.arrow.columns import BinaryColumn, JsonColumn, ListColumn, NumberColumn, TextColumn

pa = pytest.importorskip("pyarrow")

BINARY = ["binary", "large_binary", "binary_view", "dictionary"]
NUMBERS = ["int8", "uint16", "int64", "halffloat", "float", "double", "bool_", "dictionary"]


def make_array(values: list[Any], name: str, base: Any) -> Any:
    """An array of a type by its name; ``dictionary``: one of the type ``base``."""
    if name == "dictionary":
        return pa.array(values, base).dictionary_encode()
    return pa.array(
        values, getattr(pa, {"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name))()
    )


def read_all(column: Any) -> list[Any]:
    """The values of all rows."""
    return [column.get(row) for row in range(len(column))]


def cut(array: Any, cuts: list[int], start: int) -> list[Any]:
    """Chunks of an array without its first values: slices with offsets, some of them empty."""
    array = array.slice(min(start, len(array)))
    ends = sorted({0, len(array), *(each % (len(array) + 1) for each in cuts)})
    return [array.slice(a, b - a) for a, b in itertools.pairwise(ends)]


@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=40),
    st.sampled_from(BINARY),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(0, 5),
    st.booleans(),
)
def test_bytes_are_those_of_pyarrow(
    values: list[bytes | None], name: str, cuts: list[int], start: int, nested: bool
) -> None:
    """Each value is the bytes that went in, for each layout, in slices, chunks and structs, with and without nulls."""
    array = make_array(values, name, pa.binary())
    if nested:
        array = pa.StructArray.from_arrays([array], ["bytes"])
    chunks = cut(array, cuts, start)

    column = BinaryColumn(chunks, ("bytes",) if nested else ())

    expected = values[start:]
    assert len(column) == len(expected)
    got = [column.get(row) for row in range(len(expected))]
    assert [None if value is None else bytes(value) for value in got] == expected
    assert all(value is None or value.readonly for value in got)
    assert [None if value is None else bytes(value) for value in read_all(column)] == expected


def test_bytes_are_not_copied() -> None:
    """A value is a view of the buffer of the column."""
    array = pa.array([b"abc", b"defg"])

    view: Any = BinaryColumn([array]).get(1)

    begin = array.buffers()[2].address
    assert np.frombuffer(view, np.uint8).__array_interface__["data"][0] == begin + 3


def test_a_null_struct_has_null_children() -> None:
    """A row whose struct is null has no value, whatever its child holds."""
    child = pa.array([b"a", b"b", b"c"])
    array = pa.StructArray.from_arrays([child], ["bytes"], mask=pa.array([False, True, False]))

    column = BinaryColumn([array.slice(1)], ("bytes",))

    assert column.get(0) is None
    assert bytes(column.get(1) or b"") == b"c"


@given(st.lists(st.binary(min_size=3, max_size=3) | st.none(), max_size=20), st.integers(0, 5))
def test_values_of_fixed_size_are_those_of_pyarrow(values: list[bytes | None], start: int) -> None:
    """Binary values of one size are found by their number."""
    column = BinaryColumn([pa.array(values, pa.binary(3)).slice(min(start, len(values)))])

    assert [None if value is None else bytes(value) for value in read_all(column)] == values[start:]


@given(
    st.lists(st.none() | st.integers(0, 1), max_size=40),
    st.sampled_from(NUMBERS),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(0, 9),
)
def test_numbers_are_those_of_pyarrow(values: list[int | None], name: str, cuts: list[int], start: int) -> None:
    """Each number is the one that went in; as one array, nulls are the number for missing values."""
    given_values = [None if value is None else bool(value) for value in values] if name == "bool_" else values
    chunks = cut(make_array(given_values, name, pa.int64()), cuts, start)

    column = NumberColumn(chunks)

    expected = values[start:]
    assert [column.get(row) for row in range(len(expected))] == expected
    whole = column.to_numpy(is_float=False)
    assert whole.tolist() == [-1 if value is None else value for value in expected]
    assert not whole.flags.writeable


def test_a_column_without_nulls_is_not_copied() -> None:
    """A column of one chunk is a view."""
    array = pa.array([1, 2, 3], pa.int64())

    whole = NumberColumn([array]).to_numpy(is_float=False)

    assert whole.__array_interface__["data"][0] == array.buffers()[1].address


@given(
    st.lists(st.none() | st.text(max_size=9), max_size=30), st.sampled_from(["string", "large_string", "string_view"])
)
def test_text_is_that_of_pyarrow(values: list[str | None], name: str) -> None:
    """Text in each layout is str."""
    assert read_all(TextColumn([pa.array(values, getattr(pa, name)())])) == values


@given(st.lists(st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=4), max_size=20), st.integers(0, 3))
def test_lists_are_arrays(values: list[list[float] | None], start: int) -> None:
    """A list of numbers is an array, a view of the values of the column."""
    column = ListColumn([pa.array(values, pa.list_(pa.float32())).slice(min(start, len(values)))])

    got = read_all(column)

    assert [None if value is None else value.tolist() for value in got] == values[start:]
    assert all(value is None or value.dtype == np.float32 for value in got)


@given(st.lists(st.lists(st.tuples(st.floats(width=32, allow_nan=False), st.integers(0, 9)), max_size=3), max_size=9))
def test_children_of_lists_of_structs_are_arrays(rows: list[list[tuple[float, int]]]) -> None:
    """``objects.bbox`` is read whether objects is a list of structs or a struct of lists."""
    box = pa.list_(pa.float32(), 2)
    of_structs = pa.array(
        [[{"bbox": [x, x], "category": c} for x, c in row] for row in rows],
        pa.list_(pa.struct([("bbox", box), ("category", pa.int64())])),
    )
    of_lists = pa.array(
        [{"bbox": [[x, x] for x, _ in row], "category": [c for _, c in row]} for row in rows],
        pa.struct([("bbox", pa.list_(pa.list_(pa.float32()))), ("category", pa.list_(pa.int64()))]),
    )

    for array in (of_structs, of_lists):
        boxes, classes = ListColumn([array], ["bbox"]), ListColumn([array], ["category"])
        for row, expected in enumerate(rows):
            got: Any = boxes.get(row)
            assert got.ravel().tolist() == [x for x, _ in expected for _ in range(2)]
            np.testing.assert_array_equal(classes.get(row), [c for _, c in expected])


def test_lists_of_different_lengths_are_refused() -> None:
    """An array has one shape: lists that differ in length are an error, not a wrong array."""
    column = ListColumn([pa.array([[[1.0], [2.0, 3.0]]])])

    with pytest.raises(ValueError, match="one length"):
        column.get(0)


def test_nulls_in_lists_are_not_numbers() -> None:
    """A null in a list of floats is NaN; in a list of integers it is an error, and no number that was never there."""
    floats = ListColumn([pa.array([[1.0, None], [2.0]], pa.list_(pa.float32()))])
    whole = ListColumn([pa.array([[1, None], [2]], pa.list_(pa.int32()))])

    np.testing.assert_array_equal(floats.get(0), np.array([1, np.nan], np.float32))
    np.testing.assert_array_equal(floats.get(1), [2.0])
    np.testing.assert_array_equal(whole.get(1), [2])
    with pytest.raises(ValueError, match="cannot be missing"):
        whole.get(0)


def test_other_values_are_json() -> None:
    """Structs, lists of text and dates are what JSON can hold."""
    array = pa.array([{"when": dt.date(2024, 5, 6), "tags": ["a", None], "more": {"n": 1}}, None])

    assert read_all(JsonColumn([array])) == [{"when": "2024-05-06", "tags": ["a", None], "more": {"n": 1}}, None]


_NS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, -(10**9)], _NS, ["1970-01-01 00:00:00.000000001", None, "1969-12-31 23:59:59"]),
        (
            [1_000, -1],
            pa.timestamp("ns", "+01:00"),
            ["1970-01-01 01:00:00.000001+01:00", "1970-01-01 00:59:59.999999999+01:00"],
        ),
        ([86_399_000_000_001], pa.time64("ns"), ["23:59:59.000000001"]),
        ([90_061_000_000_000, -1], pa.duration("ns"), ["1 day, 1:01:01", "-1 day, 23:59:59.999999999"]),
        ([[1, None], None, []], pa.list_(_NS), [["1970-01-01 00:00:00.000000001", None], None, []]),
        (
            [{"at": 1, "n": 2}, None],
            pa.struct([("at", _NS), ("n", pa.int8())]),
            [{"at": "1970-01-01 00:00:00.000000001", "n": 2}, None],
        ),
        ([[("a", 0)], None], pa.map_(pa.string(), _NS), [[["a", "1970-01-01 00:00:00"]], None]),
    ],
    ids=str,
)
def test_nanoseconds_are_text_with_or_without_pandas(values: list[Any], kind: Any, expected: list[Any]) -> None:
    """Python's times have no nanoseconds: the text has them, wherever they are."""
    column = JsonColumn([pa.array(values, kind)])

    assert read_all(column) == expected


@pytest.mark.parametrize("kind", [pa.bool_(), pa.uint8(), pa.int64(), pa.float16(), pa.float32()])
def test_numbers_of_slices_with_nulls_are_read_without_pyarrows_conversion(kind: Any) -> None:
    """Views begin where a slice begins, and a null is none of the numbers that lie there."""
    array = pa.array([1, 0, None, 1, 1, None, 0, 1, 1, None, 0]).cast(pa.float32()).cast(kind)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 4, 6], pa.int32()), array.slice(3).drop_null())
    expected = [[0, 1], [1, 0]]

    assert read_all(NumberColumn([array.slice(4, 3), array.slice(7, 3)])) == [1, None, 0, 1, 1, None]
    assert [each.tolist() for each in read_all(ListColumn([lists.slice(2, 2)]))] == expected


@pytest.mark.parametrize("offsets", [[0, 99, 3], [0, -1, 6], [0, 5, 2]])
def test_offsets_outside_are_refused(offsets: list[int]) -> None:
    """Offsets of a hostile file are compared with the bytes that are there; pyarrow compares the last one only."""
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32).tobytes()), pa.py_buffer(b"abcdef")]
    column = BinaryColumn([pa.Array.from_buffers(pa.binary(), 2, buffers)])

    with pytest.raises(ValueError, match="its bytes are from"):
        read_all(column)
