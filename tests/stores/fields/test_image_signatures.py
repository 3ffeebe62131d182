"""First bytes of images: every format that Pillow writes, and bytes that are none."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from penstock import _native
from penstock.paths import IMAGE_SUFFIXES
from penstock.stores.fields.image_signatures import (
    are_images,
    find_image_suffix,
    looks_like_image,
    make_file,
    read_jpeg_nbytes,
)

SUFFIXES = {
    "JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp", "TIFF": "tif", "WEBP": "webp", "AVIF": "avif",
    "PPM": "ppm", "JPEG2000": "jp2",
}  # fmt: skip


@pytest.mark.parametrize("form", list(SUFFIXES))
def test_each_format_has_its_suffix(form: str) -> None:
    """What Pillow writes has the usual suffix, from bytes and from a view."""
    if form not in Image.SAVE and not Image.init() and form not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {form}")
    file = io.BytesIO()
    Image.new("RGB", (20, 10)).save(file, form)

    assert find_image_suffix(file.getvalue()) == SUFFIXES[form]
    assert find_image_suffix(memoryview(file.getvalue())) == SUFFIXES[form]
    assert looks_like_image(file.getvalue())
    assert (f".{SUFFIXES[form]}" in IMAGE_SUFFIXES) == (form != "JPEG2000")


def test_coefficients_of_a_jpeg_are_an_image() -> None:
    """They have the suffix of the file that comes back; their head says how long it is."""
    file = io.BytesIO()
    Image.new("RGB", (20, 10)).save(file, "JPEG")
    record = _native.coefficients_from_jpeg(file.getvalue())

    assert find_image_suffix(record) == "jpg"
    assert make_file(record) == file.getvalue()
    assert read_jpeg_nbytes(record) == len(file.getvalue())


@pytest.mark.parametrize("content", [b"", b"\xff", b"P5x", b"Photos", b"RIFF....WAVEfmt ", b"{}", bytes(40)])
def test_other_bytes_are_no_image(content: bytes) -> None:
    """Bytes that begin no known image have no suffix."""
    assert find_image_suffix(content) == ""
    assert not looks_like_image(content)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ([], False),
        ([b"", b""], False),
        ([b"GIF89a", b"", b"BM"], True),
        ([b"GIF89a", b"text", b"BM"], True),
        ([b"GIF89a", b"text"], False),
    ],
)
def test_a_field_has_images_if_most_of_its_values_are(contents: list[bytes], expected: bool) -> None:
    """Empty values count neither way, and one damaged value does not change what the others are."""
    assert are_images(contents) == expected
