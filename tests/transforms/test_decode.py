"""``decode``: the pixels Pillow gives, for every format read, every part asked for, and every size declared."""

from __future__ import annotations

import io
import resource
import struct
import sys
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.sample import SampleKeys
from penstock.transforms import Decode, decode, sizes
from penstock.transforms.decoding import fallback
from tests.native import png_writer


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A smooth picture with some noise, so that no two pixels or channels are interchangeable."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(height // 8, 2), max(width // 8, 2), 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def pillow(file: bytes) -> NDArray[np.uint8]:
    """What Pillow decodes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


JPEGS = {
    "444": encoded(picture(61, 45), subsampling="4:4:4"),
    "422": encoded(picture(61, 45), subsampling="4:2:2"),
    "420": encoded(picture(61, 45), subsampling="4:2:0"),
    "gray": encoded(picture(61, 45, "L")),
    "optimized": encoded(picture(61, 45), optimize=True, quality=95),
    "progressive": encoded(picture(61, 45), progressive=True),
    "cmyk": encoded(picture(61, 45, "CMYK")),
    "restart": encoded(picture(61, 45), restart_marker_blocks=3),
    "kept_rgb": encoded(picture(61, 45), keep_rgb=True),
    "one_pixel": encoded(picture(1, 1)),
}
OTHERS = {
    "png": encoded(picture(31, 22), "PNG"),
    "png_palette": encoded(picture(31, 22).quantize(19), "PNG"),
    "png_one_bit": encoded(picture(31, 22).convert("1"), "PNG"),
    "png_gray": encoded(picture(31, 22, "L"), "PNG"),
    "png_la": encoded(picture(31, 22, "LA"), "PNG"),
    "png_rgba": encoded(picture(31, 22, "RGBA"), "PNG"),
    "webp": encoded(picture(31, 22), "WEBP", quality=80),
    "webp_lossless": encoded(picture(31, 22, "RGBA"), "WEBP", lossless=True),
    "gif": encoded(picture(31, 22).quantize(40), "GIF"),
    "bmp": encoded(picture(31, 22), "BMP"),
    "bmp_palette": encoded(picture(31, 22).quantize(7), "BMP"),
    "tiff": encoded(picture(31, 22), "TIFF"),
    "tiff_deflate": encoded(picture(31, 22), "TIFF", compression="tiff_deflate"),
    "tiff_cmyk": encoded(picture(31, 22, "CMYK"), "TIFF"),
    "avif": encoded(picture(31, 22), "AVIF", speed=10),
    "avif_rgba": encoded(picture(31, 22, "RGBA"), "AVIF", speed=10),
    "avif_branded_mif1": encoded(picture(31, 22), "AVIF", speed=10).replace(b"ftypavif", b"ftypmif1", 1),
    "ppm": encoded(picture(31, 22), "PPM"),
    "pgm": encoded(picture(31, 22, "L"), "PPM"),
    "pbm": encoded(picture(31, 22).convert("1"), "PPM"),
    "ppm_plain": b"P3 # plain\n2 2\n9\n" + b" 0 9 3" * 4,
    "pgm_plain": b"P2\n3 1 100 0 50 100",
    "pbm_plain": b"P1\n8 2\n01010101\n11110000",
    "ppm_of_31_levels": b"P6 4 2 31\n" + bytes(range(24)),
    "ppm_of_16_bits": b"P6\n2 1\n65535\n" + bytes(range(7, 19)),
}
RESULT = 3 * 61 * 45
"""Bytes of the decoded pixels of :data:`JPEGS`."""
LARGE_WEBP = b"RIFF\x1e\0\0\0WEBPVP8L\x12\0\0\0\x2f" + struct.pack("<I", 16382 | 8191 << 14) + bytes(13)
LARGE_PNG = png_writer.header(16384, 8192, 6, 16, 1) + png_writer.data_chunks(bytes(100)) + png_writer.chunk(b"IEND")


@pytest.mark.parametrize("name", [*JPEGS, *OTHERS])
def test_pixels_are_pillows(name: str) -> None:
    """Every format decodes to exactly the pixels of Pillow's ``convert("RGB")``."""
    file = (JPEGS | OTHERS)[name]

    pixels = decode(file)

    np.testing.assert_array_equal(pixels, pillow(file))
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda file: np.frombuffer(file, np.uint8)])
@pytest.mark.parametrize("name", ["420", "png"])
def test_any_buffer_is_accepted(kind: Any, name: str) -> None:
    """Bytes, bytearrays, memoryviews and uint8 arrays decode alike."""
    file = (JPEGS | OTHERS)[name]

    pixels = decode(kind(file))

    np.testing.assert_array_equal(pixels, decode(file))


