"""Whatever only asks a loader starts, draws, opens and consumes nothing: what follows is as if nobody had asked."""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import StateError  # noqa: E402  # as above
from tests.asking import ASK, ASK_TOGETHER, epochs  # noqa: E402  # as above

TORCHS = torch.utils.data.DataLoader
N = 12


class Numbers(pt.Dataset[Any]):
    """Each index beside what every global generator gives; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return index, random.random(), np.random.rand(), torch.rand(2)  # noqa: NPY002  # the global one


class Stream(pt.IterableDataset[Any]):
    """The same as a stream, which says where it is once it is iterated."""

    def __init__(self) -> None:
        self.opened = 0

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[Any]:
        self.opened += 1
        self.at = 0
        for self.at in range(N):
            yield self.at, random.random(), np.random.rand(), torch.rand(2)  # noqa: NPY002  # the global one

    def state_dict(self) -> dict[str, int]:
        """Fails before it is iterated."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As the protocol has it."""
        raise NotImplementedError


class Drawing(pt.Sampler[int]):
    """Draws when it is iterated; counts how often."""

    def __init__(self) -> None:
        self.opened = 0

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(torch.randperm(N).tolist())


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: {"dataset": Numbers(), "shuffle": True},
    "own generator": lambda: {"dataset": Numbers(), "shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "sampler": lambda: {"dataset": Numbers(), "sampler": Drawing()},
    "one by one": lambda: {"dataset": Numbers(), "sampler": Drawing(), "batch_size": None},
    "stream": lambda: {"dataset": Stream()},
    "filled": lambda: {"dataset": ps.ArrayDataset(np.arange(N)), "shuffle": True},
}
WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "processes": {"num_workers": 2, "multiprocessing_context": "fork"},
    "persistent": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
}


def reseed() -> None:
    """Put every global generator to one place."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002  # datasets draw from the global one


def standing() -> Any:
    """Where every global generator is."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002  # as above


def draw() -> float:
    """From torch's global generator."""
    return float(torch.rand(1))


def made(kind: Any, what: str, workers: str) -> Any:
    """A loader of class ``kind``."""
    return kind(**{"batch_size": 5, **LOADERS[what](), **WORKERS[workers]})


def is_slow(what: str, workers: str) -> bool:
    """Whether `make test-slow` tries it: each kind of order is tried in one process and in workers that stay."""
    return workers == "processes" and what not in {"shuffled", "stream"}


@functools.cache
def epochs_of_torch(what: str, workers: str) -> list[Any]:
    """What torch's loader gives where nobody asks."""
    reseed()
    return epochs(made(TORCHS, what, workers), draw)


@pytest.mark.parametrize(
    ("what", "question", "workers"),
    [
        pytest.param(what, question, workers, marks=[pytest.mark.slow] * is_slow(what, workers))
        for what in LOADERS
        for workers in WORKERS
        for question in (ASK_TOGETHER if WORKERS[workers].get("num_workers") else ASK)
    ],
)
def test_asking_changes_no_batch_and_no_random_number(question: str, what: str, workers: str) -> None:
    """Two epochs are torch's, with torch's random numbers, whoever asks before, within and behind them."""
    ask = (ASK | ASK_TOGETHER)[question]
    theirs = epochs_of_torch(what, workers)
    reseed()
    loader = made(pt.DataLoader, what, workers)
    before, threads, processes = standing(), set(threading.enumerate()), set(multiprocessing.active_children())

    ask(loader)

    assert standing() == before
    assert set(threading.enumerate()) <= threads
    assert set(multiprocessing.active_children()) <= processes
    assert getattr(loader.dataset, "asked", []) == []
    assert getattr(loader.sampler, "opened", 0) + getattr(loader.dataset, "opened", 0) == 0

    ours = epochs(loader, draw, ask)

    loader.close()
    assert ours == theirs


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sampler_that_is_put_in_after_a_state_was_asked_for_is_iterated(num_workers: int) -> None:
    """As Accelerate does it: the state is asked for when a loader is wrapped, the sampler is exchanged afterwards."""
    loader: Any = pt.DataLoader(Numbers(), 5, shuffle=True, num_workers=num_workers)
    state = loader.state_dict()
    loader.batch_sampler.sampler = range(N - 1, -1, -1)

    assert [int(index) for batch in loader for index in batch[0]] == list(range(N - 1, -1, -1))

    loader.load_state_dict(state)

    assert [int(index) for batch in loader for index in batch[0]] == list(range(N - 1, -1, -1))


@pytest.mark.parametrize(
    ("what", "workers"),
    [
        *(
            pytest.param(*pair, marks=[pytest.mark.slow] * is_slow(*pair))
            for pair in itertools.product(LOADERS, ["serial", "processes"])
        ),
        ("shuffled", "persistent"),
        ("stream", "persistent"),
    ],
)
def test_a_state_from_before_the_epoch_begins_it_alike(what: str, workers: str) -> None:
    """Elsewhere, both epochs are those that the loader had which was asked."""
    reseed()
    loader = made(pt.DataLoader, what, workers)
    state = json.loads(json.dumps(loader.state_dict()))
    whole = [found for found in epochs(loader, draw) if isinstance(found, str)]
    loader.close()
    torch.manual_seed(99)
    again = made(pt.DataLoader, what, workers)

    again.load_state_dict(state)

    assert again.state_dict() == state
    assert [found for found in epochs(again, draw) if isinstance(found, str)] == whole
    again.close()


@pytest.mark.parametrize(
    ("what", "first", "second"),
    [
        *(("shuffled", *pair) for pair in itertools.permutations(WORKERS, 2)),
        *(
            (what, *pair)
            for what in ("own generator", "filled")
            for pair in (("serial", "processes"), ("processes", "serial"))
        ),
    ],
)
def test_the_order_does_not_hang_on_workers(what: str, first: str, second: str) -> None:
    """The epoch that a state was taken before has the same order with workers of another kind."""
    reseed()
    loader = made(pt.DataLoader, what, first)
    state = json.loads(json.dumps(loader.state_dict()))
    whole = [batch[0].tolist() for batch in loader]
    loader.close()
    torch.manual_seed(99)
    again = made(pt.DataLoader, what, second)

    again.load_state_dict(state)

    assert [batch[0].tolist() for batch in again] == whole
    again.close()


def test_a_state_from_before_the_epoch_is_refused_by_another_dataset() -> None:
    """Nothing is drawn yet, but it says whose state it is."""
    state = pt.DataLoader(Numbers(), 5).state_dict()

    with pytest.raises(StateError, match="dataset=12"):
        pt.DataLoader(list(range(13)), 5).load_state_dict(state)


def test_a_dataset_with_a_state_of_its_own_goes_back_to_where_it_was() -> None:
    """A state from before the first batch, loaded in mid-epoch, begins anew: the dataset is told."""

    class Counting(pt.IterableDataset[int]):
        at = 0

        def __iter__(self) -> Iterator[int]:
            while self.at < N:
                self.at += 1
                yield self.at - 1

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    loader = pt.DataLoader(Counting(), 4)
    state = loader.state_dict()
    first = [batch.tolist() for batch in itertools.islice(loader, 2)]

    loader.load_state_dict(state)

    assert first == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
