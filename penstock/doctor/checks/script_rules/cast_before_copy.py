"""Rule cast-before-copy: a batch of small integers that becomes float on the CPU, before it is copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject, describe_events
from penstock.doctor.checks.script.tensor_methods import SIZES
from penstock.doctor.checks.script.values import ScriptEvent
from penstock.doctor.checks.trap_trials import measure_cast
from penstock.doctor.reports.text_report import format_time_us

__all__ = ["count_cast_bytes", "find"]

_LEAST_NBYTES: Final = 1 << 16
_MOST_S: Final = 2.0


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find casts that make a batch larger before it is copied."""
    for events in subject.events("cast"):
        for event in events:
            before, after = count_cast_bytes(event)
            if after - before < _LEAST_NBYTES or event.value is None:
                continue
            text = (
                f"The batch becomes {event.value.cast_to} on the CPU before it is copied to the device: "
                f"{_format_nbytes(after)} a batch are copied instead of {_format_nbytes(before)}."
            )
            advice = (
                "Copy the batch as it is, and cast on the device: "
                f"images.to(device, non_blocking=True).to(torch.{event.value.cast_to})."
            )
            cost = _describe_cost(subject, event)
            severity = subject.device_severity()
            yield describe_events("cast-before-copy", severity, [event], text, advice, cost)


def count_cast_bytes(event: ScriptEvent) -> tuple[int, int]:
    """Bytes of what a cast makes larger, before and after it."""
    layout = None if event.value is None else event.value.layout
    if layout is None or event.value is None:
        return 0, 0
    size = SIZES.get(event.value.cast_to, 0)
    leaves = [leaf for leaf in layout.leaves() if leaf.itemsize < size]
    return sum(leaf.nbytes for leaf in leaves), sum(leaf.nbytes // leaf.itemsize * size for leaf in leaves)


def _describe_cost(subject: ScriptSubject, event: ScriptEvent) -> str:
    """The time of the cast, and what is not known without a device."""
    value = event.value
    seconds: float | None = None
    if subject.left_s and value is not None and value.layout is not None:
        size = SIZES.get(value.cast_to, 0)
        shapes = [(leaf.shape, leaf.dtype, value.cast_to) for leaf in value.layout.leaves() if leaf.itemsize < size]
        seconds = measure_cast(shapes, min(subject.left_s, _MOST_S))
    cast = "" if seconds is None else f"{format_time_us(1e6 * seconds)} a batch for the cast with one thread"
    if subject.has_device:
        return cast
    return f"{cast}; the larger copy costs nothing on this machine, which has no device" if cast else NO_DEVICE


def _format_nbytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f} MB" if nbytes >= 9.5e6 else f"{nbytes / 1e6:.1f} MB"
