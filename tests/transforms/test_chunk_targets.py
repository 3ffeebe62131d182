"""Boxes of a chunk that are moved together are those that are moved image by image, to the bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.targets import chunk_targets
from penstock.transforms.targets.chunk_targets import Column, move_columns, moves_together
from penstock.transforms.targets.moved_targets import ChunkSteps, Drawn, Moves, Step, move

KINDS: dict[Any, str | None] = {"boxes": "boxes", "labels": "int64[*]", "flags": "bool[*]", "other": "float32[3]"}

OPS = st.one_of(
    st.builds(T.CenterCrop, st.integers(4, 60)),
    st.builds(T.RandomCrop, st.integers(1, 40), pad_if_needed=st.just(True), min_visible=st.sampled_from([0.0, 0.3])),
    st.builds(T.RandomResizedCrop, st.tuples(st.integers(1, 60), st.integers(1, 60))),
    st.builds(T.HorizontalFlip, st.sampled_from([0.5, 1.0])),
    st.builds(T.VerticalFlip, st.sampled_from([0.5, 1.0])),
    st.builds(T.Resize, st.integers(4, 60)),
    st.builds(T.RandomShortestSize, st.just([4, 9, 33]), st.sampled_from([None, 40])),
    st.builds(T.ScaleJitter, st.tuples(st.integers(8, 60), st.integers(8, 60))),
    st.builds(T.Letterbox, st.tuples(st.integers(4, 60), st.integers(4, 60))),
    st.builds(T.RandomZoomOut, p=st.just(0.7)),
    st.builds(T.Pad, st.sampled_from([3, (1, 2), (0, 1, 2, 5)])),
    st.builds(T.ClampBoundingBoxes),
    st.builds(T.SanitizeBoundingBoxes, st.sampled_from([1, 3]), st.sampled_from([1, 8]),
              min_visible=st.sampled_from([0.0, 0.4])),
    st.builds(T.ColorJitter, st.just(0.4)),
)  # fmt: skip


def make_boxes(rng: np.random.Generator, size: NDArray[np.int32], count: int) -> NDArray[np.float32]:
    """Boxes in and around an image; some of whole pixels, some empty."""
    corners = rng.uniform(-0.3, 1.3, (count, 2, 2)) * size
    corners = np.sort(corners, axis=1).reshape(-1, 4)
    corners[: count // 3] = corners[: count // 3].round()
    return corners.astype(np.float32)


def draw_all(ops: list[Any], keys: SampleKeys, sizes: NDArray[np.int32]) -> list[Drawn]:
    """What each op draws for a chunk, and the sizes before it."""
    drawn: list[Drawn] = []
    for stream, op in enumerate(ops):
        params = op.draw(keys, sizes, stream)
        drawn.append((op, params, sizes))
        sizes = np.asarray(op.size(params, sizes), np.int32)
    return drawn


def steps_of(drawn: list[Drawn], i: int) -> list[Step]:
    """The same for one image."""
    return [Step(op, params[i], (int(sizes[i, 0]), int(sizes[i, 1]))) for op, params, sizes in drawn]


def assert_as_one_by_one(ops: list[Any], samples: list[dict[str, Any]], sizes: NDArray[np.int32], seed: int) -> None:
    """A chunk that is moved together is what each of its images is by itself."""
    drawn = draw_all(ops, SampleKeys(seed, 1, np.arange(len(samples))), sizes)
    objects = "boxes" if any(op.removes_objects for op in ops) else None
    lengths = np.array([len(sample["boxes"]) for sample in samples])
    columns: dict[Any, Column] = {
        name: Column(np.concatenate([sample[name] for sample in samples]), lengths) for name in samples[0]
    }

    found = move_columns(columns, KINDS, ["boxes"], objects, drawn)

    assert moves_together(drawn)
    assert found is not None
    ends = {name: np.cumsum([0, *column.lengths]) for name, column in found.items()}
    for i, sample in enumerate(samples):
        steps = steps_of(drawn, i)
        moves = Moves(steps, sample["boxes"] if objects else None)
        for name, value in sample.items():
            one = found[name].values[ends[name][i] : ends[name][i + 1]]
            expected = moves.move(name, KINDS[name], value)
            assert (one.dtype, one.shape) == (expected.dtype, expected.shape)
            assert one.tobytes() == np.ascontiguousarray(expected).tobytes()


@given(
    ops=st.lists(OPS, max_size=5), counts=st.lists(st.integers(0, 6), min_size=1, max_size=6), seed=st.integers(0, 99)
)
def test_together_is_one_by_one(ops: list[Any], counts: list[int], seed: int) -> None:
    """For all known ops, in any order: boxes, and the rows of objects that are left."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 64, (len(counts), 2)).astype(np.int32)
    samples = [
        {"boxes": make_boxes(rng, size, count), "labels": rng.integers(0, 9, count), "flags": rng.random(count) < 0.5}
        for size, count in zip(sizes, counts, strict=True)
    ]
    assert_as_one_by_one(ops, samples, sizes, seed)


