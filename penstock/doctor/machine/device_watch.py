"""What a device does while a script is watched: busy, memory, copies over PCIe, from the moment the script uses it.

::

    note_step()    each step: has the script initialised CUDA? ── yes ──> a thread samples
                       NVML (pynvml of nvidia-ml-py, if it is installed)    busy, memory, power, clock, throttling, PCIe
                       torch's counters                                     memory
    describe()     a summary, and how many steps are bound by launches (step_events.py)

One belongs to each :class:`~penstock.doctor.watching.watcher.Watcher`. Where a script uses no CUDA, nothing is started.
Of several devices that one is watched that the script uses: torch's current device in its first step on a device.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Final

from penstock.doctor.machine.sampling_thread import SamplingThread
from penstock.doctor.machine.step_events import find_cuda

__all__ = ["DeviceWatch"]

_THROTTLES: Final = {
    "power": ("nvmlClocksThrottleReasonSwPowerCap", "nvmlClocksThrottleReasonHwPowerBrakeSlowdown"),
    "heat": ("nvmlClocksThrottleReasonSwThermalSlowdown", "nvmlClocksThrottleReasonHwThermalSlowdown"),
}


class DeviceWatch:
    """Samples the device that a script uses, once it has one.

    Parameters
    ----------
    period_s : float
        Seconds between samples, at least; the samples use at most 0.1 % of a core.
    nvml : module, optional
        Takes the place of ``pynvml``; for tests.
    torch : module, optional
        Takes the place of ``torch``; by default the module that the script has imported.

    Attributes
    ----------
    is_used : bool
        Whether the script has begun to use CUDA, as far as :meth:`note_step` has seen.
    """

    def __init__(
        self, *, period_s: float = 0.25, nvml: ModuleType | None = None, torch: ModuleType | None = None
    ) -> None:
        self.is_used = False
        self._nvml, self._torch = nvml, torch
        self._device: object = None  # NVML's
        self._name, self._values = "", dict[str, list[float]]()
        self._thread = SamplingThread(self.sample, period_s=period_s, most_share=0.001, name="penstock-device")
        self._is_ended = False

    def note_step(self) -> None:
        """A step begins. Starts the thread where the script has begun to use CUDA."""
        if self.is_used or self._is_ended:
            return
        cuda = find_cuda(self._torch)
        if cuda is not None:
            self.is_used, self._nvml = True, _open_nvml(self._nvml)
            if self._nvml is not None:
                self._device = _find_device(self._nvml, cuda)
            self._thread.start()

    def pause(self) -> None:
        """End the thread: a process that forks should have none."""
        self._thread.stop()

    def resume(self) -> None:
        """Watch the device again after :meth:`pause`."""
        if self.is_used and not self._is_ended:
            self._thread.start()

    def stop(self) -> None:
        """Take the last sample, and close NVML. Idempotent."""
        self._thread.stop()
        if self.is_used and not self._is_ended and self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._is_ended = True

    def sample(self) -> None:
        """Look at the device once. Called by the thread."""
        cuda, nvml, device = find_cuda(self._torch), self._nvml, self._device
        if cuda is not None:
            index = int(cuda.current_device())
            self._name = self._name or str(cuda.get_device_name(index))
            self._add("own_memory", lambda: cuda.max_memory_reserved(index))
        if nvml is None or device is None:
            return
        name = nvml.nvmlDeviceGetName(device)
        self._name = name.decode() if isinstance(name, bytes) else str(name)
        self._add("busy", lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100)
        self._add("memory_busy", lambda: nvml.nvmlDeviceGetUtilizationRates(device).memory / 100)
        self._add("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(device).used)
        self._add("memory_total", lambda: nvml.nvmlDeviceGetMemoryInfo(device).total)
        # NVML counts what the device receives as "RX", in kilobytes per second.
        self._add("to_device", lambda: 1000 * nvml.nvmlDeviceGetPcieThroughput(device, nvml.NVML_PCIE_UTIL_RX_BYTES))
        self._add("from_device", lambda: 1000 * nvml.nvmlDeviceGetPcieThroughput(device, nvml.NVML_PCIE_UTIL_TX_BYTES))
        self._add("power", lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000)
        self._add("clock", lambda: _read_clock(nvml, device))
        self._add("others", lambda: _count_others(nvml, device))
        for cause in _THROTTLES:
            self._add(f"throttled.{cause}", lambda cause=cause: _is_throttled(nvml, device, cause))  # type: ignore[misc]  # the default binds the loop's name

    def describe(self, launch_bound: float | None) -> dict[str, object]:
        """Make :attr:`~penstock.doctor.watching.recording.Recording.device`; empty if the script uses no device.

        Parameters
        ----------
        launch_bound : float, optional
            Of :meth:`~penstock.doctor.machine.step_events.StepEvents.launch_bound`.

        Returns
        -------
        dict
            ``name``, ``source`` ("nvml" or "torch"), ``samples``; ``busy`` (0..1: part of the time in which a kernel
            ran) and ``memory_busy`` (in which device memory was read or written); ``memory_bytes``, the most in use, of
            ``memory_total_bytes``; ``own_memory_bytes``, the most that torch held for the script;
            ``copies_bytes_per_s``, mean over PCIe to the device; ``copies_back_bytes_per_s``; ``clock``, the mean clock
            as a part of the highest; ``power_w``; ``throttled``, parts of the time by cause; ``other_processes``, the
            most on the device; ``launch_bound``. None for what is unknown.
        """
        values = self._values
        if not values:
            return {} if launch_bound is None else {"launch_bound": round(launch_bound, 4)}
        means = {name: sum(each) / len(each) for name, each in values.items()}

        def mean(name: str) -> float | None:
            return round(means[name], 4) if name in means else None

        def most(name: str) -> int | None:
            return round(max(values[name])) if name in values else None

        return {
            "name": self._name,
            "source": "torch" if self._device is None else "nvml",
            "samples": max(map(len, values.values())),
            "busy": mean("busy"),
            "memory_busy": mean("memory_busy"),
            "memory_bytes": most("memory"),
            "memory_total_bytes": most("memory_total"),
            "own_memory_bytes": most("own_memory"),
            "copies_bytes_per_s": mean("to_device"),
            "copies_back_bytes_per_s": mean("from_device"),
            "clock": mean("clock"),
            "power_w": mean("power"),
            "throttled": {cause: mean(f"throttled.{cause}") for cause in _THROTTLES if f"throttled.{cause}" in means},
            "other_processes": most("others"),
            "launch_bound": None if launch_bound is None else round(launch_bound, 4),
        }

    def _add(self, name: str, read: Callable[[], float]) -> None:
        """Read one value; one that cannot be read is left out."""
        try:
            value = float(read())
        except Exception:  # noqa: BLE001  # NVML refuses single values on some devices, each with another error
            return
        self._values.setdefault(name, []).append(value)


def _open_nvml(nvml: ModuleType | None) -> ModuleType | None:
    """NVML, ready to be asked; None if it is not there."""
    try:
        nvml = importlib.import_module("pynvml") if nvml is None else nvml
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or another version of it
        return None
    return nvml


def _find_device(nvml: ModuleType, cuda: ModuleType) -> object:
    """NVML's device that is torch's current one; None if it is not found.

    CUDA's numbers count the visible devices; NVML's count all.
    """
    index = int(cuda.current_device())
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[index] if index < len(visible) else str(index) if not visible else ""
    unique = getattr(cuda.get_device_properties(index), "uuid", None)
    spellings = [] if unique is None else [f"GPU-{unique}", f"MIG-{unique}", str(unique)]
    for spelling in [*spellings, *([] if name.isdecimal() else [name])]:
        with contextlib.suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(spelling)
    with contextlib.suppress(nvml.NVMLError):
        return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else None
    return None


def _read_clock(nvml: ModuleType, device: object) -> float:
    highest = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
    return float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM) / highest)


def _count_others(nvml: ModuleType, device: object) -> int:
    own = os.getpid()
    return sum(process.pid != own for process in nvml.nvmlDeviceGetComputeRunningProcesses(device))


def _is_throttled(nvml: ModuleType, device: object, cause: str) -> bool:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
    return any(reasons & getattr(nvml, name) for name in _THROTTLES[cause])
