"""PNG through ``decode``, masks and the fused fill: native where Pillow surely agrees, else as Pillow."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock import _native
from penstock import transforms as T
from penstock.errors import DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.sample import SampleKeys
from penstock.transforms import decode, sizes
from penstock.transforms.apply import apply_to_image
from penstock.transforms.decoding import fallback
from tests.native.png_writer import KINDS, chunk, data_chunks, header, picture_lines, png, samples

SIZES = ((1, 1), (1, 9), (9, 1), (3, 2), (8, 8), (61, 45), (130, 70))
CAP = 1 << 24


def made(color: int, depth: int, size: tuple[int, int] = (61, 45), **options: Any) -> bytes:
    """A file of this kind with random filters."""
    return png(samples(*size, color, depth), color, depth, **options)


def mask_of(file: bytes, max_pixels: int = CAP) -> NDArray[Any]:
    """The values of a mask, through the op."""
    return T.Decode(max_pixels=max_pixels).mask(file, np.zeros(0))


def pillow(file: bytes) -> NDArray[np.uint8]:
    """The pixels of Pillow, the specification."""
    return fallback.read_pixels(file, CAP)


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Every pixel, the shape and the dtype."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("color", "depth"), [kind for kind in KINDS if kind[0] in {0, 3}])
def test_masks_have_pillows_values(color: int, depth: int) -> None:
    """A mask has its values as stored, with Pillow's dtype, whichever decoder reads it."""
    file = made(color, depth)

    same(mask_of(file), fallback.channel_pixels(file, CAP))
    with pytest.raises(DecodeError):
        mask_of(file[:-40])


@pytest.mark.parametrize("color", [2, 4, 6])
def test_a_mask_of_several_channels_is_refused(color: int) -> None:
    """A mask with several channels raises the error that names them."""
    with pytest.raises(UnsupportedImageError, match="a mask must have one channel"):
        mask_of(made(color, 8))


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("color", "depth"), KINDS)
def test_the_fused_path_equals_the_general_one(color: int, depth: int, interlace: int) -> None:
    """Rows that are filled from PNG bytes have the pixels of a decoded picture that is cropped and resized."""
    files = [made(color, depth, size, interlace=interlace) for size in SIZES * 2]
    pipeline = T.Pipeline(
        [T.Decode(), T.RandomResizedCrop(32), T.HorizontalFlip(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)]
    )
    out = np.zeros((len(files), 32, 32, 3), np.float32)
    keys = SampleKeys(7, 1, np.arange(len(files)))
    program = pipeline.compile("image")

    program.fill(files, out, keys)

    for i, file in enumerate(files):
        general = apply_to_image(pipeline.ops, pipeline.layouts, pillow(file), keys[i : i + 1], 1)
        same(out[i], general)


def test_sizes_are_read_natively() -> None:
    """The header gives the size; a size above the cap is refused where the image is decoded."""
    file = made(2, 8, (130, 70))

    np.testing.assert_array_equal(sizes([file]), [(130, 70)])
    with pytest.raises(ImageTooLargeError, match="130 x 70"):
        decode(file, max_pixels=130 * 70 - 1)
    with pytest.raises(ImageTooLargeError, match="130 x 70"):
        mask_of(made(0, 8, (130, 70)), 130 * 70 - 1)


def test_a_bomb_inflates_no_more_than_its_header_declares() -> None:
    """Data of 100 MB behind a header of 8 x 8 pixels get Pillow's verdict, and little memory."""
    lines = picture_lines(samples(8, 8, 2, 8), 8)
    file = header(8, 8, 2, 8) + data_chunks(lines + bytes(100 << 20), level=9) + chunk(b"IEND")

    same(decode(file), pillow(file))


def _exif(orientation: int) -> bytes:
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def _files_with_orientation() -> dict[str, tuple[bytes, int]]:
    """A name, the file, and the orientation that the native reader must give; 0: Pillow must look."""
    exif, text = chunk(b"eXIf", _exif(6)), chunk(b"tEXt", b"Title\0nothing")
    xmp = chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="8"/>')
    return {
        "none": (made(2, 8), 1),
        "before": (made(2, 8, before=[exif]), 6),
        "after": (made(2, 8, after=[exif]), 6),
        "with a text": (made(2, 8, before=[text], after=[exif, text]), 6),
        "a value out of range": (made(2, 8, before=[chunk(b"eXIf", _exif(9))]), 1),
        "in XMP": (made(2, 8, before=[xmp]), 0),
        "twice": (made(2, 8, before=[exif, exif]), 0),
        "damaged": (made(2, 8, before=[chunk(b"eXIf", b"MM\0*")]), 0),
    }


@pytest.mark.parametrize("name", _files_with_orientation())
def test_orientation(name: str) -> None:
    """The orientation in an eXIf chunk is Pillow's; where it may be elsewhere, Pillow reads it."""
    file, expected = _files_with_orientation()[name]

    found = int(_native.orientations([file])[0])

    assert found == expected
    assert found in {0, fallback.read_orientation(file, CAP)}


