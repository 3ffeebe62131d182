"""What the programs of stages share: their arguments, figures with quartiles, results that outlive a killed process.

A stage calls :func:`run_stage` with a function. The function gets a :class:`Stage`, adds what it has found to
``stage.found``, and calls ``stage.save()`` after each part: the session reads the file also when the process has been
killed. ``raise Skipped("sentence")`` ends a stage that cannot run on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Skipped", "Stage", "figure", "run_stage", "use_cores", "write_json"]


class Skipped(Exception):  # noqa: N818  # no error: a stage that has nothing to do here
    """One sentence that says why a stage, or a part of it, does not run on this machine."""


@dataclass
class Stage:
    """What a stage is given, and what it has found.

    Parameters
    ----------
    work : Path
        The unpacked folder: photographs.lmdb, malformed, tests.
    result : Path
        Where :meth:`save` writes.
    seconds : float
        The time that the stage may take, from its start.
    rehearse : bool
        Whether the kernels run on the processor, with few images.
    """

    work: Path
    result: Path
    seconds: float
    rehearse: bool
    found: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.started + self.seconds - time.monotonic()

    def save(self) -> None:
        """Write what was found until now."""
        write_json(self.result, self.found)

    def choose(self, measured: int, rehearsed: int) -> int:
        """A count: of a session, or of its rehearsal."""
        return rehearsed if self.rehearse else measured


def run_stage(run: Callable[[Stage], None], argv: Sequence[str] | None = None) -> None:
    """Run a stage with the arguments of the command line, and write what it found."""
    parser = argparse.ArgumentParser(description="A stage of benches/device_session.sh, which calls it.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args(argv)
    stage = Stage(given.work, given.result, given.seconds, given.rehearse)
    try:
        run(stage)
    except Skipped as reason:
        stage.found["skipped"] = str(reason)
    finally:
        stage.save()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # libraries of rivals may hang, or crash, in their exit handlers


def write_json(path: Path, content: object) -> None:
    """Write a file that is complete at any time."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    partial.replace(path)


def figure(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Median and quartiles of repeated measurements."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    numbers = {"median": middle, "low_quartile": low, "high_quartile": high}
    return {name: float(f"{number:.6g}") for name, number in numbers.items()} | {"n": len(values), "unit": unit}


def use_cores(count: int) -> bool:
    """Let this process, and what it starts, run on ``count`` processor cores; False if there are fewer.

    Called before NumPy or torch are imported, whose numbers of threads follow.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < count:
        return False
    os.sched_setaffinity(0, allowed[:count])
    os.environ["OMP_NUM_THREADS"] = str(count)
    return True
