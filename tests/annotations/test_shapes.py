"""Boxes and run-length encodings of drawn shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations.shapes import bound_ellipse, bound_points, encode_crop, rotate_box
from penstock.sample import Array


def decode(instance: dict[str, object]) -> Array:
    """The mask of a run-length encoding, number by number, as COCO describes it."""
    text, size = instance["counts"], instance["size"]
    assert isinstance(text, str)
    assert isinstance(size, list)
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - 48
        value |= (group & 0x1F) << shift
        shift += 5
        if not group & 0x20:
            if group & 0x10:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    pixels = [number % 2 for number, count in enumerate(counts) for _ in range(count)]
    return np.array(pixels, np.uint8).reshape(size[::-1]).T


@given(st.data())
def test_crop_decodes_to_its_place_in_the_image(data: st.DataObject) -> None:
    """Runs go down the columns of the whole image; everything outside the crop is 0."""
    height, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - rows)), data.draw(st.integers(0, width - columns))
    pixels = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    crop = np.array(pixels, bool).reshape(rows, columns)
    expected = np.zeros((height, width), np.uint8)
    expected[top : top + rows, left : left + columns] = crop

    found = encode_crop(crop, left, top, width, height)

    assert found["size"] == [height, width]
    np.testing.assert_array_equal(decode(found), expected)


def test_text_is_that_of_pycocotools() -> None:
    """The compressed text equals what pycocotools 2.0 writes for the same mask."""
    crop = np.array([[0, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 1]], bool)

    assert encode_crop(crop, 2, 4, 40, 32) == {"size": [32, 40], "counts": "U23l0OUOOk01UOOl02kQ1"}


def test_random_masks_are_encoded_as_pycocotools_does() -> None:
    """Equal texts for masks of every density."""
    reference = pytest.importorskip("pycocotools.mask")
    random = np.random.default_rng(12)
    for density in np.linspace(0, 1, 500):
        mask = random.random((int(random.integers(1, 60)), int(random.integers(1, 60)))) < density

        expected = reference.encode(np.asfortranarray(mask.astype(np.uint8)))

        assert encode_crop(mask, 0, 0, mask.shape[1], mask.shape[0])["counts"] == expected["counts"].decode()


@given(st.floats(0, 360), st.floats(1, 50), st.floats(1, 50))
def test_ellipse_touches_its_box(degrees: float, radius_x: float, radius_y: float) -> None:
    """The box is that of points on the edge."""
    around = np.linspace(0, 2 * math.pi, 3601)
    turn = math.radians(degrees)
    x, y = radius_x * np.cos(around), radius_y * np.sin(around)
    xs, ys = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)

    found = bound_ellipse(7, -3, radius_x, radius_y, degrees)

    expected = (xs.min() + 7, ys.min() - 3, xs.max() + 7, ys.max() - 3)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_box_turns_clockwise_about_its_centre() -> None:
    """A quarter turn of a wide box makes it upright; the first corner was the top left one."""
    found = rotate_box((10, 20, 30, 24), 90)

    np.testing.assert_allclose(found, [(22, 12), (22, 32), (18, 32), (18, 12)], atol=1e-9)
    np.testing.assert_allclose(bound_points(found), (18, 12, 22, 32), atol=1e-9)
