"""What every registered op promises; registering an op runs it through this file."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.rng import uniforms as specified_uniforms
from penstock.sample import SampleKeys
from penstock.transforms.base import ImageSpec, uniforms

SIZES = np.array([(40, 30), (30, 40), (33, 33), (21, 57), (64, 20)], np.int32)


def keys_of(count: int, seed: int = 3, epoch: int = 1, first: int = 0) -> SampleKeys:
    """Keys of ``count`` consecutive samples."""
    return SampleKeys(seed, epoch, np.arange(first, first + count, dtype=np.int64))


EXAMPLES: dict[str, list[T.Op]] = {
    "Decode": [T.Decode(), T.Decode(orient=True)],
    "Resize": [
        T.Resize(24),
        T.Resize((17, 31), "bicubic"),
        T.Resize(40, "lanczos", max_size=52),
        T.Resize((64, 64), "box"),
        T.Resize(None, max_size=35),
    ],
    "CenterCrop": [T.CenterCrop(16), T.CenterCrop((70, 11))],
    "RandomCrop": [
        T.RandomCrop(12),
        T.RandomCrop(25, 4, True, min_visible=0.5),
        T.RandomCrop((20, 18), padding=(3, 1, 4, 2)),
        T.RandomCrop(90, pad_if_needed=True),
    ],
    "RandomResizedCrop": [T.RandomResizedCrop(20), T.RandomResizedCrop((9, 30), (0.5, 1), (1, 5), "lanczos")],
    "HorizontalFlip": [T.HorizontalFlip(0.5, []), T.HorizontalFlip(1.0, []), T.HorizontalFlip(0.5, [(0, 1)], 2)],
    "VerticalFlip": [T.VerticalFlip(), T.VerticalFlip(0.3)],
    "Normalize": [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)],
    "ToLayout": [
        T.ToLayout(),
        T.ToLayout("HWC", "uint8"),
        T.ToLayout("CHW", "float16"),
        T.ToLayout("CHW", "uint8"),
        T.ToLayout("HWC", "bfloat16"),
    ],
    "ColorJitter": [T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ColorJitter(saturation=(0, 2)), T.ColorJitter(hue=0.5)],
    "RandomHSV": [T.RandomHSV(), T.RandomHSV(0.5, 1, 1)],
    "Grayscale": [T.Grayscale(), T.Grayscale(p=0.2), T.Grayscale(1)],
    "Posterize": [T.Posterize(3), T.Posterize(1, p=0.9)],
    "Solarize": [T.Solarize(), T.Solarize(70.5, p=1)],
    "Equalize": [T.Equalize(), T.Equalize(1)],
    "AutoContrast": [T.AutoContrast(), T.AutoContrast(1)],
    "Invert": [T.Invert(), T.Invert(1)],
    "LookupTable": [
        T.LookupTable(np.arange(256) // 2 + 60),
        T.LookupTable(np.random.default_rng(0).integers(0, 256, (256, 3)), p=0.5),
        T.LookupTable.gamma(2.2, p=0.9),
    ],
    "GaussianBlur": [T.GaussianBlur(5), T.GaussianBlur((23, 3), (0.5, 4))],
    "Sharpness": [T.Sharpness(2), T.Sharpness(0, p=1)],
    "RandomRotation": [T.RandomRotation(30), T.RandomRotation((80, 100), "bilinear", fill=(10, 20, 30))],
    "RandomAffine": [
        T.RandomAffine(20),
        T.RandomAffine(0, (0.2, 0.1), (0.5, 1.5), (-20, 20, -5, 5), "bilinear", fill=7, mask_fill=255),
    ],
    "RandomPerspective": [T.RandomPerspective(), T.RandomPerspective(1, p=1, filter="nearest")],
    "RandomErasing": [T.RandomErasing(), T.RandomErasing(1, (0.1, 0.2), (1, 1), "random")],
    "Pad": [T.Pad(3), T.Pad((1, 2, 3, 4), (0, 6, 7)), T.Pad((9, 2), mode="reflect"), T.Pad(4, mode="edge")],
    "Letterbox": [T.Letterbox(90), T.Letterbox((60, 100), 0, "lanczos"), T.Letterbox(200, enlarge=False)],
    "RandAugment": [T.RandAugment(), T.RandAugment(5, 3, 11, "bilinear", 128)],
    "TrivialAugmentWide": [T.TrivialAugmentWide(), T.TrivialAugmentWide(7, "bilinear", (1, 2, 3))],
    "RandomShortestSize": [T.RandomShortestSize((18, 21)), T.RandomShortestSize(range(10, 40, 3), 44, "box")],
    "ScaleJitter": [T.ScaleJitter(24), T.ScaleJitter((20, 30), (0.5, 1.5), "box")],
    "RandomPhotometricDistort": [T.RandomPhotometricDistort(), T.RandomPhotometricDistort(hue=(-0.5, 0.5), p=1)],
    "RandomIoUCrop": [T.RandomIoUCrop(), T.RandomIoUCrop(0.1, 0.6, 0.2, 4, (0.0, 0.2), 9)],
    "RandomZoomOut": [T.RandomZoomOut(), T.RandomZoomOut(side_range=(1.5, 2), p=0.9)],
    "ClampBoundingBoxes": [T.ClampBoundingBoxes()],
    "SanitizeBoundingBoxes": [T.SanitizeBoundingBoxes(), T.SanitizeBoundingBoxes(3, 12, ("keypoints",), 0.25)],
}
"""Settings under which each op is tried; an op without an entry fails :func:`test_every_op_has_examples`."""

OPS = [op for examples in EXAMPLES.values() for op in examples]
ARRAY_OPS = [op for op in OPS if not isinstance(op, T.Decode)]
RESIZING = (T.Resize, T.RandomResizedCrop, T.Letterbox)
SHIFTING = (T.CenterCrop, T.RandomCrop, T.HorizontalFlip, T.VerticalFlip, T.Pad, T.RandomZoomOut, T.RandomIoUCrop)
WARPING = (T.RandomRotation, T.RandomAffine, T.RandomPerspective, T.RandAugment, T.TrivialAugmentWide)
MOVING = (*RESIZING, *SHIFTING, *WARPING)


def draw(op: T.Op, keys: SampleKeys, sizes: NDArray[np.int32], stream: int) -> Any:
    """What the op draws, for one that reads boxes: with the left upper quarter of each image as its box."""
    return op.draw_by_boxes(keys, sizes, stream, [np.array([(0, 0, *size // 2)], np.float32) for size in sizes])


def each(*ops: T.Op) -> pytest.MarkDecorator:
    """Run a test for each op, under its repr."""
    return pytest.mark.parametrize("op", ops, ids=repr)


def noise(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """An image with nothing regular in it."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(pixels: NDArray[Any]) -> bytes:
    """The pixels as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture that JPEG likes."""
    return Image.fromarray(noise(max(width // 8, 2), max(height // 8, 2), seed)).resize((width, height))


def test_every_op_has_examples() -> None:
    """An op that is registered is tried here."""
    assert sorted(EXAMPLES) == sorted(T.ops)
    for name in T.ops:
        assert all(type(op) is T.ops.get(name) for op in EXAMPLES[name])


@each(*OPS)
def test_an_op_pickles_and_says_its_settings(op: T.Op) -> None:
    """A copy made by pickling has the same repr, which names the op, and draws the same."""
    copy = pickle.loads(pickle.dumps(op))

    assert repr(copy) == repr(op)
    assert repr(op).startswith(type(op).__name__ + "(")
    np.testing.assert_array_equal(draw(copy, keys_of(5), SIZES, 2), draw(op, keys_of(5), SIZES, 2))


@each(*ARRAY_OPS)
def test_drawing_depends_on_the_key_alone(op: T.Op) -> None:
    """A sample's parameters are the same in any chunk, at any place in it."""
    keys, sizes = keys_of(40), np.tile(np.array([(40, 30), (30, 47)], np.int32), (20, 1))
    whole = draw(op, keys, sizes, 4)

    order = np.random.default_rng(0).permutation(40)
    shuffled = draw(op, keys[order], sizes[order], 4)
    parts = np.concatenate([draw(op, keys[i : i + 7], sizes[i : i + 7], 4) for i in range(0, 40, 7)])

    np.testing.assert_array_equal(shuffled, whole[order])
    np.testing.assert_array_equal(parts, whole)
    assert len(whole) == 40


@each(*(op for op in ARRAY_OPS if op.random and getattr(op, "p", 0) != 1))
@pytest.mark.parametrize(
    ("keys", "stream"),
    [(keys_of(64, seed=4), 4), (keys_of(64, epoch=2), 4), (keys_of(64, first=1000), 4), (keys_of(64), 5)],
    ids=["seed", "epoch", "index", "stream"],
)
def test_drawing_changes_with_each_part_of_the_key(op: T.Op, keys: SampleKeys, stream: int) -> None:
    """Another seed, epoch, index or stream gives other numbers."""
    sizes = np.full((64, 2), 80, np.int32)

    other = draw(op, keys, sizes, stream)

    same = draw(op, keys_of(64), sizes, 4)
    assert not np.array_equal(other, same)


@each(*(op for op in ARRAY_OPS if not op.random))
def test_an_op_that_is_not_random_draws_nothing(op: T.Op) -> None:
    """An op that does not call itself random has the same parameters for any key."""
    np.testing.assert_array_equal(draw(op, keys_of(5, seed=9), SIZES, 1), draw(op, keys_of(5, seed=8), SIZES, 2))


@each(*(op for op in OPS if isinstance(op, MOVING)))
def test_size_is_the_images(op: T.Op) -> None:
    """``size`` foretells the image's shape; ``spec`` what all samples share of it."""
    params = draw(op, keys_of(5), SIZES, 0)

    sizes = op.size(params, SIZES)

    spec = op.spec(ImageSpec(dtype="uint8"))
    assert spec is not None
    for i, (width, height) in enumerate(SIZES.tolist()):
        image = op.image(noise(width, height), params[i])
        assert (image.shape[1], image.shape[0]) == tuple(sizes[i])
        assert image.dtype == np.uint8
        assert spec.width in {None, image.shape[1]}
        assert spec.height in {None, image.shape[0]}


@each(*ARRAY_OPS)
def test_native_is_the_specification(op: T.Op) -> None:
    """The native form of an op is within one level of its NumPy or Pillow specification, on every value."""
    params = draw(op, keys_of(5), SIZES, 0)

    for i, (width, height) in enumerate(SIZES.tolist()):
        image = noise(width, height, seed=i)
        before = image.copy()
        expected, found = op.image(image, params[i]), op.native(image, params[i])
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        exact = not isinstance(op, RESIZING)
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
        assert difference == 0 if exact else difference <= 1
        np.testing.assert_array_equal(image, before)  # an op never changes its input


@each(*(op for op in OPS if not op.reads_boxes and not op.removes_objects))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_the_fused_path_is_the_general_path(op: T.Op, form: str) -> None:
    """Behind Decode, a compiled op gives bit for bit what the pipeline gives, on odd and even sizes."""
    ops = [op] if isinstance(op, T.Decode) else [T.Decode(), op]
    pipeline = T.Pipeline(ops)
    images = []
    for i, (width, height) in enumerate(SIZES.tolist()):
        file = io.BytesIO()
        smooth(width, height, i).save(file, form)
        images.append(file.getvalue())
    keys = keys_of(5)

    results = pipeline.compile("image").run(images, keys)

    for i, image in enumerate(images):
        expected = pipeline(image, keys=keys[i : i + 1])
        np.testing.assert_array_equal(results[i], expected)
        assert results[i].dtype == expected.dtype


@each(*(op for op in OPS if isinstance(op, SHIFTING) and getattr(op, "mode", "constant") == "constant"))
def test_keypoints_and_boxes_follow_a_pixel(op: T.Op) -> None:
    """A marked pixel, its centre as a keypoint and its outline as a box arrive at the same place."""
    for i, (width, height) in enumerate(SIZES.tolist()):
        size, params = (width, height), draw(op, keys_of(5), SIZES, 0)[i]
        marks = np.random.default_rng(i)
        for _ in range(20):
            x, y = int(marks.integers(width)), int(marks.integers(height))
            image = np.zeros((height, width, 3), np.uint8)
            image[y, x] = 255
            moved = op.image(image, params)
            points = op.keypoints(np.array([(x + 0.5, y + 0.5, 2.0)], np.float32), params, size)
            boxes = op.boxes(np.array([(x, y, x + 1, y + 1)], np.float32), params, size)
            mask = op.mask(image[:, :, 0], params)

            np.testing.assert_array_equal(mask, moved[:, :, 0])
            found = np.argwhere(mask)
            if len(found) == 0:  # cropped away: the point lies outside, the box has no area
                inside = (points[0, :2] >= 0) & (points[0, :2] <= (moved.shape[1], moved.shape[0]))
                assert not inside.all()
                assert (boxes[0, 2] - boxes[0, 0]) * (boxes[0, 3] - boxes[0, 1]) == 0
            else:
                row, column = found[0]
                np.testing.assert_array_equal(points[0], (column + 0.5, row + 0.5, 2.0))
                np.testing.assert_array_equal(boxes[0], (column, row, column + 1, row + 1))
            assert points.dtype == boxes.dtype == np.float32


@each(*(op for op in OPS if isinstance(op, RESIZING)))
def test_keypoints_and_boxes_follow_a_block_through_a_resize(op: T.Op) -> None:
    """The box of a bright block, moved, is the bright block's box to within a pixel; the mask agrees as well."""
    sizes = np.array([(160, 120), (130, 170)], np.int32)
    for i, (width, height) in enumerate(sizes.tolist()):
        params = draw(op, keys_of(2), sizes, 0)[i]
        image = np.zeros((height, width, 3), np.uint8)
        image[40:100, 30:110] = 255
        corners = np.array([(30, 40), (110, 100)], np.float32)

        moved = op.native(image, params)
        box = op.boxes(np.array([(30, 40, 110, 100)], np.float32), params, (width, height))[0]
        points = op.keypoints(corners, params, (width, height))
        mask = op.mask(image[:, :, 0], params)

        for bright in (moved[:, :, 0] > 127, mask > 127):
            rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
            np.testing.assert_allclose((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1), box, atol=1.01)
        assert mask.shape == moved.shape[:2]
        assert set(np.unique(mask)) <= {0, 255}
        limits = (moved.shape[1], moved.shape[0])
        np.testing.assert_allclose(np.clip(points, 0, limits).reshape(4), box, atol=1e-3)


@each(*(op for op in OPS if isinstance(op, MOVING)))
def test_no_annotations_are_no_trouble(op: T.Op) -> None:
    """A sample without boxes or keypoints keeps arrays of length 0."""
    params = draw(op, keys_of(1), SIZES[:1], 0)[0]

    assert op.boxes(np.empty((0, 4), np.float32), params, (40, 30)).shape == (0, 4)
    assert op.keypoints(np.empty((0, 2), np.float32), params, (40, 30)).shape == (0, 2)


@each(*OPS)
@pytest.mark.parametrize("encoded", [True, False], ids=["encoded", "array"])
def test_torch_takes_what_a_pipeline_gives(op: T.Op, encoded: bool) -> None:
    """Behind any op, image, mask, boxes and keypoints are arrays that torch views: row by row, and not read-only."""
    as_tensors = pytest.importorskip("penstock.torch").as_tensors
    ops = [T.Decode(), op] if encoded and not isinstance(op, T.Decode) else [op]
    for i, (width, height) in enumerate(SIZES.tolist()):
        sample: dict[str, Any] = {
            "image": noise(width, height, i),
            "mask": noise(width, height, i)[:, :, 0].copy(),
            "boxes": np.array([(1, 2, 9, 8)], np.float32),
            "keypoints": np.array([(1, 2), (3, 4)], np.float32),
        }
        if isinstance(ops[0], T.Decode):
            sample |= {name: png(sample[name]) for name in ("image", "mask")}

        result = T.Pipeline(ops)(sample, keys=keys_of(1, first=i))

        for name, value in result.items():
            assert as_tensors(value).shape == value.shape, name
            assert value.flags.c_contiguous, name


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """CHW, by a user's own function."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))


TO_CHW = {
    "ToLayout": T.ToLayout("CHW", "uint8"),
    "callable": T.Lambda(channels_first),
    "sample": T.Lambda(lambda sample: {**sample, "image": channels_first(sample["image"])}, on="sample"),
}


@each(*ARRAY_OPS)
@pytest.mark.parametrize("to_chw", TO_CHW)
def test_an_op_on_chw_images_is_that_on_hwc_images_or_refused(op: T.Op, to_chw: str) -> None:
    """Behind what makes images CHW, an op gives what it gives before it; one that needs HWC images is refused."""
    for i, (width, height) in enumerate(SIZES.tolist()):
        sample = {
            "image": noise(width, height, i),
            "mask": noise(width, height, i)[:, :, 0].copy(),
            "boxes": np.array([(1, 2, width - 2, height - 1), (2, 5, width + 9, height + 9), (3, 3, 4, 3)], np.float32),
            "keypoints": np.array([(1, 2), (3, 4), (5, 6)], np.float32),
            "instances": np.stack([noise(width, height, row)[:, :, 0] > 127 for row in range(3)]),
        }
        keys = keys_of(1, first=i)

        if not op.leaves_pixels:
            with pytest.raises(ArgumentError, match="HWC"):
                T.Pipeline([TO_CHW[to_chw], op])(sample, keys=keys)
            continue
        found = T.Pipeline([TO_CHW[to_chw], op])(sample, keys=keys)

        expected = T.Pipeline([op, TO_CHW[to_chw]])(sample, keys=keys)
        for name in sample:
            np.testing.assert_array_equal(found[name], expected[name], strict=True)


@settings(max_examples=settings().max_examples // 2)
@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    indices=st.lists(st.integers(0, 2**62), max_size=9),
    stream=st.integers(0, 65535),
    count=st.integers(0, 30),
)
def test_native_uniforms_are_the_specified_ones(
    seed: int, epoch: int, indices: list[int], stream: int, count: int
) -> None:
    """What ops draw from the native core is ``penstock.rng.uniforms``, bit for bit."""
    keys = SampleKeys(seed, epoch, np.array(indices, np.int64))

    found = uniforms(keys, stream, count)

    np.testing.assert_array_equal(found, specified_uniforms(keys, stream, count))


@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    target=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    kernel=st.sampled_from(["box", "bilinear", "bicubic", "lanczos"]),
    seed=st.integers(0, 9),
    extreme=st.booleans(),
)
def test_native_resize_is_within_one_level_of_pillow(
    size: tuple[int, int], target: tuple[int, int], kernel: str, seed: int, *, extreme: bool
) -> None:
    """Every pixel of the native resize is within one level of Pillow's, for any size, ratio and filter."""
    image = noise(*size, seed=seed)
    if extreme:
        image = np.where(image > 127, 255, 0).astype(np.uint8)
    op: Any = T.Resize(target[::-1], kernel)

    found = _native.resize(image, target[0], target[1], kernel)

    expected = op.image(image, np.array(target))
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
