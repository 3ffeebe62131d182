"""Subsets of a dataset, and random splits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, Wrapper, fetch, iter_samples, prefetch, spec_of
from penstock.datasets.batch_types import MapDataset
from penstock.datasets.fingerprints import combine_fingerprints
from penstock.datasets.store.batch_assembly import BatchAssembly, batch_assembly
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.sample import DatasetLike, Index, Sample, SampleKeys, Tree, Watch
from penstock.samplers.base import check_seed
from penstock.samplers.permutation import permute

__all__ = ["IndexedDataset", "Subset", "random_split"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class IndexedDataset(Dataset[T_co], Wrapper):
    """Base of datasets whose samples are those of another one, at other indices; fills if that one fills.

    A subclass sets ``dataset``, and defines ``__len__`` and :meth:`locate`.
    """

    dataset: DatasetLike

    def locate(self, indices: Sequence[Index] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices in the inner dataset, shape (n,), of samples at ``indices``, shape (n,)."""
        raise NotImplementedError(f"{type(self).__name__} must define locate")

    def _translate(self, indices: Sequence[Index]) -> list[Index]:
        """List what :meth:`locate` finds; a subclass overrides it where indices may be no ints."""
        return list(self.locate(indices).tolist())

    def __getitem__(self, index: Index) -> T_co:
        inner = self._translate(index) if isinstance(index, list) else self._translate([index])[0]
        found: T_co = self.dataset[inner]
        return found

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the inner dataset."""
        return [self.dataset]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        """Return a batch of the inner dataset, with the same keys."""
        return fetch(self.dataset, self._translate(indices), keys, watch, as_given=True)

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[T_co]:
        """Samples of the inner dataset, with the same keys."""
        return iter_samples(self.dataset, self._translate(indices), keys, watch)

    def prefetch(self, indices: Sequence[Index]) -> bool:
        """Have the inner dataset look ahead to its own indices."""
        return prefetch(self.dataset, self._translate(indices))

    def spec(self) -> Tree | None:
        """Return that of the inner dataset."""
        return spec_of(self.dataset)

    def ragged_forms(self) -> Tree | None:
        """Return that of the inner dataset."""
        return ragged_forms(self.dataset)

    def batch_assembly(self) -> BatchAssembly | None:
        """Return that of the inner dataset."""
        return batch_assembly(self.dataset)

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let the inner dataset fill, with translated indices."""
        self.dataset.fill(self.locate(indices), out, keys, rows)


class Subset(IndexedDataset[T_co]):
    """The samples ``indices`` of ``dataset``, in this order; fills if the dataset fills.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence of int
        Positions in the dataset; one may occur several times.

    Raises
    ------
    ArgumentError
        If ``indices`` are bools: True would be the position 1.
    """

    def __init__(self, dataset: MapDataset[T_co], indices: Sequence[int] | NDArray[np.int64]) -> None:
        kind = np.asarray(indices).dtype.kind if len(indices) else "i"
        if kind == "b":
            raise ArgumentError("indices must be positions, got bools; of a mask, give numpy.flatnonzero(mask)")
        self.dataset = dataset
        self.indices = indices
        self._indices = np.asarray(indices, dtype=np.int64) if kind in "iu" else None

    def __len__(self) -> int:
        return len(self.indices)

    def locate(self, indices: Sequence[Index] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements of :attr:`indices` at ``indices``, shape (n,), if all are ints."""
        assert self._indices is not None, "called only if there is a spec"
        return self._indices[indices]

    def _translate(self, indices: Sequence[Index]) -> list[Index]:
        return [self.indices[i] for i in indices]

    def fingerprint(self) -> str | None:
        """Return that of the inner dataset with the indices; None if these are not ints."""
        if self._indices is None:
            return None
        return combine_fingerprints([self.dataset], self._indices.astype("<i8").tobytes())

    def spec(self) -> Tree | None:
        """Return that of the inner dataset."""
        return None if self._indices is None else super().spec()


def random_split(dataset: MapDataset[T], lengths: Sequence[int | float], seed: int = 0) -> list[Subset[T]]:
    """Split ``dataset`` at random into parts that do not overlap.

    Parameters
    ----------
    dataset : dataset
        With a length.
    lengths : sequence of int or float
        Lengths with the sum of the dataset's length, or fractions with the sum one; samples that remain after rounding
        are added to the parts in order.
    seed : int
        In [0, 2**64); the same seed gives the same split, on every machine.

    Raises
    ------
    ArgumentError
        If the lengths have another sum.
    """
    given: DatasetLike = dataset
    total = len(given)
    counts = _counts(lengths, total)
    if sum(counts) != total:
        raise ArgumentError(
            f"Sum of input lengths does not equal the length of the input dataset! {list(lengths)} for {total} samples"
        )
    order = permute(np.arange(total, dtype=np.int64), total, (check_seed(seed),)).tolist() if total else []
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
