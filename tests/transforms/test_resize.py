"""Resize: torchvision's sizes, Pillow's pixels within a level, nearest neighbours for masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys

KEY = SampleKeys(0, 0, np.zeros(1, np.int64))


@given(
    size=st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    short=st.integers(1, 400),
    more=st.one_of(st.none(), st.integers(1, 300)),
)
def test_the_size_is_torchvisions(size: tuple[int, int], short: int, more: int | None) -> None:
    """One int is the shorter side; the longer is rounded down as torchvision does, with and without max_size."""
    functional = pytest.importorskip("torchvision.transforms.functional")
    limit = None if more is None else short + more

    drawn = T.Resize(short, max_size=limit).draw(KEY, np.array([size], np.int32), 0)

    height, width = functional._compute_resized_output_size(size[::-1], [short], max_size=limit)
    assert drawn.tolist() == [[max(width, 1), max(height, 1)]]


@given(size=st.tuples(st.integers(1, 60), st.integers(1, 60)), target=st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_masks_take_the_nearest_pixel(size: tuple[int, int], target: tuple[int, int]) -> None:
    """A mask's values are never mixed: each is what Pillow's nearest neighbour takes (edges apart, where it wavers)."""
    mask = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)

    moved = T.Resize(target[::-1]).mask(mask, np.array(target))

    expected = np.asarray(Image.fromarray(mask).resize(target, Image.Resampling.NEAREST))
    clear = [(2 * np.arange(new) + 1) * old % (2 * new) != 0 for new, old in zip(target, size[::-1], strict=True)]
    np.testing.assert_array_equal(moved[clear[1]][:, clear[0]], expected[clear[1]][:, clear[0]])
    assert moved.shape == expected.shape


def test_real_images_are_within_a_level_of_pillow(photographs_dir: Path) -> None:
    """On photographs, at the sizes of training and evaluation, every pixel is within one level of Pillow's."""
    for path in sorted(photographs_dir.glob("*/*.jpg"))[::5]:
        image = T.decode(path.read_bytes())
        op = T.Resize(256)
        params = op.draw(KEY, np.array([(image.shape[1], image.shape[0])], np.int32), 0)[0]
        difference = np.abs(op.native(image, params).astype(int) - op.image(image, params).astype(int))
        assert difference.max() <= 1, path.name


def test_gray_arrays_resize_too() -> None:
    """An HW array stays HW and is the red of the same picture as HWC."""
    gray = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    op, params = T.Resize((11, 12)), np.array([12, 11])

    found = op.native(gray, params)

    np.testing.assert_array_equal(found, op.native(np.repeat(gray[:, :, None], 3, axis=2), params)[:, :, 0])


def test_only_uint8_is_resized() -> None:
    """Float images are refused, at run time and, where it can be told, when the pipeline is made."""
    with pytest.raises(ArgumentError, match="before Normalize"):
        T.Resize(8).native(np.zeros((4, 4, 3), np.float32), np.array([8, 8]))
    with pytest.raises(ArgumentError, match="before Normalize"):
        T.Pipeline([T.Decode(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.RandomResizedCrop(8)])


@pytest.mark.parametrize("settings", [(0,), ((5, -1),), (5, "nearest"), (5, "bilinear", 5), ((5, 6), "bilinear", 9)])
def test_settings_that_mean_nothing_are_refused(settings: Any) -> None:
    """A size or filter that cannot mean anything is an ArgumentError at construction."""
    with pytest.raises(ArgumentError):
        T.Resize(*settings)
