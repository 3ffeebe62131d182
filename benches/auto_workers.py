"""Claim: ``num_workers="auto"`` comes near to the best fixed number of workers, 0 to 6, in twenty situations.

Each situation is a dataset, a step of the loop and a kind of workers. Fixed numbers run for two seconds each; auto runs
for 25 seconds, and is then measured again and again, and after it the better of the best two fixed numbers as often.
"settled": the second of the last change before it was measured. Run it while nothing else runs.
``--tasks NAME`` measures some of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import arguments, images_folder, machine, versions

import penstock as ps
from penstock import transforms as T


class Items(ps.Dataset):
    """Samples whose cost is a function's; each has its index."""

    def __init__(self, work: Callable[[int], object], size: int = 64) -> None:
        self.work, self.size = work, size

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> np.ndarray:
        self.work(index)
        return np.full(self.size, index, np.float32)


def sleeps(seconds: float) -> Callable[[int], object]:
    """A disk or a network that answers late."""
    return lambda _: time.sleep(seconds)


def counts(number: int) -> Callable[[int], object]:
    """Work in Python, which holds the lock."""
    return lambda _: sum(range(number))


def sorts(number: int) -> Callable[[int], object]:
    """Work in NumPy, which does not."""
    return lambda index: np.sort(np.random.default_rng(index).random(number))


class Disk:
    """A disk that serves one request after the other."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.lock = seconds, threading.Lock()

    def __call__(self, _: int) -> None:
        time.sleep(self.seconds)
        with self.lock:
            time.sleep(self.seconds)


class Later:
    """Samples that become ten times the work after some seconds."""

    def __init__(self, after_s: float) -> None:
        self.end = time.monotonic() + after_s

    def __call__(self, index: int) -> None:
        np.sort(np.random.default_rng(index).random(2_000 if time.monotonic() < self.end else 20_000))


class Large:
    """A worker process that takes 200 MB."""

    held: Any = None

    def __call__(self, _: int) -> None:
        if self.held is None:
            self.held = np.ones(25_000_000)
        sum(range(20_000))


def nothing(_: int) -> None:
    """The loop only takes batches."""


def waits(seconds: float) -> Callable[[int], None]:
    """A step on a device."""
    return lambda _: time.sleep(seconds)


def bursts(batch: int) -> None:
    """A pause after thirty batches: a checkpoint, or a log."""
    if batch % 30 == 29:
        time.sleep(0.2)


def computes(_: int) -> None:
    """A step that takes a core."""
    sum(range(300_000))


@contextmanager
def one_core_taken() -> Iterator[None]:
    """Another program."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


@contextmanager
def cores_cut() -> Iterator[None]:
    """One core of two for the rest of the run, from a third of it on."""
    every = os.sched_getaffinity(0)
    timer = threading.Timer(CUT_S, lambda: _pin({min(every)}))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _pin(every)


def _pin(cores: set[int]) -> None:
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


@contextmanager
def alone() -> Iterator[None]:
    """Nothing else runs."""
    yield


@dataclass
class Situation:
    """What a loader is used for."""

    make: Callable[[], Any]
    step: Callable[[int], None] = nothing
    batch: int = 16
    options: dict[str, Any] = field(default_factory=dict)
    beside: Callable[[], Any] = alone


CUT_S = 8.0


def situations(images: Path) -> dict[str, Situation]:
    """The twenty."""
    threads, processes = {"workers": "threads"}, {"workers": "processes"}

    def photographs() -> Any:
        ops = [T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip(), T.ToLayout("CHW")]
        one = ps.StoreDataset(str(images), ("image", "label"), ops)
        return ps.ConcatDataset([one] * 1000)

    return {
        "sleeps 2 ms, threads": Situation(lambda: Items(sleeps(0.002)), options=threads),
        "sleeps 2 ms, processes": Situation(lambda: Items(sleeps(0.002)), options=processes),
        "sleeps 20 ms": Situation(lambda: Items(sleeps(0.02)), options=threads),
        "object storage, 50 ms": Situation(lambda: Items(sleeps(0.05)), options=threads, batch=4),
        "slow disk": Situation(lambda: Items(Disk(0.001)), options=threads),
        "Python, processes": Situation(lambda: Items(counts(20_000)), options=processes),
        "Python, threads": Situation(lambda: Items(counts(20_000)), options=threads),
        "NumPy, threads": Situation(lambda: Items(sorts(20_000)), options=threads),
        "photographs": Situation(photographs, batch=64),
        "photographs, step of a device": Situation(photographs, waits(0.03), batch=64),
        "photographs, step on a core": Situation(photographs, computes, batch=64),
        "photographs, bursts": Situation(photographs, bursts, batch=16),
        "photographs, one core taken": Situation(photographs, batch=64, beside=one_core_taken),
        "photographs, cores cut": Situation(photographs, batch=64, beside=cores_cut),
        "tiny batches, threads": Situation(lambda: Items(counts(1), 1), options=threads, batch=1),
        "tiny batches, processes": Situation(lambda: Items(counts(1), 1), options=processes, batch=1),
        "huge batches": Situation(lambda: Items(counts(1), 1_000_000), options=threads),
        "long steps": Situation(lambda: Items(sorts(2_000)), waits(0.1), options=threads),
        "200 MB a process": Situation(lambda: Items(Large()), options={**processes, "memory_fraction": 0.02}),
        "later samples cost more": Situation(lambda: Items(Later(CUT_S)), options=threads),
    }


def run(situation: Situation, workers: int | str, spans: list[float]) -> tuple[list[float], float, str]:
    """Samples per second in each of the spans of seconds, the second of the last change, and the setting."""
    options = dict(situation.options) if workers else {}
    if workers == "auto":
        options["prefetch_factor"] = "auto"
    else:
        options.pop("memory_fraction", None)
    rates, step, batches, settled_s, changes = [], situation.step, 0, 0.0, 0
    with situation.beside():
        loader = ps.DataLoader(situation.make(), situation.batch, num_workers=workers, seed=0, **options)
        iterator, begin = iter(loader), time.perf_counter()
        tuner = loader._counters.tuner  # noqa: SLF001  # what it changes
        for seconds in spans:
            start, samples = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                next(iterator)
                step(batches)
                batches, samples = batches + 1, samples + situation.batch
                if tuner is not None and not rates and len(tuner.changes) != changes:
                    changes, settled_s = len(tuner.changes), time.perf_counter() - begin
            rates.append(samples / (time.perf_counter() - start))
        iterator.close()
    return rates, settled_s, "" if tuner is None else tuner.describe()


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=2)
    seconds, settle = 2.0, 25.0
    print(f"{machine()}; {versions('penstock-data', 'numpy')}\n")
    print("| situation | best fixed | auto / best (spread) | settled | found |\n|---|---|---|---|---|")
    for name, situation in situations(images_folder(options.images)).items():
        if options.tasks and name not in options.tasks:
            continue
        begin = [CUT_S + 1] if "cut" in name or "later" in name else []
        fixed = {n: run(situation, n, [*begin, seconds])[0][-1] for n in range(7)}
        best = sorted(fixed, key=fixed.__getitem__)[-2:]
        rates, settled, found = run(situation, "auto", [settle, *[seconds] * options.rounds])
        again = [max(run(situation, n, [*begin, seconds])[0][-1] for n in best) for _ in range(options.rounds)]
        ratios = sorted(a / b for a, b in zip(rates[1:], again, strict=True))
        middle = ratios[len(ratios) // 2]
        print(
            f"| {name} | {best[-1]} | {middle:.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f}) | {settled:.0f} s | {found} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
