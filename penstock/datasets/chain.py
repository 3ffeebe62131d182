"""Streams one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from penstock.datasets.base import IterableDataset, is_iterable, register_sum
from penstock.errors import ArgumentError
from penstock.sample import Sample

__all__ = ["ChainDataset"]

T_co = TypeVar("T_co", covariant=True)


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets one after the other; the next one is opened when the one before has ended.

    Parameters
    ----------
    datasets : iterable of IterableDataset
        May itself be lazy; members are checked when their turn comes.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Sample]:
        for dataset in self.datasets:
            if not is_iterable(dataset):
                raise ArgumentError(f"ChainDataset only supports IterableDataset, but got {type(dataset).__name__}")
            yield dataset

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


register_sum("streams", ChainDataset)
