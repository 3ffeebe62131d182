"""What every sampler registered in penstock.samplers promises."""

from __future__ import annotations

import inspect
import itertools
import json
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from penstock.datasets.mixture.interleaving import Interleaving
from penstock.datasets.mixture.sampler import MixtureOrder
from penstock.datasets.mixture.shares import Stage
from penstock.errors import ArgumentError, StateError
from penstock.samplers import BATCH_SAMPLERS, SAMPLERS, RandomAccess

N = 5000
_LABELS: Final = np.arange(N) ** 2 % 13
_SIZES: Final = np.arange(N) * 7919 % 1000

_MIXTURE: Final = MixtureOrder(Interleaving([Stage(0, (0.7, 0.3))]), np.array([N, 60]), N)

# How each is made over about N samples; ranks and other seeds come as keywords.
MADE: Final[dict[str, Callable[..., Any]]] = {
    "sequential": lambda make, **_: make(range(N)),
    "random": lambda make, **kwargs: make(range(N), **kwargs),
    "subset-random": lambda make, **kwargs: make(range(N), **kwargs),
    "weighted-random": lambda make, **kwargs: make(1 + _SIZES, N, **kwargs),
    "distributed": lambda make, num_replicas=1, rank=0, **kwargs: make(range(N), num_replicas, rank, **kwargs),
    "distributed-weighted": lambda make, num_replicas=1, rank=0, **kwargs: make(
        1 + _SIZES, N, num_replicas=num_replicas, rank=rank, **kwargs
    ),
    "class-balanced": lambda make, **kwargs: make(_LABELS, **kwargs),
    "repeat-factor": lambda make, **kwargs: make(_LABELS, 0.1, **kwargs),
    "mixture": lambda make, **kwargs: make(_MIXTURE, **kwargs),
    "bucket": lambda make, **kwargs: make(_SIZES, 4, num_buckets=5, **kwargs),
}


def registered(name: str) -> type[Any]:
    """The class registered under this name, in either registry."""
    found: type[Any] = (SAMPLERS if name in SAMPLERS else BATCH_SAMPLERS).get(name)
    return found


def made(name: str, **kwargs: Any) -> Any:
    """One over about N samples, seed 3."""
    return MADE[name](registered(name), **{"seed": 3, **kwargs})


def knows_ranks(name: str) -> bool:
    """Whether the sampler takes ranks: then it promises more."""
    return "num_replicas" in inspect.signature(registered(name)).parameters


RANKED: Final = [name for name in (*SAMPLERS, *BATCH_SAMPLERS) if knows_ranks(name)]


@pytest.fixture(params=list(SAMPLERS))
def sampler(request: pytest.FixtureRequest) -> Any:
    """One of each, over about N samples."""
    return made(request.param)


@pytest.fixture(params=[*SAMPLERS, *BATCH_SAMPLERS])
def any_sampler(request: pytest.FixtureRequest) -> Any:
    """One of each, of indices or of batches."""
    return made(request.param)


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
    length = len(sampler)
    end = min(length, 700 * size)
    stretches = [sampler.order(start, min(start + size, end), 2) for start in range(0, end, size)]

    assert np.array_equal(np.concatenate(stretches), sampler.order(0, end, 2))
    assert len(sampler.order(length, length + 10)) == 0
    assert all(stretch.dtype == np.int64 for stretch in stretches)


def test_two_iterators_are_independent(any_sampler: Any) -> None:
    """Iterators of one sampler do not advance each other."""
    a, b = iter(any_sampler), iter(any_sampler)

    pairs = [(next(a), next(b)) for _ in range(100)]

    assert all(x == y for x, y in pairs)


def test_order_does_not_depend_on_the_epoch_set(sampler: Any) -> None:
    """order(epoch=k) is a pure function, so that iterators of different epochs can overlap."""
    before = sampler.order(0, 50, epoch=4).tolist()

    sampler.set_epoch(9)

    assert sampler.order(0, 50, epoch=4).tolist() == before


def test_an_epoch_under_way_keeps_its_order(any_sampler: Any) -> None:
    """set_epoch is for the next iterator, not for one that has begun."""
    whole = list(any_sampler)
    walk = iter(any_sampler)
    begun = [next(walk) for _ in range(10)]

    any_sampler.set_epoch(9)

    assert begun + list(walk) == whole


@pytest.mark.parametrize("name", [name for name in (*SAMPLERS, *BATCH_SAMPLERS) if name != "sequential"])
def test_seed_and_epoch_fix_the_order(name: str) -> None:
    """The same seed and epoch are the same order, another seed or epoch is another."""
    first, second = made(name), made(name)
    orders = [list(first)]
    for epoch in (1, 2):
        first.set_epoch(epoch)
        orders.append(list(first))
    orders.append(list(made(name, seed=4)))

    first.set_epoch(0)

    assert list(first) == list(second) == orders[0]
    assert all(orders[i] != orders[j] for i in range(4) for j in range(i))


