"""Copies to the device that do not wait."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If the script spends a large part of its time in copies to the device."""
    steps, settings = situation.steps, situation.recording.settings
    if steps.copy_share < 0.1:
        return
    gain = 1 / max(1 - steps.copy_share, steps.copy_share)
    change = (
        "copy with non_blocking=True" if settings.pin_memory else "pin_memory=True, and copy with non_blocking=True"
    )
    yield Candidate(
        "pin_memory",
        change,
        f"Copies to the device take {steps.copy_share:.0%} of the time; from page-locked memory the next batch is "
        "copied while the device computes. A copy is assumed to overlap with the rest of the step.",
        gain,
        code="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
    )
