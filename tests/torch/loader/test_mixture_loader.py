"""Mixtures in torch's loader: the sampler it makes, seeds, states, samplers of torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

import penstock as ps
from penstock.datasets.mixture import MapMixture
from penstock.torch import DataLoader


@pytest.fixture
def mixture() -> MapMixture:
    """Sources of 10 and 200 samples, equally often."""
    sources = {"a": ps.ArrayDataset(np.arange(10)), "b": ps.ArrayDataset(1000 + np.arange(200))}
    made = ps.Mixture(sources, weights=[1, 1], until=150)
    assert isinstance(made, MapMixture)
    return made


def batches_of(loader: Any) -> list[list[int]]:
    """One epoch."""
    return [batch.tolist() for (batch,) in loader]


def test_it_gives_the_batches_of_the_other_loader(mixture: MapMixture) -> None:
    """Both loaders make the same sampler from the same seed, and go through the sources from epoch to epoch."""
    ours, torchs = (make(mixture, 16, shuffle=True, seed=4) for make in (ps.DataLoader, DataLoader))

    assert [batches_of(ours) for _ in range(3)] == [batches_of(torchs) for _ in range(3)]
    assert len(torchs) == 10


def test_torch_seeds_the_order(mixture: MapMixture) -> None:
    """manual_seed and a generator fix the order; a loader that is made draws nothing."""
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append((batches_of(DataLoader(mixture, 50, shuffle=True)), torch.rand(1).item()))
    torch.manual_seed(7)
    DataLoader(mixture, 50, shuffle=True)
    undisturbed = torch.rand(1).item()
    torch.manual_seed(7)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    given = [batches_of(DataLoader(mixture, 50, shuffle=True, generator=generator)) for generator in generators]

    assert found[0] == found[1]
    assert undisturbed == torch.rand(1).item()
    assert given[0] == given[1] != found[0][0]
    in_order = [value for batch in batches_of(DataLoader(mixture, 50)) for value in batch if value < 1000]
    assert in_order == [number % 10 for number in range(75)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_resumes_with_stats(mixture: MapMixture, num_workers: int) -> None:
    """A state of the second epoch is resumed at the next batch; stats count since the first."""
    whole = DataLoader(mixture, 16, shuffle=True, seed=4)
    expected = batches_of(whole) + batches_of(whole)
    loader = DataLoader(mixture, 16, shuffle=True, seed=4, num_workers=num_workers)
    seen, walk = batches_of(loader), iter(loader)
    seen += [next(walk)[0].tolist() for _ in range(3)]
    stats, state = mixture.stats(loader), json.loads(json.dumps(loader.state_dict()))

    again = DataLoader(mixture, 16, shuffle=True, seed=4)
    again.load_state_dict(state)

    counts = Counter("b" if value >= 1000 else "a" for batch in seen for value in batch)
    assert {name: source.samples for name, source in stats.items()} == counts
    assert mixture.stats(again) == stats
    assert seen + batches_of(again) == expected
    assert sum(source.samples for source in mixture.stats(again).values()) == 300


class Numbers(ps.PartitionedDataset[int]):
    """1000 to 1299, in 30 parts."""

    def count_parts(self) -> int:
        """As said above."""
        return 30

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[int]:
        """Ten numbers."""
        return iter(range(1000 + part * 10 + first, 1000 + part * 10 + 10))


def test_streams_are_mixed_too() -> None:
    """A mixture with a stream is a stream, whose state torch's layout keeps: also for another number of workers."""
    mixture = ps.Mixture({"a": range(100), "b": Numbers()}, weights=[1, 3], until=320)
    loader = DataLoader(mixture, 20, num_workers=2)
    walk = iter(loader)
    found = [value for _ in range(7) for value in next(walk).tolist()]
    state = json.loads(json.dumps(loader.state_dict()))
    del walk

    again = DataLoader(mixture, 20)
    again.load_state_dict(state)
    stats = mixture.stats(again)
    found += [value for batch in again for value in batch.tolist()]

    assert sum(source.samples for source in stats.values()) == 140
    assert len(found) == len(set(found)) == 320
    assert abs(sum(value < 1000 for value in found) - 80) <= 4


def test_samplers_of_torch_keep_the_shares(mixture: MapMixture) -> None:
    """A sampler that a trainer puts in, such as torch's for ranks, draws positions: the shares stay."""
    dataset: Any = mixture  # of no class of torch
    ranks: list[Any] = [DistributedSampler(dataset, 2, rank, shuffle=True) for rank in range(2)]

    values = [value for rank in ranks for batch in batches_of(DataLoader(mixture, 10, sampler=rank)) for value in batch]

    assert Counter(value >= 1000 for value in values) == {True: 75, False: 75}
    assert len({value for value in values if value >= 1000}) == 75


def test_a_method_of_the_same_name_of_other_datasets_is_not_called() -> None:
    """Many projects have datasets with a ``make_sampler`` that takes other arguments."""

    class Theirs(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            return index

        def make_sampler(self, ratio: float) -> Any:
            raise AssertionError(ratio)

    for loader in (DataLoader(Theirs(), 4), ps.DataLoader(Theirs(), 4)):
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
