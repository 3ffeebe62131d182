"""Batches of tensors: torch's collation for the general path, views of the memory for filled batches."""

from __future__ import annotations

from typing import Final

import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import collate as torch_collate

from penstock.collate import default_convert as default_structure
from penstock.ragged import Ragged
from penstock.sample import Array, Batch, Tree, tree_map

__all__ = ["as_batch", "as_tensors", "default_collate", "default_convert", "has_own_functions"]


def as_tensors(arrays: Tree) -> Tree:
    """A tree of arrays as tensors over the same memory.

    Parameters
    ----------
    arrays : tree of ndarray
        Of a dtype and byte order that torch has (float16 and bool are); others raise ``TypeError``. A
        :class:`~penstock.Ragged` counts as its arrays; tensors stay.

    Returns
    -------
    tree of torch.Tensor
        Views, which keep the memory alive.
    """
    return tree_map(_as_tensor, arrays)


def as_batch(arrays: Tree) -> Batch:
    """The batch for filled arrays: tensors over the same memory, with tuples as lists."""
    return default_structure(as_tensors(arrays))


def has_own_functions() -> bool:
    """Whether the user has changed ``default_collate_fn_map``, torch's table of collation functions by type.

    Filled rows follow torch's own functions only.
    """
    functions = torch_collate.default_collate_fn_map.values()
    return any(getattr(function, "__module__", None) not in _KNOWN for function in functions)


_KNOWN: Final = frozenset({torch_collate.__name__, "penstock.torch.tensor_sharing"})
"""Modules of functions that collate as torch does: torch's, and ours in worker processes."""


def _as_tensor(array: Array | Ragged | torch.Tensor) -> torch.Tensor | Ragged:
    if isinstance(array, torch.Tensor):
        return array
    if isinstance(array, Ragged):
        return Ragged(_as_tensor(array.values), _as_tensor(array.offsets))
    return torch.from_numpy(array)
