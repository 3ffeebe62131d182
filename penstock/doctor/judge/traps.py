"""All known mistakes of a script that was watched: in its loader and dataset, and in the loops that take batches.

Called by :func:`penstock.doctor.judge.analysis.diagnose`. Rules may run the user's code (``__len__``), which may raise
anything: the diagnosis is worth more than a rule.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from penstock.doctor.checks.findings import Finding, Report
from penstock.doctor.judge.diagnosis import Verdict
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.steps.batch_places import BatchPlaces

__all__ = ["find_traps", "name_in_verdict"]

_logger = logging.getLogger(__name__)
_OF_STAGE: Final = {
    "copy": ("blocking-copy", "cast-before-copy"),
    "step": ("wait-each-step", "cleanup-each-step", "collate-in-loop", "blocking-copy", "cast-before-copy"),
    "collate": ("tensor-copies", "copied-objects"),
    "augment": ("tensor-copies", "thread-crowd", "global-randomness"),
    "workers": ("loader-each-epoch", "iterator-each-step", "loader-setting", "thread-crowd"),
    "threads": ("thread-crowd",),
}
"""Rules whose mistakes cost time in the stage that a verdict names."""


def find_traps(
    loader: object, places: BatchPlaces | None, recording: Recording, notes: list[str], *, trial_s: float = 0.0
) -> list[Finding]:
    """Known mistakes, the most severe first, where torch, which the rules need, is imported.

    Parameters
    ----------
    loader : DataLoader, optional
        The loader that was watched.
    places : BatchPlaces, optional
        Where the script took its batches.
    recording : Recording
        What was measured.
    notes : list of str
        A note is added where a check failed.
    trial_s : float
        Seconds for trials in a child process, which say what a mistake costs; 0: nothing is tried.
    """
    if loader is None or "torch" not in sys.modules:
        return []
    from penstock.doctor.checks.checking import check, check_script

    findings = _attempt("The loader", lambda: list(check(loader)), notes)
    if places is not None:
        findings += _attempt("The script", lambda: check_script(loader, places, recording, trial_s=trial_s), notes)
    return list(Report(findings))


def name_in_verdict(verdict: Verdict, findings: list[Finding]) -> str:
    """Return a sentence about the mistakes that cost time in the stage of a verdict; empty if there are none."""
    rules = _OF_STAGE.get(verdict.stage, ())
    named = [each for each in findings if each.rule in rules and each.severity != "note"]
    if not named:
        return ""
    listed = "; ".join(f"{each.rule} in {each.where}" for each in named[:2])
    return f" A known mistake has to do with it: {listed}."


def _attempt(what: str, look: Callable[[], list[Finding]], notes: list[str]) -> list[Finding]:
    try:
        return look()
    except Exception as error:  # a rule may run the user's code
        _logger.debug("check failed", exc_info=True)
        notes.append(f"{what} could not be checked for known mistakes: {type(error).__name__}: {error}")
        return []
