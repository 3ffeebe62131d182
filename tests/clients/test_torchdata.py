"""torchdata: a prefetcher over several epochs of its ``StatefulDataLoader``."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from penstock.torch.device.prefetching import Prefetcher
from tests.torch.device.devices import META, FakeStreams

SAMPLES: Any = list(range(20))


@pytest.mark.parametrize("workers", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_a_state_is_exact_at_each_batch_of_each_epoch(workers: dict[str, Any]) -> None:
    """Also where two epochs meet, with the epoch of torch's sampler, which torchdata's state does not contain."""

    def prefetcher(epoch: int) -> Prefetcher:
        sampler: Any = DistributedSampler(SAMPLES, 1, 0, seed=4)
        sampler.set_epoch(epoch)
        loader = StatefulDataLoader(SAMPLES, 5, sampler=sampler, collate_fn=list, **workers)
        streams: Any = FakeStreams()
        return Prefetcher(loader, META, depth=3, endless=True, streams=streams)

    first = prefetcher(0)
    walk: Any = iter(first)
    got, states = [], []
    for _ in range(10):
        got.append(next(walk))
        states.append((copy.deepcopy(first.state_dict()), first.epoch))
    walk.close()

    assert [epoch for _, epoch in states] == [0] * 4 + [1] * 4 + [2] * 2
    for number, (state, epoch) in enumerate(states, start=1):
        assert epoch is not None
        again = prefetcher(epoch)
        again.load_state_dict(state)
        rest: Any = iter(again)
        assert (number, [next(rest) for _ in range(10 - number)]) == (number, got[number:])
        rest.close()
