"""Known mistakes in a loader and its dataset, ``penstock.torch.check``, and in the script that uses them.

One rule is one function in ``rules/`` that takes a :class:`~.subject.Subject` and yields findings, and one line here.
Rules for scripts, in ``script_rules/``, take a :class:`~.script.subject.ScriptSubject`. A rule that cannot know reports
nothing, because users switch off a check that is often wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace

from penstock.doctor.checks.findings import Finding, Report
from penstock.doctor.checks.script_subject import ScriptSubject
from penstock.doctor.checks.subject import Subject
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.steps.batch_places import BatchPlaces
from penstock.registry import Registry
from penstock.samplers.base import check_count

__all__ = ["RULES", "SCRIPT_RULES", "check", "check_script"]

RULES = Registry("rule")
RULES.register("open-handle", "penstock.doctor.checks.rules.sent_objects:find_open_handles")
RULES.register("copied-objects", "penstock.doctor.checks.rules.copied_objects:find")
RULES.register("shared-generator", "penstock.doctor.checks.rules.randomness:find_shared_generators")
RULES.register("global-randomness", "penstock.doctor.checks.rules.randomness:find_global_randomness")
RULES.register("thread-crowd", "penstock.doctor.checks.rules.thread_crowd:find")
RULES.register("not-picklable", "penstock.doctor.checks.rules.sent_objects:find_unpicklable")
RULES.register("pickled-arrays", "penstock.doctor.checks.rules.sent_objects:find_pickled_arrays")
RULES.register("cuda-in-worker", "penstock.doctor.checks.rules.cuda_in_samples:find_cuda_in_workers")
RULES.register("forked-lock", "penstock.doctor.checks.rules.sent_objects:find_forked_locks")
RULES.register("unsharded-stream", "penstock.doctor.checks.rules.loader_arguments:find_unsharded_stream")
RULES.register("loader-setting", "penstock.doctor.checks.rules.loader_arguments:find_doubtful_settings")
RULES.register("length", "penstock.doctor.checks.rules.loader_arguments:find_missing_length")
RULES.register("stop-iteration", "penstock.doctor.checks.rules.loader_arguments:find_stop_iteration")
RULES.register("sample", "penstock.doctor.checks.rules.sample:find")
RULES.register("turned-images", "penstock.doctor.checks.rules.turned_images:find")

SCRIPT_RULES = Registry("rule")
SCRIPT_RULES.register("blocking-copy", "penstock.doctor.checks.script_rules.observed_steps:find_blocking_copies")
SCRIPT_RULES.register("cast-before-copy", "penstock.doctor.checks.script_rules.observed_steps:find_casts_before_copies")
SCRIPT_RULES.register("wait-each-step", "penstock.doctor.checks.script_rules.observed_steps:find_waits")
SCRIPT_RULES.register("cleanup-each-step", "penstock.doctor.checks.script_rules.observed_steps:find_cleanups")
SCRIPT_RULES.register("tensor-copies", "penstock.doctor.checks.script_rules.tensor_copies:find")
SCRIPT_RULES.register("copy-each-sample", "penstock.doctor.checks.rules.cuda_in_samples:find_copies_of_samples")
SCRIPT_RULES.register("collate-in-loop", "penstock.doctor.checks.script_rules.observed_steps:find_collation")
SCRIPT_RULES.register("loader-each-epoch", "penstock.doctor.checks.script_rules.taken_batches:find_loader_each_epoch")
SCRIPT_RULES.register("iterator-each-step", "penstock.doctor.checks.script_rules.taken_batches:find_iterator_each_step")
SCRIPT_RULES.register("held-batches", "penstock.doctor.checks.script_rules.taken_batches:find_held_batches")


def check(loader: object, *, samples: int = 0) -> Report:
    """Look for known mistakes in a loader and its dataset, without starting a worker.

    Parameters
    ----------
    loader : DataLoader or dataset
        A loader of ``penstock.torch``, ``torch.utils.data`` or ``penstock``, or a dataset. A dataset alone is checked
        as if worker processes read it. The argument is not changed.
    samples : int
        Number of samples to load in this process, to time them and to try whether a worker can send them. With 0,
        ``__getitem__`` is not called.

    Returns
    -------
    Report
        A sequence of :class:`Finding`, the most severe first. It is false if nothing is found. ``print`` shows it as
        text.

    Raises
    ------
    ArgumentError
        If ``loader`` is neither a loader nor a dataset, or ``samples`` is negative.

    Notes
    -----
    Time and memory are bounded: at most 20,000 objects are visited, 64 of each container, and only the source of the
    user's own functions is read. If the loader pickles its dataset, the dataset's ``__getstate__`` and ``__reduce__``
    run. ``__len__`` is called, and with ``workers="auto"`` also ``spec``. A finding can be wrong, and an empty report
    does not prove that the loader is right.

    Examples
    --------
    >>> import torch, penstock.torch
    >>> dataset = torch.utils.data.TensorDataset(torch.zeros(100, 3))
    >>> penstock.torch.check(torch.utils.data.DataLoader(dataset, batch_size=10))
    nothing found
    """
    subject = Subject(loader, check_count("samples", samples, least=0))
    findings = [finding for name in RULES for finding in RULES.get(name)(subject)]
    return Report(_merge_alike(findings), complete=subject.graph.complete)


def check_script(loader: object, places: BatchPlaces, recording: Recording, *, trial_s: float = 0.0) -> list[Finding]:
    """Look for known mistakes in a script that was watched, in the order of the rules.

    Parameters
    ----------
    loader : DataLoader
        The loader that was watched.
    places : BatchPlaces
        Where its batches were taken.
    recording : Recording
        What was measured.
    trial_s : float
        Most seconds in which costs are measured in child processes; 0: none is.
    """
    subject = ScriptSubject(Subject(loader, 0), places, recording, time.monotonic() + trial_s)
    return [finding for name in SCRIPT_RULES for finding in SCRIPT_RULES.get(name)(subject)]


def _merge_alike(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings that differ only in an index: the first position, and how many more there are."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        pattern = re.sub(r"\[[^]]*\]", "[]", finding.where)
        groups.setdefault((finding.rule, finding.severity, pattern, finding.what), []).append(finding)
    return [
        first if not others else replace(first, where=f"{first.where} and {len(others)} more like it")
        for first, *others in groups.values()
    ]
