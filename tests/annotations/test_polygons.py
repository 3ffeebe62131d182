"""Masks of polygons are pycocotools': equal to a specification, point by point, and to it where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations import rle
from penstock.annotations.polygons import MAX_PASSES, Polygons
from penstock.sample import Array

GOLDEN: Final[Sequence[tuple[list[list[float]], int, int, str, int]]] = (
    # rings, height, width; the text and the area that pycocotools 2.0.11 gives
    (
        [[10.2, 5.1, 30.7, 8.9, 25.3, 28.4, 6.6, 22.2]], 32, 40,
        "b74g06J5M3010O0001O00010O00001O00010O0000L4M4K4M3Lk8", 379,
    ),
    ([[1, 1, 9, 1, 9, 9, 1, 9]], 10, 10, ";8200000000000009", 64),
    ([[-5, -5, 50, -3, 48.5, 60, 2.5, 55.5], [10, 10, 20, 10, 15, 18]], 48, 44, "0V1:9Gam1", 2101),
    ([[0, 0, 20, 20, 20, 0, 0, 20]], 20, 20, "0c02N2N2N2N2N2N2N2N2N10O2N2N2N2N2N2N2N2N2O", 200),
    ([[2.5, 2.5, 2.5, 17.5, 3.5, 17.5]], 20, 20, "\\22R:", 2),
    (
        [[0.5, 0.5, 12, 0.5, 12, 7, 0.5, 7], [6, 3, 18, 3, 18, 11, 6, 11]], 12, 20,
        "=66000000004L0000000002N0000000000e0", 138,
    ),
    ([[100, 100, 110, 100, 110, 110]], 20, 20, "`<", 0),
    ([[3, 3, 3, 3, 3, 3]], 8, 8, "P2", 0),
)  # fmt: skip
COORDINATES: Final = st.one_of(
    st.floats(-30, 60, allow_nan=False),
    st.integers(-5, 40).map(float),
    st.integers(-50, 300).map(lambda each: each / 10),
)
RINGS: Final = st.lists(st.tuples(COORDINATES, COORDINATES), min_size=3, max_size=8)
OBJECTS: Final = st.tuples(st.lists(RINGS, max_size=3), st.integers(1, 40), st.integers(1, 40))


def draw_ring(ring: list[float], height: int, width: int) -> Array:
    """One ring, point by point: every fifth of a pixel along its edges, and even-odd filling down the columns."""
    corners = [(int(5 * x + 0.5), int(5 * y + 0.5)) for x, y in zip(ring[0::2], ring[1::2], strict=True)]
    points: list[tuple[int, int]] = []
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        across, down = abs(x1 - x0), abs(y1 - y0)
        is_flat = across >= down
        is_backward = x0 > x1 if is_flat else y0 > y1
        (xs, ys), (xe, ye) = ((x1, y1), (x0, y0)) if is_backward else ((x0, y0), (x1, y1))
        length = max(across, down)
        slope = ((ye - ys) if is_flat else (xe - xs)) / length if length else 0.0
        edge = [
            (xs + step, int(ys + slope * step + 0.5)) if is_flat else (int(xs + slope * step + 0.5), ys + step)
            for step in range(length + 1)
        ]
        points += edge[::-1] if is_backward else edge
    changes = np.zeros(height * width + 1, np.int64)
    for (xa, ya), (xb, yb) in pairwise(points):
        column = (min(xa, xb) + 0.5) / 5 - 0.5
        if xa != xb and column.is_integer() and 0 <= column <= width - 1:
            row = int(np.ceil(np.clip((min(ya, yb) + 0.5) / 5 - 0.5, 0, height)))
            changes[int(column) * height + row] += 1
    return (np.cumsum(changes[:-1]) % 2).reshape(width, height).T


def draw(rings: list[list[float]], height: int, width: int) -> Array:
    """An object: the union of its rings."""
    mask = np.zeros((height, width), np.int64)
    for ring in rings:
        mask |= draw_ring(ring, height, width)
    return mask


def encode(objects: Sequence[tuple[list[list[float]], int, int]]) -> list[str | None]:
    """The counts of objects, all at once."""
    return Polygons(
        [np.array(ring, np.float64) for rings, _, _ in objects for ring in rings],
        np.repeat(np.arange(len(objects)), [len(rings) for rings, _, _ in objects]),
        np.array([height for _, height, _ in objects], np.int64),
        np.array([width for _, _, width in objects], np.int64),
    ).encode()


def flatten(drawn: tuple[list[list[tuple[float, float]]], int, int]) -> tuple[list[list[float]], int, int]:
    """An object whose rings are lists of numbers."""
    rings, height, width = drawn
    return [[number for point in ring for number in point] for ring in rings], height, width


@given(st.lists(OBJECTS.map(flatten), max_size=5))
def test_masks_are_those_of_the_specification(objects: list[tuple[list[list[float]], int, int]]) -> None:
    """Any number of objects with any number of rings has the pixels of the rule, drawn point by point."""
    texts = encode(objects)

    assert len(texts) == len(objects)
    for text, (rings, height, width) in zip(texts, objects, strict=True):
        mask = draw(rings, height, width)
        assert text == rle.encode(mask)["counts"]
        np.testing.assert_array_equal(rle.decode({"size": [height, width], "counts": text}), mask)


@pytest.mark.parametrize(("rings", "height", "width", "text", "area"), GOLDEN)
def test_golden_masks(rings: list[list[float]], height: int, width: int, text: str, area: int) -> None:
    """Masks that pycocotools made, kept here."""
    assert encode([(rings, height, width)]) == [text]
    assert rle.area({"size": [height, width], "counts": text}) == area


def test_golden_masks_at_once() -> None:
    """The same masks, made together."""
    assert encode([each[:3] for each in GOLDEN]) == [each[3] for each in GOLDEN]


def test_polygons_too_long_for_memory_are_refused() -> None:
    """Edges that pass more columns than the limit have no mask; objects beside them have theirs."""
    width = 10_000
    zigzag = [float(each) for row in range(MAX_PASSES // width + 2) for each in ((row % 2) * width, row % 50)]
    square = GOLDEN[1]

    assert encode([square[:3], ([zigzag], 100, width), square[:3]]) == [square[3], None, square[3]]


def test_many_long_polygons_are_made_in_parts() -> None:
    """Objects that are within the limit alone, and above it together, all have their masks."""
    width = 10_000
    zigzag = [float(each) for row in range(MAX_PASSES // width - 2) for each in ((row % 2) * width, row % 50)]
    objects = [([zigzag], 60, width), GOLDEN[1][:3], ([zigzag], 60, width), ([zigzag], 60, width)]

    first, square, *others = encode(objects)

    assert first is not None
    assert others == [first, first]
    assert square == GOLDEN[1][3]


def test_masks_are_those_of_pycocotools() -> None:
    """Thousands of random objects have its texts: within and outside the image, on and between pixels."""
    reference = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(1)
    objects: list[Any] = []
    for row in range(3000):
        height, width = rng.integers(1, 60 if row % 4 else 400, 2).tolist()
        rings = []
        for _ in range(rng.integers(1, 4)):
            corners = rng.uniform(-0.3, 1.3, (rng.integers(3, 20), 2)) * [width, height]
            if row % 3:
                corners = np.clip(corners, 0, [width, height])
            parts = (0, 1, 2, 10)[row % 4]
            rings.append((np.round(corners * parts) / parts if parts else corners).ravel().tolist())
        objects.append((rings, height, width))
    expected = [reference.merge(reference.frPyObjects(*each))["counts"].decode() for each in objects]

    assert encode(objects) == expected
