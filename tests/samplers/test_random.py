"""RandomSampler and SubsetRandomSampler: what an epoch holds, and what state keeps."""

from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pytest

from penstock.errors import ArgumentError, StateError
from penstock.samplers import RandomSampler, SubsetRandomSampler


def test_an_epoch_is_a_permutation() -> None:
    """Without replacement every index comes once an epoch."""
    sampler = RandomSampler(range(1000), seed=1)

    assert sorted(sampler) == list(range(1000))
    assert len(sampler) == 1000


def test_epochs_differ_and_repeat() -> None:
    """set_epoch chooses the order; the same epoch is the same order again."""
    sampler = RandomSampler(range(100), seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    sampler.set_epoch(0)

    assert first != second
    assert list(sampler) == first
    assert sampler.order(0, 100, epoch=1).tolist() == second


def test_without_a_seed_two_samplers_differ() -> None:
    """No seed: one is drawn from the operating system, and kept."""
    a, b = RandomSampler(range(1000)), RandomSampler(range(1000))

    assert list(a) == list(a)
    assert list(a) != list(b)


def test_more_samples_than_the_set_has_are_whole_permutations() -> None:
    """num_samples beyond the length: each lap is a permutation of its own, the last one is cut."""
    order = RandomSampler(range(10), num_samples=25, seed=2).order(0, 25).tolist()

    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10))
    assert order[:10] != order[10:20]
    assert len(set(order[20:])) == 5


def test_laps_can_be_cut_anywhere() -> None:
    """A stretch across laps is what the whole order has there."""
    sampler = RandomSampler(range(7), num_samples=40, seed=2)
    whole = sampler.order(0, 40).tolist()

    pieces = [sampler.order(start, start + 3).tolist() for start in range(0, 40, 3)]

    assert [index for piece in pieces for index in piece] == whole


def test_replacement_draws_independently_and_evenly() -> None:
    """With replacement each index is as likely as any other (chi-squared), and repeats occur."""
    order = RandomSampler(range(50), replacement=True, num_samples=50_000, seed=3).order(0, 50_000)

    counts = np.bincount(order, minlength=50)

    assert len(counts) == 50
    assert ((counts - 1000) ** 2 / 1000).sum() < 85.4  # p = 0.001 with 49 degrees of freedom
    assert len(set(order[:50].tolist())) < 50


@pytest.mark.parametrize("replacement", [False, True])
def test_a_thousand_million_items_cost_nothing(replacement: bool) -> None:
    """Construction, state, and a seek to the middle of 10**9 items take kilobytes."""
    tracemalloc.start()
    sampler = RandomSampler(range(10**9), replacement, seed=4)
    sampler.load_state_dict({**sampler.state_dict(), "position": 5 * 10**8})
    walk = iter(sampler)
    drawn = [next(walk) for _ in range(10)]
    state = json.dumps(sampler.state_dict())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2_000_000
    assert len(state) < 300
    assert drawn == sampler.order(5 * 10**8, 5 * 10**8 + 10).tolist()


def test_state_resumes_at_every_position() -> None:
    """A fresh sampler that loads a state goes on where it was taken, in that epoch, whatever its own seed."""
    sampler = RandomSampler(range(20), seed=5)
    sampler.set_epoch(3)
    walk, whole = iter(sampler), sampler.order(0, 20).tolist()
    states = [json.loads(json.dumps(sampler.state_dict()))]
    for _ in whole:
        next(walk)
        states.append(json.loads(json.dumps(sampler.state_dict())))

    for position, state in enumerate(states[:-1]):
        fresh = RandomSampler(range(20))
        fresh.load_state_dict(state)

        assert fresh.state_dict() == state
        assert list(fresh) == whole[position:]
        assert list(fresh) == whole  # the next pass is a whole one


def test_a_state_of_other_parameters_is_refused() -> None:
    """A state names what differs."""
    state = RandomSampler(range(20), seed=5).state_dict()

    with pytest.raises(StateError, match=r"length=20.*21"):
        RandomSampler(range(21)).load_state_dict(state)
    with pytest.raises(StateError, match="type='RandomSampler'"):
        SubsetRandomSampler([1, 2]).load_state_dict(state)
    with pytest.raises(StateError, match="missing"):
        RandomSampler(range(20)).load_state_dict({"sampler": {}})


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"replacement": 1}, TypeError, "replacement should be a boolean value"),
        ({"num_samples": 0}, ArgumentError, "num_samples should be a positive integer"),
        ({"num_samples": 2.0}, ArgumentError, "num_samples should be a positive integer"),
        ({"seed": -1}, ArgumentError, "seed should be a non-negative integer"),
        ({"seed": 2**64}, ArgumentError, r"in \[0, 2\*\*64\)"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(kwargs: dict[str, object], error: type[Exception], text: str) -> None:
    """Each wrong argument is named with its value."""
    with pytest.raises(error, match=text):
        RandomSampler(range(5), **kwargs)  # type: ignore[arg-type]  # wrong on purpose


def test_an_empty_set_cannot_be_shuffled() -> None:
    """No samples: num_samples=0 is refused, as in torch."""
    with pytest.raises(ArgumentError, match="num_samples=0"):
        RandomSampler([])


def test_a_subset_is_shuffled() -> None:
    """SubsetRandomSampler gives the given indices, each as often as given, in an order by seed and epoch."""
    sampler = SubsetRandomSampler([5, 7, 7, 100], seed=1)
    first = list(sampler)
    orders = {tuple(sampler.order(0, 4, epoch)) for epoch in range(20)}

    assert sorted(first) == [5, 7, 7, 100]
    assert len(orders) > 1


def test_a_subset_of_nothing_is_empty() -> None:
    """An empty subset is an empty epoch, as in torch."""
    assert list(SubsetRandomSampler([])) == []


def test_a_subset_of_other_indices_is_another_order() -> None:
    """The signature tells subsets of equal length apart."""
    assert SubsetRandomSampler([1, 2]).signature() != SubsetRandomSampler([1, 3]).signature()


def test_indices_must_be_integers() -> None:
    """Floats are no indices."""
    with pytest.raises(ArgumentError, match="sequence of integers"):
        SubsetRandomSampler([0.5, 1])  # type: ignore[list-item]  # wrong on purpose


def test_samplers_pickle() -> None:
    """A pickled sampler gives the same order."""
    sampler = RandomSampler(range(30), seed=9)

    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)
