"""Rule blocking-copy: copies to the device that wait although they need not, or that wait because nothing is pinned."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Final

import numpy as np

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.events import ScriptEvent
from penstock.doctor.checks.script.source import read_source
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject, describe_events, quote_events
from penstock.doctor.reports.text_report import format_time_us

__all__ = ["find"]

_LEAST_NBYTES: Final = 1 << 16


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find copies of page-locked batches without ``non_blocking``, and ``non_blocking`` without page-locked batches."""
    severity, cost = subject.device_severity(), _describe_cost(subject)
    for events in subject.events("copy"):
        loaded = [event for event in events if event.is_loaded]
        if subject.is_pinned:
            waiting = [event for event in loaded if not event.non_blocking and not _has_alternative(subject, event)]
            if waiting:
                text = (
                    f"The loader page-locks its batches, but {quote_events(waiting)} waits until the copy to the "
                    "device has ended."
                )
                advice = "Pass non_blocking=True: the copy then runs while Python starts the next operations."
                yield describe_events("blocking-copy", severity, waiting, text, advice, cost)
        elif subject.has_device or not _mentions_pinning(subject):
            unpinned = [event for event in loaded if event.non_blocking and event.nbytes >= _LEAST_NBYTES]
            if unpinned:
                text = (
                    f"non_blocking=True has no effect in {quote_events(unpinned)}: the batch is not in page-locked "
                    "memory, so the copy waits."
                )
                advice = "Pass pin_memory=True to the DataLoader."
                yield describe_events("blocking-copy", severity, unpinned, text, advice, cost)


def _has_alternative(subject: ScriptSubject, event: ScriptEvent) -> bool:
    """Whether a machine with a device may copy by another line: this one is in one of two branches."""
    source = read_source(event.line.file)
    return not subject.has_device and source is not None and source.is_in_branch(event.line.line)


def _mentions_pinning(subject: ScriptSubject) -> bool:
    """Whether the script has the argument, perhaps with a value that differs where there is a device."""
    files = subject.places.files | {event.line.file for events in subject.events("copy") for event in events}
    return any("pin_memory" in line for file in files for line in linecache.getlines(file))


def _describe_cost(subject: ScriptSubject) -> str:
    """What copies take of a step, as it was measured."""
    if not subject.has_device:
        return NO_DEVICE
    steps = None if subject.recording is None else subject.recording.steps
    if steps is None or not len(steps.copy_ns) or not int(steps.copy_ns.sum()):
        return ""
    copy_us, step_us = (float(np.mean(times)) / 1000 for times in (steps.copy_ns, steps.step_ns))
    return f"copies take {format_time_us(copy_us)} of a step of {format_time_us(step_us)}"
