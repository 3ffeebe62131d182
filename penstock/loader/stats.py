"""Time per stage of a loader, as numbers and as a table; computed from a trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from penstock.loader.tuning import SettingChange
from penstock.system.shares import find_cores
from penstock.system.system_files import SystemFiles
from penstock.trace import STAGES
from penstock.wording import counted, format_bytes

__all__ = [
    "EpochTime", "LoaderRates", "QueueStats", "RemoteStats", "StageStats", "Stats", "WorkerStats", "make_stages",
]  # fmt: skip

_LEAST_S: Final = 10.0
"""Seconds of an epoch of which something can be said."""
_KEEPS_UP: Final = 0.02
"""Part of its time that a loop may wait for a loader that keeps up."""
_ONLY_WAITS: Final = 0.9
"""Part of the time above which the loop itself takes too little for an estimate."""
_IS_BUSY: Final = 0.85
"""Part of their time for which all workers, or all cores, must compute for an estimate."""


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage, summed over all workers.

    Parameters
    ----------
    stage : str
        One of :data:`penstock.trace.STAGES`. Where samples are built one by one, "read" is all of ``dataset[index]``.
    time_ns : int
        Nanoseconds spent in it.
    items : int
        Samples that passed it; batches, for ``wait``.
    share : float
        Part of the work of all stages but ``wait``, 0..1; for ``wait`` 0.
    """

    stage: str
    time_ns: int
    items: int
    share: float

    @property
    def us_per_item(self) -> float:
        """Microseconds for one sample (one batch, for ``wait``)."""
        return self.time_ns / self.items / 1000 if self.items else 0.0


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """One worker, over all epochs.

    Parameters
    ----------
    worker : int
        Its number; -1: the consumer's thread, which builds batches without workers, and receives them from processes.
    stages : tuple of StageStats
        As for the loader.
    batches : int
        Delivered from it; 0 for threads, which build batches together.
    """

    worker: int
    stages: tuple[StageStats, ...]
    batches: int = 0

    @property
    def time_ns(self) -> int:
        """Nanoseconds of work; without ``wait``."""
        return sum(stage.time_ns for stage in self.stages if stage.stage != "wait")

    @property
    def samples(self) -> int:
        """Samples that passed the stage that most of them passed."""
        return max(stage.items for stage in self.stages if stage.stage != "wait")


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What iterators under way have at one moment.

    Parameters
    ----------
    ready : int
        Batches that are finished, and wait for the consumer.
    under_way : int
        Batches that are requested and not delivered, ``ready`` included.
    limit : int
        Most batches under way; 0 if nothing is iterated.
    """

    ready: int = 0
    under_way: int = 0
    limit: int = 0

    def __add__(self, other: QueueStats) -> QueueStats:
        return QueueStats(self.ready + other.ready, self.under_way + other.under_way, self.limit + other.limit)


@dataclass(frozen=True, slots=True)
class RemoteStats:
    """What was fetched from remote stores, over all threads and worker processes; all 0 where no store is remote.

    A worker process sends its counts with its next batch. What was fetched to open a store is left out.

    Parameters
    ----------
    requests, retries, hedges : int
        Requests that were sent; of these, repeated after an error that may pass, and sent again because the first one
        took far longer than others.
    responses : int
        Requests for bytes that were answered.
    nbytes : int
        Bytes that came.
    first_byte_ns, transfer_ns : int
        Nanoseconds from sending a request to the beginning of its answer, and from there to its end, summed over all
        responses; many are under way at once.
    retry_ns : int
        Nanoseconds of requests that failed, and of the pauses after them.
    wait_ns : int
        Nanoseconds in which readers waited for bytes that were not there yet, summed over all readers.
    reads, read_nbytes : int
        Records that were read from remote stores, and their bytes; also other ranges, such as pages of an index.
    misses, missed_nbytes : int
        Those that were not in the cache when they were asked for.
    """

    requests: int = 0
    retries: int = 0
    hedges: int = 0
    responses: int = 0
    nbytes: int = 0
    first_byte_ns: int = 0
    transfer_ns: int = 0
    retry_ns: int = 0
    wait_ns: int = 0
    reads: int = 0
    read_nbytes: int = 0
    misses: int = 0
    missed_nbytes: int = 0

    def __add__(self, other: RemoteStats) -> RemoteStats:
        return RemoteStats(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: RemoteStats) -> RemoteStats:
        return RemoteStats(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def __bool__(self) -> bool:
        return bool(self.requests or self.reads)

    @property
    def hit_rate(self) -> float:
        """Part of the bytes that were read which the cache had, 0..1."""
        return min(max(1 - self.missed_nbytes / self.read_nbytes, 0.0), 1.0) if self.read_nbytes else 0.0

    @property
    def record_hit_rate(self) -> float:
        """Part of the records that were read which the cache had, 0..1."""
        return min(max(1 - self.misses / self.reads, 0.0), 1.0) if self.reads else 0.0

    @property
    def latency_ms(self) -> float:
        """Milliseconds until the first byte of a response, on average."""
        return self.first_byte_ns / self.responses / 1e6 if self.responses else 0.0

    @property
    def waiting(self) -> dict[str, float]:
        """Parts of :attr:`wait_ns` for ``latency``, ``bandwidth`` and ``retries``, each 0..1.

        It is divided as the time of all requests is: to the first byte, from it to the last one, in vain.
        """
        parts = {"latency": self.first_byte_ns, "bandwidth": self.transfer_ns, "retries": self.retry_ns}
        total = sum(parts.values())
        return {name: time_ns / total if total else 0.0 for name, time_ns in parts.items()}

    def __str__(self) -> str:
        text = (
            f"remote: {self.hit_rate:.0%} of {format_bytes(self.read_nbytes)} from the cache "
            f"({self.record_hit_rate:.0%} of the records); {counted(self.requests, 'request')}, "
            f"{format_bytes(self.nbytes)} fetched, {self.latency_ms:.0f} ms to the first byte"
        )
        again = ((self.retries, "repeated after an error"), (self.hedges, "sent again because they were slow"))
        text += "".join(f", {count} {what}" for count, what in again if count)
        shares = ", ".join(f"{share:.0%} for {name}" for name, share in self.waiting.items())
        return f"{text}\n        readers waited {self.wait_ns / 1e9:.3f} s: {shares}"


@dataclass(frozen=True, slots=True)
class EpochTime:
    """Time in which an epoch was under way.

    Parameters
    ----------
    time_ns : int
        Nanoseconds; epochs that overlap count once.
    cpu_ns : int
        Processor time of this process in it, over all its threads.
    worker_cpu_ns : int
        Processor time of the worker processes.
    """

    time_ns: int = 0
    cpu_ns: int = 0
    worker_cpu_ns: int = 0

    def __sub__(self, other: EpochTime) -> EpochTime:
        return EpochTime(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of a loader's counters since its construction.

    Parameters
    ----------
    stages : tuple of StageStats
        In the order a sample passes them.
    batches, samples : int
        Delivered so far.
    wait_ns : int
        Nanoseconds that the consumer waited for batches.
    left_out : int
        Samples that could not be built: with ``on_error="skip"``, and in streams, they are missing, and
        ``samples + left_out`` were drawn; with "replace" another one stands in for each, which ``samples`` counts.
    repaired : int
        Images that were truncated or damaged, and were decoded as far as possible (``on_truncated="repair"``).
    workers : tuple of WorkerStats
        In the order of their numbers.
    sample_nbytes : float
        Bytes of a delivered sample, measured in one batch of 64.
    queue : QueueStats
        Batches ready and under way when the snapshot was taken.
    taken_ns : int
        When it was taken (``time.perf_counter_ns``); not compared by ``==``.
    remote : RemoteStats
        What was fetched from remote stores.
    changes : tuple of SettingChange
        The newest 64 changes of the workers of a loader with ``num_workers="auto"``, oldest first.
    epoch_time : EpochTime
        In which an epoch was under way; not compared by ``==``.
    earlier : Stats, optional
        A snapshot of some five minutes before, or the first one; not compared by ``==``.
    """

    stages: tuple[StageStats, ...]
    batches: int
    samples: int
    wait_ns: int
    left_out: int = 0
    repaired: int = 0
    workers: tuple[WorkerStats, ...] = ()
    sample_nbytes: float = 0.0
    queue: QueueStats = QueueStats()
    taken_ns: int = field(default=0, compare=False, repr=False)
    remote: RemoteStats = RemoteStats()
    changes: tuple[SettingChange, ...] = ()
    epoch_time: EpochTime = field(default=EpochTime(), compare=False, repr=False)
    earlier: Stats | None = field(default=None, compare=False, repr=False)

    @property
    def verdict(self) -> str:
        """Return :attr:`LoaderRates.verdict` of the last five minutes."""
        return "" if self.earlier is None else self.since(self.earlier).verdict

    @property
    def nbytes(self) -> int:
        """Bytes of all delivered samples, from :attr:`sample_nbytes`."""
        return round(self.samples * self.sample_nbytes)

    def since(self, before: Stats) -> LoaderRates:
        """Return what happened between an earlier snapshot and this one."""
        seconds = max(1e-9, (self.taken_ns - before.taken_ns) / 1e9)
        samples = self.samples - before.samples
        times = {name: self[name].time_ns - before[name].time_ns for name in STAGES if name != "wait"}
        work = sum(times.values()) or 1
        earlier = {worker.worker: worker.time_ns for worker in before.workers}
        busy = {worker.worker: worker.time_ns - earlier.get(worker.worker, 0) for worker in self.workers}
        return LoaderRates(
            seconds=seconds,
            batches=self.batches - before.batches,
            samples=samples,
            samples_per_s=samples / seconds,
            nbytes_per_s=samples * self.sample_nbytes / seconds,
            waiting=min(1.0, (self.wait_ns - before.wait_ns) / 1e9 / seconds),
            stages={name: time_ns / work for name, time_ns in times.items()},
            us_per_sample={name: time_ns / 1000 / max(1, samples) for name, time_ns in times.items()},
            busy={worker: min(1.0, time_ns / 1e9 / seconds) for worker, time_ns in busy.items() if worker >= 0},
            queue=self.queue,
            all_batches=self.batches,
            all_samples=self.samples,
            remote=self.remote - before.remote,
            epoch_time=self.epoch_time - before.epoch_time,
            changes=tuple(change for change in self.changes if change not in before.changes),
        )

    def __getitem__(self, stage: str) -> StageStats:
        return self.stages[STAGES.index(stage)]

    def __str__(self) -> str:
        counts = ((self.left_out, "left out"), (self.repaired, "repaired"))
        notes = ", ".join(f"{count} {what}" for count, what in counts if count)
        lost = f" ({notes})" if notes else ""
        first = f"{self.batches} batches, {self.samples} samples{lost}; waited {self.wait_ns / 1e9:.3f} s for them"
        lines = [first, ""]
        lines.append(f"{'stage':<10}{'time':>12}{'items':>10}{'per item':>14}{'share':>8}")
        for s in self.stages:
            share = "" if s.stage == "wait" else f"{s.share:.0%}"
            lines.append(f"{s.stage:<10}{s.time_ns / 1e9:>10.3f} s{s.items:>10}{s.us_per_item:>11.1f} us{share:>8}")
        if self["read"].items and not self["decode"].items and not self["augment"].items:
            lines += [
                "",
                "read: all of dataset[index]; penstock doctor divides it into reading, decoding and augmenting",
            ]
        if self.changes:
            lines += ["", *(f"from batch {each.batches}: {each}" for each in self.changes[-8:])]
        lines += ["", str(self.remote)] if self.remote else []
        lines += ["", self.verdict] if self.verdict else []
        return "\n".join(lines)


