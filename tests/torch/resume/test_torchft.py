"""ReplicaLoader under a manager that commits what it is told to. ``tests/clients/resume`` has torchft's own."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

import penstock as ps

pytest.importorskip("torch")

import penstock.torch as pt  # it needs torch
from penstock.torch.resume import ReplicaLoader  # as above


class Manager:
    """What a ReplicaLoader asks of torchft's."""

    def __init__(self) -> None:
        self.step = 0
        self.load: Any = None
        self.save: Any = None

    def register_state_dict_fn(self, key: str, load: Any, save: Any) -> None:
        """As torchft's."""
        assert key == "loader"
        self.load, self.save = load, save

    def current_step(self) -> int:
        """As torchft's."""
        return self.step

    def heal(self, other: Manager) -> None:
        """As torchft's, within a step: the step and the state are those of the other one."""
        state = copy.deepcopy(other.save())
        self.step = other.step
        self.load(state)


def make(rank: int) -> Any:
    """The loader of a replica: 5 batches an epoch."""
    sampler = ps.DistributedSampler(range(38), 2, rank, seed=3)
    return pt.DataLoader(range(38), 4, sampler=sampler, collate_fn=list)


def batches_of(rank: int) -> list[Any]:
    """Those of three epochs."""
    loader = make(rank)
    return list(itertools.chain(loader, loader, loader))


def endless(loader: Any) -> Any:
    """Its batches, epoch after epoch."""
    while True:
        yield from loader


def test_a_step_that_fails_has_its_batch_again() -> None:
    """As often as it fails; then the next one comes."""
    manager = Manager()
    batches, seen = endless(ReplicaLoader(make(0), manager)), []
    for commits in [True, False, False, True, True, False, True, True, True]:
        seen.append((manager.step, next(batches)))
        manager.step += commits

    assert seen == [(step, batches_of(0)[step]) for step in (0, 1, 1, 1, 2, 3, 3, 4, 5)]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("behind", [1, 4, 5, 7])
def test_a_replica_heals(behind: int, commits: bool) -> None:
    """It goes on with the batch of the step that all are in: whether the one that it healed in was committed or not."""
    survivor, returned = Manager(), Manager()
    first, second = endless(ReplicaLoader(make(0), survivor)), endless(ReplicaLoader(make(1), returned))
    for _ in range(behind):
        next(first)
        survivor.step += 1
    next(first)
    next(second)
    returned.heal(survivor)
    seen = []
    for _ in range(6):
        survivor.step += commits
        returned.step += commits
        commits = True
        seen.append((returned.step, next(first), next(second)))

    assert [step for step, _, _ in seen] == list(range(seen[0][0], seen[0][0] + 6))
    for step, one, two in seen:
        assert (one, two) == (batches_of(0)[step], batches_of(1)[step])
