"""Runs the script itself again, as it is or changed, and measures its speed. Imports the standard library alone.

A change is another source of one of its files, which the child compiles in the place of the file's: no file is
written, and ``__file__``, tracebacks, ``sys.argv`` and relative paths are as ever. Or it is arguments that are set in
the loader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.doctor.trials.run_options import RunOptions

__all__ = ["ScriptChange", "ScriptRuns", "read_sources"]

_SLACK_S: Final = 120.0
_LEAST_S: Final = 10.0
_PARTS: Final = 6
"""A run may take so much of the budget."""


@dataclass(frozen=True, slots=True)
class ScriptChange:
    """What is different from the script."""

    sources: dict[str, str] = field(default_factory=dict)  # by the names of the files
    arguments: dict[str, object] = field(default_factory=dict)  # of loaders, set before they are iterated
    one_thread: bool = False  # of OpenMP, by the environment
    finds_workers: bool = False  # while it runs: so it runs for all of the time, of which the second half counts


class ScriptRuns:
    """Runs a script from the folder, and in the environment, in which this object was made."""

    def __init__(self, options: RunOptions, target: Sequence[str]) -> None:
        self.options, self.target = options, list(target)
        self._folder, self._environ = Path.cwd(), dict(os.environ)

    def measure_speed(self, change: ScriptChange) -> tuple[float, str]:
        """Return samples per second of the script with a change; 0 and the last line of what it said if it fails."""
        options, environ = self.options, dict(self._environ)
        if change.one_thread:
            environ["OMP_NUM_THREADS"] = "1"
        most_s = min(options.most_s, max(options.budget_s / _PARTS, _LEAST_S))
        with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as folder:
            speed, sources, said = (Path(folder) / name for name in ("speed.json", "sources.json", "said.txt"))
            sources.write_text(json.dumps(change.sources))
            again = RunOptions(
                steps=sys.maxsize if change.finds_workers else options.steps, most_s=most_s, trials=False,
                speed=str(speed), skip_s=most_s / 2 if change.finds_workers else 0.0, sources=str(sources),
                change=change.arguments,
            )  # fmt: skip
            command = [sys.executable, "-m", "penstock.doctor.run", again.to_text(), *self.target]
            try:
                with said.open("wb") as errors:
                    done = subprocess.run(  # noqa: S603  # the script that the user wants to run
                        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                        timeout=most_s + _SLACK_S, cwd=self._folder, env=environ,
                    )  # fmt: skip
            except subprocess.TimeoutExpired:
                return 0.0, "it took too long"
            if done.returncode == 0 and speed.exists():
                return float(speed.read_text()), ""
            lines = [line.strip() for line in said.read_text(errors="replace").split("\n")]
            own = [line for line in lines if line and not line.startswith("penstock doctor: ")]
            return 0.0, own[-1] if own else "it took no batches"


def read_sources(options: RunOptions) -> dict[str, str]:
    """Return the sources that take the place of files in a run, by the names of the files."""
    if options.sources is None:
        return {}
    found: dict[str, str] = json.loads(Path(options.sources).read_text())
    return found
