"""The shuffle of a stream of shards: a window of shards read together, and a buffer that records are drawn from.

::

    shards, permuted      7 2 9 4 │ 0 5 1 8 │ 3 6        windows of 4: each is a part of the epoch, read by one reader
                          └─┬───┘
    the next record of one of the 4 shards, at random ──> buffer of B records ──> one of them, at random

Random numbers are counter-based, with the key (seed, epoch, window): the order is repeated by reading the shards again,
and a state holds no record. Records stay encoded here. :class:`ShuffleQuality` says how far this is from a shuffle of
the whole epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import CorruptRecordError
from penstock.rng import uniforms
from penstock.sample import Record, SampleKeys
from penstock.stores.streams import ShardStream

__all__ = ["Item", "ShuffleQuality", "estimate_quality", "read_shard", "read_window"]

Item = Record | CorruptRecordError
"""A record, or the error of one that cannot be used, which is raised when its sample is made."""

_BLOCK: Final = 256  # random numbers drawn at once
_PULLS, _PICKS = 65534, 65535  # streams of random numbers; those of ops count from 0


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """How well an order is shuffled, as expected values.

    Attributes
    ----------
    same_shard : float
        Probability that the next sample of a reader is of the same shard as this one.
    neighbour_distance : float
        How far apart in the epoch two records are that follow one another in a shard, as a fraction of the epoch.
    of_global : ShuffleQuality, optional
        The same for a shuffle of the whole epoch.
    """

    same_shard: float
    neighbour_distance: float
    of_global: ShuffleQuality | None = None


def read_shard(stream: ShardStream, shard: int, first: int = 0) -> Iterator[Item]:
    """The records of a shard from number ``first`` on; behind one that cannot be used, reading continues.

    Raises StoreError if the shard cannot be read, or is damaged.
    """
    while True:
        try:
            for record in stream.read_shard(stream.shards[shard], first):
                first = record.index + 1
                yield record
        except CorruptRecordError as error:
            if error.where.get("index") != first:  # read again, it would fail again at the same place
                raise
            first += 1
            yield error
        else:
            return


def read_window(
    stream: ShardStream, shards: Sequence[int], buffer: int, seed: int, epoch: int, window: int
) -> Iterator[Item]:
    """The records of several shards, shuffled; the order is a function of the arguments and the shards' lengths."""
    readers = [read_shard(stream, shard) for shard in shards]
    pulls, picks = (_draw(seed, epoch, window, purpose) for purpose in (_PULLS, _PICKS))
    held: list[Item] = []
    while True:
        while readers and len(held) < buffer:
            chosen = int(next(pulls) * len(readers))
            item = next(readers[chosen], None)
            if item is None:
                del readers[chosen]
            else:
                held.append(item)
        if not held:
            return
        place = int(next(picks) * len(held))
        held[place], held[-1] = held[-1], held[place]
        yield held.pop()


def _draw(seed: int, epoch: int, window: int, purpose: int) -> Iterator[float]:
    """Uniform numbers in [0, 1)."""
    first = window << 32
    while True:
        keys = SampleKeys(seed, epoch, np.arange(first, first + _BLOCK, dtype=np.int64))
        yield from uniforms(keys, purpose, 1)[:, 0].tolist()
        first += _BLOCK


def estimate_quality(shards: int, records: int, window: int, buffer: int) -> ShuffleQuality:
    """Expected quality for ``shards`` shards of equal length, ``records`` in all.

    Notes
    -----
    Of the ``t`` records of a window, the buffer holds ``b`` at a time. A record leaves it after a time that is
    exponentially distributed with mean ``b``, or, if that is past the end of reading, at a random place among the last
    ``b``. For two that are read together, ``tau`` mean times before the end, the expected distance of their places is
    ``b * (1 - exp(-tau) + exp(-2 * tau) / 3)``: the integral of ``2 * F * (1 - F)``, where F is the distribution of a
    place. It is averaged over ``tau``. Records that follow one another in a shard are read about ``k = window`` places
    apart, which adds ``k**2 / (b + k)``.
    """
    per_shard = records / shards
    window = min(window, shards)
    total = max(1.0, window * per_shard)  # records of a window
    held = min(float(buffer), total)
    whole = ShuffleQuality(max(0.0, per_shard - 1) / max(1.0, records - 1), 1 / 3)
    longest = (total - held) / held  # tau of what is read first
    if longest > 0:
        gone = math.exp(-longest)
        first = 1 - gone + gone**2 / 3
        later = 1 - (1 - gone) / longest + (1 - gone**2) / (6 * longest)
        distance = held * (held / total * first + (1 - held / total) * later) + window**2 / (held + window)
    else:
        distance = total / 3
    same = max(0.0, per_shard - 1) / max(1.0, total - 1)
    return ShuffleQuality(same, min(distance / max(1, records), 1 / 3), whole)
