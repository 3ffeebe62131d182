"""Known traps in a loader and its dataset, named before they hurt: ``penstock.torch.check``.

One rule is one file and one line here. A rule takes a :class:`~penstock.doctor.subject.Subject` and yields
findings; it stays silent where it cannot know, because a lint that cries wolf is switched off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.doctor.findings import Finding, Report
from penstock.doctor.subject import Subject
from penstock.registry import Registry
from penstock.samplers.base import checked_count

__all__ = ["RULES", "Finding", "Report", "check"]

RULES = Registry("rule")
RULES.register("open-handle", "penstock.doctor.rules.open_handle:find")
RULES.register("copied-objects", "penstock.doctor.rules.copied_objects:find")
RULES.register("shared-generator", "penstock.doctor.rules.shared_generator:find")
RULES.register("global-randomness", "penstock.doctor.rules.global_randomness:find")
RULES.register("thread-crowd", "penstock.doctor.rules.thread_crowd:find")
RULES.register("not-picklable", "penstock.doctor.rules.not_picklable:find")
RULES.register("pickled-arrays", "penstock.doctor.rules.pickled_arrays:find")
RULES.register("cuda-in-worker", "penstock.doctor.rules.cuda_in_worker:find")
RULES.register("forked-lock", "penstock.doctor.rules.forked_lock:find")
RULES.register("unsharded-stream", "penstock.doctor.rules.unsharded_stream:find")
RULES.register("loader-setting", "penstock.doctor.rules.loader_setting:find")
RULES.register("length", "penstock.doctor.rules.length:find")
RULES.register("stop-iteration", "penstock.doctor.rules.stop_iteration:find")
RULES.register("sample", "penstock.doctor.rules.sample:find")


def check(loader: Any, *, samples: int = 0) -> Report:
    """Look for known traps in a loader and its dataset, without starting a worker.

    Parameters
    ----------
    loader : DataLoader or dataset
        A loader of ``penstock.torch``, ``torch.utils.data`` or ``penstock``, or a dataset alone, which is judged as if
        worker processes read it. It is not changed.
    samples : int
        How many samples may be made in this process, to time them and to see whether they travel; 0: none, and
        ``__getitem__`` is not called.

    Returns
    -------
    Report
        A sequence of :class:`Finding`, the gravest first; false if nothing was found; as text, for a person.

    Raises
    ------
    ArgumentError
        If ``loader`` is neither a loader nor a dataset, or ``samples`` is negative.

    Notes
    -----
    Time and memory are bounded: 20,000 objects are visited at most, 64 of each container, and source is read of the
    user's own functions alone. Where a loader pickles its dataset, the dataset's ``__getstate__`` and ``__reduce__``
    run; ``__len__`` and (``workers="auto"``) ``spec`` are called. A finding is no proof and its absence none either:
    what cannot be known without running is left out.

    Examples
    --------
    >>> import torch, penstock.torch
    >>> dataset = torch.utils.data.TensorDataset(torch.zeros(100, 3))
    >>> penstock.torch.check(torch.utils.data.DataLoader(dataset, batch_size=10))
    nothing found
    """
    subject = Subject(loader, checked_count("samples", samples, least=0))
    findings = [finding for name in RULES for finding in RULES.get(name)(subject)]
    return Report(_merged(findings), complete=subject.graph.complete)


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for what is the same at several indices: the first place, and how many more were seen."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        pattern = re.sub(r"\[[^]]*\]", "[]", finding.where)
        alike.setdefault((finding.rule, finding.severity, pattern, finding.what), []).append(finding)
    return [
        first if not others else replace(first, where=f"{first.where} and {len(others)} more like it")
        for first, *others in alike.values()
    ]
