"""What NVRTC reports of the kernels, without a device: PTX, registers, and memory of threads and blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from penstock.torch.cuda.compiler import OPTIONS, kernel_sources

_REPORTED: Final = re.compile(
    r"Function properties for (?P<name>\w+)\n"
    r"ptxas +\. +(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r"ptxas info +: Used (?P<registers>\d+) registers(?P<rest>.*)"
)

_SM: Final = {"sm_80": (164, 2048), "sm_90": (228, 2048), "sm_100": (228, 2048)}
"""Kilobytes of shared memory and threads of a multiprocessor."""


@dataclass(frozen=True)
class KernelReport:
    """What the compiler says of a kernel.

    Parameters
    ----------
    registers : int
        Of a thread.
    shared_nbytes : int
        Memory of a block of threads.
    local_nbytes : int
        Stack frame and spilled registers of a thread, in the device's memory.
    """

    registers: int
    shared_nbytes: int
    local_nbytes: int

    def resident_threads(self, architecture: str, block: int) -> int:
        """Threads that a multiprocessor holds at once, in blocks of ``block`` threads."""
        kilobytes, threads = _SM[architecture]
        warps = -(-block // 32)
        by_registers = 65536 // (-(-self.registers // 8) * 8 * 32) // warps
        by_memory = kilobytes * 1024 // (self.shared_nbytes + 1024)  # each block has a kilobyte of the system
        return block * min(threads // block, 32, by_registers, by_memory)


def compile_with_report(architecture: str) -> tuple[str, dict[str, KernelReport]]:
    """Compile the kernels as the library does: their PTX, and a report of each."""
    from cuda.bindings import nvrtc  # type: ignore[import-untyped]  # NVIDIA's, without types

    sources = kernel_sources()
    main = sources.pop("decode.cu")
    names = [name.encode() for name in sources]
    program = _value(nvrtc.nvrtcCreateProgram(main, b"decode.cu", len(names), list(sources.values()), names))
    options = [*OPTIONS, f"--gpu-architecture={architecture}", "--ptxas-options=-v"]
    _value((*nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options]), None))
    log, ptx = (bytes(_value(size(program)) + 1) for size in (nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetPTXSize))
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode(), {found["name"]: _read(found) for found in _REPORTED.finditer(log.decode())}


def _read(found: re.Match[str]) -> KernelReport:
    shared = re.search(r"(\d+) bytes smem", found["rest"])
    local = sum(int(found[name]) for name in ("stack", "stores", "loads"))
    return KernelReport(int(found["registers"]), int(shared[1]) if shared else 0, local)


def _value(result: tuple[Any, ...]) -> Any:
    code, value = result
    assert int(code) == 0, code
    return value
