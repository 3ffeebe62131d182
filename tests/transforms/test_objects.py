"""Objects are removed with all their values, and how much of a box is visible is known to the end."""

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
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.transforms.targets.moved_targets import Moves, Step
from penstock.transforms.targets.objects import Objects
from tests.transforms.test_program import IMAGES

KEY = SampleKeys(5, 1, np.array([3]))
BOXES = np.array([(2, 2, 12, 10), (0, 0, 0, 8), (5, 5, 5.5, 9), (15, 3, 20, 15)], np.float32)
SANITIZE = T.Pipeline([T.SanitizeBoundingBoxes()])


def sample(**more: Any) -> dict[str, Any]:
    """A picture of 20 x 16 pixels with four boxes, of which two are too small."""
    return {"image": np.zeros((16, 20, 3), np.uint8), "boxes": BOXES, **more}


def test_values_of_objects_go_with_their_boxes() -> None:
    """Arrays of any dtype and shape, lists and keypoints lose the rows of the boxes that are removed; others stay."""
    areas = np.array([80, 0, 2, 60], np.float64)

    found = SANITIZE(
        sample(
            labels=np.array([7, 8, 9, 10]),
            area=areas,
            pose=["left", "right", "front", "back"],
            keypoints=np.arange(24, dtype=np.float32).reshape(4, 3, 2),
            label=3,
            caption="four",
            score=None,
        )
    )

    np.testing.assert_array_equal(found["boxes"], BOXES[[0, 3]])
    assert found["labels"].tolist() == [7, 10]
    np.testing.assert_array_equal(found["area"], areas[[0, 3]])
    assert found["pose"] == ["left", "back"]
    np.testing.assert_array_equal(found["keypoints"], np.arange(24).reshape(4, 3, 2)[[0, 3]])
    assert (found["label"], found["caption"], found["score"]) == (3, "four", None)


def test_flat_keypoints_are_those_of_equal_objects() -> None:
    """(n * K, 3): K rows for each box."""
    points = np.arange(24, dtype=np.float32).reshape(8, 3)

    found = SANITIZE(sample(keypoints=points))["keypoints"]

    np.testing.assert_array_equal(found, points[[0, 1, 6, 7]])


@pytest.mark.parametrize("value", [np.zeros(3), [1, 2, 3], np.zeros((0, 2)), np.zeros((5, 4))], ids=repr)
def test_a_field_of_another_length_is_refused(value: Any) -> None:
    """Whether it belongs to the objects is not guessed: the error names the field and the argument."""
    with pytest.raises(ArgumentError, match=rf"4 boxes in the field 'size', got {len(value)}.*labels="):
        SANITIZE(sample(size=value))


def test_labels_say_which_fields() -> None:
    """The named ones lose rows, others of any length stay; a name that is not there is refused."""
    chosen = T.Pipeline([T.SanitizeBoundingBoxes(labels=("labels",))])

    found = chosen(sample(labels=[1, 2, 3, 4], size=np.zeros(4)))

    assert found["labels"] == [1, 4]
    assert found["size"].shape == (4,)
    with pytest.raises(ArgumentError, match=r"\(image, boxes, size\), got 'labels'"):
        chosen(sample(size=np.zeros(4)))
    assert len(T.Pipeline([T.SanitizeBoundingBoxes(labels=())])(sample(labels=[1, 2, 3, 4]))["labels"]) == 4


@pytest.mark.parametrize("nest", ["tuple", "target", "deep"])
def test_the_fields_are_those_beside_the_boxes(nest: str) -> None:
    """In a tuple by position; in a mapping inside; arrays outside of it stay."""
    image, labels = np.zeros((16, 20, 3), np.uint8), np.arange(4)
    kinds: Any
    given: Any
    if nest == "tuple":
        given, kinds = (image, BOXES, labels), ("image", "boxes", None)
    elif nest == "target":
        given, kinds = (image, {"boxes": BOXES, "labels": labels}), ("image", {"boxes": "boxes"})
    else:
        given = {"image": image, "objects": {"bbox": BOXES, "labels": labels}, "size": np.zeros(2)}
        kinds = {"image": "image", "objects": {"bbox": "boxes"}}

    found = SANITIZE(given, kinds=kinds)

    inner = found if nest == "tuple" else found[1] if nest == "target" else found["objects"]
    boxes, left = (inner[1], inner[2]) if nest == "tuple" else (inner["bbox" if nest == "deep" else "boxes"], None)
    assert len(boxes) == 2
    np.testing.assert_array_equal(inner["labels"] if left is None else left, [0, 3])


