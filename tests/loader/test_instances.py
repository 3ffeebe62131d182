"""Masks of objects in batches: those of the samples, on the objects of their boxes, in the form that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.annotations import rle
from penstock.errors import ArgumentError
from penstock.sample import Array
from tests.loader.annotated_shapes import COUNT, fields, pack_shapes

FIELDS: Final = {name: name for name in ("image", "boxes", "labels", "keypoints", "instances", "score", "index")}
ONE_SIZE: Final[list[Any]] = [
    T.Decode(),
    T.RandomAffine(20, (0.1, 0.1), (0.7, 1.3), 10, mask_fill=9),
    T.HorizontalFlip(0.5, []),
    T.Resize((32, 40)),
    T.SanitizeBoundingBoxes(min_size=2),
    T.ToLayout("CHW", "float32"),
]
SIZES: Final[list[Any]] = [T.Decode(), T.RandomZoomOut(side_range=(1, 2)), T.SanitizeBoundingBoxes(min_size=2)]
NAMES: Final = ("torchvision", "rows", "ultralytics", "nested")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with ellipses."""
    return pack_shapes(tmp_path_factory.mktemp("packs") / "shapes.lmdb")


def batches(data: Any, **options: Any) -> list[Any]:
    """An epoch in the order of the store."""
    return list(ps.DataLoader(data, 6, seed=1, **options))


def masks_of(batch: Any, form: str) -> list[Array]:
    """The masks of each sample of a batch."""
    if form == "rows":
        return [*batch[2]]
    if form == "ultralytics":
        numbers = np.arange(len(batch["img"]))
        return [batch["masks"][batch["batch_idx"] == number] for number in numbers]
    return [target["masks"] for target in batch[1]]


@pytest.mark.parametrize(
    ("form", "transform"),
    [*((name, ONE_SIZE) for name in NAMES), ("torchvision", SIZES), ("nested", SIZES)],
    ids=[*NAMES, "torchvision sizes", "nested sizes"],
)
def test_batches_have_the_masks_of_samples(pack: Path, form: str, transform: list[Any]) -> None:
    """In every form, filled or built one by one; models find them by the name ``masks``."""
    made = ps.StoreDataset(pack, FIELDS, transform, batch_form=form)
    samples = ps.StoreDataset(pack, FIELDS, transform)
    assert (made.spec() is not None) == (transform is ONE_SIZE)

    for batch, expected in zip(batches(made), batches(samples, collate_fn=list), strict=True):
        found = masks_of(batch, form)
        assert len(found) == len(expected)
        for masks, sample in zip(found, expected, strict=True):
            np.testing.assert_array_equal(masks, sample["instances"], strict=True)
            size = sample["image"].shape[1:] if transform is ONE_SIZE else sample["image"].shape[:2]
            assert masks.shape == (len(sample["boxes"]), *size)
            assert masks.dtype == np.uint8


@pytest.mark.parametrize("ragged", ["list", "padded", "flat"])
def test_ragged_fields_have_the_masks_of_samples(pack: Path, ragged: str) -> None:
    """Without a form of batches, masks have the one that ``ragged`` says, beside boxes."""
    made = ps.StoreDataset(pack, FIELDS, ONE_SIZE, ragged=ragged)
    samples = ps.StoreDataset(pack, FIELDS, ONE_SIZE)
    assert made.spec() is not None

    for batch, expected in zip(batches(made), batches(samples, collate_fn=list), strict=True):
        counts = [len(sample["boxes"]) for sample in expected]
        masks = batch["instances"]
        rows = [own[:n] for own, n in zip(masks.values, counts, strict=True)] if ragged == "padded" else [*masks]
        for own, sample in zip(rows, expected, strict=True):
            np.testing.assert_array_equal(own, sample["instances"], strict=True)


def test_masks_lie_in_the_boxes_of_their_rows(pack: Path) -> None:
    """Objects that are removed take their masks with them: each mask that is left has the bounds of its box."""
    ops: list[Any] = [
        T.Decode(),
        T.RandomCrop(30, pad_if_needed=True),
        T.HorizontalFlip(0.5, []),
        T.Letterbox(80),
        T.SanitizeBoundingBoxes(min_size=6, min_visible=0.3),
    ]
    seen = removed = 0
    for epoch in range(4):
        loader = ps.DataLoader(ps.StoreDataset(pack, FIELDS, ops, batch_form="torchvision"), 6, seed=epoch)
        for _, targets in loader:
            for target in targets:
                removed += len(fields(target["index"])["boxes"]) - len(target["boxes"])
                assert len(target["boxes"]) == len(target["labels"]) == len(target["masks"]) == len(target["score"])
                for box, mask, score in zip(target["boxes"], target["masks"], target["score"], strict=True):
                    row = fields(target["index"])["score"].tolist().index(score)
                    if row == 2:
                        assert not mask.any()
                    elif (box[2:] - box[:2]).min() > 12:
                        x0, y0, x1, y1 = rle.box(rle.encode(mask))
                        assert np.abs(np.array([x0, y0, x1, y1]) - box).max() <= 9
                        seen += 1
    assert seen > 20
    assert removed > 10


