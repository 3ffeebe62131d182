"""Changes against the present loader, in turns: what disturbs the machine for a while disturbs both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import Trial, run_trial

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["Measured", "Turns"]

_FEWEST: Final = 2
"""Runs of a change after which its spread is believed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A value that was measured several times."""

    median: float
    lowest: float
    highest: float
    """``median``, ``lowest`` and ``highest``: of the repetitions."""
    count: int  # how many there were

    def scaled(self, factor: float) -> Measured:
        """Return the values times ``factor``."""
        return Measured(self.median * factor, self.lowest * factor, self.highest * factor, self.count)


@dataclass(slots=True)
class Turns:
    """Runs of a loader and of changes of it.

    Attributes
    ----------
    present : list of Trial
        The present setting, turn by turn.
    ratios : list of list of float
        For each change its speed divided by the present one's in the same turn.
    errors : list of str
        For each change why it could not be tried; empty if it was.
    """

    loader: WatchedLoader  # the present one; see :func:`~penstock.doctor.trials.trials.run_trial`
    changes: Sequence[Change]  # the most promising first: where time runs out, the last ones are not tried
    step: StepShape  # how long the trainer holds each batch
    run_s: float  # seconds of one run
    budget_s: float  # seconds of all runs together
    progress: Callable[[str], None] | None = None  # told in words what runs
    run_one: Callable[..., Trial] = run_trial
    clock: Callable[[], float] = time.perf_counter
    present: list[Trial] = field(default_factory=list)
    ratios: list[list[float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _deadline: float = 0.0
    _longest_s: float = 0.0

    def run(self, most: int) -> None:
        """Take up to ``most`` turns, as time allows."""
        self._deadline = self.clock() + self.budget_s
        self.ratios = [[] for _ in self.changes]
        self.errors = ["there was no time left"] * len(self.changes)
        for turn in range(most):
            # A failed change is not tried again; after the first turn only whole turns are begun.
            runnable = [number for number, ratios in enumerate(self.ratios) if ratios or not turn]
            if not runnable or (turn and self._left_s < (1 + len(runnable)) * self._longest_s):
                return
            if not self._take_turn(turn, runnable if turn % 2 == 0 else runnable[::-1]) or self._is_clear:
                return

    @property
    def _is_clear(self) -> bool:
        """Whether the best change is ahead of the others and of the present setting, or none brings anything."""
        ranges = sorted((min(ratios), max(ratios)) for ratios in self.ratios if len(ratios) >= _FEWEST)
        if not ranges:
            return False
        lowest = ranges[-1][0]
        return lowest > max([1.0, *(highest for _, highest in ranges[:-1])]) or all(
            highest < 1 for _, highest in ranges
        )

    def measured(self, most: float = math.inf) -> list[Measured | None]:
        """The ratios of each change, without those above ``most``; None if it was not measured."""
        found: list[Measured | None] = []
        for number, every in enumerate(self.ratios):
            ratios = [ratio for ratio in every if ratio <= most]
            if every and not ratios:
                self.errors[number] = "runs of this length differ too much"
            found.append(Measured(statistics.median(ratios), min(ratios), max(ratios), len(ratios)) if ratios else None)
        return found

    @property
    def _left_s(self) -> float:
        return self._deadline - self.clock()

    def _take_turn(self, turn: int, numbers: Sequence[int]) -> bool:
        """Run the present setting and the changes ``numbers``; False if the present one gives nothing."""
        base = self._run(turn, Change())
        if base is None:
            return False
        if not base.batches_per_s:
            self.errors = [f"the present setting: {base.error or 'nothing was delivered in time'}"] * len(self.changes)
            return False
        self.present.append(base)
        for number in numbers:
            trial = self._run(turn, self.changes[number])
            if trial is None:
                return True
            if trial.error or not trial.batches_per_s:
                self.errors[number] = trial.error or "nothing was delivered in time"
            else:
                self.ratios[number].append(trial.batches_per_s / base.batches_per_s)
                self.errors[number] = ""
        return True

    def _run(self, turn: int, change: Change) -> Trial | None:
        if self._left_s < max(self._longest_s, self.run_s):
            return None
        if self.progress is not None:
            self.progress(f"turn {turn + 1}: {change}")
        begun = self.clock()
        limit_s = min(self._left_s, 4 * self.run_s + 10)
        trial = self.run_one(self.loader, TrialOrder(change, self.step, self.run_s, limit_s, seed=turn))
        self._longest_s = max(self._longest_s, self.clock() - begun)
        return trial
