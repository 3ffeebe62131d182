"""What the device does while a script is watched: busy, memory, copies over PCIe.

::

    NVML (pynvml of nvidia-ml-py, if it is installed)     busy, memory, power, clock, throttling, PCIe, other processes
    torch's counters (if torch and CUDA are in use)       memory; busy where torch can tell
    neither                                               nothing: ``summary()`` is empty

Nothing is imported that the script has not imported, but for NVML's small module, and CUDA is never initialised here: a
script that forks its workers after that would break. On machines with several devices that one is watched that the
script uses: torch's current device, once it has one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.doctor.machine.cuda_in_use import find_cuda
from penstock.doctor.machine.sampling_thread import SamplingThread

__all__ = ["DeviceSampler"]

_THROTTLES: Final = {
    "power": ("nvmlClocksThrottleReasonSwPowerCap", "nvmlClocksThrottleReasonHwPowerBrakeSlowdown"),
    "heat": ("nvmlClocksThrottleReasonSwThermalSlowdown", "nvmlClocksThrottleReasonHwThermalSlowdown"),
}


@dataclass(slots=True)
class _Seen:
    """Values of all samples, by their names; a value that cannot be read is left out."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, read: Callable[[], float]) -> None:
        try:
            value = read()
        except Exception:  # noqa: BLE001  # NVML refuses single values on some devices, each with another error
            return
        self.values.setdefault(name, []).append(float(value))

    def mean(self, name: str) -> float | None:
        values = self.values.get(name)
        return sum(values) / len(values) if values else None

    def highest(self, name: str) -> float | None:
        return max(self.values.get(name, []), default=None)


