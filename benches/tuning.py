"""Claim: tune finds a setting within 5 % of the best of a full grid, in a tenth of the grid's time.

Three loaders: one that computes, one that waits for a disk, one that does both with batches of megabytes. The grid is
0 to 8 workers with 2, 4 and 8 batches ahead. Each setting is measured in several turns with the same trials that
tune uses, so both pay the same for starting workers. The setting that tune chooses is then measured again with the
best of the grid, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from penstock import doctor
from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import run_trial

WORKERS = (0, 1, 2, 3, 4, 6, 8)
PREFETCH = (2, 4, 8)


class Samples(Dataset[torch.Tensor]):
    """Samples that compute and wait."""

    def __init__(self, cpu_ms: float, wait_ms: float, numbers: int) -> None:
        self.cpu_ms, self.wait_ms, self.numbers = cpu_ms, wait_ms, numbers

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.thread_time() + self.cpu_ms / 1e3
        while time.thread_time() < end:
            pass
        if self.wait_ms:
            time.sleep(self.wait_ms / 1e3)
        return torch.zeros(self.numbers)


def measure(loader: Any, setting: tuple[int, int], step_s: float, run_s: float) -> float:
    workers, prefetch = setting
    change = Change({"num_workers": workers, "prefetch_factor": prefetch if workers else None})
    return run_trial(loader, TrialOrder(change, StepShape(step_s * 1e9), run_s, 4 * run_s + 20)).batches_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run-s", type=float, default=2.0)
    options = parser.parse_args()
    cases = {"computes": (2.0, 0.0, 1000), "waits": (0.1, 5.0, 1000), "both": (1.0, 2.0, 50_000)}
    print("| loader | grid | tune | tune / grid, time | chosen | best of the grid | chosen / best, speed |")
    print("|---|---|---|---|---|---|---|")
    for name, case in cases.items():
        loader, step_s = DataLoader(Samples(*case), batch_size=16, num_workers=1), 0.01
        grid = [(workers, prefetch) for workers in WORKERS for prefetch in (PREFETCH if workers else (0,))]
        begun = time.perf_counter()
        speeds: dict[tuple[int, int], list[float]] = {setting: [] for setting in grid}
        for turn in range(options.rounds):
            for setting in grid if turn % 2 == 0 else reversed(grid):
                speeds[setting].append(measure(loader, setting, step_s, options.run_s))
        grid_s = time.perf_counter() - begun
        best = max(speeds, key=lambda setting: statistics.median(speeds[setting]))
        tuning = doctor.tune(loader, step_s=step_s, budget_s=grid_s / 10)
        chosen = (tuning.best.num_workers, tuning.best.prefetch_factor)
        ratios = []
        for _ in range(5):
            pair = [measure(loader, setting, step_s, options.run_s) for setting in (chosen, best)]
            ratios.append(pair[0] / pair[1])
        print(
            f"| {name} | {grid_s:.0f} s | {tuning.seconds:.0f} s | {tuning.seconds / grid_s:.2f} | {chosen} | {best} | "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
