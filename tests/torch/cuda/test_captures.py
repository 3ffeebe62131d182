"""A CUDA graph is captured in one thread while others decode, or give back page-locked memory."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import penstock as ps
from penstock import transforms as T
from penstock.datasets import StoreDataset
from penstock.errors import DeviceError
from penstock.torch import DataLoader
from penstock.torch.cuda import runtime
from penstock.torch.device import capture_mode, pinning
from penstock.torch.device.capture_mode import beside_captures
from penstock.workers.slots import SlotPool
from tests.photographs import write_photographs
from tests.torch.cuda.conftest import HostRuntime, HostStream, HostStreams
from tests.torch.cuda.devices import CapturingDriver
from tests.torch.cuda.host_kernels import HostKernels

HANG_S = 120
ANOTHER_THREAD = -1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> CapturingDriver:
    """CUDA's driver, with its rule; the modes of threads are changed by its function."""
    made = CapturingDriver()
    monkeypatch.setattr(capture_mode, "_find_exchange", lambda: made.exchange)
    return made


class Streams(HostStreams):
    """Streams whose creation and synchronization a capture may forbid."""

    def __init__(self, driver: CapturingDriver) -> None:
        self._driver = driver
        super().__init__()

    def make(self) -> HostStream:
        """A stream that makes the driver's calls."""
        driver = self._driver
        driver.call("cudaStreamCreate")

        class Stream(HostStream):
            def synchronize(self) -> None:
                driver.call("cudaStreamSynchronize")

        return Stream()


@pytest.fixture
def loader(
    tmp_path: Path, host_kernels: HostKernels, driver: CapturingDriver, monkeypatch: pytest.MonkeyPatch
) -> DataLoader[Any]:
    """A loader with two workers, on a device whose allocations a capture may forbid."""
    empty = torch.empty
    made = HostRuntime(host_kernels, Streams(driver))
    monkeypatch.setattr(runtime, "open_runtime", lambda _device: made)

    def allocate(*arguments: Any, **options: Any) -> torch.Tensor:
        if "device" in options:
            driver.call("cudaMalloc")
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", allocate)
    ops = [T.Decode(), T.RandomResizedCrop(40), T.ToLayout("CHW")]
    store = ps.open(write_photographs(tmp_path / "folder", per_class=3))
    data = StoreDataset(store, ("image", "label"), T.Pipeline(ops))
    return DataLoader(data, 4, num_workers=2, decode="cuda")


def test_a_capture_beside_a_loader_stays_valid(loader: DataLoader[Any], driver: CapturingDriver) -> None:
    """Workers allocate, make streams and wait while another thread captures, in two epochs: CUDA refuses nothing."""
    driver.capturing = ANOTHER_THREAD
    batches = [batch for _ in range(2) for batch in loader]

    assert not driver.refused
    assert {"cudaMalloc", "cudaStreamCreate", "cudaStreamSynchronize"} <= set(driver.unsafe_calls)
    assert len(batches) == 2 * len(loader)
    assert driver.mode() == 0, "the mode of the user's thread is the user's"


def test_otherwise_the_capture_would_be_invalid(
    loader: DataLoader[Any], driver: CapturingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake device has CUDA's rule: without the workers' mode, their calls are refused."""
    monkeypatch.setattr(runtime, "beside_captures", contextlib.nullcontext)
    driver.capturing = ANOTHER_THREAD
    with pytest.raises(DeviceError, match="not permitted when stream is capturing"):
        list(loader)

    assert driver.refused


# page-locked memory


class Cuda(pinning.CudaCalls):
    """The calls for page-locked memory, some of which a capture forbids."""

    def __init__(self, driver: CapturingDriver) -> None:
        self._driver = driver

    def device(self) -> int:
        """The first one."""
        return 0

    def is_capturing(self) -> bool:
        """As torch says it: of the calling thread's current stream."""
        return self._driver.capturing == threading.get_ident()

    def lock(self, device: int, address: int, nbytes: int) -> int:
        """Nothing is locked."""
        del device, address, nbytes
        return 0

    def unlock(self, device: int, address: int) -> int:
        """Nothing is locked."""
        del device, address
        return 0

    def raise_for(self, error: int) -> None:
        """There is no error."""
        assert not error

    def record_events(self) -> list[Any]:
        """One event."""
        driver = self._driver

        class Event:
            def query(self) -> bool:
                driver.call("cudaEventQuery")
                return True

        return [Event()]


def run_in_thread(call: Callable[[], object]) -> None:
    """Call a function in another thread, to its end."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive()


def test_slots_that_another_thread_gives_back_leave_a_capture_valid(driver: CapturingDriver) -> None:
    """A worker's thread asks the device whether a slot is read still, also during a capture."""
    pool = SlotPool(page_lock=pinning.CudaPageLock(cuda=Cuda(driver)))
    slots = [pool.take(100) for _ in range(5)]
    driver.capturing = threading.get_ident()
    run_in_thread(slots.clear)

    assert driver.unsafe_calls.count("cudaEventQuery") >= 5
    assert not driver.refused
    assert pool.free == 3, "the last two wait for later ones"


def test_batches_that_another_thread_pins_leave_a_capture_valid(
    driver: CapturingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch allocates page-locked memory, and asks for events of what was freed."""
    monkeypatch.setattr(pinning, "pin_memory", lambda _batch: driver.call("cudaHostAlloc"))
    driver.capturing = threading.get_ident()
    run_in_thread(lambda: pinning.pin_batch(1))

    assert driver.unsafe_calls == ["cudaHostAlloc"]
    assert not driver.refused


# the driver's function


@pytest.fixture
def library_of_driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library with the function, whose result a test chooses."""

    class Library:
        result, mode = 0, 0

        def cuThreadExchangeStreamCaptureMode(self, pointer: Any) -> int:  # noqa: N802  # NVIDIA's name
            if self.result == 0:
                value = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))
                self.mode, value[0] = value[0], self.mode
            return self.result

    made = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: made)
    capture_mode._find_exchange.cache_clear()
    yield made
    capture_mode._find_exchange.cache_clear()


@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_threads_mode_is_put_back(library_of_driver: Any, own: int) -> None:
    """Also after an error, and when contexts are nested: a thread may have a mode of its own."""
    library_of_driver.mode = own
    with contextlib.suppress(KeyError), beside_captures():
        with beside_captures():
            assert library_of_driver.mode == 2
        assert library_of_driver.mode == 2
        raise KeyError

    assert library_of_driver.mode == own


def test_a_driver_that_is_not_initialised_has_the_default_mode(library_of_driver: Any) -> None:
    """CUDA may be initialised inside: the mode at the end is CUDA's default."""
    library_of_driver.result = 3
    with beside_captures():
        library_of_driver.result = 0

    assert library_of_driver.mode == 0


def test_without_a_driver_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a device."""

    def refuse(_name: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    capture_mode._find_exchange.cache_clear()
    with beside_captures():
        assert capture_mode._find_exchange()(5) == 5
    capture_mode._find_exchange.cache_clear()
