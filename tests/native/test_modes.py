"""Modes of decoding natively: other channels of the same pixels, whole, in part, and in rows of a batch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock.bfloat16 import as_words, from_floats
from tests.native.conftest import Jpeg
from tests.native.png_writer import chunk, png, samples

CHANNELS = {"RGB": 3, "BGR": 3, "L": 1, "RGBA": 4}
SIZE = (96, 75)


def webp() -> bytes:
    """A lossy WebP."""
    file = io.BytesIO()
    Image.fromarray(samples(*SIZE, 2, 8).astype(np.uint8)).save(file, "WEBP")
    return file.getvalue()


@pytest.fixture(params=["420", "gray", "progressive", "png", "png_alpha", "png_gray_alpha", "png_palette", "webp"])
def image(request: pytest.FixtureRequest, jpeg: Jpeg) -> bytes:
    """A file of each kind."""
    made = {
        "420": lambda: jpeg(*SIZE, subsampling=2),
        "gray": lambda: jpeg(*SIZE, gray=True),
        "progressive": lambda: jpeg(*SIZE, progressive=True),
        "png": lambda: png(samples(*SIZE, 2, 8), 2, 8),
        "png_alpha": lambda: png(samples(*SIZE, 6, 8), 6, 8),
        "png_gray_alpha": lambda: png(samples(*SIZE, 4, 16), 4, 16, interlace=1),
        "png_palette": lambda: png(samples(*SIZE, 3, 4), 3, 4),
        "webp": webp,
    }
    return made[request.param]()


def expected(image: bytes, mode: str) -> NDArray[np.uint8]:
    """Pillow's pixels in a mode."""
    picture = Image.open(io.BytesIO(image))
    picture.info.pop("transparency", None)
    if mode == "BGR":
        return np.asarray(picture.convert("RGB"))[:, :, ::-1]
    if mode == "L":
        return np.asarray(picture.convert("RGB").convert("L"))
    return np.asarray(picture.convert(mode))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("mode", CHANNELS)
def test_decoded_in_a_mode(image: bytes, mode: str) -> None:
    """A decoded picture, and a region of it, have Pillow's pixels in the mode."""
    whole = expected(image, mode)

    np.testing.assert_array_equal(_native.decode(image, mode=mode), whole)
    np.testing.assert_array_equal(_native.decode(image, (3, 8, 90, 70), mode=mode), whole[8:70, 3:90])


def geometry(flip: int) -> NDArray[np.int32]:
    """A crop, resized, of which a window is taken."""
    return np.array([[5, 3, 85, 67, 40, 32, 4, 2, flip]], np.int32)


def resized(pixels: NDArray[np.uint8], flip: int) -> NDArray[np.uint8]:
    """The window of a decoded picture, (height, width, channels): each channel alone."""
    planes = pixels if pixels.ndim == 3 else pixels[:, :, None]
    cut = np.ascontiguousarray(planes[3:67, 5:85])
    each = [_native.resize(cut[:, :, i : i + 1].copy(), 40, 32, "bicubic") for i in range(cut.shape[2])]
    window = np.concatenate(each, axis=2)[2:26, 4:34]
    return window[:: -1 if flip & 2 else 1, :: -1 if flip & 1 else 1]


def fill(image: bytes, out: NDArray[Any], flip: int, mode: str, layout: str, **options: Any) -> None:
    """Fill the only row of a batch."""
    failures, *_ = _native.fill(
        [image], geometry(flip), out, np.zeros(1, np.int64), layout=layout, filter="bicubic", mode=mode, **options
    )
    assert failures == []


