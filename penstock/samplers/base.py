"""The interfaces of samplers: the order of an epoch, by position.

A sampler with random access (:class:`RandomAccess`) gives the indices at positions ``start..stop`` of any epoch, and
has no position of its own. The loader keeps the position and seeks in O(1), and iterators do not affect one another.
A loader also takes any iterable of indices, and iterates it once per epoch as torch does. Nothing here draws random
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StateError
from penstock.sample import State
from penstock.wording import ShortRepr

__all__ = [
    "BLOCK", "BatchAccess", "IndexSampler", "MakesSampler", "PositionedSampler", "RandomAccess", "RankPartitioned",
    "Sampler", "check_count", "check_seed",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)

BLOCK: Final = 4096
"""Positions per call of ``order`` when a sampler is iterated: few calls, bounded memory."""


@runtime_checkable
class RandomAccess(Protocol):
    """A sampler whose order is a pure function of (epoch, position)."""

    def __len__(self) -> int: ...

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop`` (cut at the end) of ``epoch``; None: the epoch set last."""
        ...

    def signature(self) -> Mapping[str, object]:
        """JSON-able parameters that fix the order, without the seed; O(1) in size."""
        ...


@runtime_checkable
class BatchAccess(Protocol):
    """A batch sampler whose batches are a pure function of (epoch, position)."""

    def __len__(self) -> int: ...

    def batches(self, start: int, stop: int, epoch: int | None = None) -> list[list[int]]:
        """Batches ``start..stop`` (cut at the end) of ``epoch``; None: the epoch set last."""
        ...

    def signature(self) -> Mapping[str, object]:
        """Return what determines the batches, in plain values, as :meth:`RandomAccess.signature`."""
        ...


@runtime_checkable
class RankPartitioned(Protocol):
    """A sampler with random access that divides one order among ranks, and what remains of it among any number of them.

    Positions count samples, or batches, of all ranks. ``signature()`` has ``num_replicas``, and not the rank.
    """

    num_replicas: int

    def remaining(self, consumed: int) -> RandomAccess | BatchAccess:
        """Return what remains for this rank after ``consumed`` positions, with the same kind of access."""
        ...


class Sampler(ShortRepr, Generic[T_co]):
    """Base of samplers written for penstock; torch's samplers need no base.

    A subclass defines ``__iter__`` (and ``__len__`` where it can). The loader calls :meth:`set_epoch` before each
    epoch it iterates.
    """

    epoch: int = 0

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next ``iter()`` gives."""
        self.epoch = check_count("epoch", epoch, least=0)


class PositionedSampler(Sampler[T_co]):
    """Base of samplers with random access; a subclass defines ``__len__``, ``signature`` and how it is walked.

    Iterating again gives the same epoch again until :meth:`set_epoch`. :meth:`state_dict` is O(1) and holds the
    position of the newest iterator.
    """

    seed: int | None = None

    def __init__(self) -> None:
        self._position = 0
        self._resume = 0

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def signature(self) -> dict[str, object]:
        """Parameters that fix the order, without the seed; see :class:`RandomAccess`."""
        raise NotImplementedError(f"{type(self).__name__} must define signature")

    def __iter__(self) -> Iterator[T_co]:
        start, self._resume = self._resume, 0
        self._position = start
        return self._walk(start, self.epoch)

    def _walk(self, position: int, epoch: int) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define _walk")

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``, which starts at its beginning."""
        super().set_epoch(epoch)
        self._position = self._resume = 0

    def state_dict(self) -> State:
        """Signature, seed, epoch and position of the newest iterator: JSON-able, O(1)."""
        return {
            "sampler": dict(self.signature()),
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self._resume or self._position,
        }

    def load_state_dict(self, state: State) -> None:
        """Make the next ``iter()`` go on where ``state`` was taken.

        Raises
        ------
        StateError
            If the state is not one of a sampler with these parameters; the field that differs is named.
        """
        try:
            theirs, seed, epoch, position = (state[name] for name in ("sampler", "seed", "epoch", "position"))
        except (KeyError, TypeError) as error:
            raise StateError(f"not a sampler's state: {error} is missing") from error
        if not isinstance(theirs, Mapping):
            raise StateError(f"not a sampler's state: sampler={theirs!r:.200} should be a mapping")
        ours = dict(self.signature())
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                raise StateError(f"the state's sampler has {name}={theirs.get(name)!r}, this one {ours.get(name)!r}")
        try:
            seed = None if seed is None else check_seed(seed)
            position = check_count("position", position, least=0)
            self.set_epoch(epoch)  # the last thing that can be refused: a bad state changes nothing
        except ArgumentError as error:
            raise StateError(f"not a sampler's state: {error}") from error
        self.seed = seed
        self._position = self._resume = position


class IndexSampler(PositionedSampler[int]):
    """Base of samplers of ints; a subclass defines ``__len__``, ``order`` and ``signature``. It yields Python ints."""

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop`` of ``epoch``; see :class:`RandomAccess`."""
        raise NotImplementedError(f"{type(self).__name__} must define order")

    def _walk(self, position: int, epoch: int) -> Iterator[int]:
        while len(block := self.order(position, position + BLOCK, epoch)):
            for index in block.tolist():
                position += 1
                self._position = position
                yield index
        self._position = 0


class MakesSampler:
    """Base of datasets whose samples are drawn by a sampler of their own, where a loader is given none.

    Other datasets may have a method of this name that means something else.
    """

    def make_sampler(self, *, shuffle: bool = True, seed: int | None = None) -> Sampler[int]:
        """Return the sampler for one rank."""
        raise NotImplementedError(f"{type(self).__name__} must define make_sampler")


def check_count(name: str, value: object, *, least: int) -> int:
    """Return ``value`` as an int of at least ``least``; NumPy ints pass, bools and floats do not."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        kind = "a positive" if least == 1 else "a non-negative"
        raise ArgumentError(f"{name} should be {kind} integer value, but got {name}={value!r}")
    return int(value)


def check_seed(seed: object) -> int:
    """``seed`` as an int in [0, 2**64)."""
    number = check_count("seed", seed, least=0)
    if number >= 1 << 64:
        raise ArgumentError(f"seed must be in [0, 2**64), got {number}")
    return number