def test_the_name_is_never_asked() -> None:
    """What decides is the first bytes, so a PNG among JPEGs decodes as the PNG it is."""
    found = sizes([JPEGS["420"], OTHERS["png"], JPEGS["progressive"], OTHERS["webp"]])

    np.testing.assert_array_equal(found, [(61, 45), (31, 22), (61, 45), (31, 22)])


@pytest.mark.parametrize("name", ["444", "422", "420", "gray", "restart", "progressive", "cmyk", "png", "gif"])
@given(corners=st.tuples(*[st.integers(0, 2**16)] * 4))
def test_a_region_is_the_same_pixels(name: str, corners: tuple[int, int, int, int]) -> None:
    """A region holds exactly the pixels that the whole image has there."""
    whole = pillow((JPEGS | OTHERS)[name])
    height, width = whole.shape[:2]
    x0, y0 = corners[0] % width, corners[1] % height
    x1, y1 = x0 + 1 + corners[2] % (width - x0), y0 + 1 + corners[3] % (height - y0)

    pixels = decode((JPEGS | OTHERS)[name], region=(x0, y0, x1, y1))

    np.testing.assert_array_equal(pixels, whole[y0:y1, x0:x1])
    assert pixels.flags.c_contiguous


@pytest.mark.parametrize(
    "region", [(0, 0, 62, 45), (-1, 0, 5, 5), (5, 5, 5, 9), (9, 5, 5, 9), (0, 0, 5, 46), (1, 2, 3), "BGR", 5]
)
@pytest.mark.parametrize("name", ["420", "progressive"])
def test_a_region_outside_is_refused(name: str, region: Any) -> None:
    """A region that is empty, turned or outside the image is an ArgumentError that says what is allowed."""
    with pytest.raises(ArgumentError, match="x0, y0, x1, y1"):
        decode(JPEGS[name], region)


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize("size", [(61, 45), (64, 48), (7, 90), (3, 3), (1, 50)])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_scale_rounds_sizes_up(scale: int, size: tuple[int, int], form: str) -> None:
    """At 1/scale an image has ceil(side / scale) pixels a side and looks like the box average."""
    file = encoded(picture(*size), form)

    pixels = decode(file, scale=scale)

    expected = np.asarray(Image.fromarray(pillow(file)).reduce(scale)).astype(int)
    assert pixels.shape == (-(-size[1] // scale), -(-size[0] // scale), 3)
    assert np.abs(pixels.astype(int) - expected).mean() < (12 if form == "JPEG" else 1e-9)


def test_scaled_jpeg_is_libjpegs_scaled_idct() -> None:
    """A JPEG at 1/2 is what libjpeg's own scaling gives, not a reduction afterwards."""
    reference = Image.open(io.BytesIO(JPEGS["420"]))
    reference.draft("RGB", (30, 22))

    pixels = decode(JPEGS["420"], scale=2)

    np.testing.assert_array_equal(pixels, np.asarray(reference.convert("RGB")))


@pytest.mark.parametrize("name", ["420", "png"])
def test_a_scaled_region_is_mapped_outward(name: str) -> None:
    """A region of a scaled image covers every scaled pixel that the full-size region touches."""
    file = (JPEGS | OTHERS)[name]

    pixels = decode(file, region=(3, 5, 18, 21), scale=4)

    np.testing.assert_array_equal(pixels, decode(file, scale=4)[1:6, 0:5])


@pytest.mark.parametrize("scale", [0, 3, 16, -1, 1.5])
def test_other_scales_are_refused(scale: Any) -> None:
    """Only what every decoder can do is offered: 1, 2, 4, 8."""
    with pytest.raises(ArgumentError, match="scale must be 1, 2, 4 or 8"):
        decode(JPEGS["420"], scale=scale)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_on_request(orientation: int, form: str) -> None:
    """orient=True gives what Pillow's exif_transpose gives; the default leaves the rows as stored."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(picture(37, 23), form, exif=exif)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB"))

    oriented = decode(file, orient=True)

    np.testing.assert_array_equal(oriented, shown)
    np.testing.assert_array_equal(decode(file), pillow(file))
    np.testing.assert_array_equal(decode(file, region=(2, 3, 17, 11), orient=True), shown[3:11, 2:17])
    assert oriented.flags.c_contiguous


def test_a_damaged_exif_means_upright() -> None:
    """Exif that cannot be parsed changes nothing: the pixels do not depend on it."""
    file = encoded(picture(20, 10), exif=b"Exif\x00\x00MM\x00\x2a\x00\x00\xff\xff garbage")

    np.testing.assert_array_equal(decode(file, orient=True), pillow(file))


def test_the_exif_thumbnail_is_never_returned() -> None:
    """A JPEG inside the Exif segment is neither measured nor decoded in place of the image."""
    thumbnail = encoded(picture(8, 6, seed=5))
    file = encoded(picture(40, 30), exif=b"Exif\x00\x00II\x2a\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00" + thumbnail)

    assert decode(file).shape == (30, 40, 3)
    np.testing.assert_array_equal(sizes([file]), [(40, 30)])


def test_sixteen_bits_are_shifted_not_clipped() -> None:
    """16-bit gray comes to 8 bits by >> 8 (Pillow's convert would clip nearly everything to white)."""
    deep = (np.arange(20 * 30, dtype=np.uint32) * 109).reshape(20, 30).astype(np.uint16)

    for form in ("PNG", "TIFF"):
        pixels = decode(encoded(Image.fromarray(deep), form))
        np.testing.assert_array_equal(pixels, np.repeat((deep >> 8).astype(np.uint8)[:, :, None], 3, axis=2))


def test_deeper_samples_are_clipped_as_pillow_does() -> None:
    """32-bit and float samples, which have no scale of their own, come as Pillow converts them."""
    for mode, value in (("I", 300), ("I", 77), ("F", 7.5)):
        file = encoded(Image.new(mode, (3, 2), value), "TIFF")
        np.testing.assert_array_equal(decode(file), np.full((2, 3, 3), min(int(value), 255)))


@pytest.mark.parametrize(("mode", "largest", "warns"), [
    ("RGB", 1.0, True), ("L", 0.5, True), ("RGB", 0.0, False), ("RGB", 2.0, False), ("unchanged", 1.0, False),
])  # fmt: skip
def test_floats_that_become_black_are_a_warning(mode: str, largest: float, warns: bool) -> None:
    """Values of 0 to 1 are clipped to integers as others are, and nothing of the picture is left."""
    file = encoded(Image.fromarray(np.linspace(0, largest, 12, dtype=np.float32).reshape(3, 4)), "TIFF")

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        decode(file, mode=mode)

    assert [f"floats up to 1 becomes black in mode {mode!r}" in str(each.message) for each in found] == [True] * warns


def test_sixteen_bit_rgb_is_shifted() -> None:
    """16-bit RGB PNG keeps the high byte of every sample."""
    deep = np.random.default_rng(1).integers(0, 1 << 16, (5, 7, 3)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in deep)

    pixels = decode(png(7, 5, bits=16, color=2, rows=rows))

    np.testing.assert_array_equal(pixels, (deep >> 8).astype(np.uint8))


def test_alpha_is_dropped() -> None:
    """A transparent pixel keeps the colour stored under it."""
    rgba = np.full((4, 4, 4), (200, 100, 50, 0), np.uint8)

    pixels = decode(encoded(Image.fromarray(rgba), "PNG"))

    np.testing.assert_array_equal(pixels, np.full((4, 4, 3), (200, 100, 50)))


def test_first_frame_of_an_animation() -> None:
    """GIF, WebP and APNG give their first frame."""
    frames = [picture(16, 12, seed=seed) for seed in range(3)]
    for form, exact in (("GIF", False), ("WEBP", True), ("PNG", True)):
        options = {"lossless": True} if form == "WEBP" else {}
        file = encoded(frames[0], form, save_all=True, append_images=frames[1:], **options)
        np.testing.assert_array_equal(decode(file), np.asarray(frames[0]) if exact else pillow(file))


@pytest.mark.parametrize("progressive", [False, True])
def test_first_picture_of_an_mpo(progressive: bool) -> None:
    """A stereo or preview JPEG (MPO) gives its first picture, through either decoder."""
    first, second = picture(40, 30), picture(40, 30, seed=1)
    file = encoded(first, "MPO", save_all=True, append_images=[second], progressive=progressive)

    np.testing.assert_array_equal(decode(file), pillow(encoded(first, progressive=progressive)))


def test_palette_transparency_does_not_warn() -> None:
    """Pillow's advice about transparent palettes reaches nobody, and the pixels are the palette's."""
    file = encoded(picture(16, 12).quantize(9), "PNG", transparency=b"\x00\x80\xff")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels = decode(file)

    np.testing.assert_array_equal(pixels, pillow(file))


def png(width: int, height: int, *, bits: int = 8, color: int = 2, rows: bytes = b"") -> bytes:
    """A PNG by hand: the header may declare anything."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def patched_jpeg(width: int, height: int, source: bytes = JPEGS["420"]) -> bytes:
    """A JPEG whose frame header declares another size."""
    frame = max(source.find(b"\xff\xc0"), source.find(b"\xff\xc2"))
    return source[: frame + 5] + struct.pack(">HH", height, width) + source[frame + 9 :]


def patched_tiff(width: int, height: int) -> bytes:
    """A TIFF whose tags declare another size."""
    file = OTHERS["tiff"]
    for tag, side in ((256, width), (257, height)):
        at = next(i for kind in (3, 4) if (i := file.find(struct.pack("<HHI", tag, kind, 1))) > 0)
        file = file[: at + 2] + struct.pack("<HII", 4, 1, side) + file[at + 12 :]
    return file


WEBP_BOMB = (
    b"RIFF\x40\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"
    + (16382).to_bytes(3, "little") * 2
    + b"VP8 "
    + bytes(40)
)
BOMBS = {
    "jpeg": patched_jpeg(20000, 20000),
    "jpeg_max": patched_jpeg(65500, 65500),
    "jpeg_progressive": patched_jpeg(20000, 20000, JPEGS["progressive"]),
    "png": png(50000, 50000),
    "gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"\x2c" + bytes(4) + b"\xff\xff\xff\xff\x00\x02",
    "bmp": OTHERS["bmp"][:18] + struct.pack("<ii", 40000, 40000) + OTHERS["bmp"][26:],
    "webp": WEBP_BOMB,
    "tiff": patched_tiff(50000, 50000),
    "avif": OTHERS["avif"].replace(
        b"ispe" + struct.pack(">III", 0, 31, 22), b"ispe" + struct.pack(">III", 0, 16000, 16000)
    ),
    "ppm": b"P6\n50000 50000\n255\n",
    "pgm_plain": b"P2\n50000 50000\n255\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_declared_size_above_the_cap_is_refused_before_allocating(name: str) -> None:
    """The header's size is checked before pixels have memory, whatever the format."""
    decode(JPEGS["progressive"])  # imports Pillow
    with pytest.raises(ImageTooLargeError, match="max_pixels"):
        decode(BOMBS[name])
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()

    with pytest.raises(ImageTooLargeError):
        decode(BOMBS[name])

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20  # what Python sees
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - highest < 32 << 10  # KiB; what C allocates behind it


@pytest.mark.parametrize("name", ["420", "progressive", "png", "webp", "tiff", "gif", "bmp", "avif", "ppm"])
def test_the_cap_counts_pixels(name: str) -> None:
    """An image of exactly max_pixels decodes; one pixel less is too little."""
    file = (JPEGS | OTHERS)[name]
    area = pillow(file).shape[0] * pillow(file).shape[1]

    assert decode(file, max_pixels=area).size == 3 * area
    with pytest.raises(ImageTooLargeError, match=str(area - 1)):
        decode(file, max_pixels=area - 1)


@pytest.mark.parametrize(
    ("file", "nbytes"),
    [
        (JPEGS["420"], RESULT),
        (JPEGS["progressive"], 4 * 3 * 6 * 136 + RESULT),
        (encoded(picture(61, 45, "L"), progressive=True), 8 * 6 * 136 + RESULT),
        (encoded(picture(61, 45, "CMYK"), progressive=True), 8 * 6 * 4 * 128 + 61 * 45 * (4 + 4) + 2 * RESULT),
        (encoded(picture(61, 45), "PNG"), RESULT),
        (png_writer.png(png_writer.samples(61, 45, 6, 16), 6, 16, interlace=1), 61 * 45 * 8 + RESULT),
        (encoded(picture(61, 45), "WEBP"), 61 * 45 * 3 + RESULT),
        (encoded(picture(61, 45), "WEBP", lossless=True), 61 * 45 * 8 + RESULT),
        (encoded(picture(61, 45), "BMP"), 61 * 45 * 4 + 2 * RESULT),
        (encoded(picture(61, 45), "GIF"), 61 * 45 * (1 + 4 + 4) + 2 * RESULT),
        (encoded(picture(61, 45), "AVIF"), 61 * 45 * (4 + 12) + 2 * RESULT),
    ],
    ids=[
        *("baseline", "progressive", "gray", "CMYK", "png", "interlaced", "webp", "lossless webp", "bmp", "gif", "avif")
    ],
)
def test_the_cap_counts_the_pixels_and_what_decoders_hold(file: bytes, nbytes: int) -> None:
    """A picture that takes exactly max_nbytes decodes; one byte less is too little, and nothing is decoded."""
    assert decode(file, max_nbytes=nbytes).shape == (45, 61, 3)
    with pytest.raises(ImageTooLargeError, match=f"{nbytes} bytes.* {nbytes - 1}.*raise max_nbytes"):
        decode(file, max_nbytes=nbytes - 1)


@pytest.mark.parametrize("file", [LARGE_WEBP, LARGE_PNG], ids=["webp", "png"])
def test_small_files_of_large_pictures_are_refused_at_once(file: bytes) -> None:
    """A lossless WebP of 38 bytes, and an interlaced PNG of 16 bits, of 134 million pixels are above the default."""
    with pytest.raises(ImageTooLargeError, match="raise max_nbytes"):
        decode(file)
    failures: list[T.Failure] = []
    pipeline = T.Pipeline([T.Decode(), T.Resize((5, 5))])

    pipeline.compile("image").fill(
        [file], np.zeros((1, 5, 5, 3), np.uint8), SampleKeys(0, 0, np.arange(1)), failures=failures
    )

    assert isinstance(failures[0].error, ImageTooLargeError)


def test_many_profiles_are_not_all_inflated() -> None:
    """Profiles of a PNG count among its inflated metadata, up to 32 MiB; Pillow, which has no bound, is not asked."""
    profile = png_writer.chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(1 << 20)))
    few, many = (png_writer.png(png_writer.samples(61, 45, 2, 8), 2, 8, before=[profile] * count) for count in (32, 33))

    assert decode(few).shape == (45, 61, 3)
    with pytest.raises(_native.UnsupportedError, match="very long texts or profiles"):
        _native.decode(many)
    for orient in (False, True):
        with pytest.raises(DecodeError, match="at most 32 profiles"):
            decode(many, orient=orient)


def test_many_small_parts_are_refused_before_pillow_parses_them() -> None:
    """A PNG of empty chunks, and a JPEG of empty segments, are an error; a few thousand of them are read."""
    empty = png_writer.chunk(b"teSt", b"")
    few, many = (
        png_writer.png(png_writer.samples(61, 45, 2, 8), 2, 8, before=[empty * count]) for count in (3000, 51_000)
    )
    jpeg = encoded(picture(61, 45, "RGB"))
    segments = jpeg[:2] + b"\xff\xfe\0\x02" * 51_000 + jpeg[2:]

    assert fallback.read_pixels(few, 1 << 20).shape == (45, 61, 3)
    for file in (many, segments):
        with pytest.raises(DecodeError, match=r"at most 50\d+ parts, got more"):
            fallback.read_pixels(file, 1 << 20)


def test_a_mask_has_the_same_cap() -> None:
    """A progressive mask is decoded through Pillow, within max_nbytes; one of a PNG by the native decoder."""
    progressive, plain = encoded(picture(61, 45, "L"), progressive=True), encoded(picture(61, 45, "L"), "PNG")

    for mask, nbytes in [(progressive, 8 * 6 * 128 + 3 * 61 * 45), (plain, 61 * 45)]:
        assert Decode(max_nbytes=nbytes).mask(mask, np.zeros(0)).shape == (45, 61)
        with pytest.raises(ImageTooLargeError, match="raise max_nbytes"):
            Decode(max_nbytes=nbytes - 1).mask(mask, np.zeros(0))


def test_the_cap_is_ours_not_pillows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's global MAX_IMAGE_PIXELS neither narrows nor widens what decodes, and stays as the user set it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)

    assert decode(OTHERS["png"], region=(1, 1, 30, 20)).shape == (19, 29, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"8BPS\x00\x01", "Photoshop"),
        (b"%PDF-1.7", "PDF"),
        (b"qoif\x00\x00", "QOI"),
    ],
)
def test_other_formats_are_named(head: bytes, word: str) -> None:
    """A known format that is not read is named, with what to convert it to."""
    with pytest.raises(UnsupportedImageError, match=f"{word}.*PNG"):
        decode(head + bytes(64))


