"""Claim: worker processes deliver batches several times faster than torch's, start faster and take less memory.

Both loaders have the same dataset and two worker processes, and return torch tensors. Batches per second are counted
over a whole epoch, from ``iter()`` on. Start and memory are measured in a new interpreter each time, with
``forkserver``: the time from ``iter()`` to the first batch, and the proportional set size (PSS) of the program, its
workers and the fork server together, the largest of one measurement per batch.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from harness import Timing, arguments, in_turns, machine, ratio, versions
from samples import Numbers, Photographs

LOADERS = {"torch": "torch.utils.data", "penstock": "penstock.torch"}
WORKERS = 2
CASES: tuple[tuple[str, Callable[[int], Any], int, int], ...] = (
    ("float32 (3, 224, 224), batch 256", Photographs, 256, 100),
    ("float32 (3, 224, 224), batch 32", Photographs, 32, 800),
    ("ints, batch 32", Numbers, 32, 4000),
)
"""Name, dataset, batch size, batches of an epoch."""


def epoch(module: str, make: Callable[[int], Any], batch_size: int, batches: int) -> Callable[[], float]:
    """A candidate: one epoch of the loader of ``module``."""
    loader = importlib.import_module(module).DataLoader

    def run() -> float:
        count = sum(1 for _ in loader(make(batch_size * batches), batch_size, num_workers=WORKERS))
        assert count == batches, "both deliver every batch"
        return count

    return run


def fresh(what: str) -> Any:
    """Run ``what`` of this script in a new interpreter, and return its output."""
    command = [sys.executable, __file__, "--child", what]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def child(what: str) -> None:
    """In a new interpreter: measure the time to the first batch, and the memory of all processes."""
    loader = importlib.import_module(LOADERS[what]).DataLoader
    batches = loader(Photographs(32 * 40), 32, num_workers=WORKERS, multiprocessing_context="forkserver")
    start = time.perf_counter()
    iterator = iter(batches)
    next(iterator)
    first_s = time.perf_counter() - start
    print(json.dumps({"first_s": first_s, "pss": max(total_pss() for _ in iterator)}))


def total_pss() -> int:
    """PSS of this process and its descendants, in bytes."""
    total = 0
    for pid in family(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (OSError, ValueError):
            continue  # the process has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def family(pid: int) -> Iterable[int]:
    """``pid`` and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for below in task.read_text().split():
            yield from family(int(below))


def main() -> None:
    """Measure and print."""
    if "--child" in sys.argv:
        child(sys.argv[-1])
        return
    options = arguments(__doc__, rounds=5)
    print("### Batches from worker processes\n")
    print(f"{WORKERS} processes; {machine()}; {versions('penstock-data', 'torch', 'numpy')}.\n")
    print("| | torch, batches/s | penstock, batches/s | ratio (lowest - highest) |\n|---|---|---|---|")
    for name, make, batch_size, batches in CASES:
        candidates = {label: epoch(module, make, batch_size, batches) for label, module in LOADERS.items()}
        timings = in_turns(candidates, rounds=options.rounds, unit="batches/s")
        row(name, timings["torch"], timings["penstock"], "{:,.1f}")
    starts = {label: Timing(label, "1/s") for label in LOADERS}
    sizes = {label: Timing(label, "1/GB") for label in LOADERS}
    for _ in range(options.rounds):
        for label in LOADERS:
            seen = fresh(label)
            starts[label].rates.append(1 / seen["first_s"])
            sizes[label].rates.append(1e9 / seen["pss"])
    print("\n| forkserver, batch 32 | torch | penstock | penstock / torch (lowest - highest) |\n|---|---|---|---|")
    for name, unit, timings in (("time to the first batch", "s", starts), ("PSS of all processes", "GB", sizes)):
        theirs, ours = (median(1 / rate for rate in timings[label].rates) for label in LOADERS)
        middle, low, high = ratio(timings["torch"], timings["penstock"])
        print(f"| {name} | {theirs:.2f} {unit} | {ours:.2f} {unit} | {middle:.2f} ({low:.2f} - {high:.2f}) |")


def row(name: str, theirs: Timing, ours: Timing, form: str) -> None:
    """A row of the first table."""
    middle, low, high = ratio(ours, theirs)
    rates = f"{form.format(theirs.median)} | {form.format(ours.median)}"
    print(f"| {name} | {rates} | {middle:.2f} ({low:.2f} - {high:.2f}) |")


if __name__ == "__main__":
    main()
