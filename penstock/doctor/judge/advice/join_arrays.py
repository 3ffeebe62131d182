"""Few large arrays in a sample instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = ["find"]

_MUCH: Final = 0.25
_FEW_ARRAYS_NS: Final = 3e6
_LEFT: Final = 0.2
"""Part of the costs of collation and transport that is assumed to stay."""


def find(situation: Situation) -> Iterator[Candidate]:
    """If collation or sending limits, and batches are not so large that copying them explains it."""
    moved_ns = _time_moving(situation)
    share = situation.share("collate") + situation.share("transport")
    # A copy takes about a nanosecond for 4 bytes or more; sending few arrays takes less than some milliseconds.
    is_slow = situation.share("collate") >= _MUCH or moved_ns >= _FEW_ARRAYS_NS
    nbytes = situation.batch_nbytes()
    if share < _MUCH or not is_slow or nbytes > moved_ns:
        return
    size = f" of {nbytes / 1e6:.2g} MB" if nbytes else ""
    changed = situation.pipeline.with_stage("collate", _LEFT).with_stage("transport", _LEFT)
    yield Candidate(
        "join-arrays",
        "return one array for each type from the dataset, and split the batch",
        f"Collating and sending take {moved_ns / 1e6:.1f} ms for a batch{size}: many small arrays are stacked and sent "
        "one by one.",
        situation.gain_of(changed),
        Change(joins=True),
        "return torch.cat([tensor.reshape(-1) for tensor in tensors])  # in __getitem__; batch.split(sizes, 1) after",
    )


def _time_moving(situation: Situation) -> float:
    """Time of collating, sending and receiving a batch, without waiting for cores."""
    works = [work for stage, work in situation.pipeline.build.items() if stage in {"collate", "transport"}]
    sent_ns = sum(float(work.cpu_ns.mean() + work.idle_ns.mean()) for work in works if len(work.cpu_ns))
    return sent_ns + situation.pipeline.receive_ns
