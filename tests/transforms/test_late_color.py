"""``Decode(late_color=True)``: where it is used, and that its pixels are the same everywhere."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.program.packet_program import why_no_packets
from tests.native.test_late_color import expected, planes, resized
from tests.transforms.test_program import encoded

LARGE = encoded(400, 300, subsampling="4:2:0", quality=90)


@given(st.integers(0, 1000), st.sampled_from([1.0, 2.0, 100.0]), st.integers(4, 60), st.sampled_from(["RGB", "BGR"]))
def test_a_sample_is_the_same_in_a_batch_and_alone(seed: int, quality: float, size: int, mode: str) -> None:
    """The general path gives the fused path's pixels, bit for bit, whatever ops follow and however files are stored."""
    decode = T.Decode(orient=True, scale="auto", quality=quality, late_color=True, mode=mode)
    pipe = T.Pipeline([decode, T.RandomResizedCrop(size), T.HorizontalFlip(), T.ToLayout("CHW", "uint8")])
    exif = Image.Exif()
    exif[0x0112] = 6
    images = [
        LARGE,
        encoded(301, 207, subsampling="4:2:2", seed=1, exif=exif),
        encoded(200, 200, progressive=True, seed=3),
        encoded(160, 240, mode="L", seed=2),
        encoded(180, 140, "PNG", seed=5),
    ]
    keys = SampleKeys(seed, 0, np.arange(len(images)))
    out = np.zeros((len(images), 3, size, size), np.uint8)

    pipe.compile("image").fill(images, out, keys)

    for i, image in enumerate(images):
        np.testing.assert_array_equal(pipe(image, keys=keys[i : i + 1]), out[i])


