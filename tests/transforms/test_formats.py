"""Formats that need an extra, TIFFs that Pillow does not read, and JPEGs without Huffman tables."""

from __future__ import annotations

import contextlib
import importlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, OptionalPackageError, UnsupportedImageError
from penstock.pack.pipeline.image_check import check_image
from penstock.sample import SampleKeys
from penstock.stores.fields.image_signatures import find_image_suffix
from penstock.transforms import sizes
from penstock.transforms.decoding import image_formats, tiff_pages
from penstock.transforms.decoding.fallback import read_jxl_size
from penstock.transforms.decoding.jpeg_markers import add_huffman_tables
from penstock.transforms.decoding.modes import KEEPING_DEPTH, MODES
from tests.transforms.test_decode import JPEGS, encoded, picture
from tests.transforms.test_modes import FILES, animated, deep, png, swapped_profile

BOX = b"\x00\x00\x00\x18ftyp%s\x00\x00\x00\x00mif1heic"


def noise(*shape: int, dtype: Any = np.uint16) -> NDArray[Any]:
    """Values of the whole range of a dtype."""
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "f":
        return rng.normal(0, 1000, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


# ------------------------------------------------------------------------------------------------ extras


@pytest.mark.parametrize(
    ("head", "package", "extra"), [(BOX % b"heic", "pillow_heif", "heif"), (b"\xff\x0aX\x01", "pillow_jxl", "jxl")]
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, head: bytes, package: str, extra: str
) -> None:
    """An image that a package reads says how to install it."""

    def refuse(module: str, **options: str) -> None:
        raise OptionalPackageError(f"{module} {options['extra']} is needed {options['purpose']}")

    monkeypatch.setattr(image_formats, "require", refuse)

    with pytest.raises(UnsupportedImageError, match=f"{package} {extra} is needed to decode"):
        ps.decode(head + bytes(64))


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"hevc", b"mif1", b"msf1"])
def test_heic_is_known_by_its_brands(brand: bytes) -> None:
    """Any brand of HEIC is one, by its content alone; a video is not."""
    assert image_formats.sniff(BOX % brand) == "HEIC"
    assert find_image_suffix(BOX % brand) in {"heic", "heif"}
    with pytest.raises(UnsupportedImageError, match="video"):
        image_formats.sniff(BOX % b"isom")


