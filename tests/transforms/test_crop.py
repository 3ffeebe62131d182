"""Crops choose torchvision's windows: its rounding, its padding, its algorithm, its distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys

KEYS = SampleKeys(7, 0, np.arange(4000))


def windows(op: T.Op, width: int, height: int, keys: SampleKeys = KEYS, stream: int = 1) -> Any:
    """What the op draws for images of one size."""
    return op.draw(keys, np.full((len(keys), 2), (width, height), np.int32), stream)


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    target=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_center_crop_is_torchvisions(size: tuple[int, int], target: tuple[int, int]) -> None:
    """Rounding of the corner, and zeros around an image that is smaller, are torchvision's in every case."""
    functional = pytest.importorskip("torchvision.transforms.functional")
    image = np.random.default_rng(0).integers(1, 256, (size[1], size[0], 3), dtype=np.uint8)
    op = T.CenterCrop(target)

    found = op.image(image, windows(op, *size, keys=KEYS[:1])[0])

    np.testing.assert_array_equal(found, np.asarray(functional.center_crop(Image.fromarray(image), list(target))))


@given(
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    target=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    padding=st.one_of(st.integers(0, 9), st.tuples(*[st.integers(0, 9)] * 2), st.tuples(*[st.integers(0, 9)] * 4)),
    index=st.integers(0, 99),
)
def test_random_crop_is_a_window_of_torchvisions_padded_image(
    size: tuple[int, int], target: tuple[int, int], padding: Any, index: int
) -> None:
    """What is drawn is a place in the image as torchvision pads it, and the pixels are those found there."""
    functional = pytest.importorskip("torchvision.transforms.functional")
    image = np.random.default_rng(0).integers(1, 256, (size[1], size[0], 3), dtype=np.uint8)
    op = T.RandomCrop(target, padding=padding, pad_if_needed=True)
    keys = KEYS[index : index + 1]

    found = op.image(image, windows(op, *size, keys=keys)[0])

    padded = functional.pad(Image.fromarray(image), list(padding) if isinstance(padding, tuple) else padding)
    if padded.width < target[1]:
        padded = functional.pad(padded, [target[1] - padded.width, 0])
    if padded.height < target[0]:
        padded = functional.pad(padded, [0, target[0] - padded.height])
    top, left = uniforms(keys, 1, 2)[0]
    top, left = int(top * (padded.height - target[0] + 1)), int(left * (padded.width - target[1] + 1))
    np.testing.assert_array_equal(found, np.asarray(functional.crop(padded, top, left, *target)))


@given(
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    target=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    padding=st.tuples(*[st.integers(0, 9)] * 4),
    index=st.integers(0, 99),
)
@pytest.mark.parametrize(
    "how", [{"fill": 7}, {"fill": (1, 2, 250)}, *({"padding_mode": mode} for mode in ("edge", "reflect", "symmetric"))]
)
def test_random_crop_pads_as_it_is_told(size: Any, target: Any, padding: Any, index: int, how: dict[str, Any]) -> None:
    """A fill, and every mode of padding, give the pixels of torchvision's image padded at once, as its v2 does."""
    functional = pytest.importorskip("torchvision.transforms.functional")
    image = np.random.default_rng(0).integers(1, 256, (size[1], size[0], 3), dtype=np.uint8)
    op = T.RandomCrop(target, padding, pad_if_needed=True, **how)
    params = windows(op, size[0], size[1], keys=KEYS[index : index + 1])[0]

    found = op.image(image, params)

    more = [
        max(target[1] - size[0] - padding[0] - padding[2], 0),
        max(target[0] - size[1] - padding[1] - padding[3], 0),
    ]
    total = [padding[0] + more[0], padding[1] + more[1], padding[2] + more[0], padding[3] + more[1]]
    padded = functional.pad(Image.fromarray(image), total, **how)
    expected = functional.crop(padded, int(params[1]) + total[1], int(params[0]) + total[0], *target)
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_random_crop_fills_gray_and_leaves_masks_zero() -> None:
    """A gray image is filled with the first number; a mask is padded with zeros whatever the image gets."""
    op = T.RandomCrop(3, 1, fill=9)
    params = np.array([-1, -1, 3, 3])
    gray = np.ones((2, 2), np.uint8)

    assert op.image(gray, params).tolist() == [[9, 9, 9], [9, 1, 1], [9, 1, 1]]
    assert op.mask(gray, params).tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_random_crop_reaches_every_place_alike() -> None:
    """Each of the possible corners is drawn about as often as the others."""
    drawn = windows(T.RandomCrop((6, 5)), 8, 10)

    _, counts = np.unique(drawn[:, :2], axis=0, return_counts=True)

    assert len(counts) == 4 * 5
    assert counts.min() > 4000 / 20 * 0.7
    assert counts.max() < 4000 / 20 * 1.3


def test_random_crop_names_the_image_it_does_not_fit() -> None:
    """An image smaller than the window is an error that says which, unless padding was asked for."""
    sizes = np.array([(30, 30), (30, 9)], np.int32)

    with pytest.raises(ArgumentError, match=r"30 x 9.*pad_if_needed") as caught:
        T.RandomCrop(10).draw(KEYS[:2], sizes, 0)

    assert caught.value.where["position"] == 1


