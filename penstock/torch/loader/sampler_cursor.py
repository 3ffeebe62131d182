"""Torch's index samplers, iterated as torch iterates them, with positions in torchdata's layout."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import RandomSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler

from penstock.loader.sampler_cursor import SamplerCursor
from penstock.sample import SampleKeys, State, StateDict
from penstock.torch.loader.randomness import Randomness
from penstock.workers.base import Task
from penstock.workers.jobs.base import is_stateful

__all__ = ["TorchSamplerCursor", "TorchStreamPlan"]


class TorchSamplerCursor(SamplerCursor):
    """One pass over the index sampler of a torch loader, which may be shuffled by torch's generator."""

    _shuffled_from: torch.Tensor | None = None
    _is_constant: bool | None = None

    def count(self) -> int:
        """Return how many indices the next draw gives: all that counts of a stream's index sampler."""
        if self._is_constant is None:
            self._is_constant = type(self.inner) is _InfiniteConstantSampler
        if not self._is_constant:
            return len(list(next(self)))
        size = self._next_size()
        self.drawn += size
        return size

    def state(self) -> State:
        """States of sampler and iterator, as ``StatefulDataLoader`` keeps them; None if neither has one."""
        of_sampler, of_iterator = (
            None if owner is None else copy.deepcopy(owner.state_dict()) for owner in self.owners()
        )
        if self._shuffled_from is not None:
            of_iterator = {"yielded": self.drawn, "generator": self._shuffled_from}
        if of_sampler is None and of_iterator is None:
            return None
        if not self._cuts:
            return of_sampler, of_iterator
        states = {"sampler_state": of_sampler, "sampler_iter_state": of_iterator}
        known = {name: state for name, state in states.items() if state is not None}
        return None, {"samples_yielded": self.drawn, **known}

    def restore(self, state: State, batches: int) -> None:
        """Restore the open cursor from a state, or skip ``batches`` where that is not possible."""
        if not self._restore(state):
            self.skip(batches)

    def _restore(self, state: State) -> bool:
        of_sampler, of_iterator = (None, None) if state is None else copy.deepcopy(state)
        drawn = 0
        if self._cuts and isinstance(of_iterator, dict):
            drawn = of_iterator.get("samples_yielded", 0)
            of_sampler, of_iterator = of_iterator.get("sampler_state"), of_iterator.get("sampler_iter_state")
        sampler = self.inner
        if type(sampler) is RandomSampler and isinstance(of_iterator, dict) and "generator" in of_iterator:
            self._set_iterator(_from_torchdata(sampler, of_iterator))
            self.drawn, self._shuffled_from = of_iterator["yielded"], of_iterator["generator"]
            return True
        restored = of_sampler is not None and is_stateful(sampler)
        if restored:
            sampler.load_state_dict(of_sampler)
        if restored or of_iterator is not None:
            iterator = iter(sampler)
            if of_iterator is not None and is_stateful(iterator):
                iterator.load_state_dict(of_iterator)
                restored = True
            if restored:
                self._set_iterator(iterator)
                self.drawn = drawn
        return restored


def _from_torchdata(sampler: RandomSampler, saved: StateDict) -> Iterator[int]:
    """The order that torchdata's own random sampler was in the middle of: it keeps the state it shuffled from."""
    again = copy.copy(sampler)
    again.generator = sampler.generator if sampler.generator is not None else torch.Generator()
    Randomness(generators=[saved["generator"]]).restore([again.generator])
    cursor = iter(again)
    for _ in itertools.islice(cursor, saved["yielded"]):
        pass
    return cursor


class TorchStreamPlan:
    """Tasks of a stream: each has a number, and the size that its index sampler draws."""

    def __init__(self, cursor: TorchSamplerCursor, *, batched: bool, seed: int, epoch: int, start: int) -> None:
        self._cursor, self._batched, self._seq = cursor, batched, start
        self._keys = SampleKeys(seed, epoch, np.empty(0, np.int64))

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        seq, self._seq = self._seq, self._seq + 1
        try:
            if self._batched:
                return Task(seq, (), self._keys, size=self._cursor.count())
            next(self._cursor)
        except StopIteration:
            self._seq = seq  # but an error keeps the number: it is delivered in a batch's place
            raise
        return Task(seq, (), self._keys, size=1)
