"""Claim: with ``decode="cuda"`` a processor spends a tenth of the time on an image, or less.

Without a device, two things are measured or counted on the photographs, for T1 (RandomResizedCrop 224) and T2 (Resize
256, CenterCrop 224), both with a flip and normalised:

- one thread: packets for a device (headers, seek tables, draws, the compressed bytes under the crop) against rows that
  the CPU decodes, in turns;
- what the kernels have to do: segments, bits of each, how unequal they are within a warp of 32 threads, blocks of
  threads, and the bytes that each step reads and writes. The times that follow from a device's memory bandwidth are
  estimates;
- of whole photographs, how often a warp decodes symbols and begins blocks: as the kernel does, and in simpler ways. The
  kernels are compiled as C++ for that;
- what the compiler reports of each kernel, for architecture 9.0.

On a device, `benches/device_session.sh` measures whole loaders and kernels.
The pixels are the CPU's: see ``tests/torch/cuda``.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from device.tasks import pipelines
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from numpy.typing import NDArray

from penstock import _native
from penstock.sample import SampleKeys
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from penstock.torch.cuda.packets import BLOCK, KERNELS, plan_groups
from penstock.transforms.program.image_chunk import ChunkSeekTables
from penstock.transforms.program.packet_program import PacketProgram
from penstock.transforms.program.program import Program

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.torch.cuda.compiler_report import compile_with_report
from tests.torch.cuda.host_kernels import HostKernels, compile_kernels
from tests.torch.cuda.pictures import Case

CHUNK = 32
ZIGZAG = np.array(sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8, i % 8)[(i // 8 + i % 8 + 1) % 2])))
BANDWIDTH = {"A100 (2.0 TB/s)": 2.0e12, "H100 (3.35 TB/s)": 3.35e12, "H200 (4.8 TB/s)": 4.8e12}


def chunks(count: int) -> Iterable[slice]:
    """Parts of a batch as a worker takes them."""
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def make_candidates(
    program: Program, images: Sequence[bytes], tables: dict[str, list[bytes]]
) -> dict[str, Callable[[], float]]:
    """Rows by the CPU, and packets, with seek tables of both kinds."""
    packets = PacketProgram(program)
    rows = np.empty((CHUNK, 3, 224, 224), np.float16)

    def run(kind: str, *, decode: bool) -> float:
        for part in chunks(len(images)):
            own, entries = images[part], tables[kind][part]
            keys = SampleKeys(0, 0, np.arange(part.start, part.stop))
            made = ChunkSeekTables(list(entries))
            if decode:
                program.fill(own, rows, keys, seek_tables=made)
            else:
                out = packets.packet_spec().make_rows(len(own))
                packets.fill(own, out, keys, seek_tables=made)  # type: ignore[arg-type]  # rows of packets
        return len(images)

    found: dict[str, Callable[[], float]] = {}
    for kind in tables:
        found[f"packets, {kind}"] = lambda kind=kind: run(kind, decode=False)
        found[f"CPU, {kind}"] = lambda kind=kind: run(kind, decode=True)
    return found


def count_work(program: Program, images: Sequence[bytes], tables: Sequence[bytes]) -> dict[str, float]:
    """What the kernels do for an image, on average."""
    packets = PacketProgram(program)
    out = packets.packet_spec().make_rows(len(images))
    keys = SampleKeys(0, 0, np.arange(len(images)))
    packets.fill(list(images), out, keys, seek_tables=ChunkSeekTables(list(tables)))  # type: ignore[arg-type]
    batch = out.batch(np.arange(len(images)), np.empty)
    sums: dict[str, list[float]] = {}
    for i in range(len(images)):
        packet = np.asarray(batch[i])
        words = packet[:448].view("<i4")
        bits = segment_bits(packet, words)
        warps = [bits[start : start + 32] for start in range(0, len(bits), 32)]
        (group,) = plan_groups(packet, np.array([0, len(packet)]), (3, 224, 224), 1 << 40)
        nbytes = group.nbytes
        numbers = {
            "compressed bytes": words[61],
            "bytes copied to the device": len(packet),
            "segments": len(bits),
            "bits of a segment": bits.mean(),
            "longest segment of a warp / mean": float(np.mean([warp.max() / warp.mean() for warp in warps])),
            "blocks of threads": int(group.starts[: KERNELS.index("windows"), -1].sum()),
            "coefficients (written, read)": 2 * nbytes["blocks"],
            "samples (written, read)": 2 * nbytes["samples"],
            "RGB (written, read)": 2 * nbytes["rgb"],
            "between the passes (written, read)": 2 * nbytes["lines"],
            "row (written)": 2 * 3 * 224 * 224,
        }
        for name, number in numbers.items():
            sums.setdefault(name, []).append(float(number))
    return {name: float(np.mean(values)) for name, values in sums.items()}


def segment_bits(packet: NDArray[np.uint8], words: NDArray[np.int32]) -> NDArray[np.float64]:
    """Bits of each segment."""
    per_row, rows = int(words[55]), int(words[8] // words[55])
    entries = packet[words[57] : words[57] + 12 * rows * (per_row + 1)].reshape(-1, 12)[:, :4].copy().view("<u4")
    starts = entries.reshape(rows, per_row + 1).astype(np.float64)
    return np.diff(starts, axis=1).reshape(-1)


class CoefficientKernels(HostKernels):
    """The kernels on the processor; coefficients are kept before other kernels use their memory.

    Parameters
    ----------
    library : Path
        The compiled kernels.
    nbytes : int
        Of the coefficients.
    """

    def __init__(self, library: Path, nbytes: int) -> None:
        super().__init__(library)
        self._nbytes, self.coefficients = nbytes, np.empty((0, 64), np.int16)

    def launch(self, name: str, argument: Any, columns: int, rows: int, threads: int) -> None:
        """Run a kernel to its end."""
        super().launch(name, argument, columns, rows, threads)
        if name == "entropy":
            content = ctypes.string_at(argument.coefficients, self._nbytes)
            self.coefficients = np.frombuffer(content, np.int16).reshape(-1, 64)


def count_symbols(coefficients: NDArray[np.int16]) -> NDArray[np.int64]:
    """Huffman symbols of blocks: the one of DC, one for each value and for each run of 16 zeros, and the end."""
    blocks, places = np.nonzero(np.pad(coefficients[:, ZIGZAG[1:]], ((0, 0), (1, 0)), constant_values=1))
    runs = np.diff(places, prepend=0) - 1
    runs[places == 0] = 0
    symbols = np.bincount(blocks, 1 + runs // 16, len(coefficients)).astype(np.int64)
    return symbols + (coefficients[:, 63] == 0)


def segment_symbols(image: bytes, library: Path) -> NDArray[np.int64]:
    """Symbols of each block of each segment of a whole photograph, (segments, blocks); 0 behind the last one."""
    width, height = _native.sizes([image])[0].tolist()
    packet, _, failures = Case((0, 0, width, height), 8, 8).write_packets(image, "bilinear", "tiles")
    assert not failures, failures
    words = packet[:448].view("<i4").astype(int)
    kernels = CoefficientKernels(library, 128 * words[2])
    decoder = PacketDecoder(kernels, torch.device("cpu"), RowFormat(3, 8, 8, torch.uint8))
    decoder.decode(packet, np.array([0, len(packet)]))
    symbols = count_symbols(kernels.coefficients)
    parts = []
    for component in words[64:].reshape(3, 16)[: words[43]].tolist():
        h, v, first, (left, right, top, bottom) = component[0], component[1], component[14], component[10:14]
        own = symbols[first : first + (right - left) * (bottom - top)].reshape(bottom - top, right - left)
        # Blocks that only fill the last MCU are not needed. Most have two symbols.
        full = np.full((words[46] * v, words[45] * h), 2, np.int64)
        full[top:bottom, left:right] = own
        parts.append(full.reshape(words[46], v, words[45], h).swapaxes(1, 2).reshape(words[46], words[45], v * h))
    mcus = np.concatenate(parts, axis=2)
    missing = -words[45] % words[54]
    return np.pad(mcus, ((0, 0), (0, missing), (0, 0))).reshape(-1, words[54] * mcus.shape[2])


def run_warp(symbols: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """How often a warp decodes symbols, and how often it begins blocks.

    Parameters
    ----------
    symbols : ndarray, shape (threads, blocks)
        Of each block of each thread; 0 behind the last one.
    most : int
        Symbols that threads decode before those that have come to the end of their block begin the next one.
    """
    places, ends = np.zeros(len(symbols), np.int64), (symbols > 0).sum(1)
    left, counts = symbols[:, 0].copy(), np.zeros(2, np.int64)
    while (places < ends).any():
        counts[0] += min(most, left.max())
        left = np.maximum(left - most, 0)
        is_next = (left == 0) & (places < ends)
        counts[1] += is_next.any()
        places[is_next] += 1
        is_begun = is_next & (places < ends)
        left[is_begun] = symbols[is_begun, places[is_begun]]
    return counts


def count_iterations(images: Sequence[bytes]) -> dict[str, float]:
    """Symbols and starts of blocks that a warp of 32 segments runs, for each symbol of its threads on average."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernels(Path(folder))
        of_images = [segment_symbols(image, library) for image in images]
    blocks = [symbols[start : start + BLOCK] for symbols in of_images for start in range(0, len(symbols), BLOCK)]
    in_order = [block[np.argsort(-block.sum(1), kind="stable")] for block in blocks]
    ways = {
        "each block to its end": (blocks, 64),
        "one symbol": (blocks, 1),
        "four symbols": (blocks, 4),
        "segments in order of length, four symbols": (in_order, 4),
    }
    found = {"symbols of a segment": float(np.mean([symbols.sum(1).mean() for symbols in of_images]))}
    for way, (all_blocks, most) in ways.items():
        warps = [block[start : start + 32] for block in all_blocks for start in range(0, len(block), 32)]
        counts = np.sum([run_warp(warp, most) for warp in warps], axis=0)
        symbols, starts = counts / sum(warp.sum() / len(warp) for warp in warps)
        found[f"{way}: symbols of a warp / mean of its threads"] = float(symbols)
        found[f"{way}: starts of blocks of a warp / the same"] = float(starts)
    return found


