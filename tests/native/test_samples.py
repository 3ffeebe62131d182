"""Images of 16 bits at the border: what is accepted, and what is refused and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import _native
from tests.transforms.test_modes import deep, png

GEOMETRY = np.array([[0, 0, 12, 10, 6, 5, 0, 0, 0]], np.int32)
FILE = png(deep(1, 10, 12), 0)


def fill(**changed: Any) -> Any:
    """One valid call of `fill_samples`, but for what is changed."""
    call: dict[str, Any] = {
        "images": [FILE],
        "geometry": GEOMETRY,
        "out": np.zeros((2, 5, 6, 1), np.float32),
        "rows": np.array([1]),
        "layout": "HWC",
        "filter": "bilinear",
        "affine": (1.0, 0.0),
    }
    call.update(changed)
    return _native.fill_samples(call.pop("images"), call.pop("geometry"), call.pop("out"), call.pop("rows"), **call)


def test_a_row_of_samples_is_the_resized_image() -> None:
    """Floats, halves and samples hold the same values; other rows are left as they are."""
    expected = _native.resize_samples(deep(1, 10, 12)[:, :, 0], 6, 5, "bilinear")
    floats, words = np.zeros((2, 5, 6, 1), np.float32), np.zeros((2, 1, 5, 6), np.uint16)
    halves = np.zeros((2, 1, 5, 6), np.float16)

    assert fill(out=floats)[0] == []
    fill(out=words, layout="CHW", affine=None)
    fill(out=halves, layout="CHW", affine=(1 / 65535, 0.0))

    np.testing.assert_array_equal(floats[1, :, :, 0], expected)
    np.testing.assert_array_equal(words[1, 0], expected)
    np.testing.assert_array_equal(halves[1, 0], (expected * np.float32(1 / 65535)).astype(np.float16))
    assert not floats[0].any()
    assert not words[0].any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"out": np.zeros((2, 5, 6, 1), np.uint8)}, "out must be of type uint16, float16 or float32, got uint8"),
        ({"affine": None}, "affine must be given for float batches"),
        ({"affine": (np.inf, 0.0)}, "affine must be finite"),
        ({"out": np.zeros((2, 5, 6, 3), np.float32)}, "with 1 channel and at least one pixel"),
        ({"layout": "CHW"}, "with 1 channel and at least one pixel"),
        ({"layout": "NHWC"}, "layout must be one of HWC, CHW, got 'NHWC'"),
        ({"filter": "nearest"}, "filter must be one of"),
        ({"rows": np.array([2])}, r"row must be in \[0, 2\), the rows of out, got 2"),
        ({"rows": np.array([0, 1])}, "rows shape"),
        ({"geometry": GEOMETRY + np.array([0, 0, 0, 0, 0, 0, 1, 0, 0], np.int32)}, r"geometry\[0\]: window must lie"),
        ({"geometry": GEOMETRY + np.array([0, 0, 1, 0, 0, 0, 0, 0, 0], np.int32)}, r"geometry\[0\]: region must lie"),
        ({"images": [FILE] * 2, "geometry": np.repeat(GEOMETRY, 2, 0), "rows": np.array([1, 1])}, "must be distinct"),
    ],
)
def test_wrong_arguments_are_refused(changed: dict[str, Any], message: str) -> None:
    """An error says what is allowed."""
    with pytest.raises(ValueError, match=message):
        fill(**changed)


def test_arguments_that_overlap_the_batch_are_refused() -> None:
    """The call would overwrite what it reads."""
    out = np.zeros((2, 5, 6, 1), np.float32)

    with pytest.raises(ValueError, match="image 0 must not overlap out"):
        fill(out=out, images=[out.reshape(-1).view(np.uint8)])


def test_other_images_are_left_to_the_caller() -> None:
    """What is no gray PNG of 16 bits is unsupported, damage is corrupt, and neither row is written."""
    out = np.ones((4, 5, 6, 1), np.float32)
    images = [png(deep(3, 10, 12), 2), png(deep(1, 10, 12) >> 8, 0, 8), FILE[:-60], b"GIF89a"]

    failures, _, _ = fill(out=out, images=images, geometry=np.repeat(GEOMETRY, 4, 0), rows=np.arange(4))

    assert [(place, kind) for place, kind, _ in failures] == [
        (0, "unsupported"),
        (1, "unsupported"),
        (2, "corrupt"),
        (3, "corrupt"),
    ]
    assert (out == 1).all()
    assert fill(max_pixels=100)[0][0][1] == "too_large"


@pytest.mark.parametrize("size", [(0, 4), (4, -1)])
def test_a_resize_to_nothing_is_refused(size: tuple[int, int]) -> None:
    """Both sides of the result are at least 1."""
    with pytest.raises(ValueError, match="sizes must be at least 1 x 1"):
        _native.resize_samples(deep(1)[:, :, 0], *size, "box")
