"""A compiled pipeline fills rows with exactly what the pipeline makes of each sample."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, SampleError
from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.transforms.program import program

TRAIN = T.Pipeline(
    [
        T.Decode(),
        T.RandomResizedCrop(24),
        T.HorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
        T.ToLayout("CHW", "float32"),
    ]
)


def encoded(width: int, height: int, form: str = "JPEG", mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """A picture as a file."""
    coarse = np.random.default_rng(seed).integers(0, 256, (max(height // 6, 2), max(width // 6, 2), 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode)
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def turned(orientation: int) -> bytes:
    """A JPEG whose Exif says how to turn it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(50, 34, seed=orientation, exif=exif)


IMAGES = (
    encoded(64, 48, subsampling="4:2:0"),
    encoded(61, 45, subsampling="4:4:4", seed=1),
    encoded(45, 61, subsampling="4:2:2", seed=2),
    encoded(40, 90, mode="L", seed=3),
    encoded(90, 31, restart_marker_blocks=2, seed=4),
    encoded(50, 50, progressive=True, seed=5),
    encoded(33, 40, mode="CMYK", seed=6),
    encoded(41, 43, "PNG", seed=7),
    encoded(20, 17, "WEBP", seed=8),
    encoded(9, 8, seed=9),
    encoded(8, 9, "PNG", "L", seed=10),
    encoded(1, 1, seed=11),
    turned(1),
    turned(3),
    turned(6),
)

