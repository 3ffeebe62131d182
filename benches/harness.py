"""Measure candidates in turns in one run, and print the results with machine and versions.

Every script in this folder has one claim. It creates its candidates, checks that they do the same work, passes them to
:func:`in_turns`, and prints :func:`table`. ``python benches/NAME.py`` runs one script. ``make bench`` runs all of them
and collects their output in ``benches/results/<machine>.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Timing", "arguments", "images_folder", "in_turns", "jpegs", "machine", "ratio", "table", "versions"]


@dataclass
class Timing:
    """Items per second of one candidate, one number per round."""

    name: str
    unit: str
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half of the range divided by the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.median


def in_turns(
    candidates: dict[str, Callable[[], float]],
    *,
    rounds: int,
    unit: str,
    warmup: int = 1,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """Run the candidates A B C A B C ..., ``rounds`` times each after ``warmup`` rounds that are not counted.

    Each candidate is a function that does its work once and returns the number of items (images, MB). ``before`` is
    called before each of them, and not timed.
    """
    timings = {name: Timing(name, unit) for name in candidates}
    for turn in range(warmup + rounds):
        for name, run in candidates.items():
            before()
            start = time.perf_counter()
            items = run()
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                timings[name].rates.append(items / elapsed)
            print(f"  round {turn - warmup + 1:2d}/{rounds} {name:<40} {items / elapsed:10.1f} {unit}", file=sys.stderr)
    return timings


def ratio(ours: Timing, peer: Timing) -> tuple[float, float, float]:
    """(median, lowest, highest) of ours / peer for each round, so that slow changes of the machine cancel out."""
    ratios = [a / b for a, b in zip(ours.rates, peer.rates, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def table(timings: dict[str, Timing], *, against: str) -> str:
    """A Markdown table of all candidates, with the ratio to one of them."""
    peer = timings[against]
    lines = [f"| candidate | median {peer.unit} | spread | ratio (lowest - highest) |", "|---|---|---|---|"]
    for timing in timings.values():
        middle, low, high = ratio(timing, peer)
        lines.append(
            f"| {timing.name} | {timing.median:,.1f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f}) |"
        )
    return "\n".join(lines)


def machine() -> str:
    """The processor's name and the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}"


def versions(*packages: str) -> str:
    """``name version`` of each installed package, and Python's."""
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} absent")
    return ", ".join(found)


def arguments(description: str, *, rounds: int, tasks: Sequence[str] = ()) -> argparse.Namespace:
    """Parse ``--images DIR --rounds N``, the same for every script, and ``--tasks T1 T3`` for several tasks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--images", type=Path, help="folder of photographs, one sub-folder per class")
    parser.add_argument("--rounds", type=int, default=rounds, help="number of counted rounds of every candidate")
    parser.add_argument("--tasks", nargs="*", default=tasks, help="the tasks to run, if there are several")
    return parser.parse_args()


def images_folder(given: Path | None) -> Path:
    """The folder of images: the given one, ``$PENSTOCK_DATA/imagenet``, or ``../shared/data/imagenet``."""
    root = Path(__file__).resolve().parent.parent
    data = Path(os.environ.get("PENSTOCK_DATA", root.parent / "shared" / "data"))
    folder = given or data / "imagenet"
    if not folder.is_dir():
        sys.exit(f"the folder of photographs {folder} does not exist; pass another with --images DIR")
    return folder


def jpegs(folder: Path) -> Sequence[Path]:
    """All JPEGs below ``folder``, sorted."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg"})
