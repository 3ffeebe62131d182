"""Letterbox in one native call: rows equal what the ops do one after another, to the bit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.rng import sample_scope
from penstock.sample import SampleKeys

SIZES = [(640, 480), (300, 301), (64, 200), (97, 33), (20, 20), (640, 10), (1, 50), (128, 128), (129, 128)]
FLOATS = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]

PIPELINES: dict[str, list[Any]] = {
    "alone": [T.Letterbox(128)],
    "not square, coloured": [T.Letterbox((96, 160), fill=(255, 0, 7), filter="bicubic")],
    "not enlarged": [T.Letterbox(320, enlarge=False)],
    "floats": [T.Letterbox((100, 90), fill=3), *FLOATS],
    "flipped": [T.Letterbox((100, 90), fill=(1, 2, 3)), T.HorizontalFlip(0.5), T.VerticalFlip(0.5), *FLOATS],
    "cropped before": [T.CenterCrop((10, 1)), T.Letterbox(64)],
    "cropped behind": [T.Letterbox(128), T.CenterCrop(100)],
    "cropped behind, at random": [T.Letterbox((200, 128), fill=9), T.HorizontalFlip(), T.RandomCrop(40)],
    "padded behind": [T.Letterbox(64), T.RandomCrop(64, padding=20, fill=5)],
}


def picture(number: int, size: tuple[int, int]) -> bytes:
    """A JPEG of that width and height; every third one in 4:4:4, one a PNG."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG" if number == 4 else "JPEG", subsampling=0 if number % 3 == 0 else 2)
    return file.getvalue()


@pytest.mark.parametrize("name", PIPELINES)
def test_rows_equal_single_samples(name: str) -> None:
    """Whatever stands around the letterbox, and whoever decodes."""
    pipeline = T.Pipeline([T.Decode(), *PIPELINES[name]])
    images = [picture(i, size) for i, size in enumerate(SIZES)]
    program = pipeline.compile(["image"])
    spec = program.spec()
    assert spec is not None
    assert program.fused == len(pipeline.ops), "the letterbox fuses"

    for epoch in range(3):
        keys = SampleKeys(5, epoch, np.arange(len(images)))
        out = np.zeros((len(images), *spec.shape), spec.dtype)
        program.fill(images, out, keys)
        for i, image in enumerate(images):
            with sample_scope(5, epoch, i):
                expected = pipeline(image)
            assert np.array_equal(out[i], expected), SIZES[i]


def test_the_frame_is_where_it_is_said_to_be() -> None:
    """A bright picture in a dark frame: rows and columns of each, counted by hand."""
    image = np.full((50, 100, 3), 200, np.uint8)
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=100, subsampling=0)
    out = np.zeros((1, 80, 80, 3), np.uint8)

    program = T.Pipeline([T.Decode(), T.Letterbox(80, fill=(1, 2, 3))]).compile(["image"])
    program.fill([file.getvalue()], out, SampleKeys(0, 0, np.zeros(1, np.int64)))

    assert (out[0, 20:60] == 200).all()
    assert (out[0, :20] == (1, 2, 3)).all()
    assert (out[0, 60:] == (1, 2, 3)).all()


def test_windows_that_show_nothing_are_refused() -> None:
    """Natively: a window beside the picture is an error with a frame, one that leaves it is one without."""
    image, out = picture(1, (40, 40)), np.zeros((1, 16, 16, 3), np.uint8)
    row = np.zeros(1, np.int64)

    def fill(left: int, top: int, beside: tuple[int, int, int] | None) -> None:
        geometry = np.array([[0, 0, 40, 40, 32, 32, left, top, 0]], np.int32)
        _native.fill([image], geometry, out, row, layout="HWC", filter="bilinear", beside=beside)

    fill(-15, 31, (0, 0, 0))
    for left, top, beside in ((-16, 0, (0, 0, 0)), (0, 32, (0, 0, 0)), (-1, 0, None), (0, 17, None)):
        with pytest.raises(ValueError, match="must lie inside the size 32 x 32"):
            fill(left, top, beside)
    with pytest.raises((ValueError, OverflowError)):
        fill(0, 0, (0, 0, 256))


def test_an_index_and_threads_change_nothing() -> None:
    """A large picture in bands."""
    noise = np.random.default_rng(0).integers(0, 256, (150, 200, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((2000, 1500)).save(file, "JPEG", quality=85)
    image, outs = file.getvalue(), np.zeros((3, 1, 640, 640, 3), np.uint8)
    geometry = np.array([[0, 0, 2000, 1500, 640, 480, 0, -80, 0]], np.int32)
    how: dict[str, Any] = {"layout": "HWC", "filter": "bilinear", "beside": (114, 114, 114)}
    row = np.zeros(1, np.int64)

    _native.fill([image], geometry, outs[0], row, **how)
    _native.fill([image], geometry, outs[1], row, **how, threads=3)
    index = _native.build_index(image)
    _native.fill([image], geometry, outs[2], row, **how, threads=3, indices=[index], found=[])

    assert np.array_equal(outs[0], outs[1])
    assert np.array_equal(outs[0], outs[2])
    assert outs[0, 0, 79].max() == outs[0, 0, 560].min() == 114
