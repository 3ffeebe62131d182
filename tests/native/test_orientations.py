"""Exif orientation: read from the file, and applied while a row is filled."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock.orientation import orient_pixels, raw_regions
from penstock.transforms.decoding import fallback

XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf tiff:Orientation="6"/></x:xmpmeta>'


def jpeg(width: int = 40, height: int = 24, **options: Any) -> bytes:
    """A picture as a JPEG."""
    coarse = np.random.default_rng(0).integers(0, 256, (max(height // 6, 2), max(width // 6, 2), 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", **options)
    return file.getvalue()


PLAIN = jpeg()


def tiff(entries: list[tuple[int, int, int, bytes]], order: Literal["II", "MM"] = "II") -> bytes:
    """A TIFF structure with one directory; ``entries``: tag, type, count and the four bytes after them."""
    byteorder: Literal["little", "big"] = "little" if order == "II" else "big"
    numbers = [(42, 2), (8, 4), (len(entries), 2)]
    found = order.encode() + b"".join(number.to_bytes(size, byteorder) for number, size in numbers)
    for tag, kind, count, value in entries:
        found += b"".join(n.to_bytes(size, byteorder) for n, size in ((tag, 2), (kind, 2), (count, 4))) + value
    return found + bytes(4)


def with_segments(*bodies: bytes) -> bytes:
    """The plain JPEG with these APP1 segments."""
    segments = b"".join(b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body for body in bodies)
    return PLAIN[:2] + segments + PLAIN[2:]


def exif(entries: list[tuple[int, int, int, bytes]], order: Literal["II", "MM"] = "II") -> bytes:
    """The body of an Exif segment."""
    return b"Exif\0\0" + tiff(entries, order)


SIX, NINE = b"\x06\0\0\0", b"\x09\0\0\0"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["II", "MM"])
def test_the_tag_is_read(orientation: int, order: Literal["II", "MM"]) -> None:
    """In both byte orders, beside other tags."""
    value = orientation.to_bytes(2, "little" if order == "II" else "big") + bytes(2)
    file = with_segments(exif([(0x100, 4, 1, bytes(4)), (0x112, 3, 1, value), (0x128, 3, 1, bytes(4))], order))

    assert _native.orientations([file, PLAIN]).tolist() == [orientation, 1]
    assert fallback.read_orientation(file, 1 << 20) == orientation


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (with_segments(exif([(0x112, 3, 1, NINE)])), 1),
        (with_segments(exif([])), 1),
        (with_segments(exif([(0x112, 4, 1, SIX)])), 0),
        (with_segments(exif([(0x112, 3, 2, SIX)])), 0),
        (with_segments(exif([(0x112, 3, 1, SIX)] * 2)), 0),
        (with_segments(exif([(0x10F, 2, 99, SIX), (0x112, 3, 1, SIX)])), 0),
        (with_segments(exif([(0x10F, 99, 1, SIX), (0x112, 3, 1, SIX)])), 0),
        (with_segments(exif([(0x112, 3, 1, SIX)]), exif([(0x112, 3, 1, NINE)])), 0),
        (with_segments(b"Exif\0\0II*\0\x08\0\0\0\xff\xff"), 0),
        (with_segments(b"Exif\0\0XX*\0\x08\0\0\0"), 0),
        (with_segments(XMP), 0),
        (with_segments(exif([(0x112, 3, 1, SIX)]), XMP), 6),
        (PLAIN[:60], 0),
        (b"\x89PNG\r\n\x1a\n", 0),
        (b"", 0),
    ],
)
def test_only_what_leaves_no_doubt_is_read(file: bytes, expected: int) -> None:
    """0 leaves the question to Pillow: damaged or unusual segments, XMP, other formats."""
    assert _native.orientations([file]).tolist() == [expected]


@given(
    body=st.binary(max_size=60),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    xmp=st.booleans(),
)
def test_what_is_read_is_what_pillow_reads(body: bytes, changes: list[tuple[int, int]], *, xmp: bool) -> None:
    """For any damage to the segment."""
    segment = bytearray(exif([(0x10F, 2, 4, b"abc\0"), (0x112, 3, 1, SIX), (0x11A, 5, 1, b"\x32\0\0\0")]) + body)
    for at, value in changes:
        segment[6 + at % (len(segment) - 6)] = value
    file = with_segments(bytes(segment), *[XMP] * xmp)

    found = int(_native.orientations([file])[0])

    assert found in {0, fallback.read_orientation(file, 1 << 20)}


def fill(
    file: bytes, window: tuple[int, int, int, int], size: tuple[int, int], orientation: int, **options: Any
) -> NDArray[np.uint8]:
    """A region of the oriented image, resized, in the middle of a batch's row with two pixels around it."""
    shape = _native.sizes([file])
    geometry = np.array([[*window, *size, -2, -2, 0]], np.int32)
    orientations = np.array([orientation], np.uint8)
    geometry[:, :4] = raw_regions(geometry[:, :4], orientations, shape)
    out: NDArray[np.uint8] = np.zeros((1, size[1] + 4, size[0] + 4, 3), np.uint8)
    rows, beside = np.zeros(1, np.int64), (1, 2, 3)
    failed, _, _ = _native.fill(
        [file], geometry, out, rows, layout="HWC", beside=beside, orientations=orientations, **options
    )
    assert failed == []
    row: NDArray[np.uint8] = out[0]
    return row


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic", "cv2-area", "cv2-nearest"])
def test_a_row_is_that_of_the_oriented_image(orientation: int, kernel: str) -> None:
    """Bit for bit: on one thread and on several, with a seek table and without, framed, and from pixels."""
    file = jpeg(1311, 823, quality=90)
    stored = _native.decode(file)
    shown = orient_pixels(stored, orientation)
    window = (3, 5, shown.shape[1] - 11, shown.shape[0] - 7)
    for size in ((100, 73), (window[2] - window[0], window[3] - window[1])):
        geometry = np.array([*window, *size, -2, -2, 0], np.int32)
        expected = np.zeros((1, size[1] + 4, size[0] + 4, 3), np.uint8)
        _native.fill_pixels(shown, geometry, expected, 0, layout="HWC", filter=kernel, beside=(1, 2, 3))
        index = _native.build_index(file, "tiles")

        np.testing.assert_array_equal(fill(file, window, size, orientation, filter=kernel), expected[0])
        for indices in ([None], [index]):
            found = fill(file, window, size, orientation, filter=kernel, threads=3, indices=indices, found=[])
            np.testing.assert_array_equal(found, expected[0])
        raw = raw_regions(geometry[None, :4], np.array([orientation]), np.array([[1311, 823]]))
        geometry[:4] = raw[0]
        from_pixels = np.zeros_like(expected)
        _native.fill_pixels(
            stored, geometry, from_pixels, 0, layout="HWC", filter=kernel, orientation=orientation, beside=(1, 2, 3)
        )
        np.testing.assert_array_equal(from_pixels, expected)


def test_wrong_orientations_are_refused() -> None:
    """Values from 1 to 8, one for each image."""
    with pytest.raises(ValueError, match=r"an orientation must be in \[1, 8\], got 9"):
        fill(PLAIN, (0, 0, 40, 24), (10, 10), 9, filter="box")
    with pytest.raises(ValueError, match=r"orientations of 1 images must have shape \[1\]"):
        _native.fill(
            [PLAIN], np.zeros((1, 9), np.int32), np.zeros((1, 9, 9, 3), np.uint8), np.zeros(1, np.int64), layout="HWC",
            filter="box", orientations=np.ones(2, np.uint8),
        )  # fmt: skip
