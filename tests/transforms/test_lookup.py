"""LookupTable: Pillow's ``point``, torchvision's gamma, and every number of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms.base import ImageSpec
from tests.transforms.pictures import KEYS, grays, pictures, same, torchvision

YES, NO = np.array(True), np.array(False)
TABLE = np.random.default_rng(1).integers(0, 256, 256)
TABLES = np.random.default_rng(2).integers(0, 256, (256, 3))


def test_one_table_is_pillows_point() -> None:
    """Every value of every channel is looked up; the input is not changed."""
    op = T.LookupTable(TABLE)
    for image in (*pictures(), *grays()):
        before = image.copy()
        expected = Image.fromarray(image).point(TABLE.tolist() * (3 if image.ndim == 3 else 1))
        same(op.image(image, YES), expected)
        same(op.native(image, YES), expected)
        assert op.native(image, NO) is image
        same(image, before)


def test_a_table_for_each_channel_is_pillows_point() -> None:
    """The columns of a table belong to the channels in their order."""
    op = T.LookupTable(TABLES)
    for image in pictures():
        expected = Image.fromarray(image).point(TABLES.T.reshape(-1).tolist())
        same(op.image(image, YES), expected)
        same(op.native(image, YES), expected)


@given(gamma=st.floats(0, 5), gain=st.floats(0, 3))
def test_gamma_is_torchvisions(gamma: float, gain: float) -> None:
    """The table is that of ``adjust_gamma`` on PIL images, for any gamma and gain."""
    levels = np.arange(256, dtype=np.uint8)[None]

    found = T.LookupTable.gamma(gamma, gain).image(levels, YES)

    gamma_map = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    same(found, np.minimum(gamma_map, 255).astype(np.uint8)[None])
    if gain <= 1:
        same(found, torchvision().adjust_gamma(Image.fromarray(levels), gamma, gain))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_numbers_of_channels_are_looked_up(channels: int) -> None:
    """One table is for any number of channels, several are for as many, and views are taken as they are."""
    image = np.random.default_rng(0).integers(0, 256, (9, 14, channels), dtype=np.uint8)[:, ::2]
    tables = TABLES[:, [0, 1, 2, 0]][:, :channels]

    np.testing.assert_array_equal(T.LookupTable(TABLE).native(image, YES), TABLE[image])
    found = T.LookupTable(tables).native(image, YES)
    for channel in range(channels):
        np.testing.assert_array_equal(found[:, :, channel], tables[:, channel][image[:, :, channel]])


def test_the_probability_is_p() -> None:
    """The share of images that change is p."""
    op = T.LookupTable(TABLE, p=0.3)
    drawn = op.draw(KEYS, np.full((len(KEYS), 2), 9, np.int32), 3)

    assert abs(drawn.mean() - 0.3) < 4 * np.sqrt(0.21 / len(drawn))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (range(255), r"table must have the shape \(256,\) or \(256, 1 to 4 channels\), got \(255,\)"),
        (np.zeros((3, 256), int), r"got \(3, 256\)"),
        (np.zeros((256, 5), int), r"got \(256, 5\)"),
        (7, r"got \(\)"),
        (np.linspace(0, 255, 256), r"integers in \[0, 255\], got float64"),
        (np.arange(256) + 1, r"got int64 from 1 to 256"),
        (np.arange(256) - 1, r"from -1 to 254"),
    ],
)
def test_wrong_tables_are_refused(table: Any, message: str) -> None:
    """A table has 256 integers that uint8 holds, for one or for each channel."""
    with pytest.raises(ArgumentError, match=message):
        T.LookupTable(table)


@pytest.mark.parametrize(("gamma", "gain"), [(-1, 1), (np.nan, 1), (1, -0.5), ("2", 1)])
def test_wrong_curves_are_refused(gamma: Any, gain: Any) -> None:
    """Gamma and gain are finite and not negative."""
    with pytest.raises(ArgumentError, match="must be a finite number of at least 0"):
        T.LookupTable.gamma(gamma, gain)


def test_images_that_have_no_table_are_refused() -> None:
    """Floats, 16 bits and another number of channels are errors when the pipeline is made, or at the image."""
    op = T.LookupTable(TABLES)

    with pytest.raises(ArgumentError, match="needs uint8 images, got float32"):
        op.spec(ImageSpec(dtype="float32"))
    with pytest.raises(ArgumentError, match="needs images of 3 channels, got 1"):
        T.Pipeline([T.Decode(mode="L"), op])
    with pytest.raises(ArgumentError, match="needs images of 3 channels, got 1"):
        op.image(np.zeros((4, 4), np.uint8), YES)
    with pytest.raises(ArgumentError, match=r"needs uint8 images .* got uint16"):
        T.LookupTable(TABLE).native(np.zeros((4, 4, 3), np.uint16), YES)
    T.Pipeline([T.Decode(mode="L"), T.LookupTable(TABLE)])
