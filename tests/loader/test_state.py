"""states: what they hold, what they refuse, and what foreign samplers and streams make of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import StateError
from tests.loader.fakes import Failing, Rows, Samples, StatefulStream, Stream, epoch, frozen


class StatefulSampler:
    """A sampler of the user's that knows where it is."""

    def __init__(self, n: int) -> None:
        self.n, self.at, self.drawn = n, 0, 0

    def __iter__(self) -> Any:
        start, self.at = self.at, 0
        for i in range(start, self.n):
            self.at = i + 1
            self.drawn += 1
            yield i * 7 % self.n
        self.at = 0

    def __len__(self) -> int:
        return self.n

    def state_dict(self) -> dict[str, int]:
        """Position."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Position."""
        self.at = state["at"]


def test_the_end_of_an_epoch_has_two_states() -> None:
    """After the last batch: an epoch of no batches, then the next one. After StopIteration: the next one."""
    loader = ps.DataLoader(Rows(16), 8, shuffle=True, seed=0)
    walk = iter(loader)
    for _ in range(2):
        next(walk)
    before = loader.state_dict()
    with pytest.raises(StopIteration):
        next(walk)
    after = loader.state_dict()
    straight = ps.DataLoader(Rows(16), 8, shuffle=True, seed=0)
    epoch(straight)
    second = epoch(straight)
    resumed = []
    for state in (before, after):
        fresh = ps.DataLoader(Rows(16), 8, shuffle=True, seed=0)
        fresh.load_state_dict(state)
        resumed.append([epoch(fresh), epoch(fresh)])

    assert (before["epoch"], before["batches"], after["epoch"], after["batches"]) == (0, 2, 1, 0)
    assert resumed[0] == [[], second]
    assert resumed[1][0] == second


def test_a_state_counts_what_was_delivered() -> None:
    """Not what was prefetched; and it does not change when iteration goes on."""
    loader = ps.DataLoader(Samples(50), 8, num_workers=2, workers="threads", prefetch_factor=3)
    walk = iter(loader)
    next(walk)
    state = loader.state_dict()
    text = json.dumps(state)
    next(walk)

    assert (state["batches"], state["samples"]) == (1, 8)
    assert json.dumps(state) == text
    assert loader.state_dict()["batches"] == 2


def test_before_the_start_a_state_is_the_start() -> None:
    """And a loaded state is given back equal until it is used."""
    loader = ps.DataLoader(Samples(), 8, shuffle=True, seed=3)
    state = loader.state_dict()

    assert (state["version"], state["seed"], state["epoch"], state["batches"]) == (1, 3, 0, 0)
    for epoch_number in (0, 5):
        loader.set_epoch(epoch_number)
        assert loader.state_dict()["epoch"] == epoch_number


def test_set_epoch_does_not_undo_a_resume() -> None:
    """Training loops call set_epoch at the top of each epoch, also of the one that is resumed."""
    loader = ps.DataLoader(Samples(), 8, seed=3)
    walk = iter(loader)
    next(walk)
    state = loader.state_dict()
    same, other = ps.DataLoader(Samples(), 8, seed=3), ps.DataLoader(Samples(), 8, seed=3)
    for fresh in (same, other):
        fresh.load_state_dict(state)
    same.set_epoch(0)
    other.set_epoch(1)

    assert len(epoch(same)) == 6
    assert len(epoch(other)) == 7