def heic(image: Image.Image, **options: Any) -> bytes:
    """The picture as HEIC."""
    heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    heif.from_pillow(image).save(file, **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_heic_pixels_are_the_packages(mode: str) -> None:
    """The pixels are those of pillow-heif, in batches too, and its size is known without decoding."""
    image = picture(66, 40, mode)
    file = heic(image, quality=90)
    expected = np.asarray(pytest.importorskip("pillow_heif").HeifImageFile(io.BytesIO(file)).convert("RGB"))

    np.testing.assert_array_equal(ps.decode(file), expected)
    np.testing.assert_array_equal(ps.decode(file, region=(3, 4, 30, 20)), expected[4:20, 3:30])
    rows = T.Pipeline([T.Decode(), T.CenterCrop(20)]).compile("image").run([file], SampleKeys(0, 0, np.arange(1)))
    np.testing.assert_array_equal(rows[0], expected[10:30, 23:43])
    np.testing.assert_array_equal(sizes([file]), [(66, 40)])
    assert ps.decode(file, mode="unchanged").shape == (40, 66, len(mode))
    assert check_image(file, "decode") == (66, 40)
    with pytest.raises(ImageTooLargeError, match="66 x 40"):
        ps.decode(file, max_pixels=1000)


def jxl(image: Image.Image, **options: Any) -> bytes:
    """The picture as JPEG XL."""
    pytest.importorskip("pillow_jxl")
    return encoded(image, "JXL", **options)


@pytest.mark.parametrize("container", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_jpeg_xl_pixels_are_the_packages(mode: str, *, container: bool) -> None:
    """Lossless JPEG XL comes back as it was, bare and in boxes."""
    image = picture(66, 40, mode)
    file = jxl(image, lossless=True, use_container=container)

    np.testing.assert_array_equal(ps.decode(file, mode="unchanged"), np.asarray(image))
    np.testing.assert_array_equal(ps.decode(file), np.asarray(image.convert("RGB")))
    np.testing.assert_array_equal(sizes([file]), [(66, 40)])
    assert find_image_suffix(file) == "jxl"
    assert check_image(file, "decode") == (66, 40)


def test_orientation_of_a_jpeg_xl_is_that_of_its_header() -> None:
    """An Exif tag in a JPEG XL does not turn it: decoders turn it by the header of the image."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = jxl(picture(66, 40), lossless=True, exif=exif.tobytes(), use_container=True)

    np.testing.assert_array_equal(ps.decode(file, orient=True), np.asarray(picture(66, 40)))


@pytest.mark.parametrize(
    ("width", "height"), [(8, 8), (256, 256), (1, 1), (300, 200), (640, 360), (5000, 3), (31, 257)]
)
def test_the_size_of_a_jpeg_xl_is_in_its_header(width: int, height: int) -> None:
    """Sides of every length, multiples of eight and usual ratios are read without the package that decodes."""
    file = jxl(Image.new("L", (width, height)), effort=1)

    assert read_jxl_size(file) == (width, height)


def jxl_header(height: int, width: int) -> bytes:
    """A header that declares large sides."""
    bits, at = 0, 1  # not small
    for value, count in ((3, 2), (height - 1, 30), (0, 3), (3, 2), (width - 1, 30), (1, 1)):
        bits |= value << at
        at += count
    return b"\xff\x0a" + bits.to_bytes(16, "little")


def test_a_large_jpeg_xl_is_refused_before_it_is_decoded() -> None:
    """The package decodes a file when it opens it: the size is checked before, without the package."""
    file = jxl_header(1 << 20, 1 << 20)

    for call in (ps.decode, lambda content: sizes([content])):
        with pytest.raises(ImageTooLargeError, match="1048576 x 1048576"):
            call(file)
    with pytest.raises(DecodeError, match="header is damaged"):
        ps.decode(b"\x00\x00\x00\x0cJXL \r\n\x87\n" + bytes(40))


def test_jpeg_xl_in_boxes_knows_its_end() -> None:
    """A file in boxes that ends early is truncated, or has no pixels."""
    file = b"\x00\x00\x00\x0cJXL \r\n\x87\n" + struct.pack(">I4s", 40, b"jxlc") + jxl_header(8, 8)

    with pytest.raises(DecodeError, match="truncated JPEG XL"):
        check_image(file, "header")
    with pytest.raises(DecodeError, match="truncated JPEG XL"):
        check_image(file[:12], "header")


@pytest.mark.parametrize("form", ["HEIC", "JPEG XL"])
def test_damaged_files_are_decode_errors(form: str) -> None:
    """Whatever the package raises for damaged bytes is a DecodeError."""
    image = picture(66, 40)
    file = bytearray(heic(image) if form == "HEIC" else jxl(image, use_container=True))
    rng = np.random.default_rng(0)

    for _ in range(30):
        damaged = bytearray(file)
        for at in rng.integers(16, len(file), 12):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(DecodeError):
            assert ps.decode(bytes(damaged), max_pixels=1 << 16).ndim == 3
        with pytest.raises(DecodeError):
            ps.decode(bytes(file[: int(rng.integers(12, len(file) // 2))]))


def test_folders_and_packs_take_the_files(tmp_path: Path) -> None:
    """Images of formats with extras are records of folders, and are packed and read."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.heic").write_bytes(heic(picture(66, 40)))
    (tmp_path / "a" / "1.jxl").write_bytes(jxl(picture(50, 30), lossless=True))

    report = ps.pack(tmp_path, tmp_path.with_suffix(".lmdb"), check="decode")

    assert report.records == 2
    with ps.open(tmp_path.with_suffix(".lmdb")) as store:
        assert store.column("width").tolist() == [66, 50]
        np.testing.assert_array_equal(ps.decode(store[1].fields["image"]), np.asarray(picture(50, 30)))


# ------------------------------------------------------------------------------------------------ TIFF


def tiff(values: NDArray[Any], **options: Any) -> bytes:
    """The values as TIFF."""
    file = io.BytesIO()
    pytest.importorskip("tifffile").imwrite(file, values, **options)
    return file.getvalue()


TIFFS: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
    "48 bits": (noise(40, 50, 3), {"photometric": "rgb"}),
    "48 bits, big-endian": (noise(40, 50, 3), {"photometric": "rgb", "byteorder": ">"}),
    "48 bits, tiles, deflate": (noise(40, 50, 3), {"photometric": "rgb", "tile": (16, 32), "compression": "zlib"}),
    "48 bits, strips, predictor": (
        noise(40, 50, 3),
        {"photometric": "rgb", "compression": "zlib", "predictor": True, "rowsperstrip": 7},
    ),
    "64 bits with alpha": (noise(40, 50, 4), {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
    "planes of 16 bits": (noise(3, 40, 50), {"photometric": "rgb", "planarconfig": "separate"}),
    "float colours": (noise(40, 50, 3, dtype=np.float32), {"photometric": "rgb"}),
    "float64": (noise(40, 50, dtype=np.float64), {}),
    "float16": (noise(40, 50, dtype=np.float16), {}),
    "uint32": (noise(40, 50, dtype=np.uint32), {}),
    "six bands": (noise(40, 50, 6, dtype=np.uint8), {"photometric": "minisblack", "planarconfig": "contig"}),
    "five planes": (noise(5, 40, 50, dtype=np.uint8), {"photometric": "minisblack", "planarconfig": "separate"}),
    "two floats": (noise(40, 50, 2, dtype=np.float32), {"photometric": "minisblack", "planarconfig": "contig"}),
}


@pytest.mark.parametrize("name", TIFFS)
def test_tiffs_come_back_as_stored(name: str) -> None:
    """Every sample is what was written, of any dtype and number of channels, in strips, tiles and planes."""
    values, options = TIFFS[name]
    expected = np.moveaxis(values, 0, 2) if options.get("planarconfig") == "separate" else values

    found = ps.decode(tiff(values, **options), mode="unchanged")

    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_tiffs_are_read_in_parts_and_pages() -> None:
    """A region, a reduced size and a page are those of the whole page."""
    pages = [noise(40, 50, 3), noise(40, 50, 3)[::-1]]
    file = tiff(np.stack(pages), photometric="rgb")

    for number, page in enumerate(pages):
        np.testing.assert_array_equal(ps.decode(file, mode="unchanged", frame=number), page)
    np.testing.assert_array_equal(ps.decode(file, (3, 4, 20, 30), mode="unchanged"), pages[0][4:30, 3:20])
    half = ps.decode(file, scale=2, mode="unchanged")
    assert np.abs(half - pages[0].reshape(20, 2, 25, 2, 3).mean(axis=(1, 3))).max() <= 0.5
    with pytest.raises(ArgumentError, match=r"frame must be in \[0, 1\]"):
        ps.decode(file, mode="unchanged", frame=2)
    gray = ps.decode(file, mode="I;16")
    assert np.abs(gray - pages[0] @ np.array([19595, 38470, 7471]) / 65536).max() <= 0.5


def test_modes_of_what_pillow_does_not_read() -> None:
    """Planes of 8 bits have every mode; floats and many bands only that of the file."""
    values = noise(2, 40, 50, dtype=np.uint8)
    file = tiff(values, photometric="minisblack", planarconfig="separate", extrasamples=["unassalpha"])
    bands = tiff(*TIFFS["six bands"][:1], **TIFFS["six bands"][1])

    np.testing.assert_array_equal(ps.decode(file), np.repeat(values[0][:, :, None], 3, axis=2))
    np.testing.assert_array_equal(ps.decode(file, mode="L"), values[0])
    np.testing.assert_array_equal(ps.decode(file, mode="RGBA")[:, :, 3], values[1])
    np.testing.assert_array_equal(sizes([file, bands]), [(50, 40), (50, 40)])
    with pytest.raises(UnsupportedImageError, match=r"6 channels of uint8 has no form in mode 'RGB'.*'unchanged'"):
        ps.decode(bands)
    crop = T.Pipeline([T.Decode(mode="unchanged"), T.CenterCrop(20), T.ToLayout("CHW", "float32")])
    assert crop(bands).shape == (6, 20, 20)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiffs_are_turned_as_pillow_turns_them(orientation: int) -> None:
    """The orientation of a TIFF is applied, whoever reads it."""
    values = noise(40, 50, 3)
    tags = [(274, "H", 1, orientation, True)]
    deep = tiff(values, photometric="rgb", extratags=tags)
    flat = tiff((values >> 8).astype(np.uint8), photometric="rgb", extratags=tags)

    np.testing.assert_array_equal(ps.decode(deep, mode="unchanged") >> 8, ps.decode(flat))


def test_tiffs_without_the_package_name_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Pillow reads needs no package; what it does not read names the extra."""
    file = tiff(noise(40, 50, 3), photometric="rgb")

    def refuse(module: str, **options: str) -> Any:
        if module in absent:
            raise OptionalPackageError(f"{module} {options['extra']} is needed {options['purpose']}")
        return importlib.import_module(module)

    monkeypatch.setattr(tiff_pages, "require", refuse)

    absent = {"tifffile", "imagecodecs"}
    assert ps.decode(file).dtype == np.uint8
    with pytest.raises(UnsupportedImageError, match="tifffile tiff is needed to decode this TIFF"):
        ps.decode(file, mode="unchanged")
    absent = {"imagecodecs"}
    assert ps.decode(file, mode="unchanged").dtype == np.uint16
    with pytest.raises(UnsupportedImageError, match=r"imagecodecs tiff is needed to decompress this TIFF \(LZW"):
        ps.decode(patched(file, 259, 5), mode="unchanged")


def patched(file: bytes, tag: int, value: int) -> bytes:
    """A little-endian TIFF with another value in a tag of its first page."""
    at = int.from_bytes(file[4:8], "little")
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(file[at : at + 2], "little"), 12):
        if int.from_bytes(file[entry : entry + 2], "little") == tag:
            kind = int.from_bytes(file[entry + 2 : entry + 4], "little")
            size = {3: 2, 4: 4}[kind]
            return file[: entry + 8] + value.to_bytes(size, "little") + file[entry + 8 + size :]
    raise AssertionError(f"no tag {tag}")


def test_hostile_tiffs_are_refused_before_memory_is_taken() -> None:
    """Sizes, tiles, and what a strip becomes have limits; missing strips are a truncated file."""
    values, options = noise(40, 48, 3), {"photometric": "rgb"}
    tiled = tiff(values, tile=(16, 16), compression="zlib", **options)
    bomb = zlib.compress(bytes(1 << 24))
    strip = tiff(values, compression="zlib", rowsperstrip=40, **options)
    offset = len(strip) + len(strip) % 2
    exploding = patched(patched(strip, 273, offset), 279, len(bomb)) + bytes(len(strip) % 2) + bomb

    with pytest.raises(ImageTooLargeError, match="60000 x 60000"):
        ps.decode(patched(patched(tiff(values, **options), 256, 60000), 257, 60000), mode="unchanged")
    with pytest.raises(ImageTooLargeError, match="tiles"):
        ps.decode(patched(patched(tiled, 322, 49152), 323, 49152), mode="unchanged")
    with pytest.raises(DecodeError, match="becomes more than its 11520 bytes"):
        ps.decode(exploding, mode="unchanged")
    with pytest.raises(DecodeError, match=r"truncated TIFF|cannot be decoded"):
        ps.decode(tiff(values, **options)[:-500], mode="unchanged")
    with pytest.raises(UnsupportedImageError, match="compression"):
        ps.decode(patched(tiff(values, **options), 259, 34712), mode="unchanged")


def test_empty_tiffs_are_damaged() -> None:
    """A page without pixels is an error of the file, whoever finds it."""
    file = tiff(*TIFFS["float colours"][:1], **TIFFS["float colours"][1])

    for tag in (256, 257, 277):
        for mode in ("RGB", "unchanged"):
            with pytest.raises(DecodeError, match=r"damaged TIFF|cannot be decoded|not supported|must have"):
                ps.decode(patched(file, tag, 0), mode=mode)


@pytest.mark.parametrize("name", ["48 bits, tiles, deflate", "float colours", "five planes"])
def test_damaged_tiffs_are_decode_errors(name: str) -> None:
    """Random damage is a DecodeError, or other pixels, and never another error."""
    values, options = TIFFS[name]
    file = tiff(values, **options)
    rng = np.random.default_rng(0)

    for _ in range(60):
        damaged = bytearray(file)
        for at in rng.integers(4, len(file), 6):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(DecodeError):
            ps.decode(bytes(damaged), max_pixels=1 << 16, mode="unchanged")


# ------------------------------------------------------------------------------------------------ damage, in every mode


def damage(file: bytes, rng: np.random.Generator) -> bytes:
    """The file with some bytes and lengths changed, or cut."""
    damaged = bytearray(file)
    for _ in range(int(rng.choice([1, 2, 5, 12]))):
        at, kind = int(rng.integers(len(damaged))), rng.random()
        if kind < 0.6:
            damaged[at] = rng.integers(256)
        elif kind < 0.8:
            damaged[at : at + 4] = rng.choice(np.array([0, -1, 1, 1 << 24], ">i4")).tobytes()[: len(damaged) - at]
        else:
            del damaged[max(at, 16) :]
    return bytes(damaged)


def fuzz(seed: int, count: int) -> int:
    """Decode damaged files in any mode, frame and scale; returns how many were decoded all the same."""
    rng = np.random.default_rng(seed)
    files = [*FILES.values(), *(tiff(values, **options) for values, options in TIFFS.values())]
    files += [animated(form) for form in ("GIF", "PNG", "WEBP", "TIFF", "AVIF")]
    files += [png(deep(channels), colour) for channels, colour in ((2, 4), (3, 2), (4, 6))]
    files += [encoded(picture(31, 22), form, icc_profile=swapped_profile()) for form in ("JPEG", "PNG", "WEBP", "TIFF")]
    decoded = 0
    for _ in range(count):
        file, mode = damage(files[rng.integers(len(files))], rng), MODES[rng.integers(len(MODES))]
        to_srgb = mode not in KEEPING_DEPTH and rng.random() < 0.3
        frame, scale = int(rng.choice([0, 0, 0, 1, 3])), int(rng.choice([1, 1, 2, 8]))
        try:
            pixels = ps.decode(file, scale=scale, max_pixels=1 << 16, mode=mode, frame=frame, to_srgb=to_srgb)
        except (DecodeError, ArgumentError):
            continue
        assert pixels.nbytes <= 8 << 16
        decoded += 1
    return decoded


def test_damaged_files_are_decode_errors_in_every_mode() -> None:
    """Whatever a parser raises for damaged bytes is a DecodeError, or an ArgumentError for a frame that is missing."""
    assert 100 < fuzz(0, 1500) < 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_many_damaged_files_are_decode_errors(seed: int) -> None:
    """The same for 30,000 files."""
    assert fuzz(seed, 15_000) > 1000


# ------------------------------------------------------------------------------------------------ motion JPEG


def without_tables(jpeg: bytes) -> bytes:
    """The same file without its Huffman tables."""
    kept, at = jpeg[:2], 2
    while True:
        marker, nbytes = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if marker != 0xC4:
            kept += jpeg[at : at + 2 + nbytes]
        at += 2 + nbytes
        if marker == 0xDA:
            return kept + jpeg[at:]


@pytest.mark.parametrize("name", ["444", "422", "420", "gray", "restart"])
def test_frames_of_motion_jpeg_have_the_same_pixels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame without Huffman tables decodes as with libjpeg's standard ones, natively and in batches."""
    frame = without_tables(JPEGS[name])
    expected = ps.decode(JPEGS[name])
    assert b"\xff\xc4" not in frame
    assert add_huffman_tables(JPEGS[name]) is None

    np.testing.assert_array_equal(ps.decode(frame), np.asarray(Image.open(io.BytesIO(frame)).convert("RGB")))
    np.testing.assert_array_equal(ps.decode(frame, scale=2), ps.decode(JPEGS[name], scale=2))
    monkeypatch.setattr("penstock.transforms.decoding.fallback.read_pixels", None)  # not by Pillow

    np.testing.assert_array_equal(ps.decode(frame), expected)
    np.testing.assert_array_equal(ps.decode(frame, (5, 3, 40, 30)), expected[3:30, 5:40])
    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(20), T.HorizontalFlip(), T.ToLayout()])
    keys = SampleKeys(0, 0, np.zeros(1, np.int64))
    found, whole = (pipeline.compile("image").run([file], keys)[0] for file in (frame, JPEGS[name]))
    np.testing.assert_array_equal(found, whole)


