"""Compiles the kernels for a device, once, by NVRTC; CUDA's driver loads and launches them.

The compiled code is kept in the user's cache (:mod:`penstock.torch.cuda.cubin_cache`), in a file that is named by a
hash of the sources, the options, the architecture and NVRTC's version. For a device that is newer than NVRTC, the code
is PTX of the newest architecture that NVRTC knows, which the driver compiles.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from penstock.errors import ArgumentError, DeviceError
from penstock.torch.cuda.cubin_cache import find_cache_folder, read_cached, write_cached

__all__ = [
    "RESTART",
    "CudaKernels",
    "choose_architecture",
    "compile_kernels",
    "is_installed",
    "kernel_sources",
    "load_or_compile",
    "require_bindings",
]

_MAIN: Final = "decode.cu"

OPTIONS: Final = ("--std=c++17", "--fmad=false", "-default-device", "-lineinfo")
"""NVRTC's options. Without ``--fmad=false``, products and sums would be rounded once, and differ from the CPU's."""

RESTART: Final = (
    "After most errors a process cannot use the device any more: start the program again, and pass decode='cpu' if it "
    "fails again"
)
"""What to do about an error of a device."""


def kernel_sources() -> dict[str, bytes]:
    """Read the sources of the kernels, by name."""
    folder = Path(__file__).with_name("kernels")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in {".cu", ".h"}}


def choose_architecture(major: int, minor: int) -> str:
    """Return what to compile for, such as "sm_90", or "compute_120" for a device that is newer than NVRTC.

    Parameters
    ----------
    major, minor : int
        The device's compute capability.

    Raises
    ------
    ArgumentError
        If NVRTC is not installed, or no longer knows the architecture.
    """
    known: list[int] = _call(_import("nvrtc").nvrtcGetSupportedArchs())
    wanted = 10 * major + minor
    if wanted in known:
        return f"sm_{wanted}"
    older = [architecture for architecture in known if architecture < wanted]
    if not older:
        raise ArgumentError(
            f"the device has compute capability {major}.{minor}, and NVRTC {_nvrtc_version()} compiles for "
            f"{min(known) / 10} and newer; install cuda-bindings of an older CUDA, or pass decode='cpu'"
        )
    return f"compute_{max(older)}"


def compile_kernels(architecture: str) -> bytes:
    """Return the kernels for an architecture: a CUBIN for one such as "sm_90", PTX for "compute_90". Needs no device.

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
        kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
        code = bytes(_call(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)))
        _call(getattr(nvrtc, f"nvrtcGet{kind}")(program, code))
    finally:
        _call(nvrtc.nvrtcDestroyProgram(program))
    return code


def load_or_compile(architecture: str) -> bytes:
    """Return the kernels as :func:`compile_kernels` returns them, from the user's cache if they are there."""
    folder = find_cache_folder()
    if folder is None:
        return compile_kernels(architecture)
    path = folder / _file_name(architecture)
    code = read_cached(path)
    if code is None:
        code = compile_kernels(architecture)
        write_cached(path, code)
    return code


def is_installed() -> bool:
    """Return whether there is NVIDIA's package that compiles and launches kernels. It is not imported."""
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None


def require_bindings() -> None:
    """Import what compiles and launches kernels.

    Raises
    ------
    ArgumentError
        If it is not installed, or a library of it is not found.
    """
    _import("nvrtc")
    _nvrtc_version()


class CudaKernels:
    """The kernels, loaded for one device; see :class:`~penstock.torch.cuda.augmenting.Kernels`. Never unloaded.

    Parameters
    ----------
    device : torch.device
        A CUDA device, with an index.

    Raises
    ------
    ArgumentError
        If the driver does not take what NVRTC compiles.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._driver = device, _import("driver")
        major, minor = torch.cuda.get_device_capability(device)
        code = load_or_compile(choose_architecture(major, minor))
        torch.zeros(1, device=device)  # makes the device's context
        context = _call(self._driver.cuDevicePrimaryCtxRetain(_call(self._driver.cuDeviceGet(device.index))))
        _call(self._driver.cuCtxPushCurrent(context))  # in a new thread none may be
        try:
            result, self._module = self._driver.cuModuleLoadData(code)
        finally:
            _call(self._driver.cuCtxPopCurrent())
        if int(result) != 0:
            number = _call(self._driver.cuDriverGetVersion())
            raise ArgumentError(
                f"the driver of {device}, for CUDA {number // 1000}.{number % 1000 // 10}, does not load what NVRTC "
                f"{_nvrtc_version()} compiles: {result.name}; update the driver, install cuda-bindings of its version, "
                "or pass decode='cpu'"
            )
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Queue a kernel on torch's current stream.

        Raises
        ------
        DeviceError
            If the driver refuses it, also because of an earlier error of the device.
        """
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = _call(self._driver.cuModuleGetFunction(self._module, name.encode()))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))  # the launch copies what they point to
        stream = torch.cuda.current_stream(self._device).cuda_stream
        grid, block = (columns, rows, 1), (threads, 1, 1)
        _call(self._driver.cuLaunchKernel(function, *grid, *block, 0, stream, ctypes.addressof(arguments), 0))


def _file_name(architecture: str) -> str:
    """The name of the compiled kernels in the cache, which changes with all that is compiled."""
    digest = hashlib.sha256()
    for part in (architecture, repr(OPTIONS), _nvrtc_version()):
        digest.update(part.encode() + b"\0")
    for name, source in kernel_sources().items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    return f"{architecture}-{digest.hexdigest()[:32]}.cubin"


@functools.cache
def _nvrtc_version() -> str:
    try:
        major, minor = _call(_import("nvrtc").nvrtcVersion())
    except RuntimeError as error:  # it is loaded now
        raise ArgumentError(
            f'decode="cuda" needs NVIDIA\'s library NVRTC, which cannot be loaded ({str(error).splitlines()[0]}); '
            "pip install nvidia-cuda-nvrtc"
        ) from error
    return f"{major}.{minor}"


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
    DeviceError
        If it failed.
    """
    code, *values = result
    if int(code) != 0:
        raise DeviceError(f"CUDA failed: {code.name} ({int(code)}). {RESTART}")
    return values[0] if len(values) == 1 else tuple(values)
