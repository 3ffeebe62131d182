"""Normalising on the device gives the values of the CPU."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock import transforms as T  # noqa: E402  # it needs torch
from penstock.errors import ArgumentError  # noqa: E402  # as above
from penstock.torch.device.normalizing import normalize_on_device  # noqa: E402  # as above

MEAN, STD = T.IMAGENET_MEAN, T.IMAGENET_STD


def every_value() -> np.ndarray[Any, Any]:
    """One HWC image with all values in all channels."""
    return np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_bits_are_those_of_the_pipeline(layout: str, dtype: str) -> None:
    """All values are equal to those of Normalize and ToLayout on the CPU, bit by bit."""
    image = every_value()
    reference = T.ToLayout(layout, dtype).image(T.Normalize(MEAN, STD).image(image, np.empty(0)), np.empty(0))
    batch = torch.from_numpy(T.ToLayout(layout, "uint8").image(image, np.empty(0)))[None]

    (got,) = normalize_on_device(MEAN, STD, dtype=getattr(torch, dtype), layout=layout)([batch])

    assert np.array_equal(got[0].numpy(), reference)


@pytest.mark.parametrize("numbers", [0.5, (0.5,)])
def test_one_number_holds_for_every_channel(numbers: Any) -> None:
    """It is used for any number of channels, also for gray images."""
    images = torch.arange(192, dtype=torch.uint8).reshape(1, 3, 8, 8)

    got = normalize_on_device(numbers, numbers)([images, images[:, :1]])

    assert torch.equal(got[0], normalize_on_device((0.5,) * 3, (0.5,) * 3)([images])[0])
    assert torch.equal(got[1], got[0][:, :1])


def test_only_images_change() -> None:
    """Images are uint8 tensors of four axes; labels, masks and floats are returned unchanged."""
    labels, masks, floats = torch.arange(2), torch.zeros(2, 8, 8, dtype=torch.uint8), torch.ones(2, 3, 8, 8)
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    batch = {"a": images, "b": (labels, masks), "c": floats}

    got = normalize_on_device(MEAN, STD)(batch)

    assert got["a"].dtype == torch.float32
    assert got["b"] is batch["b"]
    assert got["c"] is floats
    assert not images.any()


def test_a_batch_without_images_is_an_error() -> None:
    """A pipeline that already normalises would otherwise go unnoticed."""
    with pytest.raises(ArgumentError, match="must have images"):
        normalize_on_device(MEAN, STD)([torch.ones(2, 3, 8, 8)])


def test_another_number_of_channels_is_an_error() -> None:
    """The error states the layout, which is the likely cause."""
    with pytest.raises(ArgumentError, match=r"3 channels.* layout='CHW', got shape \(2, 8, 8, 3\)"):
        normalize_on_device(MEAN, STD)([torch.zeros(2, 8, 8, 3, dtype=torch.uint8)])


@pytest.mark.parametrize(
    "arguments", [{"mean": (0.5,), "std": (0.5, 0.5)}, {"mean": (), "std": ()}, {"mean": (0.5,), "std": (0.0,)}]
)
def test_numbers_that_cannot_mean_anything_are_refused(arguments: dict[str, Any]) -> None:
    """Mean and deviation need equal lengths, and deviations must be positive."""
    with pytest.raises(ArgumentError, match="must have the same length"):
        normalize_on_device(**arguments)


def test_an_unknown_layout_is_refused() -> None:
    """The layout is CHW or HWC."""
    with pytest.raises(ArgumentError, match="'CHW' or 'HWC'"):
        normalize_on_device(MEAN, STD, layout="NCHW")


def test_it_pickles() -> None:
    """A spawned training program may pickle it."""
    batch = [torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)]
    step = normalize_on_device(MEAN, STD)

    copied = pickle.loads(pickle.dumps(step))

    assert torch.equal(copied(batch)[0], step(batch)[0])
