"""One thread for libraries in each worker, or for torch in the main process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.turns import Measured

__all__ = ["find", "find_main_threads"]

_LEAST: Final = 1.1
"""Gain of steps with one thread over those before and those after: less comes and goes."""


def find(situation: Situation) -> Iterator[Advice]:
    """Advise one thread a worker if workers compute with several threads each, and all of them exceed the cores."""
    pipeline = situation.pipeline
    if pipeline.workers == 0 or pipeline.threads <= 1 or crowd(situation) <= pipeline.cores:
        return
    # The thread that builds would compute all of it; what the others computed was mostly waiting in a loop.
    build = {stage: work.scaled(1.0) for stage, work in pipeline.build.items()}
    build = {stage: replace(work, cpu_ns=work.cpu_ns / pipeline.threads) for stage, work in build.items()}
    changed = replace(pipeline, build=build, threads=1.0)
    yield Advice(
        "worker-threads",
        "one thread for OpenMP, BLAS, OpenCV and torch in each worker",
        f"{pipeline.workers} workers compute with {pipeline.threads:.1f} threads each on {pipeline.cores:g} cores.",
        situation.gain_of(changed),
        trial=Change(worker_threads=1),
        code="DataLoader(..., worker_init_fn=lambda worker: torch.set_num_threads(1))  # and OMP_NUM_THREADS=1, "
        "cv2.setNumThreads(0)",
        doubt=0.5,
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
        f"{situation.pipeline.cores:g} cores; some steps of the script were run with one.",
        gain.middle,
        code="torch.set_num_threads(1)  # or OMP_NUM_THREADS=1 in the environment",
        doubt=0.5,
        measured=Measured(gain.middle, gain.lowest, gain.highest, 2),
    )


def crowd(situation: Situation) -> float:
    """Threads of all workers that want to compute."""
    usage = [usage.threads for usage in situation.recording.usage if usage.role.startswith("worker")]
    return situation.pipeline.workers * max(situation.pipeline.threads, max(usage, default=1) / 2)
