"""Posterize, Solarize, Equalize, AutoContrast, Invert: Pillow's pixels, and so torchvision's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms.ops import tone
from tests.transforms.pictures import draws, grays, pictures, same, torchvision

YES, NO = np.array(True), np.array(False)

CASES = [
    *((T.Posterize(bits), "posterize", (bits,)) for bits in range(1, 9)),
    *((T.Solarize(t), "solarize", (t,)) for t in (0, 0.5, 1, 127.9, 128, 255, 256, -3, 8.5 * 7)),
    (T.Equalize(), "equalize", ()),
    (T.AutoContrast(), "autocontrast", ()),
    (T.Invert(), "invert", ()),
]


@pytest.mark.parametrize(("op", "theirs", "settings"), CASES, ids=repr)
def test_tone_is_torchvisions(op: T.Op, theirs: str, settings: tuple[Any, ...]) -> None:
    """Every pixel is torchvision's, in colour and in gray; where the coin says no, the image itself comes back."""
    function = getattr(torchvision(), theirs)
    for image in (*pictures(), *grays()):
        before = image.copy()
        same(op.image(image, YES), function(Image.fromarray(image), *settings))
        assert op.image(image, NO) is image
        same(image, before)


@given(
    values=st.lists(st.integers(0, 255), min_size=1, max_size=8),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_histograms_of_few_values(values: list[int], width: int, height: int, seed: int) -> None:
    """Equalize and AutoContrast agree with Pillow whatever the histogram: few values, uneven, in small pictures."""
    functional = torchvision()
    chosen = np.random.default_rng(seed).choice(np.array(values, np.uint8), (height, width, 3))

    same(tone.equalize(chosen), functional.equalize(Image.fromarray(chosen)))
    same(tone.auto_contrast(chosen), functional.autocontrast(Image.fromarray(chosen)))


def test_stretching_agrees_for_every_pair_of_ends() -> None:
    """AutoContrast's table is Pillow's for each darkest and brightest value there can be."""
    functional = torchvision()
    for low in range(0, 256, 3):
        for high in range(low, 256, 5):
            image = np.arange(low, high + 1, dtype=np.uint8)[None]
            same(tone.auto_contrast(image), functional.autocontrast(Image.fromarray(image)))


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_ops_come_as_often_as_asked(p: float) -> None:
    """The share of samples changed is p, within four standard deviations."""
    for op in (T.Posterize(4, p), T.Solarize(9, p), T.Equalize(p), T.AutoContrast(p), T.Invert(p), T.Sharpness(2, p)):
        chosen = draws(op)
        assert abs(chosen.mean() - p) <= 4 * np.sqrt(p * (1 - p) / len(chosen))


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Posterize(0),
        lambda: T.Posterize(9),
        lambda: T.Posterize(3.5),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.Solarize(float("nan")),
        lambda: T.Solarize("bright"),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.Equalize(1.1),
        lambda: T.AutoContrast(-1),
        lambda: T.Invert(2),
        lambda: T.Invert(1).image(np.zeros((2, 2, 3), np.int16), YES),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
