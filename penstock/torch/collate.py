"""Batches as tensors: torch's own collation for the general path, views for batches that were filled."""

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
        Views: they keep the memory, and see what is written to it.
    """
    return tree_map(_as_tensor, arrays)


def as_batch(arrays: Tree) -> Batch:
    """What a loader yields for a fill's arrays: tensors over the same memory, tuples as lists."""
    return default_structure(as_tensors(arrays))


def has_own_functions() -> bool:
    """Whether somebody has changed ``default_collate_fn_map``, by which ``default_collate`` collates each type.

    torch documents that as a way to extend it. Rows that are filled are collated by torch's functions alone.
    """
    functions = torch_collate.default_collate_fn_map.values()
    return any(getattr(function, "__module__", None) not in _KNOWN for function in functions)


_KNOWN: Final = frozenset({torch_collate.__name__, "penstock.torch.transport"})
"""Modules of functions that collate as torch does: its own, and in worker processes ours."""


def _as_tensor(array: Array | Ragged | torch.Tensor) -> torch.Tensor | Ragged:
    if isinstance(array, torch.Tensor):
        return array
    if isinstance(array, Ragged):
        return Ragged(_as_tensor(array.values), _as_tensor(array.offsets))
    return torch.from_numpy(array)
