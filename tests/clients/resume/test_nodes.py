"""torchdata's nodes: a penstock loader as the source of a graph of nodes. It needs no adapter."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torchdata.nodes

from tests.clients.harness import frozen
from tests.clients.resume.lives import Case, Life, Log, Program, run_case
from tests.clients.resume.ranked import count, make_loader

Wrap = Callable[[Any], Any]


def double(batch: Any) -> Any:
    """What a later node does."""
    return [2 * batch[0], *batch[1:]]


NODES: dict[str, Wrap] = {
    "source": lambda node: node,
    "prefetcher": lambda node: torchdata.nodes.Prefetcher(node, prefetch_factor=3),
    "mapper": lambda node: torchdata.nodes.ParallelMapper(node, double, num_workers=2, method="thread"),
}


def make(case: Case, wrap: Wrap) -> Any:
    """The loader of a graph; an epoch that a state ends is an epoch without batches, as in ``StatefulDataLoader``."""
    source = torchdata.nodes.IterableWrapper(make_loader(case, seed=7, seed_per_sample=True))
    return torchdata.nodes.Loader(wrap(source), restart_on_stop_iteration=False)


def program(wrap: Wrap) -> Program:
    """A loop over epochs, which saves the state of the graph."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        graph = make(case, wrap)
        place = folder / f"at-{life.resume}"
        if life.resume:
            graph.load_state_dict(pickle.loads(place.read_bytes()))
        for _ in range(case.epochs - life.resume // count(case)):
            for batch in graph:
                log.batch(batch)
                if log.saves():
                    (folder / f"at-{log.batches}").write_bytes(pickle.dumps(graph.state_dict()))
                log.may_die()

    return train


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("source", Case(workers=2)),
        ("prefetcher", Case(drop_last=True)),
        ("prefetcher", Case(ranks=2, workers=2)),
        ("mapper", Case(ranks=3, workers=2, drop_last=True)),
    ],
    ids=str,
)
def test_killed_twice(name: str, case: Case, tmp_path: Path) -> None:
    """Within the first epoch, and within the second: what nodes have read ahead is not lost."""
    one = count(case)
    lives = [Life(0, 2, 3), Life(2, one + 2, one + 3), Life(one + 2)]
    run_case(program(NODES[name]), tmp_path, case, lives, case.epochs * one)


@pytest.mark.parametrize("name", NODES)
def test_each_batch(name: str) -> None:
    """Also the last one of an epoch: what follows is the next epoch."""
    case = Case(samples=22)
    graph = make(case, NODES[name])
    whole, states = [], []
    for _ in range(3):
        for batch in graph:
            whole.append(frozen(batch))
            states.append(pickle.dumps(graph.state_dict()))

    assert len(whole) == 3 * count(case)
    for number, state in enumerate(states, 1):
        again = make(case, NODES[name])
        again.load_state_dict(pickle.loads(state))
        assert [frozen(batch) for _ in range(4) for batch in again][: len(whole) - number] == whole[number:]
