"""What a batch consists of: its tensors and arrays with their types and sizes, without their contents.

:func:`describe_batch` is called once for each watched loader, with its first batch; nothing of a batch is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Final, Literal

import numpy as np

__all__ = ["BatchParts", "count_bytes", "describe_batch", "guess_samples"]

_DEEPEST: Final = 4
_MOST_PARTS: Final = 256
_MOST_ARRAYS: Final = 2000


@dataclass(frozen=True, slots=True)
class BatchParts:
    """A batch, or a part of one."""

    kind: Literal["tensor", "array", "mapping", "sequence", "object", "other"]
    """What it is. "object" has named attributes."""
    dtype: str = ""  # of a tensor or array, such as "uint8"
    itemsize: int = 0  # bytes of an element
    nbytes: int = 0  # bytes of all elements
    device: str = ""  # of a tensor: "cpu", "cuda" ...
    shape: tuple[int, ...] = ()  # of a tensor or array
    parts: tuple[BatchParts, ...] = ()  # what it holds

    @property
    def is_leaf(self) -> bool:
        """Whether it is a tensor or an array."""
        return self.kind in {"tensor", "array"}

    def leaves(self) -> Iterator[BatchParts]:
        """Yield the tensors and arrays of the batch."""
        if self.is_leaf:
            yield self
        for part in self.parts:
            yield from part.leaves()


def describe_batch(batch: object) -> BatchParts:
    """Return the layout of a batch of any structure, down to four levels."""
    return _describe_value(batch, _DEEPEST)


def _describe_value(value: object, depth: int) -> BatchParts:  # noqa: PLR0911  # a return for each kind
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        size = int(value.element_size())
        shape = tuple(int(side) for side in value.shape)
        return BatchParts("tensor", name, size, size * int(value.numel()), value.device.type, shape)
    if isinstance(value, np.ndarray):
        return BatchParts("array", str(value.dtype), value.itemsize, value.nbytes, "cpu", value.shape)
    if depth == 0:
        return BatchParts("other")
    if isinstance(value, Mapping):
        return _describe_parts("mapping", list(value.values()), depth)
    if isinstance(value, (list, tuple)):
        return _describe_parts("sequence", value, depth)
    if is_dataclass(value):
        return _describe_parts("object", [getattr(value, each.name, None) for each in fields(value)], depth)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not callable(value):
        return _describe_parts("object", list(attributes.values()), depth)
    return BatchParts("other")


def _describe_parts(kind: Literal["mapping", "sequence", "object"], values: Sequence[object], depth: int) -> BatchParts:
    return BatchParts(kind, parts=tuple(_describe_value(value, depth - 1) for value in values[:_MOST_PARTS]))


def _leaves(batch: object) -> Iterator[object]:
    """Yield what a batch of nested dicts, lists and tuples holds, in order."""
    if isinstance(batch, dict):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        yield batch
        return
    for part in batch:
        yield from _leaves(part)


def guess_samples(batch: object) -> int:
    """Samples of a batch by the length of its first array; 0 if it has none."""
    shapes = (getattr(leaf, "shape", None) for leaf in _leaves(batch))
    return next((int(shape[0]) for shape in shapes if shape), 0)


def count_bytes(batch: object) -> int:
    """Bytes of the tensors and arrays in a batch; of the first 2,000."""
    sizes = (getattr(leaf, "nbytes", None) for leaf in _leaves(batch))
    return sum(islice((size for size in sizes if isinstance(size, int)), _MOST_ARRAYS))
