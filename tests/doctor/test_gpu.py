"""DeviceWatch: what a device does, from NVML and torch's counters; both are fakes here."""

from __future__ import annotations

import json
import os
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.doctor.machine.device_watch import DeviceWatch


class FakeNvml(ModuleType):
    """Two devices, of which the second is used; ``refused`` names functions that fail, as on some devices."""

    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES, NVML_CLOCK_SM = 0, 1, 2

    class NVMLError(Exception):
        """As NVML has it."""

    def __init__(self, count: int = 2, refused: tuple[str, ...] = ()) -> None:
        super().__init__("pynvml")
        self.count, self.refused, self.busy = count, refused, [50, 100]
        self.asked: set[str] = set()
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": self._open,
            "nvmlShutdown": self._close,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: f"GPU-{index}",
            "nvmlDeviceGetHandleByUUID": self._find,
            "nvmlDeviceGetName": lambda device: f"Fast {device}".encode(),
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=self.busy[0], memory=20),
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=3000, total=9000),
            "nvmlDeviceGetPcieThroughput": lambda _, which: 500 if which == 1 else 7,
            "nvmlDeviceGetPowerUsage": lambda _: 250_000,
            "nvmlDeviceGetMaxClockInfo": lambda *_: 2000,
            "nvmlDeviceGetClockInfo": lambda *_: 1500,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=p) for p in (1, os.getpid())],
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 64,
            "nvmlClocksThrottleReasonSwPowerCap": 4,
            "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": 128,
            "nvmlClocksThrottleReasonSwThermalSlowdown": 32,
            "nvmlClocksThrottleReasonHwThermalSlowdown": 64,
        }
        if name in self.refused:

            def refuse(*_: object) -> Any:
                raise self.NVMLError(name)

            return refuse
        self.asked.add(name)
        return answers[name]

    def _open(self) -> None:
        self.is_open = True

    def _close(self) -> None:
        self.is_open = False

    def _find(self, unique: str) -> str:
        if unique != "GPU-1":
            raise self.NVMLError(unique)
        return unique


def make_torch(*, initialized: bool = True, uuid: object = "1") -> Any:
    """A torch whose current device is number 1."""

    def refuse() -> int:
        raise AssertionError("asking would initialise CUDA")

    cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        current_device=(lambda: 1) if initialized else refuse,
        get_device_name=lambda index: f"Torch {index}",
        get_device_properties=lambda index: SimpleNamespace(uuid=uuid),
        max_memory_reserved=lambda index: 1234,
    )
    return SimpleNamespace(cuda=cuda)


def watch(nvml: FakeNvml, torch: Any) -> DeviceWatch:
    """A watch in the script's first step: its thread samples in a minute."""
    device = DeviceWatch(nvml=nvml, torch=torch, period_s=60)
    device.note_step()
    return device


def test_values_of_samples_are_averaged() -> None:
    """Means of what varies, the most of what is held; the device is torch's."""
    nvml = FakeNvml()
    device = watch(nvml, make_torch())
    nvml.busy = [100]
    device.stop()

    summary = device.describe(0.25)

    assert json.loads(json.dumps(summary)) == summary
    assert summary == {
        "name": "Fast GPU-1", "source": "nvml", "samples": 2, "busy": 0.75, "memory_busy": 0.2, "memory_bytes": 3000,
        "memory_total_bytes": 9000, "own_memory_bytes": 1234, "copies_bytes_per_s": 500_000,
        "copies_back_bytes_per_s": 7000, "clock": 0.75, "power_w": 250.0, "throttled": {"power": 0.0, "heat": 1.0},
        "other_processes": 1, "launch_bound": 0.25,
    }  # fmt: skip


def test_each_value_may_be_refused() -> None:
    """Devices without a counter, and drivers that do not tell: the value is None, the others stay."""
    refused = ("nvmlDeviceGetPcieThroughput", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMaxClockInfo")
    device = watch(FakeNvml(refused=refused), make_torch())
    device.stop()

    summary = device.describe(None)

    assert summary["copies_bytes_per_s"] is summary["power_w"] is summary["clock"] is None
    assert summary["busy"] == 0.5


def test_cuda_is_not_initialised_by_watching() -> None:
    """Before the script uses the device nothing is watched; then torch's is."""
    initialized = False
    torch = make_torch()
    torch.cuda.is_initialized = lambda: initialized
    nvml = FakeNvml()
    device = watch(nvml, torch)
    before = (device.is_used, device.describe(None), set(nvml.asked))
    initialized = True
    device.note_step()
    device.stop()

    assert before == (False, {}, set())
    assert device.describe(None)["name"] == "Fast GPU-1"


@pytest.mark.parametrize(
    ("visible", "name"), [("", "Fast GPU-1"), ("5,3", "Fast GPU-3"), ("x,GPU-1", "Fast GPU-1"), ("7", "Torch 1")]
)
def test_numbers_of_cuda_count_visible_devices(visible: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch's identifier of the device, the environment says which one its number means."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = watch(FakeNvml(), make_torch(uuid=None))
    device.stop()

    assert device.describe(None)["name"] == name


def test_torch_alone_tells_its_memory() -> None:
    """Without a driver that answers, what torch counts is left."""
    device = watch(FakeNvml(refused=("nvmlInit",)), make_torch())
    device.stop()

    summary = device.describe(None)

    assert (summary["name"], summary["source"], summary["own_memory_bytes"]) == ("Torch 1", "torch", 1234)
    assert summary["busy"] is None


def test_nvml_is_closed_at_the_end_and_not_by_a_pause() -> None:
    """Pausing ends the thread; stopping closes the library, and what was seen stays."""
    nvml = FakeNvml()
    device = watch(nvml, make_torch())
    device.pause()
    paused = nvml.is_open
    device.resume()
    device.stop()
    device.stop()
    device.resume()

    assert paused
    assert not nvml.is_open
    assert device.describe(None)["samples"] == 4