@pytest.mark.parametrize("index", ["rows", "tiles"])
def test_indices_change_nothing(tmp_path: Path, index: str) -> None:
    """A store with an index gives the rows of the folder that it was packed from."""
    (tmp_path / "images").mkdir()
    for i in range(4):
        (tmp_path / "images" / f"{i}.jpg").write_bytes(encoded(500 + i, 400, subsampling="4:2:0", seed=i))
    ps.pack(tmp_path / "images", tmp_path / "images.lmdb", index=index)
    pipe = T.Pipeline([T.Decode(scale="auto", late_color=True), T.RandomResizedCrop(40), T.HorizontalFlip()])

    batches = [
        next(iter(ps.DataLoader(ps.StoreDataset(ps.open(source), fields=("image",), transform=pipe), 4, seed=3)))[0]
        for source in (tmp_path / "images", tmp_path / "images.lmdb")
    ]

    np.testing.assert_array_equal(*batches)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_turn_the_planes(orientation: int) -> None:
    """The pixels are those of the oriented planes, resized."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(160, 120, exif=exif, subsampling="4:2:0", quality=95)
    pipe = T.Pipeline([T.Decode(orient=True, scale="auto", quality=100.0, late_color=True), T.Resize((31, 27))])

    found = pipe(file).astype(np.float64)

    transposed = orientation > 4
    mirrors = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(orientation, ())
    turned = [np.flip(plane.T if transposed else plane, mirrors) for plane in planes(file)]
    height, width = turned[0].shape
    assert abs(found - expected(turned, (0, 0, width, height), (27, 31))).max() < 1.5


def test_the_pixels_differ_little_from_an_early_conversion() -> None:
    """Where nothing is clipped, the order of a resize and a conversion matters as much as their rounding."""
    smooth = Image.fromarray(np.tile(np.linspace(60, 190, 400).astype(np.uint8)[:, None, None], (1, 300, 3)))
    file = io.BytesIO()
    smooth.save(file, "JPEG", quality=95)

    late, early = (
        resized(file.getvalue(), (3, 5, 290, 390), (70, 90), late_color=late_color) for late_color in (True, False)
    )

    assert abs(late - early).max() <= 1


def rgb_coded() -> bytes:
    """A JPEG whose components are red, green and blue."""
    file = io.BytesIO()
    Image.open(io.BytesIO(LARGE)).save(file, "JPEG", keep_rgb=True, subsampling=0)
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "resize", "mode"),
    [
        pytest.param(LARGE, T.Resize((30, 30), filter="bicubic"), "RGB", id="lobes"),
        pytest.param(LARGE, T.Resize((30, 401)), "RGB", id="wider"),
        pytest.param(LARGE, T.Resize((300, 400)), "RGB", id="as large"),
        pytest.param(LARGE, T.Resize((30, 30)), "L", id="luma"),
        pytest.param(LARGE, T.Resize((30, 30)), "RGBA", id="alpha"),
        pytest.param(encoded(200, 100, mode="L"), T.Resize((30, 30)), "RGB", id="gray"),
        pytest.param(encoded(200, 100, mode="CMYK"), T.Resize((30, 30)), "RGB", id="four components"),
        pytest.param(encoded(200, 100, "PNG"), T.Resize((30, 30)), "RGB", id="PNG"),
        pytest.param(rgb_coded(), T.Resize((30, 30)), "RGB", id="components are red, green and blue"),
    ],
)
def test_what_it_does_not_apply_to_is_as_without_it(file: bytes, resize: T.Op, mode: str) -> None:
    """Other filters, modes and images, and those that do not become smaller, are converted before the resize."""
    late, early = (
        T.Pipeline([T.Decode(scale="auto", late_color=late_color, mode=mode), resize])(file)
        for late_color in (True, False)
    )

    np.testing.assert_array_equal(late, early)


def test_repaired_images_are_converted_before_the_resize() -> None:
    """What a damaged file still has is decoded in full, as with "auto" alone."""
    damaged = LARGE[: len(LARGE) // 2]

    late, early = (
        T.Pipeline([T.Decode(scale="auto", late_color=late_color, on_truncated="repair"), T.Resize((30, 40))])(damaged)
        for late_color in (True, False)
    )

    np.testing.assert_array_equal(late, early)


def test_bgr_is_rgb_in_reverse() -> None:
    """The mode orders the channels of the same pixels."""
    rgb, bgr = (
        T.Pipeline([T.Decode(scale="auto", late_color=True, mode=mode), T.Resize((30, 40))])(LARGE)
        for mode in ("RGB", "BGR")
    )

    np.testing.assert_array_equal(rgb, bgr[..., ::-1])


def test_it_needs_auto() -> None:
    """A decode in full promises the pixels of decode, then resize; the message says what to do."""
    with pytest.raises(
        ArgumentError, match=r"late_color of Decode needs scale='auto', got late_color=True with scale='full'"
    ):
        T.Decode(late_color=True)


def test_a_device_refuses_it_by_name() -> None:
    """There is no kernel for it."""
    pipe = T.Pipeline([T.Decode(scale="auto", late_color=True), T.Resize((30, 40))])

    assert "late_color" in why_no_packets(pipe.compile("image"))


def test_a_device_refuses_ops_behind_tolayout_by_name() -> None:
    """The last op on a device is ToLayout; another order is decoded on the CPU."""
    pipe = T.Pipeline([T.Decode(), T.Resize((30, 40)), T.ToLayout("CHW"), T.ClampBoundingBoxes()])

    reason = why_no_packets(pipe.compile({"image": "image", "boxes": "boxes"}, followers=True))

    assert "ToLayout" in reason
    assert "must come after" in reason


def test_it_is_pickled_and_shown() -> None:
    """A worker gets the op as it is."""
    pipe = T.Pipeline([T.Decode(scale="auto", late_color=True), T.Resize((30, 40))])

    again = pickle.loads(pickle.dumps(pipe))

    assert "late_color=True" in repr(again)
    np.testing.assert_array_equal(again(LARGE), pipe(LARGE))
