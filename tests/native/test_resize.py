"""Resizing: Pillow's result on every pixel, to one level or to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native

PILLOW = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
#: Levels by which a result may differ from Pillow's: its own rounding between the passes, where ours keeps fractions.
TOLERANCE = {"box": 1, "bilinear": 1, "bicubic": 0, "lanczos": 0}

filters = st.sampled_from(sorted(PILLOW))
sides = st.one_of(st.integers(1, 9), st.integers(1, 70), st.sampled_from([1, 2, 64, 128, 255, 300]))

SIZES = [
    ((1, 1), (1, 1)),
    ((1, 1), (224, 224)),
    ((300, 300), (1, 1)),
    ((300, 300), (224, 224)),
    ((224, 224), (300, 300)),
    ((224, 300), (224, 31)),
    ((224, 300), (31, 300)),
    ((500, 375), (341, 256)),
    ((4000, 3), (5, 7)),
    ((3, 4000), (7, 5)),
    ((3000, 1), (1, 1)),
    ((97, 89), (61, 83)),
    ((64, 64), (128, 32)),
    ((5, 700), (400, 3)),
    ((210, 17), (205, 21)),
]


def picture(kind: str, height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Noise, black and white noise (the hardest to round and clip), one level, or a ramp."""
    rng = np.random.default_rng(seed)
    match kind:
        case "noise":
            return rng.integers(0, 256, (height, width, 3), np.uint8)
        case "extremes":
            return (rng.integers(0, 2, (height, width, 3)) * 255).astype(np.uint8)
        case "flat":
            return np.full((height, width, 3), rng.integers(0, 256, 3, np.uint8))
        case _:
            y, x, _ = np.ogrid[0:height, 0:width, 0:3]
            ramp: NDArray[np.uint8] = ((x * 7 + y * 3) % 256 + np.zeros((1, 1, 3), int)).astype(np.uint8)
            return ramp


def largest_difference(image: NDArray[np.uint8], width: int, height: int, name: str) -> int:
    """Between Pillow's result and ours, over all pixels."""
    expected = np.asarray(Image.fromarray(image).resize((width, height), PILLOW[name])).astype(int)
    return int(np.abs(_native.resize(image, width, height, name) - expected).max())


@pytest.mark.parametrize("name", sorted(PILLOW))
@pytest.mark.parametrize("kind", ["noise", "extremes", "ramp"])
@pytest.mark.parametrize(("source", "target"), SIZES, ids=str)
def test_fixed_sizes_equal_pillow(source: tuple[int, int], target: tuple[int, int], kind: str, name: str) -> None:
    """Each filter gives Pillow's pixels within its tolerance, for shrinking, growing, thin, tiny and large images."""
    image = picture(kind, source[1], source[0])

    difference = largest_difference(image, *target, name)

    assert difference <= TOLERANCE[name]


@given(st.tuples(sides, sides, sides, sides), st.sampled_from(["noise", "extremes"]), filters, st.integers(0, 99))
def test_any_size_equals_pillow(sizes: tuple[int, int, int, int], kind: str, name: str, seed: int) -> None:
    """Each filter gives Pillow's pixels within its tolerance, whatever the sizes."""
    height, width, new_height, new_width = sizes

    difference = largest_difference(picture(kind, height, width, seed), new_width, new_height, name)

    assert difference <= TOLERANCE[name]


@given(st.tuples(sides, sides), st.tuples(sides, sides), filters, st.integers(0, 9))
def test_flat_stays_flat(size: tuple[int, int], new: tuple[int, int], name: str, seed: int) -> None:
    """An image of one colour keeps exactly that colour: weights sum to one."""
    image = picture("flat", *size, seed)

    resized = _native.resize(image, *new, name)

    assert (resized == image[0, 0]).all()


@given(st.tuples(sides, sides), filters)
def test_same_size_is_a_copy(size: tuple[int, int], name: str) -> None:
    """A size that does not change keeps every pixel, in memory of its own."""
    image = picture("noise", *size)

    resized = _native.resize(image, size[1], size[0], name)

    assert (resized == image).all()
    assert not np.shares_memory(resized, image)


@given(st.tuples(sides, sides), sides, filters)
def test_unchanged_axis_is_kept(size: tuple[int, int], side: int, name: str) -> None:
    """Rows that are alike stay alike when only the width changes."""
    image = np.repeat(picture("noise", *size)[:1], 5, axis=0)

    resized = _native.resize(image, side, 5, name)

    assert (resized == resized[:1]).all()


@given(st.data(), filters)
def test_region_is_a_crop(draw: st.DataObject, name: str) -> None:
    """A region resizes as the cropped image does: pixels outside it have no weight."""
    height, width = draw.draw(sides), draw.draw(sides)
    x0, y0 = draw.draw(st.integers(0, width - 1)), draw.draw(st.integers(0, height - 1))
    x1, y1 = draw.draw(st.integers(x0 + 1, width)), draw.draw(st.integers(y0 + 1, height))
    new_width, new_height = draw.draw(sides), draw.draw(sides)
    image = picture("extremes", height, width)

    resized = _native.resize(image, new_width, new_height, name, (x0, y0, x1, y1))

    crop = np.ascontiguousarray(image[y0:y1, x0:x1])
    assert (resized == _native.resize(crop, new_width, new_height, name)).all()


@given(st.tuples(sides, sides, sides, sides), filters)
def test_one_channel_equals_one_of_three(sizes: tuple[int, int, int, int], name: str) -> None:
    """A gray image resizes as each channel of a colour image does."""
    height, width, new_height, new_width = sizes
    image = picture("noise", height, width)

    gray = _native.resize(np.ascontiguousarray(image[:, :, 1:2]), new_width, new_height, name)

    assert gray.shape == (new_height, new_width, 1)
    assert (gray[:, :, 0] == _native.resize(image, new_width, new_height, name)[:, :, 1]).all()


@pytest.mark.parametrize("name", sorted(PILLOW))
@pytest.mark.parametrize(("source", "target"), SIZES, ids=str)
def test_lower_levels_give_the_same(
    lower_level: Callable[[], None], source: tuple[int, int], target: tuple[int, int], name: str
) -> None:
    """Lower kernels, the scalar ones that specify them too, give the same pixels as the ones in use."""
    image = picture("extremes", source[1], source[0])
    fast = _native.resize(image, *target, name)

    lower_level()

    assert (_native.resize(image, *target, name) == fast).all()
