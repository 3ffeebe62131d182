"""States that earlier code wrote resume to the same batches: ``states/version_1.json`` holds both.

A key is ``<loader>-<case>-<workers>-<where>``: taken after 3 batches, or at the end of the first epoch. ``expected``
holds the batches of the rest of that epoch and of the next one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

pytest.importorskip("torch")

import torch

import penstock.torch as pt

STATES: dict[str, Any] = json.loads((Path(__file__).parent / "states" / "version_1.json").read_text())


class Plain(torch.utils.data.Dataset[Any]):
    """Ten times its index."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> Any:
        return int(index) * 10


class Noisy(Plain):
    """Numbers of the global generators."""

    def __getitem__(self, index: int) -> Any:
        return int(index), float(np.random.rand()), random.random(), float(torch.rand(()))  # noqa: NPY002  # global ones are meant


class Remembering(Plain):
    """Counts its calls, and has a state."""

    def __init__(self) -> None:
        self.calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return int(index), self.calls

    def state_dict(self) -> dict[str, int]:
        """How many calls there were."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on counting."""
        self.calls = state["calls"]


class Stream(torch.utils.data.IterableDataset[int]):
    """29 numbers, every n-th in each of n workers."""

    def __iter__(self) -> Iterator[int]:
        info = ps.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, 29, step))


class Counting(torch.utils.data.IterableDataset[int]):
    """The same with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = ps.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        while self.at * step + first < 29:
            self.at += 1
            yield (self.at - 1) * step + first
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        """How many numbers were given."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on there."""
        self.at = state["at"]


class Own(torch.utils.data.Sampler[int]):
    """A sampler that can only be iterated."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Iterator[int]:
        return iter([(7 * i) % 23 for i in range(23)])


def make(name: str) -> Any:
    """The loader of a key."""
    family, case, workers = name.split("-")[:3]
    arguments: dict[str, Any] = {} if workers == "serial" else {"num_workers": 2, "workers": workers}
    buckets = ps.BucketBatchSampler([i % 5 for i in range(23)], 4, num_buckets=2, seed=1)
    if family == "ours":
        cases: dict[str, Any] = {
            "shuffle": (Plain(), 4, {"shuffle": True}),
            "own": (Plain(), 4, {"sampler": Own()}),
            "stream": (Stream(), 4, {}),
            "counting": (Counting(), 4, {}),
            "bucket": (Plain(), 1, {"batch_sampler": buckets}),
            "single": (Plain(), None, {"shuffle": True}),
            "ranks": (Plain(), 2, {"sampler": ps.DistributedSampler(Plain(), num_replicas=2, rank=1, seed=4)}),
        }
        dataset, batch_size, more = cases[case]
        return ps.DataLoader(dataset, batch_size, seed=3, **more, **arguments)
    cases = {
        "shuffle": (Plain(), 4, {"shuffle": True}),
        "seed": (Plain(), 4, {"shuffle": True, "seed": 5}),
        "stream": (Stream(), 4, {}),
        "counting": (Counting(), 4, {}),
        "ours": (Plain(), 1, {"batch_sampler": buckets}),
        "remember": (Remembering(), 4, {"shuffle": True}),
        "persistent": (Noisy(), 4, {"shuffle": True, "persistent_workers": True, "snapshot_every_n_steps": 3}),
    }
    dataset, batch_size, more = cases[case]
    return pt.DataLoader(dataset, batch_size, **more, **arguments)


@pytest.mark.parametrize("name", sorted(STATES))
def test_a_state_written_before_resumes(name: str) -> None:
    """The rest of its epoch, and the next one, have the batches that the code which wrote it would have given."""
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002  # the state replaces it
    torch.manual_seed(9)
    loader = make(name)

    loader.load_state_dict(STATES[name]["state"])
    found = [json.loads(json.dumps(batch, default=lambda array: array.tolist())) for _ in range(2) for batch in loader]
    loader.close()

    assert found == STATES[name]["expected"]
