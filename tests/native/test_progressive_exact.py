"""Progressive files give Pillow's pixels, every one of them: any script of scans, whole pictures and regions."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import _native
from tests.native.progressive_writer import Picture, Scan, random_script, segment, write
from tests.native.test_jpeg_exact import assert_exact, pillow

Jpeg = Callable[..., bytes]

SAMPLINGS = {
    "gray": [(1, 1)],
    "4:4:4": [(1, 1)] * 3,
    "4:2:2": [(2, 1), (1, 1), (1, 1)],
    "4:2:0": [(2, 2), (1, 1), (1, 1)],
    "4:4:0": [(1, 2), (1, 1), (1, 1)],
    "4:1:1": [(4, 1), (1, 1), (1, 1)],
    "chroma apart": [(2, 2), (2, 1), (1, 2)],
}
WHOLE = [Scan((0,), 0, 0, 0, 0), Scan((0,), 1, 63, 0, 0)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.usefixtures("level")
def test_every_script_is_exact_at_every_small_size(sampling: str) -> None:
    """Bands and bits in any order and division, interleaved and not, with restarts and without, at 1 to 40 pixels."""
    rng = random.Random(sampling)

    for width in range(1, 41):
        height, factors = rng.randint(1, 40), SAMPLINGS[sampling]
        script = random_script(len(factors), rng)
        file = write(Picture.noise(width, height, factors, rng), script, rng, restarts=rng.random() < 0.3)
        assert_exact(file, 2, rng, f"{width} x {height}, {script}")


def test_high_frequencies_that_never_come_are_zero() -> None:
    """Scans from the tenth coefficient on may be missing, and last bits: libjpeg makes none of those up."""
    rng = random.Random("high")

    for _ in range(60):
        factors = SAMPLINGS[rng.choice([*SAMPLINGS])]
        picture = Picture.noise(rng.randint(1, 60), rng.randint(1, 60), factors, rng)
        script = random_script(len(factors), rng, complete=False)
        assert_exact(write(picture, script, rng), 1, rng, f"{script}")


@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from([0, 1, 2, "gray", "rgb"]),
    st.integers(1, 100),
    st.integers(0, 30),
    st.randoms(use_true_random=False),
)
def test_what_pillow_writes_is_exact(
    jpeg: Jpeg, width: int, height: int, kind: int | str, quality: int, restart: int, rng: random.Random
) -> None:
    """Any size, quality, sampling, colour space and restart interval, in the usual script of ten scans."""
    kinds: dict[int | str, dict[str, Any]] = {"gray": {"gray": True}, "rgb": {"keep_rgb": True, "subsampling": 0}}
    save = {"quality": quality, "progressive": True, **kinds.get(kind, {"subsampling": kind})}
    try:
        file = jpeg(width, height, seed=quality, restart_marker_blocks=restart, **save)
    except OSError:  # Pillow's buffer is too small for very small files of high quality
        return

    assert _native.inspect(file)["native"]
    assert_exact(file, 3, rng)


def test_photographs_are_exact(photographs_dir: Path) -> None:
    """Photographs saved anew as progressive: whole, and two regions of each."""
    rng = random.Random("photographs")

    for i, path in enumerate(sorted(photographs_dir.glob("*/*.jpg"))[::3]):
        with Image.open(path) as image:
            options = {} if image.mode == "L" else {"subsampling": i % 3}
            file = io.BytesIO()
            image.save(file, "JPEG", quality=rng.choice([60, 80, 92]), progressive=True, **options)
        assert_exact(file.getvalue(), 2, rng, path.name)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow tells the person, too
def test_damaged_files_are_exact_or_refused(hostile_dir: Path) -> None:
    """Every progressive file among the malformed ones decodes as with Pillow or is refused."""
    files = {path.name: path.read_bytes() for path in hostile_dir.glob("*.jpg")}
    progressive = {name: file for name, file in files.items() if _is_progressive(file)}

    assert progressive
    for name, file in progressive.items():
        try:
            pixels = _native.decode(file, None, 1 << 24)
        except ValueError:
            continue
        np.testing.assert_array_equal(pixels, pillow(file), err_msg=name)


def _is_progressive(file: bytes) -> bool:
    try:
        return bool(_native.inspect(file)["progressive"])
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (WHOLE[:1], "scans missing"),
        ([WHOLE[0], Scan((0,), 1, 63, 0, 1)], "scans missing"),
        ([WHOLE[0], Scan((0,), 1, 8, 0, 0), Scan((0,), 10, 63, 0, 0)], "scans missing"),
    ],
)
def test_files_without_their_first_frequencies_are_left_to_pillow(script: list[Scan], reason: str) -> None:
    """libjpeg smooths blocks of which it does not know the first ten coefficients; nobody else does it like that."""
    rng = random.Random(1)
    file = write(Picture.noise(30, 20, [(1, 1)], rng), script, rng)

    with pytest.raises(_native.UnsupportedError, match=reason):
        _native.decode(file)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (WHOLE[1:], "before the DC"),
        ([*WHOLE, WHOLE[1]], "does not continue"),
        ([*WHOLE, WHOLE[0]], "does not continue"),
        ([WHOLE[0], Scan((0,), 1, 63, 0, 2), Scan((0,), 1, 63, 1, 0)], "does not continue"),
        ([WHOLE[0], Scan((0,), 1, 63, 0, 2), Scan((0,), 1, 63, 2, 0)], "progression"),
        ([WHOLE[0], Scan((0,), 1, 63, 0, 14)], "progression"),
        ([Scan((0,), 0, 5, 0, 0)], "progression"),
    ],
)
def test_scans_that_do_not_follow_are_refused(script: list[Scan], reason: str) -> None:
    """What libjpeg warns of or refuses is refused: AC before DC, anything twice, bits left out."""
    rng = random.Random(2)
    file = write(Picture.noise(30, 20, [(1, 1)], rng), script, rng)

    with pytest.raises(_native.CorruptError, match=reason):
        _native.decode(file)


def test_quantisation_tables_between_scans_are_left_to_pillow() -> None:
    """Which of two tables holds depends on when a component's first scan comes."""
    rng = random.Random(3)
    file = write(Picture.noise(30, 20, [(1, 1)], rng), WHOLE, rng)
    second = file.rindex(b"\xff\xc4")

    with pytest.raises(_native.UnsupportedError, match="quantisation"):
        _native.decode(file[:second] + segment(0xDB, bytes([0, *[7] * 64])) + file[second:])


