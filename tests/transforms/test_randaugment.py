"""RandAugment and TrivialAugmentWide: torchvision's ops, magnitudes and pixels."""

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
from penstock.transforms.ops.randaugment import SPACE
from penstock.transforms.ops.warp import WARP_FILTERS
from tests.transforms.pictures import KEYS, draws, pictures, same, torchvision

SIGNED = set(SPACE[1:10])


def magnitudes_drawn(op: T.Op, size: tuple[int, int]) -> dict[str, set[float]]:
    """All magnitudes that come with each op."""
    params = draws(op, size).reshape(-1, 2)
    return {name: set(params[params[:, 0] == place, 1].tolist()) for place, name in enumerate(SPACE)}


def agree(found: dict[str, set[float]], expected: dict[str, set[float]]) -> None:
    """The same magnitudes for each op, but for the last bit of float32 (torch's depends on the machine)."""
    assert list(found) == list(expected)
    for name in SPACE:
        assert len(found[name]) == len(expected[name]), name
        np.testing.assert_allclose(sorted(found[name]), sorted(expected[name]), rtol=1.3e-7, atol=0)


def expected_magnitudes(space: Any, chosen: slice) -> dict[str, set[float]]:
    """The magnitudes of torchvision's ``_augmentation_space``, with both signs where it has them."""
    expected = {}
    for name, (values, signed) in space.items():
        some = [float(v) for v in values[chosen]] if values.ndim else [0.0]
        expected[name] = {*some, *(-v for v in some)} if signed else set(some)
    return expected


@pytest.mark.parametrize(("magnitude", "bins"), [(0, 31), (9, 31), (15, 31), (30, 31), (1, 2), (4, 10)])
@pytest.mark.parametrize("size", [(300, 200), (1, 1), (331, 662)])
def test_magnitudes_of_randaugment_are_torchvisions(magnitude: int, bins: int, size: tuple[int, int]) -> None:
    """Each op comes with torchvision's magnitude for the image's size, with the signs it can have."""
    space = torchvision("torchvision.transforms").RandAugment()._augmentation_space(bins, size[::-1])

    found = magnitudes_drawn(T.RandAugment(1, magnitude, bins), size)

    agree(found, expected_magnitudes(space, slice(magnitude, magnitude + 1)))


@pytest.mark.parametrize("bins", [2, 10, 31])
def test_magnitudes_of_trivialaugment_are_torchvisions(bins: int) -> None:
    """Each op comes with all of torchvision's magnitudes and signs, and no other."""
    space = torchvision("torchvision.transforms").TrivialAugmentWide()._augmentation_space(bins)

    found = magnitudes_drawn(T.TrivialAugmentWide(bins), (30, 20))

    agree(found, expected_magnitudes(space, slice(None)))


@given(width=st.integers(1, 5000), height=st.integers(1, 5000), bins=st.integers(2, 40), place=st.integers(0, 39))
def test_translations_agree_for_any_size(width: int, height: int, bins: int, place: int) -> None:
    """Whole pixels of a translation are torchvision's for every size and bin (two roundings could part them)."""
    space = torchvision("torchvision.transforms").RandAugment()._augmentation_space(bins, (height, width))
    op = T.RandAugment(40, place % bins, bins)

    params = op.draw(KEYS[:1], np.array([(width, height)], np.int32), 0)[0].reshape(-1, 2)

    for name in ("TranslateX", "TranslateY"):
        for drawn in params[params[:, 0] == SPACE.index(name), 1]:
            assert int(abs(drawn)) == int(space[name][0][place % bins])


