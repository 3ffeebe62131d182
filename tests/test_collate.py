"""default_collate and default_convert: torch's rules, NumPy's arrays."""

from __future__ import annotations

import pickle
import re
from collections import OrderedDict, UserDict, UserList
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.collate import CollateError, default_collate, default_convert
from penstock.errors import SampleError


class Point(NamedTuple):
    """A sample of two parts."""

    x: Any
    y: Any


@pytest.mark.parametrize(
    ("batch", "dtype", "expected"),
    [
        ([1, 2], np.int64, [1, 2]),
        ([True, False], np.bool_, [True, False]),
        ([1.5, 2], np.float64, [1.5, 2.0]),
        ([1, 2.5], np.float32, [1.0, 2.5]),
        ([True, 2], np.int64, [1, 2]),
        ([False, -1, 2.5], np.float32, [0.0, -1.0, 2.5]),
        ([2.5, True, 3], np.float64, [2.5, 1.0, 3.0]),
        ([1, 1j], np.complex64, [1, 1j]),
        ([1, -(2**63), 2**63 - 1], np.int64, [1, -(2**63), 2**63 - 1]),
        ([np.int8(1), 300], np.int64, [1, 300]),
        ([np.int64(1), np.float32(2)], np.float32, [1, 2]),
        ([np.uint8(1), np.int8(-2)], np.int16, [1, -2]),
        ([np.float32(1), np.array(2)], np.float32, [1, 2]),
        ([np.zeros(2, np.float32), np.ones(2, np.int64)], np.float32, [[0, 0], [1, 1]]),
        ([np.zeros(2), [1, 2]], np.float64, [[0, 0], [1, 2]]),
        ([np.float32(1), np.float32(2)], np.float32, [1, 2]),
        ([np.uint8(1), np.uint8(2)], np.uint8, [1, 2]),
        ([np.zeros(2, np.float16), np.ones(2, np.float16)], np.float16, [[0, 0], [1, 1]]),
        ([np.array(3), np.array(4)], np.int64, [3, 4]),
    ],
)
def test_numbers_become_arrays(batch: list[Any], dtype: Any, expected: list[Any]) -> None:
    """Python numbers become the widest of their kind, NumPy's keep their dtype; mixed ones have torch's."""
    out = default_collate(batch)

    assert out.dtype == dtype
    assert out.tolist() == expected


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["i2", "f4", "f8", "c8"])
def test_either_byte_order_is_stacked(order: str, kind: str) -> None:
    """Arrays of a foreign byte order have the batch of their numbers, and keep their dtype."""
    samples = [np.arange(i, i + 3).astype(order + kind) for i in range(2)]

    out = default_collate(samples)

    assert out.dtype == np.dtype(order + kind)
    assert out.tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("batch", [["a", "b"], [b"a", b"b"], [np.str_("a"), np.str_("b")]])
def test_strings_stay_a_list(batch: list[Any]) -> None:
    """Text and bytes are not stacked."""
    assert default_collate(batch) == batch


def test_a_batch_is_a_copy() -> None:
    """Changing a sample afterwards does not change the batch."""
    sample = np.zeros(3)
    out = default_collate([sample])
    sample[:] = 1

    assert out.tolist() == [[0, 0, 0]]


def test_structures_are_kept() -> None:
    """Tuples become lists, named tuples and mappings stay what they are, to any depth."""
    batch = [{"a": (1, "x"), "b": Point(2.0, [3])}, {"a": (4, "y"), "b": Point(5.0, [6])}]

    out = default_collate(batch)

    assert type(out) is dict
    assert type(out["a"]) is list
    assert out["a"][0].tolist() == [1, 4]
    assert out["a"][1] == ["x", "y"]
    assert type(out["b"]) is Point
    assert out["b"].x.tolist() == [2.0, 5.0]
    assert out["b"].y[0].tolist() == [3, 6]


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, dict])
def test_mapping_types_are_kept(kind: Any) -> None:
    """A mapping of the user's comes back as its own type, with its own attributes."""
    first = kind({"a": 1})
    if kind is not dict:
        first.tag = "mine"

    out = default_collate([first, kind({"a": 2})])

    assert type(out) is kind
    assert getattr(out, "tag", "mine") == "mine"
    assert out["a"].tolist() == [1, 2]
    assert first["a"] == 1


def test_a_mapping_that_cannot_be_built_becomes_a_dict() -> None:
    """A read-only view has no constructor of that kind."""

    class Frozen(dict[str, Any]):
        def __init__(self) -> None:
            super().__init__(a=1)

        def __copy__(self) -> Any:
            raise TypeError("no")

    assert type(default_collate([Frozen(), Frozen()])) is dict
    assert default_collate([MappingProxyType({"a": 1})])["a"].tolist() == [1]


@pytest.mark.parametrize(("first", "kind"), [(UserList([1, 2]), UserList), ([1, 2], list), (range(1, 3), list)])
def test_sequence_types_are_kept(first: Any, kind: type) -> None:
    """A sequence of the user's comes back as its own type; a range, which cannot hold arrays, as a list."""
    out = default_collate([first, first])

    assert [column.tolist() for column in out] == [[1, 1], [2, 2]]
    assert type(out) is kind


