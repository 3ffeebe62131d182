"""What tests of a device share: the mark of those that need one, a fake device with streams, and a loader for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch

from penstock.torch.device.copying import CopyStreams
from penstock.torch.device.prefetching import Prefetcher

META: Final = torch.device("meta")


def needs_cuda(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs on a device: ``pytest -m cuda`` chooses these. Without a device it is skipped."""
    skips = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    marked: Callable[..., None] = pytest.mark.cuda(skips(test))
    return marked


class FakeEvent:
    """An event that is done when the fake device has reached it."""

    def __init__(self, device: FakeStreams) -> None:
        self._device = device
        device.events.append(self)
        self.number = len(device.events)

    def query(self) -> bool:
        """Whether the device has reached the event."""
        return self.number <= self._device.done

    def synchronize(self) -> None:
        """Let the device reach the event."""
        self._device.log.append(("synchronize", self.number))
        self._device.done = max(self._device.done, self.number)


class FakeStream:
    """A stream that records calls."""

    def __init__(self, device: FakeStreams, name: str) -> None:
        self._device, self.name = device, name

    def wait_stream(self, other: FakeStream) -> None:
        """Record the call."""
        self._device.log.append((self.name, "waits for stream", other.name))

    def wait_event(self, event: FakeEvent) -> None:
        """Record the call."""
        self._device.log.append((self.name, "waits for event", event.number))

    def record_event(self) -> FakeEvent:
        """Record the call."""
        event = FakeEvent(self._device)
        self._device.log.append((self.name, "records event", event.number))
        return event

    def synchronize(self) -> None:
        """Let the device finish all work."""
        self._device.log.append(("synchronize", self.name))
        self._device.done = len(self._device.events)


class FakeStreams(CopyStreams):
    """A fake device with streams: its memory is meta tensors, and it has finished events up to ``done``."""

    device = META

    def __init__(self) -> None:
        self._idle = []
        self.log: list[tuple[Any, ...]] = []
        self.events: list[FakeEvent] = []
        self.done = 0
        self.main = self.active = FakeStream(self, "main")

    def side(self) -> FakeStream:
        """A new stream."""
        return FakeStream(self, "side")

    def current(self) -> FakeStream:
        """The active stream."""
        return self.active

    @contextlib.contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        """Make a stream the active one."""
        before, self.active = self.active, stream
        try:
            yield
        finally:
            self.active = before

    def record(self, tensor: Any, stream: FakeStream) -> None:
        """Record the call."""
        assert tensor.device == META
        self.log.append((stream.name, "records", tuple(tensor.shape)))

    def is_resident(self, tensor: Any) -> bool:
        """Whether a tensor is on this device."""
        return bool(tensor.device == META)


class Source:
    """A loader with a state that counts drawn batches."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.drawn, self.epoch, self.closed = batches, 0, 0, 0

    def __iter__(self) -> Iterator[Any]:
        try:
            while self.drawn < len(self.batches):
                self.drawn += 1
                batch = self.batches[self.drawn - 1]
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            self.closed += 1

    def __len__(self) -> int:
        return len(self.batches)

    def state_dict(self) -> dict[str, Any]:
        """The number of drawn batches and the epoch."""
        return {"drawn": self.drawn, "epoch": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        """Continue from a state."""
        self.drawn, self.epoch = state["drawn"], state["epoch"]

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch."""
        self.drawn, self.epoch = 0, epoch

    def stats(self) -> str:
        """Some statistics."""
        return "stats"


def on_streams(loader: Any, **kwargs: Any) -> tuple[FakeStreams, Prefetcher]:
    """A prefetcher on the fake device."""
    streams = FakeStreams()
    return streams, Prefetcher(loader, META, streams=streams, **kwargs)


def numbers(count: int) -> list[Any]:
    """Batches of different shapes."""
    return [torch.zeros(n + 1) for n in range(count)]