@pytest.mark.parametrize("filter", WARP_FILTERS)
@pytest.mark.parametrize("name", SPACE)
def test_each_op_is_torchvisions(name: str, filter: str) -> None:  # noqa: A002
    """The same op and magnitude give the same value in every pixel, from the weakest to the strongest."""
    module = torchvision("torchvision.transforms.autoaugment")
    mode = module.InterpolationMode(filter)
    wide = module.TrivialAugmentWide()._augmentation_space(7)[name][0]
    op = T.TrivialAugmentWide(filter=filter, fill=(3, 30, 250))
    for image in pictures():
        size = image.shape[:2]
        narrow = module.RandAugment()._augmentation_space(7, size)[name][0]
        strengths = {float(v) for values in (wide, narrow) for v in values.reshape(-1)}
        for strength in strengths | ({-v for v in strengths} if name in SIGNED else set()):
            expected = module._apply_op(Image.fromarray(image), name, strength, mode, [3, 30, 250])
            same(op.image(image, np.array([SPACE.index(name), strength])), expected)


def test_ops_run_one_after_another() -> None:
    """What RandAugment draws is applied in its order, as torchvision would."""
    module = torchvision("torchvision.transforms.autoaugment")
    op, image = T.RandAugment(4, 12), [*pictures()][-1]
    for params in draws(op, (image.shape[1], image.shape[0]), 60):
        expected = Image.fromarray(image)
        for place, magnitude in params.reshape(-1, 2).tolist():
            mode = module.InterpolationMode.NEAREST
            expected = module._apply_op(expected, SPACE[int(place)], magnitude, mode, None)
        same(op.image(image, params), expected)


@pytest.mark.parametrize("op", [T.RandAugment(3, 9), T.TrivialAugmentWide()], ids=repr)
def test_ops_are_equally_likely(op: T.Op) -> None:
    """Each of the 14 ops comes as often, at each place; signs are even; ops of one sample are independent."""
    params = draws(op, (30, 20))
    for column in range(0, params.shape[1], 2):
        counts = np.bincount(params[:, column].astype(int), minlength=len(SPACE))
        assert np.abs(counts - len(params) / len(SPACE)).max() <= 5 * np.sqrt(len(params) / len(SPACE))
        signed = params[np.isin(params[:, column], range(1, 10)) & (params[:, column + 1] != 0), column + 1]
        assert abs((signed < 0).mean() - 0.5) <= 2.5 / np.sqrt(len(signed))
    if params.shape[1] > 2:
        assert np.abs(np.corrcoef(params[:, 0::2], rowvar=False) - np.eye(params.shape[1] // 2)).max() < 0.05


@pytest.mark.parametrize("name", SPACE)
def test_photographs_are_torchvisions(name: str, photographs_dir: Path) -> None:
    """On photographs, each op at a weak and at a strong magnitude gives torchvision's value in every pixel."""
    module = torchvision("torchvision.transforms.autoaugment")
    strengths = (
        module.TrivialAugmentWide()._augmentation_space(31)[name][0].reshape(-1)[[3, -2][: 2 * (name in SIGNED)]]
    )
    op = T.TrivialAugmentWide(filter="bilinear")
    for path in sorted(photographs_dir.glob("*/*.jpg"))[3::11]:
        image = T.decode(path.read_bytes())
        for strength in strengths.tolist() or [4.0]:
            expected = module._apply_op(Image.fromarray(image), name, strength, module.InterpolationMode.BILINEAR, None)
            same(op.image(image, np.array([SPACE.index(name), strength])), expected)


def test_gray_images_are_augmented_too() -> None:
    """An HW image passes through every op and stays HW."""
    op, image = T.RandAugment(3), np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    for params in draws(op, (30, 20), 60):
        assert op.image(image, params).shape == (20, 30)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.RandAugment(0),
        lambda: T.RandAugment(2, 31),
        lambda: T.RandAugment(2, -1),
        lambda: T.RandAugment(2, 0, 1),
        lambda: T.RandAugment(2.5),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.RandAugment(filter="bicubic"),
        lambda: T.TrivialAugmentWide(1),
        lambda: T.TrivialAugmentWide(fill=-1),
        lambda: T.Pipeline([T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.RandAugment()]),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