def test_fields_with_kinds_that_fix_their_length_are_not_of_objects() -> None:
    """An embedding of four numbers beside four boxes stays whole, because its kind says float32[4]."""
    kinds = {"image": "image", "boxes": "boxes", "embedding": "float32[4]", "labels": "int64[*]"}

    found = SANITIZE(sample(embedding=np.ones(4, np.float32), labels=np.arange(4)), kinds=kinds)

    assert found["embedding"].shape == (4,)
    assert found["labels"].tolist() == [0, 3]


@pytest.mark.parametrize("op", [T.SanitizeBoundingBoxes(), T.RandomIoUCrop()], ids=repr)
def test_a_sample_needs_one_field_of_boxes(op: T.Op) -> None:
    """None, two, or one box without rows are refused."""
    image = np.zeros((16, 20, 3), np.uint8)

    with pytest.raises(ArgumentError, match=r"one field of boxes in a sample, got 0.*kinds="):
        T.Pipeline([op])({"image": image})
    with pytest.raises(ArgumentError, match=r"got 2"):
        T.Pipeline([op])((image, BOXES, BOXES), kinds=("image", "boxes", "boxes"))
    with pytest.raises(ArgumentError, match=r"\(n, 4\)"):
        T.Pipeline([op])({"image": image, "boxes": BOXES[0]})


def test_an_image_without_boxes_keeps_empty_fields() -> None:
    """No rows stay no rows, in their dtypes."""
    found = SANITIZE(sample(boxes=[], labels=np.zeros(0, np.int64), keypoints=np.zeros((0, 3), np.float32)))

    assert found["boxes"].shape == (0, 4)
    assert found["labels"].shape == (0,)
    assert found["keypoints"].shape == (0, 3)


def test_results_are_collatable_though_the_last_op_removes() -> None:
    """A flipped image before it comes out row by row."""
    found = T.Pipeline([T.HorizontalFlip(p=1), T.SanitizeBoundingBoxes()])(sample())

    assert found["image"].flags.c_contiguous
    assert found["boxes"].flags.writeable


# what is visible


def visible(boxes: Any, *steps: Step) -> Any:
    """The visible shares behind ops."""
    objects = Objects.start(boxes)
    for step in steps:
        objects.apply(step.op, step.params, step.size)
    return objects.visible


def test_a_crop_leaves_its_share_of_the_area() -> None:
    """Half a box is 0.5, a quarter of it 0.25, also through a resize; one outside or without area is 0."""
    boxes = np.array([(0, 0, 10, 10), (5, 0, 15, 10), (5, 5, 15, 15), (20, 20, 30, 30), (3, 3, 3, 9)], np.float32)
    step = Step(T.RandomCrop(10), np.array([0, 0, 10, 10]), (40, 40))
    resized = Step(T.RandomResizedCrop((50, 20)), np.array([0, 0, 10, 10]), (40, 40))

    np.testing.assert_allclose(visible(boxes, step), [1, 0.5, 0.25, 0, 0])
    np.testing.assert_allclose(visible(boxes, resized), [1, 0.5, 0.25, 0, 0], atol=1e-6)


def test_shares_multiply() -> None:
    """Half of a half is a quarter; ops that cut nothing between them change nothing."""
    boxes = np.array([(0, 0, 20, 20)], np.float32)
    half = Step(T.RandomCrop((20, 10)), np.array([0, 0, 10, 20]), (20, 20))
    mirrored = Step(T.HorizontalFlip(1), np.array(True), (10, 20))
    rest = Step(T.RandomCrop((10, 10)), np.array([0, 10, 10, 10]), (10, 20))

    np.testing.assert_allclose(visible(boxes, half, mirrored, rest), [0.25])


