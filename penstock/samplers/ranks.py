"""One order for the whole job, dealt out to its ranks like cards.

::

    the job's order   0 1 2 3 4 5 6 7 8 9 | 0 1      ten samples; four ranks need twelve, so the head comes again
    rank 0 of 4       0       4       8
    rank 1 of 4         1       5       9
    rank 2 of 4           2       6         0
    rank 3 of 4             3       7         1
    step              '--- 0 -'--- 1 -'--- 2 --'     step k of all ranks together is one stretch of the order

A position is counted in samples of the whole job. So a state says the same on every rank, and what is left after it
can be dealt out again to another number of them. Every sampler of this package that knows ranks is a
:class:`RankSampler`; it says only which index stands at which position of the job's order. Nothing here talks to other
processes: ranks agree because they compute the same order from the same seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import State
from penstock.samplers.base import IndexSampler, checked_count, checked_seed

__all__ = ["Deal", "RankSampler", "Recent", "Remainder"]

T = TypeVar("T")

_BLOCK: Final = 4096
"""Positions per call while a sampler is iterated: few calls, bounded memory."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Which positions of the job's order are one rank's.

    Parameters
    ----------
    num_replicas, rank : int
        How many ranks there are, and which of them this is.
    drop_last : bool
        Where the ranks do not divide the order: leave out its tail (True), or begin it again (False). Every rank has
        equally many positions either way.
    """

    num_replicas: int
    rank: int
    drop_last: bool

    def __post_init__(self) -> None:
        checked_count("num_replicas", self.num_replicas, least=1)
        if isinstance(self.rank, (bool, np.bool_)) or not isinstance(self.rank, (int, np.integer)):
            raise ArgumentError(f"Invalid rank {self.rank!r}, rank should be an integer")
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(
                f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]"
            )
        if not isinstance(self.drop_last, bool):
            raise ArgumentError(f"drop_last should be a boolean value, but got drop_last={self.drop_last!r}")

    def count(self, total: int, consumed: int = 0) -> int:
        """Positions per rank of what is left of ``total`` after ``consumed``."""
        left = max(total - consumed, 0)
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def positions(self, start: int, stop: int, total: int, consumed: int = 0) -> NDArray[np.int64]:
        """Where in the job's order this rank's positions ``start..stop`` after ``consumed`` are, in [0, total)."""
        turns = np.arange(start, min(stop, self.count(total, consumed)), dtype=np.int64)
        return (consumed + self.rank + self.num_replicas * turns) % max(total, 1)


class Recent(Generic[T]):
    """The newest few results of costly calls, by key; it pickles empty."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[tuple[int, ...], T] = {}

    def get(self, key: tuple[int, ...], make: Callable[[], T]) -> T:
        """What ``make`` gave for ``key``, or gives now."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            newest = list(self._kept.items())[-(self._size - 1) :] if self._size > 1 else []
            self._kept = {**dict(newest), key: found}  # one assignment: another thread sees the old dict or the new
        return found

    def __reduce__(self) -> tuple[type[Recent[T]], tuple[int]]:
        return Recent, (self._size,)


class RankSampler(IndexSampler):
    """Base of samplers that know ranks; a subclass defines ``job_size``, ``at`` and ``parameters``.

    Parameters
    ----------
    num_replicas, rank, drop_last
        See :class:`Deal`.
    seed : int, optional
        In [0, 2**64), and the same on every rank. None, for a single rank only: drawn from the operating system.
    """

    def __init__(self, num_replicas: int, rank: int, drop_last: bool, seed: int | None) -> None:
        super().__init__()
        self._deal = Deal(num_replicas, rank, drop_last)
        if seed is None and num_replicas > 1:
            raise ArgumentError(f"seed=None with num_replicas={num_replicas}: ranks agree on an order by a common seed")
        self.seed: int = secrets.randbits(63) if seed is None else checked_seed(seed)

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return self._deal.num_replicas

    @property
    def rank(self) -> int:
        """Number of the rank whose share this is."""
        return self._deal.rank

    @property
    def drop_last(self) -> bool:
        """Whether the tail is left out where the ranks do not divide the order."""
        return self._deal.drop_last

    @property
    def job_size(self) -> int:
        """Samples of the whole job per epoch, before any is repeated or left out for the ranks' sake."""
        raise NotImplementedError(f"{type(self).__name__} must define job_size")

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at any ``positions`` in [0, job_size) of the job's order; a pure function of them, epoch and seed."""
        raise NotImplementedError(f"{type(self).__name__} must define at")

    def parameters(self) -> dict[str, object]:
        """JSON-able parameters that fix the job's order, without seed and ranks; O(1) in size."""
        raise NotImplementedError(f"{type(self).__name__} must define parameters")

    def __len__(self) -> int:
        """Samples of this rank per epoch, the same on each."""
        return self._deal.count(self.job_size)

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at this rank's positions ``start..stop``; O(stop - start) but for what an epoch costs once."""
        return self.remaining(0).order(start, stop, epoch)

    def remaining(self, consumed: int) -> Remainder:
        """What this rank has of an epoch of which the whole job has consumed ``consumed`` samples already.

        Whoever consumed them: the same number of ranks (then it is the tail of :meth:`order`) or another one.
        """
        return Remainder(self, checked_count("consumed", consumed, least=0))

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
        """As the base's; the position counts samples of the whole job, and one step here is one on every rank."""
        rest, start = self.remaining(position), 0
        while len(block := rest.order(start, start + _BLOCK, epoch)):
            start += len(block)
            for index in block.tolist():
                position += self.num_replicas
                self._position = position
                yield index
        self._position = 0

    def load_state_dict(self, state: State) -> None:
        """Make the next ``iter()`` go on where ``state`` was taken, on whichever rank of however many.

        Raises
        ------
        StateError
            If the state is not one of a sampler with these parameters; the number of ranks alone may differ.
        """
        given = state  # what is no such mapping, the base refuses
        if isinstance(given, Mapping) and isinstance(given.get("sampler"), Mapping):
            given = {**given, "sampler": {**given["sampler"], "num_replicas": self.num_replicas}}
        super().load_state_dict(given)

    def _key(self, epoch: int, purpose: int) -> tuple[int, ...]:
        """Names a permutation; purpose 0 is that of :class:`~penstock.samplers.random.RandomSampler`."""
        return self.seed, epoch, purpose


@dataclass(frozen=True, slots=True)
class Remainder:
    """One rank's share of the rest of an epoch, with random access from the rest's beginning."""

    sampler: RankSampler
    consumed: int

    def __len__(self) -> int:
        return self.sampler._deal.count(self.sampler.job_size, self.consumed)  # noqa: SLF001  # a view of its sampler

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop`` of the rest."""
        deal, total = self.sampler._deal, self.sampler.job_size  # noqa: SLF001  # as above
        positions = deal.positions(start, stop, total, self.consumed)
        if not len(positions):
            return positions
        return self.sampler.at(positions, self.sampler.epoch if epoch is None else epoch)

    def signature(self) -> dict[str, object]:
        """The sampler's, and where the rest begins."""
        return {**self.sampler.signature(), "consumed": self.consumed}
