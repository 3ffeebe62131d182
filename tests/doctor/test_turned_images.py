"""Rule turned-images: it finds stores whose boxes may be of another picture than Decode gives, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from tests.turned_pictures import BOX, photograph

torch = pytest.importorskip("torch")


def find(store: Path, ops: list[Any], **options: Any) -> list[str]:
    """What is found of this rule in a subset of a dataset."""
    from penstock.torch import check

    samples = options.pop("samples", 4)
    dataset = ps.Subset(ps.StoreDataset(store, transform=ops, **options), [0, 1])
    return [f"{each.severity} {each.where}" for each in check(dataset, samples=samples) if each.rule == "turned-images"]


@pytest.mark.filterwarnings("ignore:.*images are stored turned:UserWarning")
@pytest.mark.filterwarnings("ignore:.*are of upright pictures:UserWarning")
def test_turned_images_are_found_where_nothing_says_what_their_boxes_are_of(tmp_path: Path) -> None:
    """Not without samples, boxes or a turned image, nor where the store or the op says it."""
    boxes = np.array([BOX], np.float32)
    for name, orientation, upright in (("unsaid", 6, None), ("said", 6, True), ("straight", 1, None)):
        rows = [{"image": photograph(orientation), "boxes": boxes} for _ in range(2)]
        ps.pack(rows, tmp_path / name, schema={"boxes": "boxes"}, upright=upright)
    ps.pack(tmp_path / "unsaid", tmp_path / "coefficients", transcode="coefficients")

    assert find(tmp_path / "unsaid", [T.Decode()]) == ["warning dataset.dataset"]
    assert find(tmp_path / "coefficients", [T.Decode()]) == ["warning dataset.dataset"]
    assert not find(tmp_path / "unsaid", [T.Decode()], samples=0)
    assert not find(tmp_path / "unsaid", [T.Decode()], fields=("image", "width"))
    assert not find(tmp_path / "unsaid", [T.Decode(orient=True)])
    assert not find(tmp_path / "unsaid", [T.Decode(orient=False)])
    assert not find(tmp_path / "said", [T.Decode()])
    assert not find(tmp_path / "straight", [T.Decode()])
