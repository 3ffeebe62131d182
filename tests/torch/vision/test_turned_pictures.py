"""Transforms of torchvision over a store whose boxes are of upright pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.turned_pictures import SIZE, is_beside, write_coco

v2: Any = pytest.importorskip("torchvision.transforms.v2")


class Called(v2.Transform):  # type: ignore[misc]  # v2 is Any here
    """A transform that is not compiled."""

    def transform(self, inpt: Any, params: Any) -> Any:
        """The same value."""
        return inpt


@pytest.mark.parametrize("op", [v2.RandomHorizontalFlip(1.0), v2.Compose([Called()])], ids=["compiled", "called"])
def test_pictures_are_turned(tmp_path: Path, op: Any) -> None:
    """As the pipeline of penstock turns them."""
    source = write_coco(tmp_path / "coco", dict.fromkeys(range(1, 9), True))
    ps.pack(None, tmp_path / "a.lmdb", annotations=source, format="coco")
    dataset = ps.StoreDataset(tmp_path / "a.lmdb", {name: name for name in ("image", "boxes", "labels")}, op)

    for index in range(len(dataset)):
        sample = dataset[index]
        image = np.asarray(sample["image"]).transpose(1, 2, 0)

        assert image.shape[1::-1] == SIZE
        assert not is_beside({"image": image, "boxes": np.asarray(sample["boxes"])})
