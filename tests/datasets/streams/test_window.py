"""The quality that a shuffle states is what is measured in its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError
from tests.datasets.streams.numbered_shards import IN_SHARD, NumberedShards


def measure(dataset: ps.StreamDataset, epochs: int) -> tuple[float, float]:
    """The two figures of :class:`ShuffleQuality`, over several epochs."""
    same, apart = [], []
    for epoch in range(epochs):
        reader = iter(dataset)
        reader.load_state_dict(dataset.start_states(epoch, 1)[0])
        order = np.array(list(reader))
        same.append(np.mean(order[1:] // IN_SHARD == order[:-1] // IN_SHARD))
        places = np.argsort(order)  # of the numbers in order
        follows = np.diff(order[places]) == 1
        apart.append(np.mean(np.abs(np.diff(places))[follows]) / len(order))
    return float(np.mean(same)), float(np.mean(apart))


@pytest.mark.parametrize(
    ("window", "buffer"),
    [(1, 5), (1, 1000), (4, 1), (4, 20), (4, 100), (4, 250), (4, 1000), (8, 200), (40, 300), (40, 10_000)],
)
def test_the_stated_quality_is_measured(window: int, buffer: int) -> None:
    """Within a tenth: for buffers of one record, of a part of a window, of a window, and of the whole epoch."""
    stream = NumberedShards.of([100] * 40)
    dataset = ps.StreamDataset(stream, "number", shuffle=True, window=window, buffer=buffer, counts=[100] * 40)

    stated = dataset.shuffle_quality()
    same, apart = measure(dataset, 6)

    assert same == pytest.approx(stated.same_shard, rel=0.1)
    assert apart == pytest.approx(stated.neighbour_distance, rel=0.1)


def test_a_window_of_everything_is_a_global_shuffle() -> None:
    """All shards and records at once have the figures of a shuffle of the whole epoch; no shuffle has its own."""
    stream = NumberedShards.of([50] * 20)
    whole = ps.StreamDataset(stream, shuffle=True, window=20, buffer=1000, counts=[50] * 20).shuffle_quality()
    none = ps.StreamDataset(stream, "number", counts=[50] * 20)

    stated, measured = none.shuffle_quality(), measure(none, 1)

    assert whole.of_global is not None
    assert (whole.same_shard, whole.neighbour_distance) == pytest.approx(
        (whole.of_global.same_shard, whole.of_global.neighbour_distance)
    )
    assert (stated.same_shard, stated.neighbour_distance) == pytest.approx(measured)


def test_quality_needs_the_number_of_records() -> None:
    """It is given, or the sum of counts; nothing is read to find out."""

    class Closed(NumberedShards):
        def read_shard(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is to be read")

    dataset = ps.StreamDataset(Closed.of([50] * 20), shuffle=True)

    with pytest.raises(ArgumentError, match="give records"):
        dataset.shuffle_quality()
    assert dataset.shuffle_quality(1000).same_shard == pytest.approx(49 / 399)
