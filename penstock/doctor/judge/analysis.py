"""From a recording to a diagnosis: stages, model, advice, trials, verdict.

::

    Recording ─> examine ─> Situation ─> find_limit ─> candidates, predicted by the model
                                                            │ tried in child processes, while there is time
                                                            v
                                        decide ─> Verdict, Advice ─> Diagnosis

Called by :func:`penstock.doctor.watch` and ``penstock doctor`` when the script has ended.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.doctor.judge.advice import CANDIDATES
from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.situation import Situation, count_threads, examine, rename_copies
from penstock.doctor.judge.stage_costs import find_slow_samples
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.judge.traps import find_traps, name_in_verdict
from penstock.doctor.judge.verdict import decide, find_limit
from penstock.doctor.trials.changed_loader import Change, NotApplicableError
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import Trial, run_trial
from penstock.doctor.trials.turns import Measured, Turns
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.steps.batch_places import BatchPlaces

__all__ = ["diagnose"]

_WORTH: Final = 1.05
"""Least gain of an advice."""
_MOST_TRIALS: Final = 5
_TURNS: Final = 5
_ALWAYS_TRIED: Final = frozenset({"worker-threads", "fewer-workers"})
"""Candidates that are tried although the model sees no gain: it knows no cost of many threads."""
_BY_LIMIT: Final = {"copy": {"pin_memory", "uint8"}, "trainer": {"main-threads"}}
"""Which candidates there are for a limit; for others all."""
_MUCH_DOUBT: Final = 0.5
_UNTRIED: Final = 3
_TRAPS_S: Final = 6.0
"""Most seconds in which the cost of known mistakes is measured."""
_IMPOSSIBLE: Final = 1.5
"""More than so many times what a loader that costs nothing gains: the run was too short for its rare slow batches."""
_OVERHEAD_S: Final = 1.0
"""Of a run: its workers start, and it takes a first round and a last batch."""
_CONCENTRATED: Final = 0.5
"""Part of the waiting that falls on few steps, from which on rare batches are slow."""


def diagnose(
    recording: Recording,
    loader: object = None,
    *,
    places: BatchPlaces | None = None,
    budget_s: float = 60.0,
    trials: bool = True,
    progress: Callable[[str], None] | None = None,
    run_one: Callable[..., Trial] = run_trial,
) -> Diagnosis:
    """Say what limits a script, what to change, and what that brings.

    Parameters
    ----------
    recording : Recording
        What was observed.
    loader : DataLoader, optional
        The loader that was watched, of torch or penstock. It is iterated in forked children only. Without it nothing is
        tried.
    places : BatchPlaces, optional
        Where the script took batches of the loader: the source there is examined for known mistakes.
    budget_s : float
        Most seconds for trials.
    trials : bool
        Whether to try changes.
    progress : callable, optional
        Told in words what is tried.
    run_one : callable
        Runs a trial.

    Returns
    -------
    Diagnosis
        With ``advice`` that brings 5 % or more: measured where it could be tried, else predicted.
    """
    deadline = time.perf_counter() + budget_s
    situation = examine(recording, loader)
    work = _Work(situation, deadline if trials and loader is not None else 0.0, progress, run_one)
    work.drain_alone()
    situation = work.situation
    limit = find_limit(situation)
    if limit != "nothing":
        work.find_candidates(limit)
        work.try_candidates()
    verdict = decide(situation, limit, work.candidates)
    advice = [] if verdict.stage in {"none", "step"} else work.choose_advice()
    findings = find_traps(loader, places, recording, work.notes, trial_s=min(_TRAPS_S, work.left_s))
    verdict = replace(verdict, text=verdict.text + name_in_verdict(verdict, findings))
    samples = find_slow_samples(recording)
    return Diagnosis(verdict, situation.stages, advice, samples, findings, work.notes, recording)


@dataclass(slots=True)
class _Work:
    """What is done for one diagnosis, and what came of it."""

    situation: Situation
    deadline: float
    progress: Callable[[str], None] | None
    run_one: Callable[..., Trial] = run_trial
    candidates: dict[str, Advice] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unreadable: str = ""
    """Why the loader gave nothing when it was drained alone."""

    @property
    def left_s(self) -> float:
        """Seconds that are left for trials."""
        return max(self.deadline - time.perf_counter(), 0.0)

    def drain_alone(self) -> None:
        """Measure the loader without a trainer."""
        situation = self.situation
        if not situation.steps.delivered or self.left_s < 2:
            return
        if self.progress is not None:
            self.progress("the loader alone")
        run_s = min(2.0, self.left_s / 8)
        trial = self.run_one(situation.loader, TrialOrder(Change(), StepShape(), run_s, min(self.left_s, 15.0 + run_s)))
        if trial.error:
            self.unreadable = trial.error
            ended = "The script has ended, and its" if situation.recording.ended == "finished" else "The"
            self.notes.append(f"{ended} dataset could not be read again, so nothing was tried: {trial.error}")
        elif not trial.batches:
            self.unreadable = "the loader delivers nothing in a child process"
            self.notes.append("The loader delivered nothing in a child process of the script, so nothing was tried.")
        elif trial.batches_per_s:
            situation.alone, situation.nbytes = trial.batches_per_s * situation.steps.samples, trial.batch_nbytes
            self.situation = rename_copies(situation)

    def find_candidates(self, limit: str) -> None:
        """Ask every file of advice what may help."""
        wanted = _BY_LIMIT.get(limit)
        for rule in CANDIDATES:
            for found in CANDIDATES.get(rule)(self.situation):
                candidate: Advice = found
                if wanted is not None and candidate.rule not in wanted:
                    continue
                factor = self._factor(candidate)
                if factor != 1:
                    candidate = replace(candidate, predicted=factor * candidate.predicted, doubt=_MUCH_DOUBT)
                self.candidates.setdefault(candidate.rule, candidate)

    def try_candidates(self) -> None:
        """Try the most promising, and keep what was measured."""
        situation = self.situation
        promising = [
            candidate
            for candidate in self.candidates.values()
            if candidate.trial is not None and (candidate.predicted >= _WORTH or candidate.rule in _ALWAYS_TRIED)
        ]
        promising.sort(key=lambda candidate: (candidate.rule not in _ALWAYS_TRIED, -candidate.predicted))
        promising = promising[:_MOST_TRIALS]
        if self.unreadable:
            self.errors = {candidate.rule: self.unreadable for candidate in promising}
        if not promising or self.left_s < 3 or self.unreadable:
            return
        run_s = self._choose_run_s(len(promising))
        changes = [candidate.trial for candidate in promising if candidate.trial is not None]
        turns = Turns(situation.loader, changes, situation.shape, run_s, self.left_s, self.progress, self.run_one)
        turns.run(_TURNS)
        speeds = [trial.batches_per_s for trial in turns.present]
        present = statistics.median(speeds) * situation.steps.samples if speeds else 0.0
        most = _IMPOSSIBLE * max(situation.gain_limit, 1.0)
        for candidate, ratio, error in zip(promising, turns.measured(most), turns.errors, strict=True):
            if ratio is None and NotApplicableError.__name__ in error:
                del self.candidates[candidate.rule]
            elif ratio is None:
                self.errors[candidate.rule] = error
            else:
                measured = ratio.scaled(self._factor(candidate, present))
                self.candidates[candidate.rule] = replace(candidate, measured=measured)
        if speeds:
            self._compare_with_script(present)

    def _why_untried(self, candidate: Advice) -> str:
        if candidate.trial is None:
            return "it changes code or files of yours"
        return "there was no time left" if self.deadline else "no trials were asked for"

    def _factor(self, candidate: Advice, present: float = 0.0) -> float:
        """Return what one thread gains or loses, for a change whose model and trials leave it out.

        ``present``: samples per second of the present loader in trials. Where the script has not been run with one
        thread, its own speed shows what is lost.
        """
        situation = self.situation
        if candidate.rule != "num_workers" or situation.pipeline.workers:
            return 1.0
        if situation.recording.thread_gain is None and present and count_threads() > 1:
            return min(present / situation.steps.delivered, 1.0)
        return situation.one_thread_gain

    def _choose_run_s(self, count: int) -> float:
        """Seconds of one run: some rounds of all workers, and three turns within the budget.

        Where rare batches are slow, twice as long as was watched, so that a run has several of them, and two turns.
        """
        situation = self.situation
        rounds = 4 * max(situation.pipeline.workers, 2) / max(situation.now.batches_per_s, 1e-3)
        wanted, turns = max(1.0, rounds), 3
        if situation.steps.concentration > _CONCENTRATED:
            watched = int((~situation.recording.steps.replayed).sum()) * situation.steps.samples
            wanted, turns = max(wanted, 2 * watched / max(situation.steps.delivered, 1e-9)), 2
        return min(wanted, max(self.left_s / (turns * (count + 1)) - _OVERHEAD_S, 0.5))

    def _compare_with_script(self, present: float) -> None:
        delivered = self.situation.steps.delivered
        if not 0.67 <= present / delivered <= 1.5:
            why = "files may now be in the page cache, or other programs may run"
            threads = count_threads()
            if not self.situation.pipeline.workers and threads > 1:
                why = f"torch computes with one thread there, and with {threads} in the script; or {why}"
            self.notes.append(
                f"The present loader gave {present:,.0f} samples/s in the trials, and {delivered:,.0f} in the script: "
                f"{why}. Gains are ratios of trials."
            )

    def choose_advice(self) -> list[Advice]:
        """Return what brings enough, the most useful first."""
        kept, untried = [], []
        for rule, candidate in self.candidates.items():
            if candidate.measured is not None:
                if _is_faster(candidate.measured) and candidate.estimate() >= _WORTH:
                    kept.append(candidate)
            elif candidate.predicted >= _WORTH:
                why = self.errors.get(rule) or self._why_untried(candidate)
                untried.append(replace(candidate, reason=f"{candidate.reason} Not tried: {why}."))
        kept.sort(key=lambda advice: -advice.estimate())
        untried.sort(key=lambda advice: -advice.predicted)
        return [*kept, *untried[:_UNTRIED]]


def _is_faster(ratio: Measured) -> bool:
    """Return whether runs with a change were faster: one in which the typical run was slower is no advice."""
    return ratio.median >= 1 and ratio.highest >= _WORTH
