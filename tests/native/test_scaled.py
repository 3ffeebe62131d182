"""Decoding at a half, a quarter and an eighth: libjpeg's pixels, and a resize that samples the same places."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from tests.native.test_jpeg_exact import FACTORS, with_sampling

Jpeg = Callable[..., bytes]
Region = tuple[int, int, int, int]

SCALES = (1, 2, 4, 8)
FILTERS = {"box": 1, "bilinear": 1, "bicubic": 0, "lanczos": 0}  # and levels that the resize may differ from Pillow's


def drafted(file: bytes, scale: int, mode: str = "RGB") -> NDArray[np.uint8]:
    """The reference: Pillow's draft mode, which is libjpeg's scaled inverse DCT. "L": its grayscale output."""
    image = Image.open(io.BytesIO(file))
    width, height = image.size
    image.draft(mode, (width // scale, height // scale))
    assert image.size == (-(-width // scale), -(-height // scale))
    return np.asarray(image.convert(mode))


def outward(region: Region, scale: int) -> tuple[slice, slice]:
    """Rows and columns of the samples that hold a region."""
    x0, y0, x1, y1 = region
    return slice(y0 // scale, -(-y1 // scale)), slice(x0 // scale, -(-x1 // scale))


def any_region(width: int, height: int, rng: random.Random) -> Region:
    """A region of a picture of that size."""
    x0, y0 = rng.randrange(width), rng.randrange(height)
    return x0, y0, rng.randint(x0 + 1, width), rng.randint(y0 + 1, height)


def assert_exact(file: bytes, regions: int, rng: random.Random, name: str = "") -> None:
    """At every scale, the whole picture and regions of it are libjpeg's, in colour and as the stored luma."""
    width, height = _native.sizes([file])[0].tolist()
    modes = {"RGB": "RGB", "Y": "L"} if _native.inspect(file)["color"] in {"ycbcr", "gray"} else {"RGB": "RGB"}
    for scale, mode in itertools.product(SCALES, modes):
        expected = drafted(file, scale, modes[mode])
        whole = _native.decode(file, scale=scale, mode=mode)
        np.testing.assert_array_equal(whole, expected, err_msg=f"{name} {mode} 1/{scale}")
        for _ in range(regions):
            region = any_region(width, height, rng)
            part = _native.decode(file, region, scale=scale, mode=mode)
            what = f"{name} {mode} {region} 1/{scale}"
            np.testing.assert_array_equal(part, expected[outward(region, scale)], err_msg=what)


def filled(file: bytes, geometry: list[int], filter: str, quality: float | None) -> NDArray[np.uint8]:  # noqa: A002  # Pillow's word
    """One uint8 HWC row as large as the geometry's size."""
    out = np.zeros((1, geometry[5], geometry[4], 3), np.uint8)
    plan = np.array([geometry], np.int32)
    failures, *_ = _native.fill([file], plan, out, np.zeros(1, np.int64), layout="HWC", filter=filter, quality=quality)
    assert not failures
    row: NDArray[np.uint8] = out[0]
    return row


def enough(region: Region, size: tuple[int, int], quality: float) -> int:
    """The specification of the choice: the largest reduction that leaves ``quality`` samples for each pixel."""
    x0, y0, x1, y1 = region
    fits = [s for s in SCALES if x1 - x0 >= s * quality * size[0] and y1 - y0 >= s * quality * size[1]]
    return max(fits, default=1)


def resized(file: bytes, region: Region, size: tuple[int, int], filter: str, scale: int) -> NDArray[np.uint8]:  # noqa: A002  # Pillow's word
    """The specification of the result: each pixel replaced by the sample that covers it, cropped, resized by Pillow."""
    x0, y0, x1, y1 = region
    pixels = _native.decode(file, scale=scale).repeat(scale, axis=0).repeat(scale, axis=1)[y0:y1, x0:x1]
    return np.asarray(Image.fromarray(pixels).resize(size, getattr(Image.Resampling, filter.upper())))


