"""The device on which loaders decode: its kernels, the streams, and the memory between the kernels' steps.

::

    worker's own stream    copy of batch 7 ─┐  copy of batch 9 ─┐                  any number of workers
    another worker's       copy of batch 8 ─┼─┐                 │                  ahead of the kernels
    the decode stream      kernels of 7 <───┘ kernels of 8 <────┘ kernels of 9     one for each device

Kernels of one batch run after those of another, in memory that all of them use: it does not grow with the workers.
Errors of a device are :class:`~penstock.errors.DeviceError`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Final

import torch

from penstock.errors import ArgumentError, DeviceError, PenstockError
from penstock.sample import Batch
from penstock.torch.cuda.augmenting import Kernels
from penstock.torch.cuda.compiler import RESTART, CudaKernels, require_bindings
from penstock.torch.device.batches import iterate_tensors
from penstock.torch.device.capture_mode import beside_captures
from penstock.torch.device.copying import CopyStreams, Stream

__all__ = ["CudaRuntime", "StepMemory", "open_runtime", "translate_errors"]

_LEAST_NBYTES: Final = 64 << 20
"""Of the memory between the steps, so that it seldom has to grow."""

_DOUBLED_NBYTES: Final = 1 << 30
"""Until it has so many, it grows to powers of two."""

_ALIGNMENT: Final = 256
"""Of parts of it."""

_NOTHING: Final = torch.empty(0, dtype=torch.uint8)


class StepMemory:
    """Memory between the kernels of one group of images, used again by the next group on the same stream.

    Not thread-safe: whoever launches uses it.

    Parameters
    ----------
    device : torch.device
        Where it is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = _NOTHING

    def reserve(self, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """Tensors of so many bytes by the same names, with arbitrary content, valid until the next call."""
        starts, end = {}, 0
        for name, nbytes in sizes.items():
            starts[name] = end
            end += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if end > self._memory.nbytes:
            self._memory = _NOTHING  # torch may use what it had for other tensors of this stream
            size = 1 << (end - 1).bit_length() if end < _DOUBLED_NBYTES else end
            self._memory = torch.empty(max(size, _LEAST_NBYTES), dtype=torch.uint8, device=self._device)
        return {name: self._memory[start : start + sizes[name]] for name, start in starts.items()}


class CudaRuntime:
    """A CUDA device: its kernels, streams and memory for decoding. Thread-safe.

    A worker waits until its batch is complete, so its consumer need not. What remains is memory: torch gives a freed
    tensor's memory to the stream that allocated it, so the consumer's stream is recorded.

    Parameters
    ----------
    device : torch.device
        With an index.
    kernels : Kernels
        Compiled for it.
    streams : CopyStreams
        Its streams. A test passes a fake.
    """

    def __init__(self, device: torch.device, kernels: Kernels, streams: CopyStreams) -> None:
        self.device, self.kernels, self._streams = device, kernels, streams
        self._launch_lock = threading.Lock()
        self._decode_stream = streams.side()
        self._memory: weakref.ref[StepMemory] | None = None

    def share_memory(self) -> StepMemory:
        """The memory between the steps, which all loaders share; it is freed when the last of them is deleted."""
        with self._launch_lock:
            memory = None if self._memory is None else self._memory()
            if memory is None:
                memory = StepMemory(self.device)
                self._memory = weakref.ref(memory)
            return memory

    @contextlib.contextmanager
    def working(self) -> Iterator[Stream]:
        """Make a stream that no other thread uses the current one, in a ``with`` statement; the value is the stream.

        It must be done when the statement ends. After an error it is waited for, so that what was copied from can be
        used again.
        """
        with beside_captures():
            with translate_errors(self.device):
                stream = self._streams.take()
            try:
                with self._streams.on(stream):
                    yield stream
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the error that is raised says more
                    stream.synchronize()
                raise
            finally:
                self._streams.give_back(stream)

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Make the decode stream the current one, for one thread at a time, in a ``with`` statement.

        The decode stream waits for what the current stream was given, and after it the current one for the decode
        stream.
        """
        own = self._streams.current()
        with self._launch_lock:
            self._decode_stream.wait_stream(own)
            try:
                with self._streams.on(self._decode_stream):
                    yield
            finally:
                own.wait_stream(self._decode_stream)

    def receive(self, batch: Batch) -> None:
        """Prepare the tensors of a batch, made by a worker, for use on the calling thread's current stream."""
        current = self._streams.current()
        for tensor in iterate_tensors(batch):
            if self._streams.is_resident(tensor):
                self._streams.record(tensor, current)


@contextlib.contextmanager
def translate_errors(device: torch.device) -> Iterator[None]:
    """Raise torch's errors of a device as penstock's.

    Raises
    ------
    DeviceError
        Instead of a RuntimeError. Errors of penstock are not changed.
    """
    try:
        yield
    except PenstockError:
        raise
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{device} has too little free memory to decode a batch: {_first_line(error)} Lower batch_size or "
            "prefetch_factor, or pass decode='cpu'"
        ) from error
    except RuntimeError as error:
        raise DeviceError(f"{device} failed: {_first_line(error)} {RESTART}") from error


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if text.endswith(".") else f"{text}."


_opening = threading.Lock()


def open_runtime(device: torch.device) -> CudaRuntime:
    """Return the runtime of a device, which all loaders of this process share; kernels are compiled by the first call.

    Parameters
    ----------
    device : torch.device
        Without an index, the calling thread's current device.

    Raises
    ------
    ArgumentError
        If torch finds no such device, kernels cannot be compiled for it or loaded, or this process was forked by one
        that had used CUDA.
    DeviceError
        If the device fails.
    """
    if torch.cuda._is_in_bad_fork():  # noqa: SLF001  # as torch asks before its own error
        raise ArgumentError(
            f'decode="{device}" is not possible in a process that was forked after CUDA was used; start processes '
            "with the start method 'spawn', or pass decode=\"cpu\""
        )
    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise ArgumentError(
            f'decode="{device}" needs a CUDA device, and torch finds none; decode="auto" decodes on the CPU then'
        )
    given: int | None = device.index
    index = torch.cuda.current_device() if given is None else given
    if index >= torch.cuda.device_count():
        raise ArgumentError(f'decode="{device}": there are {torch.cuda.device_count()} CUDA devices')
    require_bindings()
    found = torch.device("cuda", index)
    with _opening, beside_captures(), translate_errors(found):
        return _open(found)


@functools.cache
def _open(device: torch.device) -> CudaRuntime:
    """Load the code and make the streams, once in a process: torch keeps memory for the streams."""
    return CudaRuntime(device, CudaKernels(device), CopyStreams(device))
