"""Records how one worker (a process, a thread, or the caller without workers) builds its batches.

::

    begin_batch ── sample ── sample ── ... ── collate ── end_batch          times: measured
                   [read | decode | augment]                                parts: sampled, or what a trace adds
    build_briefly                                                           a batch of which only the time is kept

Events of a batch are written at its end, all at once. Where batches are short, few of them are observed in detail
(:mod:`penstock.doctor.watching.detail_choice`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from penstock.doctor.watching.detail_choice import DetailChoice
from penstock.doctor.watching.event_file import EventRow, EventSink, make_row
from penstock.doctor.watching.recording import BATCH, SAMPLE, WORK_STAGES
from penstock.doctor.watching.sample_events import SampleTime, divide_sample, pack_samples
from penstock.doctor.watching.stack_sampling import Activity, SampledThread

__all__ = ["WorkRecorder"]

_PARTS: Final = WORK_STAGES[:3]
_OWN_LOOKS_NS: Final = 15_000_000
"""A sample that was looked at for so long is divided by its own looks; a shorter one by those of many."""
_ROOM_NS: Final = 20_000
_TIMER_NS: Final = 300
_CPU_TIMER_NS: Final = 1_500
_ROW_NS: Final = 10_000
_ARRAY_NS: Final = 60_000
_BATCH_NS: Final = 100_000
"""What it costs to time one sample, with its processor time; to write its events, or those of all of a batch at once;
and the other details of a batch, by code that is not in the processor's caches where that is rare."""
_MOST_COST: Final = 0.005
_SHORT_BATCH_NS: Final = 2_000_000
_SHORT_SAMPLE_NS: Final = 100_000
_LARGE_ARRAY: Final = 256 * 1024
"""From here on, collating a batch into shared memory is mostly the transport of its bytes."""
_FORGET: Final = 0.98
_FORGET_FIRST: Final = 0.1
"""In its first batch a worker imports modules and opens files."""
_LITTLE: Final = 0.1
"""Parts of a chunk's time."""