def assert_specified(file: bytes, rng: random.Random, most: int, name: str = "") -> int:
    """A random crop, size, filter and quality give what the specification says; tells the scale."""
    width, height = _native.sizes([file])[0].tolist()
    region = any_region(width, height, rng)
    size = rng.randint(1, most), rng.randint(1, most)
    filter_, quality = rng.choice(list(FILTERS)), rng.choice([1.0, 1.3, 2.0, 3.0])
    scale = enough(region, size, quality)

    found = filled(file, [*region, *size, 0, 0, 0], filter_, quality)

    expected = resized(file, region, size, filter_, scale).astype(int)
    assert abs(found - expected).max() <= FILTERS[filter_], f"{name} {region} {size} {filter_} {quality} 1/{scale}"
    return scale


def test_photographs_are_libjpegs(photographs_dir: Path) -> None:
    """Every photograph decodes at every scale as with libjpeg: whole, and two regions of each."""
    rng = random.Random(photographs_dir.name)
    files = sorted(photographs_dir.glob("*/*.jpg"))

    for path in files:
        if _native.inspect(file := path.read_bytes())["native"]:
            assert_exact(file, 2, rng, path.name)


@pytest.mark.parametrize("sampling", FACTORS)
@pytest.mark.usefixtures("level")
def test_every_sampling_is_libjpegs_at_every_small_size(sampling: str) -> None:
    """Pictures of 8 to 50 pixels a side (below, Pillow cannot ask for an eighth): edges of blocks, MCUs and filters."""
    rng = random.Random(sampling)

    for width in range(8, 50):
        for height in rng.sample(range(8, 50), 4):
            assert_exact(with_sampling(width, height, sampling, width), 2, rng, f"{width} x {height}")


@given(
    st.integers(8, 90),
    st.integers(8, 90),
    st.sampled_from([0, 1, 2, "gray", "rgb"]),
    st.integers(1, 100),
    st.integers(0, 30),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_what_pillow_writes_is_libjpegs(
    jpeg: Jpeg,
    width: int,
    height: int,
    kind: int | str,
    quality: int,
    restart: int,
    progressive: bool,
    rng: random.Random,
) -> None:
    """Any size, quality, sampling, colour space and restart interval; progressive, too."""
    kinds: dict[int | str, dict[str, Any]] = {"gray": {"gray": True}, "rgb": {"keep_rgb": True, "subsampling": 0}}
    save = {"quality": quality, "progressive": progressive, **kinds.get(kind, {"subsampling": kind})}
    try:
        file = jpeg(width, height, seed=quality, restart_marker_blocks=restart, **save)
    except OSError:  # Pillow's buffer is too small for very small files of high quality
        return

    assert_exact(file, 2, rng)


@pytest.mark.parametrize("largest", [300, 3000, 32767])
@pytest.mark.usefixtures("level")
def test_coefficients_out_of_range_wrap_as_libjpegs(jpeg: Jpeg, largest: int) -> None:
    """Quantisation tables that no encoder writes overflow 16 bits in the same places as in libjpeg-turbo."""
    file = bytearray(jpeg(64, 64, subsampling=2, quality=30, qtables=[[255] * 64, [255] * 64]))
    rng = np.random.default_rng(largest)
    at = file.index(b"\xff\xdb")
    assert file[at + 2 : at + 5] == b"\x00\x43\x00"  # 8 bits each: rewritten as 16
    wide = bytearray()
    for table in range(2):
        values = rng.integers(1, largest, 64, endpoint=True).astype(">u2").tobytes()
        wide += b"\xff\xdb\x00\x83" + bytes([0x10 | table]) + values
    end = file.index(b"\xff\xc0")
    file[at:end] = wide

    assert_exact(bytes(file), 2, random.Random(largest), f"tables up to {largest}")


def test_a_picture_smaller_than_the_scale_is_one_sample(jpeg: Jpeg) -> None:
    """The size is rounded up: 5 x 3 pixels at an eighth are one sample, of about their mean."""
    file = jpeg(5, 3, subsampling=0, quality=95)

    found = _native.decode(file, scale=8)

    assert found.shape == (1, 1, 3)
    blocks = _native.decode(file).mean(axis=(0, 1))
    assert abs(found[0, 0] - blocks).max() < 60  # the rest of the block is the encoder's padding


@pytest.mark.parametrize("scale", [0, 3, 16])
def test_other_scales_are_refused(jpeg: Jpeg, scale: int) -> None:
    """The scale is 1, 2, 4 or 8."""
    with pytest.raises(ValueError, match=f"scale must be 1, 2, 4 or 8, got {scale}"):
        _native.decode(jpeg(16, 16), scale=scale)


@pytest.mark.usefixtures("level")
def test_fills_are_resizes_of_the_samples(jpeg: Jpeg) -> None:
    """Any crop, size, filter and quality: the full-size picture with each pixel replaced by its sample, resized."""
    rng = random.Random(5)
    scales = set()
    for seed in range(12):
        file = jpeg(rng.randint(100, 400), rng.randint(100, 400), seed=seed, subsampling=seed % 3)
        scales |= {assert_specified(file, rng, 40) for _ in range(25)}

    assert scales == set(SCALES)


def test_fills_of_photographs_are_resizes_of_the_samples(photographs_dir: Path) -> None:
    """The same of real pictures."""
    rng = random.Random(6)
    for path in sorted(photographs_dir.glob("*/*.jpg")):
        if _native.inspect(file := path.read_bytes())["native"]:
            assert_specified(file, rng, 120, path.name)


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize("quality", [1.0, 2.0])
def test_ramps_keep_their_place(filter_: str, quality: float) -> None:
    """A picture whose level is its column comes out where decode-then-resize puts it, not half a sample beside."""
    levels = np.broadcast_to(np.arange(240, dtype=np.uint8)[None, :, None], (240, 240, 3))
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(levels)).save(file, "JPEG", quality=100, subsampling=0)
    rng = random.Random(7)
    differences = []
    for _ in range(40):
        x0, y0 = rng.randrange(60), rng.randrange(60)
        region = [x0, y0, rng.randint(x0 + 120, 240), rng.randint(y0 + 120, 240)]
        geometry = [*region, rng.randint(5, 30), rng.randint(5, 30), 0, 0, 0]

        scaled = filled(file.getvalue(), geometry, filter_, quality).astype(int)

        full = filled(file.getvalue(), geometry, filter_, None)
        assert abs(scaled - full).max() <= 2, f"{geometry}"
        differences.append((scaled - full).mean())
    assert abs(np.mean(differences)) < 0.25  # half a sample would be half a level or more


