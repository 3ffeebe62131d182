"""The kernels, compiled as C++, in place of a device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.torch.cuda import runtime
from tests.torch.cuda.host_kernels import HostKernels, compile_kernels, has_compiler


class HostRuntime:
    """The processor as a device: kernels run when they are launched."""

    device = torch.device("cpu")

    def __init__(self, kernels: HostKernels) -> None:
        self.kernels = kernels
        self.received = 0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """There are no streams."""
        yield

    def receive(self, batch: Any) -> None:  # the interface
        """Count batches."""
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