class DeviceSampler:
    """Samples the device that a script uses; a context manager.

    Parameters
    ----------
    period_s : float
        Seconds between samples, at least; the samples use at most 0.1 % of a core.
    nvml : module, optional
        Takes the place of ``pynvml``; for tests.
    torch : module, optional
        Takes the place of ``torch``; by default the module that the script has imported.

    Examples
    --------
    >>> with DeviceSampler() as sampler:
    ...     pass
    >>> isinstance(sampler.summary(), dict)
    True
    """

    def __init__(self, *, period_s: float = 0.25, nvml: Any = None, torch: Any = None) -> None:
        self._nvml, self._torch = _open_nvml(nvml), torch
        self._device: Any = None
        self._seen, self._name, self._index = _Seen(), "", -1
        self._thread = SamplingThread(self.sample, period_s=period_s, most_share=0.001, name="penstock-device")

    def start(self) -> Self:
        """Take a sample, and begin, or go on."""
        self._thread.start()
        return self

    def pause(self) -> None:
        """End the thread until :meth:`start`: a process that forks should have none."""
        self._thread.stop()

    def stop(self) -> None:
        """Take the last sample, and close NVML. Idempotent."""
        self._thread.stop()
        nvml, self._nvml, self._device = self._nvml, None, None
        if nvml is not None:
            nvml.nvmlShutdown()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def sample(self) -> None:
        """Look at the device once. Called by the thread."""
        cuda = find_cuda(self._torch)
        if cuda is not None:
            self._sample_torch(cuda)
        if self._nvml is not None:
            self._sample_nvml(self._nvml, cuda)

    def summary(self) -> dict[str, Any]:
        """What was seen.

        Returns
        -------
        dict
            Empty without a device. Else ``name``, ``source`` ("nvml" or "torch"), ``samples``; ``busy`` (0..1: part of
            the time in which a kernel ran) and ``memory_busy`` (in which device memory was read or written);
            ``memory_bytes``, the most in use, of ``memory_total_bytes``; ``own_memory_bytes``, the most that torch held
            for the script; ``copies_bytes_per_s``, mean over PCIe to the device; ``copies_back_bytes_per_s``;
            ``clock``, the mean clock as a part of the highest; ``power_w``; ``throttled``, parts of the time by cause;
            ``other_processes``, the most on the device. None for what is unknown.
        """
        seen = self._seen
        if not seen.values:
            return {}
        return {
            "name": self._name,
            "source": "nvml" if "busy" in seen.values or "memory" in seen.values else "torch",
            "samples": max(map(len, seen.values.values())),
            "busy": _round(seen.mean("busy")),
            "memory_busy": _round(seen.mean("memory_busy")),
            "memory_bytes": _whole(seen.highest("memory")),
            "memory_total_bytes": _whole(seen.highest("memory_total")),
            "own_memory_bytes": _whole(seen.highest("own_memory")),
            "copies_bytes_per_s": _whole(seen.mean("to_device")),
            "copies_back_bytes_per_s": _whole(seen.mean("from_device")),
            "clock": _round(seen.mean("clock")),
            "power_w": _round(seen.mean("power")),
            "throttled": {
                cause: _round(seen.mean(f"throttled.{cause}"))
                for cause in _THROTTLES
                if f"throttled.{cause}" in seen.values
            },
            "other_processes": _whole(seen.highest("others")),
        }

    def _sample_torch(self, cuda: Any) -> None:
        index = int(cuda.current_device())
        self._name = self._name or str(cuda.get_device_name(index))
        self._seen.add("own_memory", lambda: cuda.max_memory_reserved(index))

    def _sample_nvml(self, nvml: Any, cuda: Any) -> None:
        device = self._find_device(nvml, cuda)
        if device is None:
            return
        seen = self._seen
        seen.add("busy", lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100)
        seen.add("memory_busy", lambda: nvml.nvmlDeviceGetUtilizationRates(device).memory / 100)
        seen.add("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(device).used)
        seen.add("memory_total", lambda: nvml.nvmlDeviceGetMemoryInfo(device).total)
        # NVML counts what the device receives as "RX", in kilobytes per second.
        seen.add("to_device", lambda: 1000 * nvml.nvmlDeviceGetPcieThroughput(device, nvml.NVML_PCIE_UTIL_RX_BYTES))
        seen.add("from_device", lambda: 1000 * nvml.nvmlDeviceGetPcieThroughput(device, nvml.NVML_PCIE_UTIL_TX_BYTES))
        seen.add("power", lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000)
        seen.add("clock", lambda: _read_clock(nvml, device))
        seen.add("others", lambda: _count_others(nvml, device))
        for cause, names in _THROTTLES.items():
            seen.add(f"throttled.{cause}", lambda names=names: _is_throttled(nvml, device, names))  # type: ignore[misc]  # the default binds the loop's name

    def _find_device(self, nvml: Any, cuda: Any) -> Any:
        """NVML's device; that of torch once it has one, until then the only one there is."""
        if self._device is not None and self._index >= 0:
            return self._device
        try:
            if cuda is not None:
                self._index = int(cuda.current_device())
                unique = getattr(cuda.get_device_properties(self._index), "uuid", None)
                self._device = _find_by_uuid(nvml, unique) or _find_by_number(nvml, self._index)
            elif nvml.nvmlDeviceGetCount() == 1:
                self._device = nvml.nvmlDeviceGetHandleByIndex(0)
            if self._device is not None:
                name = nvml.nvmlDeviceGetName(self._device)
                self._name = name.decode() if isinstance(name, bytes) else str(name)
        except nvml.NVMLError:
            return None
        return self._device


def _open_nvml(nvml: Any) -> Any:
    """NVML, ready to be asked; None if it is not there."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or another version of it
        return None
    return nvml


def _find_by_uuid(nvml: Any, unique: object) -> Any:
    if unique is None:
        return None
    for spelling in (f"GPU-{unique}", f"MIG-{unique}", str(unique)):
        try:
            return nvml.nvmlDeviceGetHandleByUUID(spelling)
        except nvml.NVMLError:
            continue
    return None


def _find_by_number(nvml: Any, index: int) -> Any:
    """CUDA's numbers count the visible devices; NVML's count all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [name.strip() for name in visible if name.strip()]
    if not names:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    if index >= len(names):
        return None
    if names[index].isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(names[index]))
    return nvml.nvmlDeviceGetHandleByUUID(names[index])


def _read_clock(nvml: Any, device: Any) -> float:
    highest = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
    return float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM) / highest)


def _count_others(nvml: Any, device: Any) -> int:
    own = os.getpid()
    return sum(process.pid != own for process in nvml.nvmlDeviceGetComputeRunningProcesses(device))


def _is_throttled(nvml: Any, device: Any, names: tuple[str, ...]) -> bool:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
    return any(reasons & getattr(nvml, name) for name in names)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
