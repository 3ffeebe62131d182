"""Samples that are far slower than the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.queueing import Work
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]


def find(situation: Situation) -> Iterator[Candidate]:
    """If few samples take a large part of the time: repair them, or leave them out."""
    stragglers = situation.find_stragglers()
    if stragglers is None:
        return
    pipeline = situation.pipeline
    # A batch without its straggler costs at most what the slowest of the others does.
    build = {}
    for stage, work in pipeline.build.items():
        whole = work.cpu_ns + work.idle_ns
        limit = 3 * float(np.median(whole)) if len(whole) else 0.0
        factor = np.minimum(1.0, limit / whole.clip(1)) if limit else np.zeros_like(whole)
        build[stage] = Work(work.cpu_ns * factor, work.idle_ns * factor)
    keys = situation.recording.keys
    names = [keys.get(index) or f"index {index}" for index in stragglers.indices[:3]]
    yield Candidate(
        "slow-samples",
        f"repair or leave out {', '.join(names)}",
        f"The slowest sample takes {stragglers.slow_ms:.0f} ms, the median one {stragglers.usual_ms:.2g} ms; batches "
        "behind it wait.",
        situation.gain_of(replace(pipeline, build=build)),
    )
