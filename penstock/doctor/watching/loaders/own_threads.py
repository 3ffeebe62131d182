"""Watches penstock's loaders that build batches in this process: in threads, or in the caller.

::

    SerialBackend.result                     a batch, built while the caller waits
    _Shared.take ── end_chunk ── deliver     a thread takes a chunk of a batch; the last one of a batch delivers it

Installed by :mod:`penstock.doctor.watching.loaders.own_loader`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.doctor.watching.event_file import make_row
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.loaders.own_work import begin_work, end_work, mark_samples, working
from penstock.doctor.watching.recording import BATCH
from penstock.doctor.watching.stack_sampling import SampledThread
from penstock.doctor.watching.watcher import Watcher
from penstock.doctor.watching.work_recorder import WorkRecorder
from penstock.workers.serial import SerialBackend
from penstock.workers.threads import _Shared

__all__ = ["find_watch", "install_local"]


def install_local(watcher: Watcher) -> None:
    """Replace methods of the backends until ``watcher.uninstall()``."""
    watcher.replace(SerialBackend, "result", _watch_serial(watcher, SerialBackend.result))
    watcher.replace(_Shared, "take", _watch_take(watcher, _Shared.take))
    watcher.replace(_Shared, "end_chunk", _watch_chunk(watcher, _Shared.end_chunk))
    watcher.replace(_Shared, "deliver", _watch_deliver(watcher, _Shared.deliver))


def find_watch(watcher: Watcher, dataset: object) -> LoaderWatch | None:
    """The watched loader of a dataset; the newest, if several have it."""
    if not watcher.is_here():
        return None
    for watch in reversed(watcher.watches):
        if watch.loader.dataset is dataset or getattr(watch.loader.dataset, "dataset", None) is dataset:
            return watch
    return None


def _watch_serial(watcher: Watcher, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def result(self: Any, timeout_s: float | None = None) -> Any:
        job = self._job
        watch = None if job is None or not self._tasks else find_watch(watcher, job.dataset)
        if watch is None:
            return original(self, timeout_s)
        work = vars(watch).get("serial_work")
        if work is None:
            work = WorkRecorder(watch.sink, -1, watcher.current_thread())
            vars(watch)["serial_work"] = work
        work.first_batch = watch.first_batch
        if job.watch is None:
            job.watch = mark_samples(_ignore)
        begin_work(work, self._tasks[0].seq)
        done = None
        try:
            done = original(self, timeout_s)
            return done
        finally:
            end_work(work, 0 if done is None else done.rows)

    return result


def _ignore(place: int, count: int = 1) -> None:
    """A watch that watches nothing."""


def _thread_work(watcher: Watcher, shared: Any) -> WorkRecorder | None:
    """The recorder of a worker thread; None if its loader is not watched."""
    job = shared.job
    watch = None if job is None else find_watch(watcher, job.dataset)
    if watch is None:
        return None
    work: WorkRecorder | None = getattr(working, "of_thread", None)
    if work is None or work.sink is not watch.sink:
        worker = int(threading.current_thread().name.rpartition("-")[2])
        work = working.of_thread = WorkRecorder(watch.sink, worker, SampledThread())
        watcher.add_worker_thread(work)
    work.first_batch = watch.first_batch
    return work


def _watch_take(watcher: Watcher, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def take(self: Any) -> Any:
        chunk = original(self)
        work = None if chunk is None else _thread_work(watcher, self)
        if work is not None:
            batch, start, _ = chunk
            begin_work(work, batch.task.seq)
            if start == 0:
                _begun[id(self), batch.task.seq] = time.perf_counter_ns()
        return chunk

    return take


_begun: dict[tuple[int, int], int] = {}
"""When the first chunk of a batch was begun, by the threads' shared state and the batch."""


def _watch_chunk(watcher: Watcher, original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def end_chunk(self: Any, batch: Any, start: int, error: BaseException | None) -> bool:
        work: WorkRecorder | None = getattr(working, "work", None)
        if work is not None and watcher.is_here():
            work.end_samples()
        is_last = original(self, batch, start, error)
        if work is not None and not is_last:
            _end_thread_work(work)
        return is_last

    return end_chunk


def _end_thread_work(work: WorkRecorder) -> None:
    working.work = None
    work.leave_batch()


def _watch_deliver(watcher: Watcher, original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(original)
    def deliver(self: Any, done: Any) -> None:
        work: WorkRecorder | None = getattr(working, "work", None)
        begun = _begun.pop((id(self), done.seq), None)
        if work is not None:
            if begun is not None and watcher.is_here():
                end, batch = time.perf_counter_ns(), done.seq + work.first_batch
                work.sink.add([make_row(BATCH, work.worker, batch, begun, end, samples=done.rows)])
            _end_thread_work(work)
        original(self, done)

    return deliver