@pytest.mark.parametrize(("least", "count"), [(0.0, 3), (0.2, 3), (0.3, 2), (0.6, 1), (1.0, 1)])
def test_min_visible_removes_what_is_hidden(least: float, count: int) -> None:
    """The share is kept over the ops between the crop and the removal, such as a resize."""
    boxes = np.array([(0, 0, 8, 8), (4, 0, 12, 8), (4, 4, 12, 12)], np.float32)
    ops = [
        T.CenterCrop((8, 8)),
        T.Resize((40, 40)),
        T.RandomRotation((0, 0)),
        T.SanitizeBoundingBoxes(min_visible=least),
    ]
    image = np.zeros((8, 8, 3), np.uint8)

    found = T.Pipeline(ops)({"image": image, "boxes": boxes, "labels": np.arange(3)})

    assert found["labels"].tolist() == list(range(count))


def test_a_box_that_a_rotation_turns_out_of_the_image_is_hidden() -> None:
    """The area of the clipped box around the rotated corners / the area before clipping."""
    boxes = np.array([(0, 45, 10, 55), (45, 45, 55, 55)], np.float32)
    step = Step(T.RandomRotation((45, 45)), np.array([45.0]), (100, 100))

    found = visible(boxes, step)

    turned_boxes = step.op.place(boxes, step.params, step.size)
    assert found[1] == 1
    width, height = np.minimum(turned_boxes[0, 2:], 100) - np.maximum(turned_boxes[0, :2], 0)
    np.testing.assert_allclose(found[0], width * height / np.prod(turned_boxes[0, 2:] - turned_boxes[0, :2]), rtol=1e-6)


def test_a_box_without_area_stays_without() -> None:
    """The edge of a box that a crop left outside does not become a box again when it is rotated."""
    ops = [T.RandomCrop(10), T.RandomRotation((30, 30)), T.RandomPerspective(p=1)]
    boxes = np.array([(-9, 0, -1, 10), (10, 0, 20, 10), (0, 4, 0, 9)], np.float32)

    found = T.Pipeline(ops)({"image": np.zeros((10, 10, 3), np.uint8), "boxes": boxes}, keys=KEY)["boxes"]

    assert ((found[:, 2] - found[:, 0]) * (found[:, 3] - found[:, 1]) == 0).all()


def test_min_visible_of_a_crop_marks_boxes() -> None:
    """A box that the window shows too little of becomes zeros, and SanitizeBoundingBoxes removes it."""
    boxes = np.array([(5, 0, 15, 10), (8, 0, 18, 10)], np.float32)
    params, size = np.array([0, 0, 10, 10]), (40, 40)

    assert T.RandomCrop(10, min_visible=0.5).boxes(boxes, params, size).tolist() == [[5, 0, 10, 10], [0, 0, 0, 0]]
    assert T.RandomCrop(10, min_visible=0.6).boxes(boxes, params, size).tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert T.RandomCrop(10).boxes(boxes, params, size).tolist() == [[5, 0, 10, 10], [8, 0, 10, 10]]


@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 9999), small=st.floats(1, 9), area=st.floats(1, 50))
def test_what_stays_is_torchvisions(seed: int, small: float, area: float) -> None:
    """Clamp and sanitize keep the boxes and labels that torchvision's v2 keeps, for any boxes."""
    tv_tensors, v2 = pytest.importorskip("torchvision.tv_tensors"), pytest.importorskip("torchvision.transforms.v2")
    torch = pytest.importorskip("torch")
    boxes = np.random.default_rng(seed).integers(-8, 40, (12, 4)).astype(np.float32) / 2
    labels = np.arange(12)
    for clamps in (True, False):
        ops: list[T.Op] = [T.ClampBoundingBoxes()] if clamps else []
        theirs = [v2.ClampBoundingBoxes()] if clamps else []

        found = T.Pipeline([*ops, T.SanitizeBoundingBoxes(small, area)])(sample(boxes=boxes, labels=labels))

        given = {
            "boxes": tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(16, 20)),
            "labels": torch.from_numpy(labels),
        }
        expected = v2.Compose([*theirs, v2.SanitizeBoundingBoxes(small, area)])(given)
        np.testing.assert_array_equal(found["boxes"], expected["boxes"].numpy())
        np.testing.assert_array_equal(found["labels"], expected["labels"].numpy())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_size": 0.5}, "min_size"),
        ({"min_area": 0}, "min_area"),
        ({"min_visible": 1.5}, "min_visible"),
        ({"min_visible": float("nan")}, "min_visible"),
        ({"labels": [1.5]}, "labels"),
    ],
)
def test_settings_out_of_range_are_refused(arguments: dict[str, Any], words: str) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=words):
        T.SanitizeBoundingBoxes(**arguments)


