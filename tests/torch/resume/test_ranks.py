"""JobLoader: one state for the loaders of all ranks. ``tests/clients/resume`` has ranks that are processes."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

import penstock as ps

pytest.importorskip("torch")

import penstock.torch as pt  # it needs torch
from penstock.errors import StateError  # as above
from penstock.torch.resume import JobLoader  # as above
from penstock.torch.resume.ranks import choose_state, gather_states  # as above

N = 30


def make(ranks: int = 1, rank: int = 0) -> Any:
    """The loader of a rank."""
    return pt.DataLoader(range(N), 4, sampler=ps.DistributedSampler(range(N), ranks, rank, seed=3), collate_fn=list)


def begin(ranks: int) -> tuple[dict[str, Any], list[int]]:
    """The state of a job behind two batches of each rank, and the samples that it was given."""
    states, given = [], []
    for rank in range(ranks):
        loader = make(ranks, rank)
        batches = iter(loader)
        given += next(batches) + next(batches)
        states.append(loader.state_dict())
    return {"ranks": tuple(states)}, given


def test_one_rank_without_a_process_group() -> None:
    """It goes on behind the last batch, and has the loader's length."""
    loader = JobLoader(make())
    batches = iter(loader)
    first = [next(batches) for _ in range(3)]
    again = JobLoader(make())
    again.load_state_dict(copy.deepcopy(loader.state_dict()))

    assert len(again) == len(make()) == 8
    assert first + list(again) == list(make())


def test_asking_begins_nothing() -> None:
    """The state before the first batch is that of an epoch's beginning."""
    loader = JobLoader(make())
    state = loader.state_dict()
    again = JobLoader(make())
    again.load_state_dict(state)

    assert loader.loader.stats().batches == 0
    assert list(again) == list(loader) == list(make())


@pytest.mark.parametrize("ranks", [2, 3])
def test_another_number_of_ranks(ranks: int) -> None:
    """One rank goes on with what all ranks had left."""
    state, given = begin(ranks)
    loader = JobLoader(make())
    loader.load_state_dict(state)

    assert sorted([*given, *itertools.chain(*loader)]) == list(range(N))


def test_states_are_gathered_without_a_process_group() -> None:
    """There is one, and it is chosen again."""
    assert gather_states({"a": 1}) == ({"a": 1},)
    assert choose_state([{"a": 1}]) == {"a": 1}


@pytest.mark.parametrize("state", [{}, {"ranks": 3}, {"ranks": [3]}, {"ranks": ()}, {"rank": ({},)}], ids=str)
def test_what_is_no_state_is_refused(state: dict[str, Any]) -> None:
    """By name, before anything is loaded."""
    with pytest.raises(StateError, match="rank"):
        JobLoader(make()).load_state_dict(state)
