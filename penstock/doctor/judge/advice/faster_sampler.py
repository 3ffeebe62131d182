"""A sampler that draws all indices of an epoch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.1


def find(situation: Situation) -> Iterator[Candidate]:
    """If the sampler takes a large part of the loader's time."""
    pipeline = situation.pipeline
    if not pipeline.draw_ns or pipeline.draw_ns < pipeline.step_ns / 10:
        return
    yield Candidate(
        "faster-sampler",
        "draw the indices of many batches at once, with one call of torch or NumPy, in the sampler's __iter__",
        f"The sampler takes {pipeline.draw_ns / 1e6:.3g} ms for each batch, in the main process, where no worker "
        "helps. A tenth of it is assumed to stay.",
        situation.gain_of(replace(pipeline, draw_ns=_LEFT * pipeline.draw_ns)),
    )
