"""TorchCodec's decoders by name: the rules of each mode, dtype and error. TorchCodec itself: tests/clients."""

from __future__ import annotations

import enum
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402  # after the check above

from penstock.torch import decoders  # noqa: E402  # as above

MODES = {"RGB": 3, "RGB_ALPHA": 4, "GRAY": 1, "GRAY_ALPHA": 2}


def picture(width: int = 33, height: int = 21) -> Image.Image:
    """Smooth colours with noise."""
    draw = np.random.default_rng(0)
    small = Image.fromarray(draw.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The file of an image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def make_png(samples: Any, kind: int, chunks: bytes = b"") -> bytes:
    """A PNG of samples, (H, W, C), uint8 or uint16, of a type of colours."""
    height, width = samples.shape[:2]
    rows = [b"\0" + row.astype(samples.dtype.newbyteorder(">")).tobytes() for row in samples]
    header = struct.pack(">IIBBBBB", width, height, 8 * samples.dtype.itemsize, kind, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunks + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def planes(pixels: Any) -> Any:
    """HWC or HW as a tensor, CHW."""
    array = np.array(pixels)
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("mode", MODES)
def test_shapes_and_dtypes_are_those_of_the_mode(kind: str, mode: str) -> None:
    """Every format in every mode; uint16 is 257 times uint8, and alpha that the file lacks is opaque."""
    encoded = saved(picture(), kind)

    plain = decoders.decode_image(encoded, mode=mode)
    deep = decoders.decode_image(encoded, mode=mode.lower(), output_dtype=torch.uint16)

    assert plain.shape == (MODES[mode], 21, 33)
    assert (plain.dtype, deep.dtype) == (torch.uint8, torch.uint16)
    assert torch.equal(deep.int(), plain.int() * 257)
    assert decoders.decode_image(encoded, mode=mode, output_dtype="auto").dtype == torch.uint8
    if mode.endswith("_ALPHA"):
        assert bool((plain[-1] == 255).all())


def test_colours_are_pillow_s() -> None:
    """RGB of each format, from a path, bytes and a tensor."""
    for kind in ("JPEG", "PNG", "WEBP", "GIF"):
        encoded = saved(picture(), kind)
        expected = planes(Image.open(io.BytesIO(encoded)).convert("RGB"))

        assert torch.equal(decoders.decode_image(encoded), expected)
        assert torch.equal(decoders.decode_image(torch.frombuffer(bytearray(encoded), dtype=torch.uint8)), expected)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": "4:4:4"}, {"quality": 50}])
def test_gray_of_a_jpeg_is_its_luma(options: dict[str, Any]) -> None:
    """As libjpeg gives it, not computed from RGB, which differs."""
    encoded = saved(picture(), "JPEG", **options)
    opened = Image.open(io.BytesIO(encoded))
    opened.draft("L", opened.size)

    gray = decoders.decode_jpeg(encoded, mode="GRAY")

    assert torch.equal(gray, planes(opened))
    assert not torch.equal(gray, planes(Image.open(io.BytesIO(encoded)).convert("RGB").convert("L")))


def test_gray_of_a_jpeg_of_rgb_or_cmyk_is_computed() -> None:
    """These store no luma; four channels stay in UNCHANGED."""
    stored = saved(picture(), "JPEG", keep_rgb=True)
    cmyk = saved(picture().convert("CMYK"), "JPEG")

    for encoded in (stored, cmyk):
        expected = Image.open(io.BytesIO(encoded)).convert("RGB").convert("L")
        assert torch.equal(decoders.decode_jpeg(encoded, mode="GRAY"), planes(expected))
    assert torch.equal(decoders.decode_jpeg(cmyk, mode="UNCHANGED"), planes(Image.open(io.BytesIO(cmyk))))
    assert decoders.decode_jpeg(saved(picture().convert("L"), "JPEG"), mode="UNCHANGED").shape == (1, 21, 33)


def test_sixteen_bits_of_a_png_are_kept_or_rounded() -> None:
    """uint16 and auto keep them; uint8 is the nearest of 257 steps, not the upper byte."""
    samples = np.random.default_rng(1).integers(0, 65536, (7, 9, 3), dtype=np.uint16)
    encoded = make_png(samples, 2)

    kept, auto = (decoders.decode_png(encoded, output_dtype=dtype) for dtype in (torch.uint16, "auto"))
    rounded = decoders.decode_png(encoded)

    assert torch.equal(kept, planes(samples))
    assert torch.equal(auto, kept)
    assert torch.equal(rounded, planes(np.rint(samples / 257).astype(np.uint8)))


def test_transparent_colours_of_a_png_are_alpha() -> None:
    """tRNS of gray, of colours of 16 bits and of a palette; dropped in RGB, and in UNCHANGED but for palettes."""
    gray = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    deep = np.random.default_rng(2).integers(0, 65536, (3, 4, 3), dtype=np.uint16)
    indices = gray % 3
    colours = bytes(range(9))
    files = {
        "gray": (make_png(gray, 0, chunk(b"tRNS", b"\0\5")), np.where(gray == 5, 0, 255), 1),
        "deep": (
            make_png(deep, 2, chunk(b"tRNS", deep[1, 2].astype(">u2").tobytes())),
            np.where((deep == deep[1, 2]).all(2, keepdims=True), 0, 255),
            3,
        ),
        "palette": (
            make_png(indices, 3, chunk(b"PLTE", colours) + chunk(b"tRNS", b"\x07\x80")),
            np.array([7, 128, 255])[indices],
            4,
        ),
    }
    for name, (encoded, alpha, channels) in files.items():
        found = decoders.decode_png(encoded, mode="RGB_ALPHA")

        assert torch.equal(found[3:].int(), planes(alpha).int()), name
        assert torch.equal(found[:3], decoders.decode_png(encoded)), name
        assert decoders.decode_png(encoded, mode="UNCHANGED").shape == (channels, 3, 4), name


def test_gray_of_a_png_is_libpng_s() -> None:
    """Weights in 1 / 32768, cut; in linear light where the file states sRGB."""
    samples = np.array([[[200, 100, 50], [80, 80, 80]]], np.uint8)
    linear = (samples / 255) ** 2.2 @ [0.2989, 0.587, 0.1141]

    plain = decoders.decode_png(make_png(samples, 2), mode="GRAY")
    stated = decoders.decode_png(make_png(samples, 2, chunk(b"sRGB", b"\0")), mode="GRAY")

    assert plain.flatten().tolist() == [(200 * 9794 + 100 * 19234 + 50 * 3740) >> 15, 80]
    assert abs(int(stated[0, 0, 0]) - 255 * linear[0, 0] ** (1 / 2.2)) <= 1.5
    assert stated[0, 0, 1] == 80


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(kind: str, orientation: int) -> None:
    """By their Exif, in every format that has one, and also of one row or column."""
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    for size in ((33, 21), (1, 8), (8, 1)):
        encoded = saved(picture(*size), kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
        expected = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded)).convert("RGB"))

        assert torch.equal(decoders.decode_image(encoded), planes(expected))


