"""Kernels of augmentation: at every level the pixels of the NumPy and Pillow specifications, on every pixel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.ops import blur, color, hsv, tone, warp
from penstock.transforms.pixel_arithmetic import Pixels

pytestmark = pytest.mark.usefixtures("level")

SPECIFIED: Final[Mapping[str, Callable[[Pixels, float], Pixels]]] = {
    "brightness": color.brighten,
    "contrast": color.contrast,
    "saturation": color.saturate,
    "hue": color.rotate_hue,
    "gray": lambda image, _: T.Grayscale().change(image),
    "posterize": lambda image, bits: tone.posterize(image, int(bits)),
    "solarize": tone.solarize,
    "invert": lambda image, _: tone.invert(image),
    "auto_contrast": lambda image, _: tone.auto_contrast(image),
    "equalize": lambda image, _: tone.equalize(image),
}

FACTORS: Final = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1.0001, 100.0, 1e30]), st.floats(0, 4))
VALUES: Final[Mapping[str, st.SearchStrategy[float]]] = {
    "brightness": FACTORS,
    "contrast": FACTORS,
    "saturation": FACTORS,
    "hue": st.floats(-0.5, 0.5),
    "posterize": st.integers(0, 8).map(float),
    "solarize": st.one_of(st.integers(-1, 257).map(float), st.floats(-10, 300)),
}

STEPS: Final = st.sampled_from(sorted(SPECIFIED)).flatmap(
    lambda name: st.tuples(st.just(name), VALUES.get(name, st.just(0.0)))
)


@st.composite
def pictures(draw: st.DrawFn) -> Pixels:
    """Of 1 to 70 pixels a side, in colour or gray: noise, black and white, few levels, one level, or a ramp."""
    height, width = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    shape = (height, width, 3) if draw(st.booleans()) else (height, width)
    noise = np.random.default_rng(draw(st.integers(0, 99)))
    match draw(st.sampled_from(["noise", "extremes", "few", "flat", "ramp"])):
        case "noise":
            return noise.integers(0, 256, shape, np.uint8)
        case "extremes":
            return noise.choice(np.array([0, 255], np.uint8), shape)
        case "few":
            return noise.integers(100, 104, shape, np.uint8)
        case "flat":
            return np.full(shape, noise.integers(0, 256, shape[2:], np.uint8))
        case _:
            return (np.arange(np.prod(shape)).reshape(shape) * 3 % 256).astype(np.uint8)


def equal(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Every pixel, the shape and the dtype."""
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(image=pictures(), step=STEPS)
def test_each_step_is_the_specification(image: Pixels, step: tuple[str, float]) -> None:
    """A step changes a picture as NumPy or Pillow does, and leaves the picture itself alone."""
    before = image.copy()

    found = _native.adjust(image, [step])

    equal(found, SPECIFIED[step[0]](image, step[1]))
    equal(image, before)


@given(image=pictures(), steps=st.lists(STEPS, max_size=7))
def test_steps_in_one_go_are_steps_one_after_another(image: Pixels, steps: list[tuple[str, float]]) -> None:
    """Merging steps changes no rounding: the result is that of each applied to a whole picture."""
    expected = image
    for name, value in steps:
        expected = SPECIFIED[name](expected, value)

    found = _native.adjust(image, steps)

    equal(found, expected)


@pytest.mark.parametrize("size", [(1024, 1), (1, 1025), (40, 77), (224, 224), (375, 500)])
def test_blocks_do_not_show(size: tuple[int, int]) -> None:
    """Pictures that end in the middle of a block, at its end and just behind it are adjusted alike."""
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    steps = [("equalize", 0.0), ("contrast", 1.4), ("hue", 0.2), ("auto_contrast", 0.0), ("saturation", 0.3)]
    expected = image
    for name, value in steps:
        expected = SPECIFIED[name](expected, value)

    found = _native.adjust(image, steps)

    equal(found, expected)


@pytest.mark.parametrize("turns", [0.0, 0.13])
def test_hue_of_every_colour(turns: float) -> None:
    """All 16,777,216 colours come back as Pillow has them, and from a turned hue those of every third red."""
    green, blue = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    for red in range(0, 256, 3 if turns else 1):
        image = np.stack([np.full_like(green, red), green, blue], axis=-1)

        found = _native.adjust(image, [("hue", turns)])

        equal(found, color.rotate_hue(image, turns))


