"""Runs the script with each candidate, in turns with the script as it is, and makes a patch of the best one.

::

    turn 1   as it is │ A │ B │ C        a candidate whose gain was once below 5 % is out
    turn 2   as it is │ C │ A            and one that was never as fast as the slowest run of another one
    turn 3   as it is │ A │ C            while two are left, or runs of one differ much, and there is time

No file is written but by :meth:`Fix.write`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import stat
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.doctor.fixes.candidates import FixCandidate, LoaderSite, advised_candidates, own_candidates
from penstock.doctor.judge.text_report import format_measured
from penstock.doctor.trials.script_runs import ScriptChange
from penstock.doctor.trials.turns import Measured
from penstock.stores.common.regular_file import replacing_file

if TYPE_CHECKING:
    from penstock.doctor.judge.text_report import Diagnosis

__all__ = ["Fix", "MeasuredChange", "compare_runs", "find_fix"]

_WORTH: Final = 1.05
_LEAST_TURNS: Final = 2
_MOST_TURNS: Final = 5
_STEADY: Final = 1.2
_MOST_ADVICE: Final = 2

Speed = Callable[[ScriptChange], tuple[float, str]]
"""Runs the script: samples per second, and why there are none."""


@dataclass(slots=True)
class MeasuredChange:
    """What running the script with one candidate has shown."""

    candidate: FixCandidate
    ratios: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def measured(self) -> Measured | None:
        """Its speed, divided by that of the script as it is."""
        ratios = self.ratios
        return Measured(statistics.median(ratios), min(ratios), max(ratios), len(ratios)) if ratios else None

    def is_gain(self) -> bool:
        """Return whether each run was faster by what is worth a change."""
        return bool(self.ratios) and min(self.ratios) >= _WORTH

    def is_steady(self) -> bool:
        """Return whether its runs differ little."""
        return max(self.ratios) <= _STEADY * min(self.ratios)

    def __str__(self) -> str:
        return f"{self.candidate.change}: {format_measured(self.measured) if self.ratios else self.error}"


def compare_runs(
    candidates: Sequence[FixCandidate], speed: Speed, budget_s: float,
    progress: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic,
) -> list[MeasuredChange]:  # fmt: skip
    """Run the script with candidates, in turns with the script as it is."""
    begun, found = clock(), [MeasuredChange(each) for each in candidates]
    running = list(found)
    for turn in range(_MOST_TURNS):
        if not running:
            break
        if progress is not None:
            progress(f"the script as it is, turn {turn + 1}")
        base, why = speed(ScriptChange())
        if not base:
            for each in running:
                each.error = f"the script as it is could not be run again: {why}"
            break
        for each in running if turn % 2 == 0 else reversed(running):
            if progress is not None:
                progress(f"the script with {each.candidate.change}, turn {turn + 1}")
            reached, each.error = speed(each.candidate.trial)
            each.ratios = [*each.ratios, reached / base] if reached else []
        running = [each for each in running if each.is_gain()]
        if turn + 1 >= _LEAST_TURNS:  # one run may be fast by chance
            best = max((min(each.ratios) for each in running), default=0.0)
            running = [each for each in running if max(each.ratios) >= best]
            if clock() - begun > budget_s or (len(running) == 1 and running[0].is_steady()):
                break
    return found


@dataclass(slots=True)
class Fix:
    """What was tried, and the best of it."""

    tried: list[MeasuredChange]
    refused: list[str]  # changes that could not be written, and why

    @property
    def best(self) -> MeasuredChange | None:
        """The change with the greatest gain, of those that gained in each of two runs or more."""
        gains = [each for each in self.tried if each.is_gain() and len(each.ratios) >= _LEAST_TURNS]
        return max(gains, key=lambda each: statistics.median(each.ratios), default=None)

    @property
    def diff(self) -> str:
        """The best change as a patch of the file; "" if no file is edited."""
        candidate = self.best.candidate if self.best is not None else None
        if candidate is None or candidate.file is None:
            return ""
        path = Path(candidate.file.name)
        is_near = path.is_relative_to(Path.cwd())
        name, sides = (path.relative_to(Path.cwd()), ("a/", "b/")) if is_near else (path, ("", ""))
        before, after = (re.findall(r"[^\n]*\n|[^\n]+$", text) for text in (candidate.file.text, candidate.edited))
        lines = difflib.unified_diff(before, after, f"{sides[0]}{name}", f"{sides[1]}{name}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def __str__(self) -> str:
        tried = [*map(str, self.tried), *self.refused]
        if self.best is None:
            none = f"No change that was tried makes the script faster by {_WORTH - 1:.0%}"
            return "\n".join([f"{none}{':' if tried else '.'}", *(f"  {each}" for each in tried)])
        best, others = self.best, [each for each in tried if each != str(self.best)]
        lines = [
            f"Fix: {best.candidate.change}",
            f"     the script itself, run again: {format_measured(best.measured)}",
            *(f"     tried too: {each}" for each in others),
        ]
        return "\n".join([*lines, *([f"     goes into {best.candidate.where}"] if not self.diff else ["", self.diff])])

    def to_json(self, *, written: bool = False) -> dict[str, object]:
        """Return it as numbers, text and lists."""
        best = self.best
        return {
            "file": "" if best is None or best.candidate.file is None else best.candidate.file.name,
            "diff": self.diff,
            "written": written,
            **_describe(best),
            "tried": [{**_describe(each), "error": each.error} for each in self.tried],
            "refused": self.refused,
        }

    def write(self) -> str:
        """Write the file, and keep the one before beside it as ``.orig``; returns what was done in a sentence.

        Raises OSError if the file has changed since it was read, or if another ``.orig`` is there.
        """
        if self.best is None or self.best.candidate.file is None:
            raise OSError("there is no change of a file")
        file, edited = self.best.candidate.file, self.best.candidate.edited
        path = Path(file.name).resolve()
        kept = path.with_name(f"{path.name}.orig")
        if kept.exists() and kept.read_bytes() != file.content:
            raise OSError(f"{kept} is there already, with other content")
        if path.read_bytes() != file.content:
            raise OSError(f"{path} has changed since it was read")
        for target, content in ((kept, file.content), (path, edited.encode(file.encoding))):
            with replacing_file(target) as new:
                new.write(content)
                os.fchmod(new.fileno(), stat.S_IMODE(path.stat().st_mode))
        return f"{path} is changed; {kept.name} beside it is what it was"


def find_fix(
    diagnosis: Diagnosis, site: LoaderSite, speed: Speed, budget_s: float, progress: Callable[[str], None]
) -> Fix:
    """Try the first advice that is a line of code, and what no advice says.

    The gains of advice become those of the script itself.
    """
    advised = list(advised_candidates(diagnosis.advice, site))[:_MOST_ADVICE]
    own = list(own_candidates(site))
    candidates = [*advised, *(each for each in own if isinstance(each, FixCandidate))]
    found = compare_runs(candidates, speed, budget_s, progress=progress)
    for each in found:
        number = each.candidate.advice
        if number >= 0 and each.ratios:
            diagnosis.advice[number] = dataclasses.replace(diagnosis.advice[number], measured=each.measured)
    return Fix(found, [each for each in own if isinstance(each, str)])


def _describe(each: MeasuredChange | None) -> dict[str, object]:
    measured = None if each is None else each.measured
    return {
        "change": "" if each is None else each.candidate.change,
        "measured": None if measured is None else measured.median,
        "spread": None if measured is None else [measured.lowest, measured.highest],
        "runs": 0 if measured is None else measured.count,
    }
