"""penstock.torch.DataLoader's states: taken at every batch, resumed and resumed again, on other workers too."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import StateError  # noqa: E402  # as above
from penstock.torch.loader.randomness import Randomness  # noqa: E402  # as above
from tests.effort import IS_PART, mark_slow  # noqa: E402  # as above
from tests.torch.streams import Drawn, Filled, Plain, Remembering, frozen  # noqa: E402  # as above

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

N = 8
SIZE = 3

WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads 2": {"num_workers": 2, "workers": "threads"},
    "threads 5": {"num_workers": 5, "workers": "threads"},
    "processes 1": {"num_workers": 1, "workers": "processes"},
    "processes 2": {"num_workers": 2, "workers": "processes"},
    "processes 5": {"num_workers": 5, "workers": "processes"},
}
for _arguments in WORKERS.values():
    if _arguments.get("workers") == "processes":
        _arguments["multiprocessing_context"] = "fork"

ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "own generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "seed": lambda: {"shuffle": True, "seed": 8},
    "weighted": lambda: {"sampler": pt.WeightedRandomSampler([0.1] * N, N)},
    "subset": lambda: {"sampler": pt.SubsetRandomSampler(range(1, N))},
    "drop_last": lambda: {"shuffle": True, "drop_last": True},
    "one by one": lambda: {"shuffle": True, "batch_size": None},
    "our random": lambda: {"sampler": ps.RandomSampler(range(N), seed=4)},
    "our distributed": lambda: {"sampler": ps.DistributedSampler(range(N), 2, 1, seed=4)},
    "our buckets": lambda: {
        "batch_size": 1,
        "batch_sampler": ps.BucketBatchSampler(range(N), 3, num_buckets=2, seed=4),
    },
    "ours one by one": lambda: {"sampler": ps.RandomSampler(range(N), seed=4), "batch_size": None},
}

Maker = Callable[[], Any]


def maker(dataset: Callable[[], Any], order: str, workers: str, **more: Any) -> Maker:
    """What makes the same loader again, with generators and samplers of its own."""
    return lambda: pt.DataLoader(dataset(), **{"batch_size": SIZE, **ORDERS[order](), **WORKERS[workers], **more})


def reseed(seed: int) -> None:
    """Put every global generator somewhere."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # datasets draw from the global one


def kept(loader: Any) -> Any:
    """A state as a file gives it back."""
    return json.loads(json.dumps(loader.state_dict()))


def straight(make: Maker) -> tuple[list[Any], list[str], list[str]]:
    """A run of two epochs: its states (before the first batch, behind each, and behind the end), and its batches."""
    reseed(5)
    loader = make()
    states, first = [kept(loader)], []
    for batch in loader:
        first.append(frozen(batch))
        states.append(kept(loader))
    states.append(kept(loader))
    second = [frozen(batch) for batch in loader]
    loader.close()
    return states, first, second


def resumed(make: Maker, state: Any) -> Any:
    """A new loader, where global generators are elsewhere."""
    reseed(99)
    loader = make()
    loader.load_state_dict(state)
    return loader


