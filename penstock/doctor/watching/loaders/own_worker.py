"""Begins to record in a worker process of penstock's loaders; sent there by :mod:`.own_loader`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from penstock.doctor.watching.event_file import Control
from penstock.doctor.watching.loaders.own_work import begin_work, end_work, mark_samples, work_replacements
from penstock.doctor.watching.stack_sampling import StackSampler
from penstock.doctor.watching.work_recorder import WorkRecorder
from penstock.workers.processes.worker import _Worker

__all__ = ["record_worker"]


def record_worker(control: Control, work: WorkRecorder) -> None:
    """Begin to record in this process, which is a worker."""
    sampler = StackSampler()
    sampler.watch_thread(work.thread)
    sampler.start()
    for owner, name, value in work_replacements():
        if not getattr(getattr(owner, name), "is_watched", False):
            setattr(owner, name, value)
    build: Callable[[Any, Any], None] = _Worker._build  # noqa: SLF001  # ours

    @functools.wraps(build)
    def timed_build(self: Any, task: Any) -> None:
        if control.is_stopped:
            sampler.stop()
            build(self, task)
            return
        work.first_batch = control.first_batch
        watch = self._job.watch
        if not getattr(watch, "is_watched", False):
            self._job.watch = mark_samples(watch)
        begin_work(work, task.seq)
        try:
            build(self, task)
        finally:
            end_work(work, len(task.indices) or task.size or work.chunk_samples)

    _Worker._build = timed_build  # type: ignore[method-assign]  # noqa: SLF001  # ours
