"""Known mistakes in a loader and its dataset: ``penstock.torch.check``.

One rule is one file in ``rules/`` and one line here. A rule is a function ``find`` that takes a
:class:`~.subject.Subject` and yields findings. A rule that cannot know reports nothing, because users
switch off a check that is often wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from penstock.doctor.checks.findings import Finding, Report
from penstock.doctor.checks.subject import Subject
from penstock.registry import Registry
from penstock.samplers.base import check_count

__all__ = ["RULES", "check"]

RULES = Registry("rule")
RULES.register("open-handle", "penstock.doctor.checks.rules.open_handle:find")
RULES.register("copied-objects", "penstock.doctor.checks.rules.copied_objects:find")
RULES.register("shared-generator", "penstock.doctor.checks.rules.shared_generator:find")
RULES.register("global-randomness", "penstock.doctor.checks.rules.global_randomness:find")
RULES.register("thread-crowd", "penstock.doctor.checks.rules.thread_crowd:find")
RULES.register("not-picklable", "penstock.doctor.checks.rules.not_picklable:find")
RULES.register("pickled-arrays", "penstock.doctor.checks.rules.pickled_arrays:find")
RULES.register("cuda-in-worker", "penstock.doctor.checks.rules.cuda_in_worker:find")
RULES.register("forked-lock", "penstock.doctor.checks.rules.forked_lock:find")
RULES.register("unsharded-stream", "penstock.doctor.checks.rules.unsharded_stream:find")
RULES.register("loader-setting", "penstock.doctor.checks.rules.loader_setting:find")
RULES.register("length", "penstock.doctor.checks.rules.length:find")
RULES.register("stop-iteration", "penstock.doctor.checks.rules.stop_iteration:find")
RULES.register("sample", "penstock.doctor.checks.rules.sample:find")


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
