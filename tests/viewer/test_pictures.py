"""Pictures and thumbnails: the right pixels, turned, in a window of values, cut and scaled."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError, DecodeError
from penstock.viewer.browse.pictures import PictureForm, check_picture, find_size, make_picture

EXACT = PictureForm(side=8192, is_exact=True)


def encode(pixels: np.ndarray[Any, Any], form: str, **options: Any) -> bytes:
    """A file of an array."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def smooth(height: int, width: int) -> np.ndarray[Any, Any]:
    """A picture whose parts all differ."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=2).astype(np.uint8)


def read(shown: bytes) -> np.ndarray[Any, Any]:
    """The pixels of what a browser gets."""
    return np.asarray(Image.open(io.BytesIO(shown)))


def test_small_pictures_are_sent_without_loss() -> None:
    """Their pixels are shown as squares."""
    small = np.random.default_rng(0).integers(0, 256, (12, 9, 3), np.uint8)

    assert np.array_equal(read(make_picture(small, PictureForm(256))), small)
    assert np.array_equal(read(make_picture(encode(small, "PNG"), PictureForm(256))), small)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_is_shown_upright(orientation: int) -> None:
    """Whole, and each region of it, as `decode` with `orient=True` gives it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    jpeg = encode(smooth(48, 80), "JPEG", exif=exif)
    expected = ps.decode(jpeg, orient=True)

    whole = read(make_picture(jpeg, EXACT))
    part = read(make_picture(jpeg, PictureForm(8192, region=(9, 5, 40, 33), is_exact=True)))

    assert find_size(jpeg) == (expected.shape[1], expected.shape[0])
    assert np.array_equal(whole, expected)
    assert np.array_equal(part, expected[5:33, 9:40])


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_region_that_is_scaled_lies_where_it_was_asked_for(form: str, orientation: int) -> None:
    """Near what Pillow makes of the cropped pixels; a JPEG is decoded at a quarter for it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(smooth(400, 640), form, exif=exif, **({"quality": 95} if form == "JPEG" else {}))
    region = (101, 67, 339, 361)
    expected = Image.fromarray(ps.decode(encoded, orient=True)).crop(region).resize((49, 60), Image.Resampling.BILINEAR)

    shown = read(make_picture(encoded, PictureForm(side=60, region=region, is_exact=True)))

    difference = np.abs(shown[:, :, :2].astype(int) - np.asarray(expected)[:, :, :2])
    assert shown.shape == (60, 49, 3)
    assert difference.mean() < 1.5
    assert difference.max() < 12


@pytest.mark.parametrize(("form", "orientation"), [("JPEG", 1), ("JPEG", 8), ("PNG", 1), ("WEBP", 1), ("GIF", 1)])
def test_a_thumbnail_is_the_picture_reduced(form: str, orientation: int) -> None:
    """Near what Pillow makes of all pixels, whether it is resized while it is decoded or afterwards."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(smooth(400, 640), form, **({"exif": exif, "quality": 95} if form == "JPEG" else {}))
    whole = Image.fromarray(ps.decode(encoded, orient=True))
    size = (100, 160) if orientation == 8 else (160, 100)

    shown = read(make_picture(encoded, PictureForm(side=160, is_exact=True)))

    difference = np.abs(shown.astype(int) - np.asarray(whole.resize(size, Image.Resampling.BILINEAR)))
    assert shown.shape == (size[1], size[0], 3)
    assert difference[:, :, :2].mean() < 1.5
    assert difference[:, :, :2].max() < 14


