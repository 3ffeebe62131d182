"""The backend whose workers are threads, which build one batch together, in chunks of rows.

::

    submit() -> queue of batches: [batch 7: rows 24.. left][batch 8][batch 9]
                    an idle thread takes the next chunk of the first batch; the last one finishes the batch
    result() <- done

One lock protects queue and results. A thread takes it once per chunk, to report the last chunk and take the next. Calls
of user code are reported without a lock, in an object of each thread (:class:`_ThreadStatus`). A job, a queue and a
batch may refer to the loader, so a thread references the shared state only while it works on a chunk: between chunks it
holds :class:`_Signals`, and an unreferenced backend, or one in a cycle, is collected and its threads end. They are
daemons, so that one that is stuck in user code does not keep the interpreter alive; the others end before the
interpreter is finalized, as native code must not return to a finalized interpreter.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from penstock import trace
from penstock.datasets.error_location import add_location
from penstock.sample import State
from penstock.workers.base import Backend, BatchBuild, Capabilities, Job, Task, TaskResult, chunk_rows, name_samples
from penstock.workers.stack_frames import current_frames

__all__ = ["ThreadBackend"]

_JOIN_S: Final = 2.0
"""Longest wait for threads to end in :meth:`ThreadBackend.close`."""


class ThreadBackend(Backend):
    """Executes tasks on threads of this process; see :class:`~penstock.workers.base.Backend`.

    ``num_workers``: threads, at least 1. ``chunk_size``: rows of a chunk; None: see
    :func:`~penstock.workers.base.chunk_rows`.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(splits_batches=True)

    def __init__(self, num_workers: int, chunk_size: int | None = None, **others: object) -> None:  # noqa: ARG002  # every backend's arguments
        self._shared = _Shared(num_workers, chunk_size)
        self._state: State = None
        self._finalizer = weakref.finalize(self, self._shared.signals.stop)
        self._finalizer.atexit = False  # _stop_all does it, and waits
        _alive.add(self._shared.signals)

    def start(self, job: Job) -> None:
        """Start the threads (once); a further call changes the job, between epochs."""
        shared = self._shared
        shared.job, job.watch, shared.taken = job, _report, 0
        self._state = job.start_epoch(job.worker_start(0))
        self._start_threads()

    def _start_threads(self) -> None:
        """Start the threads that are not started yet."""
        shared, signals, reference = self._shared, self._shared.signals, weakref.ref(self._shared)
        assert shared.job is not None, "start() comes first"
        for worker in range(len(signals.threads), shared.num_workers):
            shared.start_calls[worker] = shared.job.start_worker
            name = f"penstock-worker-{worker}"
            thread = threading.Thread(target=_run_worker, args=(signals, reference, worker), name=name, daemon=True)
            signals.threads.append(thread)
            thread.start()

    def resize(self, num_workers: int) -> None:
        """Have so many threads work; the rest wait, or are not started."""
        self._shared.resize(num_workers)
        if self._shared.job is not None:
            self._start_threads()

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:  # noqa: ARG002  # nothing to wait for
        """Return the state at the start; there is nothing to wait for."""
        return [self._state]

    def submit(self, task: Task) -> None:
        """Queue one task; does not wait."""
        self._shared.submit(task)

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """Wait for a finished batch and return it; None after ``timeout_s``."""
        return self._shared.result(timeout_s)

    def pause(self) -> None:
        """Drop the job. An idle thread must not keep a reference to its loader."""
        self._shared.job = None

    def progress(self) -> int:
        """Calls begun and chunks ended, over all threads."""
        return self._shared.progress + sum(status.calls for status in self._shared.statuses)

    def count_ready(self) -> int:
        """Count the batches that are finished and not taken."""
        return len(self._shared.done)

    def samples_per_call(self) -> int:
        """The most samples that a running call of a thread asks for."""
        return max([1, *(status.count for status in self._shared.statuses if status.task is not None)])

    def describe_workers(self) -> str:
        """Describe each busy thread with its stack."""
        frames, now, parts = current_frames(), time.monotonic(), []
        for worker, thread in enumerate(self._shared.signals.threads):
            status, frame = self._shared.statuses[worker], frames.get(thread.ident or 0)
            what = status.describe()
            if what and frame is not None:
                at = f"has been busy for {now - status.since:.1f} s with {what}, here:\n"
                parts.append(f"worker {worker} {at}{''.join(traceback.format_stack(frame))}")
        return "\n".join(parts) or "every worker is idle"

    def close(self) -> None:
        """Drop queued tasks, wake the threads and wait for them, two seconds at most."""
        signals = self._shared.signals
        if signals.pid == os.getpid():  # a forked child has no threads
            self._finalizer()
            signals.join(time.monotonic() + _JOIN_S)
            self._shared.drop()


_alive: weakref.WeakSet[_Signals] = weakref.WeakSet()
"""Of threads that have not ended; their backend may be collected already."""


