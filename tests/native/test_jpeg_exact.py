"""The native decoder gives Pillow's pixels, every one of them: whole pictures, regions, with every kernel."""

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
from numpy.typing import NDArray
from PIL import Image

from penstock import _native

Jpeg = Callable[..., bytes]
Region = tuple[int, int, int, int]

# libjpeg's own sampling factors of the first component, as the file's byte has them; chroma is 1 x 1.
FACTORS = {"4:4:4": 0x11, "4:2:2": 0x21, "4:2:0": 0x22, "4:4:0": 0x12, "4:1:1": 0x41}


def pillow(file: bytes) -> NDArray[np.uint8]:
    """The reference."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def assert_exact(file: bytes, regions: int, rng: random.Random, name: str = "") -> None:
    """The whole picture and some regions of it are Pillow's."""
    expected = pillow(file)
    np.testing.assert_array_equal(_native.decode(file), expected, err_msg=name)
    height, width = expected.shape[:2]
    for _ in range(regions):
        x0, y0 = rng.randrange(width), rng.randrange(height)
        x1, y1 = rng.randint(x0 + 1, width), rng.randint(y0 + 1, height)
        part = _native.decode(file, (x0, y0, x1, y1))
        np.testing.assert_array_equal(part, expected[y0:y1, x0:x1], err_msg=f"{name} {x0, y0, x1, y1}")


