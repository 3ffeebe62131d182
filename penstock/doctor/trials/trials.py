"""Trials: a changed loader is drained in a forked child, with a trainer that only takes time.

::

    this process                              child (trial_child.py), a process group
      fork ─────────────────────────────────>   copy of the loader with the change ──> workers
      reads until enough, or too late  <─pipe─   one time stamp for each batch taken and each epoch begun
      kills the group

The training is never run again, and the child cannot change the script's objects. What a dataset writes to disk when it
is read, it writes here too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import select
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.doctor.trials.process_group import find_members, kill_group
from penstock.doctor.trials.trial_child import (
    BATCH_TAKEN,
    EPOCH_BEGUN,
    FAILED,
    FINISHED,
    NBYTES,
    ROW,
    TrialOrder,
    run_child,
)

__all__ = ["Trial", "run_trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run gave.

    Parameters
    ----------
    batches_per_s : float
        After the workers have started; with epochs so short that two were whole, of whole epochs. 0: nothing was
        delivered in time.
    batches : int
        Delivered in all.
    error : str
        Why it failed; empty if it did not.
    taken_s, cpu_s, delay_s : float64[batches]
        When each batch was taken; until then, processor time of the draining thread, and time in which it had no core.
    batch_nbytes : int
        Of the first batch's arrays.
    worker_pss_bytes : int
        Memory of one worker, shared pages divided; 0 without worker processes, or if it was not measured.
    """

    batches_per_s: float
    batches: int
    error: str = ""
    taken_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    cpu_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    delay_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    batch_nbytes: int = 0
    worker_pss_bytes: int = 0


def run_trial(loader: Any, order: TrialOrder, *, measure_memory: bool = False) -> Trial:
    """Drain ``loader`` in a child process.

    Parameters
    ----------
    loader : DataLoader
        Of torch or penstock. It is not changed.
    order : TrialOrder
        The change, the trainer, and how long.
    measure_memory : bool
        Whether to read the memory of the workers before they are killed.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        return Trial(0.0, 0, "this system cannot fork a process")
    with tempfile.TemporaryDirectory(prefix="pymp-", ignore_cleanup_errors=True) as folder:
        return _run(loader, order, folder, measure_memory=measure_memory)


def _run(loader: Any, order: TrialOrder, folder: str, *, measure_memory: bool) -> Trial:
    receiver, sender = os.pipe()
    process = multiprocessing.get_context("fork").Process(
        target=run_child, args=(loader, order, receiver, sender), daemon=False
    )
    # Workers make sockets in such a folder, and are killed before they remove it: the child's and theirs is this one.
    process._config["tempdir"] = folder  # type: ignore[attr-defined]  # noqa: SLF001  # of BaseProcess
    try:
        process.start()
    except (OSError, AssertionError) as error:
        os.close(receiver)
        return Trial(0.0, 0, f"no child process could be started: {error}")
    finally:
        os.close(sender)
    memory = 0
    try:
        content = _read_all(receiver, time.perf_counter() + order.limit_s)
        if measure_memory and process.pid is not None:
            memory = _measure_worker_pss(process.pid)
    finally:
        os.close(receiver)
        if process.pid is not None:
            kill_group(process.pid)
        process.join()
        process.close()
    workers = max(order.change.arguments.get("num_workers", getattr(loader, "num_workers", 0)), 1)
    return _parse(content, workers, memory)


def _read_all(receiver: int, deadline: float) -> bytes:
    """What the child has written when it says that it has ended, or time is over."""
    content, at = bytearray(), 0
    while (left := deadline - time.perf_counter()) > 0:
        readable, _, _ = select.select([receiver], [], [], left)
        if not readable:
            break
        piece = os.read(receiver, 1 << 16)
        content += piece
        while at + ROW.size <= len(content) and content[at] not in {FAILED, FINISHED}:
            at += ROW.size
        if not piece or (at + ROW.size <= len(content) and content[at] in {FAILED, FINISHED}):
            break
    return bytes(content)


def _measure_worker_pss(group: int, proc: Path = Path("/proc")) -> int:
    """Mean memory of the processes of ``group`` without its leader, in bytes; 0 if there are none."""
    sizes = []
    for member in find_members(group, proc):
        with contextlib.suppress(OSError):  # it has ended
            rollup = "" if member == group else (proc / str(member) / "smaps_rollup").read_text()
            if match := re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE):
                sizes.append(1024 * int(match[1]))
    return sum(sizes) // len(sizes) if sizes else 0


def _parse(content: bytes, workers: int, memory: int) -> Trial:
    taken: list[float] = []
    cpu: list[float] = []
    delay: list[float] = []
    epochs: list[tuple[float, int]] = []
    error, nbytes, at = "", 0, 0
    while at + ROW.size <= len(content):
        kind, moment, value, second = ROW.unpack_from(content, at)
        at += ROW.size
        if kind == BATCH_TAKEN:
            taken.append(moment)
            cpu.append(value)
            delay.append(second)
        elif kind == EPOCH_BEGUN:
            epochs.append((moment, len(taken)))
        elif kind == NBYTES:
            nbytes = int(value)
        elif kind == FAILED:
            error = content[at:].decode("utf-8", "replace")
            break
    rate = _measure_rate(taken, epochs, workers)
    return Trial(rate, len(taken), error, np.array(taken), np.array(cpu), np.array(delay), nbytes, memory)


def _measure_rate(taken: list[float], epochs: list[tuple[float, int]], workers: int) -> float:
    """Batches per second: of whole epochs if two were whole, else of whole rounds of the workers after the first."""
    if len(epochs) >= 3:
        (first_s, first), (last_s, last) = epochs[0], epochs[-1]
        return (last - first) / max(last_s - first_s, 1e-9)
    if len(taken) < 2:
        return 0.0
    skipped = min(max(workers, 2), len(taken) - 2)
    count = len(taken) - 1 - skipped
    rounds = count // workers * workers or count
    return rounds / max(taken[skipped + rounds] - taken[skipped], 1e-9)