class WorkRecorder:
    """Records the batches of one worker; used by the thread that builds them.

    Parameters
    ----------
    sink : EventSink
        Where events go.
    worker : int
        Its number; -1: the main process.
    thread : SampledThread
        Its thread, which a :class:`~penstock.doctor.watching.stack_sampling.StackSampler` looks at.

    Attributes
    ----------
    samples : list of SampleTime
        Those of the present batch.
    first_batch : int
        Added to the numbers of batches.
    is_busy : bool
        Whether the worker is building a batch.
    began_ns, began_cpu_ns : int
        When the present batch was begun; the processor time of the thread then.
    built : tuple of int
        Samples and bytes of the present batch, as far as they are known.
    unsent : dict of int to tuple of int, optional
        Samples and bytes of batches that are built and not sent yet, by number; None where batches are not sent. Of
        those in detail only.
    detail : DetailChoice
        Which batches are observed in detail.
    is_brief : bool
        Whether the present batch is none of them.
    """

    def __init__(self, sink: EventSink, worker: int, thread: SampledThread) -> None:
        self.sink, self.worker, self.thread = sink, worker, thread
        self.samples: list[SampleTime] = []
        self.first_batch, self.is_busy = 0, False
        self.built = (0, -1)
        self.unsent: dict[int, tuple[int, int]] | None = None
        self._batch = -1
        self._whole: tuple[int, int, bool] | None = None  # of a batch that is built, and not left yet
        self._parts_cpu_ns = 0  # of the parts of the batch that this thread has built
        self.began_ns = self.began_cpu_ns = self._last_end = 0
        self._parts = dict.fromkeys(_PARTS, 0.0)
        self._collations = {"collate": 0.0, "transport": 0.0, "copy": 0.0}
        self.detail, self.is_brief = DetailChoice(), False
        self._brief, self._brief_collation = Activity("sample"), Activity("collate")
        self._brief.position = -1
        self._brief_ns = self._brief_batches = self._brief_samples = 0
        self._cpu_mark, self._cpu_share = 0, 1.0  # of the last batch in detail: processor time at its end, and part
        self._is_large = False
        self._sample_ns = self._batch_ns = 0.0
        self._timed = 0  # samples of the present batch
        self._detailed_batches = 0
        self._rows: list[EventRow] = []  # of the present batch
        self._chunk_start = self._chunk_cpu = self.chunk_samples = 0
        self._chunk_parts: list[EventRow] = []
        self._counted = dict.fromkeys(_PARTS, 0)
        self._marks: list[tuple[int, int, int, int]] = []
        self._indices: Sequence[Any] = ()

    # samples

    def measures_cpu(self) -> bool:
        """Whether samples are so long that the processor time of each is measured."""
        return not self._sample_ns or self._sample_ns * _MOST_COST >= _CPU_TIMER_NS

    def measures_collation(self) -> bool:
        """Whether the processor time of a collation is measured too; one of a short batch takes all that it lasts."""
        return self._batch_ns > _SHORT_BATCH_NS

    # chunks of penstock's loaders

    def begin_chunk(self, indices: Sequence[Any] = ()) -> None:
        """Samples of the batch are being built, by one call or one by one.

        ``indices`` are those of the chunk; empty where samples have none.
        """
        start = time.perf_counter_ns()
        self._chunk_start, self._chunk_cpu, self._indices = start, time.thread_time_ns(), indices
        self._chunk_parts, self._marks, self._counted = [], [], dict.fromkeys(_PARTS, 0)
        self.thread.activity = Activity("sample", start)

    def mark_sample(self, position: int, count: int) -> None:
        """The chunk's sample at ``position``, or ``count`` samples from there on, are begun; -1: collation."""
        if not self._chunk_start:
            return
        now = time.perf_counter_ns()
        self._marks.append((now, time.thread_time_ns(), position, count))
        activity = self.thread.activity
        if activity is not None:
            activity.position, activity.since = len(self._marks) - 1, now

    def add_part(self, stage: str, time_ns: int, samples: int) -> None:
        """A trace has counted ``time_ns`` up to now."""
        end = time.perf_counter_ns()
        row = make_row(stage, self.worker, self._batch, end - time_ns, end, samples=samples)
        if self._chunk_start and stage in _PARTS:
            self._chunk_parts.append(row)
            self._counted[stage] += time_ns
        else:
            self._rows.append(row)

    def end_chunk(self, samples: int) -> None:
        """The chunk is built. What its trace has not counted is divided by what was seen."""
        end, cpu = time.perf_counter_ns(), time.thread_time_ns() - self._chunk_cpu
        activity, self.thread.activity = self.thread.activity, None
        start, self._chunk_start = self._chunk_start, 0
        self.chunk_samples += samples
        whole = self._single_samples(end, cpu + self._chunk_cpu) or [(-1, start, end, cpu, samples)]
        if not self._chunk_parts:  # the user's code: all of it is divided by what was seen
            self.write_samples(whole, activity)
            return
        for index, begun, ended, used, count in whole:
            row = make_row(SAMPLE, self.worker, self._batch, begun, ended, cpu=used, samples=count, index=index)
            self._rows.append(row)
        self._rows += self._chunk_parts
        self._note_parts(activity)
        rest = end - start - sum(self._counted.values())
        if rest > _LITTLE * (end - start):  # the user's code beside a dataset of penstock's
            self._write_rest(end - rest, rest, samples)

    def _single_samples(self, end: int, cpu: int) -> list[SampleTime]:
        """Each sample of the chunk, if it was built one by one; ``end`` and ``cpu``: the thread's clocks now."""
        if not self._marks or any(position >= 0 and count != 1 for _, _, position, count in self._marks):
            return []
        ends = [*self._marks[1:], (end, cpu, -1, 1)]
        return [
            (self._index_at(position), start, until[0], until[1] - used, 1)
            for (start, used, position, _), until in zip(self._marks, ends, strict=True)
            if position >= 0
        ]

    def _index_at(self, position: int) -> int:
        if position >= len(self._indices):
            return -1
        index = self._indices[position]
        return int(index) if isinstance(index, (int, np.integer)) else -1

    def _write_rest(self, start: int, rest: int, samples: int) -> None:
        """Divide what a trace has not counted, such that the parts of the chunk are as what was seen."""
        shares = _shares(self._parts if any(self._parts.values()) else {"augment": 1.0})
        whole = rest + sum(self._counted.values())
        left = _shares({stage: max(0.0, share * whole - self._counted[stage]) for stage, share in shares.items()})
        for stage, share in left.items():
            until = start + round(share * rest)
            if until > start:
                self._rows.append(make_row(stage, self.worker, self._batch, start, until, samples=samples))
            start = until

    # batches

    def end_parts(self, begun_ns: int, samples: int, *, is_shared: bool) -> None:
        """The batch is built, by this thread alone or with others (``is_shared``)."""
        self._whole = begun_ns, samples, is_shared

    def leave_batch(self) -> None:
        """End the part of a batch that this thread has built; after :meth:`end_parts`, the batch."""
        self.end_samples()
        self._last_end = end = time.perf_counter_ns()
        self._parts_cpu_ns += time.thread_time_ns() - self.began_cpu_ns
        if self._whole is not None:
            begun, samples, is_shared = self._whole
            used, self._whole = -1 if is_shared else self._parts_cpu_ns, None
            self._rows.append(make_row(BATCH, self.worker, self._batch, begun, end, cpu=used, samples=samples))
        self._write_rows()
        self.sink.busy = self.is_busy = False

    def begin_batch(self, batch: int) -> None:
        """A task was taken, or a part of one."""
        self.sink.busy = True
        self.began_ns, self.began_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        is_next, self._batch = self._batch != batch + self.first_batch, batch + self.first_batch
        if is_next:
            self._parts_cpu_ns = 0
            if self._last_end and self.began_ns - self._last_end > _ROOM_NS:
                self._rows.append(make_row("room", self.worker, self._batch, self._last_end, self.began_ns))
        self.samples, self.chunk_samples, self._timed = [], 0, 0
        self.is_busy = True
        self.thread.activity = Activity("sample", self.began_ns)

    def collate(self, start: int, end: int, cpu: int, *, samples: int, nbytes: int, arrays: int) -> None:
        """A call of ``collate_fn`` was made, while the thread's activity was a collation.

        ``arrays`` is the number of arrays of the batch, ``nbytes`` their size.
        """
        activity, self.thread.activity = self.thread.activity, None
        self._is_large = self.worker >= 0 and arrays > 0 and nbytes / arrays >= _LARGE_ARRAY
        if activity is not None:
            self._note_collation(activity)
        shares = _shares(self._collations)
        if not any(shares.values()):
            shares = {"collate": 1.0}
        at = start
        for stage, share in shares.items():
            if share:
                until = at + round(share * (end - start))
                used = cpu if cpu < 0 else round(share * cpu)
                size = nbytes if stage != "copy" else -1
                row = make_row(stage, self.worker, self._batch, at, until, cpu=used, nbytes=size, samples=samples)
                self._rows.append(row)
                at = until

    def _note_collation(self, activity: Activity) -> None:
        for stage, weight in activity.weights.items():
            name = ("transport" if self._is_large else "collate") if stage == "shared" else stage
            self._collations[name] += weight

    def end_batch(self, samples: int, nbytes: int = -1) -> None:
        """The batch is built, or has failed."""
        end, self._cpu_mark = time.perf_counter_ns(), time.thread_time_ns()
        cpu = self._cpu_mark - self.began_cpu_ns
        self._cpu_share = cpu / max(end - self.began_ns, 1)
        self.end_samples()
        row = make_row(BATCH, self.worker, self._batch, self.began_ns, end, cpu=cpu, nbytes=nbytes, samples=samples)
        self._rows.append(row)
        if self.unsent is not None:
            self.unsent[self._batch] = samples, nbytes
        self._batch_ns = (self._brief_ns + end - self.began_ns) / (self._brief_batches + 1)
        self._brief_ns = self._brief_batches = 0
        self._last_end, self._detailed_batches = end, self._detailed_batches + 1
        self._write_rows()
        self.sink.busy = self.is_busy = False
        timer_ns = _CPU_TIMER_NS if self.measures_cpu() else _TIMER_NS
        cost_ns = _BATCH_NS + self._timed * timer_ns + min(self._timed * _ROW_NS, _ARRAY_NS)
        self.detail.choose(self._batch_ns, cost_ns)

    # batches that are not observed in detail

    def build_briefly(self, build: Callable[[Any], Any], index: Any, number: Callable[[], int], samples: int) -> Any:
        """Build a batch of which only the time is kept: ``build(index)``; ``number()`` is that of the batch."""
        detail, thread, activity = self.detail, self.thread, self._brief
        self.is_brief, self._brief_samples = True, samples
        thread.activity = activity
        began = activity.since = time.perf_counter_ns()
        try:
            return build(index)
        finally:
            self._last_end = end = time.perf_counter_ns()
            thread.activity, self.is_brief = None, False
            cpu, detail.left, spent = -1, detail.left - 1, end - began
            if spent > detail.long_ns:
                cpu, detail.left = self._estimate_cpu(spent), 0
            batch = number() + self.first_batch
            self.sink.add([(BATCH, self.worker, batch, -1, began, end, cpu, -1, self._brief_samples)])
            self._brief_ns += spent
            self._brief_batches += 1
            if activity.weights or self._brief_collation.weights:
                self._note_brief(batch)

    def collate_briefly(self, collate: Callable[[Any], Any], samples: Any, count: int) -> Any:
        """``collate(samples)`` within :meth:`build_briefly`."""
        self._brief_samples = count
        activity = self._brief_collation
        activity.since = time.perf_counter_ns()
        self.thread.activity = activity
        return collate(samples)

    def _estimate_cpu(self, spent: int) -> int:
        """Processor time of a batch that has taken unusually long: what the others since the mark do not explain."""
        used, self._cpu_mark = time.thread_time_ns() - self._cpu_mark, time.thread_time_ns()
        return min(max(round(used - self._cpu_share * self._brief_ns), 0), spent)

    def _note_brief(self, batch: int) -> None:
        """Somebody has looked at the thread in this batch."""
        self._batch = batch
        activity, collation = self._brief, self._brief_collation
        self._brief, self._brief_collation = Activity("sample"), Activity("collate")
        self._brief.position = -1
        self._note_parts(activity)
        self._note_collation(collation)
        self._write_slow(activity)
        self._write_rows()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        self.sink.add(rows)

    def end_samples(self) -> Activity | None:
        """The samples of a batch are built; what follows is something else. Returns what was seen of them."""
        activity, self.thread.activity = self.thread.activity, None
        self.write_samples(self.samples, activity)
        self.samples = []
        return activity

    def write_samples(self, samples: Sequence[SampleTime], activity: Activity | None) -> None:
        """Write the events of samples, divided into parts by what was seen."""
        if activity is not None and activity.kind == "sample":
            self._note_parts(activity)
        if not samples:
            if activity is not None:
                self._write_slow(activity)
            return
        spent = sum(end - start for _, start, end, _, _ in samples)
        self._sample_ns = spent / max(1, sum(count for *_, count in samples))
        usual, own = self._usual_shares(), self._own_shares(activity, len(samples))
        for position, sample in enumerate(samples):
            self._rows += divide_sample(self.worker, self._batch, sample, own.get(position, usual))

    def write_many(self, indices: Sequence[int], clocks: Sequence[int], cpu: Sequence[int]) -> None:
        """Write the events of samples that followed one another, as in :func:`~.sample_events.pack_samples`."""
        activity, self.thread.activity = self.thread.activity, None
        self._note_parts(activity)
        self._sample_ns, self._timed = (clocks[-1] - clocks[0]) / len(indices), len(indices)
        usual, own = self._usual_shares(), self._own_shares(activity, len(indices))
        start = 0
        for stop in [*sorted(own), len(indices)]:
            if start < stop:
                chosen = indices[start:stop], clocks[start : stop + 1], cpu[start : stop + 1]
                self.sink.write(pack_samples(self.worker, self._batch, *chosen, usual))
            if stop < len(indices):
                used = cpu[stop + 1] - cpu[stop] if cpu else -1
                sample = indices[stop], clocks[stop], clocks[stop + 1], used, 1
                self._rows += divide_sample(self.worker, self._batch, sample, own[stop])
            start = stop + 1

    def _usual_shares(self) -> tuple[float, ...]:
        """Shares of the samples seen so far. If none was, long samples have no parts: they are as those seen later."""
        usual = tuple(_shares(self._parts).values())
        return usual if any(usual) or self._sample_ns > _SHORT_SAMPLE_NS else (0.0, 0.0, 1.0)

    def _own_shares(self, activity: Activity | None, count: int) -> dict[int, tuple[float, ...]]:
        """Shares of the samples of a batch that were seen for long, by position."""
        return {
            position: tuple(_shares({stage: weights.get(stage, 0.0) for stage in _PARTS}).values())
            for position, weights in (activity.of_samples if activity is not None else {}).items()
            if 0 <= position < count and sum(weights.values()) >= _OWN_LOOKS_NS
        }

    def _note_parts(self, activity: Activity | None) -> None:
        if activity is None or not activity.weights:
            return
        kept = _FORGET if self._detailed_batches > 1 else _FORGET_FIRST
        for stage in _PARTS:
            self._parts[stage] = self._parts[stage] * kept + activity.weights.get(stage, 0)

    def _write_slow(self, activity: Activity) -> None:
        """Events of samples that were not timed, but seen for long."""
        for index, weights in activity.of_samples.items():
            spent, first = sum(weights.values()), activity.first_looks.get(index, 0)
            if index < 0 or spent < _OWN_LOOKS_NS:
                continue
            own = tuple(_shares({stage: weights.get(stage, 0.0) for stage in _PARTS}).values())
            self._rows += divide_sample(self.worker, self._batch, (index, first, first + spent, -1, 0), own)


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {stage: weight / total if total else 0.0 for stage, weight in weights.items()}
