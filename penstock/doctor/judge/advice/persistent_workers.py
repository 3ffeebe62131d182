"""Workers that stay from epoch to epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If epochs are short, and each starts its workers anew."""
    pipeline = situation.pipeline
    if not pipeline.epoch_batches or pipeline.workers == 0:
        return
    changed = replace(pipeline, startup_ns=0.0, preparation=None)
    yield Candidate(
        "persistent_workers",
        "persistent_workers=True",
        f"Each epoch of {pipeline.epoch_batches} batches waits {pipeline.startup_ns / 1e9:.2f} s for its workers.",
        situation.gain_of(changed),
        Change({"persistent_workers": True}),
        "DataLoader(..., persistent_workers=True)",
    )
