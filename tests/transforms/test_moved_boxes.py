"""Boxes lie around their objects: drawn, transformed as pixels and measured, and against torchvision's v2.

An object is a filled rectangle. To measure where its edges are to a fraction of a pixel, it is drawn and transformed
``scale`` times as large as the image of the test; what is measured is divided by that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.ops.warp import Warp
from tests.transforms.test_program import FILTER

SIZE = st.tuples(st.integers(16, 40), st.integers(16, 40))
EXTENT = st.integers(10, 40)
FLIPS = st.one_of(st.just(T.HorizontalFlip(0.5, [])), st.builds(T.VerticalFlip))
CROPS = st.one_of(
    st.builds(T.CenterCrop, st.tuples(EXTENT, EXTENT)),
    st.builds(T.RandomCrop, st.tuples(EXTENT, EXTENT), st.integers(0, 4), st.just(True)),
    st.builds(T.RandomResizedCrop, st.tuples(EXTENT, EXTENT), st.just((0.3, 1.0)), st.just((0.5, 2.0)), FILTER),
    st.builds(T.RandomIoUCrop, st.just(0.5), sampler_options=st.just((0.0, 0.2))),
)
SIZES = st.one_of(
    st.builds(T.Resize, st.one_of(EXTENT, st.tuples(EXTENT, EXTENT)), FILTER),
    st.builds(T.Resize, EXTENT, FILTER, st.just(41)),
    st.builds(T.Resize, st.none(), FILTER, EXTENT),
    st.builds(T.RandomShortestSize, st.just((12, 19, 33)), st.just(50), FILTER),
    st.builds(T.Letterbox, st.tuples(EXTENT, EXTENT), st.just(0), FILTER, st.booleans()),
    st.builds(T.Pad, st.tuples(*[st.integers(0, 9)] * 4)),
    st.builds(T.RandomZoomOut, st.just(0), st.just((1.0, 3.0))),
)
WARPS = st.one_of(
    st.builds(T.RandomRotation, st.sampled_from([20, 180]), st.sampled_from(["nearest", "bilinear"])),
    st.builds(T.RandomAffine, st.just(40), st.just((0.2, 0.2)), st.just((0.6, 1.5)), st.just((-20, 20, -20, 20))),
    st.builds(T.RandomPerspective, st.sampled_from([0.3, 0.6]), st.just(1.0)),
)
WHOLE = 255


@st.composite
def boxes(draw: st.DrawFn, size: tuple[int, int]) -> NDArray[np.float32]:
    """One box inside an image, at quarters of a pixel, with sides of 8 pixels or more."""
    sides = []
    for length in size:
        extent = draw(st.integers(8 * 4, length * 4))
        start = draw(st.integers(0, length * 4 - extent))
        sides.append((start / 4, (start + extent) / 4))
    return np.array([[sides[0][0], sides[1][0], sides[0][1], sides[1][1]]], np.float32)


def params_of(op: T.Op, size: tuple[int, int], box: NDArray[np.float32], index: int) -> Any:
    """What the op draws for a sample with one box."""
    return op.draw_by_boxes(SampleKeys(1, 0, np.array([index])), np.array([size], np.int32), 2, [box])[0]


def drawn(size: tuple[int, int], box: NDArray[np.float32], scale: int, margin: int = 0) -> NDArray[np.uint8]:
    """A picture, HW, ``scale`` times as large, with a filled rectangle; ``margin``: black pixels around it."""
    picture = np.zeros(((size[1] + 2 * margin) * scale, (size[0] + 2 * margin) * scale), np.uint8)
    x0, y0, x1, y1 = np.rint((box[0] + margin) * scale).astype(int).tolist()
    picture[y0:y1, x0:x1] = WHOLE
    return picture


def measured(picture: NDArray[Any], scale: int) -> NDArray[np.float64] | None:
    """The box around what is bright; None if nothing is."""
    bright = picture > WHOLE // 2
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    if not len(rows):
        return None
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / scale


def enlarged(op: T.Op, params: Any, scale: int) -> tuple[T.Op, Any]:
    """The op and its params for an image ``scale`` times as large."""
    if isinstance(op, T.HorizontalFlip | T.VerticalFlip):
        return op, params
    if isinstance(op, T.Pad):
        return T.Pad([side * scale for side in op.padding]), params
    if isinstance(op, T.RandomIoUCrop):
        return op, np.array([*params[:4] * scale, params[4]])
    if isinstance(op, T.Letterbox):
        return T.Letterbox((op.size_[0] * scale, op.size_[1] * scale), 0, op.filter), params * scale
    if isinstance(op, T.RandomResizedCrop):
        larger = (op.size_[0] * scale, op.size_[1] * scale)
        return T.RandomResizedCrop(larger, op.scale, op.ratio, op.filter), params * scale
    return op, params * scale


def overlap(one: Any, other: Any) -> float:
    """Intersection over union."""
    wide, high = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    common = max(wide, 0) * max(high, 0)
    return float(common / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - common))


def assert_around(found: NDArray[np.float32], expected: NDArray[np.float64] | None) -> None:
    """A box has an overlap of 0.99 with what was measured, where that has sides of 8 pixels or more."""
    area = float(np.prod(found[2:] - found[:2]))
    if expected is None:
        assert area < 0.1
    elif (expected[2:] - expected[:2]).min() >= 8:
        assert overlap(found, expected) >= 0.99
    else:
        np.testing.assert_allclose(found, expected, atol=0.1)


def result_size(op: T.Op, params: Any, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height behind the op."""
    width, height = op.size(params[None], np.array([size], np.int32))[0].tolist()
    return width, height


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(op=st.one_of(FLIPS, CROPS, SIZES), size=SIZE, index=st.integers(0, 99), data=st.data())
def test_an_upright_box_is_around_its_object(op: T.Op, size: tuple[int, int], index: int, data: st.DataObject) -> None:
    """For flips, crops, resizes and frames of any image: the clipped box is the measured one; so are keypoints."""
    box = data.draw(boxes(size))
    params, scale = params_of(op, size, box, index), 40
    larger, scaled = enlarged(op, params, scale)

    found = op.boxes(box, params, size)[0]
    corners = op.keypoints(box.reshape(2, 2), params, size)

    expected = measured(larger.mask(drawn(size, box, scale), scaled), scale)
    if isinstance(op, T.RandomIoUCrop) and not found.any():  # its centre is outside the window
        left, top, width, height = params[:4]
        x, y = (box[0, :2] + box[0, 2:]) / 2
        assert not (left < x < left + width and top < y < top + height)
        return
    limits = result_size(op, params, size)
    assert_around(np.clip(found, 0, np.tile(limits, 2)).astype(np.float32), expected)
    if expected is not None:
        shown = np.clip(corners, 0, limits)
        np.testing.assert_allclose([*shown.min(axis=0), *shown.max(axis=0)], expected, atol=0.1)


@settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])
@given(op=WARPS, size=SIZE, index=st.integers(0, 99), data=st.data())
def test_a_turned_box_is_around_its_object(op: Warp, size: tuple[int, int], index: int, data: st.DataObject) -> None:
    """For rotations, affine and projective maps: the box around the whole turned object, clipped to the image."""
    box = data.draw(boxes(size))
    params = params_of(op, size, box, index)
    matrix = op.matrix(params, size)
    if matrix is None:
        np.testing.assert_array_equal(op.boxes(box, params, size), box)
        return
    margin = max(size)  # so that the whole object is seen, wherever it goes
    scale = math.ceil(min(400 / float((box[0, 2:] - box[0, :2]).min()), 48))
    to_image = np.array([[1 / scale, 0, -margin], [0, 1 / scale, -margin], [0, 0, 1]])
    full = np.array([*matrix, 0, 0, 1] if len(matrix) == 6 else [*matrix, 1]).reshape(3, 3)
    map_of_large = np.linalg.inv(to_image) @ full @ to_image
    numbers = (map_of_large / map_of_large[2, 2]).ravel()[: len(matrix)]

    found = op.boxes(box, params, size)[0]
    placed = op.place(box, params, size)[0]

    picture = drawn(size, box, scale, margin)
    seen = measured(_native.warp(picture, tuple(numbers.tolist()), "nearest", (0, 0, 0)), scale)
    assert seen is not None
    seen -= margin
    if seen.min() > -margin and (seen < np.tile(size, 2) + margin).all():
        assert_around(placed, seen)
    clipped = np.clip(seen, 0, np.tile(size, 2))
    assert_around(found, clipped if np.prod(clipped[2:] - clipped[:2]) > 0.01 else None)


@given(op=st.one_of(FLIPS, CROPS, SIZES, WARPS), size=SIZE, index=st.integers(0, 99), data=st.data())
def test_no_pixel_of_an_object_is_outside_its_box(
    op: T.Op, size: tuple[int, int], index: int, data: st.DataObject
) -> None:
    """In the picture itself, at its own size: what is bright, and the mask of it, are in the box to within a pixel."""
    box = np.rint(data.draw(boxes(size)))
    params = params_of(op, size, box, index)
    picture = drawn(size, box, 1)

    found = op.boxes(box, params, size)[0]

    if isinstance(op, T.RandomIoUCrop) and not found.any():
        return
    image = op.native(np.repeat(picture[:, :, None], 3, axis=2), params)
    for pixels in (image[:, :, 0], op.mask(picture, params)):
        seen = measured(pixels, 1)
        if seen is not None:
            assert (seen[:2] >= found[:2] - 1.01).all()
            assert (seen[2:] <= found[2:] + 1.01).all()


