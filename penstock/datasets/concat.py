"""Datasets one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, combined_fingerprint, fetch, is_iterable, spec_of
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys, Tree

__all__ = ["ConcatDataset"]

T_co = TypeVar("T_co", covariant=True)


class ConcatDataset(Dataset[T_co]):
    """Map-style datasets one after the other; fills if all do, with one spec.

    Parameters
    ----------
    datasets : iterable of dataset
        At least one, none of them a stream.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        if any(map(is_iterable, self.datasets)):
            raise ArgumentError("ConcatDataset does not support IterableDataset; chain streams by ChainDataset")
        self.cumulative_sizes: list[int] = np.cumsum([len(dataset) for dataset in self.datasets]).tolist()
        # for filling: where each begins, and the first one that is the very same object (its rows are filled together)
        self._starts = np.array([0, *self.cumulative_sizes[:-1]], np.int64)
        first = {id(dataset): place for place, dataset in reversed(list(enumerate(self.datasets)))}
        self._groups = np.array([first[id(dataset)] for dataset in self.datasets], np.int64)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        child, inner = self._place(index)
        return self.datasets[child][inner]

    def _place(self, index: int) -> tuple[int, int]:
        """Which dataset, and the index in it."""
        count = len(self)
        if index < -count:
            raise ValueError(f"absolute value of index should not exceed dataset length: {index} of {count}")
        if index >= count:
            raise IndexError(f"index {index} is out of range of {count} samples")
        at = index + count if index < 0 else index
        child = int(np.searchsorted(self.cumulative_sizes, at, side="right"))
        return child, at - (self.cumulative_sizes[child - 1] if child else 0)

    def load_samples(self, indices: Sequence[int], keys: SampleKeys) -> list[T_co]:
        """Samples of the inner datasets, under the same keys."""
        places = [self._place(index) for index in indices]
        samples: dict[int, Any] = {}
        for child in dict.fromkeys(child for child, _ in places):
            mine = [j for j, place in enumerate(places) if place[0] == child]
            loaded = fetch(self.datasets[child], [places[j][1] for j in mine], keys[mine])
            samples.update(zip(mine, loaded, strict=True))
        return [samples[j] for j in range(len(indices))]

    def fingerprint(self) -> str | None:
        """Of the datasets that have one, in order."""
        return combined_fingerprint(self.datasets)

    def spec(self) -> Tree | None:
        """The spec that all datasets share; None if they differ."""
        first, *others = [spec_of(dataset) for dataset in self.datasets]
        return first if all(other == first for other in others) else None

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let each dataset fill its own rows."""
        at = np.where(indices < 0, indices + len(self), indices)
        if len(wrong := np.flatnonzero((at < 0) | (at >= len(self)))):
            raise IndexError(f"index {indices[wrong[0]]} is out of range of {len(self)} samples")
        children = np.searchsorted(self.cumulative_sizes, at, side="right")
        inner = at - self._starts[children]
        groups = self._groups[children]
        for group in np.unique(groups).tolist():
            mine = np.flatnonzero(groups == group)
            self.datasets[group].fill(inner[mine], out, keys[mine], mine if rows is None else rows[mine])
