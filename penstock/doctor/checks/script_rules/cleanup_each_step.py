"""Rule cleanup-each-step: memory that is given back in each step, and asked for again in the next one."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.events import ScriptEvent
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject, describe_events, quote_events
from penstock.doctor.reports.text_report import format_time_us

__all__ = ["find"]


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``torch.cuda.empty_cache()`` and ``gc.collect()`` in each step."""
    for events in subject.events("cleanup", each_step=True):
        all_collects = [event for event in events if "collect" in event.text]
        empties = [event for event in events if event not in all_collects]
        collects = [event for event in all_collects if not _controls_collection(event)]
        if empties:
            text = (
                f"{quote_events(empties)} waits for the device in each step and gives its memory back, and the next "
                "step has to ask for it again."
            )
            advice = "Leave it out: torch uses free memory again by itself."
            cost = "" if subject.has_device else NO_DEVICE
            yield describe_events("cleanup-each-step", subject.device_severity(), empties, text, advice, cost)
        if collects:
            text = f"{quote_events(collects)} visits all objects of the program in each step."
            advice = "Leave it out, or collect once in an epoch: Python collects garbage by itself."
            cost = f"{format_time_us(1e6 * sum(event.seconds for event in collects))} in each step"
            yield describe_events("cleanup-each-step", "warning", collects, text, advice, cost)


def _controls_collection(event: ScriptEvent) -> bool:
    """Whether the file turns Python's own collection off."""
    return any("gc.disable" in line or "gc.freeze" in line for line in linecache.getlines(event.line.file))