@given(
    op=st.one_of(FLIPS, CROPS, SIZES, WARPS),
    size=SIZE,
    index=st.integers(0, 99),
    dtype=st.sampled_from([np.uint8, np.int32, np.float32]),
)
def test_masks_are_never_mixed(op: T.Op, size: tuple[int, int], index: int, dtype: Any) -> None:
    """A mask has no value behind an op that it did not have before, but that of the padding; and keeps its dtype."""
    random = np.random.default_rng(index)
    mask = random.choice(np.array([3, 90, 255]), size[::-1]).astype(dtype)
    params = params_of(op, size, np.array([(0, 0, *size)], np.float32), index)

    found = op.mask(mask, params)

    assert found.dtype == dtype
    assert set(np.unique(found).tolist()) <= {0, 3, 90, 255}
    assert found.shape == result_size(op, params, size)[::-1]


# torchvision


def v2_boxes(values: NDArray[np.float32], size: tuple[int, int]) -> Any:
    """Boxes as torchvision's v2 takes them."""
    torch, tv_tensors = pytest.importorskip("torch"), pytest.importorskip("torchvision.tv_tensors")
    return tv_tensors.BoundingBoxes(torch.from_numpy(values), format="XYXY", canvas_size=size[::-1])


@given(op=st.one_of(FLIPS, CROPS, SIZES, WARPS), size=SIZE, index=st.integers(0, 99), data=st.data())
def test_boxes_are_torchvisions(op: T.Op, size: tuple[int, int], index: int, data: st.DataObject) -> None:
    """v2's functional op, with the same numbers, moves boxes alike, clipped to the image."""
    v2 = pytest.importorskip("torchvision.transforms.v2.functional")
    values = np.concatenate([data.draw(boxes(size)) for _ in range(3)])
    params = op.draw(SampleKeys(1, 0, np.array([index])), np.array([size], np.int32), 2)[0]
    given = v2_boxes(values, size)
    limits = result_size(op, params, size)

    found = op.boxes(values, params, size)

    numbers = params.tolist()
    expected: Any
    if isinstance(op, T.HorizontalFlip | T.VerticalFlip):
        flip = v2.horizontal_flip if isinstance(op, T.HorizontalFlip) else v2.vertical_flip
        expected = flip(given) if params else given
    elif isinstance(op, T.RandomResizedCrop):
        expected = v2.resized_crop(given, numbers[1], numbers[0], numbers[3], numbers[2], list(op.size_))
    elif isinstance(op, T.CenterCrop | T.RandomCrop | T.RandomIoUCrop):
        expected = v2.crop(given, numbers[1], numbers[0], numbers[3], numbers[2])
    elif isinstance(op, T.Letterbox):
        left, top, width, height = numbers
        more = [left, top, op.size_[1] - width - left, op.size_[0] - height - top]
        expected = v2.pad(v2.resize(given, [height, width]), more)
    elif isinstance(op, T.Resize):
        expected = v2.resize(given, numbers[::-1])
    elif isinstance(op, T.Pad):
        expected = v2.pad(given, list(op.padding))
    elif isinstance(op, T.RandomZoomOut):
        left, top, width, height = numbers
        expected = v2.pad(given, [left, top, width - size[0] - left, height - size[1] - top])
    elif isinstance(op, T.RandomRotation):
        expected = v2.rotate(given, numbers[0])
    elif isinstance(op, T.RandomAffine):
        angle, x, y, scale, shear_x, shear_y = numbers
        expected = v2.affine(given, angle, [x, y], scale, [shear_x, shear_y])
    else:
        assert isinstance(op, T.RandomPerspective)
        ends = np.array(numbers[1:]).reshape(4, 2).astype(int).tolist()
        right, bottom = size[0] - 1, size[1] - 1
        starts = [[0, 0], [right, 0], [right, bottom], [0, bottom]]
        expected = v2.perspective(given, starts, ends) if numbers[0] else given
    clamped = np.clip(expected.numpy(), 0, np.tile(limits, 2))
    np.testing.assert_allclose(np.clip(found, 0, np.tile(limits, 2)), clamped, atol=2e-3)


