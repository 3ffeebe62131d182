"""RandomPhotometricDistort: torchvision's pixels on PIL images, and its distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from tests.transforms.pictures import draws, is_uniform, pictures, same, torchvision

ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("left_out", [None, 0, 1, 2, 3])
def test_the_same_params_give_torchvisions_pixels(early: int, order: int, left_out: int | None) -> None:
    """By its class, with params in place of random numbers: every value is equal."""
    v2, torch = torchvision("torchvision.transforms.v2"), pytest.importorskip("torch")
    factors: list[Any] = [1.1, 0.6, 1.4, 0.04]
    if left_out is not None:
        factors[left_out] = None
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    given = {**dict(zip(names, factors, strict=True)), "contrast_before": bool(early)}
    params = np.array([*(np.nan if factor is None else factor for factor in factors), early, order])
    op = T.RandomPhotometricDistort()

    for image in pictures():
        permutation = torch.tensor(ORDERS[order])
        expected = v2.RandomPhotometricDistort().transform(
            Image.fromarray(image), {**given, "channel_permutation": permutation}
        )
        same(op.image(image, params), expected)
        same(op.native(image, params), expected)


def test_numbers_have_torchvisions_distribution() -> None:
    """Each step with probability p, its factor uniform in its range; every order of channels."""
    params = draws(T.RandomPhotometricDistort(p=0.5))
    ranges = [(0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05)]

    for column, (least, most) in zip(params.T[:4], ranges, strict=True):
        drawn = column[~np.isnan(column)]
        assert abs(len(drawn) / len(column) - 0.5) < 0.05
        is_uniform((drawn - least) / (most - least), 0, 1)
    assert abs(params[:, 4].mean() - 0.5) < 0.05
    shares = np.bincount(params[:, 5].astype(int), minlength=6) / len(params)
    assert np.abs(shares - [7 / 12, *[1 / 12] * 5]).max() < 0.05


def test_p_is_the_probability_of_each_step() -> None:
    """0 leaves the image as it is; 1 leaves nothing out."""
    nothing, everything = (draws(T.RandomPhotometricDistort(p=p)) for p in (0, 1))

    assert np.isnan(nothing[:, :4]).all()
    assert not nothing[:, 5].any()
    assert not np.isnan(everything).any()


@pytest.mark.parametrize(
    "arguments", [{"brightness": (-1, 1)}, {"hue": (-0.6, 0)}, {"contrast": (2, 1)}, {"p": 1.5}], ids=str
)
def test_arguments_out_of_range_are_refused(arguments: Any) -> None:
    """When the op is made."""
    with pytest.raises(ArgumentError):
        T.RandomPhotometricDistort(**arguments)
