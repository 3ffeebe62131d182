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
from penstock.transforms.ops.resize_opencv import CV2_FILTERS

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


@pytest.mark.parametrize("name", CV2_FILTERS)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    target=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    seed=st.integers(0, 99),
)
def test_opencv_s_filters_are_their_specification(
    name: str, size: tuple[int, int], target: tuple[int, int], seed: int
) -> None:
    """The native core is within a level of the NumPy specification, and equal to it where one pixel is taken."""
    draw = np.random.default_rng(seed)
    image = draw.integers(0, 256, (*size, 3), np.uint8) if seed % 2 else draw.integers(0, 2, (*size, 3), np.uint8) * 255
    op = T.Resize(target, name)
    params = op.draw(KEY, np.array([size[::-1]], np.int32), 0)[0]

    difference = np.abs(op.native(image, params).astype(int) - op.image(image, params).astype(int))

    assert difference.max() <= (name != "cv2-nearest")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cv2-linear", [17, 125, 233]),  # a sixth right of the first centre, in the middle, a sixth left of the last
        ("cv2-area", [25, 125, 225]),  # a pixel and a third of its neighbour
        ("cv2-nearest", [0, 100, 150]),
    ],
)
def test_opencv_s_filters_on_four_pixels(name: str, expected: list[int]) -> None:
    """Four pixels become three; by hand."""
    image = np.array([[[0], [100], [150], [250]]], np.uint8)
    params = np.array([3, 1])

    assert T.Resize((1, 3), name).image(image, params).ravel().tolist() == expected
    assert T.Resize((1, 3), name).native(image, params).ravel().tolist() == expected


@pytest.mark.parametrize("name", CV2_FILTERS)
def test_opencv_s_filters_are_fused(photographs_dir: Path, name: str) -> None:
    """A crop, a resize and a flip in one native call equal the ops one by one."""
    paths = sorted(photographs_dir.glob("*/*.jpg"))[:6]
    ops = [
        T.Decode(),
        T.RandomCrop((61, 83)),
        T.Letterbox(48, filter=name),
        T.HorizontalFlip(),
        T.ToLayout("CHW", "uint8"),
    ]
    program = T.Pipeline(ops).compile("image")
    keys = SampleKeys(3, 0, np.arange(len(paths), dtype=np.int64))
    out = np.empty((len(paths), 3, 48, 48), np.uint8)

    program.fill([path.read_bytes() for path in paths], out, keys)

    for i, path in enumerate(paths):
        image: Any = T.decode(path.read_bytes())
        for stream, op in enumerate(ops[1:], 1):
            params = op.draw(keys[i : i + 1], np.array([image.shape[1::-1]], np.int32), stream)[0]
            image = op.native(image, params)
        np.testing.assert_array_equal(out[i], image)


def test_gray_arrays_resize_too() -> None:
    """An HW array stays HW and is the red of the same picture as HWC."""
    gray = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    op, params = T.Resize((11, 12)), np.array([12, 11])

    found = op.native(gray, params)

    np.testing.assert_array_equal(found, op.native(np.repeat(gray[:, :, None], 3, axis=2), params)[:, :, 0])


def test_only_uint8_is_resized() -> None:
    """Float images are refused, at run time and, where it can be told, when the pipeline is made."""
    with pytest.raises(ArgumentError, match=r"before Normalize.* stored as floats must be packed as uint8 or uint16"):
        T.Resize(8).native(np.zeros((4, 4, 3), np.float32), np.array([8, 8]))
    with pytest.raises(ArgumentError, match="before Normalize"):
        T.Pipeline([T.Decode(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.RandomResizedCrop(8)])


@pytest.mark.parametrize("settings", [(0,), ((5, -1),), (5, "nearest"), (5, "bilinear", 5), ((5, 6), "bilinear", 9)])
def test_settings_that_mean_nothing_are_refused(settings: Any) -> None:
    """A size or filter that cannot mean anything is an ArgumentError at construction."""
    with pytest.raises(ArgumentError):
        T.Resize(*settings)
