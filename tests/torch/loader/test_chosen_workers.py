"""``num_workers="auto"`` of the torch loader, for those that read it or ask it."""

from __future__ import annotations

import torch
import torch.utils.data

import penstock.torch as pt
from penstock.system.shares import find_cores
from penstock.system.system_files import SystemFiles


def make_loader() -> pt.DataLoader[list[torch.Tensor]]:
    """A loader that chooses its worker processes."""
    numbers = torch.utils.data.TensorDataset(torch.arange(40))
    return pt.DataLoader(numbers, 4, num_workers="auto", prefetch_factor="auto", workers="processes")


def test_a_loader_of_another_kind_that_is_made_of_attributes_starts_a_worker_for_each_core() -> None:
    """Accelerate makes torch's own loader of ours."""
    loader = make_loader()
    copied = {name: getattr(loader, name) for name in ("dataset", "batch_size", "num_workers", "prefetch_factor")}
    iterator = iter(torch.utils.data.DataLoader(**copied))
    assert len(iterator._workers) == find_cores(SystemFiles())  # type: ignore[attr-defined]  # torch's private name
    ours = iter(loader)
    assert len(list(ours)) == 10
    assert ours.epoch.recipe.workers.processes == loader.num_workers.most  # type: ignore[attr-defined]  # it is chosen
    assert ours.epoch.position.processes == ours.epoch.recipe.workers.processes


def test_asking_starts_nothing() -> None:
    """The state of a loader, taken or loaded, needs nothing that chooses workers."""
    loader = make_loader()
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert loader._counters.tuner is None
