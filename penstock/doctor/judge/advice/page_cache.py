"""A dataset that does not fit in the page cache."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If the processes read from the disk what would be in memory if there were room."""
    recording = situation.recording
    memory = recording.machine.get("memory") or {}
    usable = memory.get("usable_bytes") or memory.get("total_bytes") or 0
    samples = float(situation.recording.steps.samples.sum())
    read = sum(usage.read_bytes for usage in recording.usage)
    if not usable or not samples or recording.settings.length <= 0 or situation.share("read") < 0.25:
        return
    dataset = read / samples * recording.settings.length
    if dataset < 0.8 * usable:
        return
    fits = min(1.0, 0.8 * usable / dataset)
    yield Candidate(
        "page-cache",
        "make the dataset smaller than the memory: resize images when they are packed, or use shards of it in turn",
        f"{read / samples / 1e3:.0f} kB of a sample come from the disk, {dataset / 1e9:.0f} GB for the dataset, and "
        f"{usable / 1e9:.0f} GB of memory can be used.",
        situation.gain_of(situation.pipeline.with_stage("read", fits * 0.5)),
    )
