"""Batches as they become ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If batches that are ready wait for a slow one before them."""
    pipeline = situation.pipeline
    if pipeline.workers < 2 or not pipeline.in_order:
        return
    yield Candidate(
        "in_order",
        "in_order=False",
        "Batches that are ready wait for a slow one before them; the order of batches is then no longer fixed.",
        situation.gain_of(replace(pipeline, in_order=False)),
        Change({"in_order": False}),
        "DataLoader(..., in_order=False)",
    )
