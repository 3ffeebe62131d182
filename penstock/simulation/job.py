"""What each rank of a job gets, computed before the job runs: steps, repeats, memory, states, requests.

::

    samples, ranks, batch size ──> the samplers of all ranks ──> steps, repeats; which samples are drawn
                                   the loader of a rank      ──> states, resumed on other numbers of ranks
    bytes, cache, rates        ──> batches of the samplers   ──> requests to object storage and bytes, by epoch

Called by ``penstock plan``. The rules are those of the samplers, of the loader and of the queue of requests, which are
called here and not repeated. Nothing here reads a record or starts a worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, check_choice
from penstock.loader import DataLoader
from penstock.loader.order import Ranks
from penstock.loader.recipe import count_batches_under_way
from penstock.sample import StateDict
from penstock.samplers import BatchSampler, DistributedSampler
from penstock.samplers.base import check_count
from penstock.samplers.ranks import DropLast
from penstock.simulation.object_storage import EpochRequests, ObjectStorage, check_rate
from penstock.stores.remote.mirror import PART_NBYTES
from penstock.stores.remote.request_queue import MAX_REQUESTS, Fetcher, join_ranges

__all__ = ["Bounds", "Coverage", "RankShares", "Simulation", "simulate"]

MAX_RANKS: Final = 1 << 16
EXACT: Final = 2_000_000
"""Most samples of an epoch whose draws are all computed; of longer epochs, draws at random positions are."""
_POLICIES: Final[dict[str, DropLast]] = {"pad": False, "drop": True, "keep": "uneven"}
_CHECKED, _RANKS_CHECKED, _BLOCK = 1 << 18, 1024, 64  # draws, ranks, and successive draws of a rank in long epochs
_BATCHES, _LARGE = 64, 4096  # batches whose requests are counted; of larger ones, those of so many samples


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most of a number over all ranks."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class RankShares:
    """How an epoch, or what remains of it, is divided among ranks."""

    num_replicas: int
    consumed: int  # draws of all ranks before; 0 at the beginning of the epoch
    steps: Bounds  # batches of a rank
    samples: Bounds  # in these
    repeated: int  # draws of all ranks beyond the end of the order
    left_out: int  # draws of the order that no rank delivers


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which samples the draws of an epoch are."""

    draws: int  # that were computed
    distinct: int  # different samples among them
    is_exact: bool  # whether all draws were computed; else those of all ranks at random positions


@dataclass(frozen=True, slots=True)
class Simulation:
    """What :func:`simulate` returns. Fields are None, or empty, where the numbers that they need are not given."""

    samples: int
    batch_size: int
    shares: RankShares  # of an epoch that is not interrupted
    coverage: Coverage
    batches: int  # of a rank in memory: under way, ready, and two with the consumer
    batches_nbytes: int | None  # of these
    look_ahead_nbytes: int | None  # of the records of a rank that are fetched before their batches are built
    state_nbytes: int  # of a loader's state as JSON, in the middle of the epoch; one is enough for all ranks
    hours: float | None  # of an epoch, by the rate of training
    nodes: int | None  # with a cache each
    resumes: tuple[RankShares, ...]  # what remains at each resume
    requests: tuple[EpochRequests, ...]  # by epoch