def test_sixteen_bit_graymaps_keep_their_high_byte() -> None:
    """A PGM of 16 bits, and one of 12, are brought to 8 bits by their high byte; Pillow would clip most to white."""
    deep = np.arange(0, 65536, 700).astype(np.uint16)
    file = b"P5\n%d 1\n65535\n" % len(deep) + deep.astype(">u2").tobytes()
    twelve = b"P5\n3 1\n4095\n" + np.array([0, 2048, 4095], ">u2").tobytes()

    np.testing.assert_array_equal(decode(file)[0, :, 0], deep >> 8)
    np.testing.assert_array_equal(decode(twelve)[0, :, 0], [0, 128, 255])


@pytest.mark.parametrize("largest", [255, 65535])
@pytest.mark.parametrize("kind", ["P2", "P5"])
def test_a_graymap_is_a_mask_with_its_values(kind: str, largest: int) -> None:
    """A PGM as a mask keeps its values, in 8 and in 16 bits."""
    values = [0, 1, 2, 19, 255, largest]
    raw = np.array(values, ">u1" if largest == 255 else ">u2").tobytes()
    file = f"{kind} 3 2 {largest}\n".encode() + (raw if kind == "P5" else " ".join(map(str, values)).encode())

    assert Decode().mask(file, np.zeros(0)).reshape(-1).tolist() == values


