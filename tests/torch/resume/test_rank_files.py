"""One file for each rank in a checkpoint's folder: written as a whole, read by as many ranks or by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.ranks import World, assume_world

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.torch import resume  # noqa: E402  # it needs torch
from penstock.torch.resume.rank_files import load_states  # noqa: E402  # as above


def loader_of(ranks: int, rank: int, batch: int, seed: int = 0) -> Any:
    """One rank's loader over 24 numbers."""
    numbers = ps.ArrayDataset(np.arange(24))
    return pt.DataLoader(numbers, batch, sampler=ps.DistributedSampler(numbers, ranks, rank, seed=seed))


def save_at(step: int, ranks: int, folder: Path) -> list[int]:
    """Have each rank save after so many batches; the samples that all have had."""
    seen = []
    for rank in range(ranks):
        with assume_world(World(ranks, rank)):
            loader = loader_of(ranks, rank, 12 // ranks)
            batches = iter(loader)
            for _ in range(step):
                seen += next(batches)[0].tolist()
            resume.save_loader(loader, folder)
    return seen


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_rest_of_the_epoch_comes_on_any_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    """Two ranks save; as many, fewer and more have what is left, each sample once."""
    seen, rest = save_at(1, 2, tmp_path), []
    for rank in range(ranks):
        with assume_world(World(ranks, rank)):
            loader = loader_of(ranks, rank, 12 // ranks)
            resume.load_loader(loader, tmp_path)
            rest += [index for batch in loader for index in batch[0].tolist()]

    assert len(seen) == 12
    assert sorted(seen + rest) == list(range(24))


def test_each_rank_has_its_own_state(tmp_path: Path) -> None:
    """On as many ranks each reads what it has written; on others all read all."""
    save_at(1, 2, tmp_path)

    with assume_world(World(2, 1)):
        assert len(load_states(tmp_path, "penstock-loader")) == 1
    with assume_world(World(3, 2)):
        assert len(load_states(tmp_path, "penstock-loader")) == 2


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file_is_named(tmp_path: Path, missing: int) -> None:
    """Of this rank, and of another one that is needed."""
    save_at(1, 2, tmp_path)
    (tmp_path / f"penstock-loader-{missing}.pt").unlink()

    for world in World(2, missing), World(3, 2):
        with assume_world(world), pytest.raises(ps.StateError, match=f"penstock-loader-{missing}.pt is missing"):
            load_states(tmp_path, "penstock-loader")


@pytest.mark.parametrize("content", [b"", b"junk", 0, {}, {"num_replicas": "one", "state": 1}], ids=repr)
def test_a_damaged_file_is_refused(tmp_path: Path, content: Any) -> None:
    """Whatever is in it: nothing of it is run."""
    path = tmp_path / "penstock-loader-0.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)

    with assume_world(World()), pytest.raises(ps.StateError, match=r"penstock-loader-0\.pt is no state"):
        resume.load_loader(loader_of(1, 0, 4), tmp_path)


def test_a_state_of_another_order_is_refused(tmp_path: Path) -> None:
    """As by ``load_state_dict`` itself."""
    save_at(1, 1, tmp_path)
    numbers = ps.ArrayDataset(np.arange(25))
    other = pt.DataLoader(numbers, 12, sampler=ps.DistributedSampler(numbers, 1, 0))

    with assume_world(World()), pytest.raises(ps.StateError, match="dataset=24"):
        resume.load_loader(other, tmp_path)


def test_names_of_optional_packages_are_listed() -> None:
    """Each adapter's name is there before its package is; another name is an AttributeError."""
    assert set(resume.__all__) <= set(dir(resume))
    with pytest.raises(AttributeError, match="has no attribute 'Trainer'"):
        resume.Trainer  # noqa: B018  # asked for on purpose
