"""JPEG markers, Exif orientation as arithmetic, and silence in one thread alone."""

from __future__ import annotations

import io
import random
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.orientation import orient_pixels, raw_region
from penstock.transforms.decoding import jpeg_markers
from penstock.transforms.decoding.image_formats import quiet
from tests.native.progressive_writer import Picture
from tests.native.sequential_writer import write_sequential


def jpeg(**options: Any) -> bytes:
    """A small JPEG of noise, so that its scans hold every byte."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def test_scans_are_counted() -> None:
    """Baseline has one scan; progressive as many as Pillow's script makes; markers inside metadata do not count."""
    hidden = b"Exif\x00\x00" + b"\xff\xda\x00\x02" * 50

    assert jpeg_markers.count_scans(jpeg(quality=95), 9) == 1
    assert jpeg_markers.count_scans(jpeg(exif=hidden), 9) == 1
    assert jpeg_markers.count_scans(jpeg(restart_marker_blocks=1), 9) == 1
    assert jpeg_markers.count_scans(jpeg(progressive=True), 99) == 10


def test_counting_stops() -> None:
    """Counting ends at the limit and at the end of the first image."""
    bomb = jpeg()[:-2] + b"\xff\xda\x00\x02\x01\x02" * 100_000 + b"\xff\xd9"

    assert jpeg_markers.count_scans(bomb, 100) == 101
    assert jpeg_markers.count_scans(jpeg() + jpeg(), 9) == 1


@given(noise=st.binary(max_size=300))
def test_any_bytes_are_walked_to_the_end(noise: bytes) -> None:
    """Whatever follows the first marker, walking ends and believes no length beyond the bytes."""
    file = b"\xff\xd8\xff" + noise

    assert 0 <= jpeg_markers.count_scans(file, 1000) <= len(file)
    assert jpeg_markers.has_metadata(file) in {True, False}
    frame = jpeg_markers.frame(file)
    assert frame is None or len(frame) == 3
    assert jpeg_markers.coefficient_nbytes(file) >= 0


@pytest.mark.parametrize(
    ("options", "mode", "blocks"),
    [
        ({}, "RGB", 0),
        ({"progressive": True}, "L", 5 * 5),
        ({"progressive": True, "subsampling": "4:4:4"}, "RGB", 3 * 5 * 5),
        ({"progressive": True, "subsampling": "4:2:2"}, "RGB", 3 * 5 * 4),
        ({"progressive": True, "subsampling": "4:2:0"}, "RGB", 3 * 3 * 6),
        ({"progressive": True}, "CMYK", 4 * 5 * 5),
    ],
)
def test_coefficients_are_counted(options: dict[str, Any], mode: str, blocks: int) -> None:
    """128 bytes for each block of whole MCUs, where a file has several scans."""
    file = io.BytesIO()
    Image.new(mode, (40, 39)).save(file, "JPEG", **options)

    assert jpeg_markers.coefficient_nbytes(file.getvalue()) == 128 * blocks


def test_coefficients_of_a_sequential_file_of_several_scans_are_counted() -> None:
    """libjpeg keeps them also where the scans are not progressive."""
    picture = Picture.noise(40, 39, [(1, 1)] * 3, random.Random(0))

    assert jpeg_markers.coefficient_nbytes(write_sequential(picture, [(0,), (1, 2)], random.Random(0))) == 128 * 75
    assert jpeg_markers.coefficient_nbytes(write_sequential(picture, [(0, 1, 2)], random.Random(0))) == 0


def test_frame_header() -> None:
    """The first frame header's kind, bits and components are read."""
    assert jpeg_markers.frame(jpeg()) == (0xC0, 8, 3)
    assert jpeg_markers.frame(jpeg(progressive=True)) == (0xC2, 8, 3)
    assert jpeg_markers.frame(b"\xff\xd8\xff\xc0\x00\x11\x08") is None


def test_metadata_is_seen_before_the_scan() -> None:
    """An Exif segment is found, and none is imagined."""
    assert jpeg_markers.has_metadata(jpeg(exif=b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x00\x00"))
    assert not jpeg_markers.has_metadata(jpeg())


@pytest.mark.parametrize("orientation", range(1, 9))
@given(width=st.integers(1, 9), height=st.integers(1, 9), corners=st.tuples(*[st.integers(0, 80)] * 4))
def test_a_region_maps_to_the_same_pixels(
    orientation: int, width: int, height: int, corners: tuple[int, int, int, int]
) -> None:
    """Cropping the oriented picture equals orienting the crop of the raw rows."""
    raw = np.arange(width * height, dtype=np.uint8).reshape(height, width)
    shown = orient_pixels(raw, orientation)
    x0, y0 = corners[0] % shown.shape[1], corners[1] % shown.shape[0]
    x1, y1 = x0 + 1 + corners[2] % (shown.shape[1] - x0), y0 + 1 + corners[3] % (shown.shape[0] - y0)

    left, top, right, bottom = raw_region((x0, y0, x1, y1), orientation, width, height)

    np.testing.assert_array_equal(orient_pixels(raw[top:bottom, left:right], orientation), shown[y0:y1, x0:x1])


def test_quiet_holds_in_its_own_thread_alone() -> None:
    """While one thread is quiet, a warning there is dropped and the same warning elsewhere is not."""
    inside, done = threading.Event(), threading.Event()
    raised: list[Warning] = []

    def hush() -> None:
        with quiet():
            warnings.warn("dropped", UserWarning, stacklevel=1)
            inside.set()
            done.wait(60)
            warnings.warn("dropped too", UserWarning, stacklevel=1)

    def record() -> None:
        try:
            hush()
        except Warning as warning:
            raised.append(warning)

    thread = threading.Thread(target=record)
    thread.start()
    assert inside.wait(60)

    with pytest.raises(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)

    done.set()
    thread.join()
    assert raised == []


def test_quiet_ends_and_nests() -> None:
    """Warnings are dropped to the end of the outermost body and not beyond, also after the filters were swapped."""
    with quiet():
        with quiet():
            warnings.warn("dropped", UserWarning, stacklevel=1)
        warnings.warn("dropped", UserWarning, stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            warnings.warn("dropped", UserWarning, stacklevel=1)

    with pytest.raises(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def test_quiet_adds_one_filter() -> None:
    """However often it is used, one filter stands in the list, and the user's are behind it in their order."""
    before = [entry for entry in warnings.filters if "OnlyHere" not in repr(entry[1])]

    for _ in range(100):
        with quiet():
            pass

    assert list(warnings.filters)[1:] == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with quiet():
            assert sum("OnlyHere" in repr(entry[1]) for entry in warnings.filters) == 1


@pytest.mark.parametrize("how", [{"quality": 1}, {"quality": 1, "progressive": True}, {"quality": 1, "subsampling": 0}])
def test_the_emptiest_whole_file_holds_its_data(how: dict[str, Any]) -> None:
    """One colour takes the fewest bits there can be, far more than what counts as none."""
    file = io.BytesIO()
    Image.new("RGB", (4000, 3000)).save(file, "JPEG", optimize=True, **how)
    whole = file.getvalue()

    assert not jpeg_markers.lacks_data(whole)
    assert jpeg_markers.lacks_data(whole[:650] + b"\xff\xd9")
