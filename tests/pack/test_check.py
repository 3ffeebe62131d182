"""``check_image``: what it refuses, decoding refuses, and what ends early by its own account is refused."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from PIL import Image

from penstock.errors import DecodeError
from penstock.pack.pipeline.image_check import check_image
from penstock.paths import IMAGE_SUFFIXES
from penstock.transforms import decode
from tests.hostile.test_decode import VALID
from tests.pack.images import picture

WRITABLE = ["AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP"]


def passes(look: Callable[..., object], file: bytes, *how: str) -> bool:
    """Whether an image is accepted; any error but a DecodeError fails the test."""
    try:
        look(file, *how)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("name", VALID)
def test_a_whole_image_has_its_size(name: str) -> None:
    """Every format that decodes passes both checks, and the size is that of its pixels."""
    height, width, _ = decode(VALID[name]).shape

    assert check_image(VALID[name], "header") == check_image(VALID[name], "decode") == (width, height)


@pytest.mark.parametrize("name", VALID)
def test_a_file_cut_anywhere_is_refused_or_decodes(name: str) -> None:
    """A file cut after any byte is a DecodeError or an image, to either check; the closer one agrees with decoding."""
    for length in range(1, len(VALID[name])):
        cut = VALID[name][:length]

        header, whole = passes(check_image, cut, "header"), passes(check_image, cut, "decode")

        assert whole == (header and passes(decode, cut)), length


@pytest.mark.parametrize("name", ["jpeg", "progressive", "png", "gif", "webp", "avif", "ppm", "pgm"])
def test_a_cut_is_seen_without_decoding(name: str) -> None:
    """What says where it ends, by a mark or a count, is refused where it ends before: no half picture is packed."""
    for length in range(1, len(VALID[name]) - 12):
        assert not passes(check_image, VALID[name][:length], "header"), length


@pytest.mark.parametrize("name", [name for name in VALID if name != "ppm_plain"])
@pytest.mark.parametrize("junk", [b"\r\n", bytes(3), b"x" * 100])
def test_bytes_behind_the_end_are_allowed(name: str, junk: bytes) -> None:
    """Servers and cameras leave bytes behind an image; it is the same image."""
    assert check_image(VALID[name] + junk, "header") == check_image(VALID[name], "decode")


@pytest.mark.parametrize("form", WRITABLE)
def test_every_suffix_of_a_format_that_is_read_is_an_image(form: str) -> None:
    """Pillow's own endings of the formats that are read are those of images, and such a file passes both checks."""
    Image.init()
    unusual = {".apng", ".pfm", ".avifs"}  # PNG by another name; floats; sequences
    suffixes = {suffix for suffix, name in Image.registered_extensions().items() if name == form} - unusual

    assert suffixes <= IMAGE_SUFFIXES
    assert check_image(picture(3, form), "decode") == check_image(picture(3, form), "header")


def test_no_other_suffix_is_an_image() -> None:
    """An ending that makes a file an image belongs to a format that is read."""
    Image.init()
    with_extras = {".heic": "HEIF", ".heif": "HEIF", ".hif": "HEIF", ".jxl": "JXL"}
    formats = {**Image.registered_extensions(), ".dib": "BMP", **with_extras}

    assert {formats[suffix] for suffix in IMAGE_SUFFIXES} == {*WRITABLE, *with_extras.values()}


@pytest.mark.parametrize("form", ["JPEG2000", "TGA", "PCX", "ICO", "DDS", "SGI"])
def test_formats_that_decoding_does_not_read_are_refused(form: str) -> None:
    """What Pillow reads and decoding does not is refused by both checks, as by decoding."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, form)

    for look, *how in ((check_image, "header"), (check_image, "decode"), (decode,)):
        assert not passes(look, file.getvalue(), *how)
