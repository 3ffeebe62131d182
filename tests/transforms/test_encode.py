"""``encode``: files with the pixels that they are given, in the formats and shapes that can be written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError


def pixels(*shape: int, dtype: Any = np.uint8) -> NDArray[Any]:
    """Smooth pixels with some noise."""
    rng = np.random.default_rng(len(shape))
    base = np.linspace(0, 200, shape[0] * shape[1]).reshape(shape[:2])
    noise = rng.integers(0, 40, shape)
    scaled = (base if len(shape) == 2 else base[:, :, None]) + noise
    return (scaled * (np.iinfo(dtype).max // 255)).astype(dtype)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 2), (20, 30, 3), (20, 30, 4)])
def test_png_is_lossless(shape: tuple[int, ...]) -> None:
    """Every number of channels comes back as it was, one channel without its axis."""
    array = pixels(*shape)

    found = ps.decode(ps.encode(array, "png"), mode="unchanged")

    np.testing.assert_array_equal(found, array[:, :, 0] if shape[2:] == (1,) else array)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1)])
def test_png_holds_16_bits(shape: tuple[int, ...]) -> None:
    """uint16 of one channel keeps its values."""
    array = pixels(*shape, dtype=np.uint16)

    np.testing.assert_array_equal(ps.decode(ps.encode(array, "png"), mode="I;16"), array.reshape(20, 30))


@pytest.mark.parametrize("channels", [3, 4])
def test_lossless_webp_keeps_hidden_colours(channels: int) -> None:
    """lossless=True keeps every value, also where alpha is 0."""
    array = pixels(20, 30, channels)
    if channels == 4:
        array[5:9, :, 3] = 0

    found = ps.decode(ps.encode(array, "webp", lossless=True), mode="unchanged")

    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(("form", "shape"), [("jpeg", (20, 30)), ("jpeg", (20, 30, 3)), ("webp", (20, 30, 3))])
def test_quality_decides_what_is_lost(form: str, shape: tuple[int, ...]) -> None:
    """A higher quality is nearer to the pixels, and larger; the default is 95."""
    array = pixels(*shape)

    files = {quality: ps.encode(array, form, quality) for quality in (20, 95)}

    errors = {
        quality: np.abs(ps.decode(file, mode="unchanged").astype(int) - array).mean() for quality, file in files.items()
    }
    assert errors[95] < errors[20]
    assert len(files[95]) > len(files[20])
    assert ps.encode(array, form) == files[95]


def test_a_jpeg_is_pillows() -> None:
    """The bytes are those of Pillow with the same options; gray stays gray."""
    array = pixels(40, 50, 3)
    for subsampling in ("4:4:4", "4:2:0"):
        file = io.BytesIO()
        Image.fromarray(array).save(file, "JPEG", quality=80, subsampling=subsampling)
        assert ps.encode(array, quality=80, subsampling=subsampling) == file.getvalue()
    assert Image.open(io.BytesIO(ps.encode(array[:, :, 0]))).mode == "L"


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (pixels(9, 9, 4), {}, "drop alpha by"),
        (pixels(9, 9, dtype=np.uint16), {}, "'jpeg' holds uint8 of 1, 3 channels, got uint16"),
        (pixels(9, 9, 3, dtype=np.uint16), {"format": "png"}, "uint16 of 1, got uint16"),
        (np.zeros((9, 9, 3), np.float32), {"format": "png"}, "got float32"),
        (np.zeros((3, 9, 9), np.uint8), {}, "images are HWC"),
        (np.zeros((0, 9), np.uint8), {}, "no empty axis"),
        (np.zeros((1, 16384), np.uint8), {"format": "webp"}, "at most 16383 pixels"),
        (pixels(9, 9), {"format": "gif"}, "format must be one of jpeg, png, webp, got 'gif'"),
        (pixels(9, 9), {"quality": 0}, r"quality must be an integer in \[1, 100\], got 0"),
        (pixels(9, 9), {"format": "png", "quality": 90}, "quality must be left out"),
        (pixels(9, 9), {"format": "webp", "quality": 90, "lossless": True}, "quality must be left out"),
        (pixels(9, 9), {"lossless": True}, "lossless must be given for 'webp' only"),
        (pixels(9, 9), {"subsampling": "4:1:1"}, "subsampling must be one of"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(array: Any, options: dict[str, Any], message: str) -> None:
    """Nothing is converted in silence: the error says what the format holds."""
    with pytest.raises(ArgumentError, match=message):
        ps.encode(array, **options)


def test_a_profile_is_kept() -> None:
    """The bytes of an ICC profile are in the file."""
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()

    for form in ("jpeg", "png", "webp"):
        file = ps.encode(pixels(9, 9, 3), form, icc_profile=profile)
        assert Image.open(io.BytesIO(file)).info["icc_profile"] == profile
