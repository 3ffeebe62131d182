"""Claim: watching costs torch's loader at most 2 % of its throughput.

    python benches/watching.py [--rounds 60] [--case photographs]

Two equal loaders live at the same time, one of them watched, and a small training takes batches from them in turns of a
tenth of a second or so, in changing order. Processor time is compared, of this process and of the loader's workers, as
other programs disturb clocks; and the time that passes. The threads that watch run all the time, so that what they use
in turns of the loader that is not watched is not counted there. Workers that are watched also look at themselves while
the other loader has its turn, which is counted: the cost of workers is an upper bound. Printed are the medians of the
ratios of neighbouring turns, and their quartiles. What is done at the end (the recording) is not part of it.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from penstock.doctor.block import install_all
from penstock.doctor.watching.watcher import Limits, Watcher


class Photographs(Dataset[torch.Tensor]):
    """JPEG files in memory, decoded, resized and flipped."""

    def __init__(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
        stored = io.BytesIO()
        Image.fromarray(pixels).resize((500, 375)).save(stored, "JPEG", quality=90)
        self.content = stored.getvalue()

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.content)).convert("RGB").resize((224, 224))
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float().div_(255)


class Rows(Dataset[torch.Tensor]):
    """Rows of a tensor: microseconds each."""

    def __init__(self) -> None:
        self.rows = torch.rand(256, 64)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index % 256] * 2


class SmallArrays(Dataset[torch.Tensor]):
    """Rows of an array as they are: a microsecond each."""

    def __init__(self) -> None:
        self.rows = torch.zeros(4096, 64, dtype=torch.uint8)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index % 4096]


class Endless(Sampler[int]):
    """Indices without an end, so that no turn starts workers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(self.length))


@dataclass(frozen=True)
class Case:
    """A loader, and how many batches a turn takes from it."""

    dataset: Dataset[torch.Tensor]
    batch_size: int
    batches: int

    def make(self, num_workers: int) -> DataLoader[torch.Tensor]:
        sampler = Endless(len(self.dataset))  # type: ignore[arg-type]  # those of this script have a length
        return DataLoader(self.dataset, self.batch_size, sampler=sampler, num_workers=num_workers)


@dataclass(frozen=True)
class Used:
    """What a turn has used, in nanoseconds."""

    wall: int
    cpu: int
    watching: int  # of it, by threads of this process that watch


def read_cpu_ns(pid: int) -> int:
    """Processor time of a process so far; by Linux's clock of it."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def take_turn(iterator: Any, batches: int, watcher: Watcher) -> Used:
    """Take some batches, and train a little."""

    def watching_ns() -> int:
        return int(watcher.process.sampler.cpu_ns + getattr(watcher.process.usage, "cpu_ns", 0))

    weights = torch.rand(16)
    before, start, cpu = watching_ns(), time.perf_counter_ns(), time.process_time_ns()
    for batch in itertools.islice(iterator, batches):
        (batch.flatten()[:16] * weights).sum()
    spent = time.perf_counter_ns() - start, time.process_time_ns() - cpu
    return Used(*spent, watching_ns() - before)


def compare(case: Case, num_workers: int, turns: int) -> tuple[list[float], list[float]]:
    """Ratios of processor time and of wall time, watched to not watched, of each pair of turns."""
    plain = iter(case.make(num_workers))
    loader = case.make(num_workers)
    watcher = Watcher(Limits(10**9), only=loader)
    install_all(watcher)
    try:
        watched = iter(loader)
        workers = {which: [each.pid for each in getattr(which, "_workers", [])] for which in (plain, watched)}
        for which in workers:
            next(which)
            take_turn(which, 100 if case.batches > 5 else 2, watcher)
        cpu, wall = [], []
        read = {which: sum(map(read_cpu_ns, pids)) for which, pids in workers.items()}
        for turn in range(turns):
            used = {
                which: take_turn(which, case.batches, watcher)
                for which in sorted(workers, key=id, reverse=turn % 2 == 0)
            }
            spent = {}
            for which, pids in workers.items():
                now = sum(map(read_cpu_ns, pids))
                spent[which] = used[which].cpu + now - read[which] - (used[which].watching if which is plain else 0)
                read[which] = now
            cpu.append(spent[watched] / spent[plain])
            wall.append(used[watched].wall / used[plain].wall)
        return cpu, wall
    finally:
        watcher.close()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {
        "photographs": Case(Photographs(), 32, 6),
        "Python rows": Case(Rows(), 256, 60),
        "small arrays": Case(SmallArrays(), 64, 300),
    }
    print("| loader | workers | processor time | quartiles | wall time | quartiles | pairs of turns |")
    print("|---|---:|---:|---|---:|---|---:|")
    for name, case in cases.items():
        for num_workers in (0, 1, 2) if options.case in name else ():
            columns = []
            for ratios in compare(case, num_workers, options.rounds):
                low, middle, high = statistics.quantiles(ratios, n=4)
                columns.append(f"{middle - 1:+.2%} | {low - 1:+.2%} to {high - 1:+.2%}")
            print(f"| {name} | {num_workers} | {' | '.join(columns)} | {options.rounds} |", flush=True)


if __name__ == "__main__":
    main()
