"""Requests of a job to object storage, by epoch: how many, how many bytes, and how long they take.

Called by :func:`penstock.simulate`. The samplers say which records a batch has, and the queue of requests says which
ranges are one request. The limits are those of one machine, which its ranks share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.errors import ArgumentError
from penstock.samplers import RandomAccess
from penstock.samplers.base import check_count
from penstock.stores.base import Store
from penstock.stores.pack.store import LOOK_AHEAD
from penstock.stores.remote.cache import DEFAULT_NBYTES
from penstock.stores.remote.cached_stores import count_store_nbytes
from penstock.stores.remote.mirror import MAX_HELD_NBYTES, MAX_IN_MEMORY_NBYTES, PART_NBYTES
from penstock.stores.remote.request_queue import MAX_REQUESTS, Fetcher, join_ranges

__all__ = ["EpochRequests", "Job", "ObjectStorage", "check_rate", "iter_requests", "measure_records"]

_BATCHES, _LARGE = 64, 4096  # batches whose requests are counted; of larger ones, those of so many samples


class Job(Protocol):
    """What is asked of a job."""

    @property
    def dataset(self) -> range:
        """As many indices as there are samples."""
        ...

    @property
    def batch_size(self) -> int:
        """Samples per batch of a rank."""
        ...

    @property
    def shuffle(self) -> bool:
        """Whether each epoch has a new order."""
        ...

    def make_sampler(self, num_replicas: int, rank: int = 0) -> RandomAccess:
        """The sampler of a rank."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """Records in object storage, and how each node reads them.

    Parameters
    ----------
    record_nbytes : int
        Mean bytes of a record as it is stored.
    cache_nbytes : int
        Limit of the cache of each node.
    ranks_per_node : int
        Ranks that share a cache.
    request_s : float
        Seconds from a request to its answer.
    bandwidth : float
        Bytes a second that each rank receives.
    epochs : int
        Number of epochs, the first one with an empty cache.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    """

    record_nbytes: int
    cache_nbytes: int = DEFAULT_NBYTES
    ranks_per_node: int = 8
    request_s: float = 0.05
    bandwidth: float = 100e6
    epochs: int = 3

    def __post_init__(self) -> None:
        check_count("record_nbytes", self.record_nbytes, least=1)
        check_count("cache_nbytes", self.cache_nbytes, least=0)
        check_count("ranks_per_node", self.ranks_per_node, least=1)
        if not 1 <= check_count("epochs", self.epochs, least=1) <= 1000:
            raise ArgumentError(f"epochs must be in [1, 1000], got {self.epochs}")
        check_rate("request_s", self.request_s)
        check_rate("bandwidth", self.bandwidth)

    def count_nodes(self, num_replicas: int) -> int:
        """Number of caches."""
        return -(-num_replicas // self.ranks_per_node)

    def count_ranks_on_node(self, num_replicas: int) -> int:
        """Ranks that share a cache and the limits of a machine."""
        return min(self.ranks_per_node, num_replicas)

    def count_look_ahead(self, samples: int, num_replicas: int) -> int:
        """Most bytes of a rank that are fetched before they are read; fewer while the cache is full."""
        fits = self.cache_nbytes >= samples * self.record_nbytes
        most = MAX_HELD_NBYTES if fits else MAX_IN_MEMORY_NBYTES
        return min(LOOK_AHEAD * self.record_nbytes, most // self.count_ranks_on_node(num_replicas))


@dataclass(frozen=True, slots=True)
class EpochRequests:
    """What all ranks ask object storage for in one epoch. Ranks have equal parts of it, and so have nodes."""

    epoch: int  # 0 begins with empty caches
    hit_rate: float  # part of the records that the cache of their node has, in [0, 1]
    requests: int
    nbytes: int
    hours: float  # the longest of what training, requests, look-ahead and bandwidth take
    limited_by: str  # which of these
    requests_per_hour: int
    nbytes_per_hour: int


def measure_records(store: Store) -> int:
    """Mean bytes of a record of a store, as it is stored, rounded up; that of 256 records where these must be read."""
    count = max(len(store), 1)
    if store.location.remote is not None:
        return max(-(-count_store_nbytes(store) // count), 1)
    chosen = np.unique(np.linspace(0, count - 1, min(count, 256)).astype(np.int64))[: len(store)]
    values = [value for record in store.read(chosen) for value in record.fields.values()]
    nbytes = sum(len(each) if isinstance(each, bytes) else getattr(each, "nbytes", 8) for each in values)
    return max(-(-nbytes // max(len(chosen), 1)), 1)


def iter_requests(
    storage: ObjectStorage, job: Job, ranks: int, rank_samples: int, hours: float | None
) -> Iterator[EpochRequests]:
    """The requests of each epoch, in which each rank has ``rank_samples`` samples and trains for ``hours``."""
    nodes, on_node = storage.count_nodes(ranks), storage.count_ranks_on_node(ranks)
    means = _count_requests(storage, job, ranks, rank_samples)
    kept = min(storage.cache_nbytes / (len(job.dataset) * storage.record_nbytes), 1.0)
    for epoch in range(storage.epochs):
        seen = 1 - (1 - 1 / nodes) ** epoch  # a node reads another part of a shuffled order in each epoch
        hit_rate = min(kept, seen) if job.shuffle else min(kept * nodes, 1.0) * (epoch > 0)
        requests, nbytes = (rank_samples * each * (1 - hit_rate) for each in means)
        durations = {
            "training": hours or 0.0,
            "requests": requests * on_node * storage.request_s / MAX_REQUESTS / 3600,
            "look-ahead": nbytes * storage.request_s / storage.count_look_ahead(len(job.dataset), ranks) / 3600,
            "bandwidth": nbytes / storage.bandwidth / 3600,
        }
        limited_by = max(durations, key=durations.__getitem__)
        longest = durations[limited_by]
        yield EpochRequests(
            epoch,
            hit_rate,
            round(requests * ranks),
            round(nbytes * ranks),
            longest,
            limited_by,
            round(requests * ranks / longest) if longest else 0,
            round(nbytes * ranks / longest) if longest else 0,
        )


def _count_requests(storage: ObjectStorage, job: Job, ranks: int, rank_samples: int) -> tuple[float, float]:
    """Mean requests and bytes of a sample that is in no cache; neighbours are joined."""
    queue = Fetcher()  # it starts no thread until it is given a request
    queue.seconds, queue.rate = storage.request_s, storage.bandwidth * storage.count_ranks_on_node(ranks)
    generator, samples, requests, nbytes = np.random.default_rng(0), 0, 0, 0
    size, count = storage.record_nbytes, min(job.batch_size, _LARGE)
    for _ in range(_BATCHES):
        rank, start = int(generator.integers(ranks)), int(generator.integers(max(rank_samples, 1)))
        start -= start % job.batch_size
        indices = np.unique(job.make_sampler(ranks, rank).order(start, start + count)).tolist()
        samples += len(indices)
        for group in join_ranges([(index * size, size) for index in indices], queue.gap_nbytes, PART_NBYTES):
            requests += 1
            nbytes += group[-1][0] + size - group[0][0]
    return requests / max(samples, 1), nbytes / max(samples, 1)


def check_rate(name: str, value: float) -> float:
    """``value``, which must be a positive number; ArgumentError if it is not."""
    if not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive number, got {value!r}")
    return value
