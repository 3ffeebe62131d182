"""Filling parts of one picture: the pixels of `fill`, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock import _native

Jpeg = Callable[..., bytes]

pytestmark = pytest.mark.usefixtures("level")

WIDTH, HEIGHT = 150, 120


def canvas() -> NDArray[np.uint8]:
    """A picture whose bytes no fill leaves behind by chance."""
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def random_part(rng: np.random.Generator, size: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Any part of the picture, and any region, resize and flip that fill it."""
    x0, y0 = int(rng.integers(0, WIDTH)), int(rng.integers(0, HEIGHT))
    x1, y1 = int(rng.integers(x0 + 1, WIDTH + 1)), int(rng.integers(y0 + 1, HEIGHT + 1))
    left, top = (int(rng.integers(0, side // 2)) for side in size)
    right, bottom = int(rng.integers(left + 1, size[0] + 1)), int(rng.integers(top + 1, size[1] + 1))
    wide, high = x1 - x0 + int(rng.integers(0, 20)), y1 - y0 + int(rng.integers(0, 20))
    start = int(rng.integers(0, wide - (x1 - x0) + 1)), int(rng.integers(0, high - (y1 - y0) + 1))
    return [left, top, right, bottom, wide, high, *start, int(rng.integers(4))], [x0, y0, x1, y1]


@pytest.mark.parametrize(("quality", "late_color"), [(None, False), (1.0, False), (1.0, True)])
@pytest.mark.parametrize("name", ["box", "bilinear", "lanczos"])
def test_parts_are_what_fill_gives(jpeg: Jpeg, name: str, quality: float | None, late_color: bool) -> None:
    """Parts of any place, written in turn; all other pixels stay as they were."""
    rng = np.random.default_rng(5)
    sizes = [(64, 48), (33, 70), (200, 150), (16, 16)]
    images = [jpeg(*size) for size in sizes]
    options: dict[str, Any] = {"filter": name, "quality": quality, "late_color": late_color}
    for _ in range(15):
        drawn = [random_part(rng, size) for size in sizes]
        geometry, parts = (np.array([each[i] for each in drawn], np.int32) for i in range(2))
        out, expected = canvas(), canvas()
        for image, own, (x0, y0, x1, y1) in zip(images, geometry, parts.tolist(), strict=True):
            row = np.empty((1, y1 - y0, x1 - x0, 3), np.uint8)
            assert not _native.fill([image], own[None], row, np.zeros(1, np.int64), layout="HWC", **options)[0]
            expected[y0:y1, x0:x1] = row[0]

        failures, _, _ = _native.fill_parts(images, geometry, out, parts, **options)

        assert failures == []
        np.testing.assert_array_equal(out, expected)


def test_failures_are_reported_and_their_parts_untouched(jpeg: Jpeg) -> None:
    """Images that cannot be filled are named with kind and reason; the others are filled."""
    good = jpeg(64, 64)
    images = [good, good[: len(good) * 3 // 4], jpeg(400, 300), b"", good]
    geometry = np.tile(np.array([0, 0, 64, 64, 20, 20, 0, 0, 0], np.int32), (5, 1))
    parts = np.array([(20 * i, 5, 20 * i + 20, 25) for i in range(5)], np.int32)
    out = canvas()

    failures, _, _ = _native.fill_parts(images, geometry, out, parts, filter="box", max_pixels=64 * 64)

    assert [i for i, _, _ in failures] == [1, 2, 3]
    assert failures[1][1] == "too_large"
    np.testing.assert_array_equal(out[:, 20:80], canvas()[:, 20:80])
    np.testing.assert_array_equal(out[5:25, :20], out[5:25, 80:100])
    assert not np.array_equal(out[5:25, :20], canvas()[5:25, :20])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"parts": [[0, 0, WIDTH + 1, 8]]}, "part 0: it must lie inside the picture of 150 x 120 pixels"),
        ({"parts": [[-1, 0, 8, 8]]}, "part 0: it must lie inside"),
        ({"parts": [[8, 0, 8, 8]]}, "part 0: it must lie inside"),
        ({"parts": [[0, 0, 17, 16]]}, "part 0: window must lie inside the size 16 x 16"),
        ({"parts": [[0, 0, 8]]}, "parts shape"),
        ({"geometry": [[0, 0, 64, 65, 16, 16, 0, 0, 0]]}, "region must lie inside the image of 64 x 64"),
        ({"geometry": [[0, 0, 64, 64, 16, 16, 0, 0]]}, "geometry of 1 images"),
        ({"out": np.zeros((4, 4), np.uint8)}, "shape"),
        ({"filter": "sinc"}, "filter must be one of"),
        ({"quality": 0.5}, "quality"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(jpeg: Jpeg, changed: dict[str, Any], said: str) -> None:
    """An error says which; nothing is written."""
    given: dict[str, Any] = {
        "geometry": [[0, 0, 64, 64, 16, 16, 0, 0, 0]],
        "parts": [[0, 0, 16, 16]],
        "filter": "box",
        "quality": None,
        **changed,
    }
    geometry, parts = (np.array(given.pop(name), np.int32) for name in ("geometry", "parts"))
    out = given.pop("out", canvas())
    before = out.copy()

    with pytest.raises(ValueError, match=said):
        _native.fill_parts([jpeg(64, 64)], geometry, out, parts, **given)
    np.testing.assert_array_equal(out, before)


def test_a_picture_is_not_filled_from_itself() -> None:
    """Memory that is read is not written to."""
    out = canvas()
    geometry = np.array([[0, 0, 64, 64, 16, 16, 0, 0, 0]], np.int32)
    images: Any = [out.reshape(-1)]

    with pytest.raises(ValueError, match="must not overlap"):
        _native.fill_parts(images, geometry, out, np.array([[0, 0, 16, 16]], np.int32), filter="box")