@given(
    size=st.tuples(st.integers(1, 500), st.integers(1, 500)),
    short=st.one_of(st.none(), st.integers(1, 90)),
    more=st.one_of(st.none(), st.integers(1, 90)),
)
def test_sizes_are_torchvisions(size: tuple[int, int], short: int | None, more: int | None) -> None:
    """The shorter side, the longer side, and both bounds, rounded as v2 rounds; at least one pixel."""
    geometry = pytest.importorskip("torchvision.transforms.v2.functional._geometry")
    longest = more if short is None or more is None else short + more
    if short is None and longest is None:
        return
    op = T.Resize(short, max_size=longest)

    width, height = op.draw(SampleKeys(0, 0, np.zeros(1, np.int64)), np.array([size], np.int32), 0)[0].tolist()

    wanted = None if short is None else [short]
    expected = geometry._compute_resized_output_size(size[::-1], size=wanted, max_size=longest)
    assert [height, width] == [max(side, 1) for side in expected]


@given(size=st.tuples(st.integers(1, 900), st.integers(1, 900)), most=st.one_of(st.none(), st.integers(60, 99)))
def test_random_shortest_sizes_are_torchvisions(size: tuple[int, int], most: int | None) -> None:
    """The size of v2's op, for each of the sizes; each is drawn."""
    v2, tv_tensors = pytest.importorskip("torchvision.transforms.v2"), pytest.importorskip("torchvision.tv_tensors")
    torch = pytest.importorskip("torch")
    keys = SampleKeys(4, 0, np.arange(64))
    image = tv_tensors.Image(torch.empty((1, size[1], size[0]), dtype=torch.uint8))

    found = T.RandomShortestSize((30, 40, 50), most).draw(keys, np.tile(np.array([size], np.int32), (64, 1)), 1)

    sides = [v2.RandomShortestSize(side, most).make_params([image])["size"] for side in (30, 40, 50)]
    expected = {(max(width, 1), max(height, 1)) for height, width in sides}
    assert {(width, height) for width, height in found.tolist()} == expected


# keypoints


def test_a_flip_exchanges_left_and_right() -> None:
    """Points of a pair change places in each object; others stay; what is not flipped stays as it is."""
    points = np.array([[(1, 1, 2), (8, 2, 1), (5, 5, 0)], [(2, 3, 1), (9, 4, 2), (6, 6, 2)]], np.float32)
    image = np.zeros((10, 10, 3), np.uint8)
    mirrored = np.array([[(2, 2, 1), (9, 1, 2), (5, 5, 0)], [(1, 4, 2), (8, 3, 1), (4, 6, 2)]], np.float32)

    for stored, count in ((points, None), (points.reshape(6, 3), 3), (points[:, :, :2], None)):
        flip = T.Pipeline([T.HorizontalFlip(1, keypoint_pairs=[(0, 1)], num_keypoints=count)])
        found = flip({"image": image, "keypoints": stored})["keypoints"]
        np.testing.assert_array_equal(found, mirrored[..., : stored.shape[-1]].reshape(stored.shape))
    still = T.Pipeline([T.HorizontalFlip(0, keypoint_pairs=[(0, 1)])])({"image": image, "keypoints": points})
    np.testing.assert_array_equal(still["keypoints"], points)


@pytest.mark.parametrize(
    ("points", "count", "words"),
    [
        (np.zeros((6, 3)), None, "num_keypoints=K"),
        (np.zeros((2, 1, 3)), None, "all points"),
        (np.zeros((5, 2)), 3, "all points"),
    ],
)
def test_pairs_of_unknown_points_are_refused(points: Any, count: int | None, words: str) -> None:
    """Which rows are an object's is not guessed."""
    flip = T.Pipeline([T.HorizontalFlip(1, keypoint_pairs=[(0, 1)], num_keypoints=count)])

    with pytest.raises(ArgumentError, match=words):
        flip({"image": np.zeros((4, 4, 3), np.uint8), "keypoints": points})


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2)], [(0,)], [(0, -1)], [0, 1], [("a", "b")]])
def test_pairs_that_are_none_are_refused(pairs: Any) -> None:
    """A point in two pairs, or what is no pair of numbers."""
    with pytest.raises(ValueError, match="keypoint_pairs"):
        T.HorizontalFlip(keypoint_pairs=pairs)


@pytest.mark.parametrize(
    "op", [T.HorizontalFlip(1, []), T.RandomCrop(8), T.RandomResizedCrop(8), T.RandomRotation(30), T.Letterbox(30)]
)
def test_points_of_objects_move_as_points(op: T.Op) -> None:
    """(n, K, 3) is moved as its rows are."""
    points = np.random.default_rng(0).random((4, 5, 3), np.float32) * 10
    image, key = np.zeros((12, 14, 3), np.uint8), SampleKeys(1, 1, np.array([2]))

    found = T.Pipeline([op])({"image": image, "keypoints": points}, keys=key)["keypoints"]

    rows = T.Pipeline([op])({"image": image, "keypoints": points.reshape(20, 3)}, keys=key)["keypoints"]
    np.testing.assert_array_equal(found, rows.reshape(4, 5, 3))
