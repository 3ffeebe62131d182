"""A packed store instead of single files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.25
"""Part of the reading time that is assumed to stay: a sequential read instead of finding, opening, reading files."""


def find(situation: Situation) -> Iterator[Candidate]:
    """If reading limits, and the dataset is no store of penstock's already."""
    if situation.share("read") < 0.25 or reads_a_store(situation):
        return
    yield Candidate(
        "packing",
        "pack the dataset into a store: penstock pack SRC DST.lmdb",
        f"Reading takes {situation.mean_ns('read') / 1e6:.2g} ms of a sample. A quarter of it is assumed to stay, as "
        "one file is read instead of many.",
        situation.gain_of(situation.pipeline.with_stage("read", _LEFT)),
        code='dataset = penstock.StoreDataset(penstock.open("DST.lmdb"), ...)',
    )


def reads_a_store(situation: Situation) -> bool:
    """Whether the dataset reads a store of penstock's."""
    return situation.recording.settings.dataset == "StoreDataset"
