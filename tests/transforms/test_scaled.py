"""Pipelines that may decode at less than the full size: what they promise, and where they decode in full."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, DecodeError
from penstock.orientation import orient_pixels
from penstock.sample import SampleKeys
from tests.transforms.test_program import encoded

LARGE = encoded(400, 300, subsampling="4:2:0", quality=90)


def pipeline(*ops: Any, **decode: Any) -> T.Pipeline:
    """Decode as asked, then the ops."""
    return T.Pipeline([T.Decode(**decode), *ops])


def keys_of(count: int, seed: int = 0) -> SampleKeys:
    """The keys of the first samples of an epoch."""
    return SampleKeys(seed, 0, np.arange(count))


def filled(pipe: T.Pipeline, images: list[bytes], keys: SampleKeys, kinds: Any = "image") -> NDArray[Any]:
    """The rows of a batch."""
    program = pipe.compile(kinds)
    spec = program.spec()
    assert spec is not None
    out = np.zeros((len(images), *spec.shape), spec.dtype)
    program.fill(images, out, keys)
    return out


def test_auto_is_by_choice() -> None:
    """Without a word, nothing is decoded at less than its size: the pixels are those of decode, then resize."""
    pipe = pipeline(T.Resize((20, 30)))

    expected = T.Resize((20, 30)).native(ps.decode(LARGE), np.array([30, 20]))

    np.testing.assert_array_equal(pipe(LARGE), expected)
    np.testing.assert_array_equal(filled(pipe, [LARGE], keys_of(1))[0], expected)


@pytest.mark.parametrize(("quality", "scale"), [(1.0, 8), (1.5, 8), (1.7, 4), (3.4, 2), (6.7, 1), (100.0, 1)])
def test_quality_decides_the_scale(quality: float, scale: int) -> None:
    """The smallest size is taken that leaves ``quality`` samples for each pixel: 300 rows for 25 are 12 of them."""
    resize = T.Resize((25, 25), filter="bicubic")  # Pillow's, to the bit
    samples = {s: ps.decode(LARGE, scale=s).repeat(s, axis=0).repeat(s, axis=1)[:300, :400] for s in (1, 2, 4, 8)}

    found = pipeline(resize, scale="auto", quality=quality)(LARGE)

    resized = {s: resize.image(pixels, np.array([25, 25])) for s, pixels in samples.items()}
    assert [s for s, pixels in resized.items() if np.array_equal(pixels, found)] == [scale]


@given(st.integers(0, 1000), st.sampled_from([1.0, 2.0, 4.0]), st.integers(4, 60), st.booleans())
def test_a_sample_is_the_same_in_a_batch_and_alone(seed: int, quality: float, size: int, floats: bool) -> None:
    """The general path gives the fused path's pixels, bit for bit, whatever ops follow and however files are stored."""
    ops: list[Any] = [T.RandomResizedCrop(size), T.HorizontalFlip(), T.ColorJitter(0.4)]
    if floats:
        ops += [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    pipe = pipeline(*ops, scale="auto", quality=quality)
    images = [
        LARGE,
        encoded(301, 207, subsampling="4:2:2", seed=1),
        encoded(160, 240, mode="L", seed=2),
        encoded(200, 200, progressive=True, seed=3),
        encoded(150, 210, mode="CMYK", seed=4),
        encoded(180, 140, "PNG", seed=5),
    ]
    keys = keys_of(len(images), seed)

    rows = filled(pipe, images, keys)

    for i, image in enumerate(images):
        np.testing.assert_array_equal(pipe(image, keys=keys[i : i + 1]), rows[i])


def test_a_dataset_gives_what_its_batches_hold(tmp_path: Path) -> None:
    """A sample of a store is a row of its batch, also behind a scaled decode."""
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(3):
            (tmp_path / label / f"{i}.jpg").write_bytes(encoded(120 + i, 90, seed=i))
    pipe = pipeline(T.Resize((8, 8)), scale="auto", quality=1.0)
    dataset = ps.StoreDataset(ps.open(tmp_path), fields=("image", "label"), transform=pipe)

    images, labels = next(iter(ps.DataLoader(dataset, batch_size=len(dataset))))

    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        np.testing.assert_array_equal(dataset[i][0], image)
        assert dataset[i][1] == label


def test_samples_with_boxes_are_decoded_in_full() -> None:
    """Where boxes follow there is no fused path: the pixels are those without "auto"."""
    sample = {"image": LARGE, "boxes": np.array([[10, 20, 200, 220]], np.float32)}

    scaled = pipeline(T.Resize((30, 40)), scale="auto", quality=1.0)(sample)

    full = pipeline(T.Resize((30, 40)))(sample)
    np.testing.assert_array_equal(scaled["image"], full["image"])
    np.testing.assert_array_equal(scaled["boxes"], full["boxes"])


@pytest.mark.parametrize("orientation", range(2, 9))
def test_oriented_pictures_are_decoded_at_a_scale(orientation: int) -> None:
    """The pixels are those of the oriented picture with every pixel replaced by the sample that covers it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = encoded(160, 120, exif=exif)
    resize = T.Resize((20, 14))

    scaled = filled(pipeline(resize, orient=True, scale="auto", quality=1.0), [turned], keys_of(1))[0]

    scale = 4 if orientation < 5 else 8  # 120 rows for 20, or 160
    samples = orient_pixels(ps.decode(turned, scale=scale).repeat(scale, 0).repeat(scale, 1), orientation)
    expected = T.Pipeline([resize])(samples)
    full = filled(pipeline(resize, orient=True), [turned], keys_of(1))[0]
    assert np.abs(scaled.astype(int) - expected).max() <= 1
    assert np.abs(scaled.astype(int) - full).max() > 1


def test_a_decode_without_a_resize_is_in_full() -> None:
    """Nothing to choose a scale by: the picture as it is."""
    pipe = pipeline(T.CenterCrop(50), scale="auto")

    np.testing.assert_array_equal(pipe(LARGE), ps.decode(LARGE)[125:175, 175:225])


def test_pipelines_that_scale_pickle() -> None:
    """Also after they were used."""
    pipe = pipeline(T.Resize((20, 20)), scale="auto", quality=1.0)
    expected = pipe(LARGE)

    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pipe))(LARGE), expected)


def test_errors_are_those_of_a_full_decode() -> None:
    """A damaged file raises from a single sample what it raises anywhere."""
    pipe = pipeline(T.Resize((20, 20)), scale="auto")

    with pytest.raises(DecodeError):
        pipe(LARGE[: len(LARGE) // 2])
    with pytest.raises(ArgumentError, match="decoded already"):
        pipe(np.zeros((40, 40, 3), np.uint8))


@pytest.mark.parametrize(
    "options",
    [{"scale": "half"}, {"scale": 2}, {"quality": 0.9}, {"quality": float("nan")}, {"quality": float("inf")}],
)
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    """A scale is "full" or "auto"; a quality a finite number of at least 1."""
    with pytest.raises(ArgumentError, match="Decode"):
        T.Decode(**options)


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_decode_takes_its_scales_natively(scale: int) -> None:
    """``penstock.decode`` of a JPEG region at a scale is that part of the whole at that scale."""
    whole = ps.decode(LARGE, scale=scale)

    part = ps.decode(LARGE, region=(101, 33, 333, 222), scale=scale)

    np.testing.assert_array_equal(part, whole[33 // scale : -(-222 // scale), 101 // scale : -(-333 // scale)])