def with_sampling(width: int, height: int, sampling: str, seed: int, **save: Any) -> bytes:
    """A JPEG of any sampling. Pillow writes three of them; in the others its blocks (noise) are dealt out anew."""
    across, down = FACTORS[sampling] >> 4, FACTORS[sampling] & 15
    mcus = -(-width // (8 * across)), -(-height // (8 * down))
    written = {1: "4:4:4", 2: "4:2:2", 4: "4:2:0"}[across * down]
    a, b = FACTORS[written] >> 4, FACTORS[written] & 15
    rng = np.random.default_rng(seed)
    pixels = rng.normal(0, 20, (8 * b * mcus[1], 8 * a * mcus[0], 3)).cumsum(0) + rng.normal(128, 20, 3)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", **{"subsampling": written, **save})
    patched = bytearray(file.getvalue())
    frame = patched.index(b"\xff\xc0")
    patched[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    patched[frame + 11] = FACTORS[sampling]
    return bytes(patched)


def test_photographs_are_exact(photographs_dir: Path) -> None:
    """Every photograph decodes as with Pillow: whole, and two regions of each."""
    rng = random.Random(photographs_dir.name)
    files = sorted(photographs_dir.glob("*/*.jpg"))

    for path in files:
        assert_exact(path.read_bytes(), 2, rng, path.name)


@pytest.mark.parametrize("sampling", FACTORS)
@pytest.mark.usefixtures("level")
def test_every_sampling_is_exact_at_every_small_size(sampling: str) -> None:
    """Pictures of 1 to 40 pixels a side: the edges of filters, blocks and MCUs in all combinations."""
    rng = random.Random(sampling)

    for width in range(1, 41):
        for height in rng.sample(range(1, 41), 6):
            assert_exact(with_sampling(width, height, sampling, width), 2, rng, f"{width} x {height}")


@pytest.mark.parametrize("sampling", FACTORS)
def test_pictures_of_one_and_two_columns_are_exact(sampling: str) -> None:
    """Chroma of at most two columns is repeated, not filtered: sizes around that bound."""
    rng = random.Random(sampling)

    for width in range(1, 12):
        for height in range(1, 12):
            assert_exact(with_sampling(width, height, sampling, height), 1, rng, f"{width} x {height}")


@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from([0, 1, 2, "gray", "rgb"]),
    st.integers(1, 100),
    st.booleans(),
    st.integers(0, 30),
    st.randoms(use_true_random=False),
)
def test_what_pillow_writes_is_exact(  # what a file is made of
    jpeg: Jpeg,
    width: int,
    height: int,
    kind: int | str,
    quality: int,
    optimize: bool,
    restart: int,
    rng: random.Random,
) -> None:
    """Any size, quality, sampling, colour space, Huffman tables and restart interval."""
    kinds: dict[int | str, dict[str, Any]] = {"gray": {"gray": True}, "rgb": {"keep_rgb": True, "subsampling": 0}}
    save = {"quality": quality, "optimize": optimize, **kinds.get(kind, {"subsampling": kind})}
    try:
        file = jpeg(width, height, seed=quality, restart_marker_blocks=restart, **save)
    except OSError:  # Pillow's buffer is too small for very small files of high quality
        return

    assert _native.inspect(file)["native"]
    assert_exact(file, 3, rng)


def test_restart_intervals_above_a_region_are_not_read(jpeg: Jpeg) -> None:
    """Damage inside an interval above the region goes unnoticed; inside the region's it does not."""
    file = bytearray(jpeg(64, 64, subsampling=0, restart_marker_blocks=8))
    expected = pillow(bytes(file))
    second = file.index(b"\xff\xd0") + 2
    file[second : second + 4] = b"\xff\x00\xff\x00"

    found = _native.decode(bytes(file), (8, 24, 56, 64))

    np.testing.assert_array_equal(found, expected[24:, 8:56])
    with pytest.raises(_native.CorruptError):
        _native.decode(bytes(file), (8, 8, 56, 64))


def test_rows_below_a_region_are_not_read(jpeg: Jpeg) -> None:
    """A file cut off below the region still gives the region, and an error for the whole."""
    file = jpeg(200, 400, subsampling=2)
    expected = pillow(file)
    cut = file[: len(file) // 2]

    np.testing.assert_array_equal(_native.decode(cut, (10, 0, 190, 100)), expected[:100, 10:190])
    with pytest.raises(_native.CorruptError, match="end"):
        _native.decode(cut)


def test_sixteen_bit_quantisation_tables_are_exact(jpeg: Jpeg) -> None:
    """A table of 16-bit entries is read as one of 8 bits with the same values is."""
    file = jpeg(40, 30, subsampling=0)
    start = file.index(b"\xff\xdb")
    table = file[start + 5 : start + 69]
    wide = b"\xff\xdb" + (131).to_bytes(2, "big") + b"\x10" + b"".join(bytes([0, q]) for q in table)

    patched = file[:start] + wide + file[start + 69 :]

    np.testing.assert_array_equal(_native.decode(patched), pillow(file))


REFUSED = [
    ("height in a DNL segment", {}, "DNL"),
    ("12 bits", {}, "must be 8"),
    ("three by one", {}, "fractional"),
    ("arithmetic", {}, "arithmetic"),
    ("progressive arithmetic", {"progressive": True}, "arithmetic"),
    ("12 bits, progressive", {"progressive": True}, "must be 8"),
]


@pytest.mark.parametrize(("name", "save", "reason"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_other_kinds_are_left_to_pillow(jpeg: Jpeg, name: str, save: dict[str, Any], reason: str) -> None:
    """What is valid but not ours says so, and why."""
    file = bytearray(jpeg(24, 24, subsampling=0, **save))
    frame = file.index(b"\xff\xc2" if save else b"\xff\xc0")
    place, value = {
        "height in a DNL segment": (slice(frame + 5, frame + 7), b"\0\0"),
        "12 bits": (slice(frame + 4, frame + 5), b"\x0c"),
        "three by one": (slice(frame + 11, frame + 15), b"\x31\0\2\x21"),
        "arithmetic": (slice(frame + 1, frame + 2), b"\xc9"),
        "progressive arithmetic": (slice(frame + 1, frame + 2), b"\xca"),
        "12 bits, progressive": (slice(frame + 4, frame + 5), b"\x0c"),
    }[name]
    file[place] = value

    with pytest.raises(_native.UnsupportedError, match=reason):
        _native.decode(bytes(file))


def test_too_many_pixels_are_refused_by_the_header_alone(jpeg: Jpeg) -> None:
    """A header that declares more than the limit is refused before the scan is looked at."""
    file = bytearray(jpeg(16, 16))
    frame = file.index(b"\xff\xc0")
    file[frame + 5 : frame + 9] = (20000).to_bytes(2, "big") * 2

    with pytest.raises(_native.TooLargeError, match="20000 x 20000"):
        _native.decode(bytes(file[: frame + 900]))
