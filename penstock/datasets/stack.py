"""Datasets side by side: sample ``i`` is sample ``i`` of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, Wrapper, combined_fingerprint, fetch, iter_samples, prefetch, spec_of
from penstock.datasets.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.sample import Sample, SampleKeys, Tree, Watch

__all__ = ["StackDataset"]


class StackDataset(Dataset[Sample], Wrapper):
    """Map-style datasets of one length, side by side; fills if all do.

    Parameters
    ----------
    *args : dataset
        Samples are tuples.
    **kwargs : dataset
        Samples are dicts. One of the two kinds, not both.

    Notes
    -----
    A loader asks each dataset for its part of a sample under the sample's key: datasets with the same random pipeline
    draw the same numbers, and ``penstock.rng()`` begins anew in each.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ArgumentError(
                "Supported either tuple- (via args) or dict- (via kwargs) like input, but both types are given."
            )
        if not (args or kwargs):
            raise ArgumentError("At least one dataset should be passed")
        self.datasets: tuple[Any, ...] | dict[str, Any] = args or kwargs
        lengths = [len(dataset) for dataset in self.wrapped_datasets()]
        if len(set(lengths)) > 1:
            raise ArgumentError(f"Size mismatch between datasets: {lengths}")

    def wrapped_datasets(self) -> list[Any]:
        """The datasets side by side."""
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _stacked(self, values: Sequence[Sample]) -> Sample:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    def __len__(self) -> int:
        return len(self.wrapped_datasets()[0])

    def __getitem__(self, index: int) -> Sample:
        return self._stacked([child[index] for child in self.wrapped_datasets()])

    def fetch_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """A batch of each inner dataset, one after the other, under the same keys."""
        columns = [fetch(child, indices, keys, watch) for child in self.wrapped_datasets()]
        return [self._stacked(values) for values in zip(*columns, strict=True)]

    def iter_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Sample after sample, each of all inner datasets, under the same keys."""
        columns = [iter_samples(child, indices, keys, watch) for child in self.wrapped_datasets()]
        return map(self._stacked, zip(*columns, strict=True))

    def prefetch(self, indices: Sequence[int]) -> None:
        """See :class:`~penstock.datasets.base.Wrapper`."""
        for child in self.wrapped_datasets():
            prefetch(child, indices)

    def fingerprint(self) -> str | None:
        """Of the datasets that have one, in order."""
        return combined_fingerprint(self.wrapped_datasets())

    def spec(self) -> Tree | None:
        """A tuple or dict of the datasets' specs; None if one of them does not fill."""
        specs = [spec_of(child) for child in self.wrapped_datasets()]
        return None if any(spec is None for spec in specs) else self._stacked(specs)

    def ragged_forms(self) -> Tree | None:
        """A tuple or dict of the datasets' forms; None if none of them has any."""
        forms = [ragged_forms(child) for child in self.wrapped_datasets()]
        return None if all(form is None for form in forms) else self._stacked(forms)

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let each dataset fill its own arrays."""
        parts = out.values() if isinstance(out, dict) else out
        for child, part in zip(self.wrapped_datasets(), parts, strict=True):
            child.fill(indices, part, keys, rows)
