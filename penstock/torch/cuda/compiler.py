"""Compiles the kernels for a device, once: NVRTC, a file in the user's cache, and CUDA's driver.

The cached file is named by a hash of the sources, the options, the architecture and NVRTC's version. It is written
beside its name and then renamed, so that no other process reads a part of it. Where there is no cache to write to,
each process compiles: about a second.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from penstock.errors import ArgumentError

__all__ = ["CudaKernels", "compile_kernels", "is_installed", "kernel_sources", "require_bindings"]

_logger = logging.getLogger(__name__)

_MAIN: Final = "decode.cu"

OPTIONS: Final = ("--std=c++17", "--fmad=false", "-default-device", "-lineinfo")
"""NVRTC's options. Without ``--fmad=false``, products and sums would be rounded once, and differ from the CPU's."""


def kernel_sources() -> dict[str, bytes]:
    """The sources by name."""
    folder = Path(__file__).with_name("kernels")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in {".cu", ".h"}}


def compile_kernels(architecture: str) -> bytes:
    """The kernels for an architecture such as "sm_90", as a CUBIN. Needs no device.

    Raises
    ------
    ArgumentError
        If NVRTC is not installed, or does not know the architecture; its log is in the message.
    """
    nvrtc = _import("nvrtc")
    sources = kernel_sources()
    main = sources.pop(_MAIN)
    names, contents = [name.encode() for name in sources], list(sources.values())
    program = _call(nvrtc.nvrtcCreateProgram(main, _MAIN.encode(), len(names), contents, names))
    try:
        options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={architecture}")]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            # One byte more: NVRTC writes to the object, and Python shares those of length 1.
            log = bytes(_call(nvrtc.nvrtcGetProgramLogSize(program)) + 1)
            _call(nvrtc.nvrtcGetProgramLog(program, log))
            raise ArgumentError(f"the kernels cannot be compiled for {architecture}: {log.decode(errors='replace')}")
        cubin = bytes(_call(nvrtc.nvrtcGetCUBINSize(program)))
        _call(nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        _call(nvrtc.nvrtcDestroyProgram(program))
    return cubin


def is_installed() -> bool:
    """Whether there is NVIDIA's package that compiles and launches kernels. It is not imported."""
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None


def require_bindings() -> None:
    """Import what compiles and launches kernels.

    Raises
    ------
    ArgumentError
        If it is not installed.
    """
    _import("nvrtc")


class CudaKernels:
    """The kernels, loaded for one device; see :class:`~penstock.torch.cuda.augmenting.Kernels`.

    Parameters
    ----------
    device : torch.device
        A CUDA device. Its context must be current in the calling thread, as it is after torch has allocated on it.
    """

    def __init__(self, device: torch.device) -> None:
        major, minor = torch.cuda.get_device_capability(device)
        self._device, self._driver = device, _import("driver")
        self._module = _call(self._driver.cuModuleLoadData(_load_or_compile(f"sm_{major}{minor}")))
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Queue a kernel on torch's current stream."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = _call(self._driver.cuModuleGetFunction(self._module, name.encode()))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))  # the launch copies what they point to
        stream = torch.cuda.current_stream(self._device).cuda_stream
        grid, block = (columns, rows, 1), (threads, 1, 1)
        _call(self._driver.cuLaunchKernel(function, *grid, *block, 0, stream, ctypes.addressof(arguments), 0))


@functools.cache
def _load_or_compile(architecture: str) -> bytes:
    path = _cache_path(architecture)
    try:
        return path.read_bytes()
    except OSError:
        cubin = compile_kernels(architecture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(cubin)
        Path(temporary).replace(path)
    except OSError as error:
        _logger.info("the compiled kernels are not kept: %s", error)
    return cubin


def _cache_path(architecture: str) -> Path:
    digest = hashlib.sha256()
    version = _call(_import("nvrtc").nvrtcVersion())
    for part in (architecture, repr(OPTIONS), repr(version)):
        digest.update(part.encode() + b"\0")
    for name, source in kernel_sources().items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "penstock" / "kernels" / f"{architecture}-{digest.hexdigest()[:32]}.cubin"


def _import(name: str) -> Any:
    try:
        from cuda import bindings  # type: ignore[import-untyped]  # NVIDIA's, without types
    except ImportError as error:
        raise ArgumentError(
            'decode="cuda" needs NVIDIA\'s cuda-bindings, which torch brings where it is built for CUDA; '
            "pip install cuda-bindings"
        ) from error
    return import_module(f"{bindings.__name__}.{name}")


def _call(result: tuple[Any, ...]) -> Any:
    """The value of a call of CUDA's bindings.

    Raises
    ------
    RuntimeError
        If it failed.
    """
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"CUDA: {code!r}")
    return values[0] if len(values) == 1 else tuple(values)