@given(image=pictures(), turns=st.floats(-3, 3), saturation=FACTORS, value=FACTORS)
def test_shifted_colours_are_numpys(image: Pixels, turns: float, saturation: float, value: float) -> None:
    """Any change of hue, saturation and value has the bits of the specification."""
    equal(_native.shift_hsv(image, turns, saturation, value), hsv.shift_hsv(image, turns, saturation, value))


@pytest.mark.parametrize("factor", [0.0, 0.6, 1.7])
def test_luma_and_saturation_of_every_colour(factor: float) -> None:
    """In steps of three levels each, all colours have Pillow's luma and are blended with it as Pillow does."""
    levels = np.arange(0, 256, 3, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 86, 3)

    gray, saturated = _native.adjust(image, [("gray", 0)]), _native.adjust(image, [("saturation", factor)])

    equal(gray, T.Grayscale().change(image))
    equal(saturated, color.saturate(image, factor))


@given(image=pictures(), factor=FACTORS)
def test_sharpening_is_the_specification(image: Pixels, factor: float) -> None:
    """Any factor, on pictures smaller than the kernel too."""
    found = _native.sharpen(image, factor)

    equal(found, blur.sharpen(image, factor))


@given(
    image=pictures(),
    kernel=st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda half: (2 * half[0] + 1, 2 * half[1] + 1)),
    sigma=st.floats(0.05, 30),
    floats=st.booleans(),
)
def test_blur_is_the_specification(image: Pixels, kernel: tuple[int, int], sigma: float, floats: bool) -> None:
    """Any kernel, wider than the picture too, in levels and in floats: the same sums in the same order."""
    op, source = T.GaussianBlur(kernel, sigma), image / np.float32(255) if floats else image

    found = op.native(source, np.array([sigma]))

    equal(found, op.image(source, np.array([sigma])))


ANGLES: Final = st.one_of(st.sampled_from([0.01, 45.0, 90.0, 180.0, -90.0]), st.floats(-180, 180))


@given(
    image=pictures(),
    angle=ANGLES,
    shift=st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    scale=st.one_of(st.just(1.0), st.floats(1e-4, 8)),
    shear=st.tuples(st.floats(-89, 89), st.floats(-89, 89)),
    sampling=st.sampled_from(warp.WARP_FILTERS),
)
def test_affine_warps_are_pillows(
    image: Pixels,
    angle: float,
    shift: tuple[int, int],
    scale: float,
    shear: tuple[float, float],
    sampling: str,
) -> None:
    """Any affine map, also where fixed point does not reach; of a gray picture the first fill is its fill."""
    size, fill = (image.shape[1], image.shape[0]), (9, 77, 200)
    middle = (size[0] * 0.5, size[1] * 0.5)
    maps = [
        warp.affine_matrix(middle, angle, shift, scale, shear),
        warp.affine_matrix(middle, 0.0, shift, scale, (0.0, 0.0)),
        warp.rotation_matrix(angle, size),
    ]

    for matrix in maps:
        if matrix is not None:
            equal(_native.warp(image, matrix, sampling, fill), warp._transform(image, matrix, sampling, fill))


def specified_window(image: Pixels, matrix: warp.Matrix, size: tuple[int, int], fill: tuple[int, int, int]) -> Pixels:
    """A window on a warped picture: positions in double precision, weights and sums in single precision."""
    height, width = image.shape[:2]
    u, v = np.arange(size[0])[None] + 0.5, np.arange(size[1])[:, None] + 0.5
    x = matrix[0] * u + matrix[1] * v + matrix[2]
    y = matrix[3] * u + matrix[4] * v + matrix[5]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    x, y = np.where(inside, x, 0) - 0.5, np.where(inside, y, 0) - 0.5
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    across, down = ((position - np.floor(position)).astype(np.float32)[:, :, None] for position in (x, y))
    columns = [np.clip(left + i, 0, width - 1) for i in range(2)]
    rows = [np.clip(top + i, 0, height - 1) for i in range(2)]
    values = [[image[row, column].astype(np.float32) for column in columns] for row in rows]
    upper, lower = (first + (second - first) * across for first, second in values)
    mixed = (upper + (lower - upper) * down).astype(np.uint8)
    return np.where(inside[:, :, None], mixed, np.array(fill, np.uint8))