REFUSED: dict[str, tuple[Callable[[], ps.DataLoader], str]] = {
    "another length": (lambda: ps.DataLoader(Samples(51), 8, shuffle=True), "dataset=50.*51"),
    "another batch size": (lambda: ps.DataLoader(Samples(), 9, shuffle=True), "batch_size=8.*9"),
    "drop_last": (lambda: ps.DataLoader(Samples(), 8, shuffle=True, drop_last=True), "drop_last=False.*True"),
    "no shuffling": (lambda: ps.DataLoader(Samples(), 8), "sampler.type='RandomSampler'.*'SequentialSampler'"),
    "another seed": (lambda: ps.DataLoader(Samples(), 8, shuffle=True, seed=2), "seed=1, this loader was given seed=2"),
    "another sampler": (lambda: ps.DataLoader(Samples(), 8, sampler=StatefulSampler(50)), "sampler.type"),
    "other samples": (
        lambda: ps.DataLoader(Samples(), 8, sampler=ps.RandomSampler(range(50), num_samples=20)), "num_samples=50.*20"
    ),
    "a stream": (lambda: ps.DataLoader(Stream(), 8), "dataset=50.*None"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_of_another_order_is_refused(name: str) -> None:
    """The field that differs is named with both values, and the loader is as it was."""
    make, text = REFUSED[name]
    state = ps.DataLoader(Samples(), 8, shuffle=True, seed=1).state_dict()
    loader = make()
    before = loader.state_dict()

    with pytest.raises(StateError, match=text):
        loader.load_state_dict(state)

    assert loader.state_dict() == before


DAMAGED: dict[str, Any] = {
    "not a mapping": lambda state: [state],
    "empty": lambda state: {},
    "a newer version": lambda state: {**state, "version": 2},
    "a field missing": lambda state: {k: v for k, v in state.items() if k != "batches"},
    "a negative count": lambda state: {**state, "batches": -1},
    "a count that is text": lambda state: {**state, "epoch": "0"},
    "a count that is true": lambda state: {**state, "samples": True},
    "an order that is text": lambda state: {**state, "order": "x"},
    "ahead that is text": lambda state: {**state, "ahead": "xyz"},
    "a position that does not fit": lambda state: {**state, "batches": 3, "samples": 23},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_state_is_refused(name: str) -> None:
    """Nothing is guessed."""
    loader = ps.DataLoader(Samples(), 8, seed=1)

    with pytest.raises(StateError):
        loader.load_state_dict(DAMAGED[name](loader.state_dict()))


def test_a_sampler_with_state_is_not_run_forward() -> None:
    """Asked for its state after each batch, and given it back: nothing is drawn twice."""
    loader = ps.DataLoader(Failing(20, {}), 4, sampler=StatefulSampler(20), num_workers=2, workers="threads")
    straight = [batch.tolist() for batch in ps.DataLoader(Failing(20, {}), 4, sampler=StatefulSampler(20))]
    walk = iter(loader)
    for _ in range(2):
        next(walk)
    state = json.loads(json.dumps(loader.state_dict()))
    sampler = StatefulSampler(20)
    resumed = ps.DataLoader(Failing(20, {}), 4, sampler=sampler)
    resumed.load_state_dict(state)

    assert [batch.tolist() for batch in resumed] == straight[2:]
    assert sampler.drawn == 12


@pytest.mark.parametrize("position", range(6))
def test_a_sampler_with_state_resumes_at_every_batch(position: int) -> None:
    """Also after a short last one, where many samplers say of themselves that they are at their start."""
    straight = [batch.tolist() for batch in ps.DataLoader(Failing(18, {}), 4, sampler=StatefulSampler(18))]
    loader = ps.DataLoader(Failing(18, {}), 4, sampler=StatefulSampler(18))
    walk = iter(loader)
    for _ in range(position):
        next(walk, None)
    resumed = ps.DataLoader(Failing(18, {}), 4, sampler=StatefulSampler(18), num_workers=2, workers="threads")
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    assert [batch.tolist() for batch in resumed] == straight[position:]


@pytest.mark.parametrize("how", ["sampler", "batch_sampler"])
def test_a_sampler_without_state_is_run_forward(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its draws are repeated, without reading a sample, and a warning is logged."""
    read: list[int] = []

    class Reads(Samples):
        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return index

    indices = [3, 1, 4, 1, 5, 9, 2, 6]
    batches = [indices[i : i + 2] for i in range(0, 8, 2)]
    kwargs: dict[str, Any] = (
        {"batch_sampler": batches} if how == "batch_sampler" else {"sampler": indices, "batch_size": 2}
    )
    loader = ps.DataLoader(Reads(), **kwargs)
    walk = iter(loader)
    for _ in range(3):
        next(walk)
    resumed = ps.DataLoader(Reads(), **kwargs)
    resumed.load_state_dict(loader.state_dict())
    read.clear()

    with caplog.at_level(logging.WARNING):
        tail = [batch.tolist() for batch in resumed]

    assert tail == [[2, 6]]
    assert read == [2, 6]
    assert "no state_dict: running it forward" in caplog.text


def test_a_stream_with_state_goes_on_at_once() -> None:
    """Its state after each batch travels with the batch; nothing is read again."""
    loader = ps.DataLoader(StatefulStream(), 8, num_workers=2, workers="threads")
    walk = iter(loader)
    for _ in range(3):
        next(walk)
    stream = StatefulStream()
    resumed = ps.DataLoader(stream, 8)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    assert next(iter(resumed)).tolist() == list(range(24, 32))
    assert stream.drawn == 8


def test_a_stream_whose_iterator_has_state_goes_on_at_once() -> None:
    """The iterator may be the one that knows."""

    class Counter:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if self.at == 20:
                raise StopIteration
            self.at += 1
            return self.at - 1

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    class Source(ps.IterableDataset[int]):
        def __iter__(self) -> Any:
            return Counter()

    loader = ps.DataLoader(Source(), 6)
    walk = iter(loader)
    next(walk)
    resumed = ps.DataLoader(Source(), 6, num_workers=1, workers="threads")
    resumed.load_state_dict(loader.state_dict())

    assert [batch.tolist()[0] for batch in resumed] == [6, 12, 18]


def test_a_stream_without_state_is_run_forward(caplog: pytest.LogCaptureFixture) -> None:
    """It is iterated to where it was, each sample under its own key, and a warning is logged."""
    loader = ps.DataLoader(Stream(), 8, seed=2)
    whole = epoch(ps.DataLoader(Stream(), 8, seed=2))
    walk = iter(loader)
    for _ in range(2):
        next(walk)
    resumed = ps.DataLoader(Stream(), 8, seed=2)
    resumed.load_state_dict(loader.state_dict())

    with caplog.at_level(logging.WARNING):
        tail = epoch(resumed)

    assert tail == whole[2:]
    assert "running it forward over 16 samples" in caplog.text


def test_a_users_random_sampler_resumes_with_its_seed() -> None:
    """The sampler's own seed is part of the state."""
    loader = ps.DataLoader(Samples(), 8, sampler=ps.RandomSampler(range(50)), seed=0)
    walk = iter(loader)
    next(walk)
    resumed = ps.DataLoader(Samples(), 8, sampler=ps.RandomSampler(range(50)), seed=0)
    resumed.load_state_dict(loader.state_dict())

    assert epoch(resumed) == [frozen(batch) for batch in walk]


def test_a_break_keeps_the_position() -> None:
    """After a break the state is in the middle; without loading it, the next loop is the next epoch."""
    loader = ps.DataLoader(Samples(), 8, seed=1, num_workers=2, workers="threads")
    for _, _ in zip(range(3), loader, strict=False):
        pass
    state = loader.state_dict()

    assert (state["epoch"], state["batches"]) == (0, 3)
    assert len(epoch(loader)) == 7
    assert loader.state_dict()["epoch"] == 2
