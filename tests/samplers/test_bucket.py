"""BucketBatchSampler: like with like, nothing lost, ranks in step."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError, StateError
from penstock.samplers import BucketBatchSampler
from penstock.samplers import bucket as bucket_module

SIZES = np.random.default_rng(0).normal(100, 30, 997)


def flat(batches: list[list[int]]) -> list[int]:
    """The indices of all batches."""
    return [index for batch in batches for index in batch]


def buckets_of(sampler: BucketBatchSampler, batch: list[int], sizes: Any = SIZES) -> set[int]:
    """The buckets that a batch's samples are of."""
    return set(np.searchsorted(sampler.boundaries, np.asarray(sizes)[batch], side="right").tolist())


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=80),
    batch_size=st.integers(1, 9),
    boundaries=st.lists(st.integers(0, 20), max_size=5, unique=True).map(sorted),
    run_length=st.integers(1, 4),
    epoch=st.integers(0, 2),
    shuffle=st.booleans(),
)
def test_every_index_comes_once(
    sizes: list[int], batch_size: int, boundaries: list[int], run_length: int, epoch: int, shuffle: bool
) -> None:
    """Whatever the buckets, each index is in just one batch; batches are of one bucket; short ones are last."""
    sampler = BucketBatchSampler(
        sizes, batch_size, boundaries=boundaries, run_length=run_length, shuffle=shuffle, seed=1
    )

    batches = sampler.batches(0, 1000, epoch)

    lengths = [len(batch) for batch in batches]
    assert sorted(flat(batches)) == list(range(len(sizes)))
    assert all(len(buckets_of(sampler, batch, sizes)) == 1 for batch in batches)
    assert len(sampler) == len(batches)
    members = np.bincount(np.searchsorted(boundaries, sizes, side="right"))
    assert lengths.count(batch_size) == (members // batch_size).sum()
    assert max(lengths) <= batch_size
    assert all(a == batch_size or b < batch_size for a, b in pairwise(lengths))
    assert sampler.dropped(epoch) == 0


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=80),
    batch_size=st.integers(1, 5),
    num_replicas=st.integers(1, 5),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    epoch=st.integers(0, 2),
)
def test_what_is_dropped_is_counted(
    sizes: list[int], batch_size: int, num_replicas: int, drop_last: bool, uneven: str, epoch: int
) -> None:
    """delivered + dropped = all, for any number of ranks; each has equally many batches, or one more than others."""
    ranks = [
        BucketBatchSampler(
            sizes, batch_size, boundaries=[5, 12], drop_last=drop_last, uneven=uneven, num_replicas=num_replicas,
            rank=rank, seed=1,
        )
        for rank in range(num_replicas)
    ]  # fmt: skip

    dealt = [rank.batches(0, 1000, epoch) for rank in ranks]

    comes = Counter(flat([batch for batches in dealt for batch in batches]))
    assert len(dealt[0]) - len(dealt[-1]) in ({0, 1} if uneven == "keep" else {0})
    assert len(comes) + ranks[0].dropped(epoch) == len(sizes)
    assert uneven == "pad" or set(comes.values()) <= {1}
    new = [
        batch
        for rank, batches in zip(ranks, dealt, strict=True)
        for batch, is_repeat in zip(batches, rank.find_repeats(0, 1000), strict=True)
        if not is_repeat
    ]
    assert sorted(flat(new)) == sorted(comes)
    assert not drop_last or all(len(batch) == batch_size for batches in dealt for batch in batches)


