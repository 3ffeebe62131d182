"""Claim: threads of a warp that follow one another read and write neighbouring bytes of a device's memory.

A device moves sectors of 32 bytes. A warp of 32 threads that loads or stores asks for the sectors that its addresses
lie in; the fewest are its bytes, divided by 32. The kernels are compiled as C++ with a call at each load and store
(those that g++ makes for an address sanitizer), and decode a photograph. A compiler for a device joins accesses and
leaves some out, and caches are not simulated: the numbers tell how well addresses lie together, not times. The entropy
decoder is left out, since its threads read different segments.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import images_folder, jpegs
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from penstock import _native
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from penstock.torch.cuda.packets import plan_groups
from tests.torch.cuda.host_kernels import SOURCE, HostKernels
from tests.torch.cuda.pictures import Case

TRACED = """
#include KERNELS
struct Access { unsigned long address, place; int nbytes, block, thread, is_store; };
static Access *accesses;
static unsigned long used, room, ranges[6][2];
extern "C" {
void trace(Access *memory, unsigned long count, const unsigned long *traced) {
  accesses = memory; room = count; used = 0;
  memcpy(ranges, traced, sizeof ranges);
}
unsigned long count_accesses() { return used; }
#define PLAIN __attribute__((no_sanitize_address))
PLAIN static void add(unsigned long address, int nbytes, int is_store, void *place) {
  for (auto &range : ranges)
    if (address >= range[0] && address < range[1] && used < room)
      accesses[used++] = {address, (unsigned long)place, nbytes, blockIdx.x, threadIdx.x, is_store};
}
#define SIZED(name, size, store) \\
  PLAIN void __asan_##name##size##_noabort(unsigned long at) { add(at, size, store, __builtin_return_address(0)); }
#define ACCESS(name, store) \\
  SIZED(name, 1, store) SIZED(name, 2, store) SIZED(name, 4, store) SIZED(name, 8, store) SIZED(name, 16, store) \\
  PLAIN void __asan_##name##N_noabort(unsigned long at, unsigned long size) { \\
    add(at, (int)size, store, __builtin_return_address(0)); \\
  }
ACCESS(load, 0)
ACCESS(store, 1)
void __asan_handle_no_return() {}
}
"""

ACCESS = np.dtype(
    [("address", "u8"), ("place", "u8"), ("nbytes", "i4"), ("block", "i4"), ("thread", "i4"), ("store", "i4")]
)
MOST = 20_000_000


def compile_traced(folder: Path) -> Path:
    """The kernels as a shared library that calls at each load and store; not optimised, so that calls are in order."""
    (folder / "traced.cpp").write_text(TRACED)
    options = ["-fsanitize=kernel-address", f'-DKERNELS="{SOURCE}"']
    options += [f"--param=asan-{name}" for name in ("stack=0", "globals=0", "instrumentation-with-call-threshold=0")]
    command = ["g++", "-std=c++17", "-O0", "-ffp-contract=off", *options, "-shared", "-fPIC"]
    subprocess.run([*command, folder / "traced.cpp", "-o", folder / "traced.so"], check=True)
    return folder / "traced.so"


class TracedKernels(HostKernels):
    """The kernels on the processor; the accesses of each are counted.

    Parameters
    ----------
    library : Path
        The compiled kernels.
    nbytes : dict
        Of the memory of each step.
    """

    def __init__(self, library: Path, nbytes: dict[str, int]) -> None:
        super().__init__(library)
        self._traced, self._nbytes = ctypes.CDLL(str(library)), nbytes
        self._traced.count_accesses.restype = ctypes.c_ulong
        self.found: list[tuple[str, str, str, NDArray[np.int64]]] = []

    def launch(self, name: str, argument: Any, columns: int, rows: int, threads: int) -> None:
        """Run a kernel to its end, and look at its accesses."""
        memory = {"blocks": argument.coefficients, "samples": argument.samples, "rgb": argument.rgb}
        memory |= {"taps": argument.taps, "lines": argument.lines, "out": argument.out}
        ranges = np.array([(start, start + self._nbytes[what]) for what, start in memory.items()], np.uint64)
        accesses = np.empty(0 if name == "entropy" else MOST, ACCESS)
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (accesses, ranges))
        self._traced.trace(next(addresses), ctypes.c_ulong(len(accesses)), next(addresses))
        super().launch(name, argument, columns, rows, threads)
        accesses = accesses[: self._traced.count_accesses()]
        assert len(accesses) < MOST
        for what, (start, end) in zip(memory, ranges.tolist(), strict=True):
            for store in (0, 1):
                is_own = (accesses["address"] >= start) & (accesses["address"] < end) & (accesses["store"] == store)
                if is_own.any():
                    self.found.append((name, "stores" if store else "loads", what, count_sectors(accesses[is_own])))


def count_sectors(accesses: NDArray[np.void]) -> NDArray[np.int64]:
    """Requests of warps, the sectors that they ask for, and the fewest sectors for their bytes."""
    thread = accesses["block"].astype(np.int64) * 1024 + accesses["thread"]
    place = np.unique(accesses["place"], return_inverse=True)[1].astype(np.int64)
    turn = number_repeated(place << 40 | thread)  # a warp comes to a place of the program when its threads do
    warp = thread // 32
    request = np.unique(np.stack([place, turn, warp]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    address = (accesses["address"] - accesses["address"].min() // 32 * 32).astype(np.int64)
    first, last = address // 32, (address + accesses["nbytes"] - 1) // 32
    asked = np.unique(np.concatenate([request << 32 | first, request << 32 | last]))
    different, places = np.unique(request << 32 | address, return_index=True)
    nbytes = np.bincount(different >> 32, accesses["nbytes"][places])
    return np.array([len(nbytes), len(asked), np.ceil(nbytes / 32).sum()], np.int64)


def number_repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each value came before."""
    order = np.argsort(values, kind="stable")
    firsts = np.flatnonzero(np.append(True, np.diff(values[order]) != 0))
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.repeat(firsts, np.diff(np.append(firsts, len(values))))
    return numbers


def main() -> None:
    """Decode a photograph by the traced kernels, and print what each kernel asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="folder of photographs, one sub-folder per class")
    image = jpegs(images_folder(parser.parse_args().images))[0].read_bytes()
    width, height = _native.sizes([image])[0].tolist()
    case = Case((0, 0, width, height), 224, 224)
    packet, _, failures = case.write_packets(image, "bilinear", "tiles")
    assert not failures, failures
    offsets = np.array([0, len(packet)])
    (group,) = plan_groups(packet, offsets, (3, 224, 224), 1 << 40)
    print("| kernel | | requests | sectors of a request | the fewest |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        library = compile_traced(Path(folder))
        for layout in ("CHW", "HWC"):
            kernels = TracedKernels(library, group.nbytes | {"out": 3 * 224 * 224 * 2})
            decoder = PacketDecoder(kernels, torch.device("cpu"), RowFormat(3, 224, 224, torch.float16, layout))
            decoder.decode(packet, offsets)
            for kernel, way, what, (requests, asked, fewest) in kernels.found:
                if layout == "CHW" or what == "out":
                    name = f"{what}, {layout}" if what == "out" else what
                    each = f"{requests:,} | {asked / requests:.1f} | {fewest / requests:.1f}"
                    print(f"| {kernel} | {way} {name} | {each} |")


if __name__ == "__main__":
    main()
