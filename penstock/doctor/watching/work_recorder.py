"""Records how one worker (a process, a thread, or the caller without workers) builds its batches.

::

    begin_batch ── begin_samples ── begin_sample ── ... ── end_samples ── collation ── end_batch ── leave_batch
                                    [read | decode | augment]       timed; parts are sampled, or a trace adds them
    begin_batch ── begin_collation ── leave_passed                 torch's batch that is passed over: its time alone

Events of a batch, or of a part of one that several threads build, are written at its end, all at once. Where batches of
torch's loader are short, few of them are observed in detail (:class:`DetailChoice`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from penstock.doctor.watching.event_file import EventFile, EventRow, EventSink, make_row
from penstock.doctor.watching.recording import BATCH
from penstock.doctor.watching.sample_events import PARTS, SampleTime, Shares, pack_samples
from penstock.doctor.watching.stack_sampling import Activity, SampledThread

__all__ = ["DetailChoice", "WorkRecorder", "open_recorder"]

_MOST_COST: Final = 0.003
"""Most that details cost, as a part of the time of all batches."""
_MOST_APART: Final = 256
"""One batch of so many is observed in detail at least, whatever it costs: else little would be known of a short run."""
_FIRST: Final = 40
"""Batches at the beginning that are all observed in detail: a short script has no others, and some of them are left out
as warm-up."""

_OWN_LOOKS_NS: Final = 15_000_000
"""A sample that was looked at for so long is divided by its own looks; a shorter one by those of many."""
_SAMPLE_NS: Final = 2_000
_CPU_TIMER_NS: Final = 1_500
_BATCH_NS: Final = 100_000
"""What it costs to time one sample and to write its event; to read its processor time; and the other details of a
batch, by code that is not in the processor's caches where that is rare."""
_MOST_CPU_COST: Final = 0.005
_SHORT_BATCH_NS: Final = 2_000_000
_LONG_NS: Final = 20_000_000
"""For so long another program may have the processor. A batch that takes longer and is passed over is unusual."""
_SHORT_SAMPLE_NS: Final = 100_000
_LARGE_ARRAY: Final = 256 * 1024
"""From here on, collating a batch into shared memory is mostly the transport of its bytes."""
_FORGET: Final = 0.98
_FORGET_FIRST: Final = 0.1
"""In its first batch a worker imports modules and opens files."""
_LITTLE: Final = 0.1
"""Parts of a chunk's time."""
_UNDIVIDED: Final = (0.0, 0.0, 0.0)


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
        Whether the worker is building a batch.
    is_detailed : bool
        Whether the present batch is observed in detail.
    details : DetailChoice
        Which batches are observed in detail.
    """

    def __init__(self, sink: EventSink, worker: int, thread: SampledThread) -> None:
        self.sink, self.worker, self.thread = sink, worker, thread
        self.batch, self.is_busy, self.is_detailed, self.details = -1, False, True, DetailChoice()
        self._began_ns = self._began_cpu_ns = self._last_end = 0
        self._whole: tuple[int, int, int, bool] | None = None  # of a batch that is built, and not left yet
        self._parts_cpu_ns = 0  # of the parts of the batch that this thread has built
        self._rows: list[EventRow] = []  # of the present batch
        # samples that are being built
        self._start = self._start_cpu = self._timed = 0
        self._marks: list[tuple[int, int, int, int]] = []
        self._indices: Sequence[object] = ()
        self._counted: list[EventRow] = []
        # collations
        self._collation = (0, -1)
        self._collations = {"collate": 0.0, "transport": 0.0, "copy": 0.0}
        self._is_large = False
        # batches that are passed over
        self._passed = self._passed_ns = 0
        self._passed_looks = Activity("sample", position=-1), Activity("collate")
        self._cpu_mark, self._cpu_share = 0, 1.0  # of the last batch in detail: processor time at its end, and part
        # all batches so far
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._detailed_batches = 0
        self._sample_ns = self._batch_ns = 0.0

    # batches

    def begin_batch(self, number: int, *, may_pass: bool = False) -> None:
        """A task was taken, or a part of one; with ``may_pass`` it is passed over if its turn has not come."""
        now = self._began_ns = time.perf_counter_ns()
        is_next, self.batch, self.is_busy = number != self.batch, number, True
        if may_pass and self.details.left > 0:
            self.details.left -= 1
            self.is_detailed = False
            activity = self.thread.activity = self._passed_looks[0]
            activity.since = now
            return
        self.sink.busy = self.is_detailed = True
        self._timed, self._began_cpu_ns = 0, time.thread_time_ns()
        if is_next:
            self._parts_cpu_ns = 0

    def end_batch(self, samples: int, nbytes: int = -1, *, begun_ns: int = 0, is_shared: bool = False) -> None:
        """The batch is built, or has failed; its events are written by :meth:`leave_batch`.

        ``samples`` and ``nbytes``: of the batch, as far as they are known. ``begun_ns``: when its first part was begun;
        0: by this thread, with the present part. ``is_shared``: whether several threads have built it.
        """
        self._whole = begun_ns or self._began_ns, samples, nbytes, is_shared

    def leave_batch(self) -> None:
        """End the part of a batch that this thread has built; after :meth:`end_batch`, the batch."""
        self._last_end = end = time.perf_counter_ns()
        self.thread.activity, now = None, time.thread_time_ns()
        self._parts_cpu_ns += now - self._began_cpu_ns
        whole, self._whole = self._whole, None
        if whole is not None:
            begun, samples, nbytes, is_shared = whole
            cpu = -1 if is_shared else self._parts_cpu_ns
            row = make_row(BATCH, self.worker, self.batch, begun, end, cpu=cpu, nbytes=nbytes, samples=samples)
            self._rows.append(row)
            self._choose_next(end - begun, now)
        rows, self._rows = self._rows, []
        self.sink.add(rows)
        self.sink.busy = self.is_busy = False

    def _choose_next(self, spent: int, cpu_now: int) -> None:
        """Choose the next batch in detail, after one that took ``spent``."""
        self._cpu_mark, self._cpu_share = cpu_now, self._parts_cpu_ns / max(spent, 1)
        self._batch_ns = (self._passed_ns + spent) / (self._passed + 1)
        self._passed = self._passed_ns = 0
        self._detailed_batches += 1
        sample_ns = _SAMPLE_NS + (_CPU_TIMER_NS if self._measures_cpu() else 0)
        self.details.choose(self._batch_ns, _BATCH_NS + self._timed * sample_ns)

    def leave_passed(self, samples: int) -> None:
        """End a batch that is passed over. 0 samples: there was none, as a stream has ended."""
        self._last_end = end = time.perf_counter_ns()
        self.thread.activity, self.is_busy = None, False
        cpu, spent = -1, end - self._began_ns
        if spent > _LONG_NS:  # its own processor time: what the others since the mark do not explain
            used, self._cpu_mark = time.thread_time_ns() - self._cpu_mark, time.thread_time_ns()
            cpu = min(max(round(used - self._cpu_share * self._passed_ns), 0), spent)
            self.details.left = 0
        if samples:
            self.sink.add([(BATCH, self.worker, self.batch, -1, self._began_ns, end, cpu, -1, samples)])
        self._passed_ns += spent
        self._passed += 1
        activity, collation = self._passed_looks
        if activity.weights or collation.weights:
            self._passed_looks = Activity("sample", position=-1), Activity("collate")
            self._note_parts(activity)
            self._note_collation(collation)
            self._write_slow(activity)

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
        if not self._start:
            return
        now = time.perf_counter_ns()
        self._marks.append((now, time.thread_time_ns() if self._measures_cpu() else -1, position, count))
        activity = self.thread.activity
        if activity is not None:
            activity.position, activity.since = len(self._marks) - 1, now

    def add_part(self, stage: str, time_ns: int, samples: int) -> None:
        """A trace has counted ``time_ns`` up to now."""
        end = time.perf_counter_ns()
        row = make_row(stage, self.worker, self.batch, end - time_ns, end, samples=samples)
        (self._counted if self._start and stage in PARTS else self._rows).append(row)

    def end_samples(self, samples: int) -> None:
        """The samples are built. What a trace has not counted of them is divided by what was seen."""
        if not self._start:
            return
        end, cpu = time.perf_counter_ns(), time.thread_time_ns()
        activity, self.thread.activity = self.thread.activity, None
        start, self._start = self._start, 0
        self._note_parts(activity)
        times = self._single_samples(end, cpu)[:samples] or [(-1, start, end, cpu - self._start_cpu, samples)]
        if not samples:
            return
        self._sample_ns, self._timed = (end - start) / samples, len(times)
        if not self._counted:  # the user's code: all of it is divided by what was seen
            own = self._own_shares(activity, len(times))
            self._rows += pack_samples(self.worker, self.batch, times, self._usual_shares(), own)
            return
        self._rows += pack_samples(self.worker, self.batch, times, _UNDIVIDED, {})
        self._rows += self._counted
        rest = end - start - sum(row[5] - row[4] for row in self._counted)
        if rest > _LITTLE * (end - start):  # the user's code beside a dataset of penstock's
            self._write_rest(end - rest, rest, samples)

    def _single_samples(self, end: int, cpu: int) -> list[SampleTime]:
        """List samples, if they were built one by one; ``end`` and ``cpu``: the thread's clocks now."""
        if not self._marks or any(position >= 0 and count != 1 for _, _, position, count in self._marks):
            return []
        ends = [*self._marks[1:], (end, cpu, -1, 1)]
        return [
            (self._index_at(position), start, until[0], until[1] - used if used >= 0 else -1, 1)
            for (start, used, position, _), until in zip(self._marks, ends, strict=True)
            if position >= 0
        ]

    def _index_at(self, position: int) -> int:
        index = self._indices[position] if position < len(self._indices) else None
        return int(index) if isinstance(index, (int, np.integer)) else -1

    def _measures_cpu(self) -> bool:
        """Return whether samples are so long that the processor time of each is measured."""
        return not self._sample_ns or self._sample_ns * _MOST_CPU_COST >= _CPU_TIMER_NS

    def _write_rest(self, start: int, rest: int, samples: int) -> None:
        """Divide what a trace has not counted, such that the parts of all of it are as what was seen."""
        shares = _shares(self._parts if any(self._parts.values()) else {"augment": 1.0})
        counted = dict.fromkeys(PARTS, 0)
        for row in self._counted:
            counted[PARTS[row[0]]] += row[5] - row[4]
        whole = rest + sum(counted.values())
        left = _shares({stage: max(0.0, share * whole - counted[stage]) for stage, share in shares.items()})
        for stage, share in left.items():
            until = start + round(share * rest)
            if until > start:
                self._rows.append(make_row(stage, self.worker, self.batch, start, until, samples=samples))
                start = until

    # collations of torch's loader

    def begin_collation(self, samples: int) -> None:
        """The samples are built, and ``collate_fn`` is called."""
        if not self.is_detailed:
            activity = self.thread.activity = self._passed_looks[1]
            activity.since = time.perf_counter_ns()
            return
        self.end_samples(samples)
        start = time.perf_counter_ns()
        self.thread.activity = Activity("collate", start)
        # A collation of a short batch takes the processor all the time.
        self._collation = start, time.thread_time_ns() if self._batch_ns > _SHORT_BATCH_NS else -1

    def end_collation(self, samples: int, nbytes: int, arrays: int) -> None:
        """Record that a batch of so many bytes in so many arrays is made. Called for batches in detail only."""
        end, (start, begun) = time.perf_counter_ns(), self._collation
        cpu = time.thread_time_ns() - begun if begun >= 0 else -1
        activity, self.thread.activity = self.thread.activity, None
        self._is_large = self.worker >= 0 and arrays > 0 and nbytes / arrays >= _LARGE_ARRAY
        self._note_collation(activity)
        at = start
        for stage, share in _shares(self._collations if any(self._collations.values()) else {"collate": 1.0}).items():
            until = at + round(share * (end - start))
            if until > at:
                used, size = cpu if cpu < 0 else round(share * cpu), nbytes if stage != "copy" else -1
                row = make_row(stage, self.worker, self.batch, at, until, cpu=used, nbytes=size, samples=samples)
                self._rows.append(row)
            at = until

    def _note_collation(self, activity: Activity | None) -> None:
        for stage, weight in activity.weights.items() if activity is not None else ():
            name = ("transport" if self._is_large else "collate") if stage == "shared" else stage
            self._collations[name] += weight

    # what was seen of samples

    def _note_parts(self, activity: Activity | None) -> None:
        if activity is None or not activity.weights:
            return
        kept = _FORGET if self._detailed_batches > 1 else _FORGET_FIRST
        for stage in PARTS:
            self._parts[stage] = self._parts[stage] * kept + activity.weights.get(stage, 0)

    def _usual_shares(self) -> Shares:
        """Shares of the samples seen so far. If none was, long samples have no parts: they are as those seen later."""
        usual = tuple(_shares(self._parts).values())
        return usual if any(usual) or self._sample_ns > _SHORT_SAMPLE_NS else (0.0, 0.0, 1.0)

    def _own_shares(self, activity: Activity | None, count: int) -> dict[int, Shares]:
        """Shares of the samples of a batch that were seen for long, by position."""
        return {
            position: _shares_of_parts(weights)
            for position, weights in (activity.of_samples if activity is not None else {}).items()
            if 0 <= position < count and sum(weights.values()) >= _OWN_LOOKS_NS
        }

    def _write_slow(self, activity: Activity) -> None:
        """Events of samples that were not timed, but seen for long."""
        for index, weights in activity.of_samples.items():
            spent, first = sum(weights.values()), activity.first_looks.get(index, 0)
            if index >= 0 and spent >= _OWN_LOOKS_NS:
                sample = (index, first, first + spent, -1, 0)
                self.sink.add(pack_samples(self.worker, self.batch, [sample], _shares_of_parts(weights), {}))


def open_recorder(folder: Path, iterator: int, worker: int) -> WorkRecorder | None:
    """Return a recorder for this worker process, which is of an iterator of the loader.

    It is None if its file cannot be made.
    """
    try:
        sink = EventFile(folder / f"{iterator}-{worker}-{os.getpid()}.events", worker)
    except OSError:  # the disk is full, or the watching process has ended: the worker works unwatched
        return None
    return WorkRecorder(sink, worker, SampledThread())


def _shares_of_parts(weights: dict[str, int]) -> Shares:
    return tuple(_shares({stage: weights.get(stage, 0) for stage in PARTS}).values())


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {stage: weight / total if total else 0.0 for stage, weight in weights.items()}
