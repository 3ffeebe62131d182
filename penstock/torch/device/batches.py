"""Find and replace the tensors of a nested batch.

Called by the modules that move batches to a device. Containers are rebuilt as ``torch.utils.data`` rebuilds them when
it pins. An object without tensors is returned itself, not a copy.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from penstock.collate import rebuild_mapping, rebuild_sequence
from penstock.sample import Batch

__all__ = ["iterate_tensors", "map_tensors", "to_device"]

_FLAT: Final = (str, bytes, bytearray, memoryview, range, int, float, complex, type(None))
_CODE: Final = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)

_SPARSE: Final[dict[torch.layout, tuple[str, ...]]] = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def to_device(batch: Batch, device: torch.device, *, non_blocking: bool) -> Batch:
    """Copy a batch to ``device``: tensors, and other objects with a method ``to(device)``, at any depth.

    Parameters
    ----------
    batch : object
        Tensors, objects with ``to``, mappings, sequences, named tuples and dataclasses of these. Any other object is
        returned unchanged.
    device : torch.device
        The destination.
    non_blocking : bool
        Passed to each ``to`` that accepts it.
    """

    def move(leaf: Batch) -> Batch:
        if isinstance(leaf, torch.Tensor) or _accepts_non_blocking(leaf.to):
            return leaf.to(device, non_blocking=non_blocking)
        return leaf.to(device)

    return _map_leaves(batch, move, lambda value: callable(getattr(value, "to", None)) and not isinstance(value, type))


def map_tensors(function: Callable[[torch.Tensor], object], batch: Batch) -> Batch:
    """Apply ``function`` to each tensor of a batch. Containers are treated as in :func:`to_device`."""
    return _map_leaves(batch, function, lambda value: isinstance(value, torch.Tensor))


def iterate_tensors(batch: Batch) -> Iterator[torch.Tensor]:
    """Yield every tensor that owns or views memory, including the parts of nested, sparse and wrapper tensors.

    The attributes of all objects are searched, because a batch may be an object of the user's own class.
    """
    seen: dict[int, object] = {}  # keeps the objects alive, so that an id is not reused
    waiting: list[object] = [batch]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (*_FLAT, *_CODE)) or id(value) in seen:
            continue
        seen[id(value)] = value
        inner = _list_parts(value)
        if isinstance(value, torch.Tensor) and not inner:
            yield value
        waiting.extend(reversed(inner))


def _list_parts(value: object) -> list[object]:
    if isinstance(value, torch.Tensor):
        return _list_plain_tensors(value)
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (Sequence, set, frozenset)):
        return list(value)
    names = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else ()
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)]


def _list_plain_tensors(tensor: Batch) -> list[object]:
    """Return the plain tensors inside a nested, sparse or wrapper tensor; empty for a plain one."""
    if is_traceable_wrapper_subclass(tensor):
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    if tensor.is_nested:
        return [tensor.values()]
    return [getattr(tensor, name)() for name in _SPARSE.get(tensor.layout, ())]


def _map_leaves(value: Batch, function: Callable[[Batch], object], is_leaf: Callable[[object], bool]) -> Batch:
    if isinstance(value, _FLAT):
        return value
    if is_leaf(value):
        return function(value)
    if isinstance(value, Mapping):
        items = {key: _map_leaves(item, function, is_leaf) for key, item in value.items()}
        return value if _is_same(list(value.values()), list(items.values())) else rebuild_mapping(value, items)
    if isinstance(value, Sequence):
        before = list(value)
        after = [_map_leaves(item, function, is_leaf) for item in before]
        if not _is_same(before, after):
            value = type(value)(*after) if hasattr(value, "_fields") else rebuild_sequence(value, after)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        before = [getattr(value, field.name) for field in dataclasses.fields(value)]
        after = [_map_leaves(item, function, is_leaf) for item in before]
        value = value if _is_same(before, after) else _rebuild_dataclass(value, after)
    return value


def _is_same(before: list[object], after: list[object]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))


def _rebuild_dataclass(value: Batch, items: list[object]) -> object:
    clone = copy.copy(value)
    for field, item in zip(dataclasses.fields(value), items, strict=True):
        object.__setattr__(clone, field.name, item)  # also sets fields of frozen dataclasses
    return clone


def _accepts_non_blocking(method: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # a function in C
        return False
    return any(p.name == "non_blocking" or p.kind is p.VAR_KEYWORD for p in parameters)
