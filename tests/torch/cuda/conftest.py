"""The kernels, compiled as C++, in place of a device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.torch.cuda import runtime
from penstock.torch.device.copying import CopyStreams
from tests.torch.cuda.host_kernels import HostKernels, compile_kernels, has_compiler


class HostStream:
    """A stream whose work is done when it is queued."""

    def wait_stream(self, other: HostStream) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing is under way."""


class HostStreams(CopyStreams):
    """The processor as a device with streams; each thread has a current one."""

    def __init__(self) -> None:
        self.device, self._idle = torch.device("cpu"), []
        self.made: list[HostStream] = []
        self._main = self.make()
        self._local = threading.local()

    def make(self) -> HostStream:
        """A stream; a subclass makes its own."""
        return HostStream()

    def side(self) -> HostStream:
        """Create a stream."""
        self.made.append(self.make())
        return self.made[-1]

    def current(self) -> HostStream:
        """The thread's current stream."""
        stream: HostStream = getattr(self._local, "stream", self._main)
        return stream

    @contextlib.contextmanager
    def on(self, stream: HostStream) -> Iterator[None]:
        """Make ``stream`` the current one."""
        before, self._local.stream = self.current(), stream
        try:
            yield
        finally:
            self._local.stream = before

    def record(self, tensor: Any, stream: HostStream) -> None:
        """Nothing is under way."""


class HostRuntime(runtime.CudaRuntime):
    """The processor as a device: kernels run when they are launched."""

    kernels: HostKernels

    def __init__(self, kernels: HostKernels, streams: HostStreams | None = None) -> None:
        super().__init__(torch.device("cpu"), kernels, streams or HostStreams())
        self.received = 0

    def is_launching(self) -> bool:
        """Whether the thread's current stream is the one that decodes."""
        return self._streams.current() is self._decode_stream

    def receive(self, batch: Any) -> None:
        """Count batches."""
        super().receive(batch)
        self.received += 1


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels as a shared library."""
    if not has_compiler():
        pytest.skip("there is no compiler for C++ on this machine")
    return compile_kernels(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def host_kernels(library: Path) -> HostKernels:
    """The kernels."""
    return HostKernels(library)


@pytest.fixture
def host_runtime(host_kernels: HostKernels, monkeypatch: pytest.MonkeyPatch) -> HostRuntime:
    """``decode="cuda"`` runs the kernels on the processor."""
    made = HostRuntime(host_kernels)
    monkeypatch.setattr(runtime, "open_runtime", lambda _device: made)
    return made