SIDE = st.integers(1, 40)
SIZE = st.one_of(SIDE, st.tuples(SIDE, SIDE))
FILTER = st.sampled_from(["box", "bilinear", "bicubic", "lanczos"])
GEOMETRY = st.one_of(
    st.builds(T.Resize, SIZE, FILTER),
    st.builds(T.CenterCrop, SIZE),
    st.builds(T.RandomCrop, SIZE, st.integers(0, 5), st.just(True)),  # pad_if_needed
    st.builds(T.RandomResizedCrop, SIZE, st.just((0.2, 1.0)), st.just((0.5, 2.0)), FILTER),
    st.just(T.HorizontalFlip(0.5, [])),
    st.builds(T.VerticalFlip),
)
VALUES = st.sampled_from(
    [
        [],
        [T.ToLayout("CHW", "uint8")],
        [T.ToLayout("HWC", "float32")],
        [T.ToLayout("CHW", "float16")],
        [T.ToLayout("CHW", "bfloat16")],
        [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("HWC", "bfloat16")],
        [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)],
        [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")],
        [
            T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
            T.HorizontalFlip(0.5, []),
            T.CenterCrop(7),
            T.ToLayout("HWC", "float16"),
        ],
        [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.Normalize((0, 0, 0), (2, 2, 2)), T.ToLayout("CHW", "float32")],
        [T.ToLayout("HWC", "float32"), T.HorizontalFlip(0.5, []), T.ToLayout("CHW", "float32")],
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(geometry=st.lists(GEOMETRY, max_size=5), values=VALUES, seed=st.integers(0, 99), orient=st.booleans())
def test_any_program_equals_its_pipeline(geometry: list[T.Op], values: list[T.Op], seed: int, *, orient: bool) -> None:
    """For any ops in any order over any kinds of image, every result is the general path's, bit for bit."""
    pipeline = T.Pipeline([T.Decode(orient=orient), *geometry, *values])
    program = pipeline.compile(("image", "label"))
    keys = SampleKeys(seed, 1, np.arange(len(IMAGES)))

    results = program.run(IMAGES, keys)

    expected = [pipeline(image, keys=keys[i : i + 1]) for i, image in enumerate(IMAGES)]
    for found, wanted in zip(results, expected, strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)
    if (spec := program.spec()) is not None:
        out = np.zeros((len(IMAGES), *spec.shape), spec.dtype)
        program.fill(IMAGES, out, keys)
        np.testing.assert_array_equal(out, np.stack(expected))


@pytest.mark.parametrize(
    ("ops", "fused"),
    [
        (TRAIN.ops, 5),
        ([T.Decode(), T.Resize(256), T.CenterCrop(224), T.ToLayout()], 4),
        ([T.Decode(), T.CenterCrop(9), T.HorizontalFlip(), T.RandomCrop(5), T.VerticalFlip(), T.CenterCrop(3)], 6),
        ([T.Decode(), T.Resize(9), T.RandomResizedCrop(5)], 2),
        ([T.Decode(), T.HorizontalFlip(), T.RandomResizedCrop(5), T.ToLayout()], 2),
        ([T.Decode(), T.CenterCrop(9), len, T.HorizontalFlip()], 2),
        ([T.CenterCrop(9), T.ToLayout()], 0),
    ],
)
def test_what_fuses(ops: list[Any], fused: int) -> None:
    """The prefix goes on exactly until an op that cannot be folded in exactly."""
    assert T.Pipeline(ops).compile("image").fused == fused


@pytest.mark.parametrize(
    ("ops", "shape", "dtype"),
    [
        (TRAIN.ops, (3, 24, 24), "float32"),
        ([T.Decode(), T.Resize((5, 6))], (5, 6, 3), "uint8"),
        ([T.Decode(), T.Resize((5, 6)), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)], (5, 6, 3), "float32"),
        ([T.Decode(), T.Resize(9), T.RandomCrop((4, 5)), T.ToLayout("CHW", "float16")], (3, 4, 5), "float16"),
        ([T.Decode(), T.HorizontalFlip(), T.RandomResizedCrop(5)], (5, 5, 3), "uint8"),
        ([T.Decode(), T.Resize(9)], None, None),
        ([T.Decode(), T.CenterCrop(5), len], None, None),
        ([T.Decode(), T.CenterCrop(5), T.Lambda(len, on="sample")], None, None),
        ([T.CenterCrop(5)], None, None),
    ],
)
def test_the_spec_is_known_where_rows_have_one_shape(ops: list[Any], shape: Any, dtype: Any) -> None:
    """Shape and dtype are foretold where every sample has the same; else there is no spec, and fill says so."""
    program = T.Pipeline(ops).compile({"image": "image", "label": "label"})

    spec = program.spec()

    if shape is None:
        assert spec is None
        with pytest.raises(ArgumentError, match="sample by sample"):
            program.fill([], np.empty((0, 1)), SampleKeys(0, 0, np.arange(0)))
    else:
        assert spec is not None
        assert (spec.shape, spec.dtype) == (shape, np.dtype(dtype))


@pytest.mark.parametrize("kinds", [("label",), ("image", "image"), ("image", "boxes"), ("image", "mask", "label")])
def test_samples_of_more_than_an_image_take_the_general_path(kinds: tuple[str, ...]) -> None:
    """Rows are only filled where the image is all that the pipeline changes."""
    program = TRAIN.compile(kinds)

    assert program.spec() is None
    with pytest.raises(ArgumentError, match="sample by sample"):
        program.run([IMAGES[0]], SampleKeys(0, 0, np.arange(1)))


@pytest.mark.parametrize("chunk", [1, 2, 7, len(IMAGES)])
def test_chunks_and_rows_do_not_matter(chunk: int) -> None:
    """Whatever the chunks, their order and their rows, each sample's row is the same; other rows are not touched."""
    program = TRAIN.compile("image")
    keys = SampleKeys(1, 2, np.arange(100, 100 + len(IMAGES)))
    whole = np.zeros((len(IMAGES), 3, 24, 24), np.float32)
    program.fill(IMAGES, whole, keys)
    out = np.full((2 * len(IMAGES), 3, 24, 24), 7, np.float32)
    order = np.random.default_rng(0).permutation(len(IMAGES))

    for start in range(0, len(IMAGES), chunk):
        part = order[start : start + chunk]
        program.fill([IMAGES[i] for i in part], out, keys[part], rows=2 * part)

    np.testing.assert_array_equal(out[0::2], whole)
    assert (out[1::2] == 7).all()


def test_rows_and_keys_may_be_slices() -> None:
    """Every other row, every other key, rows as a list: views and dtypes of the caller's are taken as they are."""
    program, keys = TRAIN.compile("image"), SampleKeys(1, 2, np.arange(10))
    expected, sliced, listed = (np.zeros((10, 3, 24, 24), np.float32) for _ in range(3))
    program.fill(IMAGES[:5], expected, keys[np.arange(0, 10, 2)], np.array([1, 3, 5, 7, 9]))

    program.fill(IMAGES[:5], sliced, keys[::2], np.arange(10)[1::2])
    program.fill(IMAGES[:5], listed, keys[::2], np.arange(1, 10, 2, dtype=np.int32))

    np.testing.assert_array_equal(sliced, expected)
    np.testing.assert_array_equal(listed, expected)


def test_sizes_that_the_caller_knows_are_used() -> None:
    """With sizes given the result is the same, and what the caller did not know is read from the image."""
    program, keys = TRAIN.compile("image"), SampleKeys(1, 2, np.arange(len(IMAGES)))
    known = T.sizes(IMAGES)
    known[::3] = 0
    given, read = (np.zeros((len(IMAGES), 3, 24, 24), np.float32) for _ in range(2))

    program.fill(IMAGES, given, keys, sizes=known)
    program.fill(IMAGES, read, keys)

    np.testing.assert_array_equal(given, read)
    assert (known[::3] == 0).all()


@pytest.mark.parametrize("bad", [b"<html>", IMAGES[0][:-200], IMAGES[7][:-60], IMAGES[0][:100], b""])
@pytest.mark.parametrize("position", [0, 3, 6])
def test_a_bad_image_is_named_and_the_others_are_filled(bad: bytes, position: int) -> None:
    """One unreadable image fails alone: its position is in the error, every other row is right."""
    images = [*IMAGES[:6]]
    images.insert(position, bad)
    pipeline = T.Pipeline([T.Decode(), T.Resize((48, 48))])
    keys = SampleKeys(0, 0, np.arange(7))
    out = np.zeros((7, 48, 48, 3), np.uint8)

    with pytest.raises(DecodeError) as caught:
        pipeline.compile("image").fill(images, out, keys)

    assert caught.value.where["position"] == position
    for i, image in enumerate(images):
        if i != position:
            np.testing.assert_array_equal(out[i], pipeline(image))


def test_failures_are_handed_over_on_request() -> None:
    """With a list given, every failed row is in it and nothing is raised."""
    images = [IMAGES[0], b"<html>", IMAGES[1], IMAGES[0][:150], IMAGES[5][:-30]]
    failures: list[T.Failure] = []

    TRAIN.compile("image").fill(
        images, np.zeros((5, 3, 24, 24), np.float32), SampleKeys(0, 0, np.arange(5)), failures=failures
    )

    assert sorted(failure.position for failure in failures) == [1, 3, 4]
    assert all(isinstance(failure.error, DecodeError) for failure in failures)
    assert all("position" not in failure.error.where for failure in failures if isinstance(failure.error, DecodeError))


def test_an_image_above_the_cap_is_refused() -> None:
    """Decode's max_pixels holds on the fused path, native and through Pillow."""
    pipeline = T.Pipeline([T.Decode(max_pixels=500), T.Resize((5, 5))])
    failures: list[T.Failure] = []

    pipeline.compile("image").fill(
        IMAGES[:9], np.zeros((9, 5, 5, 3), np.uint8), SampleKeys(0, 0, np.arange(9)), failures=failures
    )

    assert sorted(failure.position for failure in failures) == list(range(8))
    assert all(isinstance(failure.error, ImageTooLargeError) for failure in failures)


def test_coefficients_above_the_cap_are_refused() -> None:
    """Decode's max_nbytes holds on the fused path, native and by Pillow; what is resized as it comes holds nothing."""
    images = [IMAGES[0], IMAGES[5], encoded(33, 40, mode="CMYK", progressive=True), IMAGES[6], IMAGES[7]]
    pipeline = T.Pipeline([T.Decode(max_nbytes=1000), T.Resize((5, 5))])
    failures: list[T.Failure] = []

    pipeline.compile("image").fill(
        images, np.zeros((5, 5, 5, 3), np.uint8), SampleKeys(0, 0, np.arange(5)), failures=failures
    )

    assert sorted(failure.position for failure in failures) == [1, 2, 3]
    assert all(isinstance(failure.error, ImageTooLargeError) for failure in failures)
    assert all("raise max_nbytes" in str(failure.error) for failure in failures)


def test_a_lack_of_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image for which the native core had no memory is a MemoryError, not put to Pillow, which needs more."""
    failed = ([(0, "out_of_memory", "no memory to decode an image")], 0, 0)
    monkeypatch.setattr(program._native, "fill", lambda *_, **__: failed)  # type: ignore[attr-defined]  # a fake
    failures: list[T.Failure] = []

    T.Pipeline([T.Decode(), T.Resize((5, 5))]).compile("image").fill(
        IMAGES[:1], np.zeros((1, 5, 5, 3), np.uint8), SampleKeys(0, 0, np.arange(1)), failures=failures
    )

    assert [type(failure.error) for failure in failures] == [MemoryError]


def test_an_image_that_an_op_cannot_take_fails_alone() -> None:
    """A window that does not fit one image of the chunk is that image's failure."""
    pipeline = T.Pipeline([T.Decode(), T.RandomCrop(30)])
    out = np.zeros((3, 30, 30, 3), np.uint8)
    keys = SampleKeys(0, 0, np.arange(3))

    with pytest.raises(ArgumentError, match="pad_if_needed") as caught:
        pipeline.compile("image").fill([IMAGES[0], IMAGES[9], IMAGES[1]], out, keys)

    assert caught.value.where["position"] == 1
    np.testing.assert_array_equal(out[2], pipeline(IMAGES[1], keys=keys[2:]))


def test_what_a_callable_raises_is_the_cause() -> None:
    """An exception of a user's own op comes as a SampleError with the position, caused by the original."""

    def picky(image: Any) -> Any:
        if image.shape[0] == 45:
            raise KeyError("no 45")
        return image

    program = T.Pipeline([T.Decode(), picky]).compile("image")

    with pytest.raises(SampleError, match="KeyError") as caught:
        program.run(IMAGES[:3], SampleKeys(0, 0, np.arange(3)))

    assert caught.value.where["position"] == 1
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_rest_of_a_program_runs_within_the_sample() -> None:
    """A callable behind the fused prefix draws from its own sample, as on the general path."""
    pipeline = T.Pipeline([T.Decode(), T.CenterCrop(8), lambda image: image + ps.rng().integers(0, 50, image.shape)])
    keys = SampleKeys(4, 0, np.arange(6))

    results = pipeline.compile("image").run(IMAGES[:6], keys)

    for i in range(6):
        np.testing.assert_array_equal(results[i], pipeline(IMAGES[i], keys=keys[i : i + 1]))


def test_a_batch_of_another_shape_is_refused() -> None:
    """Rows of the wrong shape or dtype are an error that names both, before anything is written."""
    program, keys = TRAIN.compile("image"), SampleKeys(0, 0, np.arange(1))

    with pytest.raises(ArgumentError, match=r"\(3, 24, 24\) and dtype float32.*\(24, 24, 3\)"):
        program.fill(IMAGES[:1], np.zeros((1, 24, 24, 3), np.float32), keys)
    with pytest.raises(ArgumentError, match="float64"):
        program.fill(IMAGES[:1], np.zeros((1, 3, 24, 24)), keys)


def test_no_images_are_no_trouble() -> None:
    """An empty chunk fills nothing."""
    program = TRAIN.compile("image")

    program.fill([], np.zeros((2, 3, 24, 24), np.float32), SampleKeys(0, 0, np.arange(0)))

    assert program.run([], SampleKeys(0, 0, np.arange(0))) == []


def test_views_of_a_store_are_read_in_place() -> None:
    """Memoryviews and arrays of bytes fill the same rows as bytes."""
    program, keys = TRAIN.compile("image"), SampleKeys(0, 0, np.arange(len(IMAGES)))
    first, second, third = (np.zeros((len(IMAGES), 3, 24, 24), np.float32) for _ in range(3))

    program.fill(IMAGES, first, keys)
    program.fill([memoryview(image) for image in IMAGES], second, keys)
    program.fill([np.frombuffer(image, np.uint8) for image in IMAGES], third, keys)

    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_stages_are_traced() -> None:
    """Every image is counted once as decoded, native or through Pillow, and takes time in both stages."""
    trace, program = Trace(), TRAIN.compile("image")

    def work() -> None:
        trace.activate()
        program.fill(IMAGES[:9], np.zeros((9, 3, 24, 24), np.float32), SampleKeys(0, 0, np.arange(9)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    total = trace.total()
    assert total["decode"][1] == total["augment"][1] == 9
    assert total["decode"][0] > 0 < total["augment"][0]


def test_a_program_pickles_and_says_what_fuses() -> None:
    """A copy does the same; the repr tells fused ops from the rest."""
    program = T.Pipeline([T.Decode(), T.HorizontalFlip(), T.RandomResizedCrop(5)]).compile("image")
    keys = SampleKeys(0, 0, np.arange(3))

    copy = pickle.loads(pickle.dumps(program))

    assert repr(program) == "Program(fused=[Decode, HorizontalFlip], rest=[RandomResizedCrop])"
    for mine, its in zip(program.run(IMAGES[:3], keys), copy.run(IMAGES[:3], keys), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_real_images_fill_as_the_pipeline_makes_them(photographs_dir: Path) -> None:
    """On photographs, at training size, every row is the general path's, bit for bit."""
    images = [path.read_bytes() for path in sorted(photographs_dir.glob("*/*.jpg"))[::5]]
    crop = [T.RandomResizedCrop(224), T.HorizontalFlip(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout()]
    keys = SampleKeys(0, 0, np.arange(len(images)))
    for ops in (crop, [T.Resize(256), T.CenterCrop(224), T.ToLayout("HWC", "uint8")]):
        pipeline = T.Pipeline([T.Decode(), *ops])
        program = pipeline.compile("image")
        spec = program.spec()
        assert spec is not None
        out = np.zeros((len(images), *spec.shape), spec.dtype)
        program.fill(images, out, keys)
        for i, image in enumerate(images):
            np.testing.assert_array_equal(out[i], pipeline(image, keys=keys[i : i + 1]))


def test_a_file_that_was_cut_is_refused_whatever_part_is_used() -> None:
    """A truncated JPEG fails also where the crop lies above the cut; junk behind a whole one does no harm."""
    whole = encoded(40, 300, seed=3)
    pipeline = T.Pipeline([T.Decode(), T.CenterCrop(20)])
    program, keys = pipeline.compile("image"), SampleKeys(0, 0, np.arange(1))
    behind = encoded(40, 300, seed=3, exif=b"Exif\x00\x00" + encoded(8, 8))

    for image in (whole, behind):
        for length in (len(image) * 8 // 10, len(image) - 2):
            with pytest.raises(DecodeError):
                program.run([image[:length]], keys)
            with pytest.raises(DecodeError):
                ps.decode(image[:length], region=(0, 0, 20, 20))

    for junk in (b"\x00", b"junk" * 10, encoded(9, 9)):
        np.testing.assert_array_equal(program.run([whole + junk], keys)[0], pipeline(whole))


def test_pillow_is_not_imported_for_baseline_jpeg() -> None:
    """A process that fills rows from ordinary JPEGs pays neither for Pillow nor for torch."""
    script = (
        "import sys, numpy as np; from penstock import transforms as T; from penstock.sample import SampleKeys\n"
        "image = sys.stdin.buffer.read()\n"
        "pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(8), T.ToLayout()])\n"
        "pipeline.compile('image').fill([image], np.zeros((1, 3, 8, 8), np.float32), SampleKeys(0, 0, np.arange(1)))\n"
        "assert not {'PIL', 'torch'} & set(sys.modules), 'imported'\n"
    )

    done = subprocess.run([sys.executable, "-c", script], input=IMAGES[0], capture_output=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr.decode()