#: Every coefficient in two scans of its own: a valid script.
MANY = [
    Scan((0, 1, 2), 0, 0, 0, 0),
    *(Scan((c,), k, k, 0, 1) for k in range(1, 64) for c in range(3)),
    *(Scan((c,), k, k, 1, 0) for c in range(3) for k in range(1, 64)),
]


def test_a_scan_bomb_is_refused_before_the_first_scan() -> None:
    """More than 100 scans of a large picture are refused by their headers: not a scan is decoded.

    The first one has no content, which is what is said of a small picture, whose scans are decoded.
    """
    rng = random.Random(4)
    file = bytearray(write(Picture.noise(64, 64, SAMPLINGS["4:4:4"], rng), MANY, rng))
    header = file.index(b"\xff\xda") + 2
    content = header + int.from_bytes(file[header : header + 2], "big")
    del file[content : file.index(b"\xff\xc4", content)]
    with pytest.raises(_native.CorruptError, match="image data end too early"):
        _native.decode(bytes(file))
    frame = file.index(b"\xff\xc2")
    file[frame + 5 : frame + 9] = (6000).to_bytes(2, "big") * 2

    with pytest.raises(_native.CorruptError, match="more scans than are allowed"):
        _native.decode(bytes(file))


def test_many_scans_of_a_small_picture_are_read() -> None:
    """More than 100 scans of a small picture are little work, and are done."""
    rng = random.Random(5)

    assert_exact(write(Picture.noise(50, 40, SAMPLINGS["4:2:0"], rng), MANY, rng), 2, rng)


def test_too_few_bits_for_a_large_picture_are_refused_without_memory() -> None:
    """A header that declares more blocks than the file has bits gets no memory for them."""
    rng = random.Random(6)
    file = bytearray(write(Picture.noise(16, 16, [(1, 1)], rng), WHOLE, rng))
    frame = file.index(b"\xff\xc2")
    file[frame + 5 : frame + 9] = (11000).to_bytes(2, "big") * 2

    with pytest.raises(_native.CorruptError, match="fewer bits"):
        _native.decode(bytes(file))


def test_rows_below_a_region_are_not_read() -> None:
    """Damage in the lower part of a scan does not matter to a region above it; a missing end of the image does."""
    rng = random.Random(7)
    file = bytearray(write(Picture.noise(64, 200, [(1, 1)], rng), WHOLE, rng, restarts=False))
    expected = pillow(bytes(file))
    file[-40:-4] = b"\xff\x00" * 18

    np.testing.assert_array_equal(_native.decode(bytes(file), (8, 0, 60, 40)), expected[:40, 8:60])
    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(file))
    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(file[:-60]), (8, 0, 60, 40))