def test_dropping_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the number of samples that an epoch leaves out."""
    with caplog.at_level(logging.INFO, "penstock.samplers"):
        sampler = BucketBatchSampler(np.arange(20), 3, boundaries=[10], drop_last=True)

    assert sampler.dropped() == 2
    assert "2 of 20 samples are left out of each epoch" in caplog.text


@pytest.mark.parametrize("kept", [1 << 22, 0])
def test_what_is_kept_changes_no_batch(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders of buckets that are kept, and those computed batch by batch, are the same."""
    expected = BucketBatchSampler(SIZES, 16, num_buckets=3, seed=2).batches(0, 100, 1)

    monkeypatch.setattr(bucket_module, "_KEPT", kept)

    assert BucketBatchSampler(SIZES, 16, num_buckets=3, seed=2).batches(0, 100, 1) == expected


def test_ranks_are_in_one_bucket_at_a_time() -> None:
    """At each step but the last few, all ranks have batches of the same bucket."""
    ranks = [BucketBatchSampler(SIZES, 8, num_buckets=4, num_replicas=4, rank=rank, seed=3) for rank in range(4)]

    steps = list(zip(*(list(rank) for rank in ranks), strict=True))

    together = [set.union(*(buckets_of(ranks[0], batch) for batch in step)) for step in steps]
    aligned = sum(count // 8 // 4 for count in np.bincount(np.searchsorted(ranks[0].boundaries, SIZES, side="right")))
    assert aligned > 20
    assert all(len(buckets) == 1 for buckets in together[:aligned])
    assert len(steps) - aligned <= 5


def test_buckets_and_their_members_are_shuffled() -> None:
    """Epochs differ in the order of batches and in which samples are in the odd ones; buckets take turns at random."""
    sampler = BucketBatchSampler(SIZES, 10, num_buckets=3, seed=4)

    epochs = [sampler.batches(0, 1000, epoch) for epoch in range(3)]

    assert len({tuple(sorted(flat(batches[-3:]))) for batches in epochs}) == 3
    turns = [next(iter(buckets_of(sampler, batch))) for batch in epochs[0][:-3]]
    assert 40 < sum(a != b for a, b in pairwise(turns)) < 90  # of 96; two thirds on average


def test_buckets_of_one_size_have_orders_of_their_own() -> None:
    """Equal buckets are not shuffled alike."""
    sampler = BucketBatchSampler([0, 1] * 50, 50, boundaries=[1], seed=4)

    even, odd = sorted(sampler, key=lambda batch: batch[0] % 2)

    assert sorted(even) == list(range(0, 100, 2))
    assert [index + 1 for index in even] != odd


def test_odd_batches_are_shuffled_too() -> None:
    """Full batches that fill no run, and short ones, come in another order of buckets each epoch."""
    sizes = np.repeat(range(6), 5)
    sampler = BucketBatchSampler(sizes, 3, boundaries=range(1, 6), run_length=2, seed=4)

    epochs = [[int(sizes[batch[0]]) for batch in sampler.batches(0, 99, epoch)] for epoch in range(9)]

    assert all(sorted(zone) == list(range(6)) for turns in epochs for zone in (turns[:6], turns[6:]))
    assert len({tuple(turns[:6]) for turns in epochs}) > 6
    assert len({tuple(turns[6:]) for turns in epochs}) > 6


def test_unshuffled_is_in_order() -> None:
    """shuffle=False: buckets one after the other, indices rising, short batches last."""
    sampler = BucketBatchSampler([5, 1, 5, 1, 5, 1, 5], 2, boundaries=[3], shuffle=False)

    assert list(sampler) == [[1, 3], [0, 2], [4, 6], [5]]


def test_quantiles_make_buckets_of_equal_numbers() -> None:
    """num_buckets cuts the samples into parts that differ by a few."""
    sampler = BucketBatchSampler(SIZES, 10, num_buckets=5)

    counts = np.bincount(np.searchsorted(sampler.boundaries, SIZES, side="right"))

    assert len(counts) == 5
    assert max(counts) - min(counts) <= 3


@pytest.mark.parametrize(
    ("sizes", "num_buckets", "boundaries"),
    [([1, 1, 1], 4, []), ([1, 1, 1, 2], 4, [2]), ([1, 2, 3], 1, []), ([1, 2, 3, 4], 2, [3])],
)
def test_equal_sizes_share_a_bucket(sizes: list[int], num_buckets: int, boundaries: list[int]) -> None:
    """Quantiles that coincide, or bound nothing, make no empty bucket."""
    assert BucketBatchSampler(sizes, 2, num_buckets=num_buckets).boundaries.tolist() == boundaries


def test_state_resumes_at_every_batch() -> None:
    """A fresh sampler that loads a state goes on where it was taken, in that epoch."""
    sampler = BucketBatchSampler(SIZES[:90], 4, num_buckets=3, seed=5)
    sampler.set_epoch(2)
    walk, whole = iter(sampler), sampler.batches(0, 100, 2)
    states = [sampler.state_dict()]
    for _ in whole:
        next(walk)
        states.append(sampler.state_dict())

    for position, state in enumerate(states[:-1]):
        fresh = BucketBatchSampler(SIZES[:90], 4, num_buckets=3)
        fresh.load_state_dict(state)

        assert fresh.epoch == 2
        assert fresh.state_dict() == state
        assert list(fresh) == whole[position:]
        assert list(fresh) == whole


def test_a_state_of_other_runs_is_refused() -> None:
    """Runs are part of the order: other ranks need the same run_length, and the message says so."""
    state = BucketBatchSampler(SIZES, 4, num_buckets=3, num_replicas=4, rank=0, seed=5).state_dict()

    with pytest.raises(StateError, match="run_length=4, this one 2"):
        BucketBatchSampler(SIZES, 4, num_buckets=3, num_replicas=2, rank=0, seed=5).load_state_dict(state)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_resumes_its_batches(num_workers: int) -> None:
    """In a DataLoader it is a batch_sampler: each epoch another order, resumed in mid-epoch with equal batches."""

    def loader(seed: int | None) -> Any:
        batches = BucketBatchSampler(SIZES, 16, num_buckets=3, seed=seed)
        return ps.DataLoader(ps.ArrayDataset(np.arange(997)), batch_sampler=batches, num_workers=num_workers)

    first = loader(6)
    epochs = [[batch[0].tolist() for batch in first] for _ in range(2)]
    walk = iter(first)
    for _ in range(11):
        next(walk)
    state = first.state_dict()
    rest = [batch[0].tolist() for batch in walk]

    second = loader(None)
    second.load_state_dict(state)

    assert epochs == [BucketBatchSampler(SIZES, 16, num_buckets=3, seed=6).batches(0, 100, epoch) for epoch in (0, 1)]
    assert [batch[0].tolist() for batch in second] == rest
    assert len(rest) == len(first) - 11


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"batch_size": 0}, "batch_size should be a positive integer value"),
        ({"sizes": []}, "at least one sample"),
        ({"sizes": [1, float("nan")]}, r"sizes\[1\] is nan"),
        ({"sizes": [[1]]}, "1d sequence"),
        ({"sizes": ["long"]}, "1d sequence of numbers"),
        ({"boundaries": [3, 3]}, "increasing"),
        ({"boundaries": [float("inf")]}, "finite"),
        ({"boundaries": None}, "give one of boundaries and num_buckets"),
        ({"num_buckets": 3}, "give one of boundaries and num_buckets"),
        ({"boundaries": None, "num_buckets": 0}, "num_buckets should be a positive integer"),
        ({"uneven": "cut"}, "uneven should be 'pad', 'drop' or 'keep'"),
        ({"shuffle": 1}, "shuffle should be a boolean value"),
        ({"run_length": 0}, "run_length should be a positive integer"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(kwargs: dict[str, Any], text: str) -> None:
    """Each wrong argument is named with its value."""
    with pytest.raises(ArgumentError, match=text):
        BucketBatchSampler(**{"sizes": [1, 2, 3], "batch_size": 2, "boundaries": [2], **kwargs})
