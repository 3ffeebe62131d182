"""Arguments that are memory: only plain numbers are copied as bytes, and no call writes what it reads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock import _native

Jpeg = Callable[..., bytes]

NOT_NUMBERS: list[Any] = [
    np.dtype(object),
    np.dtype([("number", "i4"), ("object", object)]),
    np.dtype([("number", "i4")]),
    np.dtype("S4"),
    np.dtype("U2"),
    np.dtype(">f8" if sys.byteorder == "little" else "<f8"),
]


@pytest.mark.parametrize("dtype", NOT_NUMBERS, ids=str)
def test_concat_copies_plain_numbers_only(dtype: Any) -> None:
    """Bytes of objects would be references that nobody counts; strings and foreign byte orders are refused, too."""
    parts, out = np.zeros(3, dtype), np.zeros(3 * dtype.itemsize, np.uint8)

    with pytest.raises(TypeError, match="plain numbers in native byte order"):
        _native.concat([parts], out)
    with pytest.raises(TypeError, match="plain numbers in native byte order"):
        _native.concat([out], parts)
    assert not out.any()


def test_concat_takes_no_reference_to_objects() -> None:
    """An object's reference count is that of before a refused call."""
    value = object()
    parts, out = np.array([value] * 3), np.empty(3, object)
    count = sys.getrefcount(value)

    with pytest.raises(TypeError):
        _native.concat([parts], out)

    assert sys.getrefcount(value) == count
    assert out.tolist() == [None] * 3


@pytest.mark.parametrize("number", "?bBhHiIlLqQefdgFDG")
def test_concat_copies_every_plain_number(number: str) -> None:
    """Every type that is stacked by its bytes, also where it lies at an odd address."""
    dtype = np.dtype(number)
    memory = np.arange(1, 1 + 4 * dtype.itemsize, dtype=np.uint8)
    odd = np.zeros(4 * dtype.itemsize + 1, np.uint8)
    odd[1:] = memory
    if number == "?":
        memory[:] = odd[1:] = 1
    out = np.zeros(8, dtype)

    _native.concat([memory.view(dtype), odd[1:].view(dtype)], out)

    assert out.tobytes() == memory.tobytes() * 2


@pytest.mark.parametrize(
    ("images", "out"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)),
        (np.zeros((2, 4), np.float32), np.zeros((2, 2), np.float64)),
        (np.zeros((2, 4), np.float32), np.zeros((2, 2), object)),
        (np.zeros((2, 3), np.float32), np.zeros((2, 3), ">f4")),
        (np.zeros((2, 2), object), np.zeros((2, 4), np.float32)),
        (np.zeros((2, 3), ">f4"), np.zeros((2, 3), np.float32)),
    ],
    ids=["ints", "doubles", "objects", "big-endian", "from objects", "from big-endian"],
)
def test_mix_reads_and_writes_float32_only(images: Any, out: Any) -> None:
    """Another type is refused, also where it has the right number of bytes; nothing is written."""
    expected = out.tobytes()

    with pytest.raises(TypeError, match="must be of type float32"):
        _native.mix(images, 0.5, 0.5, out)

    assert out.tobytes() == expected


def test_mix_refuses_memory_that_it_cannot_write() -> None:
    """Read-only, strided and overlapping targets; nothing is written."""
    images = np.ones((4, 3), np.float32)
    frozen = np.zeros((4, 3), np.float32)
    frozen.flags.writeable = False

    with pytest.raises(ValueError, match="read-only"):
        _native.mix(images, 0.5, 0.5, frozen)
    with pytest.raises(ValueError, match="must be C-contiguous"):
        _native.mix(images, 0.5, 0.5, np.zeros((4, 6), np.float32)[:, ::2])
    with pytest.raises(ValueError, match="must not overlap"):
        _native.mix(images, 0.5, 0.5, images)
    assert (images == 1).all()


def shared(array: Any, address: Any, dtype: Any = np.uint8) -> Any:
    """The bytes of ``array`` from one of its places on, as another array."""
    return array.reshape(-1).view(np.uint8)[address].view(dtype)


