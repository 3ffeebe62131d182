"""RandomHSV: the colours of the hexagonal HSV model, rounded once, and its distribution."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms.ops.hsv import shift_hsv
from tests.transforms.pictures import draws, grays, is_uniform, pictures, same

SHIFTS = [(0.0, 1.0, 1.0), (0.015, 1.7, 0.6), (-0.015, 0.3, 1.4), (0.37, 0.0, 1.0), (-0.5, 2.0, 2.0), (0.99, 1.0, 0.0)]


@pytest.mark.parametrize("shift", SHIFTS)
def test_colours_are_those_of_colorsys(shift: tuple[float, float, float]) -> None:
    """Of colours in steps of 15, and of grays: the shifted colour in double precision is within rounding of each."""
    turns, saturation, value = shift
    levels = np.arange(0, 256, 15, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 18, 3)

    found = shift_hsv(image, *shift)

    for colour, level in zip(image.reshape(-1, 3).tolist(), found.reshape(-1, 3).tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(channel / 255 for channel in colour))
        exact = colorsys.hsv_to_rgb((h + turns) % 1, min(s * saturation, 1), min(v * value, 1))
        assert np.abs(255 * np.array(exact) - level).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("shift", SHIFTS)
def test_native_colours_are_those_of_the_specification(shift: tuple[float, float, float]) -> None:
    """Colour and gray images."""
    op, params = T.RandomHSV(), np.array(shift)

    for image in (*pictures(), *grays()):
        same(op.native(image, params), op.image(image, params))


def test_no_change_leaves_every_image() -> None:
    """Without a change each image is itself."""
    for image in (*pictures(), *grays()):
        same(shift_hsv(image, 0.0, 1.0, 1.0), image)


def test_gray_images_change_as_gray_colours() -> None:
    """An HW image is one channel of the same image in RGB."""
    for image in grays():
        same(shift_hsv(image, 0.3, 1.5, 0.7), shift_hsv(np.stack([image] * 3, axis=2), 0.3, 1.5, 0.7)[:, :, 1])


def test_gains_are_the_ranges() -> None:
    """Turns and factors fill their ranges evenly."""
    params = draws(T.RandomHSV(0.1, 0.7, 0.4))

    for column, (least, most) in enumerate([(-0.1, 0.1), (0.3, 1.7), (0.6, 1.4)]):
        is_uniform(params[:, column], least, most)
    correlation = np.corrcoef(params, rowvar=False) - np.eye(3)
    assert np.abs(correlation).max() < 0.05


@pytest.mark.parametrize("name", ["hue", "saturation", "value"])
@pytest.mark.parametrize("gain", [-0.1, 1.1, float("nan"), (0, 0.5), "0.5", None])
def test_gains_that_mean_nothing_are_refused(name: str, gain: Any) -> None:
    """A gain is one number from 0 to the largest."""
    with pytest.raises(ArgumentError, match=f"{name} must be a number in"):
        T.RandomHSV(**{name: gain})
