"""Pad and Letterbox: torchvision's rows and columns, the shape kept, annotations in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from tests.transforms.pictures import KEYS, grays, pictures, same, torchvision

NONE = np.empty(0)


@pytest.mark.parametrize("padding", [0, 3, (4,), (2, 5), (1, 2, 3, 4), (0, 0, 7, 0)])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding_is_torchvisions(padding: Any, mode: str) -> None:
    """Every pixel is torchvision's on PIL, in every mode, in colour and in gray."""
    functional = torchvision()
    given = list(padding) if isinstance(padding, tuple) else padding
    for image in pictures():
        found = T.Pad(padding, (9, 8, 255), mode).image(image, NONE)
        same(found, functional.pad(Image.fromarray(image), given, (9, 8, 255), mode))
    for image in grays():
        same(T.Pad(padding, 5, mode).image(image, NONE), functional.pad(Image.fromarray(image), given, 5, mode))


def test_floats_and_masks_are_padded() -> None:
    """A float image takes any fill; a mask takes its own, and mirrors where the image does."""
    image, mask = np.ones((2, 3, 3), np.float32), np.array([[1, 2, 3]], np.int16)

    found = T.Pad((1, 0), -0.5).image(image, NONE)
    framed = T.Pad((1, 0), mask_fill=255).mask(mask, NONE)
    mirrored = T.Pad((1, 0), mode="reflect").mask(mask, NONE)

    np.testing.assert_array_equal(found[:, :, 0], [[-0.5, 1, 1, 1, -0.5]] * 2)
    np.testing.assert_array_equal(framed, [[255, 1, 2, 3, 255]])
    np.testing.assert_array_equal(mirrored, [[2, 1, 2, 3, 2]])
    assert found.dtype == np.float32
    assert framed.dtype == mirrored.dtype == np.int16


def test_padding_of_a_fixed_size_is_of_a_fixed_size() -> None:
    """A pipeline that crops and pads still fills rows."""
    program = T.Pipeline([T.Decode(), T.CenterCrop(20), T.Pad((1, 2, 3, 4))]).compile("image")

    spec = program.spec()

    assert spec is not None
    assert spec.shape == (26, 24, 3)


@given(
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    target=st.tuples(st.integers(1, 120), st.integers(1, 120)),
    enlarge=st.booleans(),
)
def test_letterbox_keeps_the_shape_and_fits(size: tuple[int, int], target: tuple[int, int], enlarge: bool) -> None:
    """One side is filled (or the image as large as it was), the other within half a pixel of the shape, and centred."""
    op = T.Letterbox(target, enlarge=enlarge)

    left, top, width, height = op.draw(KEYS[:1], np.array([size], np.int32), 0)[0].tolist()

    scale = min(target[1] / size[0], target[0] / size[1])
    if not enlarge:
        scale = min(scale, 1)
    assert abs(width - max(size[0] * scale, 1)) <= 0.5 + 1e-9
    assert abs(height - max(size[1] * scale, 1)) <= 0.5 + 1e-9
    assert (width, height) == size if scale == 1 else width == target[1] or height == target[0]
    assert 0 <= (target[1] - width - left) - left <= 1
    assert 0 <= (target[0] - height - top) - top <= 1


def test_letterbox_is_a_resize_in_a_frame() -> None:
    """Inside is what Resize makes of the image, outside the fill, in every pixel; with and without the native core."""
    for image in pictures():
        op = T.Letterbox((64, 50), (1, 2, 3))
        params = op.draw(KEYS[:1], np.array([(image.shape[1], image.shape[0])], np.int32), 0)[0]
        left, top, width, height = params.tolist()
        resize = T.Resize((height, width))
        for found, inner in (
            (op.image(image, params), resize.image(image, params[2:])),
            (op.native(image, params), resize.native(image, params[2:])),
        ):
            expected = np.full((64, 50, 3), (1, 2, 3), np.uint8)
            expected[top : top + height, left : left + width] = inner
            same(found, expected)


def test_boxes_follow_a_letterbox() -> None:
    """A box of the whole image becomes the place of the image; points scale and shift alike."""
    op = T.Letterbox(100)
    params = op.draw(KEYS[:1], np.array([(300, 200)], np.int32), 0)[0]

    boxes = op.boxes(np.array([(0, 0, 300, 200), (30, 30, 60, 90)], np.float32), params, (300, 200))
    points = op.keypoints(np.array([(150, 100, 2)], np.float32), params, (300, 200))
    mask = op.mask(np.ones((200, 300), np.uint8), params)

    np.testing.assert_allclose(boxes, [(0, 16, 100, 83), (10, 26.05, 20, 46.15)], atol=1e-4)
    np.testing.assert_allclose(points, [(50, 49.5, 2)], atol=1e-4)
    assert boxes.dtype == points.dtype == np.float32
    np.testing.assert_array_equal(np.flatnonzero(mask.any(axis=1)), np.arange(16, 83))


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Pad(-1),
        lambda: T.Pad((1, 2, 3)),
        lambda: T.Pad(1.5),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.Pad(1, mode="wrap"),
        lambda: T.Pad(1, fill=(1, 2)),
        lambda: T.Pad(1, mask_fill=256),
        lambda: T.Pad(1, fill=0.5).image(np.zeros((2, 2, 3), np.uint8), NONE),
        lambda: T.Pad(1, fill=-1).image(np.zeros((2, 2, 3), np.uint8), NONE),
        lambda: T.Pipeline([T.ToLayout(), T.Pad(1)]),
        lambda: T.Letterbox(0),
        lambda: T.Letterbox(9, fill=256),
        lambda: T.Letterbox(9, filter="nearest"),
        lambda: T.Letterbox(9).native(np.zeros((2, 2, 3), np.float32), np.array([0, 0, 9, 9])),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings and values that the image cannot hold are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