@pytest.mark.parametrize("name", [name for name in (*SAMPLERS, *BATCH_SAMPLERS) if name != "sequential"])
def test_a_state_brings_its_seed(name: str) -> None:
    """What a sampler has computed for its own seed does not show after a state of another."""
    sampler = made(name, seed=4)
    assert list(sampler) != list(made(name))

    sampler.load_state_dict(made(name).state_dict())

    assert list(sampler) == list(made(name))


def test_state_is_small_json_and_resumes(any_sampler: Any) -> None:
    """A state is O(1), passes through JSON, and goes on at the next element."""
    walk = iter(any_sampler)
    for _ in range(1234):
        next(walk)
    state = json.loads(json.dumps(any_sampler.state_dict()))
    rest = list(walk)

    any_sampler.load_state_dict(state)

    assert len(json.dumps(state)) < 400
    assert list(any_sampler) == rest


@pytest.mark.parametrize("name", ["sampler", "seed", "epoch", "position"])
@pytest.mark.parametrize("damage", ["5", -1, 2.5, [1]])
def test_a_damaged_state_is_refused_and_changes_nothing(any_sampler: Any, name: str, damage: Any) -> None:
    """Whatever field holds what it cannot, the error is a StateError and the sampler goes on as it was."""
    whole = list(any_sampler)

    with pytest.raises(StateError):
        any_sampler.load_state_dict({**any_sampler.state_dict(), name: damage})

    assert list(any_sampler) == whole


def test_signature_is_json(any_sampler: Any) -> None:
    """What fixes the order passes through JSON unchanged."""
    assert json.loads(json.dumps(any_sampler.signature())) == any_sampler.signature()


def test_it_pickles(any_sampler: Any) -> None:
    """A copy through pickle gives the same order, and carries no order with it that has been computed."""
    fresh = len(pickle.dumps(any_sampler))
    whole = list(any_sampler)

    again = pickle.loads(pickle.dumps(any_sampler))

    assert list(again) == whole
    assert len(pickle.dumps(any_sampler)) < fresh + 1000


# of those that know ranks


def dealt(name: str, num_replicas: int, **kwargs: Any) -> list[list[Any]]:
    """The whole epoch of each rank."""
    return [list(made(name, num_replicas=num_replicas, rank=rank, **kwargs)) for rank in range(num_replicas)]


def in_turn(ranks: list[list[Any]]) -> list[Any]:
    """First of each rank, second of each rank, ..."""
    return [element for step in zip(*ranks, strict=True) for element in step]


