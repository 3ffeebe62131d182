"""Images of several sizes in one array: each stands in its corner, and the mask says what is padding."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SampleError
from penstock.nested import NestedTensor, find_layout, image_size, pad_images


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    axes=st.sampled_from(["CHW", "HWC", "HW"]),
    multiple=st.integers(1, 6),
    value=st.sampled_from([0, 7]),
)
def test_every_pixel_and_the_mask(sizes: list[tuple[int, int]], axes: str, multiple: int, value: int) -> None:
    """The corner is the image, the rest the value; sides are the least multiples that hold all images."""
    random = np.random.default_rng(0)
    shapes = [{"CHW": (3, *size), "HWC": (*size, 3), "HW": size}[axes] for size in sizes]
    images = [random.integers(0, 255, shape, np.uint8) for shape in shapes]

    found = pad_images(images, layout=axes if len(axes) > 2 else None, multiple=multiple, value=value)

    tensors = np.moveaxis(found.tensors, 1, -1) if axes == "CHW" else found.tensors
    for side, number in enumerate(found.mask.shape[1:]):
        most = max(size[side] for size in sizes)
        assert number % multiple == 0
        assert most <= number < most + multiple
    for row, mask, image, (height, width) in zip(tensors, found.mask, images, sizes, strict=True):
        corner = np.moveaxis(image, 0, -1) if axes == "CHW" else image
        np.testing.assert_array_equal(row[:height, :width], corner, strict=True)
        assert not mask[:height, :width].any()
        assert mask.sum() == mask.size - height * width
        assert (row[mask] == value).all()


def test_images_of_one_size_that_fits_are_not_copied() -> None:
    """An array that needs no padding is the result's own; one that needs some is copied."""
    images = np.ones((2, 3, 4, 8), np.float32)

    assert pad_images(images, layout="CHW", multiple=4).tensors is images
    assert pad_images(images, layout="CHW", multiple=5).tensors.shape == (2, 3, 5, 10)


def test_an_axis_of_channels_is_found_where_it_is_the_only_one() -> None:
    """1, 3 or 4 are channels; where both outer axes may be, or none, the layout must be known."""
    assert (find_layout((3, 20, 30)), find_layout((20, 30, 1)), find_layout((20, 30))) == ("CHW", "HWC", "HW")
    assert (image_size((3, 20, 30)), image_size((20, 30, 4)), image_size((3, 9, 3), "HWC")) == ((20, 30),) * 2 + (
        (3, 9),
    )
    for shape in ((3, 20, 3), (20, 30, 40), (20,), (1, 3, 20, 30)):
        with pytest.raises(SampleError, match="either the first or the last has 1, 3 or 4 channels"):
            find_layout(shape)


def test_images_that_do_not_go_together_are_refused() -> None:
    """Other dtypes, channels or axes: the error names the entry."""
    first = np.zeros((3, 8, 9), np.uint8)
    for odd in (np.zeros((3, 8, 9)), np.zeros((1, 8, 9), np.uint8), np.zeros((8, 9), np.uint8)):
        with pytest.raises(SampleError, match=r"one dtype and number of channels, .* at entry 1"):
            pad_images([first, odd], layout="CHW")


def test_it_travels_moves_and_is_taken_apart() -> None:
    """Between processes by pickle, to devices by ``to``, to models by ``decompose``."""
    found = pad_images([np.zeros((3, 2, 4), np.uint8), np.ones((3, 4, 2), np.uint8)], layout="CHW")

    again: NestedTensor = pickle.loads(pickle.dumps(found))
    tensors, mask = again.decompose()

    assert len(again) == 2
    np.testing.assert_array_equal(tensors, found.tensors, strict=True)
    np.testing.assert_array_equal(mask, found.mask, strict=True)


def test_tensors_move_as_one() -> None:
    """Both tensors go to the device."""
    torch: Any = pytest.importorskip("torch")

    moved = NestedTensor(torch.ones(1, 3, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool)).to("meta")

    assert [tensor.device.type for tensor in moved.decompose()] == ["meta", "meta"]
