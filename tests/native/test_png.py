"""PNG natively: the pixels and values of Pillow, for every kind of file, whole and in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import _native
from penstock.transforms.decoding import fallback
from tests.native.png_writer import KINDS, chunk, png, samples

SIZES = ((1, 1), (1, 9), (9, 1), (3, 2), (8, 8), (61, 45), (130, 70))
CAP = 1 << 24


def made(color: int, depth: int, size: tuple[int, int] = (61, 45), **options: Any) -> bytes:
    """A file of this kind with random filters."""
    return png(samples(*size, color, depth), color, depth, **options)


def pillow(file: bytes) -> NDArray[np.uint8]:
    """The pixels of Pillow, the specification."""
    return fallback.read_pixels(file, CAP)


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Every pixel, the shape and the dtype."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def transparent(color: int) -> list[bytes]:
    """A tRNS chunk for a colour type that may have one."""
    bodies = {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: b"\0\x80\xff"}
    return [chunk(b"tRNS", bodies[color])] if color in bodies else []


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("color", "depth"), KINDS)
def test_every_kind_is_decoded_natively(color: int, depth: int, interlace: int) -> None:
    """Every colour type and depth, interlaced or not, of every size, has Pillow's pixels."""
    for size in SIZES:
        file = made(color, depth, size, interlace=interlace, before=transparent(color))

        same(_native.decode(file), pillow(file))
        np.testing.assert_array_equal(_native.sizes([file]), [size])


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("color", "depth"), [kind for kind in KINDS if kind[0] in {0, 3}])
def test_values_of_masks(color: int, depth: int, interlace: int) -> None:
    """One channel gives the values that Pillow gives: palette indices, gray levels of 8 and 16 bits."""
    for size in SIZES:
        file = made(color, depth, size, interlace=interlace)

        same(_native.decode_values(file), fallback.channel_pixels(file, CAP))


@pytest.mark.parametrize("palette", [1, 3, 16])
def test_values_without_a_color_are_black(palette: int) -> None:
    """Indices beyond the palette have the colour that Pillow gives them."""
    file = made(3, 8, palette=palette)

    same(_native.decode(file), pillow(file))


@given(
    kind=st.sampled_from(KINDS),
    interlace=st.integers(0, 1),
    corners=st.tuples(*[st.integers(0, 2**16)] * 4),
    part=st.sampled_from([1, 7, 100, 1 << 16]),
    level=st.sampled_from([0, 1, 9]),
)
def test_a_region_is_the_same_pixels(
    kind: tuple[int, int], interlace: int, corners: tuple[int, int, int, int], part: int, level: int
) -> None:
    """A region has exactly the pixels of the whole picture, however the data are divided and compressed."""
    file = made(*kind, interlace=interlace, part=part, level=level)
    x0, y0 = corners[0] % 61, corners[1] % 45
    x1, y1 = x0 + 1 + corners[2] % (61 - x0), y0 + 1 + corners[3] % (45 - y0)

    same(_native.decode(file, (x0, y0, x1, y1)), pillow(file)[y0:y1, x0:x1])


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("color", "depth"), KINDS)
def test_levels_agree(color: int, depth: int) -> None:
    """Every set of instructions gives Pillow's pixels."""
    file = made(color, depth, (130, 70))

    same(_native.decode(file), pillow(file))


def test_a_large_picture_slides_through_the_window() -> None:
    """A picture of much more than the window's bytes, and one of a single long line, are decoded whole and in part."""
    for size in ((500, 400), (70_000, 2), (2, 70_000)):
        for level in (0, 6):
            file = made(2, 8, size, level=level)
            expected = pillow(file)

            same(_native.decode(file), expected)
            same(_native.decode(file, (1, 1, 2, size[1])), expected[1:, 1:2])
