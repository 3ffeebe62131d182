"""NumPy arrays as a dataset: sample ``i`` is row ``i`` of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset
from penstock.errors import ArgumentError
from penstock.sample import Array, ArraySpec, Index, Sample, SampleKeys, Tree
from penstock.trace import stage

__all__ = ["ArrayDataset"]


class ArrayDataset(Dataset[Sample]):
    """Rows of arrays of one length; fills batches without building samples.

    Parameters
    ----------
    *arrays : array_like
        Samples are tuples of their rows.
    **fields : array_like
        Samples are dicts of their rows. Give either positional or named arrays. Arrays and memory maps are not copied.

    Raises
    ------
    ArgumentError
        If there are no arrays, or both kinds, or their lengths differ.
    """

    def __init__(self, *arrays: object, **fields: object) -> None:
        if bool(arrays) == bool(fields):
            raise ArgumentError("ArrayDataset needs arrays, either by position (tuples) or by name (dicts)")
        self.arrays: dict[str, Array] | tuple[Array, ...]
        self.arrays = (
            {name: np.asanyarray(array) for name, array in fields.items()}
            if fields
            else tuple(map(np.asanyarray, arrays))
        )
        lengths = [array.shape[:1] for array in self._columns()]
        if () in lengths or len(set(lengths)) > 1:
            raise ArgumentError(f"Size mismatch between arrays: shapes {[array.shape for array in self._columns()]}")

    def _columns(self) -> list[Array]:
        return list(self.arrays.values() if isinstance(self.arrays, dict) else self.arrays)

    def __len__(self) -> int:
        return len(self._columns()[0])

    def __getitem__(self, index: Index) -> Sample:
        if isinstance(self.arrays, dict):
            return {name: array[index] for name, array in self.arrays.items()}
        return tuple(array[index] for array in self.arrays)

    def spec(self) -> Tree | None:
        """Shapes and dtypes of a row; None if an array holds text or objects."""
        if any(array.dtype.kind in "OSUV" for array in self._columns()):
            return None
        if isinstance(self.arrays, dict):
            return {name: ArraySpec(array.shape[1:], array.dtype) for name, array in self.arrays.items()}
        return tuple(ArraySpec(array.shape[1:], array.dtype) for array in self.arrays)

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Copy rows ``indices``; see :class:`~penstock.datasets.base.Filler`."""
        target: slice | NDArray[np.int64] = slice(len(keys)) if rows is None else rows
        names = self.arrays if isinstance(self.arrays, dict) else range(len(self.arrays))
        with stage("read", len(keys)):
            for name in names:
                out[name][target] = self.arrays[name][indices]  # type: ignore[index]  # names are keys or positions alike
