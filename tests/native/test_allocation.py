"""What a file declares is allocated within limits; where the system has no memory, the image fails alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock import _native
from tests.native.progressive_writer import segment

Jpeg = Callable[..., bytes]

BLOCK_NBYTES = 136
"""A block's 64 coefficients of two bytes, and eight bytes that tell which of them are not zero."""


def file_of(frame: int, size: tuple[int, int], factors: list[int], scans: list[tuple[bytes, bytes]]) -> bytes:
    """A JPEG whose Huffman tables have one code each, of one bit: DC and AC table 0 end a block, AC table 1 a run."""
    width, height = size
    count = len(factors)
    components = b"".join(bytes([i, factor, 0]) for i, factor in enumerate(factors))
    one_code = b"\x01" + bytes(15)
    head = segment(0xDB, b"\x00" + b"\x08" * 64)
    head += segment(frame, b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([count]) + components)
    head += segment(0xC4, b"\x00" + one_code + b"\x00" + b"\x10" + one_code + b"\x00" + b"\x11" + one_code + b"\xe0")
    return b"\xff\xd8" + head + b"".join(segment(0xDA, scan) + body for scan, body in scans) + b"\xff\xd9"


def flat_baseline(side: int) -> bytes:
    """A gray square, as small as a baseline file of it can be: two bits a block."""
    blocks = (-(-side // 8)) ** 2
    return file_of(0xC0, (side, side), [0x11], [(b"\x01\x00\x00\x00\x3f\x00", bytes(-(-blocks // 4)))])


def flat_progressive(side: int) -> bytes:
    """The same of several scans: a bit a block, then runs of 2**14 empty ones, which take 15 bits each."""
    blocks = (-(-side // 8)) ** 2
    runs = -(-blocks // (1 << 14))
    scans = [
        (b"\x01\x00\x00\x00\x00\x00", bytes(-(-blocks // 8))),
        (b"\x01\x00\x01\x01\x3f\x00", bytes(-(-15 * runs // 8))),
    ]
    return file_of(0xC2, (side, side), [0x11], scans)


def declared(size: tuple[int, int], factors: list[int]) -> bytes:
    """A progressive JPEG of that header and all scans, of which there are a few bytes each."""
    selectors = b"".join(bytes([i, 0]) for i in range(len(factors)))
    scans = [(bytes([len(factors)]) + selectors + bytes(3), bytes(10))]
    scans += [(bytes([1, i, 1, 1, 63, 0]), bytes(10)) for i in range(len(factors))]
    return file_of(0xC2, size, factors, scans)


def test_the_flat_files_are_pictures() -> None:
    """What the tests below rely on: both files decode, and are gray."""
    for file in (flat_baseline(100), flat_progressive(100)):
        assert (_native.decode(file) == np.full((100, 100, 3), 128)).all()


@pytest.mark.parametrize(("subsampling", "blocks"), [(0, 8 * 6 * 3), (1, 4 * 6 * 4), (2, 4 * 3 * 6)])
def test_coefficients_have_a_limit(jpeg: Jpeg, subsampling: int, blocks: int) -> None:
    """As many bytes as the whole picture's blocks take are enough, one less is refused; baseline files keep none."""
    size, nbytes = (64, 48), blocks * BLOCK_NBYTES
    baseline, image = (jpeg(*size, subsampling=subsampling, progressive=p) for p in (False, True))
    reason = f"take {nbytes} bytes, more than the {nbytes - 1} allowed; raise max_nbytes"
    pixels = 3 * 64 * 48

    assert _native.decode(image, max_nbytes=nbytes + pixels).shape == (48, 64, 3)
    assert _native.transcode_baseline(image, max_nbytes=nbytes)
    assert _native.decode(baseline, max_nbytes=pixels).shape == (48, 64, 3)
    for region in (None, (0, 0, 8, 8)):  # whether an image is refused does not depend on the crop
        with pytest.raises(_native.TooLargeError, match=reason):
            _native.decode(image, region, max_nbytes=nbytes - 1)
    with pytest.raises(_native.TooLargeError, match=reason):
        _native.transcode_baseline(image, max_nbytes=nbytes - 1)


def test_fill_reports_images_above_the_limit(jpeg: Jpeg) -> None:
    """The image is told apart, its row is untouched, and the others are filled."""
    images = [jpeg(64, 48, subsampling=0, progressive=True), jpeg(64, 48)]
    geometry = np.tile(np.array([0, 0, 64, 48, 32, 32, 0, 0, 0], np.int32), (2, 1))
    out = np.zeros((2, 32, 32, 3), np.uint8)

    failures, _, _ = _native.fill(
        images, geometry, out, np.arange(2), layout="HWC", filter="box", max_nbytes=8 * 6 * 3 * BLOCK_NBYTES - 1
    )

    assert [(i, kind) for i, kind, _ in failures] == [(0, "too_large")]
    assert "max_nbytes" in failures[0][2]
    assert [row.any() for row in out] == [False, True]


@pytest.mark.parametrize("size", [(16384, 8192), (65500, 2049), (2049, 65500), (11585, 11585)], ids=str)
@pytest.mark.parametrize(
    "factors",
    [[0x11], [0x11] * 3, [0x21, 0x11, 0x11], [0x22, 0x11, 0x11], [0x41, 0x11, 0x11], [0x14, 0x11, 0x11], [0x31] * 3],
    ids=lambda factors: "+".join(f"{factor:x}" for factor in factors),
)
def test_the_default_limits_go_together(size: tuple[int, int], factors: list[int]) -> None:
    """A progressive file of as many pixels as are allowed has not too many coefficients, whatever its sampling."""
    with pytest.raises(_native.CorruptError, match="fewer bits than blocks"):
        _native.decode(declared(size, factors))


SCRIPT = """
import resource, sys
import numpy as np
from penstock import _native

small, progressive, baseline = (open(path, "rb").read() for path in sys.argv[1:])
side = 11_000
def fill(image, height):
    out = np.zeros((1, height, 64, 3), np.uint8)
    geometry = np.array([[0, 0, side, side, 64, height, 0, 0, 0]], np.int32)
    failures, _, _ = _native.fill([image], geometry, out, np.zeros(1, np.int64), layout="HWC", filter="bilinear")
    assert not out.any()
    return failures

def decode_small():
    return _native.decode(small).tobytes()

expected = decode_small()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    _native.decode(progressive, (side - 8, side - 8, side, side))
except MemoryError as error:
    assert "242000000 bytes were requested" in str(error), error
else:
    raise AssertionError("there is no memory for that")
try:
    _native.transcode_baseline(progressive)
except MemoryError:
    pass
else:
    raise AssertionError("there is no memory for that")
for image, height in ((progressive, 64), (baseline, 1)):
    (failure,) = fill(image, height)
    assert failure[:2] == (0, "out_of_memory"), failure
assert decode_small() == expected
"""


def test_a_lack_of_memory_is_an_error_of_the_image(tmp_path: Path, jpeg: Jpeg) -> None:
    """Coefficients, and source rows that a very low picture needs at once, are asked for; the process goes on."""
    files = {"small": jpeg(64, 48, progressive=True), "p": flat_progressive(11_000), "b": flat_baseline(11_000)}
    for name, file in files.items():
        (tmp_path / name).write_bytes(file)

    subprocess.run([sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in files)], check=True, timeout=60)
