"""Masks of objects: packed by eights, moved as each alone would be, and lying on their objects after any op."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from penstock import transforms as T
from penstock.annotations import rle
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.targets.object_masks import ObjectMasks
from tests.transforms.test_moved_boxes import CROPS, FLIPS, SIZES, WARPS

Masks = NDArray[np.uint8]
COUNTS = st.sampled_from([0, 1, 2, 7, 8, 9, 17])
MARGIN = 200
"""Pixels around an image in which corners may lie after an op."""


def draw_masks(count: int, size: tuple[int, int], seed: int) -> Masks:
    """Masks that overlap, one of them empty and one full where there are so many."""
    random = np.random.default_rng(seed)
    masks = (random.random((count, size[1], size[0])) < 0.3).astype(np.uint8)
    masks[3:4] = 0
    masks[4:5] = 1
    return masks


def encode(masks: Masks) -> list[dict[str, Any] | None]:
    """As annotations have them; an empty mask is None."""
    return [rle.encode(mask) if mask.any() else None for mask in masks]


@given(count=COUNTS, width=st.integers(1, 30), height=st.integers(1, 30), seed=st.integers(0, 99))
def test_masks_are_kept_in_every_form(count: int, width: int, height: int, seed: int) -> None:
    """Run lengths, arrays and booleans give the masks back, all of them or some, alone or joined."""
    size = width, height
    masks = draw_masks(count, size, seed)
    kept = np.random.default_rng(seed).random(count) < 0.5
    hole = np.random.default_rng(seed + 1).random((height, width)) < 0.3

    for given_masks in (encode(masks), masks, masks.astype(np.bool_), masks * 9.5, ObjectMasks.of(masks, size)):
        held = ObjectMasks.of(given_masks, size)
        assert (len(held), held.size) == (count, size)
        np.testing.assert_array_equal(held.dense(), masks, strict=True)
        np.testing.assert_array_equal(held[kept].dense(), masks[kept], strict=True)
        np.testing.assert_array_equal(held.union(), masks.any(axis=0))
        np.testing.assert_array_equal(held[kept].union(), masks[kept].any(axis=0))
        np.testing.assert_array_equal(held.has_pixels(), masks.any(axis=(1, 2)))
        np.testing.assert_array_equal(held.cut(hole).dense(), masks * ~hole)
        joined = ObjectMasks.join([held[kept], held, held[~kept]])
        np.testing.assert_array_equal(joined.dense(), np.concatenate([masks[kept], masks, masks[~kept]]))


def test_masks_of_one_object_have_no_bit_of_another() -> None:
    """Objects that are left out do not come back with the plane that they share."""
    masks = draw_masks(8, (6, 5), 1)
    alone = ObjectMasks.of(masks, (6, 5))[np.arange(8) == 2]

    np.testing.assert_array_equal(alone.union(), masks[2] != 0)
    np.testing.assert_array_equal(alone.has_pixels(), [masks[2].any()])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([rle.encode(np.ones((5, 4)))], r"must have the size of its image, \[4, 5\]"),
        ([{"size": [4, 5], "counts": "?"}], "the counts of an instance must"),
        ([{"size": [4, 5], "counts": [1]}], "the counts of an instance must cover the 20 pixels"),
        ([{"counts": "x"}], "must have the size of its image"),
        ([{"size": "x", "counts": "x"}], "must have the size of its image"),
        (np.ones((2, 5, 4)), "got 4 x 5"),
        (np.ones((4, 5)), r"got ndarray of float64 and shape \(4, 5\)"),
        ("mask", "got str"),
        ([1, 2], "must be a list of run-length encodings"),
        ([np.ones((4, 5)), np.ones((5, 4))], "must be a list of run-length encodings"),
    ],
)
def test_what_is_no_mask_is_refused(value: object, reason: str) -> None:
    """The error says what was given, and the forms that are allowed."""
    with pytest.raises(ArgumentError, match=reason):
        ObjectMasks.of(value, (5, 4))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    ops=st.lists(st.one_of(FLIPS, CROPS, SIZES, WARPS), min_size=1, max_size=4),
    count=COUNTS,
    seed=st.integers(0, 99),
    mask_fill=st.sampled_from([0, 1, 255]),
)
def test_instances_are_moved_as_masks_of_their_own(ops: list[T.Op], count: int, seed: int, mask_fill: int) -> None:
    """Any ops: each object has the pixels of its mask moved alone, and none of those that are filled."""
    for op in ops:
        if hasattr(op, "mask_fill"):
            op.mask_fill = mask_fill
    size = (23, 31)
    masks = draw_masks(count, size, seed)
    image = np.zeros((*size[::-1], 3), np.uint8)
    boxes = np.array([[2, 3, 15, 20]] * max(count, 1), np.float32)[: count or 1]
    keys = SampleKeys(seed, 0, np.array([seed]))
    sample = {"image": image, "boxes": boxes, "instances": encode(masks)}

    moved = T.Pipeline(ops)(sample, keys=keys)

    bare = copy.deepcopy(ops)
    for op in bare:
        if hasattr(op, "mask_fill"):
            op.mask_fill = 0
    alone = [T.Pipeline(bare)({"image": image, "boxes": boxes, "mask": mask}, keys=keys)["mask"] for mask in masks]
    shape = (0, *moved["image"].shape[:2])
    np.testing.assert_array_equal(moved["instances"], alone or np.zeros(shape))
    assert moved["instances"].dtype == np.uint8
    assert moved["instances"].flags.c_contiguous


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    op=st.one_of(FLIPS, CROPS, SIZES, WARPS),
    corners=st.lists(st.tuples(st.integers(20, 140), st.integers(20, 100)), min_size=3, max_size=3, unique=True),
    seed=st.integers(0, 99),
)
def test_instances_lie_on_their_objects(op: T.Op, corners: list[tuple[int, int]], seed: int) -> None:
    """A drawn triangle, and its corners moved as keypoints: drawn again there, it is where the moved mask is."""
    canvas = Image.new("L", (160, 120))
    ImageDraw.Draw(canvas).polygon(corners, fill=1)
    mask = np.asarray(canvas)
    points = np.array(corners, np.float32) + 0.5  # the middles of pixels
    box = np.array([[*points.min(axis=0), *points.max(axis=0)]], np.float32)
    image = np.repeat(mask[:, :, None] * np.uint8(255), 3, axis=2)
    sample = {"image": image, "boxes": box, "keypoints": points, "instances": [rle.encode(mask)]}

    moved = T.Pipeline([op])(sample, keys=SampleKeys(seed, 0, np.array([seed])))

    height, width = moved["image"].shape[:2]
    large = Image.new("L", (width + 2 * MARGIN, height + 2 * MARGIN))
    ImageDraw.Draw(large).polygon([(float(x), float(y)) for x, y in moved["keypoints"] - 0.5 + MARGIN], fill=1)
    drawn = np.asarray(large) != 0
    inner = slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN)
    found = moved["instances"][0] != 0
    assert not (~grow(~drawn)[inner] & ~found).any()
    assert not (found & ~grow(drawn)[inner]).any()


def grow(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask with all pixels that are at most three away from it, in rows, columns and diagonals."""
    for _ in range(3):
        padded = np.pad(mask, 1)
        rows = padded[:-2] | padded[1:-1] | padded[2:]
        mask = rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]
    return mask
