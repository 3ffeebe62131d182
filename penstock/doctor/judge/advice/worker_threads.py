"""One thread for libraries in each worker, or for torch in the main process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.turns import Measured

__all__ = ["find", "find_main_threads"]

_LEAST: Final = 1.1
"""Gain of steps with one thread over those before and those after: less comes and goes."""


def find(situation: Situation) -> Iterator[Advice]:
    """Try one thread a worker if workers compute with several threads each, and all of them exceed the cores."""
    if not situation.workers or situation.threads <= 1 or crowd(situation) <= situation.cores:
        return
    yield Advice(
        "worker-threads",
        "one thread for OpenMP, BLAS, OpenCV and torch in each worker",
        f"{situation.workers} workers compute with {situation.threads:.1f} threads each on {situation.cores:g} cores.",
        trial=Change(worker_threads=1),
        code="DataLoader(..., worker_init_fn=lambda worker: torch.set_num_threads(1))  # and OMP_NUM_THREADS=1, "
        "cv2.setNumThreads(0)",
    )


def find_main_threads(situation: Situation) -> Iterator[Advice]:
    """Advise one thread of torch's in the main process if steps of the script were faster with it."""
    gain = situation.recording.thread_gain
    if gain is None or gain.lowest < _LEAST:
        return
    yield Advice(
        "main-threads",
        ONE_THREAD,
        f"torch computes with {gain.threads} threads there, which wait for one another in loops on "
        f"{situation.cores:g} cores; some steps of the script were run with one.",
        code="torch.set_num_threads(1)  # or OMP_NUM_THREADS=1 in the environment",
        measured=Measured(gain.middle, gain.lowest, gain.highest, 2),
    )


def crowd(situation: Situation) -> float:
    """Threads of all workers that want to compute."""
    usage = [usage.threads for usage in situation.recording.usage if usage.role.startswith("worker")]
    return situation.workers * max(situation.threads, max(usage, default=1) / 2)
