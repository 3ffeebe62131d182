"""From torch's index samplers to tasks.

::

    index sampler  ->  Walk        iterated as torch iterates it; says where it is, goes to where it was
    Walk           ->  WalkPlan    tasks with indices and keys

A sampler of penstock's that can be asked for any position is not walked, but seeked (:mod:`penstock.loader.plan`).
Nothing here reads a sample or draws a random number of its own.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler

from penstock.datasets.base import IndexBatch
from penstock.rng import undisturbed
from penstock.sample import SampleKeys
from penstock.samplers.base import BatchAccess, IndexSampler
from penstock.torch.loader.order import BATCHING, innermost
from penstock.torch.loader.randomness import Randomness
from penstock.torch.loader.stateful import Stateful
from penstock.workers.base import Task

__all__ = ["SamplerState", "Walk", "WalkPlan"]

_logger = logging.getLogger(__name__)

SamplerState = tuple[Any, Any]
"""States of the index sampler and of its iterator, as ``StatefulDataLoader`` keeps them."""


class Walk:
    """An epoch's pass over an index sampler: batches of indices, or single indices without batches.

    Parameters
    ----------
    index_sampler : iterable
        ``loader.batch_sampler``, or ``loader.sampler`` without batches.
    before_first : callable, optional
        Called before the sampler is first advanced.
    """

    def __init__(self, index_sampler: Any, before_first: Callable[[], None] | None = None) -> None:
        self._outer = index_sampler
        self._cuts = type(index_sampler) in BATCHING
        self._constant: bool | None = None
        self._size: int | None = None  # of batches of which a short one is left out: as it was at the first
        self._before_first = before_first
        self._iterator: Any = None
        self._tells: tuple[Any, Any] | None = None  # whom to ask for a state, found when one is wanted: not each time
        self._drawn = 0
        self._primed: list[Any] = []
        self._shuffled_from: torch.Tensor | None = None

    @property
    def _inner(self) -> Any:
        return innermost(self._outer)

    def open(self) -> None:
        """``iter(index_sampler)``; batches that are only cut ask their sampler when they are first advanced."""
        if not self._cuts:
            self._set_iterator(iter(self._outer))

    def _set_iterator(self, iterator: Any) -> None:
        self._iterator, self._tells = iterator, None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._primed:
            drawn, self._primed = self._primed[0], []
            return drawn
        with undisturbed():
            return self._draw()

    def prime(self) -> None:
        """Draw now what is given next: a sampler may draw random numbers when it is first advanced."""
        if not self._drawn and not self._primed:
            self._primed = list(itertools.islice(self, 1))

    def _draw(self) -> Any:
        if self._before_first is not None:
            before_first, self._before_first = self._before_first, None
            before_first()
        if not self._cuts:
            drawn = next(self._iterator)
            self._drawn += 1
            return drawn
        try:
            if self._iterator is None:
                self._set_iterator(iter(self._inner))
            size = self._batch_size()
            batch = list(itertools.islice(self._iterator, size))
        except BaseException:
            self._set_iterator(iter(()))  # torch's batch sampler is a generator: an error is its end
            raise
        if not batch or (self._size is not None and len(batch) < size):
            raise StopIteration
        self._drawn += len(batch)
        return batch

    def _batch_size(self) -> int:
        """As torch's batch sampler: looked up for each batch, or for the first alone if a short one is left out."""
        if not self._drawn and self._outer.drop_last:
            self._size = self._outer.batch_size
        size: int = self._outer.batch_size if self._size is None else self._size
        return size

    def count(self) -> int:
        """How many indices the next draw gives, where nothing but that counts: of a stream's index sampler."""
        if self._constant is None:
            self._constant = type(self._inner) is _InfiniteConstantSampler
        if not self._constant:
            return len(list(next(self)))
        size = self._batch_size()
        self._drawn += size
        return size

    def skip(self, count: int) -> None:
        """Leave out ``count`` draws; what one raises was raised when it was first made."""
        for _ in range(count):
            try:
                next(self)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001  # as the docstring says
                _logger.debug("the sampler has raised again: %r", error)

    def state(self) -> SamplerState | None:
        """What sampler and iterator say of themselves after what was drawn; None if neither does."""
        if self._tells is None:
            inner, iterator = self._inner, self._iterator
            # one of ours comes here if a subclass iterates in its own way, of which our state_dict() knows nothing
            ours = isinstance(inner, (IndexSampler, BatchAccess))
            self._tells = _stateful(None if ours else inner), _stateful(iterator)
        of_sampler, of_iterator = map(_state_of, self._tells)
        if self._shuffled_from is not None:
            of_iterator = {"yielded": self._drawn, "generator": self._shuffled_from}
        if of_sampler is None and of_iterator is None:
            return None
        if not self._cuts:
            return of_sampler, of_iterator
        states = {"sampler_state": of_sampler, "sampler_iter_state": of_iterator}
        kept = {name: state for name, state in states.items() if state is not None}
        return None, {"samples_yielded": self._drawn, **kept}

    def restore(self, state: SamplerState | None) -> bool:
        """Go to where ``state`` was taken; False if the sampler cannot: it is to be run forward from its beginning."""
        of_sampler, of_iterator = (None, None) if state is None else copy.deepcopy(state)
        drawn = 0
        if self._cuts and isinstance(of_iterator, dict):
            drawn = of_iterator.get("samples_yielded", 0)
            of_sampler, of_iterator = of_iterator.get("sampler_state"), of_iterator.get("sampler_iter_state")
        sampler = self._inner
        if type(sampler) is RandomSampler and isinstance(of_iterator, dict) and "generator" in of_iterator:
            self._set_iterator(_from_torchdata(sampler, of_iterator))
            self._drawn = of_iterator["yielded"]
            self._shuffled_from = of_iterator["generator"]
            return True
        restored = of_sampler is not None and isinstance(sampler, Stateful)
        if restored:
            sampler.load_state_dict(of_sampler)
        if restored or of_iterator is not None:
            iterator = iter(sampler)
            if of_iterator is not None and isinstance(iterator, Stateful):
                iterator.load_state_dict(of_iterator)
                restored = True
            if restored:
                self._set_iterator(iterator)
                self._drawn = drawn
        return restored


