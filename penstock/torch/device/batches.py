"""Walking a batch, however it is nested: change its tensors, or find them.

Called by what moves batches to a device. Containers are rebuilt as ``torch.utils.data`` rebuilds them when it pins;
what holds no tensor stays the very same object.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["map_tensors", "tensors_of", "to_device"]

_FLAT: Final = (str, bytes, bytearray, memoryview, range, int, float, complex, type(None))
_CODE: Final = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)

_SPARSE: Final[dict[torch.layout, tuple[str, ...]]] = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def to_device(batch: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """The batch on ``device``: tensors, and whatever has a ``to(device)`` of its own, wherever they are nested.

    Parameters
    ----------
    batch : object
        Tensors, objects with ``to``, mappings, sequences, named tuples and dataclasses of these; anything else is
        handed through.
    device : torch.device
        Where to.
    non_blocking : bool
        Passed to each ``to`` that takes it.
    """

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) or _takes_non_blocking(leaf.to):
            return leaf.to(device, non_blocking=non_blocking)
        return leaf.to(device)

    return _mapped(batch, move, lambda value: callable(getattr(value, "to", None)) and not isinstance(value, type))


def map_tensors(function: Callable[[torch.Tensor], Any], batch: Any) -> Any:
    """The batch with ``function`` applied to each tensor; containers as :func:`to_device` has them."""
    return _mapped(batch, function, lambda value: isinstance(value, torch.Tensor))


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor that owns or views memory: those of nested, sparse and wrapping tensors, and of objects' attributes.

    Attributes are looked into, of any object that is reached, because a batch of the user's own type is no container.
    """
    seen: dict[int, Any] = {}  # with the objects: one that died would leave its number to another
    ahead = [batch]
    while ahead:
        value = ahead.pop()
        if isinstance(value, (*_FLAT, *_CODE)) or id(value) in seen:
            continue
        seen[id(value)] = value
        inner = _inside(value)
        if isinstance(value, torch.Tensor) and not inner:
            yield value
        ahead.extend(reversed(inner))


def _inside(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return _components(value)
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (Sequence, set, frozenset)):
        return list(value)
    names = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else ()
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)]


def _components(tensor: Any) -> list[Any]:
    """The plain tensors under one that is none; empty for a plain one."""
    if is_traceable_wrapper_subclass(tensor):
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    if tensor.is_nested:
        return [tensor.values()]
    return [getattr(tensor, name)() for name in _SPARSE.get(tensor.layout, ())]


def _mapped(value: Any, function: Callable[[Any], Any], is_leaf: Callable[[Any], bool]) -> Any:
    if isinstance(value, _FLAT):
        return value
    if is_leaf(value):
        return function(value)
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value, {key: _mapped(item, function, is_leaf) for key, item in value.items()})
    if isinstance(value, Sequence):
        before = list(value)
        after = [_mapped(item, function, is_leaf) for item in before]
        return value if _same(before, after) else _rebuilt_sequence(value, after)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        before = [getattr(value, field.name) for field in dataclasses.fields(value)]
        after = [_mapped(item, function, is_leaf) for item in before]
        return value if _same(before, after) else _rebuilt_dataclass(value, after)
    return value


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))


def _rebuilt_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if _same(list(value.values()), list(items.values())):
        return value
    try:
        if isinstance(value, MutableMapping):
            clone = copy.copy(value)  # with what else the type may carry
            clone.update(items)
            return clone
        return type(value)(items)  # type: ignore[call-arg]  # what takes no mapping becomes a dict, below
    except TypeError:
        return items


def _rebuilt_sequence(value: Sequence[Any], items: list[Any]) -> Any:
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    try:
        if isinstance(value, MutableSequence):
            clone = copy.copy(value)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(value)(items)  # type: ignore[call-arg]  # what takes no list becomes one, below
    except TypeError:
        return items


def _rebuilt_dataclass(value: Any, items: list[Any]) -> Any:
    clone = copy.copy(value)
    for field, item in zip(dataclasses.fields(value), items, strict=True):
        object.__setattr__(clone, field.name, item)  # frozen ones too: nobody else has the clone yet
    return clone


def _takes_non_blocking(method: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C
        return False
    return any(p.name == "non_blocking" or p.kind is p.VAR_KEYWORD for p in parameters)
