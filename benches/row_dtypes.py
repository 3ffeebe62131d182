"""Claim: rows of uint8 and bfloat16 fill as fast as float32's, within a few hundredths, with fewer bytes.

T1: ImageNet photographs, RandomResizedCrop 224, flip, from a pack without decode indices. Rows are float32 or bfloat16
and normalised, or uint8, in the layouts CHW and HWC. One thread fills batches of 64 (``StoreDataset.fill``); then
complete loaders with two threads. Before, rows are compared: uint8 of both layouts, and floats with those that are
computed of uint8. Ratios of rates: the median and the quartiles of rounds, in which all candidates run in turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Timing, arguments, images_folder, in_turns, machine, versions

import penstock as ps
import penstock.torch as pt
from penstock import transforms as T
from penstock.bfloat16 import from_floats
from penstock.sample import SampleKeys

BATCH, WORKERS = 64, 2
FLOAT = "CHW float32"
FORMS = {FLOAT: ("CHW", "float32"), "CHW bfloat16": ("CHW", "bfloat16"), "CHW uint8": ("CHW", "uint8"),
         "HWC uint8": ("HWC", "uint8")}  # fmt: skip
NORMALIZE = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)


def make_dataset(pack: Path, layout: str, dtype: str) -> ps.StoreDataset:
    """The images of a pack as rows of one form."""
    normalise = [] if dtype == "uint8" else [NORMALIZE]
    ops = [T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip(), *normalise, T.ToLayout(layout, dtype)]
    return ps.StoreDataset(ps.open(pack), ("image",), transform=ops)


def filler(dataset: ps.StoreDataset) -> Callable[[], float]:
    """Fills batch after batch, by the calling thread, into the same memory."""
    spec = dataset.spec()
    out = tuple(np.empty((BATCH, *leaf.shape), leaf.dtype) for leaf in spec)
    rows = np.arange(BATCH)

    def run() -> float:
        for first in range(0, len(dataset) - BATCH + 1, BATCH):
            indices = np.arange(first, first + BATCH)
            dataset.fill(indices, out, SampleKeys(0, 0, indices), rows)
        return len(dataset) // BATCH * BATCH

    return run


def loader(dataset: ps.StoreDataset) -> Callable[[], float]:
    """An epoch of a complete loader."""
    batches = pt.DataLoader(dataset, BATCH, shuffle=True, num_workers=WORKERS, drop_last=True)
    return lambda: sum(len(images) for (images,) in batches)


def compare(datasets: dict[str, ps.StoreDataset]) -> None:
    """Stop if rows of one form are not what is computed of another."""
    found = {}
    indices = np.arange(BATCH)
    for name, dataset in datasets.items():
        (leaf,) = dataset.spec()
        found[name] = np.empty((BATCH, *leaf.shape), leaf.dtype)
        dataset.fill(indices, (found[name],), SampleKeys(0, 0, indices), indices)
    pixels = found["HWC uint8"]
    floats = (pixels.astype(np.float32) * NORMALIZE.scale + NORMALIZE.offset).transpose(0, 3, 1, 2)
    expected = {FLOAT: floats, "CHW bfloat16": from_floats(floats), "CHW uint8": pixels.transpose(0, 3, 1, 2)}
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[name], rows, err_msg=name)


def quartiles(timings: dict[str, Timing]) -> str:
    """A Markdown table of rates, and of ratios to float32: the median, and the quartiles."""
    lines = ["| rows | images/s | of float32 |", "|---|---|---|"]
    for name, timing in timings.items():
        ratios = [a / b for a, b in zip(timing.rates, timings[FLOAT].rates, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        lines.append(f"| {name} | {timing.median:,.0f} | {middle:.3f} ({low:.3f} to {high:.3f}) |")
    return "\n".join(lines)


def main() -> None:
    """Compare rows, then time."""
    given = arguments(__doc__, rounds=20)
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder) / "pack.lmdb"
        ps.pack(images_folder(given.images), pack)
        datasets = {name: make_dataset(pack, *form) for name, form in FORMS.items()}
        compare(datasets)
        print(f"{machine()}\n{versions('numpy', 'torch')}, {len(datasets[FLOAT])} images")
        for title, make in (("One thread, fill alone", filler), (f"Loader, {WORKERS} threads", loader)):
            candidates = {name: make(dataset) for name, dataset in datasets.items()}
            print(f"\n{title}\n\n{quartiles(in_turns(candidates, rounds=given.rounds, unit='images/s'))}")


if __name__ == "__main__":
    main()
