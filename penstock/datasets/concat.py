"""Concatenation of map-style datasets, and of streams."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import (
    Dataset,
    IterableDataset,
    Wrapper,
    get_each,
    is_iterable,
    iter_samples,
    loads_many,
    prefetch,
    register_sum,
    spec_of,
)
from penstock.datasets.batch_types import MapDataset
from penstock.datasets.fingerprints import combine_fingerprints
from penstock.datasets.store.batch_assembly import BatchAssembly, batch_assembly
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.errors import ArgumentError, SampleError
from penstock.sample import DatasetLike, Index, Sample, SampleKeys, Tree, Watch

__all__ = ["ChainDataset", "ConcatDataset", "iter_concatenated", "make_watch", "prefetch_concatenated"]

T_co = TypeVar("T_co", covariant=True)

_MISSING: Final = object()


class ConcatDataset(Dataset[T_co], Wrapper):
    """Map-style datasets, concatenated; fills if all fill with one spec.

    Parameters
    ----------
    datasets : iterable of dataset
        At least one, and no streams.

    Raises
    ------
    ArgumentError
        If there is no dataset, or one is a stream.
    """

    def __init__(self, datasets: Iterable[MapDataset[T_co]]) -> None:
        self.datasets: list[DatasetLike] = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        if any(map(is_iterable, self.datasets)):
            raise ArgumentError("ConcatDataset does not support IterableDataset; chain streams by ChainDataset")
        self.cumulative_sizes: list[int] = np.cumsum([len(dataset) for dataset in self.datasets]).tolist()

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        self._check(index)
        child, inner = _split_index(self.cumulative_sizes, index + len(self) if index < 0 else index)
        sample: T_co = self.datasets[child][inner]
        return sample

    def _check(self, index: int) -> None:
        count = len(self)
        if index < -count:
            raise ValueError(f"absolute value of index should not exceed dataset length: {index} of {count}")
        if index >= count:
            raise IndexError(f"index {index} is out of range of {count} samples")

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the datasets, in order."""
        return self.datasets

    def fetch_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None) -> list[T_co]:
        """Samples of the inner datasets, in the order of ``indices``."""
        return list(self.iter_samples(indices, keys, watch))

    def iter_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None = None) -> Iterator[T_co]:
        """Samples of the inner datasets, in the order of ``indices``."""
        return iter_concatenated(self, self.datasets.__getitem__, self.cumulative_sizes, indices, keys, watch)

    def prefetch(self, indices: Sequence[int]) -> bool:
        """Have the datasets look ahead, each to its own indices."""
        return prefetch_concatenated(self.datasets, self.cumulative_sizes, indices)

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all datasets that have one, in order."""
        return combine_fingerprints(self.datasets)

    def spec(self) -> Tree | None:
        """Return the spec that all datasets share; None if they differ."""
        return _find_shared(spec_of(dataset) for dataset in self.datasets)

    def ragged_forms(self) -> Tree | None:
        """Return the forms that all datasets share; None if they differ."""
        return _find_shared(ragged_forms(dataset) for dataset in self.datasets)

    def batch_assembly(self) -> BatchAssembly | None:
        """Return how the batches of all datasets get their form.

        Raises
        ------
        ArgumentError
            If the datasets have several forms, or different fields.
        """
        first, *others = [batch_assembly(dataset) for dataset in self.datasets]
        for number, other in enumerate(others, 1):
            if other != first:
                raise ArgumentError(
                    "concatenated datasets must have one batch_form, and fields of the same names and kinds, got "
                    f"{first} for dataset 0 and {other} for dataset {number}"
                )
        return first

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let each dataset fill its rows."""
        # NumPy's functions take longer for a chunk than these loops, whose code is in the caches.
        count, listed = len(self), indices.tolist()
        for index in listed:
            if not -count <= index < count:
                self._check(index)
        split = [_split_index(self.cumulative_sizes, index + count if index < 0 else index) for index in listed]
        inner = np.array([index for _, index in split], np.int64)
        datasets = [self.datasets[child] for child, _ in split]
        different = {id(dataset): dataset for dataset in datasets}
        if len(different) == 1:  # an object that occurs several times fills once
            datasets[0].fill(inner, out, keys, rows)
            return
        owners = np.array([id(dataset) for dataset in datasets])
        for number, dataset in different.items():
            own = np.flatnonzero(owners == number)
            dataset.fill(inner[own], out, keys[own], own if rows is None else rows[own])


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets, concatenated; each is iterated when the one before has ended.

    Parameters
    ----------
    datasets : iterable of IterableDataset
        Each is checked when it is iterated, so that the iterable may be lazy.
    """

    def __init__(self, datasets: Iterable[Iterable[T_co]]) -> None:
        self.datasets: Iterable[DatasetLike] = datasets

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


register_sum(of_streams=False, join=ConcatDataset)
register_sum(of_streams=True, join=ChainDataset)


def _find_shared(found: Iterable[Tree | None]) -> Tree | None:
    first, *others = found
    return first if all(other == first for other in others) else None


def prefetch_concatenated(datasets: Sequence[DatasetLike], sizes: Sequence[int], indices: Sequence[int]) -> bool:
    """Call ``prefetch`` of each dataset that holds some of ``indices``, with its own; ``sizes`` are cumulative."""
    inner: dict[int, tuple[DatasetLike, list[int]]] = {}  # an object that occurs several times is called once
    for index in indices:
        child, at = _split_index(sizes, index + sizes[-1] if index < 0 else index)
        dataset = datasets[child]
        inner.setdefault(id(dataset), (dataset, []))[1].append(at)
    return sum(prefetch(dataset, positions) for dataset, positions in inner.values()) > 0


def iter_concatenated(
    whole: object,
    part: Callable[[int], DatasetLike],
    sizes: Sequence[int],
    indices: Sequence[Index],
    keys: SampleKeys,
    watch: Watch | None = None,
) -> Iterator[Sample]:
    """Samples ``indices`` of ``whole``, in this order; each is built when it is requested.

    Parameters
    ----------
    whole : dataset
        ``whole[index]`` is called for datasets that do not load several samples at once, and for indices that are no
        ints.
    part : callable
        ``part(i)`` is dataset ``i`` of those that are concatenated.
    sizes : sequence of int
        Where each dataset ends.
    indices, keys, watch
        As for :func:`~penstock.datasets.base.fetch`.
    """
    loaded = _load_by_dataset(part, sizes, indices, keys, watch)
    if not loaded:
        yield from get_each(whole, indices, keys, watch)
        return
    others = [row for row in range(len(indices)) if row not in loaded]
    other = get_each(whole, [indices[row] for row in others], keys[others], make_watch(others, watch))
    for row, index in enumerate(indices):
        sample = next(loaded.get(row, other), _MISSING)
        if sample is _MISSING:
            raise SampleError("load_samples must give one sample for each index, got fewer", index=index)
        yield sample


def _load_by_dataset(
    part: Callable[[int], DatasetLike],
    sizes: Sequence[int],
    indices: Sequence[Index],
    keys: SampleKeys,
    watch: Watch | None,
) -> dict[int, Iterator[Sample]]:
    """Find iterators of the samples of each row of ``indices`` whose dataset loads several samples at once."""
    rows: dict[int, list[int]] = {}
    inner: dict[int, list[int]] = {}
    for row, index in enumerate(indices):
        at = index + sizes[-1] if type(index) is int and index < 0 else index
        if type(at) is int and 0 <= at < sizes[-1]:
            child, at_child = _split_index(sizes, at)
            rows.setdefault(child, []).append(row)
            inner.setdefault(child, []).append(at_child)
    found: dict[int, Iterator[Sample]] = {}
    for child, own in rows.items():
        dataset = part(child)
        if loads_many(dataset):
            found |= dict.fromkeys(own, iter_samples(dataset, inner[child], keys[own], make_watch(own, watch)))
    return found


def make_watch(rows: Sequence[int], watch: Watch | None) -> Watch | None:
    """A watch for the samples at ``rows`` of a batch, in order, that reports to the ``watch`` of the batch.

    A call for several samples is reported as a call for all rows from its first to its last.
    """
    if watch is None:
        return None

    def watch_rows(place: int, count: int = 1) -> None:
        watch(rows[place], 1 if count == 1 else rows[place + count - 1] - rows[place] + 1)

    return watch_rows


def _split_index(sizes: Sequence[int], at: int) -> tuple[int, int]:
    """Return the number of the dataset, and the index in it, of a non-negative index."""
    child = bisect_right(sizes, at)
    return child, at - (sizes[child - 1] if child else 0)