def test_a_graymap_whose_values_would_be_stretched_is_no_mask() -> None:
    """A PGM of another largest value is refused as a mask: Pillow stretches it, and class 19 would be another."""
    with pytest.raises(UnsupportedImageError, match="largest value"):
        Decode().mask(b"P5 3 1 19\n\x00\x01\x13", np.zeros(0))


def test_an_avif_without_a_parser_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the installed Pillow has no AVIF, the error says so and what to do."""
    monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)

    with pytest.raises(UnsupportedImageError, match=r"AVIF.*Pillow"):
        decode(OTHERS["avif"])


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"<!DOCTYPE html><html>",
        b"\xff\xd8",
        b"\x00" * 100,
        b"%!PS-Adobe-3.0 EPSF",
        b"P6 1 1 255 ab",
        b"P9 1 1 255 abc",
    ],
)
def test_what_is_no_image_is_refused(file: bytes) -> None:
    """Bytes that announce no format of the list are a DecodeError, without any other parser being tried."""
    with pytest.raises(DecodeError):
        decode(file)


@pytest.mark.parametrize("value", ["photo.jpg", 3, None, Path("photo.jpg")])
def test_what_is_not_bytes_is_an_argument_error(value: Any) -> None:
    """A path or number is the caller's mistake, not a damaged image."""
    with pytest.raises(ArgumentError, match=r"bytes-like|must be a file's bytes, got the path"):
        decode(value)


