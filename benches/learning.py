"""Claim: over three epochs, indices by tiles that are made while images are decoded gain nothing over those by rows.

T1 (RandomResizedCrop 224, flip, normalise, float32 CHW) from a pack without an index. One thread fills three epochs of
a new dataset: without an index, with indices by rows, and by tiles, which the first epoch makes and later ones use and
extend, in turns. Time is that of the thread. "4 processes": each chunk is filled by one of four datasets, drawn anew
for each epoch, since worker processes keep their own indices. At the end, the bytes that complete indices take.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from harness import Timing, arguments, images_folder, machine, table, versions

import penstock as ps
from penstock import transforms as T
from penstock.sample import SampleKeys

CHUNK, EPOCHS, SIDE = 8, 3, 224


def three_epochs(store: ps.Store, index: str | None, owners: int, spent: list[float]) -> None:
    """Fill three epochs with new datasets, and add the thread time of each to ``spent``."""
    normalise = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(SIDE), T.HorizontalFlip(), *normalise])
    datasets = [ps.StoreDataset(store, "image", pipeline, index=index) for _ in range(owners)]
    out, rows = np.zeros((CHUNK, 3, SIDE, SIDE), np.float32), np.arange(CHUNK)
    for epoch in range(EPOCHS):
        rng = np.random.default_rng(epoch)
        chunks = rng.permutation(len(store) // CHUNK * CHUNK).reshape(-1, CHUNK)
        owner = rng.integers(owners, size=len(chunks)).tolist()
        start = time.thread_time()
        for chunk, number in zip(chunks, owner, strict=True):
            datasets[number].fill(chunk, out, SampleKeys(0, epoch, chunk), rows=rows)
        spent[epoch] += time.thread_time() - start


def measure(store: ps.Store, rounds: int, owners: int) -> None:
    """Print rates of each kind, and the time of each epoch relative to no index."""
    kinds: dict[str, str | None] = {"no index": None, "rows": "rows", "tiles": "tiles"}
    timings = {name: Timing(name, "images/s") for name in kinds}
    epochs: dict[str, list[list[float]]] = {name: [] for name in kinds}
    count = len(store) // CHUNK * CHUNK
    for turn in range(1 + rounds):
        for name, index in kinds.items():
            spent = [0.0] * EPOCHS
            three_epochs(store, index, owners, spent)
            if turn:
                timings[name].rates.append(EPOCHS * count / sum(spent))
                epochs[name].append(spent)
    title = "threads, which share indices" if owners == 1 else f"{owners} processes"
    print(f"#### {title}\n\n{table(timings, against='rows')}\n")
    print("| indices | first epoch / no index | second | third |\n|---|---|---|---|")
    for name in kinds:
        relative = np.median(np.array(epochs[name]) / np.array(epochs["no index"]), axis=0)
        cells = " | ".join(f"{each:.3f}" for each in relative)
        print(f"| {name} | {cells} |")
    print()


def main() -> None:
    """Pack, measure both kinds of workers and print."""
    options = arguments(__doc__, rounds=15)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(images_folder(options.images)), str(pack), index="none")
        with ps.open(str(pack)) as store:
            print("### Indices made while images are decoded, over three epochs\n")
            print(f"{len(store)} JPEGs, one thread, T1; {machine()}; {versions('penstock-data', 'numpy')}.\n")
            for owners in (1, 4):
                measure(store, options.rounds, owners)
            made = {kind: ps.index(store, kind=kind, overwrite=True) for kind in ("rows", "tiles")}
        sizes = (f"{report.nbytes / report.indexed:,.0f} ({kind})" for kind, report in made.items())
        print(f"Complete indices take {' and '.join(sizes)} bytes an image.")


if __name__ == "__main__":
    main()
