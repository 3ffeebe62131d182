"""Claim: the times that a loader always counts (``loader.stats()``) cost images at most 0.5 % of their throughput.

The last three cases are no images: samples of microseconds show the most that a trace can cost, which is more.

The same loader runs with its trace, and with the trace's recording replaced by functions that do nothing; only this
script does so. Short epochs run in turns, in changing order. Processor time is compared, since other programs disturb
clocks: of this process, and of the workers that have ended. Printed are the median of the ratios of neighbouring epochs
and its 95 % confidence interval (by the order of the ratios). On a machine with other load this is wide, so that the
cost is also counted: calls of an epoch in this process, times what a call takes in a loop, as a part of the epoch's
processor time. What the native core counts within a call cannot be left
out: two reads of the clock for each image.
"""

from __future__ import annotations

import contextlib
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from harness import arguments, images_folder, machine, versions
from train_input import pipeline

import penstock as ps
from penstock import trace
from penstock.trace import Trace
from penstock.workers.jobs.base import ReadTimer

MOST_IMAGES = 512


class Rows:
    """Samples of a Python dataset that take microseconds: the most that a trace can cost."""

    def __init__(self) -> None:
        self.rows = np.arange(64 * 256, dtype=np.float32).reshape(256, 64)

    def __len__(self) -> int:
        return 25_600

    def __getitem__(self, index: int) -> Any:
        return self.rows[index % 256] * 2


@contextlib.contextmanager
def without_trace() -> Iterator[None]:
    """Nothing is recorded in this block, nor in workers that are started in it."""

    def nothing(*_: object, **__: object) -> None:
        pass

    stage = type(trace.stage("read"))
    replaced: list[tuple[Any, str]] = [
        (Trace, "add"), (Trace, "add_all"), (Trace, "activate"), (Trace, "deactivate"), (trace, "add"),
        (stage, "__enter__"), (stage, "__exit__"), (ReadTimer, "__enter__"), (ReadTimer, "__exit__"),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for owner, name in replaced:
            stack.enter_context(mock.patch.object(owner, name, nothing))
        yield


def used_cpu_s() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def run(loader: Any, epochs: int) -> float:
    """Processor seconds of some epochs."""
    before = used_cpu_s()
    for _ in range(epochs):
        for _ in loader:
            pass
    return used_cpu_s() - before


def compare(loader: Any, epochs: int, rounds: int) -> list[float]:
    """Processor time with the trace, divided by that without, of each round."""
    ratios = []
    for turn in range(rounds + 1):
        times = {}
        for is_traced in (True, False) if turn % 2 else (False, True):
            with contextlib.nullcontext() if is_traced else without_trace():
                times[is_traced] = run(loader, epochs)
        ratios.append(times[True] / times[False])
    assert loader.stats().samples, "it delivers"
    return sorted(ratios[1:])


def measure_call_s() -> float:
    """Processor seconds of one timed stage: two clocks and a count."""
    own, calls = Trace(), 100_000
    own.activate()
    start = time.process_time()
    for _ in range(calls):
        with trace.stage("read", 1):
            pass
    spent = time.process_time() - start
    own.deactivate()
    return spent / calls


def count_share(loader: Any, call_s: float) -> float:
    """Part of an epoch's processor time that the calls of its trace take, in this process."""
    calls, add = 0, Trace.add

    def counted(self: Trace, stage: str, time_ns: int, items: int = 1) -> None:
        nonlocal calls
        calls += 1
        add(self, stage, time_ns, items)

    with mock.patch.object(Trace, "add", counted):
        spent = run(loader, 1)
    return calls * call_s / spent


def main() -> None:
    options = arguments(__doc__, rounds=40)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(images_folder(options.images)), str(pack))
        store = ps.open(str(pack), check=False)
        photographs = ps.StoreDataset(store, fields=("image", "label"), transform=pipeline("train"))
        some = ps.Subset(photographs, range(min(MOST_IMAGES, len(store))))
        arrays = ps.ArrayDataset(np.zeros((25_600, 8, 8, 3), np.uint8))
        cases: dict[str, tuple[Callable[[], Any], int]] = {
            "photographs, no worker": (lambda: ps.DataLoader(some, 64, seed=0), 1),
            "photographs, 2 threads": (lambda: ps.DataLoader(some, 64, num_workers=2, workers="threads", seed=0), 1),
            "small arrays, 2 threads": (lambda: ps.DataLoader(arrays, 64, num_workers=2, workers="threads", seed=0), 8),
            "Python rows, no worker": (lambda: ps.DataLoader(Rows(), 64, seed=0), 2),
            "Python rows, 2 processes": (
                lambda: ps.DataLoader(Rows(), 64, num_workers=2, workers="processes", seed=0), 2,
            ),
        }  # fmt: skip
        print("### Cost of the trace that is always on\n")
        print(f"{machine()}; {versions('penstock-data', 'numpy')}; {options.rounds} rounds.\n")
        print("| loader | processor time, with / without | 95 % interval of the median | quartiles | counted |")
        print("|---|---|---|---|---|")
        call_s = measure_call_s()
        for name, (make, epochs) in cases.items():
            ratios = compare(make(), epochs, options.rounds)
            share = count_share(make(), call_s)
            reach = math.ceil(0.98 * math.sqrt(len(ratios)))
            middle = len(ratios) // 2
            low, high = ratios[max(0, middle - reach)], ratios[min(len(ratios) - 1, middle + reach)]
            first, median, third = statistics.quantiles(ratios, n=4)
            print(
                f"| {name} | {median - 1:+.2%} | {low - 1:+.2%} to {high - 1:+.2%} | "
                f"{first - 1:+.2%} to {third - 1:+.2%} | {share:.3%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
