"""DeviceSampler: what a device does, from NVML or from torch's counters; both are fakes here."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.doctor.machine.gpu import DeviceSampler


class FakeNvml:
    """Two devices, of which the second is used; ``refused`` names functions that fail, as on some devices."""

    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES, NVML_CLOCK_SM = 0, 1, 2

    class NVMLError(Exception):
        """As NVML has it."""

    def __init__(self, count: int = 2, refused: tuple[str, ...] = ()) -> None:
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


def test_values_of_samples_are_averaged() -> None:
    """Means of what varies, the most of what is held; the device is torch's."""
    nvml = FakeNvml()
    sampler = DeviceSampler(nvml=nvml, torch=make_torch())
    sampler.sample()
    nvml.busy = [100]
    sampler.sample()

    summary = sampler.summary()

    assert json.loads(json.dumps(summary)) == summary
    assert summary == {
        "name": "Fast GPU-1", "source": "nvml", "samples": 2, "busy": 0.75, "memory_busy": 0.2, "memory_bytes": 3000,
        "memory_total_bytes": 9000, "own_memory_bytes": 1234, "copies_bytes_per_s": 500_000,
        "copies_back_bytes_per_s": 7000, "clock": 0.75, "power_w": 250.0, "throttled": {"power": 0.0, "heat": 1.0},
        "other_processes": 1,
    }  # fmt: skip


def test_each_value_may_be_refused() -> None:
    """Devices without a counter, and drivers that do not tell: the value is None, the others stay."""
    nvml = FakeNvml(refused=("nvmlDeviceGetPcieThroughput", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMaxClockInfo"))
    sampler = DeviceSampler(nvml=nvml, torch=make_torch())
    sampler.sample()

    summary = sampler.summary()

    assert summary["copies_bytes_per_s"] is summary["power_w"] is summary["clock"] is None
    assert summary["busy"] == 0.5


def test_cuda_is_not_initialised_by_watching() -> None:
    """Before the script uses the device, of several none is watched; a single one is."""
    torch = make_torch(initialized=False)
    several, single = (DeviceSampler(nvml=FakeNvml(count), torch=torch) for count in (2, 1))
    several.sample()
    single.sample()

    assert several.summary() == {}
    assert single.summary()["name"] == "Fast GPU-0"


def test_the_device_is_chosen_when_the_script_has_one() -> None:
    """A sampler that has begun before the script goes over to torch's device."""
    state = {"initialized": False}
    torch = make_torch()
    torch.cuda.is_initialized = lambda: state["initialized"]
    sampler = DeviceSampler(nvml=FakeNvml(count=1), torch=torch)
    sampler.sample()
    first = sampler.summary()["name"]
    state["initialized"] = True
    sampler.sample()

    assert (first, sampler.summary()["name"]) == ("Fast GPU-0", "Fast GPU-1")


@pytest.mark.parametrize(("visible", "name"), [("", "Fast GPU-1"), ("5,3", "Fast GPU-3"), ("x,GPU-1", "Fast GPU-1")])
def test_numbers_of_cuda_count_visible_devices(visible: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch's identifier of the device, the environment says which one its number means."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sampler = DeviceSampler(nvml=FakeNvml(), torch=make_torch(uuid=None))
    sampler.sample()

    assert sampler.summary()["name"] == name


def test_torch_alone_tells_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver that answers, what torch counts is left."""
    sampler = DeviceSampler(nvml=FakeNvml(refused=("nvmlInit",)), torch=make_torch())
    sampler.sample()

    summary = sampler.summary()

    assert (summary["name"], summary["source"], summary["own_memory_bytes"]) == ("Torch 1", "torch", 1234)
    assert summary["busy"] is None


def test_no_device_is_no_summary() -> None:
    """A script on a machine without one."""
    with DeviceSampler(nvml=FakeNvml(refused=("nvmlInit",)), torch=make_torch(initialized=False)) as sampler:
        sampler.sample()

    assert sampler.summary() == {}


def test_nvml_is_closed_at_the_end_and_not_by_a_pause() -> None:
    """Pausing ends the thread; stopping closes the library, and what was seen stays."""
    nvml = FakeNvml()
    sampler = DeviceSampler(nvml=nvml, torch=make_torch(), period_s=100).start()
    sampler.pause()
    paused = nvml.is_open
    sampler.start()
    sampler.stop()
    sampler.stop()

    assert paused
    assert not nvml.is_open
    assert sampler.summary()["samples"] == 4