def simulate(
    samples: int,
    num_replicas: int,
    batch_size: int,
    *,
    shuffle: bool = True,
    uneven: str = "pad",
    drop_last: bool = False,
    seed: int = 0,
    num_workers: int = 0,
    prefetch_factor: int = 2,
    sample_nbytes: int | None = None,
    samples_per_second: float | None = None,
    resume_ranks: Sequence[int] = (),
    storage: ObjectStorage | None = None,
) -> Simulation:
    """Compute what each rank of a job gets, without running it.

    Parameters
    ----------
    samples : int
        Samples of the dataset, in [1, 2**62].
    num_replicas : int
        Number of ranks, in [1, 65536].
    batch_size : int
        Samples per batch of one rank.
    shuffle, seed : bool, int
        As for :class:`~penstock.DistributedSampler`.
    uneven : {"pad", "drop", "keep"}
        Where ``num_replicas`` does not divide ``samples``: repeat the beginning of the order, leave out its end, or
        neither, so that the first ranks have one sample more (``drop_last`` of a sampler: False, True, "uneven").
    drop_last : bool
        Leave out the last batch of each rank where it is short.
    num_workers, prefetch_factor : int
        As for :class:`~penstock.DataLoader`.
    sample_nbytes : int, optional
        Bytes of a sample in a batch.
    samples_per_second : float, optional
        Samples that each rank trains on in a second.
    resume_ranks : sequence of int
        The job is stopped as often as there are numbers, at equal distances in the epoch, and is resumed with each of
        these numbers of ranks: ``(768, 1000)`` after one and after two thirds.
    storage : ObjectStorage, optional
        The records are in object storage.

    Returns
    -------
    Simulation
        Steps, samples, repeats and states are exact. Memory is an upper bound. Requests are an estimate: those of some
        batches, for records that lie one after another, and with caches that hold random records.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Examples
    --------
    >>> found = simulate(1_000_000_000, num_replicas=1000, batch_size=256, resume_ranks=[768])
    >>> found.shares.steps, found.shares.repeated, found.coverage.distinct == found.coverage.draws
    (Bounds(least=3907, most=3907), 0, True)
    >>> found.resumes[0].consumed, found.resumes[0].steps, found.resumes[0].repeated
    (499968000, Bounds(least=2544, most=2544), 512)
    """
    if check_count("samples", samples, least=1) > 1 << 62:
        raise ArgumentError(f"samples must be in [1, 2**62], got {samples}")
    check_choice("uneven", uneven, _POLICIES)
    for count in (num_replicas, *resume_ranks):
        if check_count("number of ranks", count, least=1) > MAX_RANKS:
            raise ArgumentError(f"the number of ranks must be in [1, {MAX_RANKS}], got {count}")
    job = _Job(
        range(samples), check_count("batch_size", batch_size, least=1), shuffle, seed, _POLICIES[uneven], drop_last
    )
    shares = job.divide(num_replicas, 0)
    batches = 2 + count_batches_under_way(check_count("num_workers", num_workers, least=0), prefetch_factor)
    hours = batches_nbytes = None
    if samples_per_second is not None:
        hours = shares.samples.most / check_rate("samples_per_second", samples_per_second) / 3600
    if sample_nbytes is not None:
        batches_nbytes = batches * batch_size * check_count("sample_nbytes", sample_nbytes, least=1)
    return Simulation(
        samples=samples,
        batch_size=batch_size,
        shares=shares,
        coverage=job.check_draws(num_replicas),
        batches=batches,
        batches_nbytes=batches_nbytes,
        look_ahead_nbytes=None if storage is None else storage.count_look_ahead(samples, num_replicas),
        state_nbytes=len(json.dumps(_advance(job.make_loader(num_replicas), shares.steps.least // 2))),
        hours=hours,
        nodes=None if storage is None else storage.count_nodes(num_replicas),
        resumes=tuple(job.iter_resumes(shares, resume_ranks)),
        requests=() if storage is None else tuple(job.iter_requests(shares, storage, hours)),
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """What is equal on all numbers of ranks."""

    dataset: range
    batch_size: int
    shuffle: bool
    seed: int
    uneven: DropLast
    drop_last: bool

    def make_sampler(self, num_replicas: int, rank: int = 0) -> DistributedSampler:
        """Return the sampler of a rank."""
        return DistributedSampler(self.dataset, num_replicas, rank, self.shuffle, self.seed, self.uneven)

    def divide(self, num_replicas: int, consumed: int) -> RankShares:
        """Return what remains after ``consumed`` draws, divided among ranks; each of them is asked."""
        rests = [self.make_sampler(num_replicas, rank).remaining(consumed) for rank in range(num_replicas)]
        steps = [len(BatchSampler(range(len(rest)), self.batch_size, self.drop_last)) for rest in rests]
        delivered = [min(count * self.batch_size, len(rest)) for count, rest in zip(steps, rests, strict=True)]
        # Ranks deliver the first draws of the order, and then repeats.
        surplus = sum(delivered) - max(len(self.dataset) - consumed, 0)
        bounds = Bounds(min(steps), max(steps)), Bounds(min(delivered), max(delivered))
        return RankShares(num_replicas, consumed, *bounds, max(surplus, 0), max(-surplus, 0))

    def check_draws(self, num_replicas: int) -> Coverage:
        """Compute the draws of all ranks, or some of each, and count the different samples among them."""
        size = len(self.make_sampler(num_replicas, num_replicas - 1))  # the least of all ranks
        is_exact = len(self.dataset) <= EXACT
        ranks = num_replicas if is_exact else min(num_replicas, _RANKS_CHECKED)
        block = size + 1 if is_exact else min(_BLOCK, size - 1)  # the last draw of a rank may be a repeat
        generator, most = np.random.default_rng(0), max(_CHECKED // (ranks * block), 1)
        parts = []
        for rank in np.linspace(0, num_replicas - 1, ranks).astype(np.int64).tolist():
            sampler = self.make_sampler(num_replicas, rank)
            starts = [0] if is_exact else np.unique(generator.integers(0, (size - 1) // block, most)) * block
            parts += [sampler.order(start, start + block) for start in starts]
        draws = np.concatenate(parts)
        return Coverage(len(draws), len(np.unique(draws)), is_exact)

    def iter_resumes(self, shares: RankShares, resume_ranks: Sequence[int]) -> Iterator[RankShares]:
        """Yield what remains at each resume, as a loader of rank 0 has it after it has loaded the state."""
        loader = self.make_loader(shares.num_replicas)
        for left, replicas in zip(range(len(resume_ranks), 0, -1), resume_ranks, strict=True):
            state = _advance(loader, shares.steps.least // (left + 1))
            loader = self.make_loader(replicas)
            loader.load_state_dict(state)
            position = loader.state_dict()
            origin, samples, batches = position["ranks"]["origin"], position["samples"], position["batches"]
            shares = self.divide(replicas, Ranks(replicas, "samples").consumed(origin, samples, batches))
            yield shares

    def make_loader(self, num_replicas: int) -> DataLoader:
        sampler = self.make_sampler(num_replicas)
        longest = (1 << 63) - 1  # of the seeds that a loader draws
        return DataLoader(self.dataset, self.batch_size, sampler=sampler, drop_last=self.drop_last, seed=longest)

    def iter_requests(self, shares: RankShares, storage: ObjectStorage, hours: float | None) -> Iterator[EpochRequests]:
        """Yield the requests of each epoch, in which each rank trains for ``hours``."""
        ranks, samples = shares.num_replicas, shares.samples.most
        nodes, on_node = storage.count_nodes(ranks), storage.count_ranks_on_node(ranks)
        means = self._count_requests(ranks, samples, storage)
        kept = min(storage.cache_nbytes / (len(self.dataset) * storage.record_nbytes), 1.0)
        for epoch in range(storage.epochs):
            seen = 1 - (1 - 1 / nodes) ** epoch  # a node reads another part of a shuffled order in each epoch
            hit_rate = min(kept, seen) if self.shuffle else min(kept * nodes, 1.0) * (epoch > 0)
            requests, nbytes = (samples * each * (1 - hit_rate) for each in means)
            durations = {
                "training": hours or 0.0,
                "requests": requests * on_node * storage.request_s / MAX_REQUESTS / 3600,
                "look-ahead": nbytes * storage.request_s / storage.count_look_ahead(len(self.dataset), ranks) / 3600,
                "bandwidth": nbytes / storage.bandwidth / 3600,
            }
            limited_by = max(durations, key=durations.__getitem__)
            longest = durations[limited_by]
            totals = round(requests * ranks), round(nbytes * ranks)
            hourly = [round(each / longest) if longest else 0 for each in totals]
            yield EpochRequests(epoch, hit_rate, *totals, longest, limited_by, *hourly)

    def _count_requests(self, ranks: int, samples: int, storage: ObjectStorage) -> tuple[float, float]:
        """Mean requests and bytes of a sample that is in no cache; neighbours are joined."""
        queue = Fetcher()  # it starts no thread until it is given a request
        queue.seconds, queue.rate = storage.request_s, storage.bandwidth * storage.count_ranks_on_node(ranks)
        generator, drawn, requests, nbytes = np.random.default_rng(0), 0, 0, 0
        size, count = storage.record_nbytes, min(self.batch_size, _LARGE)
        for _ in range(_BATCHES):
            rank, start = int(generator.integers(ranks)), int(generator.integers(max(samples, 1)))
            start -= start % self.batch_size
            indices = np.unique(self.make_sampler(ranks, rank).order(start, start + count)).tolist()
            drawn += len(indices)
            for group in join_ranges([(index * size, size) for index in indices], queue.gap_nbytes, PART_NBYTES):
                requests += 1
                nbytes += group[-1][0] + size - group[0][0]
        return requests / max(drawn, 1), nbytes / max(drawn, 1)


def _advance(loader: DataLoader, steps: int) -> StateDict:
    """The state that a loader of rank 0 has after so many steps; its ``load_state_dict`` compares it with the order."""
    state = loader.state_dict()
    state["batches"] += steps
    rest = loader.sampler.remaining(state["ranks"]["origin"])
    state["samples"] = min(state["batches"] * (loader.batch_size or 1), len(rest))
    loader.load_state_dict(state)
    return loader.state_dict()
