"""Another number of workers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.doctor.checks.rules.loader_arguments import is_unsharded
from penstock.doctor.checks.subject import Subject
from penstock.doctor.judge.advice.loader_arguments import advise_arguments
from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.judge.queueing import TrainingPipeline, Work, predict
from penstock.doctor.judge.situation import Situation, count_threads

__all__ = ["fewest_near_best", "find", "with_workers"]

_TOLERANCE: Final = 0.02
_SEND_NS: Final = 0.3e6
_RECEIVE_NS: Final = 0.2e6
"""Costs of a small batch, where there are no workers to observe."""
_NO_LOSS: Final = 0.95
_CROWD: Final = 2
"""Workers per core above which fewer are tried although the model sees no gain: a change of thread is free in it."""


def find(situation: Situation) -> Iterator[Advice]:
    """Yield the fewest workers that are near the best, and no more than cores where there are many more."""
    pipeline = situation.pipeline
    cores = max(math.ceil(pipeline.cores), 1)
    best = fewest_near_best(situation, most=max(2 * cores, 4 * cores if _waits_for_disks(situation) else 0, 4))
    numbers = {"num_workers": best} if best != pipeline.workers else {}
    if pipeline.workers > _CROWD * cores:
        numbers["fewer-workers"] = cores
    for rule, number in numbers.items():
        changed = with_workers(pipeline, number)
        if number > pipeline.workers:
            reason = f"Workers are busy, and {cores} cores are not: {number} workers build more at the same time."
            if pipeline.workers == 0:
                reason = "Without workers, the trainer waits for each sample; workers build while it trains."
            if situation.idle_share("read") > 0.5:
                reason = "Workers wait for the disk or the network: more of them wait at the same time."
        else:
            reason = f"{pipeline.workers} workers compete with the trainer for {cores} cores; {number} give as much."
        # Against other programs more workers get more of the cores by their number alone: that is not promised.
        gain = situation.gain_of(changed)
        if number > pipeline.workers:
            gain = min(gain, situation.idle_gain_of(changed))
        doubt = 0.5 if rule == "fewer-workers" else 0.2
        advice = advise_arguments({"num_workers": number}, reason, gain, rule=rule, doubt=doubt)
        tried = situation.recording.thread_gain
        crowds = count_threads() + number > cores if tried is None else tried.middle >= _NO_LOSS
        if not pipeline.workers and crowds and count_threads() > 1:
            advice = _add_thread(advice)
        yield _divide_stream(advice) if not pipeline.workers and _gives_all(situation.loader) else advice


def _gives_all(loader: object) -> bool:
    """Return whether each of several workers would give all samples."""
    return loader is not None and is_unsharded(Subject(loader, 0))


def _divide_stream(advice: Advice) -> Advice:
    """First workers of a stream that would give each sample once for each of them: the trial would count all."""
    return replace(
        advice,
        change=f"{advice.change}, and __iter__ that gives each worker a part of the samples",
        reason=f"{advice.reason} As it is, each worker would give all samples.",
        code=f"{advice.code}; worker = torch.utils.data.get_worker_info()  # in __iter__, where it is None without "
        "workers: itertools.islice(lines, worker.id, None, worker.num_workers)",
        trial=None,
    )


def _add_thread(advice: Advice) -> Advice:
    """First workers, where several threads of the main process would take their cores, waiting in loops."""
    return replace(
        advice,
        change=f"{advice.change}, with {ONE_THREAD}",
        reason=f"{advice.reason} More threads there would take cores from the workers, waiting in loops.",
        code=f"{advice.code}; torch.set_num_threads(1)",
    )


def with_workers(pipeline: TrainingPipeline, number: int) -> TrainingPipeline:
    """Return the pipeline with another number of workers; without workers now, sending and receiving are assumed."""
    if pipeline.workers or not number:
        startup_ns = pipeline.startup_ns * number / max(pipeline.workers, 1)
        return replace(pipeline, workers=number, startup_ns=startup_ns)
    count = max((len(work.cpu_ns) for work in pipeline.build.values()), default=0)
    build = (
        {**pipeline.build, "transport": Work(np.full(count, _SEND_NS), np.zeros(count))} if count else pipeline.build
    )
    return replace(pipeline, workers=number, prefetch=2, build=build, receive_ns=_RECEIVE_NS)


def fewest_near_best(situation: Situation, most: int) -> int:
    """Return the fewest workers whose predicted speed is within 2 % of the best of up to ``most``."""
    present = situation.pipeline.workers
    numbers: list[int] = sorted({1, *range(2, min(most, 8) + 1), *range(8, most + 1, 4), max(present, 1)})
    # Other programs are left out: against them, more workers would get more of the cores by their number alone.
    quiet = replace(situation.pipeline, background=0.0)
    gains = {number: predict(with_workers(quiet, number)).batches_per_s for number in numbers}
    best = max(gains.values())
    return min(number for number, gain in gains.items() if gain >= (1 - _TOLERANCE) * best)


def _waits_for_disks(situation: Situation) -> bool:
    works = situation.pipeline.build.values()
    idle, cpu = (sum(float(getattr(work, name).sum()) for work in works) for name in ("idle_ns", "cpu_ns"))
    return idle > cpu