ANCILLARY = {
    "text": [chunk(b"tEXt", b"Title\0a picture"), chunk(b"iTXt", b"Title\0\0\0en\0Titel\0ein Bild")],
    "compressed": [
        chunk(b"zTXt", b"Title\0\0" + zlib.compress(bytes(5000))),
        chunk(b"iTXt", b"Title\0\1\0\0\0" + zlib.compress(b"text" * 900)),
    ],
    "profile": [chunk(b"iCCP", b"profile\0\0" + zlib.compress(np.random.default_rng(0).bytes(3000)))],
    "color": [
        chunk(b"gAMA", struct.pack(">I", 45455)),
        chunk(b"cHRM", bytes(32)),
        chunk(b"sRGB", b"\0"),
        chunk(b"pHYs", struct.pack(">IIB", 2835, 2835, 1)),
    ],
    "unknown": [chunk(b"prVt", b"anything"), chunk(b"bKGD", b"\0\0\0\0\0\0"), chunk(b"tIME", bytes(7))],
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", ANCILLARY)
def test_chunks_that_change_no_pixel(name: str, place: str) -> None:
    """Texts, profiles and unknown chunks are passed over natively."""
    chunks = ANCILLARY[name]
    file = made(2, 8, before=chunks) if place == "before" else made(2, 8, after=chunks)

    same(_native.decode(file), pillow(file))


def damaged_files() -> dict[str, bytes]:
    """A fault, and a file that has it."""
    whole = made(2, 8)
    lines = picture_lines(samples(61, 45, 2, 8), 8)
    start, end = header(61, 45, 2, 8), chunk(b"IEND")
    data = data_chunks(lines)
    bad_filter = bytearray(lines)
    bad_filter[184 * 20] = 5
    return {
        "no IEND": whole[:-12],
        "cut in the data": whole[: len(whole) // 2],
        "cut in the last checksum": whole[:-1],
        "trailing bytes": whole + b"trailing",
        "wrong checksum of the header": whole[:29] + b"\0\0\0\0" + whole[33:],
        "wrong checksum of a text": whole[:33] + chunk(b"tEXt", b"a\0b")[:-1] + b"?" + whole[33:],
        "wrong checksum of the data": start + data[:-2] + b"??" + end,
        "wrong sum of the inflated bytes": start + chunk(b"IDAT", zlib.compress(lines)[:-4] + b"1234") + end,
        "a line too few": start + data_chunks(lines[:-184]) + end,
        "a line too many": start + data_chunks(lines + lines[-184:]) + end,
        "bytes after the stream": start + chunk(b"IDAT", zlib.compress(lines) + b"more") + end,
        "a filter that does not exist": start + data_chunks(bytes(bad_filter)) + end,
        "no data": start + end,
        "empty data": start + chunk(b"IDAT") + end,
        "data in two places": start + data[:-12] + data[-12:] + chunk(b"tEXt", b"a\0b") + data + end,
        "empty data chunks": start + chunk(b"IDAT") + data + chunk(b"IDAT") + end,
        "no palette": header(61, 45, 3, 8) + data_chunks(picture_lines(samples(61, 45, 3, 8), 8)) + end,
        "a palette of 257 colours": made(3, 8, palette=257),
        "a palette after the data": start + data + chunk(b"PLTE", b"abc") + end,
        "two palettes": made(3, 8, before=[chunk(b"PLTE", bytes(range(30)))]),
        "a palette of 4 bytes": made(2, 8, before=[chunk(b"PLTE", b"abcd")]),
        "a kind that does not exist": header(61, 45, 2, 4) + data + end,
        "no width": header(0, 45, 2, 8) + data + end,
        "another header": whole[:33] + header(5, 5, 2, 8)[8:] + whole[33:],
        "a method of compression": whole[:26]
        + b"\1"
        + struct.pack(">I", zlib.crc32(whole[12:26] + b"\1\0\0"))
        + whole[33:],
        "a short tRNS": made(2, 8, before=[chunk(b"tRNS", b"\0\1")]),
        "a short gamma": made(2, 8, before=[chunk(b"gAMA", b"\0")]),
        "a long profile": made(2, 8, before=[chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2 << 20)))]),
        "a long text": made(2, 8, before=[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2 << 20)))]),
        "a text of method 1": made(2, 8, before=[chunk(b"zTXt", b"a\0\1" + zlib.compress(b"b"))]),
        "a damaged profile": made(2, 8, before=[chunk(b"iCCP", b"a\0\0" + bytes(2000))]),
        "animation": made(2, 8, before=[chunk(b"acTL", struct.pack(">II", 1, 0))]),
        "a name of digits": made(2, 8, before=[chunk(b"1234", b"")]),
    }


def verdict(file: bytes) -> NDArray[np.uint8] | type[DecodeError]:
    """Pillow's pixels, or its error."""
    try:
        return pillow(file)
    except DecodeError as error:
        return type(error)


@pytest.mark.parametrize("fault", damaged_files())
def test_damaged_files_get_pillows_verdict(fault: str) -> None:
    """A file that breaks a rule gives Pillow's pixels or an error of the same class, decoded alone and in a batch."""
    file = damaged_files()[fault]
    expected = verdict(file)
    program = T.Pipeline([T.Decode(max_pixels=CAP), T.CenterCrop(8)])
    failures: list[T.Failure] = []
    out = np.zeros((1, 8, 8, 3), np.uint8)

    program.compile("image").fill([file], out, SampleKeys(0, 0, np.arange(1)), failures=failures)

    if isinstance(expected, type):
        with pytest.raises(DecodeError) as error:
            decode(file, max_pixels=CAP)
        assert error.type is expected
        assert [type(failure.error) for failure in failures] in ([expected], [])
    else:
        same(decode(file, max_pixels=CAP), expected)
        assert failures == []