def test_a_truncated_frame_of_motion_jpeg_is_refused_or_repaired() -> None:
    """A frame without its end is treated as any truncated JPEG, also where only a part above is asked for."""
    whole = JPEGS["420"]
    frame = without_tables(whole)[:-200]

    for region in (None, (0, 0, 20, 10)):
        with pytest.raises(DecodeError, match="truncated"):
            ps.decode(frame, region=region)
    repaired = ps.decode(frame, on_truncated="repair")
    np.testing.assert_array_equal(repaired, ps.decode(whole[:-200], on_truncated="repair"))


@pytest.mark.parametrize("name", ["progressive", "optimized"])
def test_other_jpegs_without_tables_stay_refused(name: str) -> None:
    """A progressive file gets no tables, and optimised data do not fit the standard ones: Pillow has the last word."""
    frame = without_tables(JPEGS[name])

    with pytest.raises((_native.UnsupportedError, _native.CorruptError)):
        _native.decode(frame, None, 1 << 27, 1)
    assert (add_huffman_tables(frame) is None) == (name == "progressive")
    try:
        expected = np.asarray(Image.open(io.BytesIO(frame)).convert("RGB"))
    except OSError:
        with pytest.raises(DecodeError):
            ps.decode(frame)
    else:
        assert ps.decode(frame).shape == expected.shape
