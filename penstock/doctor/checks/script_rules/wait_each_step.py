"""Rule wait-each-step: a training step that waits for the device, since it asks for a value of it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject, describe_events, quote_events

__all__ = ["find"]


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``.item()``, ``.cpu()``, ``print``, conditions and the like on values of the device, in each step."""
    if not subject.is_training:
        return
    for events in subject.events("wait", each_step=True):
        verb = "waits" if len({event.text for event in events}) == 1 else "wait"
        text = (
            f"{quote_events(events)} {verb} in each step until the device has computed everything that was started. "
            "Meanwhile Python starts nothing, and the device has nothing to do afterwards."
        )
        advice = (
            "Add up values on the device (total += loss.detach()), and read them every 100 steps or at the end of the "
            "epoch."
        )
        cost = "" if subject.has_device else NO_DEVICE
        yield describe_events("wait-each-step", subject.device_severity(), events, text, advice, cost)
