"""Rule cast-before-copy: a batch of small integers that becomes float on the CPU, before it is copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.events import Cast
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject, describe_events
from penstock.doctor.checks.trap_trials import measure_cast
from penstock.doctor.reports.text_report import format_time_us

__all__ = ["find"]

_LEAST_NBYTES: Final = 1 << 16
_MOST_S: Final = 2.0


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find casts that make a batch larger before it is copied."""
    for events in subject.events("cast"):
        for event in events:
            before, after = (0, 0) if event.cast is None else event.cast.count_bytes()
            if event.cast is None or after - before < _LEAST_NBYTES:
                continue
            text = (
                f"The batch becomes {_name(event.cast.after)} on the CPU before it is copied to the device: "
                f"{_format_nbytes(after)} a batch are copied instead of {_format_nbytes(before)}."
            )
            advice = (
                "Copy the batch as it is, and cast on the device: "
                f"images.to(device, non_blocking=True).to({event.cast.after})."
            )
            cost = _describe_cost(subject, event.cast)
            severity = subject.device_severity()
            yield describe_events("cast-before-copy", severity, [event], text, advice, cost)


def _describe_cost(subject: ScriptSubject, made: Cast) -> str:
    """The time of the cast, and what is not known without a device."""
    seconds: float | None = None
    if subject.left_s:
        seconds = measure_cast([(made.shape, _name(made.before), _name(made.after))], min(subject.left_s, _MOST_S))
    cast = "" if seconds is None else f"{format_time_us(1e6 * seconds)} a batch for the cast with one thread"
    if subject.has_device:
        return cast
    return f"{cast}; the larger copy costs nothing on this machine, which has no device" if cast else NO_DEVICE


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _format_nbytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f} MB" if nbytes >= 9.5e6 else f"{nbytes / 1e6:.1f} MB"
