"""RandomErasing: torchvision's rectangles and values, on bytes and on floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import transforms as T
from penstock.errors import ArgumentError
from tests.transforms.pictures import SIZES, draws, is_uniform, pictures, same, torchvision


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_rectangle_holds_the_value(dtype: Any) -> None:
    """Inside the drawn rectangle is the value, outside the image; torchvision's ``erase`` of it agrees."""
    functional, torch = torchvision(), pytest.importorskip("torch")
    op = T.RandomErasing(1, (0.1, 0.5), value=(1, 20, 255))
    for picture in pictures():
        image = picture.astype(dtype)
        before = image.copy()
        for params in draws(op, (image.shape[1], image.shape[0]), 4):
            left, top, width, height = params[:4].astype(int).tolist()
            value = torch.tensor([1, 20, 255], dtype=torch.from_numpy(image).dtype)[:, None, None]
            expected = functional.erase(torch.from_numpy(image).permute(2, 0, 1), top, left, height, width, value)
            same(op.image(image, params), expected.permute(1, 2, 0).numpy())
            np.testing.assert_array_equal(image, before)


def test_rectangles_follow_torchvisions_algorithm() -> None:
    """Area and shape fill their ranges evenly, the place what is left; no rectangle is as large as the image."""
    op = T.RandomErasing(1, (0.02, 0.2), (0.5, 3))

    left, top, width, height, seed = draws(op, (600, 500)).T

    assert width.max() < 600
    assert height.max() < 500
    is_uniform(width * height / 300_000, 0.0198, 0.2005)
    is_uniform(np.clip(np.log(height / width), np.log(0.5), np.log(3)), np.log(0.5), np.log(3))
    is_uniform((left + 0.5) / (600 - width + 1), 0, 1)
    is_uniform((top + 0.5) / (500 - height + 1), 0, 1)
    is_uniform(seed, 0, 1)


def test_distribution_of_tries_is_torchvisions() -> None:
    """Where rectangles seldom fit, the share of images left whole and the sizes' means agree with torchvision's."""
    transforms, torch = torchvision("torchvision.transforms"), pytest.importorskip("torch")
    torch.manual_seed(0)
    scale, ratio, image = (0.6, 0.99), (0.3, 3.3), torch.zeros(3, 30, 60)

    ours = draws(T.RandomErasing(1, scale, ratio), (60, 30), 4000)

    theirs = [transforms.RandomErasing.get_params(image, scale, ratio, [0.0]) for _ in range(4000)]
    whole = np.mean([h == 30 for _, _, h, _, _ in theirs])
    assert abs((ours[:, 2] == 0).mean() - whole) < 0.03
    heights = np.mean([h for _, _, h, _, _ in theirs if h < 30])
    assert abs(ours[ours[:, 2] > 0, 3].mean() - heights) < 0.3


def test_erasing_comes_as_often_as_asked() -> None:
    """The share of samples erased is p, within four standard deviations."""
    for p in (0.0, 0.3, 1.0):
        erased = draws(T.RandomErasing(p))[:, 2] > 0
        assert abs(erased.mean() - p) <= 4 * np.sqrt(p * (1 - p) / len(erased))


def test_images_too_small_stay() -> None:
    """An image of one row or column has no smaller rectangle of the least shape and stays, or loses part of itself."""
    op = T.RandomErasing(1, (0.5, 0.9), (1, 1))
    for width, height in SIZES[:3]:
        params = draws(op, (width, height), 50)
        image = np.ones((height, width, 3), np.uint8)
        assert all(op.image(image, row).any() for row in params)


def test_noise_belongs_to_the_sample() -> None:
    """Random values are the same for the same sample, other ones for another, normal in floats, any byte in uint8."""
    op = T.RandomErasing(1, (0.3, 0.3), (1, 1), "random")
    first, second = draws(op, (300, 200), 2)
    zeros = np.zeros((200, 300, 3), np.float32)

    floats, again, other = op.image(zeros, first), op.image(zeros, first), op.image(zeros, second)
    levels = op.image(zeros.astype(np.uint8), first)

    same(floats, again)
    noise = floats[floats != 0]
    assert not np.array_equal(noise, other[other != 0])
    assert noise.size == 3 * int(first[2]) * int(first[3])
    assert abs(noise.mean()) < 0.05
    assert abs(noise.std() - 1) < 0.05
    assert set(np.unique(levels)) == set(range(256))


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.RandomErasing(1.5),
        lambda: T.RandomErasing(1, (0.5, 0.2)),
        lambda: T.RandomErasing(1, (0.5, 1.2)),
        lambda: T.RandomErasing(1, ratio=(0, 1)),
        lambda: T.RandomErasing(1, value="noise"),
        lambda: T.RandomErasing(1, value=(1, 2)),
        lambda: T.RandomErasing(1, value=0.5).image(np.zeros((9, 9, 3), np.uint8), np.array([0, 0, 2, 2, 0])),
        lambda: T.RandomErasing(1, value=256).image(np.zeros((9, 9, 3), np.uint8), np.array([0, 0, 2, 2, 0])),
        lambda: T.RandomErasing(1, value=(1, 2, 3)).image(np.zeros((9, 9), np.uint8), np.array([0, 0, 2, 2, 0])),
        lambda: T.Pipeline([T.ToLayout(), T.RandomErasing()]),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings and values that the image cannot hold are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
