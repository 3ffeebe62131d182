"""Writes what a loader does into a file that viewers read, about once a second, while batches are delivered.

No thread is started.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Final

from penstock.datasets.sample_names import find_record, name_sample
from penstock.errors import ArgumentError
from penstock.loader.counters import LoaderCounters
from penstock.loader.live.live_file import LiveFile, find_folder, remove_stale
from penstock.loader.stats import Stats
from penstock.ranks import World, find_world
from penstock.trace import Observer
from penstock.workers.slow_samples import SlowSamples, TimedPart

if TYPE_CHECKING:
    from penstock.loader.recipe import Recipe, Settings

__all__ = ["LivePublisher", "publish"]

_PERIOD_S: Final = 1.0
_SHORT_S: Final = 0.5
_NEWEST: Final = 5
_TEXT: Final = 200
_numbers: Final = itertools.count()


def publish(settings: Settings, recipe: Recipe, epoch: int) -> SlowSamples | None:
    """Have an epoch's loader write its file if ``settings.view``, else no longer. A failure is a warning.

    Returns what the epoch's job tells of slow samples.
    """
    counters = settings.counters
    publisher = counters.publisher
    if isinstance(publisher, LivePublisher) and (not settings.view or not publisher.is_here()):
        counters.remove_observer(publisher)
        publisher.close()
        publisher = counters.publisher = None
    if not settings.view:
        return None
    if publisher is None:
        try:
            publisher = counters.publisher = LivePublisher(settings, recipe)
        except (OSError, ArgumentError) as error:
            warnings.warn(f"the loader cannot be viewed: {error}", RuntimeWarning, stacklevel=2)
            return None
        counters.add_observer(publisher)
    assert isinstance(publisher, LivePublisher), "what this function has made"
    is_counted = not recipe.is_stream and settings.begin_next is None  # else two epochs are under way at once
    publisher.begin_epoch(epoch, settings.count_batches() if is_counted else 0)
    return publisher.slow


class LivePublisher(Observer):
    """Writes the file of one loader.

    ``settings`` and ``recipe``: of the loader, when its first epoch begins. Raises OSError or ArgumentError if the file
    cannot be written.
    """

    def __init__(self, settings: Settings, recipe: Recipe) -> None:
        folder = find_folder(make=True)
        remove_stale(folder)
        self._pid, self._counters = os.getpid(), weakref.ref(settings.counters)
        self._dataset: object = recipe.dataset
        host = re.sub(r"[^A-Za-z0-9_.-]", "_", os.uname().nodename)
        path = folder / f"{host}-{self._pid}-{next(_numbers)}.jsonl"
        self._file: LiveFile | None = LiveFile(path, _describe_loader(settings, recipe, host))
        self._finalizer = weakref.finalize(self, self._file.close)
        self.slow, self._is_writing = SlowSamples(), False
        self._due_s = self._ended_s = self._begun_s = 0.0
        self._epoch, self._total, self._first = 0, 0, 0

    def is_here(self) -> bool:
        """Return whether this process writes the file, and is no forked child of the one that does."""
        return self._pid == os.getpid() and self._file is not None

    def close(self) -> None:
        """Remove the file."""
        self._finalizer()
        self._file = None

    def begin_epoch(self, epoch: int, total: int) -> None:
        """An epoch begins, of ``total`` batches; 0: unknown, or the one before is under way."""
        self._begun_s = time.time() if total else 0.0
        counters = self._counters()
        self._epoch, self._total, self._first = epoch, total, 0 if counters is None else counters.stats().batches

    def delivered(self, samples: int) -> None:  # noqa: ARG002  # the counters have counted them
        """Write a line if it is time to."""
        if (now := time.monotonic()) >= self._due_s:
            self._due_s = now + _PERIOD_S
            self._write()

    def end_epoch(self) -> None:
        """Write a line, unless an epoch has just ended: epochs may be very short."""
        if (now := time.monotonic()) >= self._ended_s + _SHORT_S:
            self._ended_s = now
            self._write()

    def _write(self) -> None:
        counters = self._counters()
        # A garbage collection in the middle of a line may end another iterator of this loader.
        if counters is None or self._file is None or self._is_writing or self._pid != os.getpid():
            return
        self._is_writing = True
        try:
            stats = counters.stats()
            self._file.append({
                "epoch": self._epoch, "total": self._total, "batch": stats.batches - self._first,
                "begun": self._begun_s, **_count(stats, counters),
                "slow": [_describe_sample(self._dataset, sample) for sample in self.slow.take()],
            })  # fmt: skip
        except OSError as error:
            self._file = None
            warnings.warn(f"the loader is viewed no more: {error}", RuntimeWarning, stacklevel=3)
        finally:
            self._is_writing = False


def _describe_loader(settings: Settings, recipe: Recipe, host: str) -> dict[str, object]:
    """Return the header of a loader's file."""
    try:
        world = find_world()
    except ArgumentError:  # variables that contradict one another: the sampler says so
        world = World()
    dataset = settings.order.dataset
    record = None if recipe.is_stream else find_record(recipe.dataset, 0)
    return {
        "penstock": 1, "pid": os.getpid(), "host": host, "started": time.time(), "script": sys.argv[0][-_TEXT:],
        "rank": world.rank, "world_size": world.num_replicas, "dataset": type(dataset).__name__,
        "workers": recipe.workers.kind, "num_workers": settings.num_workers,
        "limit": recipe.limit, "store": None if record is None else record[0].url,
    }  # fmt: skip


def _count(stats: Stats, counters: LoaderCounters) -> dict[str, object]:
    """Sums since the loader was made; who reads them takes differences. And the verdict of five minutes."""
    values: dict[str, object] = {
        "t": time.time(), "batches": stats.batches, "samples": stats.samples, "wait_ns": stats.wait_ns,
        "nbytes": stats.nbytes, "left_out": stats.left_out, "repaired": stats.repaired, "verdict": stats.verdict,
        "stages": {each.stage: each.time_ns for each in stats.stages if each.stage != "wait"},
        "queue": [stats.queue.ready, stats.queue.under_way, stats.queue.limit],
        "workers": {str(each.worker): [each.time_ns, each.batches] for each in stats.workers},
    }  # fmt: skip
    if stats.remote:
        values["remote"] = {"nbytes": stats.remote.nbytes}
    if stats.changes:
        values["changed"] = str(stats.changes[-1])[:_TEXT]
    if stats.left_out:
        values["errors"] = [
            {
                "index": each.index if isinstance(each.index, int) else str(each.index)[:_TEXT],
                "key": None if each.key is None else each.key[:_TEXT],
                "reason": f"{each.type}: {each.reason}"[:_TEXT],
            }
            for each in counters.left_out_log.newest()[-_NEWEST:]
        ]  # fmt: skip
    return values


def _describe_sample(dataset: object, sample: TimedPart) -> dict[str, object]:
    found = None if not sample.indices else find_record(dataset, sample.indices[0])
    described: dict[str, object] = {
        "ms": sample.time_ns / 1e6, "count": sample.samples, "batch": sample.batch, "worker": sample.worker,
        "indices": list(sample.indices),
    }  # fmt: skip
    if found is not None:
        described |= {"store": found[0].url, "record": found[1]}  # its key is found by the viewer
    elif sample.indices:
        described["key"] = name_sample(dataset, sample.indices[0])[:_TEXT]
    return described
