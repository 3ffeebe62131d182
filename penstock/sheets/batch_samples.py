"""The samples of a batch, as ``penstock.show(batch)`` draws them: the inverse of collation, without copies.

::

    [images (n, 3, H, W), labels (n,)]                    ──> (images[i], labels[i])
    {"image": ..., "boxes": Padded or Ragged or list}     ──> {"image": ..., "boxes": those of sample i}
    [images, [dict, dict, ...]]  (batch_form)             ──> (images[i], dict i)

A value that has one entry for each sample is divided; any other belongs to all of them. Called by :mod:`.showing`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.errors import ArgumentError, RecordIndexError
from penstock.nested import NestedTensor
from penstock.ragged import Padded, Ragged
from penstock.sample import Batch, Sample

__all__ = ["BatchSamples", "is_batch"]


def is_batch(value: object) -> bool:
    """Whether a value is a batch of a loader: a mapping or a sequence of arrays, tensors and lists, not of paths."""
    if isinstance(value, Mapping):
        return True
    if not isinstance(value, list | tuple) or not value:
        return False
    return not any(isinstance(each, str | bytes | os.PathLike | int | float) for each in value)


class BatchSamples:
    """A map-style dataset of the samples of a batch.

    ``batch``: as a loader gives it; on any device. Raises ArgumentError if nothing in it has a first axis.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        values = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
        lengths = [length for length in map(_count_rows, values) if length is not None]
        if not lengths:
            raise ArgumentError(f"a batch must hold arrays or lists of samples, got {type(batch).__name__} without any")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        """Sample ``index``, in the structure of the batch."""
        if not 0 <= index < self._length:
            raise RecordIndexError(f"index must be in [0, {self._length}), got {index}")
        if isinstance(self._batch, Mapping):
            return {name: self._divide(value, index) for name, value in self._batch.items()}
        parts = [self._divide(value, index) for value in self._batch]
        make = getattr(type(self._batch), "_make", tuple)  # of a named tuple
        return make(parts)

    def _divide(self, value: Batch, index: int) -> Sample:
        if isinstance(value, Mapping):
            return {name: self._divide(inner, index) for name, inner in value.items()}
        if _count_rows(value) != self._length:
            return value
        if isinstance(value, Padded):
            return value.values[index][: int(value.counts[index])]
        return (value.tensors if isinstance(value, NestedTensor) else value)[index]


def _count_rows(value: Batch) -> int | None:
    """Samples of a value; None if it has no first axis."""
    if isinstance(value, Padded):
        return len(value.counts)
    if isinstance(value, NestedTensor):
        return len(value.tensors)
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(value) if isinstance(value, list | tuple | Ragged) else None
