"""Few large arrays in a sample instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.advice.candidate import Candidate
from penstock.doctor.changed_loader import Change
from penstock.doctor.situation import Situation

__all__ = ["find"]

_LEFT: Final = 0.2
"""Part of the costs of collation and transport that is assumed to stay."""


def find(situation: Situation) -> Iterator[Candidate]:
    """If collation limits, and batches are not so large that copying them explains it."""
    nbytes, collate_ns = situation.batch_nbytes(), situation.mean_ns("collate") * situation.steps.samples
    if situation.share("collate") < 0.25 or nbytes > collate_ns:  # a copy takes about a nanosecond for 4 bytes or more
        return
    size = f" of {nbytes / 1e6:.2g} MB" if nbytes else ""
    changed = situation.pipeline.with_stage("collate", _LEFT).with_stage("transport", _LEFT)
    yield Candidate(
        "join-arrays",
        "return one array for each type from the dataset, and split the batch",
        f"Collation takes {collate_ns / 1e6:.1f} ms for a batch{size}: many small arrays are stacked and sent one by "
        "one.",
        situation.gain_of(changed),
        Change(joins=True),
        "return torch.cat([tensor.reshape(-1) for tensor in tensors])  # in __getitem__; batch.split(sizes, 1) after",
    )
