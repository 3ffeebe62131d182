"""Another number of workers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.doctor.checks.rules.loader_arguments import is_unsharded
from penstock.doctor.checks.subject import Subject
from penstock.doctor.judge.advice.loader_arguments import advise_arguments
from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.judge.situation import Situation, count_threads
from penstock.doctor.watching.recording import WORK_STAGES

__all__ = ["WORKER_RULES", "find"]

WORKER_RULES: Final = ("num_workers", "more-workers", "fewer-workers", "no-workers")
"""Rules of other numbers of workers."""
_NO_LOSS: Final = 0.95
_QUICK_NS: Final = 5e6
"""A batch that is built in less may be built where it is used."""


def find(situation: Situation) -> Iterator[Advice]:
    """Try as many workers as cores; twice as many where they wait for disks; and none where batches are quick."""
    workers, cores = situation.workers, max(math.ceil(situation.cores), 1)
    waits = situation.idle_share(*WORK_STAGES) > 0.5
    numbers = {"fewer-workers" if cores < workers else "num_workers": cores}
    if waits and 2 * cores > workers:
        numbers["more-workers"] = 2 * cores
    if workers and situation.batch_ns < _QUICK_NS:
        numbers["no-workers"] = 0
    for rule, number in numbers.items():
        if number == workers:
            continue
        if number > workers:
            reason = f"{workers} workers build on {cores} cores; {number} build more at the same time."
            if not workers:
                reason = "Without workers, the trainer waits for each sample; workers build while it trains."
            if waits:
                reason = "Workers wait for the disk or the network: more of them wait at the same time."
        elif number:
            reason = f"{workers} workers compete with the trainer for {cores} cores."
        else:
            reason = f"A batch is built in {situation.batch_ns / 1e6:.2g} ms: to send it may take longer."
        advice = advise_arguments({"num_workers": number}, reason, rule=rule)
        tried = situation.recording.thread_gain
        crowds = count_threads() + number > cores if tried is None else tried.middle >= _NO_LOSS
        if not workers and crowds and count_threads() > 1:
            advice = _add_thread(advice)
        yield _divide_stream(advice) if not workers and _gives_all(situation.loader) else advice


def _gives_all(loader: object) -> bool:
    """Return whether each of several workers would give all samples."""
    return loader is not None and is_unsharded(Subject(loader, 0))


def _divide_stream(advice: Advice) -> Advice:
    """First workers of a stream that would give each sample once for each of them: a trial would count all."""
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
