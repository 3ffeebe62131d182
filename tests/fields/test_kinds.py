"""Tests of :mod:`penstock.fields.kinds`: which kind of field holds values of several kinds."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from penstock.fields.kinds import EMPTY, NOTHING, ValueKind, are_corners, find_array_kind, unite_kinds

IMAGE = ValueKind("image", images=1)
OTHER = ValueKind("bytes", images=-1)
NO_BYTES = ValueKind("bytes")


@pytest.mark.parametrize(
    ("one", "other", "united"),
    [
        ("int", "float", "float"), ("label", "float", "float"), ("int", "text", None), (NOTHING, "text", "text"),
        (NOTHING, EMPTY, EMPTY), (EMPTY, "float32[3,4]", "float32[*,4]"), (EMPTY, "json", "json"), (EMPTY, "int", None),
        ("int8[3]", "float32[4]", "float32[*]"), ("int8[3]", "int8[3,1]", None), ("int8[3]", "bytes", None),
        ("pixels:uint8[4,5,3]", "pixels:uint8[4,6,3]", "pixels:uint8[4,*,3]"),
        ("pixels:uint8[4,5,3]", "pixels:uint16[4,5,3]", None),
    ],
)  # fmt: skip
def test_two_kinds_are_united(one: str, other: str, united: str | None) -> None:
    """A field has the kind that holds the values of both, in whatever order they come."""
    for a, b in ((one, other), (other, one)):
        found = unite_kinds(ValueKind(a), ValueKind(b))

        assert (None if found is None else found.kind) == united


def test_lists_of_different_depth_are_json() -> None:
    """What is no array of one number of axes is JSON, if all values are lists."""
    deep, flat = ValueKind("int64[2,2]", is_list=True), ValueKind("int64[3]", is_list=True)

    assert unite_kinds(deep, flat) == ValueKind("json")
    assert unite_kinds(deep, ValueKind("int64[3]")) is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([IMAGE, OTHER, IMAGE], "image"), ([OTHER, IMAGE, IMAGE], "image"), ([IMAGE, OTHER], "bytes"),
        ([OTHER, NO_BYTES, IMAGE, IMAGE], "image"), ([NO_BYTES], "bytes"), ([ValueKind(NOTHING), IMAGE], "image"),
    ],
)  # fmt: skip
def test_bytes_are_what_most_of_them_are(values: list[ValueKind], kind: str) -> None:
    """One damaged image makes no field of bytes; empty bytes say nothing."""
    found = functools.reduce(lambda one, other: unite_kinds(one, other) or NO_BYTES, values)

    assert found.kind == kind


def test_arrays_have_one_number_of_axes() -> None:
    """Axes of different lengths vary; an empty list says only that the first one does."""
    assert find_array_kind([np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)]) == "float32[*,4]"
    assert find_array_kind([np.zeros(3, np.int64), np.zeros(0)]) == "int64[*]"
    assert find_array_kind([np.zeros(3), np.zeros((3, 1))]) is None
    assert find_array_kind([np.zeros(())]) is None


def test_corners_are_in_pixels_and_in_order() -> None:
    """Shares of an image, and boxes xywh whose width is smaller than their place, are no corners."""
    assert are_corners([np.array([[1, 2, 5, 6]])])
    assert not are_corners([np.array([[0.1, 0.2, 0.5, 0.6]])])
    assert not are_corners([np.array([[10, 2, 5, 6]])])
