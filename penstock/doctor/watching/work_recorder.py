"""Records how one worker (a process, a thread, or the caller without workers) builds its batches.

::

    begin_batch ── begin_samples ── begin_sample ── ... ── end_samples ── collation ── end_batch ── leave_batch
                                    [read | decode | augment]       timed; parts are sampled, or a trace adds them

Events of a batch, or of a part of one that several threads build, are written at its end, all at once. Where batches of
torch's loader are short, few of them are recorded (:class:`DetailChoice`); of the others nothing is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from penstock.doctor.watching.event_file import EventFile, EventRow, EventSink, make_row
from penstock.doctor.watching.recording import BATCH, SAMPLE, WORK_STAGES
from penstock.doctor.watching.stack_sampling import Activity, SampledThread

__all__ = ["DetailChoice", "WorkRecorder", "open_recorder"]

_PARTS: Final = WORK_STAGES[:3]
_MOST_COST: Final = 0.003
"""Most that details cost, as a part of the time of all batches."""
_MOST_APART: Final = 256
"""One batch of so many is observed in detail at least, whatever it costs: else little would be known of a short run."""
_FIRST: Final = 40
"""Batches at the beginning that are all observed in detail: a short script has no others, and some of them are left out
as warm-up."""

_OWN_LOOKS_NS: Final = 15_000_000
"""Samples of a batch that were looked at for so long are divided by their own looks; others by those of all so far."""
_SAMPLE_NS: Final = 2_000
_BATCH_NS: Final = 100_000
"""What it costs to time one sample and to write its event; and the other details of a batch, by code that is not in the
processor's caches where that is rare."""
_SHORT_SAMPLE_NS: Final = 100_000
_FORGET: Final = 0.98
_FORGET_FIRST: Final = 0.1
"""In its first batch a worker imports modules and opens files."""
_LITTLE: Final = 0.1
"""Parts of a chunk's time."""


class DetailChoice:
    """Chooses which batches, or steps, are observed in detail: each one while that is cheap, else one of several.

    Attributes
    ----------
    left : int
        Batches until the next one in detail; who passes one over takes 1 away.
    """

    __slots__ = ("_drawn", "_seen", "left")

    def __init__(self) -> None:
        self.left, self._seen, self._drawn = 0, 0, 1

    def choose(self, batch_ns: float, cost_ns: float) -> None:
        """Set :attr:`left` after a batch in detail: batches take ``batch_ns``, and the details of one ``cost_ns``."""
        self._seen += 1
        apart = min(int(cost_ns / (_MOST_COST * max(batch_ns, 1.0))) + 1, _MOST_APART)
        # Not each of a fixed number: that could miss slow samples that come as regularly.
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        self.left = 0 if self._seen < _FIRST else (self._drawn >> 8) % (2 * apart - 1)


