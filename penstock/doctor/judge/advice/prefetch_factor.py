"""More batches ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If building times differ so much that a longer buffer hides slow batches."""
    pipeline = situation.pipeline
    if pipeline.workers == 0:
        return
    gains = {
        factor: situation.gain_of(replace(pipeline, prefetch=factor)) for factor in (4, 8) if factor > pipeline.prefetch
    }
    if not gains:
        return
    factor = next(factor for factor in gains if gains[factor] >= 0.98 * max(gains.values()))
    yield Candidate(
        "prefetch_factor",
        f"prefetch_factor={factor}",
        f"Batches differ in their time; {factor} ahead for each worker hide slow ones.",
        gains[factor],
        Change({"prefetch_factor": factor}),
        f"DataLoader(..., prefetch_factor={factor})",
    )