@given(
    image=pictures(),
    size=st.tuples(st.integers(1, 50), st.integers(1, 9)),
    angle=st.one_of(st.sampled_from([0.0, 90.0]), st.floats(-400, 400)),
    shift=st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    scale=st.one_of(st.just(1.0), st.floats(1e-4, 8)),
    shear=st.tuples(st.sampled_from([0.0, 30.0]), st.sampled_from([0.0, -20.0])),
    mirrored=st.booleans(),
)
def test_windows_are_numpys(
    image: Pixels,
    size: tuple[int, int],
    angle: float,
    shift: tuple[int, int],
    scale: float,
    shear: tuple[float, float],
    mirrored: bool,
) -> None:
    """Windows of any size have the bits of the specification, and at most one level from those of the warp."""
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    middle, fill = (image.shape[1] * 0.5, image.shape[0] * 0.5), (9, 77, 200)
    a, b, c, d, e, f = warp.affine_matrix(middle, angle, shift, scale, shear)
    matrix = (-a, b, c + 2 * a * middle[0], -d, e, f + 2 * d * middle[0]) if mirrored else (a, b, c, d, e, f)

    found = _native.warp_window(image, matrix, size, fill)
    whole = _native.warp_window(image, matrix, (image.shape[1], image.shape[0]), fill)

    expected = specified_window(image, matrix, size, fill)
    equal(found, expected)
    for change in (None, (0.1, 1.3, 0.8)):
        shifted = expected if change is None else hsv.shift_hsv(expected, *change)
        equal(_native.warp_window(image, matrix, size, fill, "HWC", change), shifted)
        planes = _native.warp_window(image, matrix, size, fill, "CHW", change)
        equal(planes, np.ascontiguousarray(shifted.transpose(2, 0, 1)))
    assert np.abs(whole.astype(int) - _native.warp(image, matrix, "bilinear", fill)).max() <= 1


@given(image=pictures(), seed=st.integers(0, 500), sampling=st.sampled_from(warp.WARP_FILTERS))
def test_projective_warps_are_pillows(image: Pixels, seed: int, sampling: str) -> None:
    """Tilts as they are drawn, and maps whose horizon lies in the picture."""
    op, size = T.RandomPerspective(1.0, 1.0), (image.shape[1], image.shape[0])
    drawn = op.matrix(op.draw(SampleKeys(seed, 0, np.arange(1)), np.array([size], np.int32), 0)[0], size)
    horizon = np.random.default_rng(seed).uniform(-0.1, 0.1, 2).tolist()
    fill = (1, 2, 250)

    for matrix in (drawn, (1.1, 0.2, -3.0, -0.1, 0.9, 2.0, *horizon)):
        if matrix is not None:
            equal(_native.warp(image, matrix, sampling, fill), warp._transform(image, matrix, sampling, fill))


@pytest.mark.parametrize("op", [T.RandAugment(4, 14), T.RandAugment(2, filter="bilinear"), T.TrivialAugmentWide()])
def test_augments_give_the_pixels_they_gave(op: T.Op) -> None:
    """Over many seeds, what the kernels make of drawn ops is what Pillow and NumPy make of them one by one."""
    for seed in range(150):
        noise = np.random.default_rng(seed)
        width, height = noise.integers(1, 71, 2).tolist()
        image = noise.integers(0, 256, (height, width, 3), np.uint8)
        params = op.draw(SampleKeys(seed, 1, np.arange(3)), np.array([[width, height]] * 3, np.int32), 2)

        for row in params:
            equal(op.native(image, row), op.image(image, row))


