"""The batch that the fixed-data test gives again and again.

A training step may change a batch (``batch.pop("label")``, ``images.div_(255)``). So each repetition gets containers of
its own, and where tensors or arrays were changed, copies of what they were. Unchanged ones are given again as they are:
to make and free copies of large ones would cost the step time.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import numpy as np

from penstock.sample import Batch

__all__ = ["ReplayedBatch", "synchronize_device"]


class ReplayedBatch:
    """A batch as it was when it was delivered.

    ``batch``: of any structure; its tensors and arrays are copied once.
    """

    def __init__(self, batch: Batch) -> None:
        self._given = _map_leaves(batch, _same)
        self._versions = _list_versions(self._given)
        self._pristine = _map_leaves(batch, _copy_leaf)

    def take(self) -> Batch:
        """Return the batch once more, unchanged by the step before."""
        if _list_versions(self._given) != self._versions:
            self._given = _map_leaves(self._pristine, _copy_leaf)
            self._versions = _list_versions(self._given)
        return _map_leaves(self._given, _same)


def _same(leaf: object) -> object:
    return leaf


def _map_leaves(batch: Batch, function: Callable[[Batch], object]) -> Batch:
    """New containers, with ``function`` of what is in them."""
    if isinstance(batch, dict):
        copied = copy.copy(batch)
        copied.update({name: _map_leaves(value, function) for name, value in batch.items()})
        return copied
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_map_leaves(value, function) for value in batch))
    if type(batch) in {list, tuple}:
        return type(batch)(_map_leaves(value, function) for value in batch)
    return function(batch)


def _list_versions(batch: Batch) -> list[int]:
    """Return what changes when a tensor or an array is written to."""
    versions: list[int] = []

    def add(leaf: object) -> object:
        version = getattr(leaf, "_version", None)  # of a tensor
        if version is not None:
            versions.append(version)
        elif isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            versions.append(hash(np.ascontiguousarray(leaf).tobytes()))
        return leaf

    _map_leaves(batch, add)
    return versions


def _copy_leaf(leaf: Batch) -> object:
    torch = sys.modules.get("torch")
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if torch is None or type(leaf) is not torch.Tensor or leaf.layout is not torch.strided or leaf.requires_grad:
        return leaf
    if leaf.device.type != "cpu" or not leaf.is_pinned():
        return leaf.clone()
    return torch.empty_like(leaf, pin_memory=True).copy_(leaf)  # pageable memory is copied more slowly


def synchronize_device() -> None:
    """Wait for what was started on a GPU, if the script uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
