"""What is known of the tensors of observed steps: from which batch they come, where they are, whether they were cast.

On a machine without a device, tensors are marked that a device would have: what is copied by ``.to``, parameters, and
what is computed from them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from penstock.doctor.watching.steps.events import Cast, find_caller, line_of, text_of
from penstock.sample import Array

__all__ = ["KnownTensor", "KnownTensors", "find_cast", "find_copied_arrays", "list_tensors"]

_DEEPEST: Final = 4
_MOST_PARTS: Final = 256


@dataclass(frozen=True, slots=True)
class KnownTensor:
    """What is known of a tensor: whether a device would have it, and what became of the batch that it comes from."""

    is_on_device: bool = False
    batch: int = 0
    is_loaded: bool = False
    cast: Cast | None = None


class KnownTensors:
    """What is known of tensors, of which none is held alive.

    Attributes
    ----------
    has_device : bool
        Whether torch finds an accelerator on this machine.
    """

    def __init__(self) -> None:
        self.has_device = False
        self._known: MutableMapping[torch.Tensor, KnownTensor] = WeakTensorKeyDictionary()
        self._arrays: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()  # by their memory

    def note_batch(self, batch: object, number: int) -> None:
        """Note that a loader gave its ``number``th batch, from 1."""
        for leaf in _list_leaves(batch):
            if isinstance(leaf, torch.Tensor):
                self._known[leaf] = KnownTensor(leaf.device.type != "cpu", number, is_loaded=True)
            else:
                self._arrays[leaf.ctypes.data] = leaf

    def is_loaded(self, array: Array) -> bool:
        """Return whether the loader gave this array."""
        return self._arrays.get(array.ctypes.data) is array

    def describe(self, tensor: torch.Tensor) -> KnownTensor:
        """Return what is known of a tensor."""
        known = self._known.get(tensor)
        if known is None and tensor.device.type == "cpu" and tensor.layout is torch.strided:
            known = KnownTensor(batch=1) if tensor.data_ptr() in self._arrays else None  # by torch.from_numpy
        if tensor.device.type != "cpu":
            return replace(known, is_on_device=True) if known is not None else KnownTensor(is_on_device=True)
        if self.has_device:
            return KnownTensor() if known is None else replace(known, is_on_device=False)
        if known is not None:
            return known
        return KnownTensor(is_on_device=tensor.grad_fn is not None or isinstance(tensor, torch.nn.Parameter))

    def spread(
        self, given: Sequence[torch.Tensor], known: Sequence[KnownTensor], result: object, seconds: float
    ) -> None:
        """Note what is known of the results, which come from what was given by a call of so many seconds."""
        results = list_tensors(result)
        source = next(
            ((tensor, each) for tensor, each in zip(given, known, strict=True) if each.batch or each.is_on_device), None
        )
        if source is None or not results:
            return
        is_on_device = any(each.is_on_device for each in known)
        for each in results:
            if is_on_device:
                self._known[each] = replace(source[1], is_on_device=True)
            elif not any(each is tensor for tensor in given):
                cast = source[1].cast or find_cast(source[0], each, seconds)
                self._known[each] = replace(source[1], is_loaded=False, cast=cast)

    def move(self, tensor: torch.Tensor, result: torch.Tensor, *, is_on_device: bool) -> None:
        """A tensor was copied to the device, or from it."""
        self._known[result] = replace(self.describe(tensor), is_on_device=is_on_device, is_loaded=False, cast=None)

    def separate(self, name: str, args: Sequence[object], result: object) -> object:
        """The result of a call; a view of it where ``.to`` returned a batch's tensor itself for want of a device."""
        if name != "to" or self.has_device or type(result) is not torch.Tensor or result is not args[0]:
            return result
        return result.view_as(result) if self.describe(result).is_loaded else result

    def goes_to_device(
        self, name: str, args: Sequence[object], named: Mapping[str, object], result: torch.Tensor, known: KnownTensor
    ) -> bool:
        """Return whether the result is on the device; on a machine without one, whether it would be."""
        if self.has_device or result.device.type != "cpu":
            return result.device.type != "cpu"
        if name != "to":
            return False
        for each in (*args[1:], *named.values()):
            if isinstance(each, torch.Tensor):
                return self.describe(each).is_on_device
            if isinstance(each, (torch.device, str)):  # the CPU: stands for the device, if it is not named here
                frame = find_caller()
                text = "" if frame is None else text_of(frame, most=-1)
                return not ('"cpu"' in text or "'cpu'" in text)
        return known.is_on_device


def list_tensors(value: object) -> list[torch.Tensor]:
    """The tensors in lists, tuples and mappings."""
    return [leaf for leaf in _list_leaves(value) if isinstance(leaf, torch.Tensor)]


def _list_leaves(value: object, depth: int = _DEEPEST) -> Iterator[torch.Tensor | Array]:
    """The tensors and arrays in lists, tuples and mappings."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in list(value.values())[:_MOST_PARTS]:
            yield from _list_leaves(each, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for each in value[:_MOST_PARTS]:
            yield from _list_leaves(each, depth - 1)


def find_cast(before: torch.Tensor, after: torch.Tensor, seconds: float) -> Cast | None:
    """Return the cast, if one tensor is the other with a larger type, and a line of the user made it."""
    if before.numel() != after.numel() or after.element_size() <= before.element_size():
        return None
    frame = find_caller()
    if frame is None:
        return None
    return Cast(line_of(frame), text_of(frame), tuple(after.shape), before.dtype, after.dtype, seconds)


def find_copied_arrays(given: object, result: torch.Tensor) -> list[Array]:
    """Return the arrays that ``torch.tensor`` copied and need not have: of the tensor's type, on the same device."""
    arrays = [given] if isinstance(given, np.ndarray) else list(given) if isinstance(given, (list, tuple)) else []
    if not arrays or not all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
        return []
    dtype = str(result.dtype).removeprefix("torch.")
    if result.device.type != "cpu" or any(str(array.dtype) != dtype for array in arrays):
        return []
    return arrays