def test_a_deep_picture_is_shown_from_its_smallest_to_its_largest_value() -> None:
    """16 bits, of a file and of a store, and floats; or in the window that is asked for."""
    ramp = np.linspace(1000, 3000, 256).astype(np.uint16).reshape(16, 16)
    file = encode(ramp, "PNG")

    for image in (file, ramp[:, :, None], ramp[:, :, None].astype(np.float32)):
        shown = read(make_picture(image, EXACT))
        narrow = read(make_picture(image, PictureForm(8192, low=1500, high=2000, is_exact=True)))
        assert (shown[0, 0] == 0).all()
        assert (shown[-1, -1] == 255).all()
        assert (narrow[ramp <= 1500] == 0).all()
        assert (narrow[ramp >= 2000] == 255).all()
        assert check_picture(image) == ("", (1000, 3000))
    assert check_picture(encode(ramp.astype(np.uint8), "PNG")) == ("", None)
    assert check_picture(np.linspace(0.2, 0.7, 12, dtype=np.float32).reshape(2, 2, 3)) == ("", (0, 1))


def test_a_window_of_a_deep_picture_does_not_depend_on_the_region() -> None:
    """The parts of a picture fit together."""
    ramp = np.linspace(0, 60000, 64 * 64).astype(np.uint16).reshape(64, 64)
    file = encode(ramp, "PNG")

    whole = read(make_picture(file, EXACT))
    part = read(make_picture(file, PictureForm(8192, region=(8, 16, 24, 48), is_exact=True)))

    assert np.array_equal(part, whole[16:48, 8:24])


def test_floats_that_are_not_numbers_are_black() -> None:
    """And do not change the window."""
    image = np.full((4, 4, 1), 0.5, np.float32)
    image[0, 0] = np.nan
    image[0, 1] = np.inf

    shown = read(make_picture(image, EXACT))

    assert shown[0, 0].tolist() == [0, 0, 0]
    assert shown[2, 2].tolist() == [128, 128, 128]


def test_alpha_is_kept_and_channels_are_shown_alone() -> None:
    """RGBA files, gray with alpha, stored pixels of five channels."""
    rgba = np.dstack([smooth(20, 30), np.arange(600).reshape(20, 30) % 256]).astype(np.uint8)
    many = np.dstack([smooth(20, 30), smooth(20, 30)])[:, :, :5]

    assert np.array_equal(read(make_picture(encode(rgba, "PNG"), EXACT)), rgba)
    assert read(make_picture(encode(rgba, "WEBP", lossless=True, exact=True), EXACT)).shape == (20, 30, 4)
    assert np.array_equal(read(make_picture(many, EXACT)), many[:, :, :3])
    alone = read(make_picture(many, PictureForm(8192, channel=4, is_exact=True)))
    assert np.array_equal(alone, np.repeat(many[:, :, 4:], 3, axis=2))
    with pytest.raises(ArgumentError, match=r"channel must be in \[0, 5\)"):
        make_picture(many, PictureForm(channel=5))


@pytest.mark.parametrize("form", ["GIF", "BMP", "TIFF", "PPM", "WEBP", "PNG", "JPEG"])
def test_every_format_becomes_a_thumbnail(form: str) -> None:
    """The longer side has the asked length, and small pictures are not enlarged."""
    file = encode(smooth(90, 120), form)

    assert read(make_picture(file, PictureForm(60))).shape[:2] == (45, 60)
    assert read(make_picture(file, PictureForm(500))).shape[:2] == (90, 120)


def test_a_truncated_jpeg_is_shown_as_far_as_it_goes() -> None:
    """Its problem is said; what is no picture raises."""
    jpeg = encode(smooth(64, 64), "JPEG")
    cut = jpeg[: len(jpeg) * 2 // 3]

    shown = make_picture(cut, PictureForm(64))

    problem, _ = check_picture(cut)
    assert "ends" in problem or "truncated" in problem
    assert check_picture(jpeg) == ("", None)
    assert read(shown).shape == (64, 64, 3)
    for broken in (b"", b"no picture", jpeg[:20]):
        with pytest.raises(DecodeError):
            make_picture(broken, PictureForm(64))


def test_a_region_outside_is_refused() -> None:
    """It says the size of the picture."""
    with pytest.raises(ArgumentError, match="30 x 20"):
        make_picture(encode(smooth(20, 30), "PNG"), PictureForm(region=(30, 0, 40, 10)))
