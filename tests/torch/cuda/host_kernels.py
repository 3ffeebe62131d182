"""The kernels as C++: compiled once, called by ctypes, blocks and threads as loops."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

from penstock.torch.cuda import compiler

SOURCE = Path(compiler.__file__).with_name("kernels") / "decode.cu"


class HostKernels:
    """Kernels that run on the processor, over tensors of the CPU."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self.launched: list[str] = []

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Run a kernel to its end."""
        self.launched.append(name)
        getattr(self._library, name)(ctypes.byref(argument), columns, rows, threads)


def compile_kernels(folder: Path, *options: str) -> Path:
    """Compile all kernels as a shared library."""
    library = folder / "kernels.so"
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler is not None, "see has_compiler"
    command = [compiler, "-std=c++17", "-O2", "-g", "-ffp-contract=off", "-Wall", "-Wextra"]
    subprocess.run([*command, "-Werror", *options, "-shared", "-fPIC", "-x", "c++", SOURCE, "-o", library], check=True)
    return library


def has_compiler() -> bool:
    """Whether there is a compiler for C++."""
    return bool(shutil.which("g++") or shutil.which("c++"))
