"""From a recording to a diagnosis: stages, ablation, changes that are tried, facts, verdict.

::

    Recording ─> examine ─> Situation ─> find_limit ─> the loader without each stage, in turns with it as it is
                                                            │ child processes, while there is time
                                                            v
                                         candidates: changes, in turns; and facts of the stages that cost much
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
from penstock.doctor.judge.advice.num_workers import WORKER_RULES
from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.situation import Situation, count_threads, examine
from penstock.doctor.judge.stage_costs import find_slow_samples
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.judge.traps import find_traps, name_in_verdict
from penstock.doctor.judge.verdict import decide, find_limit
from penstock.doctor.trials.ablation import GivenStage
from penstock.doctor.trials.changed_loader import Change, NotApplicableError
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import Trial, run_trial
from penstock.doctor.trials.turns import Measured, Turns
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.steps.batch_places import BatchPlaces

__all__ = ["diagnose"]

_WORTH: Final = 1.05
"""Least gain of an advice."""
_MOST_TRIALS: Final = 6
_TURNS: Final = 5
_ABLATION_TURNS: Final = 3
_ABLATION_S: Final = 1.0
_ABLATION_PART: Final = 0.5
"""Most of the time that is spent on it."""
_BY_LIMIT: Final = {"copy": {"pin_memory", "uint8"}, "trainer": {"main-threads"}}
"""Which candidates there are for a limit; for others all."""
_FACTS: Final = 3
_STAGE_OF_FACT: Final = {
    "native-augmentation": "augment", "faster-collation": "collate", "faster-sampler": "collate",
    "resize-when-packing": "decode", "scaled-decoding": "decode", "seek-tables": "decode", "pin_memory": "copy",
}  # fmt: skip
"""Of other facts it is reading."""
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
        With ``advice`` that was tried and brings 5 % or more, and facts of the stages that cost much.
    """
    deadline = time.perf_counter() + budget_s
    situation = examine(recording, loader)
    work = _Work(situation, deadline if trials and loader is not None else 0.0, progress, run_one)
    work.drain_alone()
    limit = find_limit(situation)
    if limit == "loader":
        work.leave_out_stages()
    if limit != "nothing":
        work.find_candidates(limit)
        work.try_candidates()
    verdict = decide(situation, limit, work.candidates)
    has_gain = verdict.stage not in {"none", "step"}
    advice = work.choose_advice(verdict.stage) if has_gain else []
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

    def leave_out_stages(self) -> None:
        """Measure the loader without each of its stages: alone, or with the trainer if the trainer builds batches."""
        situation = self.situation
        if not self._can_try:
            return
        stages: list[GivenStage] = ["sample", "read", "decode", "collate"]
        if situation.recording.settings.workers == "processes":
            stages.append("transport")
        step = StepShape() if situation.workers else situation.shape
        budget_s = _ABLATION_PART * self.left_s
        run_s = max(min(_ABLATION_S, budget_s / (1 + len(stages)) - _OVERHEAD_S), 0.3)
        changes = [Change(given=stage) for stage in stages]
        turns = Turns(situation.loader, changes, step, run_s, budget_s, self.progress, self.run_one)
        turns.run(_ABLATION_TURNS)
        errors = dict(zip(stages, turns.errors, strict=True))
        found = {str(stage): ratio for stage, ratio in zip(stages, turns.measured(), strict=True) if ratio is not None}
        situation.note_absences(found, has_reads=NotApplicableError.__name__ not in errors["read"])

    @property
    def _can_try(self) -> bool:
        return self.left_s >= 3 and not self.unreadable

    def find_candidates(self, limit: str) -> None:
        """Ask every file of advice what may help."""
        wanted = _BY_LIMIT.get(limit)
        for rule in CANDIDATES:
            for found in CANDIDATES.get(rule)(self.situation):
                candidate: Advice = found
                if wanted is None or candidate.rule in wanted:
                    self.candidates.setdefault(candidate.rule, candidate)

    def try_candidates(self) -> None:
        """Try changes in turns, and keep what was measured; what was not tried is no advice."""
        situation = self.situation
        tried = {rule: each for rule, each in self.candidates.items() if each.trial is not None}
        for rule in tried:
            del self.candidates[rule]
        if not tried or not self._can_try:
            if tried and self.deadline and not self.unreadable:
                self.notes.append("There was no time left to try a change: --budget gives more.")
            return
        chosen = list(tried.values())[:_MOST_TRIALS]
        run_s = self._choose_run_s(len(chosen))
        changes = [candidate.trial for candidate in chosen if candidate.trial is not None]
        turns = Turns(situation.loader, changes, situation.shape, run_s, self.left_s, self.progress, self.run_one)
        turns.run(_TURNS)
        speeds = [trial.batches_per_s for trial in turns.present]
        present = statistics.median(speeds) * situation.steps.samples if speeds else 0.0
        most = _IMPOSSIBLE * max(situation.gain_limit, 1.0)
        for candidate, ratio in zip(chosen, turns.measured(most), strict=True):
            if ratio is not None:
                measured = ratio.scaled(self._factor(candidate, present))
                self.candidates[candidate.rule] = replace(candidate, measured=measured)
        if speeds:
            self._compare_with_script(present)

    def _factor(self, candidate: Advice, present: float = 0.0) -> float:
        """Return what one thread gains or loses, for a change whose trials leave it out.

        ``present``: samples per second of the present loader in trials. Where the script has not been run with one
        thread, its own speed shows what is lost.
        """
        situation = self.situation
        if candidate.rule not in {"num_workers", "more-workers"} or situation.workers:
            return 1.0
        if situation.recording.thread_gain is None and present and count_threads() > 1:
            return min(present / situation.steps.delivered, 1.0)
        return situation.one_thread_gain

    def _choose_run_s(self, count: int) -> float:
        """Seconds of one run: some rounds of all workers, and three turns within the budget.

        Where rare batches are slow, twice as long as was watched, so that a run has several of them, and two turns.
        """
        situation = self.situation
        rounds = 4 * max(situation.workers, 2) / max(self._batches_per_s, 1e-3)
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
            if not self.situation.workers and threads > 1:
                why = f"torch computes with one thread there, and with {threads} in the script; or {why}"
            self.notes.append(
                f"The present loader gave {present:,.0f} samples/s in the trials, and {delivered:,.0f} in the script: "
                f"{why}. Gains are ratios of trials."
            )

    @property
    def _batches_per_s(self) -> float:
        return self.situation.steps.delivered / max(self.situation.steps.samples, 1.0)

    def choose_advice(self, stage: str) -> list[Advice]:
        """Return the changes that bring enough, the most useful first, and then facts, those of ``stage`` first."""
        tried = {rule: each.measured for rule, each in self.candidates.items() if each.measured is not None}
        facts = [each for each in self.candidates.values() if each.measured is None]
        facts.sort(key=lambda each: _STAGE_OF_FACT.get(each.rule, "read") != stage)
        useful = sorted(
            (rule for rule, gain in tried.items() if _is_faster(gain)), key=lambda rule: -tried[rule].median
        )
        others = [rule for rule in useful if rule not in WORKER_RULES]
        best = [rule for rule in useful if rule in WORKER_RULES][:1]  # numbers of workers exclude one another
        return [*(self.candidates[rule] for rule in useful if rule in {*others, *best}), *facts[:_FACTS]]


def _is_faster(ratio: Measured) -> bool:
    """Return whether a change is worth it: more than the spread of its runs, which contain none that was slower."""
    return ratio.median >= _WORTH and (ratio.lowest >= 1 or ratio.median >= 1 + ratio.highest - ratio.lowest)
