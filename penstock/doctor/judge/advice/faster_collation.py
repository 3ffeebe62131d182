"""A cheaper ``collate_fn``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.3


def find(situation: Situation) -> Iterator[Candidate]:
    """If collation limits."""
    share = situation.share("collate")
    if share < 0.25:
        return
    yield Candidate(
        "faster-collation",
        "build batches with few calls: torch.stack, or torch.nn.utils.rnn.pad_sequence, in place of loops in Python; "
        "what belongs to one sample goes to __getitem__",
        f"Collation takes {share:.0%} of the loader's time. 30 % of it is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("collate", _LEFT)),
    )
