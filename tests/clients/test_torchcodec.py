"""TorchCodec beside ``penstock.torch.decoders``: every value, shape and dtype, in every mode."""

from __future__ import annotations

import io
import itertools
import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from penstock.torch import decoders
from tests.torch.test_decoders import chunk, make_png, picture, saved

theirs: Any = pytest.importorskip("torchcodec.decoders")

MODES = ("RGB", "RGB_ALPHA", "GRAY", "GRAY_ALPHA", "UNCHANGED")
DTYPES: tuple[Any, ...] = (torch.uint8, torch.uint16, "auto")


def jpegs() -> Iterator[bytes]:
    """Every sampling, process and colour space that Pillow writes, turned in all ways."""
    draw = random.Random(0)
    for number, quality in itertools.product(range(12), (30, 75, 95)):
        options: dict[str, Any] = {"quality": quality, "progressive": number % 2 == 1}
        image = picture(draw.randint(1, 70), draw.randint(1, 70))
        if number < 8:
            options["subsampling"] = number % 3
        exif = Image.Exif()
        exif[0x0112] = draw.randint(0, 9)
        yield saved(image.convert(("L", "CMYK")[number % 2]) if number >= 8 else image, "JPEG", exif=exif, **options)
    yield saved(picture(), "JPEG", keep_rgb=True)


def pngs() -> Iterator[bytes]:
    """Types of colours with 8 and 16 bits, with a gamma, and with transparent colours."""
    draw = np.random.default_rng(0)
    gammas = [b"", chunk(b"sRGB", b"\0"), *(chunk(b"gAMA", struct.pack(">I", each)) for each in (100_000, 55_556))]
    for (kind, channels), bits, gamma in itertools.product(((0, 1), (2, 3), (4, 2), (6, 4)), (8, 16), gammas):
        dtype = np.dtype(f"uint{bits}")
        samples = draw.integers(0, 1 << bits, (11, 13, channels), dtype=dtype)
        yield make_png(samples, kind, gamma)
        if channels in {1, 3}:
            yield make_png(samples, kind, gamma + chunk(b"tRNS", samples[3, 4].astype(">u2").tobytes()))
    for alpha in (b"", chunk(b"tRNS", bytes(draw.integers(0, 256, 20, dtype=np.uint8)))):
        palette = chunk(b"PLTE", draw.bytes(3 * 64))
        yield make_png(draw.integers(0, 64, (11, 13, 1), dtype=np.uint8), 3, palette + alpha)
    for mode in ("1", "L", "P"):
        yield saved(picture().convert(mode), "PNG", bits=1 if mode == "1" else 8)
        yield saved(picture().convert("L").quantize(4 if mode == "L" else 16), "PNG")


def webps_and_gifs() -> Iterator[bytes]:
    """Lossy and lossless, with and without alpha, still and animated."""
    clear = picture().convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    frames = [picture().rotate(angle) for angle in (90, 180)]
    for lossless in (False, True):
        yield saved(picture(), "WEBP", lossless=lossless)
        yield saved(clear, "WEBP", lossless=lossless)
        yield saved(clear, "WEBP", lossless=lossless, save_all=True, append_images=frames)
    yield saved(picture(), "GIF")
    yield saved(clear, "GIF")
    yield saved(picture(), "GIF", save_all=True, append_images=frames)


@pytest.mark.parametrize("make", [jpegs, pngs, webps_and_gifs])
def test_no_value_differs(make: Any) -> None:
    """0 of all values, in all modes and dtypes."""
    for number, encoded in enumerate(make()):
        for mode, dtype in itertools.product(MODES, DTYPES):
            expected = theirs.decode_image(encoded, mode=mode, output_dtype=dtype)

            found = decoders.decode_image(encoded, mode=mode, output_dtype=dtype)

            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (number, mode, dtype)
            assert torch.equal(found.int(), expected.int()), (number, mode, dtype)


def test_signatures_are_the_same() -> None:
    """Names, kinds and defaults of all parameters; the enumeration has the same members."""
    import inspect

    for name in ("decode_image", "decode_jpeg", "decode_png", "decode_webp", "decode_gif"):
        ours, other = (inspect.signature(getattr(each, name)).parameters for each in (decoders, theirs))
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in other.values()
        ], name
    assert {n: m.value for n, m in decoders.ImageReadMode.__members__.items()} == {
        n: m.value for n, m in theirs.ImageReadMode.__members__.items()
    }


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_what_it_refuses_is_an_error_that_is_caught_alike(kind: str) -> None:
    """A file that is cut in the middle."""
    encoded = saved(picture(150, 150), kind)

    for module in (theirs, decoders):
        with pytest.raises(RuntimeError):
            module.decode_image(encoded[: len(encoded) // 2])


def test_the_same_sources_and_devices() -> None:
    """Paths, bytes, tensors and lists."""
    encoded = saved(picture(), "JPEG")
    tensor = torch.from_numpy(np.frombuffer(bytearray(encoded), np.uint8))
    sources: tuple[Any, ...] = ([encoded, tensor], (tensor,), bytearray(encoded))
    for source in sources:
        expected, found = theirs.decode_jpeg(source), decoders.decode_jpeg(source, device="cpu")
        assert type(found) is type(expected)
        assert all(map(torch.equal, found, expected))
    with pytest.raises(TypeError):
        theirs.decode_image(io.BytesIO(encoded))
    with pytest.raises(TypeError):
        decoders.decode_image(io.BytesIO(encoded))  # type: ignore[arg-type]