def _stateful(what: Any) -> Any:
    """``what``, if it can say where it is."""
    return what if isinstance(what, Stateful) else None


def _state_of(what: Any) -> Any:
    return None if what is None else copy.deepcopy(what.state_dict())


def _from_torchdata(sampler: RandomSampler, saved: dict[str, Any]) -> Iterator[int]:
    """The order that torchdata's own random sampler was in the middle of: it keeps the state it shuffled from."""
    again = copy.copy(sampler)
    again.generator = sampler.generator if sampler.generator is not None else torch.Generator()
    Randomness(generators=[saved["generator"]]).restore([again.generator])
    walk = iter(again)
    for _ in itertools.islice(walk, saved["yielded"]):
        pass
    return walk


class WalkPlan:
    """Tasks from a walk.

    Parameters
    ----------
    walk : Walk
        At the first batch that is wanted.
    batched : bool
        Whether it gives batches of indices.
    seed, epoch : int
        Parts of the samples' keys.
    start : int
        Number of the first task.
    stream : bool
        Whether indices mean nothing: a stream's tasks have their number alone.
    fills : bool
        Whether the dataset fills, and wants indices as an array.
    """

    numbers_errors = True
    """As torch's loader, which asks a sampler again that has raised."""

    def __init__(
        self,
        walk: Walk,
        *,
        batched: bool,
        seed: int,
        epoch: int,
        start: int,
        stream: bool = False,
        fills: bool = False,
    ) -> None:
        self._walk, self._batched, self._stream, self._fills = walk, batched, stream, fills
        self._seed, self._epoch, self._seq = seed, epoch, start
        self._nothing = SampleKeys(seed, epoch, np.empty(0, np.int64))

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        seq, self._seq = self._seq, self._seq + 1
        try:
            if self._stream:
                return Task(seq, (), self._nothing, size=self._walk.count() if self._batched else self._one())
            drawn = next(self._walk)
        except StopIteration:
            self._seq = seq  # an error keeps the number: it is delivered in a batch's place
            raise
        if not self._batched:
            drawn = [drawn]
        elif type(drawn) is not list:
            drawn = IndexBatch(drawn)
        task = Task(seq, *self._keyed(drawn))
        task.sampler_state = self._walk.state()
        return task

    def _one(self) -> int:
        next(self._walk)
        return 1

    def _keyed(self, drawn: list[Any]) -> tuple[Any, SampleKeys]:
        return _keyed(drawn, self._seed, self._epoch, fills=self._fills)


def _keyed(drawn: list[Any], seed: int, epoch: int, *, fills: bool) -> tuple[Any, SampleKeys]:
    """Indices, and the keys of their samples: the index itself if it is a number, else a digest of its text.

    A dataset is given what its sampler drew, of the same type; one that fills is given numbers.
    """
    try:
        numbers = np.array([_number(index) for index in drawn], np.int64)
    except (TypeError, OverflowError):
        digests = [hashlib.blake2b(repr(index).encode(), digest_size=8).digest() for index in drawn]
        return drawn, SampleKeys(seed, epoch, np.frombuffer(b"".join(digests), "<i8").astype(np.int64))
    plain = (fills and len(drawn) > 0) or (type(drawn) is list and all(type(index) is int for index in drawn))
    return numbers if plain else drawn, SampleKeys(seed, epoch, numbers)


def _number(index: Any) -> int:
    if isinstance(index, int):
        return index
    if isinstance(index, torch.Tensor) and (index.dim() or index.is_floating_point()):
        raise TypeError("several numbers, or not a whole one")
    return operator.index(index)
