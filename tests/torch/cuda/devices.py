"""Fakes of a device: what its allocator holds, kernels that compute nothing, a driver, and the rules of a capture."""

from __future__ import annotations

import ctypes
import enum
import threading
import weakref
from typing import Any

import pytest
import torch

from tests.torch.cuda.conftest import HostStream, HostStreams

_empty = torch.empty


class CountedMemory:
    """Device memory as torch's allocator holds it: what a stream has freed is used again on that stream alone.

    Parameters
    ----------
    streams : HostStreams
        Tensors belong to the current one.
    """

    def __init__(self, streams: HostStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        self._streams = streams
        self._free: dict[HostStream, list[int]] = {}
        self.held: dict[HostStream, int] = {}
        """Bytes that were obtained from the device, by stream."""
        monkeypatch.setattr(torch, "empty", self._allocate)

    def _allocate(self, *arguments: Any, **options: Any) -> torch.Tensor:
        made = _empty(*arguments, **options)
        if "device" not in options:
            return made
        stream, nbytes = self._streams.current(), made.nbytes
        free = self._free.setdefault(stream, [])
        found = min((block for block in free if block >= nbytes), default=None)
        if found is None:
            found = nbytes
            self.held[stream] = self.held.get(stream, 0) + nbytes
        else:
            free.remove(found)
        weakref.finalize(made, free.append, found)
        return made


class NoKernels:
    """Kernels that compute nothing: statuses stay 0.

    Parameters
    ----------
    streams : HostStreams
        Their current stream is recorded with each launch.
    """

    def __init__(self, streams: HostStreams) -> None:
        self._streams = streams
        self.launched: list[tuple[str, HostStream]] = []

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Record the launch."""
        del argument, columns, rows, threads
        self.launched.append((name, self._streams.current()))


class Result(enum.IntEnum):
    """Some codes of CUDA's driver."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Driver:
    """The calls of ``cuda.bindings.driver`` that load and launch kernels, and the results that a test chooses."""

    def __init__(self) -> None:
        self.loads = self.launches = Result.CUDA_SUCCESS
        self.log: list[tuple[Any, ...]] = []

    def cuDeviceGet(self, index: int) -> tuple[Result, str]:  # noqa: N802  # NVIDIA's name, as those below
        """A device."""
        return Result.CUDA_SUCCESS, f"device {index}"

    def cuDevicePrimaryCtxRetain(self, device: str) -> tuple[Result, str]:  # noqa: N802
        """Its context."""
        return Result.CUDA_SUCCESS, f"context of {device}"

    def cuCtxPushCurrent(self, context: str) -> tuple[Result]:  # noqa: N802
        """Record the call."""
        self.log.append(("push", context))
        return (Result.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Result, str]:  # noqa: N802
        """Record the call."""
        self.log.append(("pop",))
        return Result.CUDA_SUCCESS, ""

    def cuModuleLoadData(self, code: bytes) -> tuple[Result, str | None]:  # noqa: N802
        """Record the call."""
        self.log.append(("load", code))
        return self.loads, None if self.loads else "module"

    def cuDriverGetVersion(self) -> tuple[Result, int]:  # noqa: N802
        """As a driver for CUDA 12.4 says it."""
        return Result.CUDA_SUCCESS, 12040

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[Result, str]:  # noqa: N802
        """A kernel."""
        return Result.CUDA_SUCCESS, f"{name.decode()} of {module}"

    def cuLaunchKernel(self, function: str, *arguments: object) -> tuple[Result]:  # noqa: N802
        """Record the call."""
        self.log.append(("launch", function, arguments[:6]))
        return (self.launches,)


class CapturingDriver:
    """CUDA's rule for captures: in the mode "global" of a capture, calls that are unsafe invalidate it, unless the
    thread that makes them has the mode "relaxed" (2).
    """

    def __init__(self) -> None:
        self._modes: dict[int, int] = {}
        self.capturing: int | None = None
        """The thread that captures."""
        self.unsafe_calls: list[str] = []
        self.refused: list[str] = []

    def exchange(self, mode: int) -> int:
        """cuThreadExchangeStreamCaptureMode"""
        thread = threading.get_ident()
        before = self._modes.get(thread, 0)
        self._modes[thread] = mode
        return before

    def mode(self) -> int:
        """Of the calling thread."""
        return self._modes.get(threading.get_ident(), 0)

    def call(self, name: str) -> None:
        """Make a call that a graph could not repeat."""
        self.unsafe_calls.append(name)
        if self.capturing is not None and self.mode() != 2:
            self.refused.append(name)
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
