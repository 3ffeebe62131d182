"""What every sampler registered in penstock.samplers promises."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from penstock.samplers import SAMPLERS, RandomAccess

N = 5000


@pytest.fixture(params=list(SAMPLERS))
def sampler(request: pytest.FixtureRequest) -> Any:
    """One of each, over N samples."""
    kind = SAMPLERS.get(request.param)
    return kind(range(N), seed=3) if request.param != "sequential" else kind(range(N))


def test_it_has_random_access(sampler: Any) -> None:
    """The loader may ask for any stretch."""
    assert isinstance(sampler, RandomAccess)


def test_iteration_is_the_order(sampler: Any) -> None:
    """Iterating gives, as Python ints, what order() gives."""
    walked = list(sampler)

    assert walked == sampler.order(0, len(sampler)).tolist()
    assert all(type(index) is int for index in walked)
    assert len(walked) == len(sampler)


@pytest.mark.parametrize("size", [1, 7, 64, 4096, 10_000])
def test_stretches_add_up(sampler: Any, size: int) -> None:
    """Any cut of the order into stretches is the same order; past the end there is nothing."""
    stretches = [sampler.order(start, start + size, 2) for start in range(0, N, size)]

    assert np.array_equal(np.concatenate(stretches), sampler.order(0, N, 2))
    assert len(sampler.order(N, N + 10)) == 0
    assert all(stretch.dtype == np.int64 for stretch in stretches)


def test_two_iterators_are_independent(sampler: Any) -> None:
    """Iterators of one sampler do not advance each other."""
    a, b = iter(sampler), iter(sampler)

    pairs = [(next(a), next(b)) for _ in range(100)]

    assert all(x == y for x, y in pairs)


def test_order_does_not_depend_on_the_epoch_set(sampler: Any) -> None:
    """order(epoch=k) is a pure function, so that iterators of different epochs can overlap."""
    before = sampler.order(0, 50, epoch=4).tolist()

    sampler.set_epoch(9)

    assert sampler.order(0, 50, epoch=4).tolist() == before


def test_state_is_small_json_and_resumes(sampler: Any) -> None:
    """A state is O(1), passes through JSON, and goes on at the next index."""
    walk = iter(sampler)
    for _ in range(1234):
        next(walk)
    state = json.loads(json.dumps(sampler.state_dict()))
    rest = list(walk)

    sampler.load_state_dict(state)

    assert len(json.dumps(state)) < 400
    assert list(sampler) == rest


def test_signature_is_json(sampler: Any) -> None:
    """What fixes the order passes through JSON unchanged."""
    assert json.loads(json.dumps(sampler.signature())) == sampler.signature()


def test_it_pickles(sampler: Any) -> None:
    """A copy through pickle gives the same order."""
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)