def make_stages(times: Mapping[str, tuple[int, int]]) -> tuple[StageStats, ...]:
    """Return all stages from nanoseconds and items by stage, as :meth:`penstock.trace.Trace.total` gives them."""
    work = sum(time_ns for stage, (time_ns, _) in times.items() if stage != "wait") or 1
    return tuple(
        StageStats(stage, *times[stage], share=0.0 if stage == "wait" else times[stage][0] / work) for stage in STAGES
    )


@dataclass(frozen=True, slots=True)
class LoaderRates:
    """A loader's speed in a span of time. ``str`` gives one line.

    Parameters
    ----------
    seconds : float
        Length of the span.
    batches, samples : int
        Delivered in it; ``all_batches`` and ``all_samples`` since the loader's construction.
    samples_per_s, nbytes_per_s : float
        Delivered per second.
    waiting : float
        Part of the time in which the consumer waited for batches, 0..1.
    stages : dict of str to float
        Part of the work of each stage but ``wait``, 0..1.
    us_per_sample : dict of str to float
        Work of each stage per delivered sample, in microseconds.
    busy : dict of int to float
        Part of the time in which each worker worked, 0..1, by its number. Work that is counted when its batch arrives
        may belong to the span before.
    queue : QueueStats
        At the end of the span.
    remote : RemoteStats
        What was fetched in it from remote stores.
    epoch_time : EpochTime
        The part of the span in which an epoch was under way.
    changes : tuple of SettingChange
        Changes in it of the workers of a loader with ``num_workers="auto"``.
    """

    seconds: float
    batches: int
    samples: int
    samples_per_s: float
    nbytes_per_s: float
    waiting: float
    stages: dict[str, float]
    us_per_sample: dict[str, float]
    busy: dict[int, float]
    queue: QueueStats
    all_batches: int
    all_samples: int
    remote: RemoteStats = RemoteStats()
    epoch_time: EpochTime = EpochTime()
    changes: tuple[SettingChange, ...] = ()

    @property
    def verdict(self) -> str:
        """How much the loop waited, for what, and what would end that, in a sentence.

        It is empty if nothing was delivered, or an epoch was under way for less than ten seconds.

        The last is an estimate, by arithmetic on what was measured: the processor time of the workers for a sample,
        times the samples that the loop would take per second if it did not wait. It is made only where all workers, or
        all cores, have computed nearly all the time: then neither a disk nor the interpreter's lock is what they wait
        for. Time in which no epoch is under way is not counted; time in which the loop does something else, such as a
        validation in the middle of an epoch, is the loop's. ``penstock doctor`` tries what this only computes.
        """
        seconds = self.epoch_time.time_ns / 1e9
        if not self.samples or seconds < _LEAST_S:
            return ""
        waiting = min(1.0, self.waiting * self.seconds / seconds)
        span = f"{self.seconds:.0f} s" if self.seconds < 90 else f"{self.seconds / 60:.0f} min"
        first = f"in the last {span} the loop waited {waiting:.0%} of its time"
        if waiting < _KEEPS_UP:
            return f"{first}: the loader keeps up"
        stage = max(self.stages, key=lambda name: self.stages[name])
        most = f"; {stage} is {self.stages[stage]:.0%} of the work" if self.stages[stage] else ""
        return f"{first}{most}; {self._estimate(waiting, seconds) or 'penstock doctor finds what would end it'}"

    def _estimate(self, waiting: float, seconds: float) -> str:
        """Return how many workers or cores would end the waiting; empty where that cannot be known."""
        cores, workers = find_cores(SystemFiles()), sum(share > 0 for share in self.busy.values())
        work_s = sum(self.us_per_sample.values()) * self.samples / 1e6
        cpu_s = (self.epoch_time.worker_cpu_ns or self.epoch_time.cpu_ns) / 1e9
        used = min(work_s, cpu_s) / seconds  # cores
        if waiting > _ONLY_WAITS or used < _IS_BUSY * (min(workers, cores) or waiting):
            return ""
        needed = max(math.ceil(used / (1 - waiting)), workers + 1)
        if needed <= cores:
            return f"an estimate: {counted(needed, 'worker')} instead of {workers} would end it"
        return f"an estimate: {counted(needed - cores, 'more core')} would end it, with {counted(needed, 'worker')}"

    def __str__(self) -> str:
        parts = [f"{self.samples_per_s:,.0f} samples/s", f"waiting {self.waiting:.0%}"]
        largest = sorted(self.stages.items(), key=lambda item: -item[1])
        shown = [f"{name} {share:.0%}" for name, share in largest if share >= 0.005]
        parts += [" ".join(shown)] if shown else []
        if self.queue.limit > 1:
            parts.append(f"{self.queue.ready} of {self.queue.limit} ready")
        if self.remote:
            parts.append(
                f"cache {self.remote.hit_rate:.0%}, {format_bytes(self.remote.nbytes / self.seconds)}/s fetched"
            )
        parts += [f"now {change}" for change in self.changes[-1:]]
        return ", ".join(parts)
