"""Packets in, a tensor on the device out: the kernels, in order, on the current stream.

::

    packets ──copy──> entropy ──> idct ──> color ──> taps, first_pass, second_pass ──> windows ──> finish ──> tensor
                      a thread    a block   a pixel    an output value                  a value

Memory between the steps comes from torch's allocator, for one group of images after the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.torch.cuda.augmenting import AugmentMemory, AugmentPlan
from penstock.torch.cuda.packets import BASES, Group, plan_groups

__all__ = ["DTYPES", "Kernels", "PacketDecoder", "RowFormat"]

DTYPES: Final = {torch.uint8: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
"""The dtypes of rows, and their numbers in ``enum Dtype``."""

_BLOCK: Final = 128
"""Threads of a block."""

_BUDGET_NBYTES: Final = 1 << 30
"""Memory for the steps of a group of images: 400 photographs of 500 x 375."""

_STEPS: Final = ("entropy", "idct", "color", "taps", "first_pass", "second_pass", "windows")


class _KernelBatch(ctypes.Structure):
    """``struct Batch`` of ``kernels/packet.h``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("packets", "bases", "coefficients", "samples", "rgb", "taps", "lines")),
        *((name, ctypes.c_void_p) for name in ("pictures", "windows", "status", "out")),
        ("strides", ctypes.c_int64 * 4),
        *((name, ctypes.c_int32) for name in ("images", "channels", "width", "height", "is_reversed", "dtype")),
        ("scale", ctypes.c_float * 4),
        ("offset", ctypes.c_float * 4),
        ("background", ctypes.c_uint8 * 4),
    )


