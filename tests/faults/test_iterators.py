"""Two iterators, nested loops, and randomness that does not depend on who works (faults 12, 13, A18, A23)."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.faults.conftest import Load
from tests.faults.harness import Indices, workers_of


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_12_nested_loops_see_every_pair(load: Load, persistent_workers: bool) -> None:
    """Fault 12: 64 pairs of 8 batches, also with workers that persist."""
    loader = load(Indices(8), 1, persistent_workers=persistent_workers)

    pairs = [(int(a[0]), int(b[0])) for a in loader for b in loader]
    loader.close()

    assert pairs == [(a, b) for a in range(8) for b in range(8)]


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_12_a_second_iterator_leaves_the_first_alone(load: Load, persistent_workers: bool) -> None:
    """Fault 12: both give all batches, in whatever turns they are asked."""
    loader = load(Indices(16), 2, persistent_workers=persistent_workers)
    one = iter(loader)
    first = [next(one).tolist(), next(one).tolist()]
    two = iter(loader)
    second = [next(two).tolist()]
    for batch in one:
        first.append(batch.tolist())
        second += [batch.tolist() for batch in [next(two, None)] if batch is not None]
    second += [batch.tolist() for batch in two]
    del one, two
    loader.close()

    assert first == second == [[i, i + 1] for i in range(0, 16, 2)]


def test_12_persistent_workers_stay_the_same_processes(load: Load) -> None:
    """Fault 12: epoch after epoch, as long as nobody asks for two iterators."""
    loader = load(Indices(16), persistent_workers=True)
    seen = []
    for _ in range(3):
        list(loader)
        seen.append(workers_of())
    loader.close()

    assert len(seen[0]) == 2
    assert seen[0] == seen[1] == seen[2]


class OwnGenerator(Indices):
    """The fault: every worker begins with a copy of the same generator."""

    def __init__(self, n: int = 16) -> None:
        super().__init__(n)
        self.rng = np.random.default_rng(7)

    def __getitem__(self, index: int) -> Any:
        return self.rng.random()


class Keyed(Indices):
    """What penstock has for it."""

    def __getitem__(self, index: int) -> Any:
        return ps.rng().random()


def test_13_randomness_of_a_sample_is_its_own() -> None:
    """Fault 13: penstock.rng() gives each sample other numbers in each epoch, the same with any workers."""
    seen = []
    for num_workers, workers in ((0, "serial"), (1, "processes"), (2, "processes"), (2, "threads")):
        loader = ps.DataLoader(Keyed(16), 4, num_workers=num_workers, workers=workers, seed=3)
        seen.append([np.concatenate(list(loader)).tolist() for _ in range(2)])

    assert all(epochs == seen[0] for epochs in seen)
    assert len(set(seen[0][0] + seen[0][1])) == 32


def test_13_a_generator_from_the_parent_is_copied() -> None:
    """Fault 13: default_rng() in a dataset is the same in every worker: why penstock.rng() is there."""
    values = np.concatenate(list(ps.DataLoader(OwnGenerator(), 1, num_workers=2, workers="processes"))).tolist()

    assert len(set(values)) == 8


class Everyone(Indices):
    """Draws from each generator that user code may draw from."""

    def __getitem__(self, index: int) -> Any:
        return np.array([random.random(), np.random.random(), float(os.getpid())])  # noqa: NPY002  # as user code does


def test_a23_global_generators_differ_between_workers_and_epochs(load: Load) -> None:
    """Fault A23: no two samples of two epochs with the same number, from `random` or from NumPy."""
    loader = load(Everyone(32))
    seen = np.concatenate([np.asarray(batch) for _ in range(2) for batch in loader])

    assert len({*seen[:, 0]}) == 64
    assert len({*seen[:, 1]}) == 64
    assert len({*seen[:, 2]}) == 4
