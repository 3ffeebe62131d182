"""The dataset of a stream of shards: its shards divided among readers, shuffled in windows, as transformed samples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.error_location import add_location
from penstock.datasets.fingerprints import combine_fingerprints
from penstock.datasets.store.sample_plan import SamplePlan
from penstock.datasets.streams.partitioned import PartitionedDataset
from penstock.datasets.streams.window import Item, ShuffleQuality, estimate_quality, read_shard, read_window
from penstock.errors import ArgumentError
from penstock.sample import Record, Sample, Schema
from penstock.samplers.base import check_count
from penstock.samplers.permutation import permute
from penstock.stores import STREAMS
from penstock.stores.streams import ShardStream

if TYPE_CHECKING:
    from penstock.stores.base import Store
    from penstock.transforms.base import Op

__all__ = ["StreamDataset"]


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
        """Windows of shards; shards, if nothing is shuffled."""
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
        """How well the records are shuffled, beside a shuffle of the whole epoch; reads nothing.

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
        """Of the shards, their order, and what determines the order of records."""
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