def test_a_scan_bomb_is_refused() -> None:
    """A progressive JPEG that asks for thousands of passes over a large image is refused before the first."""
    source = patched_jpeg(6000, 6000, JPEGS["progressive"])
    scan = source.rfind(b"\xff\xda")
    bomb = source[:-2] + source[scan:-2] * 1000 + b"\xff\xd9"

    with pytest.raises(DecodeError, match="100 scans"):
        decode(bomb)


def test_a_truncated_file_names_its_end() -> None:
    """The error of a truncated file carries the offset at which the bytes ran out."""
    with pytest.raises(DecodeError) as caught:
        decode(OTHERS["png"][:-40])

    assert caught.value.where.get("offset", len(OTHERS["png"]) - 40) == len(OTHERS["png"]) - 40


def test_sizes_names_the_unreadable_one() -> None:
    """An unreadable image among readable ones is located by its position."""
    with pytest.raises(DecodeError) as caught:
        sizes([JPEGS["420"], OTHERS["png"], b"<html>"])

    assert caught.value.where["position"] == 2


def test_real_images_are_bit_exact(photographs_dir: Path) -> None:
    """Photographs decode to Pillow's pixels, whole and in parts."""
    for path in sorted(photographs_dir.glob("*/*.jpg"))[::3]:
        file = path.read_bytes()
        whole = pillow(file)
        height, width = whole.shape[:2]
        region = (width // 5, height // 3, width // 5 * 4, height // 3 * 2)
        np.testing.assert_array_equal(decode(file), whole, err_msg=path.name)
        x0, y0, x1, y1 = region
        np.testing.assert_array_equal(decode(file, region=region), whole[y0:y1, x0:x1], err_msg=path.name)


def test_threads_decode_alike() -> None:
    """Eight threads that decode every kind of file at once get the pixels that one gets."""
    files = [*JPEGS.values(), *OTHERS.values()] * 4
    expected = [pillow(file) for file in files]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(decode, files))

    for mine, its in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, its)