def test_keys_are_those_of_the_first_sample() -> None:
    """A later sample may have more keys; fewer are a KeyError."""
    assert list(default_collate([{"a": 1}, {"a": 2, "b": 3}])) == ["a"]
    with pytest.raises(KeyError, match="b"):
        default_collate([{"a": 1, "b": 2}, {"a": 1}])


def test_shapes_that_differ_are_named() -> None:
    """The error says which positions, which shapes, which field, and what to do."""
    batch = [{"image": (np.zeros((2, 3)),)}, {"image": (np.zeros((2, 3)),)}, {"image": (np.zeros((2, 4)),)}]

    with pytest.raises(SampleError, match=r"equal size, but got \(2, 3\) at entry 0 and \(2, 4\) at entry 2") as caught:
        default_collate(batch)

    assert "sample['image'][0]" in str(caught.value)
    assert "collate_fn" in str(caught.value)


def test_lengths_that_differ_are_named() -> None:
    """Samples of different length have no columns."""
    with pytest.raises(SampleError, match="got 2 at entry 0 and 1 at entry 1"):
        default_collate([(1, 2), (3,)])


@pytest.mark.parametrize("leaf", [None, {1}, object(), 1j, np.array(["a"]), np.array([None])])
def test_what_cannot_be_stacked_is_a_type_error(leaf: Any) -> None:
    """Other types need a collate_fn, and the message says so."""
    with pytest.raises(TypeError, match="default_collate: batch must contain"):
        default_collate([(leaf,), (leaf,)])


def test_a_number_among_strings_is_a_type_error() -> None:
    """The first decides; what does not follow it is refused."""
    with pytest.raises(TypeError, match="not all entries are numbers in sample"):
        default_collate([(1,), ("a",)])


@pytest.mark.parametrize(
    ("batch", "said", "kind"),
    [
        ([1, None], "entry 0 is int, entry 1 is NoneType", RuntimeError),
        ([1.5, 2, None], "entry 0 is float, entry 2 is NoneType: must be real number", TypeError),
        ([1, "2"], "entry 1 is str", TypeError),
        ([1.5, "2"], "entry 1 is str", TypeError),
        ([1.5, b"2"], "entry 1 is bytes", TypeError),
        ([1, 2**63], "entry 1 is int: Overflow when unpacking long: 0x8000000000000000", RuntimeError),
        ([-(2**63) - 1], "entry 0 is int: Overflow when unpacking long", ValueError),
        ([1.5, 10**400], "entry 1 is int: int too large", OverflowError),
        ([1, [2]], "entry 1 is list", TypeError),
        ([1, np.array([2])], "entry 1 is numpy.ndarray", TypeError),
        ([np.float32(1), None], "entry 0 is numpy.float32, entry 1 is NoneType", RuntimeError),
        ([np.uint16(1), np.int32(1)], "uint16 have no common dtype", RuntimeError),
        ([1, [np.uint16(1), 2]], "int64, uint16 have no common dtype", RuntimeError),
        ([np.zeros(2), None], "entry 0 is an array, entry 1 is NoneType", RuntimeError),
        ([np.zeros(2), np.array(["a", "b"])], "<U1, float64 have no common dtype", TypeError),
    ],
)
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: {"a": (each,)}])
def test_what_torch_does_not_mix_is_refused(batch: list[Any], said: str, kind: type[Exception], wrap: Any) -> None:
    """No nan for None, no number for its text, no other number for one that does not fit; the entry is named."""
    with pytest.raises(CollateError, match=re.escape(said)) as caught:
        default_collate([wrap(each) for each in batch])

    assert isinstance(caught.value, kind)
    assert wrap(0) == 0 or "in sample['a'][0]" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_differs_in_structure_is_named() -> None:
    """A sample without the first one's keys, or without parts at all."""
    with pytest.raises(KeyError) as caught:
        default_collate([({"a": 1},), ({"b": 1},)])
    assert "not every sample has what entry 0 has at 'a' in sample[0]" in caught.value.__notes__[0]
    with pytest.raises(CollateError, match="entry 0 has 2 parts, entry 1 is of type int"):
        default_collate([(1, 2), 5])


@pytest.mark.parametrize("dtype", [">f4", "g", "M8[s]"])
def test_arrays_that_numpy_alone_knows_are_stacked(dtype: str) -> None:
    """Byte orders, long doubles and dates have no tensor; as arrays of one dtype they are batches all the same."""
    out = default_collate([np.zeros(2, dtype), np.ones(2, dtype)])

    assert out.dtype == np.dtype(dtype)
    assert out.shape == (2, 2)


def test_an_empty_batch_has_no_first() -> None:
    """IndexError, as torch."""
    with pytest.raises(IndexError):
        default_collate([])


def test_convert_keeps_leaves() -> None:
    """Without batches: the same objects in the same structure, tuples as lists."""
    array = np.zeros(2)

    out = default_convert((array, "s", {"a": (1,)}, Point(1, (2,)), UserList([3])))

    assert type(out) is list
    assert out[0] is array
    assert out[1:3] == ["s", {"a": [1]}]
    assert out[3] == Point(1, [2])
    assert type(out[4]) is UserList
