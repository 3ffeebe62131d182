"""Modes that keep the depth of samples, decoded natively, alone and into rows: equal to Pillow's pixels."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL.PngImagePlugin import PngInfo

import penstock as ps
from penstock import transforms as T
from penstock.errors import DecodeError
from penstock.sample import SampleKeys
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.modes import DecodedForm
from penstock.transforms.ops.resize import resize_native, resize_reference
from penstock.transforms.program.image_chunk import Failure
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


LAYOUTS = [T.ToLayout(), T.ToLayout("HWC", "float16"), T.Normalize(0.4, 0.3)]


@pytest.mark.parametrize("filter", ["box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("last", [*LAYOUTS, T.HorizontalFlip()], ids=repr)
def test_rows_of_16_bits_are_the_samples(last: T.Op, filter: str) -> None:  # noqa: A002  # the argument's name
    """Gray PNGs of 16 bits fill rows as the general path does, between images that take that path themselves."""
    ops = [
        T.Decode(mode="I;16"),
        T.RandomResizedCrop((17, 23), filter=filter),
        T.HorizontalFlip(),
        T.VerticalFlip(),
        last,
    ]
    images = [png(deep(1, 20 + number % 30, 50 - number), 0, interlaced=number % 3 == 0) for number in range(24)]
    images += [png(deep(3, 40, 40), 2), FILES["420"], FILES["png_palette"]]
    keys = SampleKeys(5, 2, np.arange(len(images)))
    pipeline = T.Pipeline(ops)
    program = pipeline.compile("image")
    spec = program.spec()
    assert spec is not None
    rows = np.empty((len(images), *spec.shape), spec.dtype)

    program.fill(images, rows, keys)

    assert program.fused == len(ops)
    for place, image in enumerate(images):
        np.testing.assert_array_equal(rows[place], pipeline(image, keys=keys[place : place + 1]))


def test_windows_of_16_bits_are_cut() -> None:
    """A crop after a resize, a crop alone, and a crop beyond the image give what the general path gives."""
    images = [png(deep(1, 40 + number, 50 - number), 0) for number in range(8)]
    keys = SampleKeys(5, 2, np.arange(len(images)))
    for ops in ([T.Resize(31), T.CenterCrop(20)], [T.RandomCrop(24)], [T.RandomCrop(48, padding=4)]):
        pipeline = T.Pipeline([T.Decode(mode="I;16"), *ops])
        program = pipeline.compile("image")
        spec = program.spec()
        assert spec is not None
        rows = np.empty((len(images), *spec.shape), spec.dtype)

        program.fill(images, rows, keys)

        assert rows.dtype == np.uint16
        for place, image in enumerate(images):
            np.testing.assert_array_equal(rows[place], pipeline(image, keys=keys[place : place + 1]))


@given(
    size=st.tuples(*[st.integers(1, 40)] * 4),
    filter=st.sampled_from(["box", "bilinear", "bicubic", "lanczos"]),
    seed=st.integers(0, 1 << 32),
)
def test_samples_are_resized_as_floats(size: tuple[int, int, int, int], filter: str, seed: int) -> None:  # noqa: A002
    """The native resize of 16 bits is Pillow's of floats, rounded."""
    rows, columns, height, width = size
    values = np.random.default_rng(seed).choice([0, 1, 257, 40000, 65535], (rows, columns)).astype(np.uint16)

    found = resize_native(values, width, height, filter)

    np.testing.assert_array_equal(found, resize_reference(values, width, height, filter))


def test_a_damaged_image_of_16_bits_is_refused_by_name() -> None:
    """A row whose image is truncated fails alone, with its position."""
    images = [png(deep(1, 30, 30), 0), png(deep(1, 30, 30), 0)[:-900], png(deep(1, 31, 30), 0)]
    program = T.Pipeline([T.Decode(mode="I;16"), T.Resize((8, 8)), T.ToLayout()]).compile("image")
    rows, failures = np.empty((3, 1, 8, 8), np.float32), list[Failure]()

    program.fill(images, rows, SampleKeys(0, 0, np.arange(3)), failures=failures)

    assert [failure.position for failure in failures] == [1]
    assert isinstance(failures[0].error, DecodeError)


def test_turned_images_of_16_bits_take_the_general_path() -> None:
    """With ``orient=True`` images of 16 bits are not fused."""
    assert T.Pipeline([T.Decode(mode="I;16", orient=True), T.CenterCrop(8)]).compile("image").fused == 0
    assert T.Pipeline([T.Decode(mode="I;16"), T.CenterCrop(8)]).compile("image").fused == 2
