"""WebP by libwebp natively: the pixels of Pillow, whole, in part, and on the fused path."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.errors import DecodeError, ImageTooLargeError
from penstock.sample import SampleKeys
from penstock.transforms import decode, sizes
from penstock.transforms.apply import apply_to_image
from penstock.transforms.decoding import fallback

CAP = 1 << 24
SIZES = ((1, 1), (2, 1), (1, 9), (16, 16), (17, 33), (131, 70))


def picture(size: tuple[int, int], seed: int = 0, channels: int = 3) -> Image.Image:
    """Smooth areas, edges and noise."""
    rng = np.random.default_rng((seed, *size))
    small = rng.integers(0, 256, (size[1] // 9 + 1, size[0] // 9 + 1, channels), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)).astype(int)
    noisy = smooth + rng.integers(-20, 21, smooth.shape)
    noisy[size[1] // 3 : size[1] // 2] = 255
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def made(size: tuple[int, int] = (131, 70), *, seed: int = 0, channels: int = 3, **options: Any) -> bytes:
    """A WebP file of a picture."""
    file = io.BytesIO()
    picture(size, seed, channels).save(file, "WEBP", **options)
    return file.getvalue()


def pillow(file: bytes) -> NDArray[np.uint8]:
    """The pixels of Pillow, the specification."""
    return fallback.read_pixels(file, CAP)


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Every pixel, the shape and the dtype."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


OPTIONS: dict[str, dict[str, Any]] = {
    "lossy": {"quality": 80},
    "coarse": {"quality": 5},
    "slow": {"quality": 50, "method": 6},
    "lossless": {"lossless": True},
    "metadata": {"quality": 70, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0", "icc_profile": b"profile"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_whole_pictures(name: str) -> None:
    """Lossy and lossless pictures of every size have Pillow's pixels, and their size is read from the header."""
    for size in SIZES:
        file = made(size, **OPTIONS[name])

        same(_native.decode(file), pillow(file))
        np.testing.assert_array_equal(_native.sizes([file]), [size])


@given(
    name=st.sampled_from(sorted(OPTIONS)),
    seed=st.integers(0, 3),
    corners=st.tuples(*[st.integers(0, 2**16)] * 4),
)
def test_a_region_is_the_same_pixels(name: str, seed: int, corners: tuple[int, int, int, int]) -> None:
    """A region has exactly the pixels of the whole picture, also at its edges, where chroma is upsampled."""
    file = made(seed=seed, **OPTIONS[name])
    x0, y0 = corners[0] % 131, corners[1] % 70
    x1, y1 = x0 + 1 + corners[2] % (131 - x0), y0 + 1 + corners[3] % (70 - y0)

    same(_native.decode(file, (x0, y0, x1, y1)), pillow(file)[y0:y1, x0:x1])


@pytest.mark.parametrize("name", OPTIONS)
def test_the_fused_path_equals_the_general_one(name: str) -> None:
    """Rows that are filled from WebP bytes have the pixels of a decoded picture that is cropped and resized."""
    files = [made(size, **OPTIONS[name]) for size in SIZES * 3]
    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(32), T.HorizontalFlip()])
    out = np.zeros((len(files), 32, 32, 3), np.uint8)
    keys = SampleKeys(7, 1, np.arange(len(files)))

    pipeline.compile("image").fill(files, out, keys)

    for i, file in enumerate(files):
        same(out[i], apply_to_image(pipeline.ops, pipeline.layouts, pillow(file), keys[i : i + 1], 1))


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": True, "exact": True}, {"quality": 70}])
def test_alpha_is_dropped(options: dict[str, Any]) -> None:
    """A picture with alpha has the colours that Pillow gives it, whichever decoder reads it."""
    file = made(channels=4, **options)

    same(decode(file), pillow(file))
    same(decode(file, region=(3, 5, 90, 60)), pillow(file)[5:60, 3:90])


def test_sizes_above_the_cap_are_refused() -> None:
    """The size of the canvas is compared with the cap before anything is allocated."""
    for options in OPTIONS.values():
        with pytest.raises(ImageTooLargeError, match="131 x 70"):
            decode(made(**options), max_pixels=131 * 70 - 1)


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_orientation(orientation: int) -> None:
    """The orientation in an EXIF chunk is read natively, unless XMP may hold it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    plain, both = made(exif=exif), made(xmp=b"<x tiff:Orientation='3'/>")

    assert _native.orientations([plain, made(), both]).tolist() == [orientation, 1, 0]
    assert fallback.read_orientation(plain, CAP) == orientation


def with_size(webp: bytes, nbytes: int) -> bytes:
    """The container with another declared size."""
    return webp[:4] + struct.pack("<I", nbytes) + webp[8:]


def damaged_files() -> dict[str, bytes]:
    """A fault, and a file that has it."""
    whole, lossless, extended = made(), made(lossless=True), made(exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0")
    frames = io.BytesIO()
    picture((20, 10)).save(frames, "WEBP", save_all=True, append_images=[picture((20, 10), 1)])
    return {
        "cut": whole[: len(whole) // 2],
        "cut, and said so": with_size(whole[: len(whole) // 2], len(whole) // 2 - 8),
        "cut lossless": with_size(lossless[: len(lossless) // 2], len(lossless) // 2 - 8),
        "trailing bytes": whole + b"trailing",
        "a container that is too long": with_size(whole, len(whole)),
        "a container that is too short": with_size(whole, len(whole) - 20),
        "a chunk after the image": with_size(whole + b"junk\2\0\0\0ab", len(whole) + 2),
        "an inner frame": whole[:20] + bytes([whole[20] | 1]) + whole[21:],
        "a start code": whole[:23] + b"\0" + whole[24:],
        "no width": whole[:26] + b"\0\0" + whole[28:],
        "another canvas": extended[:24] + b"\5\0\0" + extended[27:],
        "damaged data": whole[:60] + bytes(200) + whole[260:],
        "an animation": frames.getvalue(),
        "only a signature": whole[:12],
        "a header alone": whole[:30],
        "empty": whole[:8] + b"WEBP",
    }


def verdict(file: bytes) -> NDArray[np.uint8] | type[DecodeError]:
    """Pillow's pixels, or its error."""
    try:
        return pillow(file)
    except DecodeError as error:
        return type(error)


@pytest.mark.parametrize("fault", damaged_files())
def test_damaged_files_get_pillows_verdict(fault: str) -> None:
    """A file that breaks a rule gives Pillow's pixels or an error of the same class."""
    file = damaged_files()[fault]
    expected = verdict(file)

    if isinstance(expected, type):
        with pytest.raises(DecodeError) as error:
            decode(file, max_pixels=CAP)
        assert error.type is expected
    else:
        same(decode(file, max_pixels=CAP), expected)
        np.testing.assert_array_equal(sizes([file]), [expected.shape[1::-1]])
