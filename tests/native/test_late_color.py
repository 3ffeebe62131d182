"""Late colour by its definition: libjpeg's planes, resized in double precision, then converted to RGB."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from tests.native.test_jpeg_exact import FACTORS, with_sampling
from tests.transforms.test_program import encoded

Floats = NDArray[np.float64]
Region = tuple[int, int, int, int]


def planes(file: bytes, scale: int = 1) -> list[Floats]:
    """Y, Cb and Cr of the full size by libjpeg, which upsamples chroma; of averages, which stand for their pixels."""
    image = Image.open(io.BytesIO(file))
    width, height = image.size
    image.draft("YCbCr", (width // scale, height // scale))
    assert image.mode == "YCbCr"
    assert image.size == (-(-width // scale), -(-height // scale))
    found = np.asarray(image, np.float64)
    if scale > 1:
        # libjpeg reduces the chroma of 4:2:0 by half as much; late colour by as much.
        chroma = found[..., 1:].reshape(image.size[1] // 2, 2, image.size[0] // 2, 2, 2).mean((1, 3))
        found[..., 1:] = chroma.repeat(2, 0).repeat(2, 1)
    found = found.repeat(scale, 0).repeat(scale, 1)[:height, :width]
    return [found[..., plane] for plane in range(3)]


def weights(length: int, size: int) -> Floats:
    """Those of the triangle filter, stretched, of each pixel for each one of the result."""
    stretch = length / size
    centres = (np.arange(size) + 0.5) * stretch
    found: Floats = np.maximum(1 - abs(np.arange(length) + 0.5 - centres[:, None]) / stretch, 0)
    found /= found.sum(1, keepdims=True)
    return found


def expected(found: Sequence[Floats], region: Region, size: tuple[int, int]) -> Floats:
    """A region of planes, resized, then converted to RGB by the formula of JFIF."""
    x0, y0, x1, y1 = region
    down, across = weights(y1 - y0, size[1]), weights(x1 - x0, size[0])
    y, cb, cr = (down @ plane[y0:y1, x0:x1] @ across.T for plane in found)
    cb, cr = cb - 128, cr - 128
    rgb = np.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], -1)
    clipped: Floats = rgb.clip(0, 255)
    return clipped


def resized(file: bytes, region: Region, size: tuple[int, int], **options: Any) -> Floats:
    """The same by the native core, with late colour."""
    width, height = size
    out = np.zeros((1, height, width, 3), np.uint8)
    geometry = np.array([[*region, *size, 0, 0, 0]], np.int32)
    options = {"filter": "bilinear", "late_color": True, **options}
    refused, *_ = _native.fill([file], geometry, out, np.zeros(1, np.int64), layout="HWC", **options)
    assert refused == []
    found: Floats = out[0].astype(np.float64)
    return found


def draw_region(rng: np.random.Generator, width: int, height: int) -> tuple[Region, tuple[int, int]]:
    """A region of an image, and a size that is smaller on an axis and larger on none."""
    x0, y0 = int(rng.integers(0, width - 1)), int(rng.integers(0, height - 1))
    x1, y1 = int(rng.integers(x0 + 2, width + 1)), int(rng.integers(y0 + 2, height + 1))
    return (x0, y0, x1, y1), (int(rng.integers(1, x1 - x0 + 1)), int(rng.integers(1, y1 - y0)))


@pytest.mark.parametrize("sampling", FACTORS)
@pytest.mark.usefixtures("level")
def test_the_result_is_the_planes_resized_then_converted(sampling: str) -> None:
    """For every sampling, size and region: libjpeg's planes, resized in double precision, within its rounding."""
    rng = np.random.default_rng(FACTORS[sampling])
    for seed in range(60):
        width, height = (int(side) for side in rng.integers(3, 120, 2))
        file = with_sampling(width, height, sampling, seed)
        region, size = draw_region(rng, width, height)

        found = resized(file, region, size)

        # libjpeg rounds upsampled chroma: half a level, times 1.772. A level is rounded at the end.
        assert abs(found - expected(planes(file), region, size)).max() < 1.5, (width, height, region, size)


def test_photographs_are_the_planes_resized_then_converted(photographs_dir: Path) -> None:
    """Every photograph, at its full size: within libjpeg's rounding."""
    rng = np.random.default_rng(0)
    for path in sorted(photographs_dir.glob("*/*.jpg")):
        file = path.read_bytes()
        with Image.open(path) as image:
            if image.mode != "RGB":
                continue
            region, _ = draw_region(rng, *image.size)
        size = (-(-(region[2] - region[0]) // 3), -(-(region[3] - region[1]) // 2))

        found = resized(file, region, size)

        assert abs(found - expected(planes(file), region, size)).max() < 1.5, path.name


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.usefixtures("level")
def test_averages_of_both_stand_for_their_pixels(scale: int) -> None:
    """At a smaller scale, chroma has the scale of luma: averages of averages of libjpeg's, within its rounding."""
    rng = np.random.default_rng(scale)
    for seed in range(20):
        width, height = (32 * int(side) for side in rng.integers(4, 9, 2))
        file = encoded(width, height, subsampling="4:2:0", quality=95, seed=seed)
        x0, y0 = (int(rng.integers(0, side // 4)) for side in (width, height))
        region = (x0, y0, int(rng.integers(3 * width // 4, width)), int(rng.integers(3 * height // 4, height)))
        size = ((region[2] - region[0]) // scale, (region[3] - region[1]) // scale)

        found = resized(file, region, size, quality=1.0)

        assert abs(found - expected(planes(file, scale), region, size)).max() < 2.6, (width, height, region)
        assert abs(found - resized(file, region, size)).max() > 3
