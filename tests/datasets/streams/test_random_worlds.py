"""Loaders whose number of ranks, and number and kind of workers, changes at random places of an epoch."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

import penstock as ps
import penstock.torch
from tests.datasets.streams.numbered_shards import make_stream
from tests.effort import IS_PART

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
KINDS: dict[str, Any] = {"penstock": ps.DataLoader, "torch": penstock.torch.DataLoader}


def pairs(batches: Any) -> list[tuple[int, float]]:
    """Numbers and draws."""
    return [pair for numbers, draws in batches for pair in zip(numbers.tolist(), draws.tolist(), strict=True)]


def run(kind: str, seed: int, backends: list[str]) -> tuple[list[Any], list[Any]]:
    """All samples of an epoch in several stages, and those of one reader; both sorted."""
    draw = random.Random(seed)
    lengths = [draw.randint(0, 12) for _ in range(draw.randint(1, 20))]
    settings: dict[str, Any] = {"seed": draw.randint(0, 9)}
    if draw.random() < 0.7:
        settings |= {"shuffle": True, "window": draw.randint(1, 4), "buffer": draw.randint(1, 20)}
    found: list[tuple[int, float]] = []
    state: Any = None
    for is_last in [False] * draw.randint(1, 3) + [True]:
        num_replicas, backend = draw.randint(1, 3), draw.choice(backends)
        workers = {} if backend == "serial" else {"workers": backend, "num_workers": draw.randint(1, 3)}
        loaders, walks, has_ended = [], [], is_last
        for rank in range(num_replicas):
            dataset = make_stream(lengths, num_replicas=num_replicas, rank=rank, **settings)
            loaders.append(KINDS[kind](dataset, draw.randint(1, 5), **workers))
            if state is not None:
                loaders[-1].load_state_dict(state)
            walks.append(iter(loaders[-1]))
            steps = draw.randint(0, 5)
            batches = list(itertools.islice(walks[-1], steps))
            found += pairs(batches)
            has_ended |= len(batches) < steps
        if has_ended:  # states are taken while all ranks are in the epoch
            found += pairs(itertools.chain(*walks))
            break
        state = json.loads(json.dumps(ps.merge_states([loader.state_dict() for loader in loaders])))
    return sorted(found), sorted(make_stream(lengths, num_replicas=1, rank=0, **settings))


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_is_lost_or_comes_twice(kind: str) -> None:
    """In twenty programs of random shards, settings, worlds and stops, without processes."""
    for seed in range(20):
        found, expected = run(kind, seed, ["serial", "threads"])
        assert found == expected, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_is_lost_or_comes_twice_in_processes(kind: str) -> None:
    """The same in more programs, also with worker processes."""
    for seed in range(1000, 1020 if IS_PART else 1060):
        found, expected = run(kind, seed, ["serial", "threads", "processes", "processes"])
        assert found == expected, f"seed {seed}"
