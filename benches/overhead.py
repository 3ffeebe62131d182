"""Claim: apart from the native fill, penstock takes at most 5 microseconds per image.

The loader of ``train_input.py`` (packed store, RandomResizedCrop, flip, normalise, batch 64) runs without checksums, in
turns with a native fill that returns at once, and with the real one, whose processor time is subtracted. The rest is
sampling, planning, reading, drawing of crops, chunking and delivery of batches. In the last column, the time of the
native search for records is subtracted too: what is left holds the interpreter's lock, but for system calls. Times are
processor times of the whole process. With two threads that only run Python, the threads compete for the GIL all the
time. With the real fill they seldom do, but find caches that the decoder has filled.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from harness import arguments, images_folder, machine, versions
from train_input import BATCH, pipeline

import penstock as ps
from penstock import _native
from penstock.stores.lmdb_pack import mapping as lmdb_map
from penstock.transforms.program import row_filling

REPEATS = 25


def cost_us(dataset: ps.StoreDataset | ps.ConcatDataset, workers: int) -> float:
    """CPU time per image in one epoch, in microseconds; native code of the fill is left out."""
    silent = SimpleNamespace(
        fill=lambda *_, **__: ([], 0, 0), fill_pixels=_native.fill_pixels, draw_geometry=_native.draw_geometry
    )
    with mock.patch.object(row_filling, "_native", silent):
        return _epoch_us(dataset, workers)


def real_cost_us(dataset: ps.StoreDataset | ps.ConcatDataset, workers: int) -> tuple[float, float]:
    """The same with the real fill, whose time is subtracted; then also without the native search for records."""
    filling_ns: list[int] = []
    finding_ns: list[int] = []

    def timed(function: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.thread_time_ns()
            result = function(*args, **options)
            spent_ns.append(time.thread_time_ns() - start)
            return result

        return call

    fills = SimpleNamespace(
        fill=timed(_native.fill, filling_ns), fill_pixels=_native.fill_pixels, draw_geometry=_native.draw_geometry
    )
    finds = SimpleNamespace(find_blobs=timed(_native.find_blobs, finding_ns), read_ahead=_native.read_ahead)
    with mock.patch.object(row_filling, "_native", fills), mock.patch.object(lmdb_map, "_native", finds):
        whole_us = _epoch_us(dataset, workers)
    images = len(dataset) // BATCH * BATCH
    rest_us = whole_us - sum(filling_ns) / 1e3 / images
    return rest_us, rest_us - sum(finding_ns) / 1e3 / images


def _epoch_us(dataset: ps.StoreDataset | ps.ConcatDataset, workers: int) -> float:
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
        print("### Time per image besides the native fill\n")
        print(f"{len(dataset)} images an epoch, batch {BATCH}; {machine()};", end=" ")
        print(versions("penstock-data", "numpy", "lmdb") + ".\n")
        print(
            "| workers | fill that returns at once, us (each round) | real fill, subtracted | and search, subtracted |"
        )
        print("|---|---|---|---|")
        cost_us(dataset, 0)
        for workers in (0, 1, 2, 8):
            measured = [(cost_us(dataset, workers), *real_cost_us(dataset, workers)) for _ in range(options.rounds)]
            columns = [sorted(costs) for costs in zip(*measured, strict=True)]
            cells = [
                f"{costs[len(costs) // 2]:.2f} ({', '.join(f'{cost:.2f}' for cost in costs)})" for costs in columns
            ]
            print(f"| {workers} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
