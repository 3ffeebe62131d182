"""DistributedSampler: torch's shares of the house's order."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError
from penstock.samplers import DistributedSampler, RandomSampler


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_replicas", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 24])
def test_shares_are_those_of_torch(length: int, num_replicas: int, drop_last: bool) -> None:
    """Unshuffled, each rank has the indices that torch's class of this name gives it: padded, or cut, alike."""
    distributed = pytest.importorskip("torch.utils.data").DistributedSampler
    for rank in range(num_replicas):
        theirs = distributed(range(length), num_replicas, rank, shuffle=False, drop_last=drop_last)
        ours = DistributedSampler(range(length), num_replicas, rank, shuffle=False, drop_last=drop_last)

        assert list(ours) == list(theirs)
        assert (ours.num_samples, ours.total_size, len(ours)) == (theirs.num_samples, theirs.total_size, len(theirs))


@pytest.mark.parametrize("length", [10, 100_000])
def test_all_ranks_have_the_order_of_a_random_sampler(length: int) -> None:
    """Going from one rank to many does not change which samples a step has."""
    single = RandomSampler(range(length), seed=5).order(0, length, epoch=2)

    ranks = [DistributedSampler(range(length), 5, rank, seed=5).order(0, length, epoch=2) for rank in range(5)]

    for rank, order in enumerate(ranks):
        assert order.tolist() == single[rank::5].tolist()


def test_a_thousand_million_items_cost_nothing() -> None:
    """Construction and a seek into 10**9 items take kilobytes, whatever the number of ranks."""
    tracemalloc.start()
    sampler = DistributedSampler(range(10**9), 1000, 999)
    found = sampler.order(500_000, 500_010)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(set(found.tolist())) == 10
    assert peak < 200_000


def test_shuffle_is_a_boolean() -> None:
    """Truthy is not enough."""
    with pytest.raises(ArgumentError, match="shuffle should be a boolean value"):
        DistributedSampler(range(3), 1, 0, shuffle=1)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loaders_of_all_ranks_share_out_each_epoch(num_workers: int) -> None:
    """Two ranks' loaders have equally many batches, all samples between them, and resume in mid-epoch."""

    def loader(rank: int) -> Any:
        sampler = DistributedSampler(range(100), 2, rank, seed=1)
        return ps.DataLoader(ps.ArrayDataset(np.arange(100)), 8, sampler=sampler, num_workers=num_workers)

    ranks = [loader(0), loader(1)]
    first, second = ([[batch[0].tolist() for batch in rank] for rank in ranks] for _ in range(2))
    walk = iter(ranks[1])
    for _ in range(3):
        next(walk)
    resumed = loader(1)
    resumed.load_state_dict(ranks[1].state_dict())

    rest = [batch[0].tolist() for batch in walk]
    assert [len(batches) for batches in first] == [7, 7]
    assert sorted(index for batches in first for batch in batches for index in batch) == list(range(100))
    assert first != second
    assert [batch[0].tolist() for batch in resumed] == rest
    assert len(rest) == 4


def test_ranks_are_those_of_the_process_group() -> None:
    """Without num_replicas and rank, as for torch's class; what is given is kept."""
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        found, given = DistributedSampler(range(10)), DistributedSampler(range(10), 4)
    finally:
        distributed.destroy_process_group()

    assert (found.num_replicas, found.rank) == (1, 0)
    assert (given.num_replicas, given.rank) == (4, 0)


def test_ranks_are_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a process group, and in programs without torch; for draws by weight likewise."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")

    uniform, weighted = DistributedSampler(range(10)), ps.DistributedWeightedSampler([1.0, 2.0], 10)

    assert (uniform.num_replicas, uniform.rank) == (weighted.num_replicas, weighted.rank) == (4, 3)


@pytest.mark.parametrize(("drop_last", "total_size"), [(False, 12), (True, 8), ("uneven", 10)])
def test_the_total_is_that_of_all_ranks(drop_last: Any, total_size: int) -> None:
    """Including repeated samples, without those left out."""
    ranks = [DistributedSampler(range(10), 4, rank, drop_last=drop_last) for rank in range(4)]

    assert {sampler.total_size for sampler in ranks} == {total_size}
    assert sum(sampler.num_samples for sampler in ranks) == total_size


def test_ranks_must_be_given_without_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to call."""
    for name in ("WORLD_SIZE", "RANK", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ArgumentError, match=r"num_replicas and rank must be given.*init_process_group.*None and 1"):
        DistributedSampler(range(10), rank=1)