@pytest.mark.parametrize("shape", [(1, 5), (2, 3, 7, 5), (5, 1), (9, 3, 224, 224), (3, 0)])
def test_mixing_is_numpys(shape: tuple[int, ...]) -> None:
    """A batch mixed with itself moved by one has NumPy's float32 in every place, in and beyond the cache."""
    images = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = np.full(shape, np.nan, np.float32)

    _native.mix(images, 0.3, 1 - 0.3, out)

    equal(out, np.roll(images, 1, axis=0) * (1 - 0.3) + images * 0.3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda image: _native.adjust(image, [("sharpness", 1.0)]), "there is no step"),
        (lambda image: _native.adjust(image, [("posterize", 9.0)]), "there is no step"),
        (lambda image: _native.adjust(image, [("hue", float("nan"))]), "finite"),
        (lambda image: _native.adjust(image[:, :, :2].copy(), []), "shape"),
        (lambda image: _native.adjust(image[:, ::2], []), "contiguous"),
        (lambda image: _native.shift_hsv(image, 0.0, float("inf"), 1.0), "finite"),
        (lambda image: _native.sharpen(image, float("inf")), "finite"),
        (lambda image: _native.warp(image, [1.0] * 7, "nearest", (0, 0, 0)), "7"),
        (lambda image: _native.warp(image, [1.0] * 6, "bicubic", (0, 0, 0)), "bicubic"),
        (lambda image: _native.warp_window(image[:, :, 0].copy(), [1.0] * 6, (2, 2), (0, 0, 0)), "three channels"),
        (lambda image: _native.warp_window(image, [1.0] * 6, (0, 2), (0, 0, 0)), "at least 1 x 1"),
        (lambda image: _native.warp_window(image, [1.0] * 6, (2, 2), (0, 0, 0), "WHC"), "HWC, CHW"),
        (lambda image: _native.warp_window(image, [1.0] * 6, (2, 2), (0, 0, 0), "HWC", (np.nan, 1, 1)), "finite"),
        (lambda image: _native.warp_window(image, [1.0] * 7, (2, 2), (0, 0, 0)), "length 6"),
        (lambda image: _native.blur(image, np.ones(2, np.float32), np.ones(1, np.float32)), "odd"),
        (lambda image: _native.blur(image, np.full(3, np.inf, np.float32), np.ones(1, np.float32)), "finite"),
        (lambda _: _native.mix(np.zeros((2, 3), np.float32), 0.5, 0.5, np.zeros(5, np.float32)), "elements"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call: Callable[[Pixels], object], said: str) -> None:
    """What is not a picture, a step, a map or a batch is a ValueError that says so."""
    with pytest.raises(ValueError, match=said):
        call(np.zeros((4, 6, 3), np.uint8))


def test_a_batch_is_not_mixed_into_itself() -> None:
    """Memory that is read is not written to."""
    images = np.zeros((4, 3), np.float32)

    with pytest.raises(ValueError, match="must not overlap"):
        _native.mix(images[1:], 0.5, 0.5, images[:3])


@pytest.mark.parametrize("matrix", [[np.nan] * 6, [np.inf] * 8, [1e300] * 6, [-1e300, 0, 0, 0, 1e300, 0], [0.0] * 8])
@pytest.mark.parametrize("sampling", warp.WARP_FILTERS)
def test_maps_to_nowhere_read_nothing(matrix: list[float], sampling: str) -> None:
    """Maps without sense give some picture of the same size, from pixels of the source or the fill."""
    image = np.random.default_rng(0).integers(1, 5, (20, 30, 3), np.uint8)

    found = _native.warp(image, matrix, sampling, (0, 0, 0))

    assert found.shape == image.shape
    assert found.max() < 5


def test_empty_pictures_stay_empty() -> None:
    """No rows or no columns are no trouble."""
    for shape in [(0, 5, 3), (5, 0, 3), (0, 0)]:
        image, weights = np.zeros(shape, np.uint8), np.ones(3, np.float32)

        assert _native.adjust(image, [("contrast", 2.0), ("equalize", 0.0)]).shape == shape
        assert _native.sharpen(image, 2.0).shape == shape
        assert _native.blur(image, weights, weights).shape == shape
        assert _native.warp(image, [1.0, 0.1, 0, 0, 1, 0], "bilinear", (0, 0, 0)).shape == shape


def test_pillow_reads_the_same_pixels() -> None:
    """The oracle is Pillow itself, not a copy of it: a picture turned by the native core is the one Pillow turns."""
    image = np.random.default_rng(3).integers(0, 256, (40, 60, 3), np.uint8)

    found = T.RandomRotation(0, "bilinear").native(image, np.array([33.0]))

    equal(found, np.array(Image.fromarray(image).rotate(33.0, Image.Resampling.BILINEAR)))
