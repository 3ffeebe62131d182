"""Sequential files of several scans give Pillow's pixels, all of them: any division, whole pictures and regions."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from penstock import _native
from tests.hostile.test_jpeg import assert_honest, mutated
from tests.native.progressive_writer import Picture, segment
from tests.native.sequential_writer import write_sequential
from tests.native.test_jpeg_exact import assert_exact, pillow
from tests.native.test_progressive_exact import SAMPLINGS
from tests.native.test_scaled import assert_exact as assert_exact_at_scales

Jpeg = Callable[..., bytes]

DIVISIONS: list[list[tuple[int, ...]]] = [
    [(0,), (1,), (2,)],
    [(2,), (0,), (1,)],
    [(0,), (1, 2)],
    [(0, 1), (2,)],
    [(1,), (0, 2)],
]
COLOURS = [name for name in SAMPLINGS if name != "gray"]


def several(width: int, height: int, seed: int, sampling: str = "4:2:0", *, restarts: bool = False) -> bytes:
    """Noise, in some division into scans."""
    rng = random.Random(seed)
    picture = Picture.noise(width, height, SAMPLINGS[sampling], rng)
    return write_sequential(picture, rng.choice(DIVISIONS), rng, restarts=restarts)


@pytest.mark.parametrize("sampling", COLOURS)
@pytest.mark.usefixtures("level")
def test_every_division_is_exact_at_every_small_size(sampling: str) -> None:
    """A scan for each component or some together, in any order, with restarts and without, at 1 to 40 pixels."""
    rng = random.Random(sampling)

    for width in range(1, 41):
        file = several(width, rng.randint(1, 40), width, sampling, restarts=rng.random() < 0.3)
        assert _native.inspect(file)["native"]
        assert_exact(file, 2, rng, f"{width} {sampling}")


def test_larger_pictures_are_exact_at_every_scale() -> None:
    """Rows of many blocks, parts of them, and a half, a quarter and an eighth of the size."""
    rng = random.Random(1)

    for seed in range(12):
        file = several(rng.randint(100, 700), rng.randint(8, 200), seed, rng.choice(COLOURS), restarts=seed % 2 == 0)
        assert_exact(file, 2, rng)
        assert_exact_at_scales(file, 2, rng)


@pytest.mark.parametrize("sampling", COLOURS)
def test_transcoding_makes_one_scan_of_them(sampling: str) -> None:
    """The result is baseline for everyone, has an index, and decodes as the original does, here and with Pillow."""
    rng = random.Random(f"transcode {sampling}")

    for seed in range(20):
        file = several(rng.randint(1, 60), rng.randint(1, 60), seed, sampling, restarts=seed % 3 == 0)
        baseline = _native.transcode_baseline(file)
        assert b"\xff\xc0\0\x11\x08" in baseline
        assert baseline.count(b"\xff\xda") == 1
        assert _native.build_index(baseline, "rows")
        np.testing.assert_array_equal(pillow(baseline), pillow(file))
        assert_exact(baseline, 1, rng)


def test_they_have_no_index() -> None:
    """There is no place to begin inside several scans."""
    with pytest.raises(_native.UnsupportedError, match="index"):
        _native.build_index(several(64, 64, 1), "rows")


def test_a_picture_in_one_scan_is_not_transcoded(jpeg: Jpeg) -> None:
    """Sequential and in one scan: it is as it should be."""
    with pytest.raises(_native.UnsupportedError, match="one scan"):
        _native.transcode_baseline(jpeg(40, 30))


def test_truncated_files_are_refused_wherever_they_end() -> None:
    """Also between two scans: a component that never comes is not made up."""
    for seed in range(3):
        file = several(50, 40, seed, restarts=seed == 1)
        for end in range(len(file)):
            with pytest.raises(ValueError, match=r"."):
                _native.decode(file[:end])


def test_rows_below_a_region_are_not_read() -> None:
    """Damage in the lower part of a scan does not matter to a region above it; a missing end of the image does."""
    rng = random.Random(7)
    picture = Picture.noise(64, 200, SAMPLINGS["4:2:0"], rng)
    file = bytearray(write_sequential(picture, DIVISIONS[0], rng))
    expected = pillow(bytes(file))
    file[-20:-2] = b"\xff\x00" * 9

    np.testing.assert_array_equal(_native.decode(bytes(file), (8, 0, 60, 40)), expected[:40, 8:60])
    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(file))
    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(file[:-40]), (8, 0, 60, 40))


REFUSED = [
    ("a component twice", [(0,), (1,), (1,), (2,)], _native.CorruptError, "does not continue"),
    ("a component never", [(0,), (1,)], _native.CorruptError, "without a scan"),
    ("out of order", [(0,), (2, 1)], _native.UnsupportedError, "out of order"),
]


@pytest.mark.parametrize(
    ("groups", "error", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_scans_that_do_not_make_a_picture_are_left_to_pillow(
    groups: list[tuple[int, ...]], error: type[Exception], reason: str
) -> None:
    """What libjpeg makes of them is its own affair."""
    rng = random.Random(2)
    file = write_sequential(Picture.noise(30, 20, SAMPLINGS["4:4:4"], rng), groups, rng)

    with pytest.raises(error, match=reason):
        _native.decode(file)


def test_what_stands_between_scans_is_minded() -> None:
    """Comments are passed over; quantisation tables hold for the scans behind them, which is left to Pillow."""
    file = several(30, 20, 3)
    second = file.rindex(b"\xff\xc4")
    table = segment(0xDB, bytes([0, *[7] * 64]))

    commented = file[:second] + segment(0xFE, b"said") + file[second:]

    np.testing.assert_array_equal(_native.decode(commented), pillow(file))
    with pytest.raises(_native.UnsupportedError, match="quantisation"):
        _native.decode(file[:second] + table + file[second:])


@pytest.mark.parametrize("bits", [b"\x01\x3f\x00", b"\x00\x3e\x00", b"\x00\x3f\x10", b"\x00\x3f\x01"])
def test_parts_of_blocks_are_refused(bits: bytes) -> None:
    """A scan of a sequential file that claims to hold a band, or some bits, is none that libjpeg reads in silence."""
    file = bytearray(several(30, 20, 3))
    last = file.rindex(b"\xff\xda")
    length = int.from_bytes(file[last + 2 : last + 4], "big")
    file[last + 2 + length - 3 : last + 2 + length] = bits

    with pytest.raises(_native.CorruptError, match="progression"):
        _native.decode(bytes(file))


def test_damaged_files_decode_right_or_not_at_all() -> None:
    """500 files with a few bytes changed: pixels as Pillow's, or an error."""
    rng = random.Random("several")
    files = [several(rng.randint(1, 90), rng.randint(1, 90), seed, restarts=seed % 3 == 0) for seed in range(10)]

    decoded = sum(assert_honest(mutated(rng.choice(files), rng), f"several, {i}", rng) for i in range(500))

    assert 0 < decoded < 500
