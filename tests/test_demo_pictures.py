"""The pictures of the demo and of the tutorials: written once, with exact annotations, beside files of others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps

pytest.importorskip("skimage", reason="the photographs come inside scikit-image")

from penstock.demo.photographs import write_once, write_photographs
from penstock.demo.shapes import POINTS, SHAPES, write_shapes


def test_a_folder_of_others_is_kept(tmp_path: Path) -> None:
    """A folder that was not made here is refused, and nothing in it is deleted."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "holiday.jpg").write_bytes(b"1")

    with pytest.raises(ps.ArgumentError, match="exists and was not made here"):
        write_photographs(tmp_path / "mine", train=1, held_out=1)

    assert (tmp_path / "mine" / "holiday.jpg").read_bytes() == b"1"


def test_a_folder_is_written_once(tmp_path: Path) -> None:
    """What was made of the same is used again; what was made of other things is replaced."""
    calls: list[str] = []

    for made_of in ("one", "one", "two"):
        write_once(tmp_path / "made", made_of, lambda partial: calls.append(partial.name))

    assert calls == ["made.partial"] * 2
    assert (tmp_path / "made" / "made-of.txt").read_text() == "two"


def test_annotations_of_shapes_are_exact(tmp_path: Path) -> None:
    """The mask has each object's class in its box, and nothing beside the boxes; points lie in the box of the kite."""
    folder = write_shapes(tmp_path / "shapes", train=3, val=5)

    boxes, points = (
        json.loads((folder / "annotations" / f"{name}_val.json").read_text())
        for name in ("instances", "person_keypoints")
    )

    assert (folder / "classes.txt").read_text().split() == ["background", *SHAPES]
    assert len(list((folder / "images" / "train").iterdir())) == 3
    assert len(points["annotations"]) == 5
    for number in range(5):
        mask = np.array(Image.open(folder / "masks" / "val" / f"{number}.png"))
        rest = mask.copy()
        for each in (each for each in boxes["annotations"] if each["image_id"] == number):
            x, y, width, height = each["bbox"]
            part = mask[y : y + height, x : x + width] == each["category_id"]
            assert part.any(0)[[0, -1]].all()
            assert part.any(1)[[0, -1]].all()
            assert part.sum() >= each["area"]
            rest[y : y + height, x : x + width] = 0
        assert not rest.any()
    for each in points["annotations"]:
        x, y, width, height = each["bbox"]
        found = np.reshape(each["keypoints"], (len(POINTS), 3))
        assert (np.abs(found[:, 0] - np.clip(found[:, 0], x, x + width)) < 1.5).all()
        assert (np.abs(found[:, 1] - np.clip(found[:, 1], y, y + height)) < 1.5).all()
        assert np.hypot(*(found[0] - found[2])[:2]) > 30
