"""A cheaper operation in place of a slow one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.3


def find(situation: Situation) -> Iterator[Candidate]:
    """If Python work on samples limits."""
    share = situation.share("augment")
    if share < 0.4:
        return
    yield Candidate(
        "native-augmentation",
        "replace the slow operation: vectorise it, or use penstock.transforms or torchvision.transforms.v2",
        f"Work on a sample takes {situation.mean_ns('augment') / 1e6:.2g} ms, {share:.0%} of the loader's time. 30 % "
        "of it is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("augment", _LEFT)),
    )
