"""One order for all ranks of a job, divided among them.

::

    the job's order   0 1 2 3 4 5 6 7 8 9 | 0 1      ten samples; four ranks need twelve, so the head comes again
    rank 0 of 4       0       4       8
    rank 1 of 4         1       5       9
    rank 2 of 4           2       6         0
    rank 3 of 4             3       7         1
    step              '--- 0 -'--- 1 -'--- 2 --'     step k of all ranks is one range of the order

What becomes of the last step is the policy ``drop_last``: repeated samples fill it (False), it is left out (True), or
some ranks take it alone ("uneven").

Positions count samples of all ranks. So a state is the same on every rank, and what remains after it can be divided
among another number of ranks. Each sampler of this package for several ranks is a :class:`RankSampler`, which defines
the index at each position of the job's order. Processes do not communicate: ranks agree because they compute the same
order from the same seed.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.ranks import find_world
from penstock.sample import State
from penstock.samplers.base import BLOCK, IndexSampler, PositionedSampler, check_count, check_seed

__all__ = [
    "DropLast",
    "RankPartition",
    "RankRemainder",
    "RankSampler",
    "RankedSampler",
    "RecentResults",
    "find_missing",
]

T = TypeVar("T")

DropLast: TypeAlias = bool | Literal["uneven"]
"""What becomes of the last step; see :class:`RankPartition`."""


@dataclass(frozen=True, slots=True)
class RankPartition:
    """The positions of the job's order that belong to one rank.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    """

    num_replicas: int  # number of ranks
    rank: int  # the number of this one
    drop_last: DropLast
    """Where the number of ranks does not divide the length of the order: leave out its end (True), or repeat its
    beginning (False), so that every rank has the same number of positions. "uneven": neither; the first ranks have one
    position more than the others."""

    def __post_init__(self) -> None:
        check_count("num_replicas", self.num_replicas, least=1)
        if isinstance(self.rank, (bool, np.bool_)) or not isinstance(self.rank, (int, np.integer)):
            raise ArgumentError(f"Invalid rank {self.rank!r}, rank should be an integer")
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(
                f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]"
            )
        if not isinstance(self.drop_last, bool) and self.drop_last != "uneven":
            raise ArgumentError(
                f"drop_last should be a boolean value, or 'uneven', but got drop_last={self.drop_last!r}"
            )

    def count(self, total: int, consumed: int = 0) -> int:
        """Positions of this rank in what remains of ``total`` after ``consumed``."""
        left = max(total - consumed, 0)
        if self.drop_last == "uneven":
            return (left + self.num_replicas - 1 - self.rank) // self.num_replicas
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def positions(self, start: int, stop: int, total: int, consumed: int = 0) -> NDArray[np.int64]:
        """Positions ``start..stop`` of this rank after ``consumed``, as positions in [0, total) of the job's order."""
        return self._count_on(start, stop, total, consumed) % max(total, 1)

    def find_repeats(self, start: int, stop: int, total: int, consumed: int = 0) -> NDArray[np.bool_]:
        """Return which of these positions repeat the beginning of the order."""
        return self._count_on(start, stop, total, consumed) >= total

    def _count_on(self, start: int, stop: int, total: int, consumed: int) -> NDArray[np.int64]:
        """Return the positions, counted on where the beginning is repeated."""
        turns = np.arange(start, min(stop, self.count(total, consumed)), dtype=np.int64)
        return consumed + self.rank + self.num_replicas * turns


