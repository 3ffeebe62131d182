"""Claim: apart from native calls, penstock takes at most 10 microseconds of Python per image.

The loader of ``train_input.py`` (packed store, RandomResizedCrop, flip, normalise, batch 64) runs with a native fill
that returns at once, and without checksums. The rest is sampling, planning, reading, drawing of crops, chunking and
delivery of batches. Times are CPU times of the whole process. With two threads that only run Python, the threads
compete for the GIL all the time, so the last row is an upper bound: in real use they spend 98 % of their time in
native code.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from harness import arguments, images_folder, machine, versions
from train_input import BATCH, pipeline

import penstock as ps
from penstock import _native
from penstock.transforms import program

REPEATS = 25


def cost_us(dataset: ps.StoreDataset | ps.ConcatDataset, workers: int) -> float:
    """CPU time per image in one epoch, in microseconds."""
    loader = ps.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, seed=0, drop_last=True)
    start = time.process_time()
    images = sum(len(batch) for batch, _ in loader)
    return (time.process_time() - start) * 1e6 / images


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(images_folder(options.images)), str(pack))
        store = ps.open(str(pack), check=False)
        photographs = ps.StoreDataset(store, fields=("image", "label"), transform=pipeline("train"))
        dataset = ps.ConcatDataset([photographs] * REPEATS)
        silent = SimpleNamespace(fill=lambda *_, **__: ([], 0, 0), fill_pixels=_native.fill_pixels)
        print("### Python time per image on the fill path\n")
        print(f"{len(dataset)} images an epoch, batch {BATCH}; {machine()};", end=" ")
        print(versions("penstock-data", "numpy", "lmdb") + ".\n")
        print("| workers | CPU time per image, us (each round) |\n|---|---|")
        with mock.patch.object(program, "_native", silent):
            cost_us(dataset, 0)
            for workers in (0, 1, 2):
                costs = sorted(cost_us(dataset, workers) for _ in range(options.rounds))
                print(f"| {workers} | {costs[len(costs) // 2]:.2f} ({', '.join(f'{cost:.2f}' for cost in costs)}) |")


if __name__ == "__main__":
    main()
