"""Packets in, a tensor on the device out: the kernels, in order, on the current stream.

::

    packets ──copy──> entropy ──> idct ──> color ──> taps, first_pass ──> rows ──────────────────────> tensor
                      a thread:   8 of a   4 pixels  4 values of a line │ a pixel
                      a segment   block                                 └──> windows ──> augment ──> finish

The kernel ``coefficients`` reads records of coefficients in place of ``entropy``; a block of threads has a segment.
One copy brings all that the kernels of a batch read: places and steps of augmentation stand behind the packets.
Memory between the steps is used for one group of images after the other, and for one batch after the other.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.torch.cuda.augmenting import AugmentMemory, AugmentPlan, Kernels
from penstock.torch.cuda.packets import BASES, BLOCK, KERNELS, Group, plan_groups

__all__ = ["DTYPES", "PacketDecoder", "RowFormat"]

DTYPES: Final = {torch.uint8: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
"""The dtypes of rows, and their numbers in ``enum Dtype``."""

_BUDGET_NBYTES: Final = 1 << 30
"""Memory for the steps of a group of images: 400 photographs of 500 x 375."""

_ROOM_NBYTES: Final = 256
"""Bytes behind the packets for each image, at first: :meth:`PacketDecoder.room`."""

_ALIGNMENT: Final = 16
"""Of arrays behind the packets."""

_STEPS: Final = ("entropy", "coefficients", "idct", "color", "taps", "first_pass")
"""Kernels before those that write windows or rows."""


class _KernelBatch(ctypes.Structure):
    """The ``struct Batch`` of ``kernels/packet.h``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("packets", "bases", "starts", "coefficients", "samples", "rgb")),
        *((name, ctypes.c_void_p) for name in ("taps", "lines", "windows", "status", "out")),
        ("strides", ctypes.c_int64 * 4),
        *((name, ctypes.c_int32) for name in ("images", "channels", "width", "height", "is_reversed", "dtype")),
        ("scale", ctypes.c_float * 4),
        ("offset", ctypes.c_float * 4),
        ("background", ctypes.c_uint8 * 4),
    )


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
    def window(self) -> tuple[int, int, int]:
        """The channels, height and width of a row."""
        return self.channels, self.height, self.width

    def allocate(self, count: int, device: torch.device, *, channels_last: bool = False) -> torch.Tensor:
        """Allocate rows with arbitrary content."""
        if self.layout == "HWC":
            return torch.empty((count, self.height, self.width, self.channels), dtype=self.dtype, device=device)
        shape = (count, self.channels, self.height, self.width)
        form = torch.channels_last if channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=self.dtype, device=device, memory_format=form)

    def strides(self, rows: torch.Tensor) -> tuple[int, ...]:
        """Return the strides of ``rows``: of images, channels, rows, columns."""
        image, first, second, third = rows.stride()
        return (image, third, first, second) if self.layout == "HWC" else (image, first, second, third)


class Augmentation(Protocol):
    """What is done with the images of a batch besides decoding."""

    def plan_pixels(self, first: int, count: int) -> AugmentPlan | None:
        """Return what is done with the uint8 pixels of some images; None: nothing."""
        ...

    def plan_values(self, first: int, count: int) -> AugmentPlan | None:
        """Return what is done with their values after normalisation; None: nothing."""
        ...


