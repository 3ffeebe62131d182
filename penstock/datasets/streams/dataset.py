"""The dataset of a stream of shards: its shards divided among readers, shuffled in windows, as transformed samples.

::

    shards, permuted      7 2 9 4 │ 0 5 1 8 │ 3 6        windows of 4: each is a part of the epoch, read by one reader
                          └─┬───┘
    the next record of one of the 4 shards, at random ──> buffer of B records ──> one of them, at random

Random numbers are counter-based, with the key (seed, epoch, window): the order is repeated by reading the shards again,
and a state holds no record. Records stay encoded until they are drawn. :class:`ShuffleQuality` says how far this is
from a shuffle of the whole epoch.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.error_location import add_location
from penstock.datasets.fingerprints import combine_fingerprints
from penstock.datasets.store.sample_plan import SamplePlan
from penstock.datasets.streams.partitioned import PartitionedDataset
from penstock.errors import ArgumentError, CorruptRecordError
from penstock.rng import uniforms
from penstock.sample import Record, Sample, SampleKeys, Schema
from penstock.samplers.base import check_count
from penstock.samplers.permutation import permute
from penstock.stores import STREAMS
from penstock.stores.streams import ShardStream

if TYPE_CHECKING:
    from penstock.stores.base import Store
    from penstock.transforms.base import Op

__all__ = ["StreamDataset"]

Item = Record | CorruptRecordError
"""A record, or the error of one that cannot be used, which is raised when its sample is made."""

_BLOCK: Final = 256  # random numbers drawn at once
_PULLS, _PICKS = 65534, 65535  # streams of random numbers; those of ops count from 0


class StreamDataset(PartitionedDataset[Sample]):
    """Samples from the records of a stream of shards, which are read from their beginning.

    Parameters
    ----------
    stream : ShardStream, str, path or sequence of these
        A stream such as :class:`~penstock.stores.tar.stream.TarStream`, or its shards: tar files, patterns, URLs.
    fields, transform, kinds
        As for :class:`~penstock.StoreDataset`; ``index`` is the number of a record in its shard. Samples are built one
        by one.
    shuffle : bool
        A new order of shards in each epoch, and in windows of shards a new order of records.
    window : int
        Number of shards that are read together, where records are shuffled.
    buffer : int
        Number of encoded records that each reader holds, one of which is drawn at random, where records are shuffled.
    seed : int
        Of the order and of the random numbers of samples, in [0, 2**64); the same on every rank.
    counts : sequence of int, optional
        Number of records of each shard, as :meth:`~penstock.stores.streams.ShardStream.count_records` gives them.
        Needed for ``even=True``.
    even, num_replicas, rank
        As for :class:`~penstock.PartitionedDataset`. A part is a window of shards, or a shard without ``shuffle``.

    Raises
    ------
    ArgumentError
        If a number is out of range, ``counts`` has not one number for each shard, or ``even`` is given without it.
    StoreNotFoundError
        If there is no shard.

    Notes
    -----
    The order of the records of a part, and the random numbers of their samples, depend on the seed, the epoch and the
    part only. A state has a few numbers for each reader; to resume, a reader reads the records of the part that it had
    begun again, and decodes none of them. Fields are checked when the first sample is built, since the schema is in the
    first shard.
    """

    def __init__(
        self,
        stream: ShardStream | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        transform: Callable[[Sample], Sample] | Op | Sequence[object] | None = None,
        *,
        kinds: Mapping[str, str | None] | None = None,
        shuffle: bool = False,
        window: int = 8,
        buffer: int = 1000,
        seed: int = 0,
        counts: Sequence[int] | None = None,
        even: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(seed=seed, even=even, num_replicas=num_replicas, rank=rank)
        self.stream = stream if isinstance(stream, ShardStream) else STREAMS.get("tar")(stream)
        self.fields, self.transform, self.shuffle = fields, transform, shuffle
        self.window = check_count("window", window, least=1)
        self.buffer = check_count("buffer", buffer, least=1)
        self._kinds = kinds
        self._plan: SamplePlan | None = None
        self._counts: NDArray[np.int64] | None = None
        if counts is not None:
            self._counts = np.array([check_count("counts", count, least=0) for count in counts], np.int64)
            if len(self._counts) != len(self.stream.shards):
                raise ArgumentError(
                    f"counts must have one number for each of the {len(self.stream.shards)} shards, got "
                    f"{len(self._counts)}"
                )
        elif even:
            raise ArgumentError("even=True needs counts, the number of records of each shard: stream.count_records()")

    def count_parts(self) -> int:
        """Return the number of windows of shards; that of shards, if nothing is shuffled."""
        return -(-len(self.stream.shards) // self._window)

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[Item]:
        """The records of one window, shuffled, or of one shard; see :class:`PartitionedDataset`."""
        last = min((part + 1) * self._window, len(self.stream.shards))
        shards = self._find_shards(epoch, part * self._window, last).tolist()
        if not self.shuffle:
            return read_shard(self.stream, shards[0], first)
        items = read_window(self.stream, shards, self.buffer, self.seed, epoch, part)
        return itertools.islice(items, first, None)

    def make_sample(self, item: Item) -> Sample:
        """The sample of a record; raises the error of one that cannot be used."""
        if not isinstance(item, Record):
            raise item
        plan = self._plan
        if plan is None or plan.transform is not self.transform:
            store = cast("Store", _StreamFields(self.stream))  # a plan reads nothing else of a store for one sample
            plan = self._plan = SamplePlan(store, self.fields, self.transform, None, self._kinds)
        try:
            return plan.sample(item)
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            raise add_location(error, key=item.key, index=item.index)  # noqa: B904  # the same object, or one that is chained

    def count_items(self, epoch: int) -> NDArray[np.int64] | None:
        """Records of each part of an epoch, if ``counts`` is given."""
        if self._counts is None:
            return None
        starts = np.arange(0, len(self._counts), self._window)
        return np.add.reduceat(self._counts[self._find_shards(epoch, 0, len(self._counts))], starts)

    def shuffle_quality(self, records: int | None = None) -> ShuffleQuality:
        """Return how well the records are shuffled, beside a shuffle of the whole epoch; reads nothing.

        Parameters
        ----------
        records : int, optional
            Number of records of all shards; None: the sum of ``counts``.

        Raises
        ------
        ArgumentError
            If the number of records is not known.
        """
        if records is None:
            if self._counts is None:
                raise ArgumentError("give records, the number of records of all shards: this dataset has no counts")
            records = int(self._counts.sum())
        records, shards = check_count("records", records, least=1), len(self.stream.shards)
        if self.shuffle:
            return estimate_quality(shards, records, self.window, self.buffer)
        whole = estimate_quality(shards, records, 1, 1).of_global
        return ShuffleQuality(max(0.0, 1 - (shards - 1) / max(1, records - 1)), 1 / records, whole)

    def fingerprint(self) -> str | None:
        """Hash what determines the order of records: the shards, their order, and the settings of the shuffle."""
        settings = self.shuffle and (self.window, self.buffer), self.seed, self.even
        return combine_fingerprints([self.stream], repr(settings).encode())

    @property
    def _window(self) -> int:
        return self.window if self.shuffle else 1

    def _find_shards(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Numbers of the shards at positions ``start..stop`` of an epoch."""
        positions = np.arange(start, stop, dtype=np.int64)
        return permute(positions, len(self.stream.shards), (self.seed, epoch)) if self.shuffle else positions

    def __repr__(self) -> str:
        shuffled = f", shuffle=True, window={self.window}, buffer={self.buffer}" if self.shuffle else ""
        return f"StreamDataset({self.stream!r}{shuffled})"


class _StreamFields:
    """What a plan asks of a store: the fields, and a name for errors."""

    def __init__(self, stream: ShardStream) -> None:
        self._stream = stream
        self.url = str(stream.shards[0])

    @property
    def schema(self) -> Schema:
        """The stream's."""
        return self._stream.schema


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
    """Yield uniform numbers in [0, 1)."""
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
