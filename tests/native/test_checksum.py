"""The checksum of TFRecord files: CRC-32C at every level of instructions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

LEVELS = ["scalar", "avx2", None]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """A level of this processor, then the best one again."""
    try:
        _native.level_override(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield
    _native.level_override(None)


def slow_crc32c(content: bytes) -> int:
    """The definition, bit by bit."""
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
@pytest.mark.usefixtures("level")
def test_values_of_the_standard(content: bytes, expected: int) -> None:
    """The examples of RFC 3720, and the check value of the catalogue of CRCs."""
    assert _native.crc32c(content) == expected


@given(content=st.binary(max_size=300), start=st.integers(0, 9))
def test_every_level_gives_the_definition(content: bytes, start: int) -> None:
    """Any bytes at any alignment have the CRC of the bit-by-bit definition, at every level."""
    view = memoryview(content)[start:]
    expected = slow_crc32c(bytes(view))

    assert _native.crc32c(view) == expected
    _native.level_override("scalar")
    try:
        assert _native.crc32c(view) == expected
    finally:
        _native.level_override(None)


def test_long_content_has_the_crc_of_its_parts() -> None:
    """Content that is long enough to release the GIL has the same CRC at every level."""
    content = bytes(range(256)) * 1024
    best = _native.crc32c(content)
    _native.level_override("scalar")
    try:
        scalar = _native.crc32c(content)
    finally:
        _native.level_override(None)

    assert best == scalar == slow_crc32c(content)


def test_other_arguments_are_refused() -> None:
    """Only contiguous bytes have a checksum."""
    with pytest.raises(TypeError, match="contiguous bytes"):
        _native.crc32c(memoryview(b"abcdef")[::2])
