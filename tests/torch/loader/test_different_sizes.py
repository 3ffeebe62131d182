"""Samples of different sizes: the error says so, and what their sizes are, in workers too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import transforms as T
from tests.photographs import write_photographs

pytest.importorskip("torch")

from penstock.torch import DataLoader


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "workers": "threads"}], ids=str)
def test_different_sizes_are_named(tmp_path: Path, options: dict[str, Any]) -> None:
    """torch's workers would speak of a storage that is not resizable."""
    photos = write_photographs(tmp_path / "photos", per_class=1)
    dataset = ps.StoreDataset(photos, ("image", "label"), [T.Decode(), T.ToLayout("CHW", "float32")])

    with pytest.raises(RuntimeError, match=r"stack expects each tensor to be equal size, but got \[3, ") as caught:
        list(DataLoader(dataset, batch_size=8, **options))

    assert "resizable" not in str(caught.value)
