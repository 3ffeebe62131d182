"""Batches of tensors: torch's collation for the general path, views of the memory for filled batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import collate as torch_collate

from penstock.bfloat16 import is_bfloat16
from penstock.collate import convert_leaves
from penstock.collate import default_convert as default_structure
from penstock.nested import NestedTensor
from penstock.ragged import Ragged
from penstock.sample import Array, Batch, Sample, Tree, tree_map

__all__ = [
    "array_to_tensor", "as_batch", "as_tensors", "convert", "convert_parts", "default_collate", "default_convert",
    "has_own_functions", "install_bfloat16",
]  # fmt: skip

_plain_collate_arrays: Final[Callable[..., Batch]] = torch_collate.collate_numpy_array_fn


def as_tensors(arrays: Tree) -> Tree:
    """Return a tree of arrays as tensors over the same memory.

    Parameters
    ----------
    arrays : tree of ndarray
        Of a dtype and byte order that torch has (float16 and bool are), or of bfloat16, as
        :class:`~penstock.transforms.ToLayout` gives them; others raise ``TypeError``. A :class:`~penstock.Ragged`
        counts as its arrays; tensors stay.

    Returns
    -------
    tree of torch.Tensor
        Views, which keep the memory alive.
    """
    return tree_map(_as_tensor, arrays)


def as_batch(arrays: Tree) -> Batch:
    """Return the batch for filled arrays: tensors over the same memory, with tuples as lists."""
    return default_structure(as_tensors(arrays))


def convert_parts(parts: dict[str, object]) -> dict[str, object]:
    """Return parts of a batch with tensors over the same memory for all arrays; other values are the same objects."""
    return {
        name: tree_map(_as_part, value) if isinstance(value, list) else _as_part(value) for name, value in parts.items()
    }


def array_to_tensor(array: Array) -> torch.Tensor:
    """Make a tensor over the memory of ``array`` as ``torch.from_numpy``; torch.bfloat16 for arrays of bfloat16."""
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
        return array_to_tensor(leaf)
    return default_convert(leaf)  # type: ignore[no-untyped-call]  # as above


def install_bfloat16() -> None:
    """Let torch's ``default_collate`` stack arrays of bfloat16; nothing else changes, nor if the user replaced it."""
    functions = torch_collate.default_collate_fn_map
    if functions.get(np.ndarray) is _plain_collate_arrays:
        functions[np.ndarray] = _collate_arrays


def _collate_arrays(batch: Sequence[Sample], *, collate_fn_map: Any = None) -> Batch:
    if is_bfloat16(batch[0].dtype):
        arrays = [array_to_tensor(each) if isinstance(each, np.ndarray) else each for each in batch]
        return torch_collate.collate(arrays, collate_fn_map=collate_fn_map)
    return _plain_collate_arrays(batch, collate_fn_map=collate_fn_map)


def has_own_functions(*, of_tensors: bool = True) -> bool:
    """Return whether the user has changed ``default_collate_fn_map``, torch's table of collation functions by type.

    Filled rows follow torch's own functions only. ``of_tensors=False``: a function for a subclass of tensors or arrays,
    as libraries register one for their own, does not count; rows are never filled with such.
    """
    return any(
        getattr(function, "__module__", None) not in _KNOWN and (of_tensors or not _is_special(kind))
        for kind, function in torch_collate.default_collate_fn_map.items()
    )


def _is_special(kind: object) -> bool:
    """Return whether this is a subclass of tensors or arrays."""
    return isinstance(kind, type) and issubclass(kind, _ARRAYS) and kind not in _ARRAYS


_ARRAYS: Final = (torch.Tensor, np.ndarray)

install_bfloat16()

_KNOWN: Final = frozenset({torch_collate.__name__, __name__, "penstock.torch.tensor_sharing"})
"""Modules of functions that collate as torch does: torch's, and ours in worker processes."""


def _as_part(value: object) -> object:
    if isinstance(value, NestedTensor):
        return NestedTensor(_as_tensor(value.tensors), _as_tensor(value.mask))
    return _as_tensor(value) if isinstance(value, (np.ndarray, Ragged)) else value


def _as_tensor(array: Array | Ragged | torch.Tensor) -> torch.Tensor | Ragged:
    if isinstance(array, torch.Tensor):
        return array
    if isinstance(array, Ragged):
        return Ragged(_as_tensor(array.values), _as_tensor(array.offsets))
    return array_to_tensor(array)
