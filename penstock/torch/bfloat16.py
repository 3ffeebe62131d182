"""Arrays of bfloat16 as tensors, which ``torch.from_numpy`` refuses.

Used by :mod:`penstock.torch.collate`, by loaders without batches, and in worker processes that import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import default_convert
from torch.utils.data._utils import collate as torch_collate

from penstock.bfloat16 import is_bfloat16
from penstock.collate import convert_leaves
from penstock.sample import Array, Batch, Sample

__all__ = ["as_tensor", "convert", "install"]

_plain_collate: Final[Callable[..., Batch]] = torch_collate.collate_numpy_array_fn


def as_tensor(array: Array) -> torch.Tensor:
    """A tensor over the memory of ``array``: as ``torch.from_numpy``, and torch.bfloat16 for arrays of bfloat16."""
    if is_bfloat16(array.dtype):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def convert(sample: Sample) -> Batch:
    """torch's ``default_convert(sample)``, and torch.bfloat16 tensors where it refuses arrays of bfloat16."""
    try:
        return default_convert(sample)  # type: ignore[no-untyped-call]  # torch's is untyped
    except TypeError:
        pass  # raised again below, if it is not for arrays of bfloat16
    return convert_leaves(sample, _convert_leaf)


def _convert_leaf(leaf: Sample) -> Batch:
    if isinstance(leaf, np.ndarray) and is_bfloat16(leaf.dtype):
        return as_tensor(leaf)
    return default_convert(leaf)  # type: ignore[no-untyped-call]  # as above


def install() -> None:
    """Let torch's ``default_collate`` stack arrays of bfloat16; nothing else changes, nor if the user replaced it."""
    functions = torch_collate.default_collate_fn_map
    if functions.get(np.ndarray) is _plain_collate:
        functions[np.ndarray] = _collate


def _collate(batch: Sequence[Sample], *, collate_fn_map: Any = None) -> Batch:
    if is_bfloat16(batch[0].dtype):
        arrays = [as_tensor(each) if isinstance(each, np.ndarray) else each for each in batch]
        return torch_collate.collate(arrays, collate_fn_map=collate_fn_map)
    return _plain_collate(batch, collate_fn_map=collate_fn_map)
