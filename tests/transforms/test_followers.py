"""Boxes, keypoints and masks follow pixels that a program has filled, as they follow them through the pipeline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.annotations import rle
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.targets.moved_targets import Step, move
from tests.transforms.test_program import GEOMETRY, IMAGES, SIZE, VALUES

KINDS = {
    "image": "image",
    "boxes": "boxes",
    "keypoints": "keypoints",
    "mask": "mask",
    "instances": "instances",
    "label": "label",
}
LAST = st.one_of(
    st.builds(T.CenterCrop, SIZE),
    st.builds(lambda size: T.Resize((size, size)), st.integers(1, 40)),
    st.builds(T.RandomResizedCrop, SIZE),
)
MOVING = st.one_of(
    GEOMETRY,
    st.builds(T.RandomRotation, st.just(30)),
    st.builds(T.Pad, st.integers(0, 4)),
    st.builds(T.Letterbox, st.integers(8, 40)),
)


def targets(i: int, orient: bool) -> dict[str, Any]:
    """Boxes, keypoints, an encoded mask and instances for image ``i``."""
    height, width = T.Decode(orient=orient).image(IMAGES[i], np.empty(0)).shape[:2]
    random = np.random.default_rng(i)
    file = io.BytesIO()
    Image.fromarray(random.integers(0, 9, (height, width), np.uint8)).save(file, "PNG")
    corners = np.sort(random.random((i % 4, 2, 2), np.float32), axis=1) * np.array([width, height], np.float32)
    points = random.random((i % 3, 3), np.float32) * np.array([width, height, 1], np.float32)
    shapes: list[Any] = [rle.encode(random.random((height, width)) < 0.4) for _ in range(i % 11)]
    shapes[1:2] = [None] if len(shapes) > 1 else shapes[1:2]
    return {"boxes": corners.reshape(-1, 4), "keypoints": points, "mask": file.getvalue(), "instances": shapes}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(geometry=st.lists(MOVING, max_size=4), last=LAST, values=VALUES, seed=st.integers(0, 99), orient=st.booleans())
def test_targets_follow_filled_pixels(
    geometry: list[T.Op], last: T.Op, values: list[T.Op], seed: int, *, orient: bool
) -> None:
    """For any ops over any kinds of image, fused or not, each target is what the pipeline makes of the whole sample."""
    pipeline = T.Pipeline([T.Decode(orient=orient), *geometry, last, *values])
    program = pipeline.compile(KINDS, followers=True)
    keys = SampleKeys(seed, 1, np.arange(len(IMAGES)))
    steps: list[list[Step]] = [[] for _ in IMAGES]
    spec = program.spec()
    assert spec is not None
    out: NDArray[Any] = np.zeros((len(IMAGES), *spec.shape), spec.dtype)

    program.fill(IMAGES, out, keys, steps=steps)

    for i, image in enumerate(IMAGES):
        given = targets(i, orient)
        expected = pipeline({"image": image, **given, "label": i}, keys=keys[i : i + 1], kinds=KINDS)
        np.testing.assert_array_equal(out[i], expected["image"], strict=True)
        for kind, value in given.items():
            found = move(kind, value, steps[i])
            if kind == "instances" and not value and not any(step.op.takes_pixels for step in steps[i]):
                found = found.reshape(expected[kind].shape)  # the size of no image is known
            np.testing.assert_array_equal(found, expected[kind], strict=True)


def test_a_mask_of_another_size_is_refused() -> None:
    """The mask is compared with the image that it follows, as in the pipeline."""
    step = Step(T.CenterCrop(2), np.array([0, 0, 2, 2]), (6, 4))

    assert move("mask", np.zeros((4, 6)), [step]).shape == (2, 2)
    with pytest.raises(ArgumentError, match="5 x 4"):
        move("mask", np.zeros((4, 5)), [step])


def test_what_is_decoded_at_less_than_its_size_has_no_followers() -> None:
    """With targets the general path decodes at full size: nothing else may be filled."""
    ops = [T.Decode(scale="auto"), T.Resize((5, 5))]

    assert T.Pipeline(ops).compile({"image": "image"}, followers=True).spec() is not None
    assert T.Pipeline(ops).compile(KINDS, followers=True).spec() is None


class Shrink(T.Op):
    """An op that halves images, and knows nothing of their targets."""

    def image(self, image: Any, params: Any) -> Any:
        """Every second pixel."""
        return image[::2, ::2]


class SaidShrink(Shrink):
    """The same, which says the size of its results."""

    def size(self, params: Any, sizes: Any) -> Any:
        """Half, rounded up."""
        return (sizes + 1) // 2


class Moving(SaidShrink):
    """The same, which moves boxes."""

    def boxes(self, boxes: Any, params: Any, size: Any) -> Any:
        """Half."""
        return boxes / 2


@pytest.mark.parametrize("op", [Shrink(), SaidShrink(), lambda image: image[::2, ::2]], ids=["op", "sized", "callable"])
def test_targets_that_an_op_of_ones_own_leaves_behind_are_warned_of(op: Any) -> None:
    """Where it changes the size of the image; without targets there is nothing to say."""
    pipeline = T.Pipeline([op])
    image, boxes = np.zeros((8, 6, 3), np.uint8), np.array([[1, 1, 4, 5]], np.float32)

    with pytest.warns(UserWarning, match="changes the size of an image, and leaves its boxes where they were"):
        left = pipeline({"image": image, "boxes": boxes})

    np.testing.assert_array_equal(left["boxes"], boxes)
    assert pipeline({"image": image, "label": 3})["image"].shape == (4, 3, 3)  # warnings are errors
    assert T.Pipeline([Moving()])({"image": image, "boxes": boxes})["boxes"].tolist() == [[0.5, 0.5, 2, 2.5]]


def test_filled_targets_that_are_left_behind_are_warned_of(tmp_path: Path) -> None:
    """A dataset says it at once: the op itself says that it changes the size."""
    boxes = np.array([[1, 1, 4, 5]], np.float32)
    ps.pack([{"image": IMAGES[0], "boxes": boxes}], tmp_path / "p.lmdb", schema={"image": "image", "boxes": "boxes"})
    ops = [T.Decode(), T.Resize((8, 8))]

    with pytest.warns(UserWarning, match="SaidShrink changes the size of an image, and leaves its boxes"):
        ps.StoreDataset(tmp_path / "p.lmdb", None, [*ops, SaidShrink()], ragged="list")
    for fields, last in ((None, Moving()), ("image", SaidShrink())):
        ps.StoreDataset(tmp_path / "p.lmdb", fields, [*ops, last], ragged="list" if fields is None else None)