def test_windows_of_scaled_fills_are_crops(jpeg: Jpeg) -> None:
    """A window of the resized picture equals the resized picture, cropped, also where it decodes less."""
    file = jpeg(333, 257, subsampling=2)
    whole = filled(file, [3, 5, 330, 250, 60, 50, 0, 0, 0], "bilinear", 2.0)
    out = np.zeros((1, 20, 30, 3), np.uint8)
    plan = np.array([[3, 5, 330, 250, 60, 50, 17, 11, 0]], np.int32)

    _native.fill([file], plan, out, np.zeros(1, np.int64), layout="HWC", filter="bilinear", quality=2.0)

    np.testing.assert_array_equal(out[0], whole[11:31, 17:47])


@pytest.mark.parametrize("quality", [0.5, float("nan"), float("inf"), -1.0])
def test_senseless_qualities_are_refused(jpeg: Jpeg, quality: float) -> None:
    """Fewer samples than pixels, or no number."""
    with pytest.raises(ValueError, match="quality must be a finite number of at least 1"):
        filled(jpeg(64, 64), [0, 0, 64, 64, 8, 8, 0, 0, 0], "bilinear", quality)


@pytest.mark.parametrize("scale", SCALES)
def test_threads_and_indices_change_no_sample(jpeg: Jpeg, scale: int) -> None:
    """A large picture decodes alike on several threads and by an index, whole and by region."""
    file = jpeg(1700, 1300, subsampling=2)
    rows, tiles = _native.build_index(file, "rows"), _native.build_index(file, "tiles")
    for region in (None, (301, 203, 1600, 1299)):
        expected = _native.decode(file, region, scale=scale)

        for index, threads in ((None, 3), (rows, 1), (rows, 3), (tiles, 1), (tiles, 3)):
            found: list[tuple[int, bool, bytes | None]] = []
            part = _native.decode(file, region, scale=scale, index=index, found=found, threads=threads)

            np.testing.assert_array_equal(part, expected)
            assert not found
