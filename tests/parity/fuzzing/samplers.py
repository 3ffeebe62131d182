"""Samplers of a user, that log each step and draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.parity.fuzzing.material import Failing, draw, note

__all__ = ["Batches", "SizedSampler", "UserSampler"]


class UserSampler:
    """A sampler of a user.

    Parameters
    ----------
    name : str
        For the log.
    described : dict
        ``indices``; ``draws``; ``form``: what ``__iter__`` is; ``fails`` at a position; ``endless``; ``wanders``: each
        index is drawn.
    """

    def __init__(self, name: str, described: dict[str, Any], indices: list[Any]) -> None:
        self.name, self.indices = name, indices
        self.draws, self.form = described.get("draws", []), described.get("form", "generator")
        self.endless = described.get("endless", False)
        self.shuffles, self.wanders = described.get("shuffles", False), described.get("wanders", False)
        fails = described.get("fails")
        self.fails = None if fails is None else Failing(fails.get("at", 0), fails.get("error", "ValueError"))
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """As torch's distributed sampler has it."""
        self.epoch = epoch

    def step(self, at: int) -> Any:
        """What stands at a position."""
        note("sampler", self.name, "next", at, draw(self.draws))
        if self.fails is not None:
            self.fails.check(self.name, at)
        if self.wanders:
            at = int(torch.randint(len(self.indices), ()))
        return self.indices[(at + self.epoch) % len(self.indices)]

    def _walk(self) -> Iterator[Any]:
        note("sampler", self.name, "started", draw(self.draws))
        at = 0
        while self.indices and (self.endless or at < len(self.indices)):
            yield self.step(at)
            at += 1

    def __iter__(self) -> Iterator[Any]:
        note("sampler", self.name, "iter")
        if self.form == "eager":
            chosen = [self.step(at) for at in range(len(self.indices))]
            if self.shuffles:
                chosen = [chosen[place] for place in torch.randperm(len(chosen)).tolist()]
            return iter(chosen)
        if self.form == "steps":
            return _Walking(self)
        return self._walk()


class _Walking:
    """An iterator that goes on behind an error."""

    def __init__(self, sampler: UserSampler) -> None:
        self.sampler, self.at = sampler, 0

    def __iter__(self) -> _Walking:
        return self

    def __next__(self) -> Any:
        if self.at >= len(self.sampler.indices) and not (self.sampler.endless and self.sampler.indices):
            raise StopIteration
        self.at += 1
        return self.sampler.step(self.at - 1)


class SizedSampler(UserSampler):
    """The same with a length."""

    def __len__(self) -> int:
        note("sampler", self.name, "len")
        return len(self.indices)


class Batches(SizedSampler):
    """The same of batches, with the attributes that other libraries look at."""

    def __init__(self, name: str, described: dict[str, Any], indices: list[Any]) -> None:
        super().__init__(name, described, indices)
        self.batch_size, self.drop_last, self.sampler = 2, False, range(3)