class WorkRecorder:
    """Records the batches of one worker; used by the thread that builds them.

    Parameters
    ----------
    sink : EventSink
        Where events go.
    worker : int
        Number of the worker; -1: the main process.
    thread : SampledThread
        The worker's thread, which a :class:`~penstock.doctor.watching.stack_sampling.StackSampler` looks at.

    Attributes
    ----------
    batch : int
        Number of the present batch, over all epochs.
    is_busy : bool
        Whether the worker is building a batch that is recorded.
    details : DetailChoice
        Which batches of torch's loader are recorded.
    """

    def __init__(self, sink: EventSink, worker: int, thread: SampledThread) -> None:
        self.sink, self.worker, self.thread = sink, worker, thread
        self.batch, self.is_busy, self.details = -1, False, DetailChoice()
        self._began_ns = self._began_cpu_ns = 0
        self._whole: tuple[int, int, int, bool] | None = None  # of a batch that is built, and not left yet
        self._parts_cpu_ns = 0  # of the parts of the batch that this thread has built
        self._rows: list[EventRow] = []  # of the present batch
        # samples that are being built
        self._start = self._start_cpu = self._timed = 0
        self._marks: list[tuple[int, int, int]] = []
        self._indices: Sequence[object] = ()
        self._counted: list[EventRow] = []
        self._collation_ns = 0
        # all batches so far
        self._parts = dict.fromkeys(_PARTS, 0.0)
        self._batches = 0

    # batches

    def begin_batch(self, number: int) -> None:
        """A task was taken, or a part of one."""
        if number != self.batch:
            self._parts_cpu_ns = 0
        self.batch, self.is_busy, self._timed = number, True, 0
        self._began_ns, self._began_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()

    def end_batch(self, samples: int, nbytes: int = -1, *, begun_ns: int = 0, is_shared: bool = False) -> None:
        """The batch is built, or has failed; its events are written by :meth:`leave_batch`.

        ``samples`` and ``nbytes``: of the batch, as far as they are known. ``begun_ns``: when its first part was begun;
        0: by this thread, with the present part. ``is_shared``: whether several threads have built it.
        """
        self._whole = begun_ns or self._began_ns, samples, nbytes, is_shared

    def leave_batch(self) -> None:
        """End the part of a batch that this thread has built; after :meth:`end_batch`, the batch."""
        end, self.thread.activity = time.perf_counter_ns(), None
        self._parts_cpu_ns += time.thread_time_ns() - self._began_cpu_ns
        whole, self._whole = self._whole, None
        if whole is not None:
            begun, samples, nbytes, is_shared = whole
            cpu = -1 if is_shared else self._parts_cpu_ns
            row = make_row(BATCH, self.worker, self.batch, begun, end, cpu=cpu, nbytes=nbytes, samples=samples)
            self._rows.append(row)
            self._batches += 1
            self.details.choose(end - begun, _BATCH_NS + self._timed * _SAMPLE_NS)
        rows, self._rows = self._rows, []
        self.sink.add(rows)
        self.is_busy = False

    # samples

    def begin_samples(self, indices: Sequence[object] = ()) -> None:
        """Samples of the batch are being built, by one call or one by one.

        ``indices`` are theirs; empty where samples have none.
        """
        self._start, self._start_cpu, self._indices = time.perf_counter_ns(), time.thread_time_ns(), indices
        self._counted, self._marks = [], []
        self.thread.activity = Activity("sample", self._start)

    def begin_sample(self, position: int, count: int = 1) -> None:
        """The sample at ``position``, or ``count`` samples from there on, are begun; -1: their collation."""
        if self._start:
            self._marks.append((time.perf_counter_ns(), position, count))

    def add_part(self, stage: str, time_ns: int, samples: int) -> None:
        """A trace has counted ``time_ns`` up to now."""
        end = time.perf_counter_ns()
        row = make_row(stage, self.worker, self.batch, end - time_ns, end, samples=samples)
        (self._counted if self._start and stage in _PARTS else self._rows).append(row)

    def end_samples(self, samples: int) -> None:
        """The samples are built. What a trace has not counted of them is divided by what was seen."""
        if not self._start:
            return
        end, used = time.perf_counter_ns(), time.thread_time_ns() - self._start_cpu
        activity, self.thread.activity = self.thread.activity, None
        start, self._start = self._start, 0
        seen = self._note_parts(activity, (end - start) / max(samples, 1))
        if not samples:
            return
        timed = self._single_samples(end)[:samples]
        self._timed = len(timed)
        whole = make_row(SAMPLE, self.worker, self.batch, start, end, samples=samples)
        parts = self._list_parts(start, end, samples, seen)
        total = max(sum(row[5] - row[4] for row in parts), 1)
        self._rows += timed or [whole]
        self._rows += [(*row[:6], round(used * (row[5] - row[4]) / total), *row[7:]) for row in parts]

    def _single_samples(self, end: int) -> list[EventRow]:
        """Events of samples, if they were built one by one until ``end``."""
        if not self._marks or any(position >= 0 and count != 1 for _, position, count in self._marks):
            return []
        ends = [*(begun for begun, _, _ in self._marks[1:]), end]
        return [
            make_row(SAMPLE, self.worker, self.batch, begun, until, samples=1, index=self._index_at(position))
            for (begun, position, _), until in zip(self._marks, ends, strict=True)
            if position >= 0
        ]

    def _index_at(self, position: int) -> int:
        index = self._indices[position] if position < len(self._indices) else None
        return int(index) if isinstance(index, (int, np.integer)) else -1

    def _list_parts(self, start: int, end: int, samples: int, seen: Mapping[str, float]) -> list[EventRow]:
        """Reading, decoding and augmenting of the samples: as counted, and the rest such that the whole is as seen."""
        spent = dict.fromkeys(_PARTS, 0)
        for row in self._counted:
            spent[_PARTS[row[0]]] += row[5] - row[4]
        rest = end - start - sum(spent.values())
        if self._counted and rest <= _LITTLE * (end - start):
            return self._counted
        left = {stage: max(0.0, share * (end - start) - spent[stage]) for stage, share in seen.items()}
        rows, at, whole = list(self._counted), end - rest, sum(left.values())
        for stage, time_ns in left.items():
            until = at + round(rest * time_ns / max(whole, 1.0))
            if until > at:
                rows.append(make_row(stage, self.worker, self.batch, at, until, samples=samples))
                at = until
        return rows

    def _note_parts(self, activity: Activity | None, sample_ns: float) -> dict[str, float]:
        """Note what was seen of the samples; returns their parts, none where nothing was seen of long ones so far."""
        weights = {} if activity is None else activity.weights
        if weights:
            kept = _FORGET if self._batches > 1 else _FORGET_FIRST
            for stage in _PARTS:
                self._parts[stage] = self._parts[stage] * kept + weights.get(stage, 0)
        if sum(weights.values()) >= _OWN_LOOKS_NS:
            return _shares({stage: weights.get(stage, 0) for stage in _PARTS})
        if any(self._parts.values()):
            return _shares(self._parts)
        return {"augment": 1.0} if self._counted or sample_ns <= _SHORT_SAMPLE_NS else {}

    # collations of torch's loader

    def begin_collation(self, samples: int) -> None:
        """The samples are built, and ``collate_fn`` is called."""
        self.end_samples(samples)
        self._collation_ns = time.perf_counter_ns()

    def end_collation(self, samples: int, nbytes: int) -> None:
        """Record that a batch of so many bytes is made."""
        start, end = self._collation_ns, time.perf_counter_ns()
        self._rows.append(make_row("collate", self.worker, self.batch, start, end, nbytes=nbytes, samples=samples))


def open_recorder(folder: Path, iterator: int, worker: int) -> WorkRecorder | None:
    """Return a recorder for this worker process, which is of an iterator of the loader.

    It is None if its file cannot be made.
    """
    try:
        sink = EventFile(folder / f"{iterator}-{worker}-{os.getpid()}.events")
    except OSError:  # the disk is full, or the watching process has ended: the worker works unwatched
        return None
    return WorkRecorder(sink, worker, SampledThread())


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {stage: weight / total if total else 0.0 for stage, weight in weights.items()}