def test_an_orientation_in_xmp_is_not_applied() -> None:
    """TorchCodec reads Exif alone; Pillow reads both."""
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'
    encoded = saved(picture(), "JPEG", xmp=xmp)

    assert decoders.decode_jpeg(encoded).shape == (3, 21, 33)


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_frames_are_a_dimension(kind: str) -> None:
    """(N, C, H, W), each frame as Pillow shows it."""
    frames = [picture().rotate(angle) for angle in (0, 90, 180)]
    encoded = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    opened = Image.open(io.BytesIO(encoded))

    found = decoders.decode_image(encoded)

    assert found.shape == (3, 3, 21, 33)
    for number, frame in enumerate(found):
        opened.seek(number)
        assert torch.equal(frame, planes(opened.convert("RGB")))


def test_what_a_gif_does_not_draw_is_transparent_or_the_background() -> None:
    """Alpha 0 in RGBA, the background colour of the file in RGB."""
    image = Image.new("P", (4, 2), 1)
    image.putpalette(bytes([9, 8, 7, 40, 50, 60, 1, 2, 3]))
    image.putpixel((0, 0), 2)
    image.putpixel((3, 1), 0)  # so that Pillow leaves out no colour
    encoded = saved(image, "GIF", transparency=2, background=0)

    colours, all_four = (decoders.decode_gif(encoded, mode=mode) for mode in ("RGB", "UNCHANGED"))

    assert colours[:, 0, :2].T.tolist() == [[9, 8, 7], [40, 50, 60]]
    assert all_four[:, 0, :2].T.tolist() == [[0, 0, 0, 0], [40, 50, 60, 255]]


def test_a_list_of_jpegs_is_a_list_of_tensors(tmp_path: Path) -> None:
    """Of sources of any type; the other decoders take one."""
    encoded = saved(picture(), "JPEG")
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded)

    found = decoders.decode_jpeg([encoded, str(path), path], mode="GRAY")

    assert isinstance(found, list)
    assert all(torch.equal(each, decoders.decode_jpeg(encoded, mode="GRAY")) for each in found)
    with pytest.raises(TypeError, match="source must be a path, bytes or a tensor of bytes, got list"):
        decoders.decode_png([encoded])  # type: ignore[arg-type]


def test_modes_of_other_libraries_are_taken_by_name() -> None:
    """torchvision and TorchCodec have enumerations of their own."""
    encoded = saved(picture(), "PNG")
    foreign = enum.Enum("foreign", {"GRAY": 7})

    expected = decoders.decode_png(encoded, mode="GRAY")

    for mode in (foreign.GRAY, decoders.ImageReadMode.GRAY):
        assert torch.equal(decoders.decode_png(encoded, mode=mode), expected)
    assert decoders.decode_png(encoded, mode="rgba").shape == (4, 21, 33)


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("nowhere.jpg", {}, FileNotFoundError),
        (7, {}, TypeError),
        (b"no image", {}, ValueError),
        (b"BM" + bytes(60), {}, ValueError),
        (b"\xff\xd8\xff\xe0 cut", {}, RuntimeError),
        (b"\x89PNG\r\n\x1a\n", {}, RuntimeError),
        (b"GIF89a", {}, RuntimeError),
        (b"RIFF\0\0\0\0WEBPVP8X", {}, RuntimeError),
        (torch.zeros(4), {}, ValueError),
        (b"GIF89a", {"mode": "CMYK"}, ValueError),
        (b"GIF89a", {"mode": 3}, TypeError),
        (b"GIF89a", {"output_dtype": torch.float32}, ValueError),
    ],
)
def test_errors_are_those_that_a_script_for_torchcodec_catches(source: Any, options: Any, error: type) -> None:
    """And penstock's own, but for a missing file."""
    with pytest.raises(error) as raised:
        decoders.decode_image(source, **options)

    assert error is FileNotFoundError or isinstance(raised.value, ps.PenstockError)


def test_cut_files_are_refused_in_every_format() -> None:
    """With an error that is a RuntimeError, and says which image it is of."""
    for kind in ("JPEG", "PNG", "WEBP", "GIF"):
        encoded = saved(picture(200, 200), kind)
        for end in (len(encoded) // 2, 40, 20):
            with pytest.raises(decoders.RefusedImageError):
                decoders.decode_image(encoded[:end], mode="GRAY_ALPHA")
