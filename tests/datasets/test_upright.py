"""Samples of stores whose boxes are of upright pictures: Decode turns them in each way in which samples are made."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import Field, SampleKeys, Schema
from penstock.sheets.showing import DatasetSamples, StoreSamples
from penstock.sheets.tiles import draw_tile
from tests.turned_pictures import BOX, SIZE, find_box, is_beside, photograph, write_coco

UPRIGHT = ps.Field("boxes", upright=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A pack of photographs in all orientations."""
    source = write_coco(tmp_path / "coco", dict.fromkeys(range(1, 9), True))
    ps.pack(None, tmp_path / "a.lmdb", annotations=source, format="coco")
    return tmp_path / "a.lmdb"


def samples(dataset: ps.StoreDataset) -> list[dict[str, Any]]:
    """All samples of a dataset."""
    return [dataset[index] for index in range(len(dataset))]


def test_decode_turns_by_default_and_says_so_once(store: Path) -> None:
    """A stated orient=True is the same without a word."""
    with pytest.warns(UserWarning, match=r"Decode\(\) turns these by their Exif orientation") as said:
        found = samples(ps.StoreDataset(store, transform=[T.Decode()]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stated = samples(ps.StoreDataset(store, transform=[T.Decode(orient=True)]))

    assert len(said) == 1
    assert not any(map(is_beside, found))
    for one, other in zip(found, stated, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_orient_false_is_refused_where_it_would_leave_boxes_beside(store: Path) -> None:
    """Images alone are given as their rows are stored."""
    with pytest.raises(ArgumentError, match=r"boxes, keypoints, instances are of the picture as its Exif orientation"):
        ps.StoreDataset(store, transform=[T.Decode(orient=False)])
    images = ps.StoreDataset(store, fields=("image", "id"), transform=[T.Decode(orient=False)])

    assert images[5][0].shape[1::-1] == SIZE[::-1]


def test_orient_true_is_refused_for_boxes_of_stored_pictures(tmp_path: Path) -> None:
    """The default then leaves the rows as they are."""
    row = {"image": photograph(6), "boxes": np.zeros((0, 4), np.float32)}
    ps.pack([row], tmp_path / "a.lmdb", schema={"boxes": Field("boxes", upright=False)})

    with pytest.raises(ArgumentError, match="are of the picture as its rows are stored"):
        ps.StoreDataset(tmp_path / "a.lmdb", transform=[T.Decode(orient=True)])
    assert ps.StoreDataset(tmp_path / "a.lmdb", transform=[T.Decode()])[0]["image"].shape[1::-1] == SIZE[::-1]


@pytest.mark.filterwarnings("ignore:.*are of upright pictures:UserWarning")
def test_filled_rows_are_the_samples(store: Path) -> None:
    """Boxes lie on the object in both, in a loader too."""
    ops = [T.Decode(), T.Resize((SIZE[1], SIZE[0])), T.ToLayout("HWC", "uint8")]
    dataset = ps.StoreDataset(store, fields=("image", "boxes"), transform=ops, ragged="list")

    (batch,) = ps.DataLoader(dataset, batch_size=8, num_workers=0)

    assert dataset.why_not_filled() == ""
    for row, (image, boxes) in enumerate(zip(*batch, strict=True)):
        np.testing.assert_array_equal(np.asarray(image), dataset[row][0])
        np.testing.assert_allclose(np.asarray(boxes), dataset[row][1])
        assert np.abs(np.subtract(find_box(np.asarray(image)), BOX)).max() <= 1


@pytest.mark.filterwarnings("ignore:.*are of upright pictures:UserWarning")
def test_mixtures_decode_as_the_store_says(store: Path) -> None:
    """A mosaic of samples that are not decoded yet turns them; another statement is refused."""
    inner = ps.StoreDataset(store, fields={"image": "image", "boxes": "boxes", "labels": "labels"})

    single = ps.Mosaic(ps.Subset(inner, [5]), 96, p=0.0)[0]

    assert not is_beside(single)
    with pytest.raises(ArgumentError, match="its annotations are of the picture"):
        ps.Mosaic(inner, 96, decode=T.Decode(orient=False))


def test_transforms_of_albumentations_get_turned_pictures(store: Path) -> None:
    """Where they are compiled, and where they are called."""
    albumentations: Any = pytest.importorskip("albumentations")
    boxes = albumentations.BboxParams(format="pascal_voc", label_fields=["labels"])
    for op in (albumentations.HorizontalFlip(p=1.0), albumentations.Rotate((90, 90), p=1.0)):
        transform = albumentations.Compose([op], bbox_params=boxes)
        fields = {name: name for name in ("image", "boxes", "labels")}

        assert not any(map(is_beside, samples(ps.StoreDataset(store, fields, transform))))


@pytest.mark.filterwarnings("ignore:.*are of upright pictures:UserWarning")
def test_shown_tiles_are_turned(store: Path) -> None:
    """``ps.show`` draws boxes on the picture that they are of, before the transform and without one."""
    for samples in (StoreSamples(ps.StoreDataset(store)), DatasetSamples(ps.StoreDataset(store))):
        found = samples.before(5, SampleKeys(0, 0, np.zeros(1, np.int64)))[1]

        assert draw_tile(found, 80, samples.form_before).size == SIZE


def test_fields_that_contradict_one_another_are_refused() -> None:
    """All values of a record are of one picture, and a statement is True, False or None."""
    both = Schema({"image": Field("image"), "boxes": UPRIGHT, "mask": Field("mask", upright=False)})

    with pytest.raises(ArgumentError, match="must be of one picture: 'boxes' is of the upright one, and 'mask' of the"):
        _ = both.upright
    with pytest.raises(ArgumentError, match="upright must be True, False or None, got 1"):
        Field("boxes", upright=1)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ArgumentError, match="upright must be"):
        Schema.from_json({"boxes": {"kind": "boxes", "upright": "yes"}})


def test_streams_of_converted_shards_turn_images(store: Path, tmp_path: Path) -> None:
    """A tar says it in its own declaration, without what lies beside it."""
    report = ps.convert(store, tmp_path / "a.tar")

    found = list(ps.StreamDataset(str(tmp_path / "a.tar"), transform=[T.Decode()]))

    assert report.beside == ()
    assert len(found) == 8
    assert not any(map(is_beside, found))