@pytest.mark.parametrize("flip", [0, 3])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("mode", CHANNELS)
def test_rows_in_a_mode(image: bytes, mode: str, layout: str, flip: int) -> None:
    """A row has the channels of the decoded picture, each resized alone; normalised, each by its own numbers."""
    window = resized(expected(image, mode), flip)
    axes = (2, 0, 1) if layout == "CHW" else (0, 1, 2)
    shape = (1, *(window.shape[axis] for axis in axes))
    scale = np.array([0.01, 0.02, 0.03, 0.04], np.float32)[: CHANNELS[mode]]
    offset = np.array([-1, 2, -3, 4], np.float32)[: CHANNELS[mode]]
    row, floats, halves = np.zeros(shape, np.uint8), np.zeros(shape, np.float32), np.zeros(shape, np.float16)
    bits = np.zeros(shape, np.uint16)

    fill(image, row, flip, mode, layout)
    fill(image, floats, flip, mode, layout, scale=scale.tolist(), offset=offset.tolist())
    fill(image, halves, flip, mode, layout, scale=scale.tolist(), offset=offset.tolist())
    fill(image, bits, flip, mode, layout, scale=scale.tolist(), offset=offset.tolist())

    normalised = window.astype(np.float32) * scale + offset
    np.testing.assert_array_equal(row[0], window.transpose(axes))
    np.testing.assert_array_equal(floats[0], normalised.transpose(axes))
    np.testing.assert_array_equal(halves[0], normalised.astype(np.float16).transpose(axes))
    np.testing.assert_array_equal(bits[0], as_words(from_floats(normalised)).transpose(axes))


@pytest.mark.parametrize("orientation", [3, 6])
@pytest.mark.parametrize("mode", CHANNELS)
def test_turned_rows(mode: str, orientation: int, jpeg: Jpeg) -> None:
    """An orientation turns all channels."""
    image = jpeg(64, 64)
    whole = np.array([[0, 0, 64, 64, 64, 64, 0, 0, 0]], np.int32)
    upright, turned = (np.zeros((1, 64, 64, CHANNELS[mode]), np.uint8) for _ in range(2))
    rows = np.zeros(1, np.int64)

    _native.fill([image], whole, upright, rows, layout="HWC", filter="box", mode=mode)
    _native.fill(
        [image], whole, turned, rows, layout="HWC", filter="box", mode=mode,
        orientations=np.array([orientation], np.uint8),
    )  # fmt: skip

    np.testing.assert_array_equal(turned[0], np.rot90(upright[0], 2 if orientation == 3 else -1))


def test_alpha_that_is_not_read_is_refused() -> None:
    """Transparent colours of a PNG, and alpha of a WebP, are left to Pillow in mode RGBA, and dropped in others."""
    file = io.BytesIO()
    Image.fromarray(samples(*SIZE, 6, 8).astype(np.uint8)).save(file, "WEBP", lossless=True)

    for image in (png(samples(*SIZE, 3, 8), 3, 8, before=[chunk(b"tRNS", b"\0\1")]), file.getvalue()):
        with pytest.raises(_native.UnsupportedError, match="alpha"):
            _native.decode(image, mode="RGBA")
        np.testing.assert_array_equal(_native.decode(image, mode="L"), expected(image, "L"))


def test_arguments_that_contradict_the_mode(jpeg: Jpeg) -> None:
    """The channels of the batch, the numbers and the colour beside the picture must be those of the mode."""
    image, out = jpeg(*SIZE), np.zeros((1, 24, 30, 1), np.float32)

    with pytest.raises(ValueError, match="mode must be one of RGB, BGR, L, RGBA, got 'CMYK'"):
        _native.decode(image, mode="CMYK")
    with pytest.raises(ValueError, match="with 4 channels"):
        fill(image, out, 0, "RGBA", "HWC", scale=[1] * 4, offset=[0] * 4)
    with pytest.raises(ValueError, match="a number for each of 1 channels"):
        fill(image, out, 0, "L", "HWC", scale=[1] * 3, offset=[0] * 3)
    with pytest.raises(ValueError, match="beside must be None"):
        fill(image, out, 0, "L", "HWC", scale=[1], offset=[0], beside=(1, 2, 3))
    assert not out.any()
