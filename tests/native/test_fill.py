"""Filling rows of a batch: the pieces (decode, crop, resize, flip, normalise) put together, bit for bit."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock.bfloat16 import as_words, from_floats
from penstock.pixel_rows import EncodedRows

SCALE = [1 / (255 * s) for s in (0.229, 0.224, 0.225)]
OFFSET = [-m / s for m, s in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
SAVES: list[dict[str, Any]] = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"gray": True}]

BITS = "uint16"
"""The dtype of a batch of the bits of bfloat16 numbers."""

Jpeg = Callable[..., bytes]
Rows = NDArray[Any]


def assembled(pixels: NDArray[np.uint8], geometry: Rows, height: int, width: int, name: str) -> NDArray[np.uint8]:
    """HWC levels of one row, from a decoded image and the pieces that are tested on their own."""
    x0, y0, x1, y1, new_width, new_height, left, top, flip = (int(v) for v in geometry)
    resized = _native.resize(np.ascontiguousarray(pixels[y0:y1, x0:x1]), new_width, new_height, name)
    window = resized[top : top + height, left : left + width]
    return window[:: -1 if flip & 2 else 1, :: -1 if flip & 1 else 1]


def converted(levels: NDArray[np.uint8], layout: str, dtype: str, scale: list[float], offset: list[float]) -> Rows:
    """HWC levels as `layout` and `dtype` have them."""
    values: Rows = levels
    if dtype != "uint8":
        values = levels.astype(np.float32) * np.array(scale, np.float32) + np.array(offset, np.float32)
    values = values.transpose(2, 0, 1) if layout == "CHW" else values
    return as_words(from_floats(values)) if dtype == BITS else values.astype(dtype)


def batch(n: int, height: int, width: int, layout: str, dtype: str) -> Rows:
    """A batch of bytes 0xC3, which no fill leaves behind by chance in a whole row."""
    shape = (n, height, width, 3) if layout == "HWC" else (n, 3, height, width)
    return np.full(np.prod(shape) * np.dtype(dtype).itemsize, 0xC3, np.uint8).view(dtype).reshape(shape)


def normalisation(dtype: str, scale: list[float] = SCALE, offset: list[float] = OFFSET) -> dict[str, Any]:
    """`scale` and `offset` where the batch takes them."""
    return {} if dtype == "uint8" else {"scale": scale, "offset": offset}


def random_geometry(rng: np.random.Generator, size: tuple[int, int], window: tuple[int, int]) -> Rows:
    """Any region of an image of `size`, any resize that contains the window, any flip."""
    (width, height), (w, h) = size, window
    x0, y0 = int(rng.integers(0, width)), int(rng.integers(0, height))
    x1, y1 = int(rng.integers(x0 + 1, width + 1)), int(rng.integers(y0 + 1, height + 1))
    if rng.integers(4) == 0 and x1 - x0 >= w and y1 - y0 >= h:  # a crop that keeps its size
        new_width, new_height = x1 - x0, y1 - y0
    else:
        new_width, new_height = w + int(rng.integers(0, 30)), h + int(rng.integers(0, 30))
    left, top = int(rng.integers(0, new_width - w + 1)), int(rng.integers(0, new_height - h + 1))
    return np.array([x0, y0, x1, y1, new_width, new_height, left, top, rng.integers(4)], np.int32)


@pytest.mark.parametrize("name", ["box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", BITS, "float32"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("window", [(224, 160), (33, 17), (1, 1)], ids=str)
def test_fill_equals_its_pieces(jpeg: Jpeg, window: tuple[int, int], layout: str, dtype: str, name: str) -> None:
    """Every element of every row is what decoding, cropping, resizing, flipping and normalising in turn give."""
    rng = np.random.default_rng(5)
    sizes = [(int(w), int(h)) for w, h in rng.integers(1, 400, (12, 2))]
    images = [jpeg(w, h, i, **SAVES[i % 4]) for i, (w, h) in enumerate(sizes)]
    geometry = np.stack([random_geometry(rng, size, window) for size in sizes])
    rows = rng.permutation(20)[:12].astype(np.int64)
    out = batch(20, window[1], window[0], layout, dtype)
    untouched = out.copy()

    failures, decode_ns, resize_ns = _native.fill(
        images, geometry, out, rows, layout=layout, filter=name, **normalisation(dtype)
    )

    assert failures == []
    assert decode_ns > 0
    assert resize_ns > 0
    for image, columns, row in zip(images, geometry, rows, strict=True):
        levels = assembled(_native.decode(image), columns, window[1], window[0], name)
        expected = converted(levels, layout, dtype, SCALE, OFFSET)
        assert out[row].tobytes() == expected.tobytes()
    others = np.setdiff1d(np.arange(20), rows)
    assert out[others].tobytes() == untouched[others].tobytes()


@pytest.mark.parametrize("name", ["bilinear", "lanczos"])
def test_photographs_equal_their_pieces(photographs_dir: Path, name: str) -> None:
    """The same on real photographs, cropped as training crops them."""
    rng = np.random.default_rng(6)
    images = [path.read_bytes() for path in sorted(photographs_dir.glob("*/*.jpg"))[::3]]
    sizes = _native.sizes(images)
    geometry = np.stack([random_geometry(rng, (int(w), int(h)), (96, 80)) for w, h in sizes])
    out = batch(len(images), 80, 96, "CHW", "float32")

    failures, _, _ = _native.fill(
        images, geometry, out, np.arange(len(images)), layout="CHW", filter=name, scale=SCALE, offset=OFFSET
    )

    assert failures == []
    for image, columns, row in zip(images, geometry, out, strict=True):
        levels = assembled(_native.decode(image), columns, 80, 96, name)
        assert row.tobytes() == converted(levels, "CHW", "float32", SCALE, OFFSET).tobytes()


@given(
    st.lists(st.floats(-1e5, 1e5, width=32), min_size=3, max_size=3),
    st.lists(st.floats(-1e5, 1e5, width=32), min_size=3, max_size=3),
    st.sampled_from(["float16", BITS, "float32"]),
    st.sampled_from(["HWC", "CHW"]),
)
def test_normalisation_is_numpys(scale: list[float], offset: list[float], dtype: str, layout: str) -> None:
    """All 256 levels become NumPy's float32 product and sum, or these rounded: subnormal, infinite or in between."""
    pixels = np.arange(3 * 256, dtype=np.int64).astype(np.uint8).reshape(16, 16, 3)
    out = batch(1, 16, 16, layout, dtype)
    geometry = np.array([0, 0, 16, 16, 16, 16, 0, 0, 0], np.int32)

    _native.fill_pixels(pixels, geometry, out, 0, layout=layout, filter="box", scale=scale, offset=offset)

    with np.errstate(over="ignore"):
        expected = converted(pixels, layout, dtype, scale, offset)
    assert out[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", BITS, "float32"])
def test_pixels_fill_as_their_jpeg_does(jpeg: Jpeg, dtype: str, layout: str) -> None:
    """What Pillow decoded fills a row exactly as the JPEG itself does."""
    rng = np.random.default_rng(7)
    image = jpeg(150, 120, subsampling=0)
    pixels = np.asarray(Image.open(io.BytesIO(image)))
    geometry = np.stack([random_geometry(rng, (150, 120), (40, 30)) for _ in range(8)])
    direct, general = batch(8, 30, 40, layout, dtype), batch(8, 30, 40, layout, dtype)

    _native.fill([image] * 8, geometry, direct, np.arange(8), layout=layout, filter="bilinear", **normalisation(dtype))
    for row, columns in enumerate(geometry):
        _native.fill_pixels(pixels, columns, general, row, layout=layout, filter="bilinear", **normalisation(dtype))

    assert direct.tobytes() == general.tobytes()


@pytest.mark.parametrize("name", ["box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_lower_levels_fill_the_same(
    lower_level: Callable[[], None], jpeg: Jpeg, layout: str, dtype: str, name: str
) -> None:
    """Lower kernels, the scalar ones that specify them too, fill the same bytes as the ones in use."""
    rng = np.random.default_rng(8)
    images = [jpeg(123, 99, i, **save) for i, save in enumerate(SAVES)]
    geometry = np.stack([random_geometry(rng, (123, 99), (50, 41)) for _ in images])
    call = {"layout": layout, "filter": name, **normalisation(dtype)}
    fast, lower = batch(4, 41, 50, layout, dtype), batch(4, 41, 50, layout, dtype)
    best = _native.features()
    _native.fill(images, geometry, fast, np.arange(4), **call)

    lower_level()
    _native.fill(images, geometry, lower, np.arange(4), **call)

    assert len(_native.features()) < len(best)
    assert lower.tobytes() == fast.tobytes()


def test_failures_are_reported_and_their_rows_untouched(jpeg: Jpeg) -> None:
    """Images that cannot be filled are named with kind and reason, their rows left alone; the others are filled."""
    gif, cmyk = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (64, 64)).save(gif, "GIF")
    Image.new("CMYK", (64, 64)).save(cmyk, "JPEG")
    good = jpeg(64, 64)
    images = [
        good,
        cmyk.getvalue(),
        good[: len(good) * 3 // 4],
        gif.getvalue(),
        jpeg(400, 300),
        b"",
        good,
    ]
    geometry = np.tile(np.array([0, 0, 64, 64, 32, 32, 0, 0, 0], np.int32), (7, 1))
    out = batch(7, 32, 32, "CHW", "float32")
    untouched = out.copy()

    failures, _, _ = _native.fill(
        images, geometry, out, np.arange(7), layout="CHW", filter="box", scale=SCALE, offset=OFFSET, max_pixels=64 * 64
    )

    kinds = {i: kind for i, kind, _ in failures}
    assert kinds.keys() == {1, 2, 3, 4, 5}
    assert (kinds[1], kinds[2], kinds[4]) == ("unsupported", "truncated", "too_large")
    assert {kinds[3], kinds[5]} <= {"unsupported", "corrupt"}
    assert all(message for _, _, message in failures)
    assert out[1:6].tobytes() == untouched[1:6].tobytes()
    assert out[0].tobytes() == out[6].tobytes() != untouched[0].tobytes()


def test_region_outside_its_image_is_named(jpeg: Jpeg) -> None:
    """A region that turns out to leave its image raises, naming the image."""
    geometry = np.tile(np.array([0, 0, 64, 65, 32, 32, 0, 0, 0], np.int32), (2, 1))
    images = [jpeg(64, 65), jpeg(64, 64)]

    with pytest.raises(
        ValueError, match=r"geometry\[1\]: region must lie inside .* 64 x 64 pixels, got \(0, 0, 64, 65\)"
    ):
        _native.fill(images, geometry, batch(2, 32, 32, "HWC", "uint8"), np.arange(2), layout="HWC", filter="box")


def test_threads_fill_disjoint_rows_of_one_batch(jpeg: Jpeg) -> None:
    """Many threads that fill rows of the same batch at once leave the same bytes as one."""
    rng = np.random.default_rng(9)
    images = [jpeg(90 + i, 70, i) for i in range(32)]
    geometry = np.stack([random_geometry(rng, (90 + i, 70), (48, 40)) for i in range(32)])
    one, many = batch(32, 40, 48, "CHW", "float16"), batch(32, 40, 48, "CHW", "float16")
    call = {"layout": "CHW", "filter": "bilinear", **normalisation("float16")}
    _native.fill(images, geometry, one, np.arange(32), **call)
    start = threading.Barrier(8)

    def work(first: int) -> None:
        rows = np.arange(first, 32, 8)
        start.wait()
        for _ in range(5):
            _native.fill([images[i] for i in rows], geometry[rows], many, rows, **call)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert many.tobytes() == one.tobytes()


def test_other_threads_run_meanwhile(jpeg: Jpeg) -> None:
    """The GIL is released while pixels are made: a thread runs although nobody ever hands over on request."""
    image = jpeg(640, 480)
    geometry = np.tile(np.array([0, 0, 640, 480, 32, 32, 0, 0, 0], np.int32), (8, 1))
    out, gate, ran = batch(8, 32, 32, "HWC", "uint8"), threading.Lock(), threading.Event()
    interval = sys.getswitchinterval()
    gate.acquire()

    def work() -> None:
        with gate:
            ran.set()

    thread = threading.Thread(target=work)
    thread.start()

    sys.setswitchinterval(1000)
    try:
        gate.release()
        calls = 0
        while not ran.is_set() and calls < 1000:
            _native.fill([image] * 8, geometry, out, np.arange(8), layout="HWC", filter="box")
            calls += 1
        ran_meanwhile = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()

    assert ran_meanwhile


def test_truncations_never_touch_their_row(jpeg: Jpeg) -> None:
    """Wherever a file ends too early, either its row equals the whole file's or it is reported and left alone."""
    image = jpeg(80, 80, subsampling=2)
    cuts = [image[:end] for end in range(0, len(image), 37)]
    geometry = np.tile(np.array([0, 0, 80, 80, 24, 24, 0, 0, 1], np.int32), (len(cuts), 1))
    out = batch(len(cuts), 24, 24, "HWC", "uint8")
    untouched, whole = out[0].copy(), batch(1, 24, 24, "HWC", "uint8")
    _native.fill([image], geometry[:1], whole, np.arange(1), layout="HWC", filter="bilinear")

    failures, _, _ = _native.fill(cuts, geometry, out, np.arange(len(cuts)), layout="HWC", filter="bilinear")

    failed = {i for i, _, _ in failures}
    assert len(failed) >= len(cuts) - 1
    for i, row in enumerate(out):
        assert row.tobytes() == (untouched if i in failed else whole[0]).tobytes()


def test_hostile_files_never_touch_their_row(hostile_dir: Path) -> None:
    """Damaged and malicious files are filled or refused with a kind; refused rows are left alone."""
    images = [path.read_bytes() for path in sorted(hostile_dir.iterdir()) if path.is_file()]
    sizes = _native.sizes(images)
    geometry = np.zeros((len(images), 9), np.int32)
    geometry[:, 2:4] = np.maximum(sizes, 1)
    geometry[:, 4:6] = 16
    out = batch(len(images), 16, 16, "CHW", "uint8")
    untouched = out[0].copy()

    failures, _, _ = _native.fill(
        images, geometry, out, np.arange(len(images)), layout="CHW", filter="bilinear", max_pixels=2**24
    )

    assert {kind for _, kind, _ in failures} <= {"unsupported", "corrupt", "too_large", "truncated"}
    for i, _, message in failures:
        assert message
        assert out[i].tobytes() == untouched.tobytes()


def test_images_at_places_of_a_buffer_fill_the_same_rows(jpeg: Jpeg) -> None:
    """Images that are places of one buffer give the rows, sizes and failures of the same images as bytes."""
    images = [jpeg(64, 48), b"rubbish", jpeg(80, 64), b""]
    ends = np.cumsum([3, *map(len, images)])
    places = np.ascontiguousarray(np.stack([ends[:-1], ends[1:]], axis=1))
    sizes = _native.sizes(images)
    rows = EncodedRows(memoryview(b"..." + b"".join(images)), places, sizes)
    geometry = np.tile(np.array([0, 0, 64, 48, 32, 32, 0, 0, 0], np.int32), (4, 1))
    expected, out = batch(4, 32, 32, "HWC", "uint8"), batch(4, 32, 32, "HWC", "uint8")

    failures = _native.fill(images, geometry, expected, np.arange(4), layout="HWC", filter="box")[0]

    assert _native.fill(rows, geometry, out, np.arange(4), layout="HWC", filter="box")[0] == failures
    assert out.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(_native.sizes(rows), sizes)
    assert [bytes(image) for image in rows] == images
    assert bytes(rows[2]) == images[2]
    assert [bytes(image) for image in rows[1:3]] == images[1:3]
    assert [bytes(image) for image in rows.take(np.array([2, 1]))] == images[2:0:-1]


@pytest.mark.parametrize("place", [(-1, 2), (3, 2), (0, 9), (2**62, 2**63 - 1)])
def test_places_outside_of_the_buffer_are_refused(place: tuple[int, int]) -> None:
    """A place that does not lie inside the buffer is named."""
    rows = EncodedRows(memoryview(b"12345678"), np.array([(0, 8), place]), np.zeros((2, 2), np.int32))

    with pytest.raises(ValueError, match=rf"places\[1\] must lie inside the buffer of 8 bytes, got {place[0]} to"):
        _native.sizes(rows)


def test_images_that_overlap_the_batch_are_refused() -> None:
    """Places of the memory that is written are refused, as images are."""
    out = batch(1, 8, 8, "HWC", "uint8")
    rows = EncodedRows(out.reshape(-1).data, np.array([(0, 8)]), np.zeros((1, 2), np.int32))
    geometry = np.array([[0, 0, 8, 8, 8, 8, 0, 0, 0]], np.int32)

    with pytest.raises(ValueError, match="the buffer of the images must not overlap out"):
        _native.fill(rows, geometry, out, np.arange(1), layout="HWC", filter="box")
