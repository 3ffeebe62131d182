"""Some samples of a dataset, and datasets split at random."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, Wrapper, combined_fingerprint, fetch, iter_samples, prefetch, spec_of
from penstock.datasets.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.sample import Index, Sample, SampleKeys, Tree, Watch
from penstock.samplers.base import checked_seed
from penstock.samplers.permutation import permute

__all__ = ["Subset", "random_split"]

T_co = TypeVar("T_co", covariant=True)


class Subset(Dataset[T_co], Wrapper):
    """The samples ``indices`` of ``dataset``, in that order; fills if the dataset does.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence of int
        Positions in it; any may come several times.
    """

    def __init__(self, dataset: Any, indices: Sequence[int] | NDArray[np.int64]) -> None:
        self.dataset = dataset
        self.indices = indices
        self._indices = np.asarray(indices, dtype=np.int64) if _all_ints(indices) else None

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Index) -> Sample:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def wrapped_datasets(self) -> list[Any]:
        """The dataset that this is a part of."""
        return [self.dataset]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        """A batch of the inner dataset, under the same keys."""
        return fetch(self.dataset, [self.indices[i] for i in indices], keys, watch, as_given=True)

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[T_co]:
        """Samples of the inner dataset, under the same keys."""
        return iter_samples(self.dataset, [self.indices[i] for i in indices], keys, watch)

    def prefetch(self, indices: Sequence[Any]) -> None:
        """See :class:`~penstock.datasets.base.Wrapper`."""
        prefetch(self.dataset, [self.indices[i] for i in indices])

    def fingerprint(self) -> str | None:
        """Of the inner dataset and the indices; None where those are no ints."""
        if self._indices is None:
            return None
        return combined_fingerprint([self.dataset], self._indices.astype("<i8").tobytes())

    def spec(self) -> Tree | None:
        """The inner dataset's."""
        return None if self._indices is None else spec_of(self.dataset)

    def ragged_forms(self) -> Tree | None:
        """The inner dataset's."""
        return ragged_forms(self.dataset)

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Translate ``indices`` and let the inner dataset fill."""
        assert self._indices is not None, "spec() said that there is nothing to fill"
        self.dataset.fill(self._indices[indices], out, keys, rows)


def _all_ints(indices: Any) -> bool:
    return np.asarray(indices).dtype.kind in "iu" or not len(indices)


def random_split(dataset: Any, lengths: Sequence[int | float], seed: int = 0) -> list[Subset[Sample]]:
    """Split ``dataset`` at random into parts that do not overlap.

    Parameters
    ----------
    dataset : dataset
        With a length.
    lengths : sequence of int or float
        Lengths that add up to the dataset's, or fractions that add up to one; what rounding leaves over goes to the
        parts in turn.
    seed : int
        In [0, 2**64); the same seed gives the same split, on every machine.

    Raises
    ------
    ArgumentError
        If the lengths do not add up.
    """
    total = len(dataset)
    counts = _counts(lengths, total)
    if sum(counts) != total:
        raise ArgumentError(
            f"Sum of input lengths does not equal the length of the input dataset! {list(lengths)} for {total} samples"
        )
    order = permute(np.arange(total, dtype=np.int64), total, (checked_seed(seed),)).tolist() if total else []
    stops = np.cumsum(counts).tolist()
    return [Subset(dataset, order[stop - count : stop]) for count, stop in zip(counts, stops, strict=True)]


def _counts(lengths: Sequence[int | float], total: int) -> list[int]:
    if not (math.isclose(sum(lengths), 1) and sum(lengths) <= 1):
        return [int(length) for length in lengths]
    if wrong := [fraction for fraction in lengths if not 0 <= fraction <= 1]:
        raise ArgumentError(f"Fraction at index {list(lengths).index(wrong[0])} is not between 0 and 1: {wrong[0]}")
    counts = [math.floor(total * fraction) for fraction in lengths]
    for i in range(total - sum(counts)):
        counts[i % len(counts)] += 1
    for i, count in enumerate(counts):
        if count == 0:
            warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=3)
    return counts
