"""Measure candidates in turns in one run, and say what was measured on what.

Every script in this folder is one claim: it builds its candidates, checks that they do the same work, hands
them to :func:`in_turns`, and prints :func:`table`. ``python benches/NAME.py`` runs one; ``make bench`` runs all and
collects what they print into ``benches/results/<machine>.md``.
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
    """Items per second of one candidate, one figure a round."""

    name: str
    unit: str
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the range over the median: +- this share."""
        return (max(self.rates) - min(self.rates)) / 2 / self.median


def in_turns(
    candidates: dict[str, Callable[[], float]], *, rounds: int, unit: str, warmup: int = 1
) -> dict[str, Timing]:
    """Run the candidates A B C A B C ..., ``rounds`` times each after ``warmup`` uncounted rounds.

    Each candidate is a function that does its work once and returns how many items (images, MB) it did.
    """
    timings = {name: Timing(name, unit) for name in candidates}
    for turn in range(warmup + rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            items = run()
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                timings[name].rates.append(items / elapsed)
            print(f"  round {turn - warmup + 1:2d}/{rounds} {name:<40} {items / elapsed:10.1f} {unit}", file=sys.stderr)
    return timings


def ratio(ours: Timing, peer: Timing) -> tuple[float, float, float]:
    """(median, lowest, highest) of ours / peer, round by round, so that a drifting machine cancels out."""
    ratios = [a / b for a, b in zip(ours.rates, peer.rates, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def table(timings: dict[str, Timing], *, against: str) -> str:
    """A Markdown table of all candidates with the ratio against one of them."""
    peer = timings[against]
    lines = [f"| candidate | median {peer.unit} | spread | ratio (lowest - highest) |", "|---|---|---|---|"]
    for timing in timings.values():
        middle, low, high = ratio(timing, peer)
        lines.append(
            f"| {timing.name} | {timing.median:,.1f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f}) |"
        )
    return "\n".join(lines)


def machine() -> str:
    """The processor's name and how many cores this process may use."""
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
    """``--images DIR --rounds N``, the same for every script; ``--tasks T1 T3`` where there are several."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--images", type=Path, help="folder of photographs, one sub-folder a class")
    parser.add_argument("--rounds", type=int, default=rounds, help="counted rounds of every candidate")
    parser.add_argument("--tasks", nargs="*", default=tasks, help="which of the tasks, where there are several")
    return parser.parse_args()


def images_folder(given: Path | None) -> Path:
    """The folder to measure on: the given one, ``$PENSTOCK_DATA/imagenet``, or ``../shared/data/imagenet``."""
    root = Path(__file__).resolve().parent.parent
    data = Path(os.environ.get("PENSTOCK_DATA", root.parent / "shared" / "data"))
    folder = given or data / "imagenet"
    if not folder.is_dir():
        sys.exit(f"no folder of photographs at {folder}: name one with --images DIR")
    return folder


def jpegs(folder: Path) -> Sequence[Path]:
    """Every JPEG below ``folder``, sorted."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg"})
