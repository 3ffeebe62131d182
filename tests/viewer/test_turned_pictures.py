"""Boxes over pictures that an Exif orientation turns, as the viewer draws and judges them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.ragged import Ragged
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.problems import PROBLEMS, find_problems
from tests.turned_pictures import BOX, SIZE, box_of, photograph


@pytest.mark.parametrize("upright", [True, False])
def test_boxes_are_drawn_over_the_turned_picture(tmp_path: Path, *, upright: bool) -> None:
    """Those of the stored picture are turned with it."""
    rows = [
        {"image": photograph(n), "boxes": np.array([BOX if upright else box_of(n)], np.float32)} for n in range(1, 9)
    ]
    ps.pack(rows, tmp_path / "a.lmdb", schema={"boxes": "boxes"}, upright=upright)

    with ps.open(tmp_path / "a.lmdb") as store:
        collection = Collection(store)
        drawn = [collection.layers(index) for index in range(8)]

    for each in drawn:
        assert (each["width"], each["height"]) == SIZE
        np.testing.assert_allclose(each["layers"][0]["items"][0]["box"], BOX, atol=1)


@pytest.mark.parametrize(("upright", "outside"), [(None, [2]), (True, [1, 2]), (False, [0, 2])])
def test_a_box_is_outside_of_the_picture_that_it_is_of(upright: bool | None, outside: list[int]) -> None:
    """Where that is not known, it is outside if it is outside of both."""
    facts = np.zeros(3, [(name, np.int64) for name in ("broken", "orientation", "width", "height")])
    facts["width"], facts["height"], facts["orientation"] = 80, 48, 6
    boxes = np.array([[0, 0, 40, 70], [0, 0, 70, 40], [0, 0, 70, 70]], np.float32)

    found = find_problems(facts, Ragged(boxes, np.arange(4)), empty=np.zeros(3, np.bool_), upright=upright)

    assert found.offsets is not None, "several problems a record"
    number = list(PROBLEMS).index("box-outside")
    rows = np.repeat(np.arange(3), np.diff(found.offsets))
    assert rows[found.values == number].tolist() == outside