def test_masks_stay_encoded_where_nothing_moves_them(pack: Path) -> None:
    """Without a pipeline, or with the kind None, a sample has what is stored."""
    stored = fields(3)["instances"]

    assert ps.StoreDataset(pack, FIELDS)[3]["instances"] == stored
    kept = ps.StoreDataset(pack, FIELDS, [T.Decode(), T.HorizontalFlip(1, [])], kinds={"instances": None})
    assert kept[3]["instances"] == stored
    called = ps.StoreDataset(pack, FIELDS, lambda sample: {"found": sample["instances"]})
    assert called[3]["found"] == stored


def test_masks_have_another_name_by_their_kind(pack: Path, tmp_path: Path) -> None:
    """``kinds`` says it of a field of another name; the name in a sample is the target's, too."""
    store = ps.open(pack)
    records = [{"shapes" if k == "instances" else k: v for k, v in fields(i).items()} for i in range(4)]
    kinds = {name: "json" if name == "shapes" else store.schema[name].kind for name in records[0]}
    ps.pack(records, tmp_path / "other.lmdb", schema=kinds)
    names = {"image": "image", "boxes": "boxes", "outlines": "shapes"}

    made = ps.StoreDataset(
        tmp_path / "other.lmdb", names, ONE_SIZE[:-1], kinds={"shapes": "instances"}, batch_form="torchvision"
    )
    expected = ps.StoreDataset(pack, FIELDS, ONE_SIZE[:-1], batch_form="torchvision")

    [(_, targets)] = list(ps.DataLoader(made, 4, seed=1))
    (_, others) = next(iter(ps.DataLoader(expected, 4, seed=1)))
    for target, other in zip(targets, others, strict=True):
        np.testing.assert_array_equal(target["outlines"], other["masks"])


def test_masks_of_another_size_are_refused(tmp_path: Path) -> None:
    """The error names the record, whose masks are those of another image."""
    records = [fields(1) | {"instances": fields(2)["instances"][:1]}]
    schema = {"image": "image", "boxes": "boxes", "instances": "json"}
    ps.pack([{name: records[0][name] for name in schema}], tmp_path / "wrong.lmdb", schema=schema)

    for ops in (ONE_SIZE, [T.Decode()]):
        data = ps.StoreDataset(tmp_path / "wrong.lmdb", None, ops, batch_form="torchvision")
        with pytest.raises(ArgumentError, match="must have the size of its image"):
            list(ps.DataLoader(data, 1))


def test_a_mask_for_each_box_is_needed(tmp_path: Path) -> None:
    """An op that removes objects, and a mixture, refuse other numbers of masks."""
    records = [fields(3) | {"instances": fields(3)["instances"][:1]}]
    schema = {"image": "image", "boxes": "boxes", "instances": "json"}
    ps.pack([{name: records[0][name] for name in schema}], tmp_path / "wrong.lmdb", schema=schema)
    inner = ps.StoreDataset(tmp_path / "wrong.lmdb")

    with pytest.raises(ArgumentError, match="needs a value for each of 3 boxes in the field 'instances', got 1"):
        _ = ps.StoreDataset(tmp_path / "wrong.lmdb", None, ONE_SIZE)[0]
    with pytest.raises(ArgumentError, match="must have one mask for each of 3 boxes, got 1"):
        _ = ps.Mosaic(inner, 32)[0]


def test_images_without_objects_have_no_masks(pack: Path) -> None:
    """Their arrays have the size of the image, and no rows."""
    data = ps.StoreDataset(pack, FIELDS, ONE_SIZE, batch_form="torchvision")
    alone: ps.Subset[Any] = ps.Subset(data, [index for index in range(COUNT) if index % 4 == 0])

    [(_, targets)] = batches(alone)
    assert [target["masks"].shape for target in targets] == [(0, 32, 40)] * 4
