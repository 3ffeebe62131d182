"""Images stored at the size that is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["bytes_of_sample", "find"]

_LARGE: Final = 300_000
_NEEDED: Final = 60_000
"""Encoded bytes of a photograph whose short side has 256 pixels, rounded up."""


def find(situation: Situation) -> Iterator[Candidate]:
    """If decoding limits, and files are far larger than a network's input needs."""
    nbytes = bytes_of_sample(situation)
    if situation.share("decode") < 0.3 or nbytes < _LARGE:
        return
    left = max(_NEEDED / nbytes, 0.1)
    yield Candidate(
        "resize-when-packing",
        "store images at the size that is needed: resize them once, before they are packed",
        f"A sample has {nbytes / 1e3:.0f} kB, and decoding takes {situation.share('decode'):.0%} of the loader's time. "
        f"With {_NEEDED // 1000} kB, {left:.0%} of the decoding is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("decode", left)),
    )


def bytes_of_sample(situation: Situation) -> float:
    """Encoded bytes of one sample, by the bytes that workers read; 0 if unknown."""
    recording = situation.recording
    samples = float(recording.steps.samples[~recording.steps.replayed].sum())
    workers = [usage.read_calls_bytes for usage in recording.usage if usage.role.startswith("worker")]
    return sum(workers) / samples if samples and workers else 0.0
