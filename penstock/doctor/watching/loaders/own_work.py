"""Times how penstock's loaders build batches, wherever they do: in the caller, a thread, or a worker process.

::

    begin_work ── Trace.add: a part of a chunk ── jobs' run: a chunk ── jobs' watch: a sample ── end_work

The recorder of a thread's present batch is in :data:`working`. :mod:`.own_loader` (threads, no workers)
and :mod:`penstock.doctor.watching.loaders.own_worker` (processes) replace what :func:`work_replacements` lists.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from penstock.doctor.watching.work_recorder import WorkRecorder
from penstock.trace import Trace
from penstock.workers import threads
from penstock.workers.jobs.base import ReadTimer
from penstock.workers.jobs.fill import FillBuild
from penstock.workers.jobs.samples import _SampleBuild
from penstock.workers.jobs.stream import _StreamBuild

__all__ = ["begin_work", "end_work", "mark_samples", "work_replacements", "working"]

_STAGES: Final = frozenset({"read", "decode", "augment", "collate", "transport"})
_F = TypeVar("_F", bound=Callable[..., Any])
working = threading.local()
"""``work``: the WorkRecorder of the thread, while it builds for a watched loader."""


def begin_work(work: WorkRecorder, batch: int) -> None:
    """Begin (a part of) a batch in this thread."""
    working.work = work
    work.begin_batch(batch)


def end_work(work: WorkRecorder, samples: int) -> None:
    """End a batch that this thread has built."""
    working.work = None
    work.end_batch(samples)


def work_replacements() -> list[tuple[Any, str, Any]]:
    """What is replaced wherever batches are built."""
    return [
        (Trace, "add", _record_part(Trace.add)),
        (ReadTimer, "__exit__", _leave_reading(ReadTimer.__exit__)),
        (_SampleBuild, "run", _time_chunk(_SampleBuild.run, is_stream=False)),
        (_StreamBuild, "run", _time_chunk(_StreamBuild.run, is_stream=True)),
        (FillBuild, "run", _time_chunk(FillBuild.run, is_stream=False)),
        (threads, "_report", mark_samples(threads._report)),  # noqa: SLF001  # ours
    ]


def _mark(function: _F) -> _F:
    """Mark what is replaced, so that a forked worker does not replace it again; ``functools.wraps`` keeps the mark."""
    vars(function)["is_watched"] = True
    return function


def _record_part(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def add(self: Trace, stage: str, time_ns: int, items: int = 1) -> None:
        original(self, stage, time_ns, items)
        work: WorkRecorder | None = getattr(working, "work", None)
        if work is None or (stage == "read" and getattr(working, "leaves_read", False)):
            return
        if stage in _STAGES:
            work.add_part(stage, time_ns, items)

    return _mark(add)


def _leave_reading(original: Callable[..., None]) -> Callable[..., None]:
    """What a trace would call reading is all of the user's code: its parts are sampled."""

    @functools.wraps(original)
    def leave(self: Any, *exc: object) -> None:
        working.leaves_read = True
        try:
            original(self, *exc)
        finally:
            working.leaves_read = False

    return _mark(leave)


def _time_chunk(original: Callable[[Any, int, int], None], *, is_stream: bool) -> Callable[[Any, int, int], None]:
    """A watch of jobs that build a chunk; samples of a stream have no index, and are counted when they are there."""

    @functools.wraps(original)
    def run(self: Any, start: int, stop: int) -> None:
        work: WorkRecorder | None = getattr(working, "work", None)
        if work is None:
            original(self, start, stop)
            return
        indices = () if is_stream else self._task.indices
        chunk: Any = indices[start:stop] if isinstance(indices, (list, tuple, np.ndarray)) else ()
        work.begin_chunk(chunk)
        try:
            original(self, start, stop)
        finally:
            work.end_chunk(len(self._samples) if is_stream else stop - start)

    return _mark(run)


def mark_samples(original: Callable[..., None]) -> Callable[..., None]:
    """A watch of jobs: it is called with the position of each sample in the chunk."""

    @functools.wraps(original)
    def report(place: int, count: int = 1) -> None:
        original(place, count)
        work: WorkRecorder | None = getattr(working, "work", None)
        if work is not None:
            work.mark_sample(place, count)

    return _mark(report)
