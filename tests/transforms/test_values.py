"""Normalize and ToLayout: torchvision's numbers, stated rounding, no silent loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock import transforms as T
from penstock.bfloat16 import array_dtype, from_floats
from penstock.errors import ArgumentError

EVERY_VALUE: NDArray[np.uint8] = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
NONE = np.empty(0)


def test_normalize_rounds_as_stated() -> None:
    """Each value is value * scale + offset in float32, two roundings, for all 256 values."""
    op = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)

    found = op.image(EVERY_VALUE, NONE)

    for channel, (mean, std) in enumerate(zip(T.IMAGENET_MEAN, T.IMAGENET_STD, strict=True)):
        scale, offset = np.float32(1 / (255 * std)), np.float32(-mean / std)
        for value in range(256):
            assert found[value, 0, channel] == np.float32(np.float32(value) * scale) + offset
    assert found.dtype == np.float32


def test_normalize_is_torchvisions() -> None:
    """Behind ToLayout the numbers are those of ToTensor and Normalize, to within 2e-6."""
    functional = pytest.importorskip("torchvision.transforms.functional")
    mean, std = T.IMAGENET_MEAN, T.IMAGENET_STD

    found = T.Pipeline([T.Normalize(mean, std), T.ToLayout("CHW", "float32")])(EVERY_VALUE)

    expected = functional.normalize(functional.to_tensor(EVERY_VALUE), mean, std).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_normalize_of_floats_takes_them_as_they_are() -> None:
    """A float image is on the scale of mean and std already."""
    image = np.array([[[0.5, 0.25, 1.0]]], np.float32)

    found = T.Normalize((0.5, 0.5, 0.5), (0.5, 0.25, 1.0)).image(image, NONE)

    np.testing.assert_array_equal(found, np.array([[[0, -1, 0.5]]], np.float32))


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_layout_and_dtype(layout: str, dtype: str) -> None:
    """The result has the axes and dtype asked for, uint8 values keep or become 0 to 1, and memory is contiguous."""
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)

    found = T.ToLayout(layout, dtype).image(image, NONE)

    scaled = image.astype(np.float32) * np.float32(1 / 255)
    expected = image if dtype == "uint8" else from_floats(scaled) if dtype == "bfloat16" else scaled.astype(dtype)
    np.testing.assert_array_equal(found, expected if layout == "HWC" else expected.transpose(2, 0, 1))
    assert found.dtype == array_dtype(dtype)
    assert found.flags.c_contiguous


@pytest.mark.parametrize("op", [T.HorizontalFlip(), T.RandomErasing(), T.Normalize(0.5, 0.5), T.ToLayout()], ids=repr)
def test_no_op_follows_bfloat16(op: T.Op) -> None:
    """NumPy does not compute with bfloat16: ops come before the ToLayout that rounds to it."""
    with pytest.raises(ArgumentError, match="does not take images of bfloat16; put it before ToLayout"):
        T.Pipeline([T.Decode(), T.ToLayout("HWC", "bfloat16"), op])


def test_unit_scale_is_totensors() -> None:
    """Without Normalize, floats are ToTensor's to within one unit in the last place."""
    functional = pytest.importorskip("torchvision.transforms.functional")

    found = T.ToLayout().image(EVERY_VALUE, NONE)

    np.testing.assert_array_max_ulp(found, functional.to_tensor(EVERY_VALUE).numpy(), maxulp=1)


def test_gray_arrays_get_a_channel() -> None:
    """An HW array becomes (1, H, W) or (H, W, 1)."""
    gray = np.zeros((4, 6), np.uint8)

    assert T.ToLayout("CHW", "uint8").image(gray, NONE).shape == (1, 4, 6)
    assert T.ToLayout("HWC", "uint8").image(gray, NONE).shape == (4, 6, 1)


def test_normalized_values_are_never_cut_to_bytes() -> None:
    """uint8 behind Normalize is refused when the pipeline is made, and for an array of floats."""
    with pytest.raises(ArgumentError, match=r"needs uint8 images, got float32"):
        T.Pipeline([T.Decode(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "uint8")])
    with pytest.raises(ArgumentError, match=r"needs uint8 images, got float32"):
        T.ToLayout("CHW", "uint8").image(np.zeros((2, 2, 3), np.float32), NONE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Normalize((0.5, 0.5), (0.5, 0.5)),
        lambda: T.Normalize((0.5, 0.5, 0.5), (0.5, 0.0, 0.5)),
        lambda: T.ToLayout("NCHW"),
        lambda: T.ToLayout("CHW", "float64"),
        lambda: T.HorizontalFlip(1.5),
        lambda: T.Lambda(lambda image: image, on="batch"),
        lambda: T.Lambda(3),  # type: ignore[arg-type]  # the mistake under test
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings that cannot mean anything are an ArgumentError at construction."""
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
def test_flips_come_as_often_as_asked(p: float) -> None:
    """A flip's share of samples is p (within four standard deviations), and flips of one sample are independent."""
    from penstock.sample import SampleKeys

    keys, sizes = SampleKeys(5, 0, np.arange(10_000)), np.full((10_000, 2), 9, np.int32)

    first, second = T.HorizontalFlip(p).draw(keys, sizes, 0), T.VerticalFlip(p).draw(keys, sizes, 1)

    spread = 4 * np.sqrt(p * (1 - p) / 10_000)
    assert abs(first.mean() - p) <= spread
    assert abs((first & second).mean() - p * p) <= 4 * np.sqrt(p * p * (1 - p * p) / 10_000)
