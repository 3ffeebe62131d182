"""torch's loader for viewers: ``view`` is an argument and an attribute, as in :class:`penstock.DataLoader`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import penstock.torch as pt
from penstock.loader.live.live_file import list_files, read_from


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_torch_is_viewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """As others; batches are the same, and so are those of a loader that is made from the attributes of the first."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "live"))
    numbers = torch.utils.data.TensorDataset(torch.arange(12.0))

    def make(*, view: bool) -> pt.DataLoader[list[torch.Tensor]]:
        generator = torch.Generator().manual_seed(3)
        return pt.DataLoader(numbers, 4, shuffle=True, generator=generator, num_workers=workers, view=view)

    loader = make(view=True)
    assert not (tmp_path / "live").exists()
    viewed, plain = ([batch[0].tolist() for batch in each] for each in (loader, make(view=False)))

    assert viewed == plain
    [path] = list_files(tmp_path / "live")
    part = read_from(path)
    assert (part.header["dataset"], part.header["num_workers"]) == ("TensorDataset", workers)
    assert part.lines
    assert loader.view
    loader.close()
    del loader
    assert not list_files(tmp_path / "live")