def print_compiled(architecture: str) -> None:
    """What the compiler reports of each kernel."""
    print(f"\nThe kernels, compiled for {architecture}:\n")
    print("| kernel | registers | bytes shared by a block | local bytes | resident threads |\n|---|---|---|---|---|")
    for name, report in compile_with_report(architecture)[1].items():
        resident = report.resident_threads(architecture, 1024 if name == "measure" else BLOCK)
        print(f"| {name} | {report.registers} | {report.shared_nbytes:,} | {report.local_nbytes} | {resident:,} |")


def print_host(images: Sequence[bytes], rounds: int) -> None:
    """Measure and count without a device."""
    tables = {kind: [_native.build_index(image, kind) for image in images] for kind in ("tiles", "rows")}
    for task, pipeline in pipelines().items():
        program = pipeline.compile("image")
        timings = in_turns(make_candidates(program, images, tables), rounds=rounds, unit="images/s")
        print(f"\n{task}, one thread:\n\n{table(timings, against='CPU, tiles')}")
        work = count_work(program, images, tables["tiles"])
        print(f"\n{task}, what the kernels do for an image (tiles):\n\n| what | mean |\n|---|---|")
        for name, value in work.items():
            print(f"| {name} | {value:,.1f} |")
        moved = sum(value for name, value in work.items() if "(" in name)
        print(f"| memory that all steps read and write | {moved:,.0f} |")
        for name, bandwidth in BANDWIDTH.items():
            print(f"| estimate: memory alone, {name} | {moved / bandwidth * 1e9:,.0f} ns |")
    print("\nEvery tenth photograph, whole (tiles):\n\n| what | |\n|---|---|")
    for name, value in count_iterations(images[::10]).items():
        print(f"| {name} | {value:,.2f} |")


def main() -> None:
    """Measure and count."""
    given = arguments(__doc__, rounds=7)
    folder = images_folder(given.images)
    print(f"{machine()}; {versions('numpy', 'penstock-data')}")
    images = [path.read_bytes() for path in jpegs(folder)]
    print_host([image for image in images if is_indexed(image)], given.rounds)
    print_compiled("sm_90")


def is_indexed(image: bytes) -> bool:
    """Whether an image has one scan, so that a device decodes it."""
    try:
        _native.build_index(image, "rows")
    except (_native.UnsupportedError, _native.CorruptError):
        return False
    return True


if __name__ == "__main__":
    main()
