"""Subclasses of a loader, as libraries and users write them: each mixin overrides one hook of torch's."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from tests.parity.fuzzing.material import note

__all__ = ["HOOKS", "loader_class"]


class Told:
    """``__iter__`` that does something first."""

    def __iter__(self) -> Any:
        note("loader", "iter", float(torch.rand(())))
        return super().__iter__()  # type: ignore[misc]  # a mixin


class Generating:
    """``__iter__`` as a generator."""

    def __iter__(self) -> Iterator[Any]:
        note("loader", "generator")
        yield from super().__iter__()  # type: ignore[misc]  # a mixin


class Endless:
    """Epoch after epoch, many times: an epoch may have no batch."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(20):
            note("loader", "again")
            yield from super().__iter__()  # type: ignore[misc]  # a mixin


class Short:
    """Has a length of its own."""

    def __len__(self) -> int:
        note("loader", "len", super().__len__())  # type: ignore[misc]  # a mixin
        return 3


class OwnIterator:
    """An iterator around torch's, which a persistent loader resets."""

    def __init__(self, loader: Any, walk: Any) -> None:
        self.loader, self.walk = loader, walk

    def __iter__(self) -> OwnIterator:
        return self

    def __next__(self) -> Any:
        note("loader", "own next")
        return next(self.walk)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        note("loader", "own reset")
        self.walk = loader._get_walk()


class Iterating:
    """``_get_iterator`` that returns an iterator of its own."""

    def _get_walk(self) -> Any:
        return super()._get_iterator()  # type: ignore[misc]  # a mixin

    def _get_iterator(self) -> Any:
        note("loader", "get_iterator")
        return OwnIterator(self, self._get_walk())


class Twice:
    """An index sampler around another."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        for index in self.sampler:
            yield index
            yield index

    def __len__(self) -> int:
        return 2 * len(self.sampler)


class Doubled:
    """``_index_sampler`` that gives everything twice."""

    @property
    def _index_sampler(self) -> Any:
        return Twice(super()._index_sampler)  # type: ignore[misc]  # a mixin


class Uncollated:
    """``_auto_collation`` switched off: what the sampler gives is one index."""

    @property
    def _auto_collation(self) -> bool:
        return False


class Unchecked:
    """Does not mind how many workers there are."""

    def check_worker_number_rationality(self) -> None:
        """As torch's loader has it."""
        note("loader", "workers")


class Forking:
    """Always forks."""

    @property
    def multiprocessing_context(self) -> Any:
        """As torch's loader has it."""
        return multiprocessing.get_context("fork") if self.num_workers else None  # type: ignore[attr-defined]  # a mixin

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        data.DataLoader.multiprocessing_context.fset(self, value)  # type: ignore[attr-defined]  # a property has it


class Repeated:
    """Repeats its batch sampler, as loaders for endless training do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.batch_sampler is not None:  # type: ignore[attr-defined]  # a mixin
            object.__setattr__(self, "batch_sampler", Twice(self.batch_sampler))  # type: ignore[attr-defined]  # as above


HOOKS: dict[str, type] = {
    "told": Told,
    "generating": Generating,
    "endless": Endless,
    "short": Short,
    "iterating": Iterating,
    "doubled": Doubled,
    "uncollated": Uncollated,
    "unchecked": Unchecked,
    "forking": Forking,
    "repeated": Repeated,
}

_made: dict[tuple[Any, ...], type] = {}


def loader_class(base: type, hooks: list[str]) -> Any:
    """A subclass of ``base`` with these hooks; the same one each time, and one that pickles."""
    if not hooks:
        return base
    key = (base, *hooks)
    if key not in _made:
        name = f"{base.__module__.replace('.', '_')}_{'_'.join(hooks)}"  # pickle takes a point for an attribute
        made = type(name, (*(HOOKS[hook] for hook in hooks), base), {"__module__": __name__})
        globals()[name] = _made[key] = made
    return _made[key]
