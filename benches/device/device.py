"""The device of a stage: CUDA's, or in a rehearsal the processor, for which the kernels are compiled as C++.

Both have the same methods, so that a stage has one way through its code. In a rehearsal, ``decode="cuda"`` of a loader
uses the kernels on the processor, as in ``tests/torch/cuda``.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from benches.device.program import Skipped
from penstock.torch.cuda import runtime
from penstock.torch.cuda.augmenting import Kernels

__all__ = ["CudaDevice", "Device", "HostDevice", "TimedKernels", "TimedRuntime", "open_device"]


class Mark(Protocol):
    """A point in the work of a device."""

    def elapsed_ms(self, later: Any) -> float:
        """Milliseconds from this point to a later one, when both have been reached."""
        ...


class Device(Protocol):
    """What stages need of a device."""

    device: torch.device
    kernels: Kernels

    def mark(self) -> Mark:
        """A point behind all work that is queued on the current stream."""
        ...

    def synchronize(self) -> None:
        """Wait for all work."""
        ...

    def hold(self) -> None:
        """Keep the device busy for some 50 ms, so that what is queued next runs without gaps."""
        ...

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Host memory that the device copies from, page-locked if it has such memory."""
        ...


class CudaMark:
    """An event."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's is untyped
        self._event.record()

    def elapsed_ms(self, later: CudaMark) -> float:
        """See :class:`Mark`."""
        return float(self._event.elapsed_time(later._event))  # of this class


class CudaDevice:
    """The first CUDA device."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise Skipped("torch finds no CUDA device")
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.kernels: Kernels = runtime.open_runtime(self.device).kernels

    def mark(self) -> CudaMark:
        """See :class:`Device`."""
        return CudaMark()

    def synchronize(self) -> None:
        """See :class:`Device`."""
        torch.cuda.synchronize(self.device)

    def hold(self) -> None:
        """See :class:`Device`."""
        torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]  # noqa: SLF001  # cycles, of nearly 2 GHz; torch's own tests use it

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """See :class:`Device`."""
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        locked = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy()
        made: NDArray[Any] = locked.view(dtype).reshape(shape)
        return made


class HostMark:
    """A time."""

    def __init__(self) -> None:
        self._time = time.perf_counter()

    def elapsed_ms(self, later: HostMark) -> float:
        """See :class:`Mark`."""
        return (later._time - self._time) * 1e3  # of this class


class HostDevice:
    """The processor in place of a device.

    Parameters
    ----------
    kernels : Kernels
        Compiled for it.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.device, self.kernels = torch.device("cpu"), kernels

    def mark(self) -> HostMark:
        """See :class:`Device`."""
        return HostMark()

    def synchronize(self) -> None:
        """See :class:`Device`."""

    def hold(self) -> None:
        """See :class:`Device`."""

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """See :class:`Device`."""
        return np.empty(shape, dtype)


def open_device(*, rehearse: bool) -> Device:
    """The device of this machine.

    Raises
    ------
    Skipped
        If there is none; in a rehearsal, if there is no compiler.
    """
    return _open_host() if rehearse else CudaDevice()


def _open_host() -> HostDevice:
    """Compile the kernels, once for all stages, and let loaders of this process use them."""
    from tests.torch.cuda.conftest import HostRuntime
    from tests.torch.cuda.host_kernels import HostKernels, compile_kernels, has_compiler

    folder = Path(os.environ.get("REHEARSAL_KERNELS") or tempfile.mkdtemp(prefix="kernels-"))
    library = folder / "kernels.so"
    if not library.exists():
        if not has_compiler():
            raise Skipped("a rehearsal needs a compiler for C++, and there is none")
        compile_kernels(Path(tempfile.mkdtemp(dir=folder))).replace(library)  # candidates start at once
    kernels = HostKernels(library)
    made = HostRuntime(kernels)
    runtime.open_runtime = lambda _device: made  # type: ignore[assignment,return-value]  # a fake
    return HostDevice(kernels)


class TimedKernels:
    """Kernels, and how long each launch took.

    Attributes
    ----------
    threads : dict
        Threads of a block, by kernel.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._marks: list[tuple[str, Mark, Mark]] = []
        self.threads: dict[str, int] = {}
        self.blocks: dict[str, int] = {}

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Queue a kernel between two marks."""
        self.threads[name] = threads
        self.blocks[name] = max(columns * rows, self.blocks.get(name, 0))
        before = self._device.mark()
        self._device.kernels.launch(name, argument, columns, rows, threads)
        self._marks.append((name, before, self._device.mark()))

    def take_ms(self) -> dict[str, float]:
        """Milliseconds of each kernel since the last call, when the device has done all work."""
        self._device.synchronize()
        sums: dict[str, float] = {}
        for name, before, after in self._marks:
            sums[name] = sums.get(name, 0.0) + before.elapsed_ms(after)
        self._marks.clear()
        return sums


class TimedRuntime:
    """A loader's runtime whose kernels are timed."""

    def __init__(self, device: Device) -> None:
        self._runtime = runtime.open_runtime(device.device)
        self.kernels = TimedKernels(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)
