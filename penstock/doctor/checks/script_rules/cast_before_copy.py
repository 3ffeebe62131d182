"""Rule cast-before-copy: a batch of small integers that becomes float on the CPU, before it is copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import ScriptSubject, describe_events
from penstock.doctor.reports.text_report import format_time_us

__all__ = ["find"]

_LEAST_NBYTES: Final = 1 << 16


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
            cost = f"{format_time_us(1e6 * event.cast.seconds)} a batch for the cast"
            if not subject.has_device:
                cost += "; the larger copy costs nothing on this machine, which has no device"
            severity = subject.device_severity()
            yield describe_events("cast-before-copy", severity, [event], text, advice, cost)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _format_nbytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f} MB" if nbytes >= 9.5e6 else f"{nbytes / 1e6:.1f} MB"
