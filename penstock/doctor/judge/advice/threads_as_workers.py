"""Threads of the main process as workers, which send nothing."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If sending batches between processes limits a loader of penstock's."""
    settings = situation.recording.settings
    if settings.library != "penstock" or settings.workers != "processes" or situation.share("transport") < 0.3:
        return
    yield Candidate(
        "threads-as-workers",
        'workers="threads"',
        "Sending batches between processes takes much of the time; threads send nothing.",
        situation.gain_of(situation.pipeline.with_stage("transport", 0.0)),
        Change({"workers": "threads"}),
        'DataLoader(..., workers="threads")',
    )