class Kernels(Protocol):
    """The compiled kernels."""

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Queue a kernel on the current stream: a grid of ``columns`` x ``rows`` blocks of ``threads`` threads."""
        ...


@dataclass(frozen=True, slots=True)
class RowFormat:
    """What rows of a batch are.

    Parameters
    ----------
    channels, height, width : int
        Of an image.
    dtype : torch.dtype
        One of :data:`DTYPES`.
    layout : {"CHW", "HWC"}
        The order of the tensor's axes.
    is_reversed : bool
        Whether channels are blue, green, red.
    scale, offset : sequence of float, optional
        Of each channel: rows are ``value * scale + offset``, in float32, then rounded to ``dtype``.
    background : sequence of int
        Colour of the window outside of images.
    """

    channels: int
    height: int
    width: int
    dtype: torch.dtype
    layout: str = "CHW"
    is_reversed: bool = False
    scale: Sequence[float] = (1.0, 1.0, 1.0)
    offset: Sequence[float] = (0.0, 0.0, 0.0)
    background: Sequence[int] = (0, 0, 0)

    @property
    def values(self) -> int:
        """Values of a row."""
        return self.channels * self.height * self.width

    def allocate(self, count: int, device: torch.device, *, channels_last: bool = False) -> torch.Tensor:
        """Rows with arbitrary content."""
        if self.layout == "HWC":
            return torch.empty((count, self.height, self.width, self.channels), dtype=self.dtype, device=device)
        shape = (count, self.channels, self.height, self.width)
        form = torch.channels_last if channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=self.dtype, device=device, memory_format=form)

    def strides(self, rows: torch.Tensor) -> tuple[int, ...]:
        """Of ``rows``: of images, channels, rows, columns."""
        image, first, second, third = rows.stride()
        return (image, third, first, second) if self.layout == "HWC" else (image, first, second, third)


class Augmentation(Protocol):
    """What is done with the images of a batch besides decoding."""

    def plan_pixels(self, first: int, count: int) -> AugmentPlan | None:
        """What is done with the uint8 pixels of some images; None: nothing."""
        ...

    def plan_values(self, first: int, count: int) -> AugmentPlan | None:
        """What is done with their values after normalisation; None: nothing."""
        ...


class PacketDecoder:
    """Decodes packets on one device.

    Parameters
    ----------
    kernels : Kernels
        Those of the device.
    device : torch.device
        Where tensors are made.
    format : RowFormat
        What rows are.
    budget : int
        Bytes of memory between the steps.
    """

    def __init__(
        self, kernels: Kernels, device: torch.device, row_format: RowFormat, budget: int = _BUDGET_NBYTES
    ) -> None:
        self._kernels, self._device, self._format, self._budget = kernels, device, row_format, budget

    def decode(
        self,
        packets: Array,
        offsets: NDArray[np.int64],
        augmentation: Augmentation | None = None,
        *,
        channels_last: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queue the decoding of a batch on the current stream.

        Parameters
        ----------
        packets, offsets
            As for :func:`plan_groups`. They must not change until the stream has copied them; copies are asynchronous
            from page-locked memory.
        augmentation : Augmentation, optional
            What is done with the images.
        channels_last : bool
            Whether the memory of a CHW tensor has torch's channels-last format.

        Returns
        -------
        rows : torch.Tensor
            The batch, on the device.
        status : torch.Tensor, shape (n,), int32
            Not 0 for images whose bytes are damaged: the content of their rows is undefined.
        """
        count = len(offsets) - 1
        rows = self._format.allocate(count, self._device, channels_last=channels_last)
        status = torch.zeros(count, dtype=torch.int32, device=self._device)
        if not count:
            return rows, status
        compressed = self._to_device(packets[: int(offsets[-1])])
        for group in plan_groups(packets, offsets, self._format.values, self._budget):
            self._decode_group(group, compressed, rows, status, augmentation)
        return rows, status

    def _to_device(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)

    def _decode_group(
        self,
        group: Group,
        compressed: torch.Tensor,
        rows: torch.Tensor,
        status: torch.Tensor,
        augmentation: Augmentation | None,
    ) -> None:
        row_format, device = self._format, self._device
        bases = self._to_device(group.bases)
        memory = {name: torch.empty(nbytes, dtype=torch.uint8, device=device) for name, nbytes in group.nbytes.items()}
        memory["blocks"].zero_()
        windows = torch.empty(group.count * row_format.values, dtype=torch.uint8, device=device)
        of_group = slice(group.first, group.first + group.count)
        places = [compressed, bases, *(memory[name] for name in BASES[1:]), windows, status[of_group], rows[of_group]]
        batch = _KernelBatch(*(tensor.data_ptr() for tensor in places))
        batch.strides[:] = row_format.strides(rows)
        batch.images, batch.channels = group.count, row_format.channels
        batch.width, batch.height = row_format.width, row_format.height
        batch.is_reversed, batch.dtype = int(row_format.is_reversed), DTYPES[row_format.dtype]
        for target, values in (
            (batch.scale, row_format.scale),
            (batch.offset, row_format.offset),
            (batch.background, row_format.background),
        ):
            target[: len(values)] = values
        for name in _STEPS:
            self._launch(name, batch, group)
        del memory  # the allocator may use it again on this stream
        plan = None if augmentation is None else augmentation.plan_pixels(group.first, group.count)
        if plan is not None:
            self._augment(plan, AugmentMemory(windows=windows.data_ptr()))
        self._launch("finish", batch, group)
        plan = None if augmentation is None else augmentation.plan_values(group.first, group.count)
        if plan is not None:
            own = rows[of_group]
            strides = row_format.strides(rows)
            self._augment(plan, AugmentMemory(out=own.data_ptr(), strides=strides, dtype=DTYPES[row_format.dtype]))

    def _launch(self, name: str, batch: _KernelBatch, group: Group) -> None:
        if (threads := group.threads[name]) > 0:
            self._kernels.launch(name, batch, -(-threads // _BLOCK), group.count, _BLOCK)

    def _augment(self, plan: AugmentPlan, memory: AugmentMemory) -> None:
        """Copy the arrays of a plan, and queue its launches."""
        steps, tables, weights = (
            self._to_device(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
            for array in (plan.steps, plan.tables, plan.weights)
        )
        nbytes = 3 * plan.images * plan.width * plan.height if plan.needs_second else 0
        second, measured = (
            torch.empty(size, dtype=torch.uint8, device=self._device) for size in (nbytes, 768 * plan.images)
        )
        memory = replace(memory, second=second.data_ptr(), measured=measured.data_ptr(), steps=steps.data_ptr())
        plan.run(self._kernels, replace(memory, tables=tables.data_ptr(), weights=weights.data_ptr()))
