"""Whatever only asks a loader, sampler or dataset starts, draws, opens and consumes nothing; see tests/torch, too."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from conftest import photographs
from tests.asking import ASK, ASK_TOGETHER, epochs

N = 12


class Numbers(ps.Dataset[Any]):
    """Each index beside what the global generators give; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return index, random.random(), np.random.rand(), ps.rng().random()  # noqa: NPY002  # the global one


class Stream(ps.IterableDataset[Any]):
    """The same as a stream, whose state is there once it is iterated."""

    def __init__(self) -> None:
        self.opened = 0

    def __iter__(self) -> Iterator[Any]:
        self.opened += 1
        self.at = 0
        for self.at in range(N):
            yield self.at, random.random(), ps.rng().random()

    def state_dict(self) -> dict[str, int]:
        """Fails before it is iterated."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As the protocol has it."""
        raise NotImplementedError


class Drawing:
    """A sampler of somebody else's that draws when it is iterated."""

    def __init__(self) -> None:
        self.opened = 0

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(np.random.permutation(N).tolist())  # noqa: NPY002  # the global one


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: {"dataset": Numbers(), "shuffle": True},
    "foreign": lambda: {"dataset": Numbers(), "sampler": Drawing()},
    "stream": lambda: {"dataset": Stream()},
    "filled": lambda: {"dataset": ps.ArrayDataset(np.arange(N)), "shuffle": True},
}
WORKERS: dict[str, dict[str, Any]] = {
    "serial": {"num_workers": 0},
    "threads": {"num_workers": 1, "workers": "threads"},
    "processes": {"num_workers": 1, "workers": "processes"},
    "persistent": {"num_workers": 1, "workers": "processes", "persistent_workers": True},
}


def reseed() -> None:
    """Put the global generators to one place."""
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002  # datasets draw from the global one


def standing() -> Any:
    """Where the global generators are."""
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002  # as above


def made(what: str, workers: str) -> Any:
    """A loader, and the global generators at one place."""
    reseed()
    return ps.DataLoader(batch_size=5, seed=3, **LOADERS[what](), **WORKERS[workers])


@functools.cache
def epochs_unasked(what: str, workers: str) -> list[Any]:
    """What such a loader gives where nobody asks."""
    loader = made(what, workers)
    found = epochs(loader, random.random)
    loader.close()
    return found


@pytest.mark.parametrize(
    ("question", "workers"),
    [
        (question, workers)
        for workers in WORKERS
        for question in (ASK_TOGETHER if WORKERS[workers].get("num_workers") else ASK)
    ],
)
@pytest.mark.parametrize("what", LOADERS)
def test_asking_a_loader_changes_nothing(question: str, what: str, workers: str) -> None:
    """Two epochs are the same, whoever asks before, within and behind them."""
    ask = (ASK | ASK_TOGETHER)[question]
    expected = epochs_unasked(what, workers)
    loader = made(what, workers)
    before, threads, processes = standing(), set(threading.enumerate()), set(multiprocessing.active_children())

    ask(loader)

    assert standing() == before
    assert set(threading.enumerate()) <= threads
    assert set(multiprocessing.active_children()) <= processes
    assert getattr(loader.dataset, "asked", []) == []
    assert getattr(loader.sampler, "opened", 0) + getattr(loader.dataset, "opened", 0) == 0

    found = epochs(loader, random.random, ask)

    loader.close()
    assert found == expected


SAMPLERS: dict[str, Callable[[], Any]] = {
    "random": lambda: ps.RandomSampler(range(N), seed=1),
    "replacement": lambda: ps.RandomSampler(range(N), replacement=True, num_samples=9, seed=1),
    "weighted": lambda: ps.WeightedRandomSampler(np.arange(N) + 1, 20, seed=1),
    "distributed": lambda: ps.DistributedSampler(range(N), num_replicas=2, rank=1, seed=1),
    "balanced": lambda: ps.ClassBalancedSampler(np.arange(N) % 3, seed=1),
    "batches": lambda: ps.BatchSampler(ps.RandomSampler(range(N), seed=1), 5, drop_last=False),
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_asking_a_sampler_changes_nothing(kind: str) -> None:
    """Its order is the same, whoever asks while it is iterated."""
    asked, unasked = SAMPLERS[kind](), SAMPLERS[kind]()
    reseed()
    before, found = standing(), []

    def ask() -> None:
        len(asked), repr(asked), pickle.dumps(asked), copy.deepcopy(asked)
        _ = [getattr(asked, name, None) for name in dir(asked)]

    for _ in range(2):
        ask()
        for index in asked:
            ask()
            found.append(index)

    assert found == [index for _ in range(2) for index in unasked]
    assert standing() == before


def test_asking_a_store_opens_and_reads_nothing(tmp_path: Path) -> None:
    """A dataset over a pack that is asked has no descriptor more than before, and gives the same samples."""
    photographs(tmp_path / "photos", per_class=3)
    ps.pack(tmp_path / "photos", tmp_path / "photos.lmdb")
    store = ps.open(tmp_path / "photos.lmdb")
    dataset = ps.StoreDataset(store, fields=("label",))
    expected = [dataset[i] for i in range(len(dataset))]
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), standing()

    for thing in (store, dataset):
        len(thing), repr(thing), str(thing), pickle.dumps(thing)
        _ = [getattr(thing, name, None) for name in dir(thing) if not name.startswith("__")]

    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), standing()) == before
    assert [dataset[i] for i in range(len(dataset))] == expected


def test_a_loader_shows_its_settings() -> None:
    """The kind of its dataset and what a person sets, without asking the dataset."""
    numbers = Numbers()

    assert repr(ps.DataLoader(numbers, batch_size=4, num_workers=2, workers="threads")) == (
        "DataLoader(Numbers, batch_size=4, num_workers=2, workers='threads')"
    )
    assert numbers.asked == []
