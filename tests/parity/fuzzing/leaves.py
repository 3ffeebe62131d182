"""Datasets of a user, map-style and iterable, that log each call in the main process and draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import data

from tests.parity.fuzzing.material import SAMPLES, Failing, code, draw, note

__all__ = ["GETTING", "MapLeaf", "Remembering", "Sized", "SizedStream", "Stream"]


class MapLeaf(data.Dataset[Any]):
    """A map-style dataset of a user.

    Parameters
    ----------
    name : str
        For the log.
    described : dict
        ``n``, ``draws``, ``sample``, ``scale``, ``fails`` (``at``, ``error``), ``keys``.
    """

    def __init__(self, name: str, described: dict[str, Any]) -> None:
        self.name, self.n = name, described.get("n", 5)
        self.draws = described.get("draws", [])
        self.sample = described.get("sample", "tuple")
        self.scale, self.calls, self.counts = 1, 0, described.get("counts", False)
        fails = described.get("fails")
        self.fails = None if fails is None else Failing(fails.get("at", 0), fails.get("error", "ValueError"))
        self.keys = described.get("keys")

    def _said(self, what: str, index: Any) -> list[float]:
        self.calls += 1
        note("data", self.name, what, repr(index))
        info = data.get_worker_info()
        drawn = draw(self.draws)
        return [*drawn, *((0.0 if info is None else info.id + 1.0, float(self.calls)) if self.counts else ())]

    def _made(self, index: Any, numbers: list[float]) -> Any:
        if self.fails is not None:
            self.fails.check(self.name, code(index))
        if self.keys is None and not isinstance(index, (list, torch.Tensor, np.ndarray, str, tuple, slice)):
            if not -self.n <= index < self.n:
                raise IndexError(f"user:{self.name} has no {index}")
            index = index % self.n
        return SAMPLES[self.sample](code(index) * self.scale, numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._made(index, self._said("getitem", index))


class Sized(MapLeaf):
    """The same with a length: its own, or a wrong one.

    ``described``: ``length``, added to the true one.
    """

    def __init__(self, name: str, described: dict[str, Any]) -> None:
        super().__init__(name, described)
        self.more = described.get("length") or 0

    def __len__(self) -> int:
        note("data", self.name, "len")
        return max(0, int(self.n + self.more))


def _getitems(self: MapLeaf, indices: Any) -> list[Any]:
    """Several at once: drawn for all of them together."""
    numbers = self._said("getitems", indices)
    return [self._made(index, numbers) for index in indices]


class Getting(Sized):
    """Takes several indices at once."""

    def __getitems__(self, indices: Any) -> Any:
        return _getitems(self, indices)


class GettingTuples(Sized):
    """Gives a tuple."""

    def __getitems__(self, indices: Any) -> Any:
        return tuple(_getitems(self, indices))


class GettingFewer(Sized):
    """Leaves out what it does not like."""

    def __getitems__(self, indices: Any) -> Any:
        return [sample for place, sample in enumerate(_getitems(self, indices)) if place != 1]


class GettingWhole(Sized):
    """Gives what no list of samples is."""

    def __getitems__(self, indices: Any) -> Any:
        return {"batch": _getitems(self, indices), "indices": list(indices)}


class GettingSingly(Sized):
    """Asks itself, one by one."""

    def __getitems__(self, indices: Any) -> Any:
        note("data", self.name, "getitems", repr(indices))
        return [self[index] for index in indices]


class GettingNot(Sized):
    """Has switched it off."""

    __getitems__: Any = None


GETTING: dict[str, type[Sized]] = {
    "list": Getting,
    "tuple": GettingTuples,
    "fewer": GettingFewer,
    "whole": GettingWhole,
    "singly": GettingSingly,
    "off": GettingNot,
}


class Remembering(Sized):
    """Has a state of its own."""

    def state_dict(self) -> dict[str, int]:
        """As torchdata's protocol has it."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As torchdata's protocol has it."""
        self.calls = state["calls"]


class Stream(data.IterableDataset[Any]):
    """An iterable dataset of a user.

    Parameters
    ----------
    name : str
        For the log.
    described : dict
        As for a map-style one; ``form``: what ``__iter__`` returns; ``shared``: whether workers share it out;
        ``opening``: sources drawn from by ``__iter__``.
    """

    def __init__(self, name: str, described: dict[str, Any]) -> None:
        self.name, self.n = name, described.get("n", 5)
        self.draws, self.sample = described.get("draws", []), described.get("sample", "tuple")
        self.form, self.shared = described.get("form", "generator"), described.get("shared", True)
        self.opening = described.get("opening", [])
        self.scale, self.at, self.passes, self.counts = 1, 0, 0, described.get("counts", True)
        fails = described.get("fails")
        self.fails = None if fails is None else Failing(fails.get("at", 0), fails.get("error", "ValueError"))

    def _part(self) -> range:
        info = data.get_worker_info()
        return range(self.n) if info is None or not self.shared else range(info.id, self.n, info.num_workers)

    def _made(self, number: int) -> Any:
        note("data", self.name, "next", number)
        drawn = draw(self.draws)
        if self.fails is not None:
            self.fails.check(self.name, number)
        return SAMPLES[self.sample](number * self.scale, [*drawn, *((float(self.passes),) if self.counts else ())])

    def _walk(self) -> Iterator[Any]:
        for number in self._part():
            yield self._made(number)

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        note("data", self.name, "iter", draw(self.opening))
        if self.fails is not None:
            self.fails.check(self.name, -1)
        if self.form == "iterator":
            return _Steps(self, self._part())
        if self.form == "list":
            return iter([self._made(number) for number in self._part()])
        if self.form == "self":
            self.at = 0
            return self
        return self._walk()

    def __next__(self) -> Any:
        part = self._part()
        if self.at >= len(part):
            raise StopIteration
        self.at += 1
        return self._made(part[self.at - 1])


class _Steps:
    """An iterator that goes on behind an error."""

    def __init__(self, stream: Stream, part: range) -> None:
        self.stream, self.part, self.at = stream, part, 0

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> Any:
        if self.at >= len(self.part):
            raise StopIteration
        self.at += 1
        return self.stream._made(self.part[self.at - 1])


class SizedStream(Stream):
    """The same with a length, or a wrong one."""

    def __init__(self, name: str, described: dict[str, Any]) -> None:
        super().__init__(name, described)
        self.more = described.get("length") or 0

    def __len__(self) -> int:
        note("data", self.name, "len")
        return max(0, int(self.n + self.more))
