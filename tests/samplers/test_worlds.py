"""Every sampler that knows ranks, over many worlds: equal steps, one order, and histories of numbers of ranks."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock as ps
from penstock.samplers.permutation import _MIX_1, _MIX_2, _round_keys, permute

THOUSAND_MILLION: Final = 10**9
RANKS: Final = 1000

Make = Callable[[int, int], Any]


def sizes(n: int) -> NDArray[np.int64]:
    """Numbers from 1 to 9: weights, classes and sizes of n samples."""
    return 1 + np.arange(n) * 7919 % 9


BATCH_POLICIES: Final[dict[Any, str]] = {False: "pad", True: "drop", "uneven": "keep"}

# How each is made over n samples. A policy is a value of drop_last; of a batch sampler, of uneven.
SAMPLERS: Final[dict[str, Callable[..., Any]]] = {
    "distributed": lambda n, **ranks: ps.DistributedSampler(range(n), seed=5, **ranks),
    "in order": lambda n, **ranks: ps.DistributedSampler(range(n), seed=5, shuffle=False, **ranks),
    "weighted": lambda n, **ranks: ps.DistributedWeightedSampler(sizes(n), n + 3, seed=5, **ranks),
    "without replacement": lambda n, **ranks: ps.DistributedWeightedSampler(
        sizes(n), n, replacement=False, seed=5, **ranks
    ),
    "class-balanced": lambda n, **ranks: ps.ClassBalancedSampler(sizes(n), seed=5, **ranks),
    "repeat-factor": lambda n, **ranks: ps.RepeatFactorSampler(sizes(n), 0.4, seed=5, **ranks),
    "bucket": lambda n, drop_last, **ranks: ps.BucketBatchSampler(
        sizes(n), 3, num_buckets=3, run_length=4, uneven=BATCH_POLICIES[drop_last], seed=5, **ranks
    ),
}

worlds = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=5)


@given(
    st.sampled_from(sorted(SAMPLERS)),
    st.integers(1, 150),
    st.sampled_from([*BATCH_POLICIES]),
    st.integers(0, 3),
    worlds,
)
def test_any_history_of_worlds_is_one_order(
    name: str, n: int, drop_last: Any, epoch: int, history: list[tuple[int, int]]
) -> None:
    """Step by step, the ranks of any worlds have the order of one rank, and of its last step what the policy says."""

    def make(replicas: int, rank: int) -> Any:
        sampler = SAMPLERS[name](n, num_replicas=replicas, rank=rank, drop_last=drop_last)
        sampler.set_epoch(epoch)
        return sampler

    whole, state = list(make(1, 0)), None
    drawn: list[Any] = []
    for number, (replicas, steps) in enumerate(history):
        job = [make(replicas, rank) for rank in range(replicas)]
        if state is not None:
            for sampler in job:
                sampler.load_state_dict(json.loads(json.dumps(state)))
        left = max(len(whole) - len(drawn), 0)
        lengths = [len(sampler.remaining(len(drawn))) for sampler in job]
        if drop_last == "uneven":
            assert lengths == [left // replicas + (rank < left % replicas) for rank in range(replicas)]
        else:
            assert lengths == [left // replicas if drop_last else -(-left // replicas)] * replicas

        walks = [iter(sampler) for sampler in job]
        if number + 1 == len(history):
            drawn += [index for turn in itertools.zip_longest(*walks) for index in turn if index is not None]
            break
        for _ in range(min(steps, left // replicas)):
            drawn += [next(walk) for walk in walks]
        states = [sampler.state_dict() for sampler in job]
        assert all(each == states[0] for each in states)
        state = states[0]

    surplus = len(drawn) - len(whole)
    assert {False: 0 <= surplus < replicas, True: -replicas < surplus <= 0, "uneven": surplus == 0}[drop_last]
    assert drawn == [whole[position % len(whole)] for position in range(len(drawn))]


@given(
    st.sampled_from([name for name in sorted(SAMPLERS) if name != "bucket"]),
    st.integers(1, 300),
    st.integers(1, 40),
    st.data(),
)
def test_any_part_of_what_remains_can_be_asked_for(name: str, n: int, replicas: int, data: st.DataObject) -> None:
    """A rank finds any draws after any number of consumed ones, without those before."""
    rank = data.draw(st.integers(0, replicas - 1))
    sampler = SAMPLERS[name](n, num_replicas=replicas, rank=rank, drop_last=False)
    whole = SAMPLERS[name](n, num_replicas=1, rank=0, drop_last=False).order(0, 10**6)
    consumed = data.draw(st.integers(0, len(whole)))
    start = data.draw(st.integers(0, len(whole)))

    part = sampler.remaining(consumed).order(start, start + 7)

    turns = np.arange(start, start + 7)[: max(len(sampler.remaining(consumed)) - start, 0)]
    assert part.tolist() == whole[(consumed + rank + replicas * turns) % len(whole)].tolist()


def test_a_million_samples_over_a_thousand_ranks_occur_once_each() -> None:
    """All draws of all ranks, of an epoch that does not divide evenly: the repeats are the first draws of the epoch."""
    n = 10**6 - 17
    counts = np.zeros(n, np.int64)
    for rank in range(RANKS):
        np.add.at(counts, ps.DistributedSampler(range(n), RANKS, rank, seed=3).order(0, n), 1)
    repeats = ps.RandomSampler(range(n), seed=3).order(0, 17)

    counts[repeats] -= 1
    assert (counts == 1).all()


def find_positions(samples: NDArray[np.int64], n: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Where samples are in the permutation of [0, n) for a key: its rounds, backwards."""
    keys, bits = _round_keys(key), (n - 1).bit_length()

    def invert(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        widths = [(bits - bits // 2, bits // 2)]  # of the halves before each round
        for _ in keys:
            widths.append(widths[-1][::-1])
        low = np.uint64(widths[-1][1])
        left, right = x >> low, x & ((np.uint64(1) << low) - np.uint64(1))
        for round_key, (width, _) in zip(keys[::-1], widths[-2::-1], strict=True):
            mixed = left ^ round_key
            mixed = (mixed ^ mixed >> np.uint64(30)) * _MIX_1
            mixed = (mixed ^ mixed >> np.uint64(27)) * _MIX_2
            left, right = right ^ mixed >> np.uint64(64 - width), left
        return left << np.uint64(widths[0][1]) | right

    found = invert(samples.astype(np.uint64))
    while len(outside := np.flatnonzero(found >= n)):
        found[outside] = invert(found[outside])
    return found.astype(np.int64)


@given(st.integers(1 << 17, 1 << 62), st.integers(0, 2**64 - 1), st.integers(0, 5))
def test_each_sample_has_one_position(n: int, seed: int, epoch: int) -> None:
    """The permutation can be inverted: positions to samples and back, and samples to positions and back."""
    chosen, key = np.random.default_rng(0).integers(0, n, 200), (seed, epoch, 0)

    assert np.array_equal(find_positions(permute(chosen, n, key), n, key), chosen)
    assert np.array_equal(permute(find_positions(chosen, n, key), n, key), chosen)


def test_any_sample_of_a_thousand_million_belongs_to_one_rank() -> None:
    """The position of a sample, which is found by inverting the permutation, says which rank has it at which step."""
    chosen, epoch = np.random.default_rng(1).integers(0, THOUSAND_MILLION, 1000), 2
    positions = find_positions(chosen, THOUSAND_MILLION, (3, epoch, 0))

    for sample, position in zip(chosen.tolist(), positions.tolist(), strict=True):
        step, rank = divmod(position, RANKS)
        sampler = ps.DistributedSampler(range(THOUSAND_MILLION), RANKS, rank, seed=3)
        assert sampler.order(step, step + 1, epoch).tolist() == [sample]


def test_draws_of_all_ranks_of_a_thousand_million_are_distinct() -> None:
    """At random steps, those of a thousand ranks; and those of 768 that go on in the middle."""
    steps = np.unique(np.random.default_rng(2).integers(0, 600_000, 6)).tolist()
    consumed = THOUSAND_MILLION // 2
    before = [ps.DistributedSampler(range(THOUSAND_MILLION), RANKS, rank, seed=3) for rank in range(RANKS)]
    after = [
        ps.DistributedSampler(range(THOUSAND_MILLION), 768, rank, seed=3).remaining(consumed) for rank in range(768)
    ]

    drawn = [sampler.order(step // 2, step // 2 + 4) for step in steps for sampler in before if step < 500_000]
    drawn += [sampler.order(step, step + 4) for step in steps for sampler in after]

    found = np.concatenate(drawn)
    assert len(np.unique(found)) == len(found)


def test_a_loader_of_a_thousand_million_samples_takes_kilobytes() -> None:
    """Made, resumed in mid-epoch on other ranks, its first batch drawn, and its state taken."""
    next(iter(make_job(100, 1, 5)[0]))  # imports what loaders need
    tracemalloc.start()
    (loader,) = make_job(THOUSAND_MILLION, RANKS, 256, [999])
    state = loader.state_dict()
    (other,) = make_job(THOUSAND_MILLION, 768, 256, [767])
    other.load_state_dict({**state, "batches": 2000, "samples": 2000 * 256})
    first = next(iter(other))
    state = other.state_dict()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    position = 2000 * 256 * RANKS + 767 + 768 * np.arange(256)
    assert np.array_equal(first, permute(position, THOUSAND_MILLION, (3, 0, 0)))
    assert state["ranks"] == {"num_replicas": 768, "origin": 2000 * 256 * RANKS}
    assert len(json.dumps(state)) < 1000
    assert peak < 1_000_000


class Numbers(ps.Dataset[int]):
    """Whose samples are their indices."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def load_samples(self, indices: Any, keys: Any) -> list[int]:
        """As the interface has it."""
        return [int(index) for index in indices]


def as_array(samples: list[int]) -> NDArray[np.int64]:
    """A batch of them."""
    return np.array(samples, np.int64)


def make_job(n: int, replicas: int, batch_size: int, ranks: Any = None) -> list[ps.DataLoader]:
    """The loaders of some ranks; of all by default."""
    return [
        ps.DataLoader(
            Numbers(n), batch_size, sampler=ps.DistributedSampler(range(n), replicas, rank, seed=3), seed=0,
            collate_fn=as_array,
        )
        for rank in (range(replicas) if ranks is None else ranks)
    ]  # fmt: skip


@pytest.mark.parametrize("n", [60_001, pytest.param(10**6, marks=pytest.mark.slow)])
def test_loaders_of_1000_then_768_then_1000_ranks(n: int) -> None:
    """In mid-epoch, by the state of any one rank: each sample once, but for those that fill the last step."""
    batch_size = max(n // 6000, 1)
    counts, total = np.zeros(n, np.int64), 0
    state: Any = None
    steps = n // 3 // (RANKS * batch_size)
    for replicas, count in ((RANKS, steps), (768, steps), (RANKS, None)):
        job = make_job(n, replicas, batch_size)
        for loader in [] if state is None else job:
            loader.load_state_dict(state)
        walks = [iter(loader) for loader in job]
        lengths = set()
        for walk in walks:
            batches = list(walk) if count is None else [next(walk) for _ in range(count)]
            lengths.add(len(batches))
            drawn = np.concatenate(batches)
            np.add.at(counts, drawn, 1)
            total += len(drawn)
        states = [json.dumps(loader.state_dict()) for loader in job]
        assert len(lengths) == len(set(states)) == 1
        state = json.loads(states[replicas // 2])

    repeats = ps.RandomSampler(range(n), seed=3).order(0, total - n)
    assert len(repeats) < RANKS
    counts[repeats] -= 1
    assert (counts == 1).all()
