"""Damaged JPEG files through the native decoder: Pillow's pixels or one of three errors, never anything else."""

from __future__ import annotations

import io
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

import penstock as ps
from penstock import _native
from penstock.errors import DecodeError
from tests.effort import IS_PART

REFUSALS = (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError)
CAP = 1 << 24


def native(file: bytes, region: tuple[int, int, int, int] | None = None) -> NDArray[np.uint8] | None:
    """The native decoder's pixels; None: refused. Any other exception, a panic included, fails the test."""
    try:
        return _native.decode(file, region, CAP)
    except REFUSALS:
        return None


def pillow(file: bytes) -> NDArray[np.uint8] | None:
    """Pillow's pixels; None: refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
        except Exception:  # noqa: BLE001  # whatever it raises, it refuses
            return None


def assert_honest(file: bytes, name: str, rng: random.Random) -> bool:
    """What decodes is right, with all kernels, whole and in part; tells whether it decoded."""
    found = native(file)
    _native.level_override("scalar")
    try:
        scalar = native(file)
    finally:
        _native.level_override(None)
    assert (found is None) == (scalar is None), f"{name}: the kernels differ"
    if found is None or scalar is None:
        return False
    np.testing.assert_array_equal(found, scalar, err_msg=f"{name}: the kernels differ")
    expected = pillow(file)
    if expected is not None:
        np.testing.assert_array_equal(found, expected, err_msg=name)
    height, width = found.shape[:2]
    x0, y0 = rng.randrange(width), rng.randrange(height)
    x1, y1 = rng.randint(x0 + 1, width), rng.randint(y0 + 1, height)
    np.testing.assert_array_equal(native(file, (x0, y0, x1, y1)), found[y0:y1, x0:x1], err_msg=name)
    return True


def mutated(seed: bytes, rng: random.Random) -> bytes:
    """The file with some bits flipped, bytes set, or pieces moved; half of the time near its start."""
    file = bytearray(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        place = rng.randrange(len(file) if rng.random() < 0.5 else min(700, len(file)))
        kind = rng.randrange(3)
        if kind == 0:
            file[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            file[place] = rng.choice([0, 1, 255, rng.randrange(256)])
        else:
            start = rng.randrange(len(file))
            file[place : place + rng.randrange(10)] = file[start : start + rng.randint(1, 40)]
    return bytes(file)


def seeds() -> list[bytes]:
    """Small files of all kinds that the native decoder reads."""
    rng = np.random.default_rng(0)
    files = []
    for i in range(40):
        width, height = rng.integers(1, 120, 2)
        pixels = (rng.normal(0, 20, (height, width, 3)).cumsum(0) + 128).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels).convert("L" if i % 4 == 3 else "RGB")
        file = io.BytesIO()
        options: dict[str, int] = {"subsampling": i % 4} if i % 4 < 3 else {}
        options["progressive"] = i % 3 == 0
        restart = int(rng.integers(1, 20)) if i % 5 == 0 else 0
        try:
            image.save(file, "JPEG", quality=int(rng.integers(5, 90)), restart_marker_blocks=restart, **options)
        except OSError:  # Pillow's buffer is too small for some small pictures with many markers
            continue
        files.append(file.getvalue())
    return files


def run(mutations: int, seed: str) -> None:
    """So many damaged files; among them must be some of either fate, or the damage is of the wrong kind."""
    rng, files = random.Random(seed), seeds()
    decoded = sum(assert_honest(mutated(rng.choice(files), rng), f"{seed}, {i}", rng) for i in range(mutations))
    assert 0 < decoded < mutations


def test_the_gallery_is_survived(hostile_dir: Path) -> None:
    """Files that crashed other decoders: pixels or an error."""
    for path in sorted(hostile_dir.iterdir()):
        assert_honest(path.read_bytes(), path.name, random.Random(path.name))


def test_what_fuzzing_found_stays_mended() -> None:
    """Every file kept from fuzzing and mutation: pixels or an error."""
    kept = sorted((Path(__file__).parent / "files").glob("*.jpg"))

    assert kept
    for path in kept:
        assert_honest(path.read_bytes(), path.name, random.Random(path.name))


def declaration_without_data(side: int, code_length: int) -> bytes:
    """A JPEG of 4:4:4 that declares ``side x side`` pixels and has ten zero bytes of them, which are valid codes."""
    counts = bytes(int(length == code_length) for length in range(1, 17))
    size = side.to_bytes(2, "big")
    tables = [(b"\x00" + counts + b"\x00"), (b"\x10" + counts + b"\x01")]
    segments = [
        (0xDB, b"\x00" + bytes([8]) * 64),
        (0xC0, b"\x08" + size + size + b"\x03\x01\x11\x00\x02\x11\x00\x03\x11\x00"),
        *((0xC4, table) for table in tables),
        (0xDA, b"\x03\x01\x00\x02\x00\x03\x00\x00\x3f\x00"),
    ]
    head = b"".join(bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body for marker, body in segments)
    return b"\xff\xd8" + head + bytes(10) + b"\xff\xd9"


@pytest.mark.parametrize("code_length", [1, 2, 8, 15, 16])
def test_a_region_behind_the_end_of_the_data_is_refused(code_length: int) -> None:
    """Blocks that a header declares and the file lacks are not gone through: the end of the data is the end."""
    side = 11_000
    file = declaration_without_data(side, code_length)

    for region in [(side - 8, side - 8, side, side), (0, side - 8, 8, side), (side - 8, 0, side, 8), None]:
        with pytest.raises(_native.CorruptError, match="image data end too early"):
            _native.decode(file, region)


def test_a_declaration_without_data_is_not_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would make all of the declared pixels; it is not asked for any."""
    file = declaration_without_data(11_000, 16)
    monkeypatch.setattr(JpegImageFile, "load", None)

    for region in [(10_992, 10_992, 11_000, 11_000), None]:
        with pytest.raises(DecodeError, match=r"are too few for the 11000 x 11000 pixels"):
            ps.decode(file, region=region)


def test_truncated_files_are_refused_wherever_they_end(photographs_dir: Path) -> None:
    """Photographs cut at every 1000th byte: never pixels, for Pillow has none either."""
    for path in sorted(photographs_dir.glob("*/*.jpg")):
        file = path.read_bytes()
        for end in range(0, len(file), 1000):
            assert native(file[:end]) is None, f"{path.name} cut at {end}"


def test_damaged_files_decode_right_or_not_at_all() -> None:
    """2,000 files with a few bytes changed."""
    run(2_000, "few")


@pytest.mark.slow
def test_many_damaged_files_decode_right_or_not_at_all() -> None:
    """30,000 files with a few bytes changed."""
    run(10_000 if IS_PART else 30_000, "many")
