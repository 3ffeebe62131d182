"""ColorJitter and Grayscale: torchvision's pixels on PIL images, its ranges and its random order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms import pixel_arithmetic as pixels
from penstock.transforms.ops import color
from tests.transforms.pictures import draws, grays, is_uniform, pictures, same, torchvision

FACTORS = (0.0, 0.3, 0.75, 1.0, 1.0001, 1.5, 3.7, 100.0)
TURNS = (-0.5, -0.25, -0.003, 0.0, 0.01, 0.1, 0.33, 0.5)
STEPS = ("adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue")


@pytest.mark.parametrize(
    ("ours", "theirs", "factors"),
    [
        (color.brighten, "adjust_brightness", FACTORS),
        (color.contrast, "adjust_contrast", FACTORS),
        (color.saturate, "adjust_saturation", FACTORS),
        (color.rotate_hue, "adjust_hue", TURNS),
    ],
)
def test_each_step_is_torchvisions_on_pil(ours: Any, theirs: str, factors: tuple[float, ...]) -> None:
    """The same factor gives the same value in every pixel, in colour and in gray."""
    function = getattr(torchvision(), theirs)
    for image, factor in itertools.product([*pictures(), *grays()], factors):
        same(ours(image, factor), function(Image.fromarray(image), factor))


@pytest.mark.parametrize(
    ("ours", "theirs", "worst"),
    [(color.brighten, "adjust_brightness", 1), (color.saturate, "adjust_saturation", 2)],
)
def test_steps_are_near_torchvisions_on_tensors(ours: Any, theirs: str, worst: int) -> None:
    """On tensors torchvision rounds the luma otherwise: for factors up to 1.5 a value differs by that at most."""
    torch = pytest.importorskip("torch")
    function = getattr(torchvision("torchvision.transforms.v2.functional"), theirs)
    for image, factor in itertools.product(pictures(), (0.5, 0.75, 1.25, 1.5)):
        expected = function(torch.from_numpy(image).permute(2, 0, 1), factor).permute(1, 2, 0).numpy()
        assert np.abs(ours(image, factor).astype(int) - expected).max() <= worst


def test_steps_run_in_the_drawn_order() -> None:
    """Params hold the factors of the four steps and their order; the steps run in it, on every order there is."""
    functional = torchvision()
    op, image = T.ColorJitter(0.5, 0.5, 0.5, 0.2), [*pictures()][-1]
    factors = (1.3, 0.6, 1.4, 0.15)
    results = set()
    for order in itertools.permutations(range(4)):
        expected = Image.fromarray(image)
        for step in order:
            expected = getattr(functional, STEPS[step])(expected, factors[step])
        found = op.image(image, np.array([*factors, *order], np.float64))
        same(found, expected)
        results.add(found.tobytes())
    assert len(results) > 12


def test_factors_are_uniform_and_orders_equally_likely() -> None:
    """Factors fill torchvision's ranges evenly, independently of the order; each of the 24 orders is as likely."""
    params = draws(T.ColorJitter(0.4, (0.2, 3), 1.5, (-0.1, 0.3)))

    for column, (least, most) in enumerate([(0.6, 1.4), (0.2, 3), (0, 2.5), (-0.1, 0.3)]):
        is_uniform(params[:, column], least, most)
    orders, counts = np.unique(params[:, 4:], axis=0, return_counts=True)
    assert len(orders) == 24
    assert np.abs(counts - len(params) / 24).max() <= 5 * np.sqrt(len(params) / 24)
    correlation = np.corrcoef(params, rowvar=False)
    assert np.abs(correlation[:4, 4:]).max() < 0.05