EVERYWHERE = range(N // SIZE + 3)
SHORT = (1, 3)
SLOWLY = EVERYWHERE[::2] if IS_PART else EVERYWHERE
"""Where `make test-slow` resumes with worker processes."""
"""Amid an epoch and behind its last batch: all that workers which are processes are resumed from in a short test."""


def check(
    makers: list[Maker], states: list[Any], first: list[str], second: list[str], places: Iterable[int] = EVERYWHERE
) -> None:
    """From the states at ``places``, and from one taken a batch later: the rest of the epoch, and the next one.

    Loaders are made by each of ``makers`` in turn.
    """
    assert len(states) == len(first) + 2
    turn = itertools.cycle(makers)
    for place in places:
        if place >= len(states):  # the last batch was left out
            continue
        state = states[place]
        here, rest = [first[place:], second] if place <= len(first) else [second], []
        loader = resumed(next(turn), state)
        again = None
        for expected in here:
            got = []
            for batch in loader:
                got.append(frozen(batch))
                if again is None:
                    again, rest = kept(loader), expected[1:]

            assert got == expected, f"from batch {place}"

        loader.close()
        last = resumed(next(turn), again)

        assert [frozen(batch) for batch in last] == rest, f"from batch {place} and one more"

        last.close()


CELLS = [
    *[(order, "serial", EVERYWHERE) for order in ORDERS],
    *[(order, "processes 2", SHORT) for order in ("own generator",)],
    *[pytest.param(order, "processes 2", SLOWLY, marks=pytest.mark.slow) for order in ORDERS],
]


@pytest.mark.parametrize(("order", "workers", "places"), CELLS)
def test_every_order_resumes_with_everybodys_generators(order: str, workers: str, places: Iterable[int]) -> None:
    """Samples that draw from random, NumPy and torch draw the same: in this process, and in workers of their own."""
    make = maker(lambda: Drawn(N), order, workers)

    check([make], *straight(make), places)


MORE: dict[str, dict[str, Any]] = {
    "persistent": {"persistent_workers": True},
    "few snapshots": {"snapshot_every_n_steps": 2},
    "no snapshots": {"snapshot_every_n_steps": None},
    "far ahead": {"prefetch_factor": 5},
    "persistent, few snapshots": {"persistent_workers": True, "snapshot_every_n_steps": 3},
}


MORE_IN_SHORT = [
    (Drawn, "persistent"),
    (Remembering, "no snapshots"),
]


@pytest.mark.parametrize(
    ("dataset", "more", "places"),
    [
        *[(dataset, more, SHORT) for dataset, more in MORE_IN_SHORT],
        *[
            pytest.param(dataset, more, SLOWLY, marks=pytest.mark.slow)
            for dataset in (Drawn, Plain, Remembering)
            for more in MORE
        ],
    ],
)
def test_workers_resume_however_they_are_kept(dataset: Any, more: str, places: Iterable[int]) -> None:
    """Workers that stay, that seldom say where they are, or are far ahead: their random numbers go on as they were."""
    order = "shuffled" if dataset is Drawn else "in order"
    make = maker(lambda: dataset(N), order, "processes 2", **MORE[more])

    check([make], *straight(make), places)


def test_threads_that_stay_draw_no_seed_for_the_next_epoch() -> None:
    """From the end of an epoch too: the order of the next one comes after what was drawn, and no base seed was."""
    make = maker(lambda: Filled(N), "own generator", "threads 2", persistent_workers=True)

    check([make], *straight(make), EVERYWHERE)


@pytest.mark.parametrize(
    ("dataset", "workers", "places"),
    [
        *[(dataset, "serial", EVERYWHERE) for dataset in (Plain, Remembering)],
        (Remembering, "processes 2", SHORT),
        *[
            pytest.param(dataset, f"processes {count}", SLOWLY, marks=pytest.mark.slow)
            for dataset in (Plain, Remembering)
            for count in (1, 2)
        ],
    ],
)
def test_streams_resume_where_they_were(dataset: Any, workers: str, places: Iterable[int]) -> None:
    """By their iterator's own state, or run forward; with the random numbers of whoever iterates them."""
    make = maker(lambda: dataset(N), "in order", workers)

    check([make], *straight(make), places)


KEYED: dict[str, dict[str, Any]] = {
    "filled": {"dataset": Filled},
    "seeded by sample": {"dataset": Drawn, "seed_per_sample": True},
}
AGAIN = ["in order", "shuffled", "own generator", "seed", "weighted", "our random", "our buckets"]


def elsewhere(kind: str, order: str, workers: str) -> Maker:
    """A loader whose samples' random numbers hang on their keys alone."""
    more = dict(KEYED[kind])
    dataset = more.pop("dataset")
    return maker(lambda: dataset(N), order, workers, **more)


@pytest.mark.parametrize(
    ("kind", "order", "workers"),
    mark_slow(
        itertools.product(KEYED, ("shuffled", "our buckets"), ("serial", "threads 2", "processes 2")),
        [("filled", "our buckets", "serial"), ("seeded by sample", "our buckets", "processes 2")],
    ),
)
def test_other_workers_go_on(kind: str, order: str, workers: str) -> None:
    """Any number and kind of workers, and others after them, and the next epoch: not a byte differs."""
    makers = [elsewhere(kind, order, name) for name in WORKERS if name != workers]

    check(makers, *straight(elsewhere(kind, order, workers)))


@pytest.mark.slow
@pytest.mark.parametrize("target", WORKERS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KEYED)
def test_every_pair_of_workers(kind: str, workers: str, target: str) -> None:
    """As above, from each to each; each order with some of them."""
    names = list(WORKERS)
    first, second = names.index(workers), names.index(target)
    if IS_PART and (first + second + (kind == "filled")) % 2:
        pytest.skip("of the other kind of samples in CI")
    order = AGAIN[(first + 2 * second) % len(AGAIN)]

    check([elsewhere(kind, order, target)], *straight(elsewhere(kind, order, workers)))


@pytest.mark.parametrize("dataset", [Plain, Remembering])
@pytest.mark.parametrize("workers", ["serial", "threads 2", "processes 1"])
def test_one_stream_goes_on_with_other_workers(dataset: Any, workers: str) -> None:
    """Where there is one stream, whoever pulls from it: in this process, on threads, in one worker."""
    names = ["serial", "threads 2", "threads 5", "processes 1"]
    makers = [maker(lambda: dataset(N), "in order", name, seed_per_sample=True) for name in names]

    check(makers, *straight(maker(lambda: dataset(N), "in order", workers, seed_per_sample=True)))


def test_streams_of_other_workers_are_refused() -> None:
    """Each worker had a stream of its own: where fewer or more of them would stand cannot be told."""
    loader = maker(Plain, "in order", "processes 2")()
    next(iter(loader))
    for workers in ("serial", "threads 2", "processes 1", "processes 5"):
        other = resumed(maker(Plain, "in order", workers), kept(loader))

        with pytest.raises(StateError, match=r"2 worker processes.*give num_workers=2"):
            iter(other)


def test_one_stream_is_not_divided() -> None:
    """Nor can what one process iterated go on in several; the error says so, and not that there were no workers."""
    loader = maker(Plain, "in order", "serial")()
    next(iter(loader))
    other = resumed(maker(Plain, "in order", "processes 2"), kept(loader))

    with pytest.raises(StateError, match=r"of one stream.*this loader has 2 worker processes.*give num_workers=0"):
        iter(other)


def test_a_state_is_small_whatever_the_epoch() -> None:
    """O(1): no order, no indices, whoever shuffles."""
    for order in ("shuffled", "our random"):
        sampler = {"sampler": ps.RandomSampler(range(100_000), seed=4)} if order == "our random" else {"shuffle": True}
        sizes = []
        for taken in (1, 40):
            loader: Any = pt.DataLoader(Filled(100_000), 1000, **sampler)
            walk = iter(loader)
            for _ in range(taken):
                next(walk)
            sizes.append(len(json.dumps(loader.state_dict())))

        assert max(sizes) < 40_000
        assert abs(sizes[0] - sizes[1]) < 100


class Slow(Drawn):
    """Says when a sample is being built, and takes its time; serves threads alone."""

    def __init__(self) -> None:
        super().__init__(N)
        self.inside = threading.Event()

    def __getitem__(self, index: int) -> Any:
        self.inside.set()
        time.sleep(0.02)
        return super().__getitem__(index)


def test_threads_that_seed_global_generators_disturb_no_state() -> None:
    """What the loader itself draws, and what its state says of the generators, is not what a sample was seeded with."""
    torch.manual_seed(5)
    seeds = [int(torch.empty((), dtype=torch.int64).random_()) for _ in range(2)]
    after = torch.get_rng_state()
    torch.manual_seed(5)
    dataset = Slow()
    loader = pt.DataLoader(dataset, num_workers=2, workers="threads", seed_per_sample=True)
    walks = []
    for _ in seeds:
        dataset.inside.clear()
        walks.append(iter(loader))
        assert dataset.inside.wait(60)
    now = loader.state_dict()["penstock"]["now"]

    assert [walk._base_seed for walk in walks] == seeds
    assert now["torch"] == Randomness(after).dump()["torch"]


class Seeding(pt.RandomSampler):
    """Makes a generator of its own when it is first iterated, as Accelerate's seeded sampler does."""

    epoch = 0

    def __iter__(self) -> Any:
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed(self.epoch)
        yield from super().__iter__()
        self.epoch += 1


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_sampler_may_make_a_generator_of_its_own(taken: int) -> None:
    """A fresh one has none yet: the states of generators that it makes itself are not missed."""

    def make() -> Any:
        return pt.DataLoader(list(range(N)), SIZE, sampler=Seeding(range(N)))

    loader = make()
    list(loader)
    walk = iter(loader)
    for _ in range(taken):
        next(walk)
    ended = taken == 3 and next(walk, None) is None
    state = kept(loader)
    rest = [frozen(batch) for batch in (loader if ended else walk)]
    again = make()
    again.sampler.epoch = 1 + ended

    again.load_state_dict(state)

    assert [frozen(batch) for batch in again] == rest
