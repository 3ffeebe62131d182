"""Modes that keep the depth of samples, decoded natively: equal to Pillow's pixels."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL.PngImagePlugin import PngInfo

import penstock as ps
from penstock.transforms import fallback
from penstock.transforms.modes import DecodedForm
from tests.transforms.test_decode import encoded, picture
from tests.transforms.test_modes import FILES, deep, png


def keeping_files() -> dict[str, bytes]:
    """PNGs of all colour types and depths, with and without transparent colours; others."""
    gray = np.asarray(picture(31, 22, "L"))
    files = {name: file for name, file in FILES.items() if name.startswith(("png", "webp"))}
    for channels, colour in ((1, 0), (2, 4), (3, 2), (4, 6)):
        key = b"".join(struct.pack(">H", int(value)) for value in deep(channels)[1, 2])
        files[f"deep_{channels}"] = png(deep(channels), colour)
        files[f"interlaced_{channels}"] = png(deep(channels), colour, interlaced=True)
        files[f"deep_key_{channels}"] = png(deep(channels), colour, key=key if channels % 2 else b"")
    for bits in (1, 2, 4):
        packed = np.packbits(np.unpackbits(gray[:, :24, None], axis=2)[:, :, :bits].reshape(22, -1), axis=1)
        file = bytearray(png(packed[:, :, None], 0, 8))
        file[16:20], file[24] = struct.pack(">I", 24), bits
        file[29:33] = struct.pack(">I", zlib.crc32(bytes(file[12:29])))
        files[f"gray_of_{bits}_bits"] = bytes(file)
    files["looks_transparent"] = encoded(picture(31, 22), "PNG", pnginfo=comment("tRNS"))
    return files


def comment(text: str) -> PngInfo:
    """A chunk of text for a PNG."""
    info = PngInfo()
    info.add_text("Comment", text)
    return info


KEEPING = keeping_files()


@pytest.mark.parametrize("mode", ["I;16", "unchanged"])
@pytest.mark.parametrize("name", KEEPING)
def test_native_modes_that_keep_depth_are_pillows(name: str, mode: str) -> None:
    """What is decoded natively equals what Pillow decodes, whole and in part."""
    form = DecodedForm(mode)
    for region in (None, (3, 2, 12, 9)):
        expected = fallback.read_pixels(KEEPING[name], 1 << 20, region, form=form)

        found = ps.decode(KEEPING[name], region=region, mode=mode)

        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found, expected)
        assert found.flags.c_contiguous
        assert found.flags.writeable


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_of_16_bits_need_no_pillow(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    """PNGs of 16 bits are decoded natively where their depth is kept."""
    monkeypatch.delattr(fallback, "read_pixels")
    values = deep(channels)

    found = ps.decode(png(values, {1: 0, 3: 2}[channels]), mode="unchanged")

    np.testing.assert_array_equal(found.reshape(values.shape), values)
