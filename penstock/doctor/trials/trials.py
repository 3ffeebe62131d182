"""Trials: a changed loader is drained in a forked child, with a trainer that only takes time.

The child (:mod:`.trial_child`, :mod:`.forked_child`) tells when it takes each batch and begins each epoch. The training
is never run again, and the child cannot change the script's objects. What a dataset writes to disk when it is read, it
writes here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.doctor.machine.process_counters import read_pss
from penstock.doctor.trials.forked_child import find_members, read_child
from penstock.doctor.trials.trial_child import BATCH_TAKEN, EPOCH_BEGUN, NBYTES, TrialOrder, drain
from penstock.system.system_files import SystemFiles

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["Trial", "run_trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one run."""

    batches_per_s: float
    """After the workers have started; with epochs so short that two were whole, of whole epochs. 0: nothing was
    delivered in time."""
    batches: int  # delivered in all
    error: str = ""  # why it failed; empty if it did not
    batch_nbytes: int = 0  # of the first batch's arrays
    worker_pss_bytes: int = 0
    """Memory of one worker, shared pages divided; 0 without worker processes, or if it was not measured."""


def run_trial(loader: WatchedLoader, order: TrialOrder, *, measure_memory: bool = False) -> Trial:
    """Drain ``loader`` in a child process.

    ``loader``: of torch or penstock. It is not changed. ``order``: the change, the trainer, and how long.
    ``measure_memory``: whether to read the memory of the workers before they are killed.
    """
    memory: list[int] = []

    def read_memory(group: int) -> None:
        if measure_memory:
            memory.append(_measure_worker_pss(group))

    lines, error = read_child(lambda send: drain(loader, order, send), order.limit_s, read_memory)
    taken, epochs, nbytes = list[float](), list[tuple[float, int]](), 0
    for kind, *values in lines:
        numbers = cast("list[float]", values)
        if kind == BATCH_TAKEN:
            taken.append(numbers[0])
        elif kind == EPOCH_BEGUN:
            epochs.append((numbers[0], len(taken)))
        elif kind == NBYTES:
            nbytes = int(numbers[0])
    workers = max(order.change.count_workers(loader), 1)
    return Trial(_measure_rate(taken, epochs, workers), len(taken), error, nbytes, sum(memory))


def _measure_worker_pss(group: int) -> int:
    """Mean memory of the processes of ``group`` without its leader, in bytes; 0 if there are none."""
    files = SystemFiles()
    found = [read_pss(files, member) for member in find_members(group) if member != group]
    sizes = [nbytes for nbytes in found if nbytes >= 0]  # -1: it has ended
    return sum(sizes) // len(sizes) if sizes else 0


def _measure_rate(taken: Sequence[float], epochs: Sequence[tuple[float, int]], workers: int) -> float:
    """Measure batches per second: of whole epochs if two were whole, else of whole rounds after the first."""
    if len(epochs) >= 3:
        (first_s, first), (last_s, last) = epochs[0], epochs[-1]
        return (last - first) / max(last_s - first_s, 1e-9)
    if len(taken) < 2:
        return 0.0
    skipped = min(max(workers, 2), len(taken) - 2)
    count = len(taken) - 1 - skipped
    rounds = count // workers * workers or count
    return rounds / max(taken[skipped + rounds] - taken[skipped], 1e-9)
