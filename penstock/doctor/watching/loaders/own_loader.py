"""Watches penstock's loaders, NumPy's and torch's: their own trace has the stages; here they get times and workers.

::

    iter(loader)                  a run over the loader begins
    LoaderIterator.__next__       wait, step;  _count: samples of the batch
    ProcessBackend.start          RecordingStart is sent to the workers, in the place of worker_init_fn

    where batches are built: the caller or a thread (own_threads.py), a worker process (own_worker.py)
      own_work.py                 parts of chunks by the trace, chunks, samples

Batches and random states are not touched.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from penstock.doctor.watching.event_file import make_row
from penstock.doctor.watching.loaders.own_threads import find_watch, install_local
from penstock.doctor.watching.loaders.own_work import work_replacements, working
from penstock.doctor.watching.loaders.own_worker import record_worker
from penstock.doctor.watching.loaders.watched_iterators import EPOCH, find_epoch, watch_next
from penstock.doctor.watching.loaders.worker_start import RecordingStart
from penstock.doctor.watching.watcher import Watcher
from penstock.doctor.watching.work_recorder import WorkRecorder
from penstock.loader.iteration import LoaderIterator
from penstock.loader.loader import DataLoader
from penstock.trace import Trace
from penstock.workers.processes.backend import ProcessBackend

__all__ = ["install", "install_torch"]


def install(watcher: Watcher) -> None:
    """Replace methods of penstock's loaders until ``watcher.uninstall()``."""
    watcher.replace(DataLoader, "__init__", watcher.made.watch_init(DataLoader.__init__))
    watcher.replace(DataLoader, "__iter__", _watch_iter(watcher, DataLoader.__iter__))
    watcher.replace(LoaderIterator, "__next__", watch_next(watcher, LoaderIterator.__next__, _count_ready))
    watcher.replace(LoaderIterator, "_count", _watch_count(watcher, LoaderIterator._count))  # noqa: SLF001  # ours
    watcher.replace(ProcessBackend, "start", _watch_processes(watcher, ProcessBackend.start))
    install_local(watcher)
    for owner, name, value in work_replacements():
        watcher.replace(owner, name, value)
    watcher.replace(Trace, "add", _watch_receiving(watcher, Trace.add))


def install_torch(watcher: Watcher) -> None:
    """The same for ``penstock.torch.DataLoader``, which has an ``__iter__`` of its own."""
    from penstock.torch.loader.epoch_starter import EpochStarter

    watcher.replace(EpochStarter, "__iter__", _watch_iter(watcher, EpochStarter.__iter__))


def _watch_iter(watcher: Watcher, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def make_iterator(self: Any) -> Any:
        watcher.change_loader(self)
        watch = watcher.watch_of(self)
        if watch is None:
            return original(self)
        start = time.perf_counter_ns()
        watch.first_batch = watch.control.first_batch = watch.next_number()
        with watcher.starting_workers():
            iterator = original(self)
        epoch = watch.begin_epoch(time.perf_counter_ns() - start)
        if isinstance(iterator, LoaderIterator):
            setattr(iterator, EPOCH, epoch)
        return iterator

    return make_iterator


def _watch_count(watcher: Watcher, original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(original)
    def count(self: Any, done: Any) -> None:
        epoch = find_epoch(watcher, self)
        if epoch is not None and done.error is None:
            epoch.watch.lengths[epoch.watch.first_batch + epoch.delivered] = done.rows
        original(self, done)

    return count


def _count_ready(iterator: Any) -> int:
    """Batches that are built; -1 if it cannot be seen."""
    backend = iterator.backend
    shared = getattr(backend, "_shared", None) or getattr(backend, "_pool", None)
    done = getattr(shared, "_done", None)
    if done is None:
        done = getattr(shared, "done", None)
    return -1 if done is None else len(iterator._ready) + len(done)  # noqa: SLF001  # ours


def _watch_processes(watcher: Watcher, original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(original)
    def start(self: Any, job: Any) -> None:
        watch = find_watch(watcher, job.dataset)
        if watch is None:
            original(self, job)
            return
        if not isinstance(job._worker_init_fn, RecordingStart):  # noqa: SLF001  # ours
            job._worker_init_fn = RecordingStart(record_worker, job._worker_init_fn, watch.folder, watch.iterators)  # noqa: SLF001  # ours
            watch.iterators += 1
        with watcher.starting_workers():
            original(self, job)

    return start


def _watch_receiving(watcher: Watcher, original: Callable[..., None]) -> Callable[..., None]:
    """``Trace.add``: what a pool adds in the caller's thread is the transport of a batch."""

    @functools.wraps(original)
    def add(self: Trace, stage: str, time_ns: int, items: int = 1) -> None:
        original(self, stage, time_ns, items)
        work: WorkRecorder | None = getattr(working, "work", None)
        if work is not None:
            return
        if stage == "transport" and watcher.is_here():
            end = time.perf_counter_ns()
            for watch in watcher.watches:
                if self in _open_traces(watch.loader):
                    watch.sink.add([make_row("transport", -1, -1, end - time_ns, end)])

    return add


def _open_traces(loader: Any) -> list[Trace]:
    counters = getattr(loader, "_counters", None)
    traces: list[Trace] = getattr(counters, "_traces", [])
    return traces
