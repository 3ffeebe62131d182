"""Tensors of worker processes: collated into the memory of the batch, and sent as spans of a slot.

The extension of :class:`penstock.frameworks.Torch`, installed in worker processes when torch is imported; the parent
rebuilds the tensors. Tensors that are not plain, dense and in main memory are left to torch's own reductions.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data._utils import collate as torch_collate

from penstock import collate
from penstock.frameworks import REDUCERS
from penstock.sample import Array
from penstock.torch.collate import install_bfloat16

__all__ = ["install"]

_SMALL: Final = 4096
_plain_collate: Callable[..., torch.Tensor] = torch_collate.collate_tensor_fn


def install() -> None:
    """Collate and reduce tensors of this worker process by this module."""
    importlib.import_module("torch.multiprocessing")  # torch's reductions, for other tensors

    REDUCERS[torch.Tensor] = _reduce
    install_bfloat16()
    functions = torch_collate.default_collate_fn_map
    if functions.get(torch.Tensor) is _plain_collate:  # not the user's own
        functions[torch.Tensor] = _collate


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tensor.__dict__
    )


def _reduce(tensor: torch.Tensor) -> Any:
    if not _is_plain(tensor) or (tensor.requires_grad and not tensor.is_leaf):
        return NotImplemented
    content, order = tensor.detach(), None
    if not content.is_contiguous():
        content, order = _dense(content)
    array: Any = content.reshape(-1).view(torch.uint8).numpy() if content.numel() else np.empty(0, np.uint8)
    buffer = bytearray(array) if array.nbytes < _SMALL else pickle.PickleBuffer(array)
    return _rebuild, (buffer, _NAMES[tensor.dtype], tuple(content.shape), tensor.requires_grad, order)


def _dense(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...] | None]:
    """A contiguous tensor, and the permutation of its dimensions: ``channels_last`` keeps its order in memory."""
    strides, sizes = tensor.stride(), tensor.shape
    outer_first = sorted(range(tensor.dim()), key=lambda i: (-strides[i], -sizes[i]))
    in_memory = tensor.permute(outer_first)
    if not in_memory.is_contiguous():
        return tensor.contiguous(), None
    return in_memory, tuple(outer_first.index(i) for i in range(tensor.dim()))


_NAMES: Final = {value: name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


def _rebuild(
    buffer: Any, dtype_name: str, shape: tuple[int, ...], requires_grad: bool, order: tuple[int, ...] | None
) -> torch.Tensor:
    """Return a tensor over ``buffer``, with dimensions of ``shape`` in ``order``."""
    dtype: torch.dtype = getattr(torch, dtype_name)
    tensor = torch.frombuffer(buffer, dtype=dtype).view(shape) if len(buffer) else torch.empty(shape, dtype=dtype)
    if order is not None:
        tensor = tensor.permute(order)
    return tensor.requires_grad_() if requires_grad else tensor


def _collate(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack tensors as torch does, into the batch's memory; other tensors are left to torch."""
    first = batch[0]
    rows = len(batch)
    if not isinstance(batch, (list, tuple)):  # a tensor: torch does not stack its rows
        refused: torch.Tensor = _plain_collate(batch, collate_fn_map=collate_fn_map)
        return refused
    if (
        rows * first.nbytes < _SMALL
        or not all(_is_plain(tensor) and not tensor.requires_grad for tensor in batch)
        or any(tensor.shape != first.shape or tensor.dtype != first.dtype for tensor in batch)
    ):
        is_small = rows * first.nbytes < _SMALL
        # In a worker torch's own collation says of different sizes that a storage is not resizable.
        if all(map(_is_plain, batch)) and (is_small or any(tensor.shape != first.shape for tensor in batch)):
            return torch.stack(list(batch))
        other: torch.Tensor = _plain_collate(batch, collate_fn_map=collate_fn_map)
        return other
    shape = (rows, *first.shape)
    memory = collate.allocate((rows, first.nbytes), np.uint8)
    collate.stack_into([_bytes(tensor) for tensor in batch], memory)
    return torch.from_numpy(memory).view(first.dtype).view(shape)


def _bytes(tensor: torch.Tensor) -> Array:
    """Return the bytes of a plain tensor in one dimension; a view if it is contiguous."""
    array: Array = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    return array
