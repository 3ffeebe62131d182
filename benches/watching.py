"""What watching costs torch's loader: processor time of the script and its workers, watched and not, in turns.

    python benches/watching.py [--rounds 10]

Processor time of a loader's whole run is compared, since other programs disturb clocks. The cost of what is done after
the run (the recording) is not part of it. Printed are the median of the ratios of neighbouring turns, their quartiles,
and the ratio of the least times.
"""

from __future__ import annotations

import argparse
import io
import resource
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from penstock.doctor.watcher import Limits, Watcher
from penstock.doctor.watching import install_all


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


def used_cpu_s() -> float:
    """Processor time of this process, and of children that have ended."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def run(make: Callable[[], Any]) -> float:
    """Processor seconds of one run over a loader and a small training."""
    before = used_cpu_s()
    weights = torch.rand(16)
    for batch in make():
        (batch.flatten()[:16] * weights).sum()
    return used_cpu_s() - before


def run_watched(make: Callable[[], Any]) -> float:
    """The same, watched."""
    watcher = Watcher(Limits(1_000_000))
    install_all(watcher)
    try:
        return run(make)
    finally:
        watcher.close()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    turns = parser.parse_args().rounds
    torch.set_num_threads(1)
    cases: dict[str, Callable[[], Any]] = {
        "photographs, 2 workers": lambda: DataLoader(Photographs(), batch_size=32, num_workers=2),
        "photographs, no worker": lambda: DataLoader(Photographs(), batch_size=32),
        "rows, 2 workers": lambda: DataLoader(Rows(), batch_size=256, num_workers=2),
    }
    for name, make in cases.items():
        run(make)
        ratios, plain, watched = [], [], []
        for turn in range(turns):
            first, second = (run, run_watched) if turn % 2 else (run_watched, run)
            times = {first: first(make)}
            times[second] = second(make)
            plain.append(times[run])
            watched.append(times[run_watched])
            ratios.append(times[run_watched] / times[run])
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name}: {middle - 1:+.2%} processor time (quartiles {low - 1:+.2%} to {high - 1:+.2%}; of the least "
            f"{min(watched) / min(plain) - 1:+.2%}; {turns} turns of {statistics.median(plain):.2f} s)"
        )


if __name__ == "__main__":
    main()