def torchvisions_algorithm(op: T.RandomResizedCrop, width: int, height: int, numbers: Any) -> tuple[int, int, int, int]:
    """torchvision's ``RandomResizedCrop.get_params`` line by line, on given numbers; left, top, width, height."""
    area = height * width
    log_ratio = math.log(op.ratio[0]), math.log(op.ratio[1])
    for i in range(10):
        target_area = area * (op.scale[0] + numbers[2 + 2 * i] * (op.scale[1] - op.scale[0]))
        aspect_ratio = math.exp(log_ratio[0] + numbers[3 + 2 * i] * (log_ratio[1] - log_ratio[0]))
        w, h = round(math.sqrt(target_area * aspect_ratio)), round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(numbers[1] * (width - w + 1)), int(numbers[0] * (height - h + 1)), w, h
    in_ratio = float(width) / float(height)
    if in_ratio < min(op.ratio):
        w, h = width, max(1, round(width / min(op.ratio)))
    elif in_ratio > max(op.ratio):
        w, h = max(1, round(height * max(op.ratio))), height  # torchvision's window can be empty here
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


@given(size=st.tuples(st.integers(1, 700), st.integers(1, 700)), first=st.integers(0, 1 << 40))
@pytest.mark.parametrize("op", [T.RandomResizedCrop(8), T.RandomResizedCrop(8, (0.9, 1), (0.3, 0.4))], ids=repr)
def test_random_resized_crop_follows_the_algorithm(op: T.RandomResizedCrop, size: tuple[int, int], first: int) -> None:
    """Windows are those of torchvision's algorithm run on the sample's own numbers, and lie inside the image."""
    keys = SampleKeys(1, 2, np.arange(first, first + 20))

    found = windows(op, *size, keys=keys, stream=3)

    numbers = uniforms(keys, 3, 22).tolist()
    assert found.tolist() == [list(torchvisions_algorithm(op, *size, row)) for row in numbers]
    assert (found[:, :2] >= 0).all()
    assert (found[:, 2:] >= 1).all()
    assert (found[:, :2] + found[:, 2:] <= size).all()


def test_random_resized_crop_falls_back_to_the_centre() -> None:
    """Where no window of an allowed shape fits in ten tries, the largest central one is taken."""
    assert windows(T.RandomResizedCrop(8), 400, 10)[:3].tolist() == [[(400 - 13) // 2, 0, 13, 10]] * 3
    assert windows(T.RandomResizedCrop(8), 3, 400)[:3].tolist() == [[0, 198, 3, 4]] * 3
    assert windows(T.RandomResizedCrop(8, (5.0, 6.0)), 40, 40)[:3].tolist() == [[0, 0, 40, 40]] * 3


@pytest.mark.parametrize("size", [(500, 375), (333, 500), (120, 400)])
def test_random_resized_crop_has_torchvisions_distribution(size: tuple[int, int]) -> None:
    """Area, shape and place are distributed as torchvision's own draws (two-sample Kolmogorov-Smirnov, seeded)."""
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("torchvision.transforms").RandomResizedCrop
    torch.manual_seed(0)
    image = torch.empty(3, size[1], size[0])
    theirs = np.array([reference.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])[:, [1, 0, 3, 2]]

    ours = windows(T.RandomResizedCrop(224), *size)

    limit = 1.95 * math.sqrt(2 / 4000)  # p = 0.001
    for mine, its in zip(measures(ours, size), measures(theirs, size), strict=True):
        both = np.concatenate([mine, its])
        below = [np.searchsorted(np.sort(draws), both, side="right") for draws in (mine, its)]
        assert np.abs(below[0] - below[1]).max() / 4000 < limit


def measures(drawn: NDArray[np.int64], size: tuple[int, int]) -> list[NDArray[np.float64]]:
    """Area, shape and relative place of windows."""
    left, top, width, height = drawn.T.astype(np.float64)
    return [width * height, width / height, left / (size[0] - width + 1), top / (size[1] - height + 1)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.CenterCrop(0),
        lambda: T.CenterCrop((3, 4, 5)),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.RandomCrop(5, padding=-1),
        lambda: T.RandomCrop(5, padding=(1, 2, 3)),
        lambda: T.RandomCrop(5, fill=256),
        lambda: T.RandomCrop(5, fill=(1, 2)),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.RandomCrop(5, padding_mode="wrap"),
        lambda: T.RandomResizedCrop(5, scale=(1, 0.5)),
        lambda: T.RandomResizedCrop(5, ratio=(0, 1)),
        lambda: T.RandomResizedCrop(5, ratio=(1, math.inf)),
        lambda: T.RandomResizedCrop(5, filter="nearest"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """A size, range or filter that cannot mean anything is an ArgumentError at construction."""
    with pytest.raises(ArgumentError):
        make()


def test_crops_work_on_gray_and_float_arrays() -> None:
    """A window is a window of any HW or HWC array, of any dtype."""
    gray = np.arange(30, dtype=np.float32).reshape(5, 6)

    np.testing.assert_array_equal(T.CenterCrop(3).image(gray, np.array([1, 2, 3, 3])), gray[2:5, 1:4])
    assert T.CenterCrop(9).image(gray, np.array([-1, -2, 9, 9])).dtype == np.float32


@pytest.mark.parametrize("size", [1.5, "ab", (1,), (3, 4, 5), 0, (8, -1), None])
def test_a_size_that_is_none_is_refused(size: object) -> None:
    """A size is one int or two, positive; anything else is named in an ArgumentError."""
    with pytest.raises(ArgumentError, match="size must be an int"):
        T.CenterCrop(size)  # type: ignore[arg-type]  # as a user may get it wrong
