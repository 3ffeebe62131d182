"""The streams of a device, whichever module of torch has them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

__all__ = ["CopyStreams", "Event", "Stream", "find_streams"]

# Streams and events of torch.cuda, torch.xpu and other modules, which share no type.
Stream = Any
Event = Any


class CopyStreams:
    """The calls to a device's streams that prefetching makes. A test passes a fake."""

    def __init__(self, device: torch.device) -> None:
        self._module: Any = torch.get_device_module(device.type)
        index: int | None = device.index
        self.device = torch.device(device.type, self._module.current_device() if index is None else index)

    def side(self) -> Stream:
        """Create a stream."""
        return self._module.Stream(device=self.device)

    def current(self) -> Stream:
        """The thread's current stream."""
        return self._module.current_stream(self.device)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Make ``stream`` the current one, in a ``with`` statement."""
        return self._module.stream(stream)  # type: ignore[no-any-return]  # torch.cuda, torch.xpu: modules found by name

    def record(self, tensor: torch.Tensor, stream: Stream) -> None:
        """Keep the tensor's memory until ``stream`` has finished its present work."""
        tensor.record_stream(stream)

    def is_resident(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on this device."""
        return tensor.device == self.device


def find_streams(device: torch.device) -> CopyStreams | None:
    """The device's streams; None if torch has none for it, or they bring no gain."""
    if device.type in {"cpu", "meta", "mps"}:
        return None
    module = torch.get_device_module(device.type)
    names = ("Stream", "stream", "current_stream", "current_device")
    return CopyStreams(device) if all(hasattr(module, name) for name in names) else None
