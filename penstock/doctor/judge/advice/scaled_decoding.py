"""Decoding at a fraction of the size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.advice.resize_when_packing import bytes_of_sample
from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LARGE: Final = 150_000
_UNKNOWN: Final = 2_000
"""A worker that reads less for a sample has its files in memory: the bytes are those of its messages."""
_LEFT: Final = 0.5
"""Part of the decoding that is assumed to stay: the entropy-coded bits are read in any case."""


def find(situation: Situation) -> Iterator[Candidate]:
    """If decoding limits, and images are large, or are not read from files so that their size is not known."""
    if situation.share("decode") < 0.3 or _UNKNOWN < bytes_of_sample(situation) < _LARGE:
        return
    yield Candidate(
        "scaled-decoding",
        "decode JPEGs at the size that is needed: image.draft('RGB', size) with Pillow, or penstock's pipelines",
        f"Decoding takes {situation.share('decode'):.0%} of the loader's time. Half of it is assumed to stay "
        "where images are larger than what the training uses.",
        situation.gain_of(situation.pipeline.with_stage("decode", _LEFT)),
        code="image.draft('RGB', (256, 256))",
    )
