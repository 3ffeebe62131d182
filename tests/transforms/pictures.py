"""Pictures of odd sizes and contents on which ops are held against others, and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock import transforms as T
from penstock.sample import SampleKeys

SIZES = ((1, 1), (1, 9), (9, 1), (2, 3), (7, 5), (16, 16), (300, 200))
"""Width and height."""

KEYS = SampleKeys(11, 2, np.arange(20_000))


def pictures() -> Iterator[NDArray[np.uint8]]:
    """Noise of every size, then pictures with few values, with extremes, flat, and smooth."""
    draw = np.random.default_rng(0)
    for width, height in SIZES:
        yield draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
    yield draw.choice(np.array([0, 255], np.uint8), (13, 31, 3))
    yield draw.integers(100, 104, (40, 30, 3), dtype=np.uint8)
    yield np.full((20, 30, 3), (17, 130, 255), np.uint8)
    yield np.array(Image.fromarray(draw.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((123, 77)))


def grays() -> Iterator[NDArray[np.uint8]]:
    """The first channel of each, HW."""
    for picture in pictures():
        yield np.ascontiguousarray(picture[:, :, 0])


def draws(op: T.Op, size: tuple[int, int] = (300, 200), count: int = 20_000, stream: int = 1) -> Any:
    """What the op draws for ``count`` images of one size."""
    return op.draw(KEYS[:count], np.full((count, 2), size, np.int32), stream)


def torchvision(name: str = "torchvision.transforms.functional") -> Any:
    """A module of torchvision, or the test skips."""
    return pytest.importorskip(name)


def same(found: NDArray[Any], expected: Any) -> None:
    """Every pixel, the shape and the dtype."""
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def is_uniform(values: NDArray[np.float64], least: float, most: float) -> None:
    """Within bounds, and each tenth of the range as full as chance allows (five standard deviations)."""
    assert values.min() >= least
    assert values.max() <= most
    counts, _ = np.histogram(values, bins=10, range=(least, most))
    expected = len(values) / 10
    assert np.abs(counts - expected).max() <= 5 * np.sqrt(expected)
