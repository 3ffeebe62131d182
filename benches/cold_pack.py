"""Claim: a shuffled epoch over a pack that is not in the page cache is nearly as fast as one over a pack that is.

    python benches/cold_pack.py [--images DIR] [--rounds 5]

The photographs are packed eight times over, so that the pack has several hundred megabytes. Each round empties the page
cache of the pack's files, runs one epoch (RandomResizedCrop to 224, float32, two threads), and another one with the
pages that the first has read; the same again without reading ahead, in turns. The ratio is cold by warm. It depends on
the disk: the pack's size and the warm rate say how many bytes per second it must deliver.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path

from harness import Timing, arguments, images_folder, jpegs, machine, table, versions

import penstock as ps
from penstock import transforms as T
from penstock.stores.lmdb_pack.store import LmdbStore

COPIES, BATCH = 8, 64


def make_pack(images: Path, folder: Path) -> Path:
    """A pack of each photograph :data:`COPIES` times."""
    source = folder / "images" / "class"
    source.mkdir(parents=True)
    for number, path in enumerate(jpegs(images)):
        for copy in range(COPIES):
            (source / f"{copy}-{number:05d}.jpg").symlink_to(path.resolve())
    ps.pack(folder / "images", folder / "pack.lmdb")
    return folder / "pack.lmdb"


def drop_pages(pack: Path) -> None:
    """Remove the pack's files from the page cache; nothing may have them mapped."""
    gc.collect()
    os.sync()
    for path in pack.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_epoch(pack: Path, seed: int) -> float:
    """Images per second of a shuffled epoch, from its first batch on."""
    floats = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip(), *floats])
    with ps.open(pack) as store:
        data = ps.StoreDataset(store, fields=("image", "label"), transform=pipeline)
        loader = ps.DataLoader(data, BATCH, shuffle=True, num_workers=2, drop_last=True, seed=seed)
        begun = time.perf_counter()
        count = sum(BATCH for _ in loader)
        return count / (time.perf_counter() - begun)


def main() -> None:
    """Print cold and warm rates, with and without reading ahead."""
    options = arguments(__doc__, rounds=5)
    reads_ahead = LmdbStore.prefetches
    names = {"reading ahead": reads_ahead, "without": False}
    timings = {
        f"{state}, {name}": Timing(f"{state}, {name}", "images/s") for name in names for state in ("warm", "cold")
    }
    with tempfile.TemporaryDirectory() as folder:
        pack = make_pack(images_folder(options.images), Path(folder))
        nbytes = sum(path.stat().st_size for path in pack.iterdir())
        for seed in range(options.rounds):
            for name, prefetches in names.items():
                LmdbStore.prefetches = prefetches  # type: ignore[assignment,method-assign]
                drop_pages(pack)
                for state in ("cold", "warm"):
                    timings[f"{state}, {name}"].rates.append(run_epoch(pack, seed))
    print(f"{machine()}; {versions('penstock-data')}")
    print(f"A pack of {nbytes / 1e6:.0f} MB.\n")
    for name in names:
        pair = {key: timings[key] for key in (f"warm, {name}", f"cold, {name}")}
        print(table(pair, against=f"warm, {name}") + "\n")


if __name__ == "__main__":
    main()
