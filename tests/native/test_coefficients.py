"""Records of coefficients: the same pixels as the JPEG by every path, the same file back, no damage unseen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from tests.native.conftest import Jpeg
from tests.native.test_jpeg_exact import FACTORS, with_sampling
from tests.photographs import write_photographs

OPTIONS: list[dict[str, Any]] = [
    {},
    {"quality": 1.0},
    {"quality": 2.0, "late_color": True},
    {"late_color": True},
    {"mode": "L"},
    {"mode": "BGR", "filter": "bicubic"},
    {"threads": 2, "learn": "tiles"},
    {"learn": "rows"},
    {"dtype": np.float32, "layout": "CHW"},
]


EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
"""Orientation 6."""


def fill(files: list[bytes], geometry: NDArray[np.int32], size: tuple[int, int], **options: Any) -> NDArray[Any]:
    """The rows of a batch."""
    options = {"filter": "bilinear", "layout": "HWC", **options}
    channels = 1 if options.get("mode") == "L" else 3
    shape = (len(files), channels, *size) if options["layout"] == "CHW" else (len(files), *size, channels)
    dtype = options.pop("dtype", np.uint8)
    if dtype == np.float32:
        options |= {"scale": [1 / 64] * 3, "offset": [-2.0] * 3}
    if "learn" in options:
        options |= {"found": [], "indices": [None] * len(files)}
    out = np.zeros(shape, dtype)
    failures, *_ = _native.fill(files, geometry, out, np.arange(len(files)), **options)
    assert failures == []
    return out


def check_equal(image: bytes, rng: np.random.Generator) -> bytes:
    """The record of an image, which gives the same file, facts, and pixels of random regions by all paths."""
    record = _native.coefficients_from_jpeg(image)
    assert _native.jpeg_from_coefficients(record) == image
    assert _native.inspect(record) == _native.inspect(image)
    assert _native.sizes([record]).tolist() == _native.sizes([image]).tolist()
    assert _native.orientations([record]).tolist() == _native.orientations([image]).tolist()
    for scale in (1, 2, 4, 8):
        assert np.array_equal(_native.decode(record, scale=scale), _native.decode(image, scale=scale))
    height, width = _native.decode(image).shape[:2]
    for options in OPTIONS:
        (x0, y0), ends = rng.integers(0, (width, height)), (width, height)
        x1, y1 = (int(rng.integers(at + 1, end + 1)) for at, end in zip((x0, y0), ends, strict=True))
        size = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        geometry = np.array([[x0, y0, x1, y1, size[1], size[0], 0, 0, rng.integers(0, 4)]], np.int32)
        assert np.array_equal(fill([record], geometry, size, **options), fill([image], geometry, size, **options)), (
            options,
            geometry,
        )
    return record


@pytest.mark.parametrize("sampling", FACTORS)
@pytest.mark.usefixtures("level")
def test_pixels_are_those_of_the_jpeg(sampling: str) -> None:
    """For every sampling and size, at every level: decoded and filled pixels are equal to the bit."""
    rng = np.random.default_rng(FACTORS[sampling])
    for seed in range(12):
        width, height = (int(side) for side in rng.integers(1, 300 if seed % 4 == 0 else 70, 2))
        check_equal(with_sampling(width, height, sampling, seed), rng)


def test_photographs_give_the_same_pixels(photographs_dir: Path) -> None:
    """Every photograph comes back byte for byte, with the same pixels by every path, in less than 1.3 of its bytes."""
    rng = np.random.default_rng(1)
    for path in sorted(photographs_dir.glob("*/*.jpg")):
        image = path.read_bytes()
        assert len(check_equal(image, rng)) < 1.3 * len(image) + 500, path.name


@pytest.mark.parametrize(
    "save",
    [
        {"gray": True},
        {"progressive": True},
        {"progressive": True, "gray": True},
        {"restart_marker_blocks": 3},
        {"restart_marker_rows": 1, "progressive": True},
        {"quality": 100, "subsampling": 0},
        {"quality": 1},
        {"optimize": True, "comment": b"a comment"},
        {"keep_rgb": True},
        {"exif": EXIF},
    ],
    ids="-".join,
)
def test_kinds_of_files_come_back(jpeg: Jpeg, save: dict[str, Any]) -> None:
    """Gray, progressive, restart markers, metadata and RGB: the same file, the same pixels."""
    rng = np.random.default_rng(2)
    for seed, (width, height) in enumerate(((1, 1), (97, 61), (300, 17))):
        check_equal(jpeg(width, height, seed, **save), rng)


def test_usual_huffman_tables_are_left_out(jpeg: Jpeg) -> None:
    """They take 420 bytes of a small file, which its record does not hold."""
    image = jpeg(16, 16, optimize=False)
    tables = image[image.index(b"\xff\xc4") : image.index(b"\xff\xda")]
    assert len(tables) == 432
    assert tables not in check_equal(image, np.random.default_rng(5))


def test_what_follows_the_last_scan_comes_back(jpeg: Jpeg) -> None:
    """Bytes after the end marker are kept."""
    check_equal(jpeg(40, 30) + b"after the end \xff\xd8\xff\xd9\xff", np.random.default_rng(3))


def test_files_that_would_not_come_back_are_refused(jpeg: Jpeg) -> None:
    """CMYK, a record, a file with bits that no encoder writes, and what is no JPEG."""
    output = io.BytesIO()
    Image.new("CMYK", (20, 20)).save(output, "JPEG")
    with pytest.raises(_native.UnsupportedError):
        _native.coefficients_from_jpeg(output.getvalue())
    record = _native.coefficients_from_jpeg(jpeg(50, 40))
    with pytest.raises(_native.UnsupportedError):
        _native.coefficients_from_jpeg(record)
    for damaged in (jpeg(50, 40)[:-2], jpeg(50, 40)[:-2] + b"\xff\xda\xff\xd9"):
        with pytest.raises(_native.CorruptError):
            _native.coefficients_from_jpeg(damaged)
    with pytest.raises(_native.CorruptError):
        _native.coefficients_from_jpeg(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(_native.CorruptError):
        _native.jpeg_from_coefficients(jpeg(50, 40))


def test_no_file_is_kept_that_does_not_come_back(jpeg: Jpeg) -> None:
    """Filling bits and bytes, second codes of a symbol, zeros before an end: an error, or the same file comes back."""
    rng = np.random.default_rng(8)
    back = refused = 0
    for seed in range(200):
        width, height = rng.integers(1, 17, 2).tolist()
        whole = jpeg(width, height, seed, gray=seed % 3 == 0, restart_marker_blocks=seed % 2)
        tables, scan = whole.index(b"\xff\xc4") + 21, whole.index(b"\xff\xda") + 8
        for kind in range(40):
            file = bytearray(whole)
            if kind % 4 == 0:
                file[-3] ^= (1 << int(rng.integers(1, 8))) - 1
            elif kind % 4 == 1:
                file[int(rng.integers(scan, len(file) - 2))] ^= 1 << int(rng.integers(0, 8))
            elif kind % 4 == 2:
                file[int(rng.integers(tables, tables + 80))] = int(rng.choice((0x00, 0x01, 0x10, 0xF0)))
            else:
                file.insert(int(rng.integers(scan, len(file) - 1)), 0xFF)
            try:
                record = _native.coefficients_from_jpeg(bytes(file))
            except (_native.CorruptError, _native.UnsupportedError, _native.TooLargeError):
                refused += 1
                continue
            assert _native.jpeg_from_coefficients(record) == bytes(file), (seed, kind)
            back += 1
    assert min(back, refused) > 400


def test_no_flipped_bit_passes_unseen(jpeg: Jpeg) -> None:
    """Of records with one bit flipped, none gives other pixels or another file: each is an error."""
    rng = np.random.default_rng(4)
    for seed in range(60):
        image = jpeg(int(rng.integers(1, 90)), int(rng.integers(1, 90)), seed, progressive=seed % 5 == 0)
        record = bytearray(_native.coefficients_from_jpeg(image))
        for bit in rng.integers(0, 8 * len(record), 60):
            record[bit // 8] ^= 1 << bit % 8
            for read in (_native.decode, _native.jpeg_from_coefficients):
                with pytest.raises((_native.CorruptError, _native.UnsupportedError, _native.TooLargeError)):
                    read(bytes(record))
            record[bit // 8] ^= 1 << bit % 8
        for length in rng.integers(0, len(record), 10):
            with pytest.raises((_native.CorruptError, _native.UnsupportedError)):
                _native.decode(bytes(record[:length]))


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_a_flipped_bit_of_a_photograph_never_gives_other_pixels(count: int, tmp_path: Path) -> None:
    """Whole, at 1/8, and in a region, which read parts of a record: the pixels are right, or it is an error."""
    rng = np.random.default_rng(7)
    forms: list[dict[str, Any]] = [{}, {"progressive": True}, {"quality": 40}, {"subsampling": 0}, {"optimize": True}]
    paths = sorted(write_photographs(tmp_path).glob("*/*.jpg"))
    errors = (_native.CorruptError, _native.UnsupportedError, _native.TooLargeError)
    raised = 0
    for number in range(count):
        with Image.open(paths[number % len(paths)]) as image:
            file = io.BytesIO()
            image.save(file, "JPEG", **forms[number % len(forms)])
        record = bytearray(_native.coefficients_from_jpeg(file.getvalue()))
        region = (image.width // 4, image.height // 3, image.width // 2 + 1, image.height // 2 + 2)
        reads: list[dict[str, Any]] = [{}, {"scale": 8}, {"region": region}]
        right = [_native.decode(bytes(record), **options) for options in reads]
        for bit in rng.integers(0, 8 * len(record), 8).tolist():
            record[bit // 8] ^= 1 << bit % 8
            for expected, options in zip(right, reads, strict=True):
                try:
                    assert np.array_equal(_native.decode(bytes(record), **options), expected), (number, bit, options)
                except errors:
                    raised += 1
            with pytest.raises(errors):
                _native.jpeg_from_coefficients(bytes(record))
            record[bit // 8] ^= 1 << bit % 8
    assert 8 * count < raised < 24 * count