class _Upload:
    """Arrays that go to the device in one copy with the packets, as far as there is room behind these.

    Parameters
    ----------
    buffer : ndarray of uint8
        Packets, and room.
    used : int
        Bytes of the packets.
    device : torch.device
        Where they go.
    """

    def __init__(self, buffer: Array, used: int, device: torch.device) -> None:
        self._buffer, self._used, self._device = buffer, used, device
        self._others: list[Array] = []
        self._sent: list[torch.Tensor] = []
        self.nbytes_behind = 0

    def add(self, array: Array) -> _UploadPlace:
        """Give an array a place; its content is taken now."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        self.nbytes_behind += len(content) + _ALIGNMENT
        if start + len(content) > len(self._buffer):
            self._others.append(content)
            return _UploadPlace(len(self._others), 0)
        self._buffer[start : start + len(content)] = content
        self._used = start + len(content)
        return _UploadPlace(0, start)

    def send(self) -> None:
        """Queue the copy, and one for each array that found no room."""
        self._sent = [
            torch.from_numpy(array).to(self._device, non_blocking=True)
            for array in (self._buffer[: self._used], *self._others)
        ]

    def address(self, place: _UploadPlace) -> int:
        """Return the address on the device of an array that was sent."""
        return self._sent[place.copy].data_ptr() + place.start


class _UploadPlace(NamedTuple):
    """The copy that has an array, and the place in it."""

    copy: int
    start: int


_PACKETS: Final = _UploadPlace(0, 0)


@dataclass(frozen=True, slots=True)
class _GroupWork:
    """A group of images, what is done with them, and the places of the arrays that this needs."""

    group: Group
    bases: _UploadPlace
    starts: _UploadPlace
    on_pixels: _AugmentWork | None
    on_values: _AugmentWork | None


@dataclass(frozen=True, slots=True)
class _AugmentWork:
    """A plan, and the places of its arrays."""

    plan: AugmentPlan
    steps: _UploadPlace
    tables: _UploadPlace
    weights: _UploadPlace


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
    reserve : callable, optional
        Gives that memory by the names and bytes of its parts, such as
        :meth:`~penstock.torch.cuda.runtime.StepMemory.reserve`; by default, new tensors.
    launching : callable, optional
        A context in which memory is reserved and kernels are launched, such as
        :meth:`~penstock.torch.cuda.runtime.CudaRuntime.launching`; by default, the current stream.
    """

    def __init__(
        self,
        kernels: Kernels,
        device: torch.device,
        row_format: RowFormat,
        budget: int = _BUDGET_NBYTES,
        *,
        reserve: Callable[[Mapping[str, int]], dict[str, torch.Tensor]] | None = None,
        launching: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._kernels, self._device, self._format, self._budget = kernels, device, row_format, budget
        self._reserve, self._launching = reserve or functools.partial(_allocate, device), launching
        self._room_nbytes = _ROOM_NBYTES

    def room(self, count: int) -> int:
        """Bytes behind the packets of ``count`` images that :meth:`decode` can use: what earlier batches needed."""
        return count * self._room_nbytes

    def decode(
        self,
        packets: Array,
        offsets: NDArray[np.int64],
        augmentation: Augmentation | None = None,
        *,
        channels_last: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queue the copy of a batch on the current stream, and its decoding where ``launching`` says.

        Parameters
        ----------
        packets, offsets
            As for :func:`plan_groups`. ``packets`` may be longer, by :meth:`room`: arrays for the kernels are written
            there, so that all is copied at once. It must not change until the stream has copied it; the copy is
            asynchronous from page-locked memory.
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
        upload = _Upload(packets, int(offsets[-1]), self._device)
        groups = plan_groups(packets, offsets, self._format.window, self._budget)
        works = [self._plan(group, upload, augmentation) for group in groups]
        self._room_nbytes = max(self._room_nbytes, -(-upload.nbytes_behind // max(count, 1)))
        upload.send()
        with self._launching():
            rows = self._format.allocate(count, self._device, channels_last=channels_last)
            status = torch.zeros(count, dtype=torch.int32, device=self._device)
            for work in works:
                self._decode_group(work, upload, rows, status)
        return rows, status

    def _plan(self, group: Group, upload: _Upload, augmentation: Augmentation | None) -> _GroupWork:
        def add(plan: AugmentPlan | None) -> _AugmentWork | None:
            if plan is None:
                return None
            return _AugmentWork(plan, upload.add(plan.steps), upload.add(plan.tables), upload.add(plan.weights))

        on_pixels = on_values = None
        if augmentation is not None:
            on_pixels = add(augmentation.plan_pixels(group.first, group.count))
            on_values = add(augmentation.plan_values(group.first, group.count))
        return _GroupWork(group, upload.add(group.bases), upload.add(group.starts), on_pixels, on_values)

    def _decode_group(self, work: _GroupWork, upload: _Upload, rows: torch.Tensor, status: torch.Tensor) -> None:
        group = work.group
        row_format = self._format
        windows_nbytes = group.count * math.prod(row_format.window) if work.on_pixels is not None else 0
        memory = self._reserve({**group.nbytes, "windows": windows_nbytes})
        windows = memory["windows"]
        of_group = slice(group.first, group.first + group.count)
        places = [*(memory[name] for name in BASES[1:]), windows, status[of_group], rows[of_group]]
        read = [upload.address(place) for place in (_PACKETS, work.bases, work.starts)]
        batch = _KernelBatch(*read, *(tensor.data_ptr() for tensor in places))
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
        for name in (*_STEPS, "rows" if work.on_pixels is None else "windows"):
            self._launch(name, batch, work, upload)
        if work.on_pixels is not None:
            self._augment(work.on_pixels, upload, AugmentMemory(windows=windows.data_ptr()))
            self._launch("finish", batch, work, upload)
        if work.on_values is not None:
            memory_of_rows = AugmentMemory(
                out=rows[of_group].data_ptr(), strides=row_format.strides(rows), dtype=DTYPES[row_format.dtype]
            )
            self._augment(work.on_values, upload, memory_of_rows)

    def _launch(self, name: str, batch: _KernelBatch, work: _GroupWork, upload: _Upload) -> None:
        starts = work.group.starts[(number := KERNELS.index(name))]
        batch.starts = upload.address(work.starts) + number * starts.nbytes
        if (blocks := int(starts[-1])) > 0:
            self._kernels.launch(name, batch, blocks, 1, BLOCK)

    def _augment(self, work: _AugmentWork, upload: _Upload, memory: AugmentMemory) -> None:
        """Queue the launches of a plan."""
        plan = work.plan
        nbytes = 3 * plan.images * plan.width * plan.height if plan.needs_second else 0
        second, measured = (
            torch.empty(size, dtype=torch.uint8, device=self._device) for size in (nbytes, 768 * plan.images)
        )
        steps, tables, weights = map(upload.address, (work.steps, work.tables, work.weights))
        memory = replace(memory, second=second.data_ptr(), measured=measured.data_ptr())
        plan.run(self._kernels, replace(memory, steps=steps, tables=tables, weights=weights))


def _allocate(device: torch.device, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    return {name: torch.empty(nbytes, dtype=torch.uint8, device=device) for name, nbytes in sizes.items()}
