"""Records in object storage, and the requests of an epoch for them.

Given to :func:`penstock.simulate`, which returns the requests. Ranks of one node share a cache and all limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import ArgumentError
from penstock.samplers.base import check_count
from penstock.stores.base import Store
from penstock.stores.lmdb_pack.store import LOOK_AHEAD
from penstock.stores.remote.cache import DEFAULT_NBYTES
from penstock.stores.remote.cached_stores import count_store_nbytes
from penstock.stores.remote.mirror import MAX_HELD_NBYTES, MAX_IN_MEMORY_NBYTES

__all__ = ["EpochRequests", "ObjectStorage", "check_rate", "measure_records"]


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
        """Count the machines, each with a cache."""
        return -(-num_replicas // self.ranks_per_node)

    def count_ranks_on_node(self, num_replicas: int) -> int:
        """Ranks that share a cache and the limits of a machine."""
        return min(self.ranks_per_node, num_replicas)

    def count_look_ahead(self, samples: int, num_replicas: int) -> int:
        """Most bytes of a rank that are fetched before they are read; fewer while the cache is full."""
        fits = self.cache_nbytes >= samples * self.record_nbytes
        most = MAX_HELD_NBYTES if fits else MAX_IN_MEMORY_NBYTES
        return min(LOOK_AHEAD * 3 // 2 * self.record_nbytes, most // self.count_ranks_on_node(num_replicas))


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


def check_rate(name: str, value: float) -> float:
    """``value``, which must be a positive number; ArgumentError if it is not."""
    if not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive number, got {value!r}")
    return value