_at_exit = threading.Event()


@atexit.register
def _stop_all() -> None:
    _at_exit.set()
    mine = [signals for signals in _alive if signals.pid == os.getpid()]
    for signals in mine:
        signals.stop()
    deadline = time.monotonic() + _JOIN_S
    for signals in mine:
        signals.join(deadline)


class _ThreadStatus:
    """What a thread is doing; only the thread itself writes it."""

    __slots__ = ("calls", "count", "first", "position", "since", "task")

    def __init__(self) -> None:
        self.task: Task | None = None
        self.first = self.position = self.calls = 0
        self.count, self.since = 1, time.monotonic()

    def begin(self, task: Task, first: int, position: int, count: int) -> None:
        """Record that work on a chunk that begins at row ``first`` begins, or the collation (``position`` is -1)."""
        self.task, self.first, self.position, self.count, self.since = task, first, position, count, time.monotonic()
        self.calls += 1

    def describe(self) -> str:
        """Return which samples it builds, in words; empty if the thread is idle."""
        task = self.task
        if task is None:
            return ""
        if self.position < 0:
            return f"stage 'collate' of batch {task.seq}"
        return name_samples(task, self.first + self.position, self.count)


class _Local(threading.local):
    """The status of the current thread; unused in threads that are no workers."""

    def __init__(self) -> None:
        self.status = _ThreadStatus()


_local = _Local()


def _report(place: int, count: int = 1) -> None:
    """The watch of jobs; a function, so that a job keeps no reference to the shared state."""
    status = _local.status
    status.position, status.count, status.since = place, count, time.monotonic()
    status.calls += 1


class _Batch:
    """A build, with the chunks that are left of it, and the error of its lowest row."""

    __slots__ = ("build", "error", "failed_at", "next", "running", "task")

    def __init__(self, task: Task, build: BatchBuild) -> None:
        self.task, self.build = task, build
        self.next = self.running = 0
        self.error: BaseException | None = None
        self.failed_at = -1

    def fail(self, start: int, error: BaseException) -> None:
        """Keep the error of the lowest row. Its chunk was taken first, so that the result does not depend on timing."""
        if self.error is None or start < self.failed_at:
            self.error, self.failed_at = error, start


class _Signals:
    """What idle threads hold: the lock, what they wait for, and whether they are to end. It references no job."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.threads: list[threading.Thread] = []
        self.lock = threading.RLock()  # the collector may call stop() in the thread that holds it
        self.work = threading.Condition(self.lock)
        self.more = threading.Condition(self.lock)
        self.ready = threading.Condition(self.lock)
        self.idle = 0
        self.closed = False

    def wait_for_work(
        self, reference: weakref.ref[_Shared], worker: int
    ) -> tuple[_Shared, tuple[_Batch, int, int]] | None:
        """Return the next chunk for a worker, with the state it is of; waits for one; None when closed."""
        with self.lock:
            while not self.closed and (shared := reference()) is not None:
                if worker >= shared.num_workers:
                    del shared
                    self.more.wait()
                    continue
                chunk = shared.take()
                if chunk is not None:
                    return shared, chunk
                del shared
                self.idle += 1
                self.work.wait()
                self.idle -= 1
        return None

    def stop(self) -> None:
        if self.pid != os.getpid():
            return  # a forked child has no workers; a thread of its parent may hold the lock
        with self.lock:
            self.closed = True  # the queue is not cleared here: a thread may use it
            self.work.notify_all()
            self.more.notify_all()
            self.ready.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the threads, after :meth:`stop`; ``deadline`` is a time of the monotonic clock."""
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


