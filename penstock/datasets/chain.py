"""Concatenation of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from penstock.datasets.base import IterableDataset, is_iterable, register_sum
from penstock.errors import ArgumentError
from penstock.sample import Sample

__all__ = ["ChainDataset"]

T_co = TypeVar("T_co", covariant=True)


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets, concatenated; each is iterated when the one before has ended.

    Parameters
    ----------
    datasets : iterable of IterableDataset
        Each is checked when it is iterated, so that the iterable may be lazy.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _iter_checked(self) -> Iterator[Sample]:
        for dataset in self.datasets:
            if not is_iterable(dataset):
                raise ArgumentError(f"ChainDataset only supports IterableDataset, but got {type(dataset).__name__}")
            yield dataset

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self._iter_checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._iter_checked())


register_sum("streams", ChainDataset)