# rows of a batch


def png(pixels: NDArray[Any]) -> bytes:
    """The pixels as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


KINDS = {"image": "image", "boxes": "boxes", "keypoints": "keypoints", "labels": "int64[*]", "label": "label"}
DETECTION = st.one_of(
    st.builds(T.RandomIoUCrop, st.sampled_from([0.2, 0.6])),
    st.builds(T.RandomCrop, st.integers(8, 40), st.just(2), st.just(True), min_visible=st.sampled_from([0.0, 0.5])),
    st.builds(T.RandomZoomOut, st.just(9), st.just((1.0, 2.0))),
    st.builds(T.HorizontalFlip, st.just(0.5), st.just(((0, 1),)), st.just(2)),
    st.builds(T.VerticalFlip),
    st.builds(T.RandomShortestSize, st.just((20, 31)), st.just(50)),
    st.builds(T.RandomRotation, st.just(30)),
    st.just(T.ClampBoundingBoxes()),
    st.builds(T.SanitizeBoundingBoxes, st.just(2), st.just(9), min_visible=st.sampled_from([0.0, 0.4])),
)


def targets(i: int, orient: bool) -> dict[str, Any]:
    """Up to four boxes with labels and two points each for image ``i``."""
    height, width = T.Decode(orient=orient).image(IMAGES[i], np.empty(0)).shape[:2]
    random, count = np.random.default_rng(i), i % 5
    corners = np.sort(random.random((count, 2, 2), np.float32), axis=1) * np.array([width, height], np.float32)
    points = random.random((count, 2, 3), np.float32) * np.array([width, height, 1], np.float32)
    return {"boxes": corners.reshape(-1, 4), "keypoints": points, "labels": np.arange(count) + 10 * i}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ops=st.lists(DETECTION, max_size=5), seed=st.integers(0, 99), orient=st.booleans())
def test_filled_rows_and_their_objects_are_the_pipelines(ops: list[T.Op], seed: int, *, orient: bool) -> None:
    """For ops that read boxes and remove objects, in any order, a program gives what the pipeline makes of samples."""
    pipeline = T.Pipeline([T.Decode(orient=orient), *ops, T.Letterbox(24), T.ToLayout("CHW", "uint8")])
    program = pipeline.compile(KINDS, followers=True)
    keys = SampleKeys(seed, 1, np.arange(len(IMAGES)))
    steps: list[list[Step]] = [[] for _ in IMAGES]
    given = [targets(i, orient) for i in range(len(IMAGES))]
    spec = program.spec()
    assert spec is not None
    out: NDArray[Any] = np.zeros((len(IMAGES), *spec.shape), spec.dtype)

    program.fill(IMAGES, out, keys, steps=steps, boxes=[own["boxes"] for own in given])

    for i, image in enumerate(IMAGES):
        expected = pipeline({"image": image, **given[i], "label": i}, keys=keys[i : i + 1], kinds=KINDS)
        np.testing.assert_array_equal(out[i], expected["image"], strict=True)
        moves = Moves(steps[i], given[i]["boxes"])
        for name in ("boxes", "keypoints", "labels"):
            found = moves.move(name, KINDS[name], given[i][name])
            np.testing.assert_array_equal(found, expected[name], strict=True)


def test_a_program_that_reads_boxes_needs_them() -> None:
    """Without boxes, or without steps, it refuses; without followers or a field of boxes it fills nothing."""
    pipeline = T.Pipeline([T.Decode(), T.RandomIoUCrop(), T.Resize((8, 8))])
    program = pipeline.compile(KINDS, followers=True)
    out = np.zeros((1, 8, 8, 3), np.uint8)

    with pytest.raises(ArgumentError, match="boxes of each image"):
        program.fill(IMAGES[:1], out, KEY)
    assert pipeline.compile(KINDS).spec() is None
    assert pipeline.compile("image").spec() is None


WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"num_workers": 2, "workers": "threads", "chunk_size": 3},
    "processes": {"num_workers": 2, "workers": "processes"},
}
RECIPES: dict[str, list[T.Op]] = {
    "iou crop": [T.RandomIoUCrop(), T.HorizontalFlip(), T.Resize((40, 40)), T.SanitizeBoundingBoxes(2)],
    "zoom": [T.RandomZoomOut(114), T.RandomIoUCrop(), T.Resize((40, 40)), T.SanitizeBoundingBoxes(min_visible=0.3)],
    "behind": [T.Resize((40, 50)), T.ToLayout("CHW", "float32"), T.ClampBoundingBoxes(), T.SanitizeBoundingBoxes(2)],
    "crop": [T.RandomCrop(30, 0, True, min_visible=0.3), T.SanitizeBoundingBoxes(), T.ToLayout("CHW", "float32")],
}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of pictures with boxes, labels and an array that belongs to the picture."""
    fields = {"image": "image", "boxes": "boxes", "labels": "int64[*]", "area": "float32[*]", "size": "float32[2]"}
    path = tmp_path_factory.mktemp("packs") / "objects.lmdb"
    writer = LmdbWriter(str(path), ps.Schema({name: ps.Field(kind) for name, kind in fields.items()}), "source")
    for i in range(len(IMAGES)):
        given = targets(i, False)
        given["area"] = np.arange(len(given["labels"]), dtype=np.float32)
        del given["keypoints"]
        writer.append(writer.prepare(f"{i}", {**given, "image": IMAGES[i], "size": np.array([i, 2], np.float32)}))
    writer.finish()
    return path


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_fills_what_samples_hold(pack: Path, recipe: str, workers: str) -> None:
    """Batches of the fast path, by any workers, are those that are collated from samples, to the byte."""
    ragged = {"boxes": "list", "labels": "flat", "area": "padded"}
    dataset = ps.StoreDataset(pack, transform=T.Pipeline([T.Decode(), *RECIPES[recipe]]), ragged=ragged)
    assert dataset.spec() is not None

    batches = list(ps.DataLoader(dataset, batch_size=5, seed=4, **WORKERS[workers]))

    samples = list(ps.DataLoader(dataset, batch_size=1, seed=4, collate_fn=lambda held: held[0]))
    assert len(samples) == len(IMAGES)
    for position, expected in enumerate(samples):
        batch, row = batches[position // 5], position % 5
        np.testing.assert_array_equal(batch["image"][row], expected["image"], strict=True)
        np.testing.assert_array_equal(batch["boxes"][row], expected["boxes"], strict=True)
        np.testing.assert_array_equal(batch["labels"][row], expected["labels"], strict=True)
        np.testing.assert_array_equal(batch["area"].values[row, : batch["area"].counts[row]], expected["area"])
        np.testing.assert_array_equal(batch["size"][row], expected["size"])
        assert len(expected["boxes"]) == len(expected["labels"]) == len(expected["area"])


def test_a_field_of_objects_that_is_not_ragged_is_not_filled(pack: Path) -> None:
    """Its length changes: the reason is said, and samples are built one by one."""
    pipeline = T.Pipeline([T.Decode(), *RECIPES["crop"]])
    dataset = ps.StoreDataset(pack, ("image", "boxes", "labels"), pipeline, ragged={"boxes": "list"})
    named = T.SanitizeBoundingBoxes(labels=(3,))
    fixed = ps.StoreDataset(
        pack, ("image", "boxes", "labels", "size"), [T.Decode(), T.CenterCrop(9), named], ragged="list"
    )

    assert dataset.spec() is None
    assert fixed.spec() is None
    assert "SanitizeBoundingBoxes" in str(fixed.why_not_filled())