def order_of_one(name: str, num_replicas: int) -> list[Any]:
    """What a single rank gets where the order is that for this many."""
    return list(made(name, **({"run_length": num_replicas} if name == "bucket" else {})))


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("name", RANKED)
def test_ranks_take_turns_in_one_order(name: str, num_replicas: int) -> None:
    """Ranks have equally many; in turn they have a single rank's order, and then its head again."""
    whole = order_of_one(name, num_replicas)

    ranks = dealt(name, num_replicas)

    assert {len(rank) for rank in ranks} == {-(-len(whole) // num_replicas)}
    assert in_turn(ranks)[: len(whole)] == whole
    assert in_turn(ranks)[len(whole) :] == whole[: -len(whole) % num_replicas]
    assert len(made(name, num_replicas=num_replicas, rank=num_replicas - 1)) == len(ranks[-1])


@pytest.mark.parametrize("num_replicas", [2, 7, 64])
@pytest.mark.parametrize("name", RANKED)
def test_a_dropped_tail_is_shorter_than_the_ranks(name: str, num_replicas: int) -> None:
    """Where nothing is to be repeated, ranks have equally many of a single rank's order but for its tail."""
    whole = order_of_one(name, num_replicas)
    kwargs: dict[str, Any] = {"uneven": "drop"} if name == "bucket" else {"drop_last": True}

    ranks = dealt(name, num_replicas, **kwargs)

    assert in_turn(ranks) == whole[: len(whole) // num_replicas * num_replicas]


@pytest.mark.parametrize("num_replicas", [2, 7, 64])
@pytest.mark.parametrize("name", RANKED)
def test_uneven_ranks_have_each_element_once(name: str, num_replicas: int) -> None:
    """In turn they have a single rank's order, neither more nor less; the first ones one element more."""
    whole = order_of_one(name, num_replicas)
    kwargs: dict[str, Any] = {"uneven": "keep"} if name == "bucket" else {"drop_last": "uneven"}

    ranks = dealt(name, num_replicas, **kwargs)
    turns = [element for step in itertools.zip_longest(*ranks) for element in step if element is not None]

    assert turns == whole
    assert len(ranks[0]) - len(ranks[-1]) == (len(whole) % num_replicas > 0)
    assert len(made(name, num_replicas=num_replicas, rank=num_replicas - 1, **kwargs)) == len(ranks[-1])


@pytest.mark.parametrize("consumed", [0, 100])
@pytest.mark.parametrize("name", RANKED)
def test_repeated_elements_are_marked(name: str, consumed: int) -> None:
    """What is not marked is a single rank's order, each once; also in what remains for other ranks."""
    fixed = {"run_length": 7} if name == "bucket" else {}
    whole, marks, elements = list(made(name, **fixed)), [], []
    for rank in range(7):
        rest = made(name, num_replicas=7, rank=rank, **fixed).remaining(consumed)
        read = rest.batches if name == "bucket" else lambda *part, rest=rest: rest.order(*part).tolist()
        elements.append(read(0, N))
        marks.append(rest.find_repeats(0, N).tolist())
        assert rest.find_repeats(3, 5).tolist() == marks[-1][3:5]
    pairs = zip(in_turn(elements), in_turn(marks), strict=True)

    assert [element for element, is_repeat in pairs if not is_repeat] == whole[consumed:]
    assert made(name, num_replicas=7, rank=6, **fixed).find_repeats(0, N).tolist()[:-1] == [False] * (
        -(-len(whole) // 7) - 1
    )


@pytest.mark.parametrize("name", RANKED)
def test_one_state_serves_every_rank(name: str) -> None:
    """Ranks that have come equally far have equal states, and each goes on where it was by any of them."""
    samplers = [made(name, num_replicas=3, rank=rank) for rank in range(3)]
    walks = [iter(sampler) for sampler in samplers]
    for _ in range(101):
        for walk in walks:
            next(walk)
    states = [json.loads(json.dumps(sampler.state_dict())) for sampler in samplers]

    assert states[0] == states[1] == states[2]
    for rank, walk in enumerate(walks):
        fresh = made(name, num_replicas=3, rank=rank, seed=0)
        fresh.load_state_dict(states[0])
        whole = list(made(name, num_replicas=3, rank=rank))

        assert list(fresh) == list(walk) == whole[101:]
        assert list(fresh) == whole


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (3, 8), (4, 1), (1, 5)])
@pytest.mark.parametrize("name", RANKED)
def test_another_number_of_ranks_goes_on(name: str, before: int, after: int) -> None:
    """A state of so many ranks, taken after any step, is resumed by another number: what is left is what they have."""
    fixed = {"run_length": 4} if name == "bucket" else {}
    whole, first = list(made(name, **fixed)), made(name, num_replicas=before, rank=before - 1, **fixed)
    walk, steps = iter(first), 37
    for _ in range(steps):
        next(walk)
    state = json.loads(json.dumps(first.state_dict()))

    ranks = []
    for rank in range(after):
        ranks.append(made(name, num_replicas=after, rank=rank, **fixed))
        ranks[-1].load_state_dict(state)
    left = in_turn([list(rank) for rank in ranks])

    assert state["position"] == steps * before
    assert left[: len(whole) - steps * before] == whole[steps * before :]
    assert len(left) - (len(whole) - steps * before) < after


@pytest.mark.parametrize("name", RANKED)
def test_another_drop_is_another_order(name: str) -> None:
    """The number of ranks may differ between a state and its sampler, nothing else may."""
    state = made(name, num_replicas=2, rank=0).state_dict()

    with pytest.raises(StateError, match="drop_last=False"):
        made(name, num_replicas=2, rank=0, drop_last=True).load_state_dict(state)
    with pytest.raises(StateError, match="missing"):
        made(name).load_state_dict({"sampler": None})


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ({"num_replicas": 2, "rank": 2}, r"Invalid rank 2, rank should be in the interval \[0, 1\]"),
        ({"num_replicas": 2, "rank": -1}, "Invalid rank -1, rank should be in the interval"),
        ({"num_replicas": 2, "rank": True}, "Invalid rank True"),
        ({"num_replicas": 0, "rank": 0}, "num_replicas should be a positive integer"),
        ({"num_replicas": 2, "rank": 0, "drop_last": 1}, "drop_last should be a boolean value"),
        ({"num_replicas": 2, "rank": 0, "seed": None}, "seed must be"),
    ],
)
@pytest.mark.parametrize("name", RANKED)
def test_ranks_that_mean_nothing_are_refused(name: str, ranks: dict[str, Any], text: str) -> None:
    """Each wrong argument is named with its value; ranks without a common seed would have different orders."""
    with pytest.raises(ArgumentError, match=text):
        made(name, **ranks)
