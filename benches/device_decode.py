"""Claim: with ``decode="cuda"`` a processor spends a tenth of the time on an image, or less.

Without a device, two things are measured or counted on the photographs, for T1 (RandomResizedCrop 224) and T2 (Resize
256, CenterCrop 224), both with a flip and normalised:

- one thread: packets for a device (headers, seek tables, draws, the compressed bytes under the crop) against rows that
  the CPU decodes, in turns;
- what the kernels have to do: segments, bits of each, how unequal they are within a warp of 32 threads, and the bytes
  that each step reads and writes. The times that follow from a device's memory bandwidth are estimates.

With a device (``--device cuda``), images per second of whole loaders, batches of 256 as channels-last float16 on the
device, with 1, 2, 4, 8 and 16 threads, in turns: ``decode="cuda"``, the CPU's path with page-locked batches, and
torchvision's decoder of the device. This part has not been run in this project.
The pixels are the CPU's: see ``tests/torch/cuda``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import images_folder, in_turns, jpegs, machine, table, versions
from numpy.typing import NDArray

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.program.image_chunk import ChunkSeekTables
from penstock.transforms.program.packet_program import PacketProgram
from penstock.transforms.program.program import Program

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHUNK = 32
BANDWIDTH = {"A100 (2.0 TB/s)": 2.0e12, "H100 (3.35 TB/s)": 3.35e12, "H200 (4.8 TB/s)": 4.8e12}


def pipelines() -> dict[str, T.Pipeline]:
    """The tasks."""
    last = [T.HorizontalFlip(), T.Normalize(MEAN, STD), T.ToLayout("CHW", "float16")]
    return {
        "T1": T.Pipeline([T.Decode(), T.RandomResizedCrop(224), *last]),
        "T2": T.Pipeline([T.Decode(), T.Resize(256), T.CenterCrop(224), *last]),
    }


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
        window = 3 * 224 * 224
        numbers = {
            "compressed bytes": words[61],
            "bytes copied to the device": len(packet),
            "segments": len(bits),
            "bits of a segment": bits.mean(),
            "longest segment of a warp / mean": float(np.mean([warp.max() / warp.mean() for warp in warps])),
            "coefficients (written as zeros, by segments, read)": 3 * 128 * words[2],
            "samples (written, read)": 2 * words[3],
            "RGB (written, read)": 2 * words[4],
            "between the passes (written, read)": 2 * words[6],
            "window (written, read) and row": 2 * window + 2 * window + 2 * words[7],
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
        for name, bandwidth in BANDWIDTH.items():
            print(f"| estimate: memory alone, {name} | {moved / bandwidth * 1e9:,.0f} ns |")


def print_device(folder: Path, rounds: int, device: str) -> None:
    """Measure whole loaders on a device."""
    import torch

    from penstock.torch import DataLoader

    store = ps.open(folder)
    for task, pipeline in pipelines().items():
        candidates: dict[str, Callable[[], float]] = {}
        for threads in (1, 2, 4, 8, 16):
            if threads > len(os.sched_getaffinity(0)):
                break
            for decode in (device, "cpu"):
                data = ps.StoreDataset(store, ("image", "label"), pipeline, index="tiles")
                loader: Any = DataLoader(
                    data, 256, shuffle=True, num_workers=threads, workers="threads", decode=decode, seed=0,
                    pin_memory=decode == "cpu", channels_last=decode != "cpu", persistent_workers=True,
                )  # fmt: skip

                def epoch(loader: Any = loader) -> float:
                    count = 0
                    for images, labels in loader:
                        moved = images.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
                        labels.to(device, non_blocking=True)
                        count += len(moved)
                    torch.cuda.synchronize(device)
                    return count

                candidates[f"{threads} threads, decode={decode}"] = epoch
        candidates["torchvision.io.decode_jpeg, whole pictures"] = lambda: decode_by_torchvision(folder, device)
        timings = in_turns(candidates, rounds=rounds, unit="images/s")
        print(f"\n{task} on {torch.cuda.get_device_name(device)}:\n\n{table(timings, against=next(iter(candidates)))}")


def decode_by_torchvision(folder: Path, device: str) -> float:
    """Decode all photographs by nvJPEG through torchvision, without a crop."""
    import torch
    import torchvision.io

    paths = jpegs(folder)
    for start in range(0, len(paths), 256):
        encoded = [torch.from_numpy(np.fromfile(path, np.uint8)) for path in paths[start : start + 256]]
        torchvision.io.decode_jpeg(encoded, mode=torchvision.io.ImageReadMode.RGB, device=device)
    torch.cuda.synchronize(device)
    return len(paths)


def main() -> None:
    """Run the parts that this machine has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="folder of photographs, one sub-folder per class")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", help='such as "cuda"; without it, no device is needed')
    given = parser.parse_args()
    folder = images_folder(given.images)
    print(f"{machine()}; {versions('numpy', 'penstock-data', 'torch', 'torchvision')}")
    if given.device:
        print_device(folder, given.rounds, given.device)
        return
    images = [path.read_bytes() for path in jpegs(folder)]
    print_host([image for image in images if is_indexed(image)], given.rounds)


def is_indexed(image: bytes) -> bool:
    """Whether an image has one scan, so that a device decodes it."""
    try:
        _native.build_index(image, "rows")
    except (_native.UnsupportedError, _native.CorruptError):
        return False
    return True


if __name__ == "__main__":
    main()
