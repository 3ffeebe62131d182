"""GaussianBlur within a level of torchvision's, Sharpness equal to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms.ops import blur
from tests.transforms.pictures import draws, grays, is_uniform, pictures, same, torchvision


def exact_blur(image: Any, kernel: tuple[int, int], sigma: float) -> Any:
    """The blur as it is defined, in float64 and with every weight: the oracle."""
    blurred = image.astype(np.float64)
    for axis, length in ((1, kernel[0]), (0, kernel[1])):
        half = length // 2
        weights = np.exp(-0.5 * (np.arange(-half, half + 1) / sigma) ** 2)
        padding = [(half, half) if a == axis else (0, 0) for a in range(image.ndim)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(blurred, padding, "reflect"), length, axis=axis)
        blurred = windows @ (weights / weights.sum())
    return blurred


@pytest.mark.parametrize("kernel", [1, 3, (3, 9), (23, 1), 23])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 2.0, 50.0])
def test_blur_is_torchvisions(kernel: Any, sigma: float) -> None:
    """Each pixel is within one level of torchvision's, all but one in a thousand equal, and within 0.51 of exact."""
    functional = torchvision()
    op, sides = T.GaussianBlur(kernel, sigma), (kernel, kernel) if isinstance(kernel, int) else kernel
    for image in (*pictures(), *grays()):
        found = op.image(image, np.array([sigma]))
        assert np.abs(found - exact_blur(image, sides, sigma)).max() <= 0.51
        if sides[0] // 2 < image.shape[1] and sides[1] // 2 < image.shape[0]:
            expected = np.asarray(functional.gaussian_blur(Image.fromarray(image), list(sides), [sigma, sigma]))
            difference = np.abs(found.astype(int) - expected)
            assert difference.max() <= 1
            assert np.count_nonzero(difference) <= 1 + difference.size / 1000
        assert found.shape == image.shape
        assert found.dtype == np.uint8


def test_floats_stay_floats() -> None:
    """A float image is blurred without rounding, to float32."""
    image = np.random.default_rng(0).normal(size=(9, 14, 3)).astype(np.float32)

    found = T.GaussianBlur((5, 7)).image(image, np.array([1.3]))

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact_blur(image, (5, 7), 1.3), atol=2e-6)


def test_white_stays_white() -> None:
    """A flat image is a fixed point, at both ends of the scale, for any kernel."""
    for level in (0, 1, 127, 255):
        flat = np.full((30, 30, 3), level, np.uint8)
        for sigma in (0.1, 0.7, 3.0, 90.0):
            same(T.GaussianBlur(21, sigma).image(flat, np.array([sigma])), flat)


def test_sigma_is_uniform() -> None:
    """Sigma fills its range evenly; one number is the same for all."""
    is_uniform(draws(T.GaussianBlur(5, (0.5, 3)))[:, 0], 0.5, 3)
    assert np.all(draws(T.GaussianBlur(5, 1.5), count=9) == 1.5)


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.9, 5.0])
def test_sharpness_is_torchvisions(factor: float) -> None:
    """Every pixel is torchvision's on PIL, borders and pictures too small to blur included."""
    function = torchvision().adjust_sharpness
    for image in (*pictures(), *grays()):
        same(T.Sharpness(factor).image(image, np.array(True)), function(Image.fromarray(image), factor))


@given(width=st.integers(1, 9), height=st.integers(1, 9), factor=st.floats(0, 4, width=32))
def test_small_pictures_sharpen_alike(width: int, height: int, factor: float) -> None:
    """Sizes below the kernel's, and just above, agree with torchvision for any factor."""
    image = np.random.default_rng(width).choice(np.array([0, 1, 254, 255], np.uint8), (height, width, 3))

    same(blur.sharpen(image, factor), torchvision().adjust_sharpness(Image.fromarray(image), factor))


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.GaussianBlur(4),
        lambda: T.GaussianBlur((3, 0)),
        lambda: T.GaussianBlur(3.0),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.GaussianBlur(3, "wide"),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.GaussianBlur(257),
        lambda: T.GaussianBlur((3, 3, 3)),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.GaussianBlur(3, 0),
        lambda: T.GaussianBlur(3, (2, 1)),
        lambda: T.GaussianBlur(3, (0.1, float("inf"))),
        lambda: T.Sharpness(-1),
        lambda: T.Sharpness(1, p=7),
        lambda: T.Pipeline([T.ToLayout(), T.GaussianBlur(3)]),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize("length", [1, 3, 9, 23, 101, 255])
def test_grouped_weights_equal_single_ones(length: int) -> None:
    """Weights of many sigmas at once are those of each sigma alone, bit for bit."""
    sigmas = np.random.default_rng(length).uniform(0.05, 40, 300)
    sigmas[::2] = np.linspace(0.1, 2, 150)

    grouped = {
        int(row): weights[i] for rows, weights in blur.group_gaussians(length, sigmas) for i, row in enumerate(rows)
    }

    assert sorted(grouped) == list(range(300))
    for row, sigma in enumerate(sigmas.tolist()):
        assert grouped[row].tobytes() == blur.gaussian_weights(length, sigma).tobytes()