def find_missing(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Number of ranks and rank, where one is not given those of :func:`penstock.find_world`.

    Raises ArgumentError if nothing says that there are ranks.
    """
    if num_replicas is not None and rank is not None:
        return num_replicas, rank
    world = find_world()
    if not world.source:
        raise ArgumentError(
            "num_replicas and rank must be given where there is no process group: call "
            f"torch.distributed.init_process_group first, or give them, got {num_replicas} and {rank}"
        )
    return world.num_replicas if num_replicas is None else num_replicas, world.rank if rank is None else rank


class RecentResults(Generic[T]):
    """A cache of the newest results of a function, by key; pickled without them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[tuple[int, ...], T] = {}

    def get(self, key: tuple[int, ...], make: Callable[[], T]) -> T:
        """Return the result for ``key``; computed by ``make`` if it is not in the cache."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            newest = list(self._kept.items())[-(self._size - 1) :] if self._size > 1 else []
            self._kept = {**dict(newest), key: found}  # one assignment: another thread sees the old dict or the new
        return found

    def __reduce__(self) -> tuple[type[RecentResults[T]], tuple[int]]:
        return RecentResults, (self._size,)


class RankedSampler(PositionedSampler[T]):
    """Base of samplers of indices or batches that know ranks; a subclass defines ``job_size``, ``at``, ``signature``.

    Parameters
    ----------
    num_replicas, rank, drop_last
        See :class:`RankPartition`.
    seed : int, optional
        In [0, 2**64), and the same on every rank. None, for one rank only: drawn from the operating system.

    Raises
    ------
    ArgumentError
        If there are several ranks and no seed.
    """

    def __init__(self, num_replicas: int, rank: int, drop_last: DropLast, seed: int | None) -> None:
        super().__init__()
        self._partition = RankPartition(num_replicas, rank, drop_last)
        if seed is None and num_replicas > 1:
            raise ArgumentError(
                f"seed must be given with num_replicas={num_replicas}, because all ranks need the same one"
            )
        self.seed: int = secrets.randbits(63) if seed is None else check_seed(seed)

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return self._partition.num_replicas

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self._partition.rank

    @property
    def job_size(self) -> int:
        """Samples of all ranks per epoch, before any is repeated or left out."""
        raise NotImplementedError(f"{type(self).__name__} must define job_size")

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` in [0, job_size) of the job's order; a pure function of these, epoch and seed."""
        raise NotImplementedError(f"{type(self).__name__} must define at")

    @property
    def is_uneven(self) -> bool:
        """Whether ranks may have unequal numbers of samples, or batches: they differ by at most one."""
        return self._partition.drop_last == "uneven"

    def __len__(self) -> int:
        """Samples, or batches, of this rank per epoch; the same on each, unless :attr:`is_uneven`."""
        return self._partition.count(self.job_size)

    def find_repeats(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which of the samples, or batches, at this rank's positions ``start..stop`` only fill its last step.

        They come from the beginning of the epoch, where another rank or this one has had them already. An evaluation
        that leaves them out counts each sample once. The same in every epoch; draws nothing.

        Returns
        -------
        ndarray of bool, shape (stop - start,)
            Cut at the end of the epoch.
        """
        return RankRemainder(self, 0).find_repeats(start, stop)

    def of_rank(self, rank: int) -> Self:
        """Return the sampler of another rank of the same job; raises ArgumentError if there is no such rank."""
        made = copy.copy(self)
        made._partition = replace(self._partition, rank=rank)  # noqa: SLF001  # of this class
        return made

    def _walk_numbers(self, position: int, epoch: int) -> Iterator[int]:
        """Yield what :meth:`at` gives from ``position`` on, which counts samples of all ranks."""
        rest, start = RankRemainder(self, position), 0
        while len(block := rest.order(start, start + BLOCK, epoch)):
            start += len(block)
            for index in block.tolist():
                position += self.num_replicas
                self._position = position
                yield index
        self._position = 0

    def load_state_dict(self, state: State) -> None:
        """Make the next ``iter()`` continue where ``state`` was taken, on any rank of any number of ranks.

        Raises
        ------
        StateError
            If the state belongs to a sampler with other parameters; only the number of ranks may differ.
        """
        given = state  # any other object is refused by the base class
        if isinstance(given, Mapping) and isinstance(given.get("sampler"), Mapping):
            given = {**given, "sampler": {**given["sampler"], "num_replicas": self.num_replicas}}
        super().load_state_dict(given)

    def _key(self, epoch: int, purpose: int) -> tuple[int, ...]:
        """Return the key of a permutation; purpose 0 is that of :class:`~penstock.samplers.random.RandomSampler`."""
        return self.seed, epoch, purpose


class RankSampler(RankedSampler[int], IndexSampler):
    """Base of samplers of indices that know ranks; a subclass defines ``job_size``, ``at`` and ``parameters``.

    Parameters
    ----------
    num_replicas, rank, drop_last, seed
        See :class:`RankedSampler`.
    """

    @property
    def drop_last(self) -> DropLast:
        """What becomes of the end of the order where the number of ranks does not divide its length."""
        return self._partition.drop_last

    def parameters(self) -> dict[str, object]:
        """JSON-able parameters that determine the job's order, without seed and ranks; O(1) in size."""
        raise NotImplementedError(f"{type(self).__name__} must define parameters")

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at this rank's positions ``start..stop``; O(stop - start), and O(n) once per epoch in some."""
        return self.remaining(0).order(start, stop, epoch)

    def remaining(self, consumed: int) -> RankRemainder:
        """Return the part of this rank in what remains of an epoch after all ranks have consumed ``consumed`` samples.

        That number of ranks may have been another one; with the same number it is the end of :meth:`order`.
        """
        return RankRemainder(self, check_count("consumed", consumed, least=0))

    def signature(self) -> dict[str, object]:
        """Type, parameters, drop_last and number of ranks; not the rank."""
        return {
            "type": type(self).__name__,
            "num_samples": self.job_size,
            **self.parameters(),
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas,
        }

    def _walk(self, position: int, epoch: int) -> Iterator[int]:
        return self._walk_numbers(position, epoch)


@dataclass(frozen=True, slots=True)
class RankRemainder:
    """The part of one rank in what remains of an epoch, with random access; position 0 is where it begins."""

    sampler: RankedSampler[Any]
    consumed: int

    def __len__(self) -> int:
        return self.sampler._partition.count(self.sampler.job_size, self.consumed)  # noqa: SLF001  # a view of its sampler

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop`` of what remains."""
        partition, total = self.sampler._partition, self.sampler.job_size  # noqa: SLF001  # as above
        positions = partition.positions(start, stop, total, self.consumed)
        if not len(positions):
            return positions
        return self.sampler.at(positions, self.sampler.epoch if epoch is None else epoch)

    def find_repeats(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Find which positions ``start..stop`` of what remains only fill the last step of a rank."""
        return self.sampler._partition.find_repeats(start, stop, self.sampler.job_size, self.consumed)  # noqa: SLF001  # as above

    def signature(self) -> dict[str, object]:
        """Return the sampler's signature, with ``consumed``."""
        return {**self.sampler.signature(), "consumed": self.consumed}
