"""Datasets side by side: sample ``i`` consists of sample ``i`` of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, Wrapper, fetch, iter_samples, prefetch, spec_of
from penstock.datasets.fingerprints import combine_fingerprints
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.sample import DatasetLike, Sample, SampleKeys, Tree, Watch

__all__ = ["StackDataset"]


class StackDataset(Dataset[Sample], Wrapper):
    """Map-style datasets of equal length, side by side; fills if all fill.

    Parameters
    ----------
    *args : dataset
        Samples are tuples.
    **kwargs : dataset
        Samples are dicts. Give either ``args`` or ``kwargs``.

    Raises
    ------
    ArgumentError
        If there is no dataset, both kinds are given, or lengths differ.

    Notes
    -----
    Each dataset builds its part of a sample with the key of the sample: datasets with the same random pipeline draw the
    same numbers, and ``penstock.rng()`` is new in each.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        if args and kwargs:
            raise ArgumentError(
                "Supported either tuple- (via args) or dict- (via kwargs) like input, but both types are given."
            )
        if not (args or kwargs):
            raise ArgumentError("At least one dataset should be passed")
        self.datasets: tuple[DatasetLike, ...] | dict[str, DatasetLike] = args or kwargs
        lengths = [len(dataset) for dataset in self.wrapped_datasets()]
        if len(set(lengths)) > 1:
            raise ArgumentError(f"Size mismatch between datasets: {lengths}")

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the datasets, in order."""
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _stack(self, values: Sequence[Sample]) -> Sample:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    def __len__(self) -> int:
        return len(self.wrapped_datasets()[0])

    def __getitem__(self, index: int) -> Sample:
        return self._stack([child[index] for child in self.wrapped_datasets()])

    def fetch_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """A batch of each inner dataset in order, with the same keys."""
        columns = [fetch(child, indices, keys, watch) for child in self.wrapped_datasets()]
        return [self._stack(values) for values in zip(*columns, strict=True)]

    def iter_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Sample after sample, each from all inner datasets, with the same keys."""
        columns = [iter_samples(child, indices, keys, watch) for child in self.wrapped_datasets()]
        return map(self._stack, zip(*columns, strict=True))

    def prefetch(self, indices: Sequence[int]) -> bool:
        """Have all datasets look ahead to the indices."""
        return sum(prefetch(child, indices) for child in self.wrapped_datasets()) > 0

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all datasets that have one, in order."""
        return combine_fingerprints(self.wrapped_datasets())

    def spec(self) -> Tree | None:
        """Return a tuple or dict of the specs; None if a dataset does not fill."""
        specs = [spec_of(child) for child in self.wrapped_datasets()]
        return None if any(spec is None for spec in specs) else self._stack(specs)

    def ragged_forms(self) -> Tree | None:
        """Return a tuple or dict of the datasets' forms; None if none of them has any."""
        forms = [ragged_forms(child) for child in self.wrapped_datasets()]
        return None if all(form is None for form in forms) else self._stack(forms)

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let each dataset fill its arrays."""
        parts = out.values() if isinstance(out, dict) else out
        for child, part in zip(self.wrapped_datasets(), parts, strict=True):
            child.fill(indices, part, keys, rows)
