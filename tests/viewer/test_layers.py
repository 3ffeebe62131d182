"""Annotations as layers: boxes, points, masks, tracks, from a pack and from files beside a folder."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.annotations import rle
from penstock.errors import ArgumentError
from penstock.sample import Field, Schema
from penstock.sheets.annotated import Annotated
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.viewer.browse.annotations_beside import read_beside
from penstock.viewer.browse.layers import MAX_OBJECTS, make_layers
from tests.viewer.asking import App


def encode(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def paint(item: dict[str, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    """The pixels of the runs of a mask."""
    inside = np.zeros((height, width), bool)
    for row, begin, end in item["runs"]:
        inside[row, begin:end] = True
    return inside


def test_a_pack_gives_layers_of_each_kind(tmp_path: Path) -> None:
    """Boxes with classes, scores and tracks, keypoints, a mask of classes, and a mask of each object."""
    mask = np.zeros((30, 40), np.uint8)
    mask[3:9, 5:11], mask[20:25, 8:9] = 1, 2
    own = np.zeros((30, 40), np.uint8)
    own[1:4, 2:30] = 1
    schema = Schema({
        "image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", "dog")),
        "scores": Field("float32[*]"), "track_ids": Field("int64[*]"), "keypoints": Field("float32[*,2,3]"),
        "mask": Field("mask", ("", "road", "sky")), "instances": Field("json"),
    })  # fmt: skip
    record = {
        "image": encode(np.zeros((30, 40, 3), np.uint8)), "boxes": np.array([[1, 2, 30, 20.5]], np.float32),
        "labels": np.array([1]), "scores": np.array([0.5], np.float32), "track_ids": np.array([7]),
        "keypoints": np.array([[[1, 2, 2], [3, 4, 0]]], np.float32), "mask": encode(mask),
        "instances": [rle.encode(own)],
    }  # fmt: skip
    writer = LmdbWriter(tmp_path / "all.lmdb", schema, "test")
    writer.append(writer.prepare("a.png", record))
    writer.finish()
    writer.close()
    with ps.open(tmp_path / "all.lmdb") as store:
        app = App(store)
        shown = app.ask("api/layers", "indices=0").json["0"]
        app.close()

    tracks, points, masks = shown["layers"]
    assert (shown["width"], shown["height"]) == (40, 30)
    assert tracks["kind"] == "tracks"
    assert tracks["items"] == [{"box": [1, 2, 30, 20.5], "class": 1, "name": "dog", "score": 0.5, "track": 7}]
    assert points["items"] == [{"points": [[1, 2, 2], [3, 4, 0]], "class": 1, "name": "dog"}]
    road, sky, instance = masks["items"]
    assert (road["name"], sky["name"], instance["name"]) == ("road", "sky", "dog")
    for item, expected in ((road, mask == 1), (sky, mask == 2), (instance, own == 1)):
        assert item["scale"] == 1
        assert np.array_equal(paint(item, 30, 40), expected)


def test_a_large_mask_is_reduced() -> None:
    """To 256 rows at most; every fourth pixel decides."""
    mask = np.zeros((1000, 600), np.uint8)
    mask[400:, 200:] = 3

    (layer,) = make_layers(Annotated(masks=[mask]), {}, (600, 1000))

    (item,) = layer["items"]
    assert (item["scale"], item["class"]) == (4, 3)
    assert item["runs"][0] == [100, 50, 150]
    assert len(item["runs"]) == 150


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Annotated(masks=[np.ones((5, 6))]), "picture of 40 x 30"),
        (Annotated(keypoints=np.zeros((2, 5))), r"got \(2, 5\)"),
        (Annotated(boxes=np.zeros((3, 3))), "boxes"),
        (Annotated(boxes=np.zeros((MAX_OBJECTS + 5, 4))), "5 of 1,005 boxes are not drawn"),
        (Annotated(boxes=np.full((1, 4), np.nan)), "1 of 1 boxes are not drawn"),
    ],
)
def test_what_cannot_be_drawn_is_said(found: Annotated, message: str) -> None:
    """By the layer, which has the objects that can be drawn."""
    (layer,) = make_layers(found, {}, (40, 30))

    assert re.search(message, layer["problem"])
    json.dumps(layer, allow_nan=False)


def test_annotations_beside_a_folder_are_layers(tmp_path: Path) -> None:
    """COCO's file beside pictures that are not packed; a picture without annotations has no layer."""
    for name in ("a.png", "b.png"):
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "images" / name).write_bytes(encode(np.zeros((30, 40, 3), np.uint8)))
    coco = {
        "images": [{"id": 1, "file_name": "b.png", "width": 40, "height": 30}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 5, "bbox": [2, 3, 10, 12], "area": 120, "iscrowd": 0}],
        "categories": [{"id": 5, "name": "cup"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    with ps.open(tmp_path / "images") as store:
        app = App(store, annotations=read_beside(store, tmp_path / "coco.json"))
        layers = app.ask("api/layers", "indices=0,1").json
        fields = {field["name"]: field for field in app.ask("api/session").json["fields"]}
        app.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c.png").write_bytes(encode(np.zeros((3, 4, 3), np.uint8)))
    with ps.open(tmp_path / "other") as store, pytest.raises(ArgumentError, match="no annotation in"):
        read_beside(store, tmp_path / "coco.json")

    assert layers["0"]["layers"] == []
    (box,) = layers["1"]["layers"][0]["items"]
    assert (box["box"], box["name"]) == ([2, 3, 12, 15], "cup")
    assert fields["labels"]["classes"] == ["cup"]
