"""Claim: a loader that tells viewers what it does (``view=True``) takes at most 1 % more processor time for images.

The same loader with and without ``view`` runs epochs of 2,048 photographs in turns, in changing order. Processor time
is compared, as in ``trace_cost.py``: of this process, and of the workers that have ended. Printed are the median of the
ratios of neighbouring epochs, its 95 % confidence interval and the quartiles. The last two cases have samples of
microseconds.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import arguments, images_folder, machine, versions
from trace_cost import Rows, run
from train_input import pipeline

import penstock as ps


def compare(make: Callable[[bool], Any], epochs: int, rounds: int) -> list[float]:
    """Processor time with ``view``, divided by that without, of each round; sorted."""
    loaders, ratios = {view: make(view) for view in (True, False)}, []
    for turn in range(rounds + 1):
        times = {view: run(loaders[view], epochs) for view in ((True, False) if turn % 2 else (False, True))}
        ratios.append(times[True] / times[False])
    return sorted(ratios[1:])


def main() -> None:
    options = arguments(__doc__, rounds=40)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["PENSTOCK_VIEW_DIR"] = str(Path(scratch) / "live")
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(images_folder(options.images)), str(pack))
        store = ps.open(str(pack), check=False)
        photographs = ps.StoreDataset(store, fields=("image", "label"), transform=pipeline("train"))
        some = ps.Subset(photographs, [index % len(store) for index in range(2048)])
        arrays = ps.ArrayDataset(np.zeros((25_600, 8, 8, 3), np.uint8))
        cases: dict[str, tuple[Any, dict[str, Any], int]] = {
            "photographs, no worker": (some, {}, 1),
            "photographs, 2 threads": (some, {"num_workers": 2, "workers": "threads"}, 1),
            "photographs, 2 processes": (some, {"num_workers": 2, "workers": "processes"}, 1),
            "small arrays, 2 threads": (arrays, {"num_workers": 2, "workers": "threads"}, 8),
            "Python rows, no worker": (Rows(), {}, 2),
        }
        print("### Cost of telling viewers\n")
        print(f"{machine()}; {versions('penstock-data', 'numpy')}; {options.rounds} rounds.\n")
        print(
            "| loader | processor time, with / without | 95 % interval of the median | quartiles |\n|---|---|---|---|"
        )
        for name, (dataset, workers, epochs) in cases.items():
            ratios = compare(
                lambda view, given=dataset, kind=workers: ps.DataLoader(given, 64, seed=0, view=view, **kind),
                epochs,
                options.rounds,
            )
            reach, middle = math.ceil(0.98 * math.sqrt(len(ratios))), len(ratios) // 2
            low, high = ratios[max(0, middle - reach)], ratios[min(len(ratios) - 1, middle + reach)]
            first, median, third = statistics.quantiles(ratios, n=4)
            print(
                f"| {name} | {median - 1:+.2%} | {low - 1:+.2%} to {high - 1:+.2%} | "
                f"{first - 1:+.2%} to {third - 1:+.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
