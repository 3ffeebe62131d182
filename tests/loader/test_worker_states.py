"""What workers keep from sample to sample is part of a state: a dataset's own, and their global random generators."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import StateError

KINDS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2, "workers": "threads"},
    {"num_workers": 2, "workers": "processes"},
]


class Counting(ps.Dataset[Any]):
    """How often this copy was asked, with its state."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> list[int]:
        self.calls += 1
        return [index, self.calls]

    def state_dict(self) -> dict[str, int]:
        """The number of calls."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from it."""
        self.calls = state["calls"]


class Noisy(ps.Dataset[Any]):
    """Numbers of the worker's global generators."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> list[int]:
        return [index, int(np.random.randint(1 << 30)), random.getrandbits(30)]  # noqa: NPY002  # the global ones are meant


def make(dataset: Any, **more: Any) -> Any:
    """A loader of six batches in a shuffled order."""
    return ps.DataLoader(dataset, 4, shuffle=True, seed=2, **more)


def rest_and_state(loader: Any, batches: int = 3) -> tuple[list[Any], Any]:
    """What comes after ``batches`` batches, and the state there, as JSON keeps it."""
    walk = iter(loader)
    for _ in range(batches):
        next(walk)
    state = json.loads(json.dumps(loader.state_dict()))
    return [frozen(batch) for batch in walk], state


def frozen(batch: Any) -> Any:
    """Lists in place of arrays."""
    return [column.tolist() for column in batch]


@pytest.mark.parametrize("more", KINDS[::2], ids=["serial", "processes"])
def test_a_dataset_with_a_state_resumes(more: dict[str, Any]) -> None:
    """A map-style dataset's own state is taken with each batch, and loaded where it works."""
    expected, state = rest_and_state(make(Counting(), **more))

    resumed = make(Counting(), **more)
    resumed.load_state_dict(state)

    assert [frozen(batch) for batch in resumed] == expected


def test_generators_of_worker_processes_resume() -> None:
    """Code that draws from a worker's global generators draws the same numbers after a resume."""
    expected, state = rest_and_state(make(Noisy(), **KINDS[2]))

    resumed = make(Noisy(), **KINDS[2])
    resumed.load_state_dict(state)

    assert [frozen(batch) for batch in resumed] == expected


def test_another_number_of_processes_goes_on_without_their_generators() -> None:
    """The order stays; numbers of global generators cannot, where there are other workers."""
    expected, state = rest_and_state(make(Noisy(), **KINDS[2]))

    resumed = make(Noisy(), num_workers=1, workers="processes")
    resumed.load_state_dict(state)

    assert [batch[0].tolist() for batch in resumed] == [batch[0] for batch in expected]


def test_datasets_that_have_gone_different_ways_are_not_mixed() -> None:
    """Two processes have counted differently: one cannot go on from that, and the error says what can."""
    _, state = rest_and_state(make(Counting(), **KINDS[2]))

    with pytest.raises(StateError, match="give num_workers=2"):
        make(Counting(), num_workers=1, workers="processes").load_state_dict(state)


def test_damaged_generators_are_refused() -> None:
    """A state from a file is checked, and nothing in it is unpickled."""
    _, state = rest_and_state(make(Noisy(), **KINDS[2]))
    state["workers"]["shares"][0][3]["numpy"] = "gASV"

    with pytest.raises(StateError, match="random generators is damaged"):
        make(Noisy(), **KINDS[2]).load_state_dict(state)
