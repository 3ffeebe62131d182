"""Batches as uint8, normalised on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]

_LARGE: Final = 4 << 20


def find(situation: Situation) -> Iterator[Candidate]:
    """If batches are large, and sending, stacking or copying them takes much of the time."""
    steps = situation.steps
    moved = situation.share("transport") + situation.share("collate")
    nbytes = situation.batch_nbytes()
    if nbytes < _LARGE or (moved < 0.2 and steps.copy_share < 0.1):
        return
    changed = situation.pipeline.with_stage("transport", 0.25).with_stage("collate", 0.25)
    yield Candidate(
        "uint8",
        "send images as uint8, and normalise them on the device",
        f"A batch has {nbytes / 1e6:.0f} MB; as uint8 it has a quarter of float32's.",
        situation.gain_of(changed),
        Change(narrows=True),
        "images = images.to(device, non_blocking=True).float().sub_(mean).div_(std)",
    )
