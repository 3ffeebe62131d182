"""A pass over a sampler that can only be iterated: its indices in order, and a position to return to."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Callable, Iterator, Sized
from typing import Final, cast

from penstock.datasets.streams.division import StatefulObject
from penstock.rng import undisturbed
from penstock.sample import Index, SamplerLike, State
from penstock.samplers.base import BatchAccess, IndexSampler
from penstock.workers.jobs.base import is_stateful

__all__ = ["SamplerCursor"]

_logger = logging.getLogger(__name__)

_NOT_OPEN: Final[Iterator[Index]] = iter(())


class SamplerCursor:
    """One pass over an index sampler: batches of indices, or single indices without batches."""

    def __init__(
        self, index_sampler: SamplerLike, *, cuts: bool, before_first: Callable[[], None] | None = None
    ) -> None:
        self._outer, self._cuts, self._before_first = index_sampler, cuts, before_first
        self._iterator = _NOT_OPEN
        # sampler and iterator with a state; found once, not for each batch
        self._owners: tuple[StatefulObject | None, StatefulObject | None] | None = None
        self._full_size: int | None = None  # of batches where a short one is left out: as it was at the first
        self._primed: list[Index] = []
        self._has_ended = False
        self.drawn = 0
        """Indices drawn so far; batches, where the sampler draws batches."""

    @property
    def inner(self) -> SamplerLike:
        """The sampler whose indices are drawn; it may be exchanged until it is first advanced."""
        return self._outer.sampler if self._cuts else self._outer

    def open(self) -> None:
        """Call ``iter(index_sampler)``; where it only cuts, its sampler is opened when it is first advanced."""
        if not self._cuts:
            self._set_iterator(iter(self._outer))

    def _set_iterator(self, iterator: Iterator[Index]) -> None:
        self._iterator, self._owners = iterator, None

    def __iter__(self) -> Iterator[Index]:
        return self

    def __next__(self) -> Index:
        if self._primed:
            drawn, self._primed = self._primed[0], []
            return drawn
        with undisturbed():
            return self._draw()

    def prime(self) -> None:
        """Draw now what is returned next: a sampler may draw random numbers when it is first advanced."""
        if not self.drawn and not self._primed:
            self._primed = list(itertools.islice(self, 1))

    def _draw(self) -> Index:
        if self._before_first is not None:
            before_first, self._before_first = self._before_first, None
            before_first()
        if not self._cuts:
            drawn = next(self._iterator)
            self.drawn += 1
            return drawn
        try:
            if self._iterator is _NOT_OPEN:
                self._set_iterator(iter(self.inner))
            size = self._next_size()
            batch = list(itertools.islice(self._iterator, size))
        except BaseException:
            self._set_iterator(iter(()))  # a batch sampler of torch's is a generator: an error ends it
            raise
        self._has_ended = len(batch) < size
        is_dropped = not batch or (self._full_size is not None and self._has_ended)
        self.drawn += len(batch)
        if is_dropped:
            raise StopIteration
        return batch

    def _next_size(self) -> int:
        """The batch size as torch's batch sampler looks it up: for each batch, or once if a short one is left out."""
        if not self.drawn and self._outer.drop_last:
            self._full_size = self._outer.batch_size
        size: int = self._outer.batch_size if self._full_size is None else self._full_size
        return size

    def skip(self, count: int) -> None:
        """Leave out ``count`` draws; an error is ignored, as it was raised when the draw was first made."""
        for _ in range(count):
            try:
                next(self)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001  # as the docstring says
                _logger.debug("the sampler raised again: %r", error)

    def owners(self) -> tuple[StatefulObject | None, StatefulObject | None]:
        """Return the sampler and its iterator, each if it has a ``state_dict``, else None."""
        if self._owners is None:
            sampler, iterator = self.inner, self._iterator
            # One of ours is here only if a subclass iterates in its own way, of which our state_dict() knows nothing.
            own = isinstance(sampler, (IndexSampler, BatchAccess))
            self._owners = (
                None if own or not is_stateful(sampler) else sampler,
                iterator if is_stateful(iterator) else None,
            )
        return self._owners

    def state(self) -> State:
        """Return the position after what was drawn, in our layout; None if neither sampler nor iterator has a state."""
        sampler, iterator = self.owners()
        owner = sampler if iterator is None else iterator
        if owner is None:
            return None
        state = copy.deepcopy(owner.state_dict())
        return {"of": "sampler" if iterator is None else "iterator", "state": state, "ended": self._has_ended}

    def restore(self, state: State, batches: int) -> None:
        """Go to where ``state`` was taken, after ``batches`` batches; without a state, draw these again."""
        if state is None:
            self.open()
            if batches:
                sampler = type(self.inner).__name__
                _logger.warning("%s has no state_dict: running it forward over %d batches", sampler, batches)
                self.skip(batches)
            return
        self.drawn = batches * self._outer.batch_size if self._cuts else batches
        if state["ended"]:  # its state at the end may be that of its start: it is not restored
            self._set_iterator(iter(()))
            self.drawn = len(cast("Sized", self.inner)) if hasattr(self.inner, "__len__") else self.drawn
            return
        if state["of"] == "sampler":
            self.inner.load_state_dict(copy.deepcopy(state["state"]))
        self._set_iterator(iter(self.inner))
        if state["of"] == "iterator":
            cast("StatefulObject", self._iterator).load_state_dict(copy.deepcopy(state["state"]))
