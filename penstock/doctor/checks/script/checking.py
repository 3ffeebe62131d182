"""Known mistakes in training scripts: found in what observed steps did, and where batches were taken.

One rule is one function in ``script_rules/`` and one line here. A rule is a function ``find`` that takes a
:class:`~penstock.doctor.checks.script.subject.ScriptSubject` and yields findings.
"""

from __future__ import annotations

from typing import Any

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.batch_places import BatchPlaces
from penstock.doctor.checks.script.subject import read_script
from penstock.doctor.watching.recording import Recording
from penstock.registry import Registry

__all__ = ["SCRIPT_RULES", "check_script"]

SCRIPT_RULES = Registry("rule")
SCRIPT_RULES.register("blocking-copy", "penstock.doctor.checks.script_rules.blocking_copy:find")
SCRIPT_RULES.register("cast-before-copy", "penstock.doctor.checks.script_rules.cast_before_copy:find")
SCRIPT_RULES.register("wait-each-step", "penstock.doctor.checks.script_rules.wait_each_step:find")
SCRIPT_RULES.register("cleanup-each-step", "penstock.doctor.checks.script_rules.cleanup_each_step:find")
SCRIPT_RULES.register("tensor-copies", "penstock.doctor.checks.script_rules.tensor_copies:find")
SCRIPT_RULES.register("copy-each-sample", "penstock.doctor.checks.script_rules.copy_each_sample:find")
SCRIPT_RULES.register("collate-in-loop", "penstock.doctor.checks.script_rules.collate_in_loop:find")
SCRIPT_RULES.register("loader-each-epoch", "penstock.doctor.checks.script_rules.taken_batches:find_loader_each_epoch")
SCRIPT_RULES.register("iterator-each-step", "penstock.doctor.checks.script_rules.taken_batches:find_iterator_each_step")
SCRIPT_RULES.register("held-batches", "penstock.doctor.checks.script_rules.taken_batches:find_held_batches")


def check_script(
    loader: Any, places: BatchPlaces, recording: Recording | None = None, *, trial_s: float = 0.0
) -> list[Finding]:
    """Look for known mistakes in a script that was watched.

    Parameters
    ----------
    loader : DataLoader
        The loader that was watched.
    places : BatchPlaces
        Where its batches were taken.
    recording : Recording, optional
        What was measured, for the costs.
    trial_s : float
        Most seconds in which costs are measured in child processes; 0: none is.

    Returns
    -------
    list of Finding
        In the order of the rules.
    """
    subject = read_script(loader, places, recording, trial_s=trial_s)
    return [finding for name in SCRIPT_RULES for finding in SCRIPT_RULES.get(name)(subject)]
