"""Model: how many images per second T1 (RandomResizedCrop to 224) gives on more cores than this machine has.

Measured here, each in several rounds: the native time of an image with one thread and with two (which share caches and
memory), and the time for which the interpreter's lock is held (``overhead.py``): all that is not the native fill, with
a fill that returns at once; and all that is neither the real fill, which leaves cold caches, nor the native search for
records.
Threads and the lock are a closed queueing network with one server: M. Reiser, S. Lavenberg, "Mean-value analysis of
closed multichain queuing networks", J. ACM 27 (1980). Memory is a ceiling: the bytes that an image moves, and 100 to
300 GB/s, which sockets have.

The low figure takes the worst of what was measured: the lock's time with the real fill, and a native time that grows by
thread as it did from one to two, up to eight threads. The high one takes the best. It is a model, not a measurement. It
says nothing about threads of one core, several sockets, or what else the machine does.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cold_pack import make_pack
from harness import arguments, images_folder, jpegs, machine, versions
from numpy.typing import NDArray
from overhead import cost_us, real_cost_us
from train_input import pipeline

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys

THREADS = (2, 8, 16, 32, 96)
SIDE = 224
CHUNK = 32
MEMORY_GB_S = (100, 300)
SHARED = 8
"""Threads up to which a native time grows: those that share a third-level cache."""


def time_native(images: Sequence[bytes], threads: int) -> float:
    """Microseconds of a thread for an image: the native fill alone, with crops drawn in advance."""
    drawn = T.Pipeline([T.Decode(), T.RandomResizedCrop(SIDE)]).compile("image")
    geometry = drawn.plan(SampleKeys(0, 0, np.arange(len(images))), _native.sizes(images)).geometry

    batches: list[NDArray[np.float32]] = [np.zeros((CHUNK, 3, SIDE, SIDE), np.float32) for _ in range(threads)]

    def run(out: NDArray[np.float32]) -> None:
        for start in range(0, len(images) - CHUNK + 1, CHUNK):
            some = slice(start, start + CHUNK)
            _native.fill(images[some], geometry[some], out, np.arange(CHUNK), layout="CHW", filter="bilinear",
                         scale=(0.017,) * 3, offset=(-2.0,) * 3)  # fmt: skip

    begun = time.perf_counter()
    started = [threading.Thread(target=run, args=(out,)) for out in batches]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return (time.perf_counter() - begun) * 1e6 / (len(images) // CHUNK * CHUNK)


def open_pack(pack: Path) -> ps.ConcatDataset:
    """The photographs, five times, without checksums."""
    data = ps.StoreDataset(ps.open(pack, check=False), fields=("image", "label"), transform=pipeline("train"))
    return ps.ConcatDataset([data] * 5)


def images_per_s(threads: int, native_us: float, lock_us: float) -> float:
    """Mean-value analysis of ``threads`` that alternate between native work and one lock."""
    waiting, rate = 0.0, 0.0
    for count in range(1, threads + 1):
        response = lock_us * (1 + waiting)
        rate = count / (native_us + response)
        waiting = rate * response
    return rate * 1e6


def main() -> None:
    """Measure, and print the model's figures."""
    options = arguments(__doc__, rounds=7)
    folder = images_folder(options.images)
    images = [path.read_bytes() for path in jpegs(folder)]
    native: dict[int, list[float]] = {1: [], 2: []}
    lock: dict[int, list[float]] = {1: [], 2: []}
    cold: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as scratch:
        data = open_pack(make_pack(folder, Path(scratch)))
        for _ in range(1 + options.rounds):
            for threads in (1, 2):
                native[threads].append(time_native(images, threads))
                lock[threads].append(cost_us(data, threads))
                cold[threads].append(real_cost_us(data, threads)[1])
    (n1, n2), best, worst = ([float(np.median(values[k][1:])) for k in (1, 2)] for values in (native, lock, cold))
    print(f"{machine()}; {versions('numpy')}\n")
    print("| | one thread | two threads |\n|---|---|---|")
    for name, values in (
        ("native time of an image, us", native),
        ("the rest, with a fill that returns at once, us", lock),
        ("the rest, with the real fill and search for records, us", cold),
    ):
        cells = [
            f"{np.median(values[k][1:]):.1f} ({min(values[k][1:]):.1f} to {max(values[k][1:]):.1f})" for k in (1, 2)
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} |")
    read = sum(map(len, images)) / len(images)
    moved = {
        "float32": read + 2 * 12 * SIDE * SIDE,
        "uint8": read + 2 * 3 * SIDE * SIDE,
    }  # a written line is read first
    print("\n| threads | images/s, low to high | ceiling of memory, float32 | uint8 |\n|---|---|---|---|")
    growth = max(n2 / n1 - 1, 0.0)
    for threads in THREADS:
        low = images_per_s(threads, n1 * (1 + growth * (min(threads, SHARED) - 1)), max(worst))
        high = images_per_s(threads, n1, min(best))
        ceilings = [
            f"{MEMORY_GB_S[0] * 1e9 / each:,.0f} to {MEMORY_GB_S[1] * 1e9 / each:,.0f}" for each in moved.values()
        ]
        print(f"| {threads} | {low:,.0f} to {high:,.0f} | {ceilings[0]} | {ceilings[1]} |")


if __name__ == "__main__":
    main()
