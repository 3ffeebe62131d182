"""Claim: between the native calls, penstock spends at most 10 microseconds of Python on an image.

The loader of ``train_input.py`` (packed store, RandomResizedCrop, flip, normalise, batch 64) runs as it is, except
that the native fill answers at once without touching a pixel, and checksums are off: what is left is sampling,
planning, reading, drawing of crops, chunking, handing over batches. Processor time of the whole process, not wall time.
Two threads with nothing but Python to do meet at the interpreter's lock all the time: the last row is an upper bound,
in earnest they spend 98 % of their time in native code.
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


def cost_us(dataset: ps.ConcatDataset, workers: int) -> float:
    """Processor time per image of one epoch, microseconds."""
    loader = ps.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, seed=0, drop_last=True)
    start = time.process_time()
    images = sum(len(batch) for batch, _ in loader)
    return (time.process_time() - start) * 1e6 / images


def main() -> None:
    """Measure, print."""
    options = arguments(__doc__, rounds=5)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(images_folder(options.images)), str(pack))
        store = ps.open(str(pack), check=False)
        photographs = ps.StoreDataset(store, fields=("image", "label"), transform=pipeline("train"))
        dataset = ps.ConcatDataset([photographs] * REPEATS)
        silent = SimpleNamespace(fill=lambda *_, **__: ([], 0, 0), fill_pixels=_native.fill_pixels)
        print("### Python time per image on the fill path\n")
        print(f"{len(dataset)} images an epoch, batch {BATCH}; {machine()}; {versions('penstock', 'numpy', 'lmdb')}.\n")
        print("| workers | processor time per image, us (each round) |\n|---|---|")
        with mock.patch.object(program, "_native", silent):
            cost_us(dataset, 0)
            for workers in (0, 1, 2):
                costs = sorted(cost_us(dataset, workers) for _ in range(options.rounds))
                print(f"| {workers} | {costs[len(costs) // 2]:.2f} ({', '.join(f'{cost:.2f}' for cost in costs)}) |")


if __name__ == "__main__":
    main()