def test_ranges_are_torchvisions() -> None:
    """One number, a pair and nothing mean what they mean to torchvision."""
    transforms = torchvision("torchvision.transforms")
    for given in ((0, 0, 0, 0), (0.4, 2, (0.5, 0.5), 0.5), ((0, 1), (1, 1), 0.1, (-0.2, 0.0))):
        ours, theirs = T.ColorJitter(*given), transforms.ColorJitter(*given)
        for name in ("brightness", "contrast", "saturation", "hue"):
            assert getattr(ours, name) == getattr(theirs, name)


def test_numpys_numbers_are_numbers() -> None:
    """One number of NumPy's means what one of Python's does, in every op that takes ranges."""
    scalars: Any = (np.int64(1), np.float32(0.5), np.uint8(3))
    one, half, three = scalars

    assert repr(T.ColorJitter(one, half, half, half)) == repr(T.ColorJitter(1, 0.5, 0.5, 0.5))
    assert repr(T.RandomRotation(one)) == repr(T.RandomRotation(1))
    assert repr(T.RandomAffine(half, shear=one, fill=three)) == repr(T.RandomAffine(0.5, shear=1, fill=3))
    assert repr(T.GaussianBlur(three, half)) == repr(T.GaussianBlur(3, 0.5))
    assert repr(T.Pad(three)) == repr(T.Pad(3))


def test_steps_left_out_leave_the_image() -> None:
    """A jitter of nothing returns the image; without hue nothing passes through HSV."""
    image = next(pictures())
    nothing, no_hue = T.ColorJitter(), T.ColorJitter(brightness=(1, 1.0001))

    assert nothing.image(image, draws(nothing, count=1)[0]) is image
    same(no_hue.image(image, np.array([1.0, 1, 1, 0, 3, 2, 1, 0])), image)


def test_grayscale_is_torchvisions() -> None:
    """Luma of every colour is Pillow's: all reds, greens and blues in steps of 5, and the pictures."""
    functional = torchvision()
    levels = np.arange(0, 256, 5, dtype=np.uint8)
    every = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 52, 3)

    for image in (every, *pictures()):
        same(T.Grayscale().image(image, np.array(True)), functional.to_grayscale(Image.fromarray(image), 3))
        same(T.Grayscale(1).image(image, np.array(True)), functional.to_grayscale(Image.fromarray(image), 1))


def test_gray_images_stay() -> None:
    """An HW array is gray already."""
    for image in grays():
        same(T.Grayscale().image(image, np.array(True)), image)
        same(pixels.luma(image), image)


def test_one_channel_reaches_the_batch() -> None:
    """With one channel, ToLayout gives (1, H, W)."""
    image = [*pictures()][4]

    found = T.Pipeline([T.Grayscale(1), T.ToLayout("CHW", "uint8")])(image)

    same(found, pixels.luma(image)[None])


def test_grayscale_comes_as_often_as_asked() -> None:
    """The share of gray samples is p, within four standard deviations."""
    chosen = draws(T.Grayscale(p=0.2))

    assert abs(chosen.mean() - 0.2) <= 4 * np.sqrt(0.16 / len(chosen))


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.ColorJitter(-0.1),
        lambda: T.ColorJitter((1.5, 0.5)),
        lambda: T.ColorJitter(contrast=(-0.1, 1)),
        lambda: T.ColorJitter(saturation=(1, 2, 3)),
        lambda: T.ColorJitter(saturation=float("nan")),
        lambda: T.ColorJitter(hue=0.6),
        lambda: T.ColorJitter(hue=(-0.6, 0)),
        lambda: T.Grayscale(2),
        lambda: T.Grayscale(1, p=0.5),
        lambda: T.Grayscale(p=-0.1),
        lambda: T.Pipeline([T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ColorJitter(0.1)]),
        lambda: T.Pipeline([T.ToLayout(), T.Grayscale()]),
        lambda: T.ColorJitter(0.1).image(np.zeros((4, 4, 3), np.float32), np.ones(8)),
        lambda: T.Grayscale().image(np.zeros((4, 4, 4), np.uint8), np.array(True)),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Ranges, images and places in a pipeline that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