class _Shared:
    """The state that the backend shares with threads that work; only the backend holds it."""

    def __init__(self, num_workers: int, chunk_size: int | None) -> None:
        self.num_workers, self.chunk_size = num_workers, chunk_size
        self.job: Job | None = None
        # taken by each thread when it begins, when the job may be dropped already
        self.start_calls: dict[int, Callable[[int], None]] = {}
        self.statuses = [_ThreadStatus() for _ in range(num_workers)]
        self.progress = self.taken = 0  # chunks that ended, and those that were taken in this epoch
        self.signals = _Signals()
        self._queue: deque[_Batch] = deque()
        self.done: deque[TaskResult] = deque()

    def resize(self, num_workers: int) -> None:
        with self.signals.lock:
            self.num_workers = num_workers
            self.signals.work.notify_all()  # one that is to wait from now on may have been told of a chunk
            self.signals.more.notify_all()

    def submit(self, task: Task) -> None:
        assert self.job is not None, "start() comes first"
        if self.job.prefetches:
            self.job.prefetch(task)
        try:
            build = self.job.begin(task)
        except Exception as error:  # noqa: BLE001  # raised by the consumer when the batch is due
            self.done.append(TaskResult(task.seq, error=_remove_tracebacks(error), task=task))
            return
        batch = _Batch(task, build)
        with self.signals.lock:
            self._queue.append(batch)
            if self.signals.idle:
                self.signals.work.notify(max(1, -(-build.rows // self._chunk_rows(batch))))

    def result(self, timeout_s: float | None) -> TaskResult | None:
        deadline, signals = None if timeout_s is None else time.monotonic() + timeout_s, self.signals
        with signals.lock:
            while not self.done:
                left = None if deadline is None else deadline - time.monotonic()
                if signals.closed and _at_exit.is_set() and threading.current_thread() is not threading.main_thread():
                    signals.ready.wait()  # a daemon thread inside an epoch: it ends silently with the interpreter
                if signals.closed or (left is not None and left <= 0):
                    return None
                signals.ready.wait(left)
            return self.done.popleft()

    def drop(self) -> None:
        """Drop queued tasks and results, after :meth:`_Signals.stop`."""
        with self.signals.lock:
            self._queue.clear()
            self.done.clear()

    def take(self) -> tuple[_Batch, int, int] | None:
        """Return the next chunk, if there is one; called under the lock."""
        if not self._queue:
            return None
        batch = self._queue[0]
        start = batch.next
        batch.next = stop = min(start + self._chunk_rows(batch), batch.build.rows)
        batch.running += 1
        self.taken += 1
        if stop == batch.build.rows:
            self._queue.popleft()
        return batch, start, stop

    def _chunk_rows(self, batch: _Batch) -> int:
        """Return the number of rows of the next chunk of a batch. The batches queued behind it are taken to be as long.

        Until each thread has had a chunk, only this batch counts, so that the first one is there soon.
        """
        build, batches = batch.build, len(self._queue) if self.taken >= self.num_workers else 1
        return chunk_rows(batches * build.rows, self.num_workers, self.chunk_size, build.most_rows)

    def end_chunk(self, batch: _Batch, start: int, error: BaseException | None) -> bool:
        """Report a chunk; whether it was the last of the batch, which the caller must then finish."""
        with self.signals.lock:
            self.progress += 1
            batch.running -= 1
            if error is not None:
                batch.fail(start, error)
                if batch.next < batch.build.rows:
                    batch.next = batch.build.rows  # the rest is not started
                    if batch in self._queue:
                        self._queue.remove(batch)
            return batch.running == 0 and batch.next == batch.build.rows

    def deliver(self, done: TaskResult) -> None:
        with self.signals.lock:
            if not self.signals.closed:
                self.done.append(done)
                self.signals.ready.notify()


def _remove_tracebacks(error: Exception) -> Exception:
    """Return ``error`` without tracebacks: their frames reference the backend, which the threads would keep alive."""
    part: BaseException | None = error
    while part is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error


def _run_worker(signals: _Signals, reference: weakref.ref[_Shared], worker: int) -> None:
    """Work as a thread. Jobs and batches are local to functions that have returned when it waits."""
    trace.name_worker(worker)
    failure = _start_worker(reference, worker)
    while _work_on_chunk(signals, reference, worker, failure):
        failure = None


def _start_worker(reference: weakref.ref[_Shared], worker: int) -> BaseException | None:
    """Return the error of ``worker_init_fn``, raised in position of the first batch of this worker."""
    shared = reference()
    if shared is None:
        return None
    _local.status = shared.statuses[worker]
    try:
        shared.start_calls.pop(worker)(worker)
    except BaseException as error:  # noqa: BLE001  # as the docstring says
        return add_location(error, worker=worker)
    return None


def _work_on_chunk(
    signals: _Signals, reference: weakref.ref[_Shared], worker: int, failure: BaseException | None
) -> bool:
    work = signals.wait_for_work(reference, worker)
    if work is None:
        return False
    shared, (batch, start, stop) = work
    status = shared.statuses[worker]
    status.begin(batch.task, start, 0, stop - start)
    if failure is None:
        try:
            batch.build.run(start, stop)
        except BaseException as error:  # noqa: BLE001  # raised by the consumer when the batch is due
            failure = add_location(error, worker=worker)
    if shared.end_chunk(batch, start, failure):
        status.begin(batch.task, 0, -1, batch.build.rows)
        done = _finish(batch, worker)
        status.task = None
        shared.deliver(done)
    status.task = None
    return True


def _finish(batch: _Batch, worker: int) -> TaskResult:
    build, error, content = batch.build, batch.error, None
    if error is None:
        try:
            content = build.finish()
        except BaseException as raised:  # noqa: BLE001  # raised by the consumer when the batch is due
            error = add_location(raised, worker=worker)
    left_out = build.left_out if error is None else ()
    repaired = build.repaired if error is None else ()
    return TaskResult(
        build.seq, content, error, build.rows, build.state, batch.task, left_out=left_out, repaired=repaired
    )
