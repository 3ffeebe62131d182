"""Stage "versions": the machine, its device and driver, torch, NVRTC, and the time that the kernels take to compile."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benches.device.program import Stage, run_stage
from benches.harness import machine

__all__ = ["find_compiler", "find_device", "find_versions", "package_version"]

PACKAGES: Final = (
    "penstock-data", "torch", "torchvision", "numpy", "pillow", "cuda-bindings", "nvidia-dali-cuda130", "torchcodec",
    "ffcv", "pytest", "scikit-image",
)  # fmt: skip


def run(stage: Stage) -> None:
    """Find out one after the other, and keep what was found: a broken driver should be seen in the report."""
    parts = {"machine": find_versions, "device": find_device, "compiler": find_compiler}
    for name, find in parts.items():
        try:
            stage.found[name] = find()
        except Exception as error:  # noqa: BLE001  # whatever a library raises is the finding
            stage.found[name] = {"error": f"{type(error).__name__}: {error}"}
        stage.save()
    print("\n".join(f"{name}: {found}" for name, found in stage.found.items()))


def find_versions() -> dict[str, Any]:
    """Processor, memory, system and packages."""
    found: dict[str, Any] = {
        "processor": machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    memory = Path("/proc/meminfo")
    if memory.exists():
        found["memory_GB"] = round(int(memory.read_text().split()[1]) / 1e6)
    return found | {package: package_version(package) for package in PACKAGES}


def package_version(name: str) -> str:
    """The version of an installed package, or "absent"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def find_device() -> dict[str, Any]:
    """What the driver and torch say of the device."""
    found: dict[str, Any] = {}
    if program := shutil.which("nvidia-smi"):
        asked = "name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,clocks.sm,clocks.mem"
        done = subprocess.run(
            [program, f"--query-gpu={asked}", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        found["nvidia-smi"] = (done.stdout or done.stderr).strip()
    import torch

    found["torch_cuda"] = torch.version.cuda
    if not torch.cuda.is_available():
        return found | {"torch": "finds no CUDA device"}
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "name": properties.name,
        "capability": list(torch.cuda.get_device_capability(0)),
        "multiprocessors": properties.multi_processor_count,
        "memory_GB": round(properties.total_memory / 1e9),
    }


def find_compiler() -> dict[str, Any]:
    """NVRTC's version, and the seconds that it takes for the kernels."""
    import torch
    from cuda.bindings import nvrtc  # type: ignore[import-untyped]  # NVIDIA's, without types

    from penstock.torch.cuda.compiler import compile_kernels

    _, *numbers = nvrtc.nvrtcVersion()
    device = torch.cuda.get_device_capability(0) if torch.cuda.is_available() else (9, 0)
    architecture = "sm_{}{}".format(*device)
    started = time.perf_counter()
    nbytes = len(compile_kernels(architecture))
    return {
        "nvrtc": ".".join(map(str, numbers)),
        "architecture": architecture,
        "compile_s": round(time.perf_counter() - started, 2),
        "cubin_nbytes": nbytes,
        "sanitizer": shutil.which("compute-sanitizer") or "absent",
    }


if __name__ == "__main__":
    run_stage(run)
