"""Loaders whose states are kept: each is made by a name, the same by every version that writes or reads its state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import penstock as ps

__all__ = ["SHARED", "make_loader", "take"]

SHARED = ("arrays", "ranks", "torch", "torch-workers")
"""Those that the first versions had too."""


def make_loader(name: str) -> Any:
    """The loader of this name, at the beginning of its first epoch."""
    if name == "arrays":
        return ps.DataLoader(ps.ArrayDataset(np.arange(40).reshape(20, 2)), 3, shuffle=True, seed=5)
    if name == "ranks":
        sampler = ps.DistributedSampler(range(20), num_replicas=2, rank=1, seed=4)
        return ps.DataLoader(ps.ArrayDataset(np.arange(20)), 3, sampler=sampler, seed=5)
    if name.startswith("torch"):
        return _make_torch_loader(name)
    return ps.DataLoader(_make_dataset(name), 3, seed=5)


def take(loader: Any, count: int) -> list[Any]:
    """The next batches of a new iterator, as JSON keeps them."""
    batches = [batch for batch, _ in zip(loader, range(count), strict=False)]
    taken: list[Any] = json.loads(json.dumps(batches, default=lambda array: array.tolist()))
    return taken


def _make_dataset(name: str) -> Any:
    if name == "mixture":
        sources = {"a": ps.ArrayDataset(np.arange(12)), "b": ps.ArrayDataset(np.arange(100, 105))}
        return ps.Mixture(sources, weights={"a": 2, "b": 1}, until=24)

    class Numbers(ps.PartitionedDataset[int]):
        """Five parts of seven numbers."""

        def count_parts(self) -> int:
            return 5

        def read_part(self, part: int, epoch: int, first: int) -> Iterator[int]:  # the same each time
            return iter(range(10 * part + first, 10 * part + 7))

    if name == "stream":
        return Numbers(seed=2)
    assert name == "stream-mixture"
    return ps.Mixture({"a": Numbers(seed=2), "b": Numbers(seed=3)}, weights={"a": 2, "b": 1}, until=24)


def _make_torch_loader(name: str) -> Any:
    import torch

    import penstock.torch as pt

    torch.manual_seed(3)
    dataset = torch.utils.data.TensorDataset(torch.arange(20))
    if name.startswith("torch-workers"):
        return pt.DataLoader(dataset, 3, shuffle=True, num_workers=2)
    if name == "torch":
        return pt.DataLoader(dataset, 3, shuffle=True)
    return pt.DataLoader(_make_dataset(name.removeprefix("torch-")), 3)
