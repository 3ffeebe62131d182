"""The device on which a loader decodes: its kernels, and the streams of the workers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from penstock.errors import ArgumentError
from penstock.sample import Batch
from penstock.torch.cuda.augmenting import Kernels
from penstock.torch.cuda.compiler import CudaKernels, require_bindings
from penstock.torch.device.batches import iterate_tensors

__all__ = ["CudaRuntime", "open_runtime"]


class CudaRuntime:
    """A CUDA device: its tensors and kernels. Each worker thread has its own stream. A test passes a fake.

    A worker waits until its batch is complete, so its consumer need not. What remains is memory: torch gives a freed
    tensor's memory to the stream that allocated it, so the consumer's stream is recorded.

    Parameters
    ----------
    device : torch.device
        With an index.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._kernels: CudaKernels | None = None
        self._local = threading.local()

    @property
    def kernels(self) -> Kernels:
        """The kernels, compiled by the first call."""
        with self._lock:
            if self._kernels is None:
                torch.empty(1, device=self.device)  # makes the context
                self._kernels = CudaKernels(self.device)
            return self._kernels

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Make the stream of the calling thread the current one, in a ``with`` statement."""
        stream = getattr(self._local, "stream", None)
        if stream is None:
            stream = self._local.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch's is untyped
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def receive(self, batch: Batch) -> None:
        """Prepare the tensors of a batch, made by a worker, for use on the calling thread's current stream."""
        current = torch.cuda.current_stream(self.device)
        for tensor in iterate_tensors(batch):
            if tensor.device == self.device:
                tensor.record_stream(current)


def open_runtime(device: torch.device) -> CudaRuntime:
    """The runtime of a device.

    Raises
    ------
    ArgumentError
        If torch finds no such device, or what compiles kernels is not installed.
    """
    if not torch.cuda.is_available():
        raise ArgumentError(
            f'decode="{device}" needs a CUDA device, and torch finds none; decode="auto" decodes on the CPU then'
        )
    given: int | None = device.index
    index = torch.cuda.current_device() if given is None else given
    if index >= torch.cuda.device_count():
        raise ArgumentError(f'decode="{device}": there are {torch.cuda.device_count()} CUDA devices')
    require_bindings()
    return CudaRuntime(torch.device("cuda", index))