@pytest.mark.parametrize(
    "ops",
    [
        [T.CenterCrop(8), T.SanitizeBoundingBoxes(1, 4, min_visible=0.5)],
        [T.RandomCrop(8, min_visible=0.5)],
        [T.RandomCrop(10), T.HorizontalFlip(), T.CenterCrop(6), T.SanitizeBoundingBoxes(2, min_visible=0.25)],
        [T.RandomResizedCrop((12, 6)), T.SanitizeBoundingBoxes(min_visible=0.5)],
        [T.RandomZoomOut(p=1), T.CenterCrop(8), T.ClampBoundingBoxes(), T.SanitizeBoundingBoxes(min_visible=0.5)],
        [T.ClampBoundingBoxes(), T.SanitizeBoundingBoxes(min_visible=0.5), T.SanitizeBoundingBoxes(3)],
        [T.Letterbox(9), T.VerticalFlip(), T.SanitizeBoundingBoxes(2, 2)],
    ],
    ids=lambda ops: "-".join(type(op).__name__ for op in ops),
)
def test_limits_are_met_alike(ops: list[Any]) -> None:
    """Boxes of whole pixels, many of which have just the area, the side or the visible share that is asked for."""
    rng = np.random.default_rng(3)
    sizes = np.array([[12, 16], [14, 12], [16, 16], [13, 15]], np.int32)
    for seed in range(8):
        samples: list[dict[str, Any]] = []
        for size in sizes:
            corners = np.sort(rng.integers(-2, size + 3, (2, 60, 2)), axis=0)
            boxes = np.concatenate([*corners], axis=1).astype(np.float32)
            samples.append({"boxes": boxes, "labels": np.arange(60)})
        assert_as_one_by_one(ops, samples, sizes, seed)


def test_a_subclass_is_moved_by_its_own_method() -> None:
    """An op that may move boxes in another way than its base class is not known."""

    class Shifted(T.HorizontalFlip):
        def boxes(self, boxes: Any, params: Any, size: Any) -> Any:
            return super().boxes(boxes, params, size) + 1

    sizes, params = np.array([[8, 8]]), np.array([True])

    assert moves_together([(T.HorizontalFlip(), params, sizes)])
    assert not moves_together([(Shifted(), params, sizes)])
    assert not moves_together([(T.RandomIoUCrop(), params, sizes)])
    assert not moves_together([(T.RandomRotation(5), params, sizes)])


def test_other_lengths_and_shapes_are_left_to_the_general_path() -> None:
    """It knows the error, or that there is none."""
    one, sizes = np.array([1]), np.array([[8, 8]])
    drawn = [(T.SanitizeBoundingBoxes(), np.empty((1, 0)), sizes)]
    boxes = Column(np.array([[0, 0, 4, 4]], np.float32), one)

    assert move_columns({"boxes": boxes, "labels": Column(one, one)}, KINDS, ["boxes"], "boxes", drawn) is not None
    assert move_columns({"boxes": boxes, "labels": Column(one[:0], one * 0)}, KINDS, ["boxes"], "boxes", drawn) is None
    flat = Column(np.zeros(4, np.float32), one * 4)
    assert move_columns({"boxes": flat}, KINDS, ["boxes"], None, drawn) is None


def test_every_known_op_is_tested() -> None:
    """The table has no op that the first test does not draw."""
    tested = set(re.findall(r"\w+", repr(OPS)))

    assert {op.__name__ for op in chunk_targets._BY_ROWS} <= tested


def test_steps_are_those_of_a_plan_until_an_image_leaves_it() -> None:
    """Ops that move nothing may follow; one that moves boxes, or a list that is taken apart, ends it."""
    drawn = [(T.HorizontalFlip(), np.array([True, False]), np.array([[8, 6], [4, 4]]))]
    colours = Step(T.ColorJitter(0.4), np.empty(0), (8, 6))
    steps = ChunkSteps(2)
    assert steps.shared() is None
    steps.note(T.Decode(), drawn)
    assert steps.shared() == drawn

    steps[0].append(colours)
    assert [type(step.op).__name__ for step in steps[0]] == ["Decode", "HorizontalFlip", "ColorJitter"]
    assert steps[1][1].size == (4, 4)
    assert steps.shared() == drawn
    steps[1].append(Step(T.RandomRotation(9), np.array(3.0), (4, 4)))
    assert steps.shared() is None

    other = ChunkSteps(2)
    other.note(T.Decode(), drawn)
    (own,) = other[1:2]
    own.clear()
    assert other.shared() is None
    assert len(other[0]) == 2
    assert move("boxes", [[0, 0, 2, 2]], other[0]).tolist() == [[6, 0, 8, 2]]
