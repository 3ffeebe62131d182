"""Caffe's messages are parsed as protobuf writes them; any other bytes are refused."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.lmdb.datum import parse_datum
from tests.conformance.lmdb_layouts import varint

PIXELS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
DIMENSIONS = b"\x08\x02\x10\x03\x18\x04"


def floats(values: Any) -> bytes:
    """Floats behind a tag each, as Caffe writes them."""
    return b"".join(b"\x35" + struct.pack("<f", value) for value in values)


@given(label=st.integers(-(2**31), 2**31 - 1))
def test_pixels_and_label_are_read(label: int) -> None:
    """Raw bytes are CHW; a label is an int32, negative ones too."""
    datum = parse_datum(memoryview(DIMENSIONS + b"\x22\x18" + PIXELS.tobytes() + b"\x28" + varint(label)))

    assert np.array_equal(datum.read_pixels(), PIXELS)
    assert datum.label == label
    assert not datum.is_encoded


def test_an_encoded_image_is_a_view() -> None:
    """The content of an encoded message is not copied, and no label is None."""
    content = memoryview(b"\x22\x03abc\x38\x01")

    datum = parse_datum(content)

    assert datum.is_encoded
    assert datum.content is not None
    assert datum.content.obj is content.obj
    assert datum.label is None


@pytest.mark.parametrize(
    "written",
    [
        floats(PIXELS.ravel()),
        b"\x32\x60" + PIXELS.astype("<f4").tobytes(),
        floats(PIXELS.ravel()[:5]) + b"\x28\x07" + b"\x32\x4c" + PIXELS.ravel()[5:].astype("<f4").tobytes(),
        b"\x22\x00" + floats(PIXELS.ravel()),
    ],
    ids=["one by one", "packed", "in parts", "behind empty data"],
)
def test_floats_are_read(written: bytes) -> None:
    """float_data may be packed or not, and in parts."""
    stored = parse_datum(memoryview(DIMENSIONS + written)).read_pixels()

    assert stored.dtype == np.float32
    assert np.array_equal(stored, PIXELS)


def test_many_floats_are_read() -> None:
    """Runs longer than the blocks in which they are looked for."""
    values = np.arange(5000, dtype=np.float32)

    datum = parse_datum(memoryview(b"\x08\x01\x10\x32\x18\x64" + floats(values) + b"\x28\x01"))

    assert np.array_equal(datum.read_pixels().ravel(), values)
    assert datum.label == 1


def test_unknown_fields_are_skipped() -> None:
    """Fields of other numbers and wire types are left out."""
    unknown = b"\x78\x05" + b"\x81\x01" + bytes(8) + b"\x8d\x01" + bytes(4) + b"\x92\x01\x02xx" + b"\x0a\x01x"

    datum = parse_datum(memoryview(unknown + DIMENSIONS + unknown + b"\x22\x18" + PIXELS.tobytes() + unknown))

    assert np.array_equal(datum.read_pixels(), PIXELS)


def test_image_without_its_mark_is_encoded() -> None:
    """Bytes that begin as an image, and are not as many as the pixels, are an image; as many as them are pixels."""
    image = b"\xff\xd8\xff\xe0" + bytes(16)
    for content, is_encoded in ((image, True), (image + bytes(4), False), (bytes(20), False)):
        datum = parse_datum(memoryview(DIMENSIONS + b"\x22" + bytes([len(content)]) + content))
        assert datum.is_encoded == is_encoded


@pytest.mark.parametrize(
    "content",
    [
        b"\x08", b"\x22\x05abc", b"\x22\xff\xff\xff\xff\x0fabc", b"\x35abc", b"\x08" + b"\xff" * 11, b"\x0b\x0c",
        b"\x07", b"\x32\x03abc", b"\x2d\x00", b"\x29\x00", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)  # fmt: skip
def test_damaged_messages_are_refused(content: bytes) -> None:
    """Lengths that are not there, numbers without an end, wire types that are none."""
    with pytest.raises(ValueError, match="message"):
        parse_datum(memoryview(content))


@pytest.mark.parametrize(
    "content", [DIMENSIONS, DIMENSIONS + b"\x22\x02ab", b"\x08\x02\x22\x02ab", b"\x08\x00\x10\x03\x18\x04\x22\x00"]
)
def test_pixels_of_another_number_are_refused(content: bytes) -> None:
    """The number of values must be that of channels, height and width."""
    with pytest.raises(ValueError, match="its"):
        parse_datum(memoryview(content)).read_pixels()


@given(st.binary(max_size=80) | st.binary(max_size=40).map(lambda tail: DIMENSIONS + tail))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Random messages give a Datum or a ValueError, and so do their pixels."""
    with contextlib.suppress(ValueError):
        parse_datum(memoryview(content)).read_pixels()