def fill(images: list[Any], out: Any, **given: Any) -> Any:
    """One call of `fill` for the first rows of ``out``."""
    geometry = given.pop("geometry", np.tile(np.array([0, 0, 32, 32, 64, 64, 0, 0, 0], np.int32), (len(images), 1)))
    rows = given.pop("rows", np.arange(len(images)))
    return _native.fill(images, geometry, out, rows, layout="HWC", filter="box", **given)


def test_fill_refuses_images_that_lie_in_the_batch(jpeg: Jpeg) -> None:
    """Neither an image nor its index may lie in memory that the call writes, wherever in the batch that is."""
    image = jpeg(32, 32)
    index = _native.build_index(image)
    out = np.zeros((3, 64, 64, 3), np.uint8)
    for place in (0, out[0].nbytes - 5, out.nbytes - len(image)):
        inside = shared(out, slice(place, place + len(image)))
        inside[:] = np.frombuffer(image, np.uint8)

        with pytest.raises(ValueError, match="image 1 must not overlap out"):
            fill([image, inside], out)
        with pytest.raises(ValueError, match="image 0 must not overlap out"):
            fill([memoryview(inside)], out)
        inside[: len(index)] = np.frombuffer(index, np.uint8)
        expected = out.copy()
        with pytest.raises(ValueError, match="index 0 must not overlap out"):
            fill([image], out, indices=[inside[: len(index)]], found=[])

        np.testing.assert_array_equal(out, expected)


def test_fill_refuses_arguments_that_lie_in_the_batch(jpeg: Jpeg) -> None:
    """Geometry and rows are refused likewise."""
    image, out = jpeg(32, 32), np.zeros((3, 64, 64, 3), np.uint8)
    geometry = shared(out, slice(0, 36), np.int32).reshape(1, 9)
    geometry[0] = [0, 0, 32, 32, 64, 64, 0, 0, 0]

    with pytest.raises(ValueError, match="geometry must not overlap out"):
        fill([image], out, geometry=geometry)
    with pytest.raises(ValueError, match="rows must not overlap out"):
        fill([image], out, rows=shared(out, slice(72, 80), np.int64))
    assert out.reshape(-1).view(np.int32)[:9].tolist() == [0, 0, 32, 32, 64, 64, 0, 0, 0]


def test_fill_takes_images_that_lie_beside_the_batch(jpeg: Jpeg) -> None:
    """One allocation may hold images and the batch: neighbours do not overlap."""
    image = jpeg(32, 32)
    nbytes = 64 * 64 * 3
    memory = np.zeros(len(image) + nbytes + len(image), np.uint8)
    before, batch, after = np.split(memory, [len(image), len(image) + nbytes])
    before[:] = after[:] = np.frombuffer(image, np.uint8)
    out, expected = batch.reshape(1, 64, 64, 3), np.zeros((1, 64, 64, 3), np.uint8)
    fill([image], expected)

    for source in (before, after):
        out[:] = 0
        assert fill([source], out)[0] == []
        np.testing.assert_array_equal(out, expected)


def test_fill_pixels_refuses_an_image_that_lies_in_the_batch() -> None:
    """A row is not made of pixels that the call overwrites."""
    out = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    expected, geometry = out.copy(), np.array([0, 0, 16, 16, 16, 16, 0, 0, 1], np.int32)

    for image in (out[0], out[1]):
        with pytest.raises(ValueError, match="image must not overlap out"):
            _native.fill_pixels(image, geometry, out, 0, layout="HWC", filter="box")
    np.testing.assert_array_equal(out, expected)


def test_images_of_objects_are_refused() -> None:
    """No function takes references for pixels or bytes."""
    objects: Any = np.full((8, 8, 3), None)
    calls: list[Callable[[], Any]] = [
        lambda: _native.decode(objects[0, 0]),
        lambda: _native.resize(objects, 4, 4, "box"),
        lambda: _native.adjust(objects, [("gray", 0.0)]),
        lambda: _native.blur(objects, np.ones(1, np.float32), np.ones(1, np.float32)),
        lambda: _native.sharpen(objects, 1.0),
        lambda: _native.warp(objects, [1, 0, 0, 0, 1, 0], "nearest", (0, 0, 0)),
        lambda: _native.fill_pixels(objects, np.zeros(9, np.int32), objects[None], 0, layout="HWC", filter="box"),
    ]

    for call in calls:
        with pytest.raises(TypeError, match="format 'O'"):
            call()
