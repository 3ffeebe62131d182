"""Start the copy of a batch to a device, and return the batch when the training step may use it.

Called by :mod:`penstock.torch.device.prefetching`, which decides what is copied when.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from penstock.sample import Batch, State
from penstock.torch.device.batches import iterate_tensors, to_device

__all__ = ["BatchCopier", "CopyStreams", "PendingBatch", "SideStreamCopier", "Stream", "find_streams"]

# Streams and events of torch.cuda, torch.xpu and other modules, which share no type.
Stream = Any
Event = Any


class CopyStreams:
    """The calls to a device's streams that prefetching makes. A test passes a fake."""

    def __init__(self, device: torch.device) -> None:
        self._module: ModuleType = torch.get_device_module(device.type)
        index: int | None = device.index
        self.device = torch.device(device.type, self._module.current_device() if index is None else index)
        self._idle: list[Stream] = []

    def side(self) -> Stream:
        """Create a stream."""
        return self._module.Stream(device=self.device)

    def take(self) -> Stream:
        """Return a stream that nobody else takes until :meth:`give_back`.

        It is used again: torch's allocator keeps the memory that each stream has used, and torch has 32 streams only.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self.side()

    def give_back(self, stream: Stream) -> None:
        """Let :meth:`take` return the stream again. Host memory that it copies from must not be needed any more."""
        self._idle.append(stream)

    def current(self) -> Stream:
        """Return the current stream of this thread."""
        return self._module.current_stream(self.device)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Make ``stream`` the current one, in a ``with`` statement."""
        return self._module.stream(stream)  # type: ignore[no-any-return]  # torch.cuda, torch.xpu: modules found by name

    def record(self, tensor: torch.Tensor, stream: Stream) -> None:
        """Keep the tensor's memory until ``stream`` has finished its present work."""
        tensor.record_stream(stream)

    def is_resident(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on this device."""
        return tensor.device == self.device


def find_streams(device: torch.device) -> CopyStreams | None:
    """Return the device's streams, which all callers share; None if torch has none for it, or they bring no gain."""
    if device.type in {"cpu", "meta", "mps"}:
        return None
    module = torch.get_device_module(device.type)
    if not all(hasattr(module, name) for name in ("Stream", "stream", "current_stream", "current_device")):
        return None
    return _share_streams(CopyStreams(device).device)


@functools.cache
def _share_streams(device: torch.device) -> CopyStreams:
    return CopyStreams(device)


@dataclass(slots=True)
class PendingBatch:
    """A batch that is being copied, or the error in its place. ``host`` is the memory that the copy reads."""

    batch: Batch = None
    event: Event = None
    host: object = None
    state: Callable[[], State] | None = None
    epoch: int | None = None
    error: Exception | None = None


class BatchCopier:
    """Copies a batch when it is requested: for a device without streams. On the CPU it is not copied."""

    def __init__(self, device: torch.device, transform: Callable[[Batch], Batch] | None) -> None:
        self.depth = 0
        """Batches that are copied ahead of the one in use."""
        self._device, self._transform = device, transform

    def copy(self, host: Batch) -> tuple[Batch, Event, object]:
        """Start the copy. Return the batch, the event after the copy, and the memory to keep until the event."""
        batch = host if self._device.type == "cpu" else to_device(host, self._device, non_blocking=False)
        return (batch if self._transform is None else self._transform(batch)), None, None

    def deliver(self, pending: PendingBatch) -> Batch:
        """Return the batch, safe to use on the current stream."""
        return pending.batch

    def finish(self, dropped: deque[PendingBatch]) -> None:
        """Wait until no copy reads host memory. Clear ``dropped``, the batches that are not returned.

        Nothing is copied after that.
        """
        dropped.clear()


class SideStreamCopier(BatchCopier):
    """Copies batches on a stream of its own. Each rule has its test in ``tests/torch/device/test_prefetch.py``.

    - The side stream waits once for the work that was queued before the iteration, such as a transform's parameters.
      It waits again only for a batch that is on the device already.
    - When a batch is returned, the current stream waits for the batch's event, and each tensor is recorded on it.
    - Host memory is kept until the event is done. It is released while the side stream is current, so that a slot waits
      for copies only, and not for the training step.
    """

    def __init__(
        self, streams: CopyStreams, transform: Callable[[Batch], Batch] | None, depth: int, *, non_blocking: bool
    ) -> None:
        super().__init__(streams.device, transform)
        self.depth, self._streams, self._non_blocking = depth, streams, non_blocking
        self._side = streams.take()
        self._is_taken = True
        self._side.wait_stream(streams.current())
        self._in_use: deque[tuple[Event, object]] = deque()

    def copy(self, host: Batch) -> tuple[Batch, Event, object]:
        """Start the copy on the side stream; return the batch, the event after it, and the memory to keep."""
        streams, side = self._streams, self._side
        sources = list(iterate_tensors(host))  # an object whose `to` works in place drops them too early
        resident = [tensor for tensor in sources if streams.is_resident(tensor)]
        if resident:
            side.wait_stream(streams.current())
        try:
            with streams.on(side):
                batch = to_device(host, streams.device, non_blocking=self._non_blocking)
                if self._transform is not None:
                    batch = self._transform(batch)
                event = side.record_event()
        except BaseException:
            side.synchronize()  # the copy reads memory that is released next
            raise
        for tensor in resident:
            streams.record(tensor, side)
        return batch, event, (host, sources)

    def deliver(self, pending: PendingBatch) -> Batch:
        """Have the current stream wait for the copy, and return the batch."""
        current = self._streams.current()
        current.wait_event(pending.event)
        for tensor in iterate_tensors(pending.batch):
            if self._streams.is_resident(tensor):
                self._streams.record(tensor, current)
        self._in_use.append((pending.event, pending.host))
        pending.host = None
        with self._streams.on(self._side):
            while self._in_use and self._in_use[0][0].query():
                self._in_use.popleft()
        return pending.batch

    def finish(self, dropped: deque[PendingBatch]) -> None:
        """Wait until no copy reads host memory, and clear ``dropped``."""
        with self._streams.on(self._side):
            while self._in_use:
                self._in_use[0][0].synchronize()
                self._in_use.popleft()
            while dropped:
                if dropped[0].event is not None:
                    dropped[0].event.synchronize()
                dropped.popleft()
        if self._is_taken:
            self._is_taken = False
            self._streams.give_back(self._side)
