"""Threads that build one batch together, chunk of rows by chunk of rows.

::

    submit() -> queue of pieces of work: [batch 7: rows 24.. left][batch 8][batch 9]
                    every idle thread takes the next chunk of the first batch; the last one to end finishes it
    result() <- done

One lock guards queue and results; a thread takes it once per chunk, to report the chunk behind it and take the next.
Calls of user code are reported without it, in a record of each thread's own (:class:`_Position`).
Threads hold the shared state, never the backend, so that a forgotten backend is collected and its threads end. They
are daemons: a thread stuck in user code cannot keep the interpreter alive; those that can end do so before the
interpreter is torn down (native code must not wake up in a dead interpreter).
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

from penstock.datasets.base import located
from penstock.sample import State
from penstock.workers.base import Backend, Build, Capabilities, Done, Job, Task, chunk_rows, name_samples
from penstock.workers.frames import current_frames

__all__ = ["ThreadBackend"]

_JOIN_S: Final = 2.0
"""Longest wait for threads to end in :meth:`ThreadBackend.close`."""


class ThreadBackend(Backend):
    """Executes tasks on threads of this process; see :class:`~penstock.workers.base.Backend`.

    Parameters
    ----------
    num_workers : int
        Threads, at least 1.
    chunk_size : int, optional
        Rows that a thread takes at a time; by default see :func:`~penstock.workers.base.chunk_rows`.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(splits_batches=True)

    def __init__(self, num_workers: int, chunk_size: int | None = None, **others: object) -> None:  # noqa: ARG002  # every backend's arguments
        self._shared = _Shared(num_workers, chunk_size)
        self._state: State = None
        self._finalizer = weakref.finalize(self, _Shared.stop, self._shared)
        self._finalizer.atexit = False  # _stop_all does it, and waits
        _alive.add(self._shared)

    def start(self, job: Job) -> None:
        """Start the threads (once); a further call changes the job, between epochs."""
        shared = self._shared
        shared.job, job.watch = job, _report
        self._state = job.start_epoch(job.epoch_start(0))
        if not shared.threads:
            shared.beginnings = dict.fromkeys(range(shared.num_workers), job.start_worker)
            shared.threads = [
                threading.Thread(target=_serve, args=(shared, i), name=f"penstock-worker-{i}", daemon=True)
                for i in range(shared.num_workers)
            ]
            for thread in shared.threads:
                thread.start()

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:  # noqa: ARG002  # nothing to wait for
        """See :class:`~penstock.workers.base.Backend`."""
        return [self._state]

    def submit(self, task: Task) -> None:
        """See :class:`~penstock.workers.base.Backend`."""
        self._shared.submit(task)

    def result(self, timeout_s: float | None = None) -> Done | None:
        """See :class:`~penstock.workers.base.Backend`."""
        return self._shared.result(timeout_s)

    def pause(self) -> None:
        """See :class:`~penstock.workers.base.Backend`. An idle thread must not keep the loader that it belongs to."""
        self._shared.job = None

    def progress(self) -> int:
        """Calls begun and chunks ended, over all threads."""
        return self._shared.progress + sum(position.calls for position in self._shared.positions)

    def samples_per_call(self) -> int:
        """See :class:`~penstock.workers.base.Backend`."""
        return max([1, *(position.count for position in self._shared.positions if position.task is not None)])

    def describe_workers(self) -> str:
        """The stack of each thread that is in the middle of something."""
        frames, now, parts = current_frames(), time.monotonic(), []
        for worker, thread in enumerate(self._shared.threads):
            position, frame = self._shared.positions[worker], frames.get(thread.ident or 0)
            what = position.described()
            if what and frame is not None:
                at = f"has been busy for {now - position.since:.1f} s with {what}, here:\n"
                parts.append(f"worker {worker} {at}{''.join(traceback.format_stack(frame))}")
        return "\n".join(parts) or "every worker is idle"

    def close(self) -> None:
        """Drop what is queued, wake the threads and wait for them, two seconds at most."""
        if self._shared.pid == os.getpid():  # a forked child has no threads
            self._finalizer()
            self._shared.join(time.monotonic() + _JOIN_S)
            self._shared.drop()


_alive: weakref.WeakSet[_Shared] = weakref.WeakSet()
"""What threads still share, also where the backend was collected: a thread keeps its state alive until it ends."""


_at_exit = threading.Event()


@atexit.register
def _stop_all() -> None:
    _at_exit.set()
    mine = [shared for shared in _alive if shared.pid == os.getpid()]
    for shared in mine:
        shared.stop()
    deadline = time.monotonic() + _JOIN_S
    for shared in mine:
        shared.join(deadline)


class _Position:
    """What a thread is at; written by it alone, put into words only when somebody asks."""

    __slots__ = ("calls", "count", "first", "place", "since", "task")

    def __init__(self) -> None:
        self.task: Task | None = None
        self.first = self.place = self.calls = 0
        self.count, self.since = 1, time.monotonic()

    def begin(self, task: Task, first: int, place: int, count: int) -> None:
        """Work on a chunk that begins at row ``first``, or on the collation of all rows, begins."""
        self.task, self.first, self.place, self.count, self.since = task, first, place, count, time.monotonic()
        self.calls += 1

    def described(self) -> str:
        """Which samples, in words; nothing if the thread is idle."""
        task = self.task
        if task is None:
            return ""
        if self.place < 0:
            return f"stage 'collate' of batch {task.seq}"
        return name_samples(task, self.first + self.place, self.count)


class _Local(threading.local):
    """The position of the thread that asks; one that nobody looks at in threads that are no workers."""

    def __init__(self) -> None:
        self.position = _Position()


_local = _Local()


def _report(place: int, count: int = 1) -> None:
    """The watch of jobs: of this module, so that a job does not keep alive what its threads share."""
    position = _local.position
    position.place, position.count, position.since = place, count, time.monotonic()
    position.calls += 1


class _Batch:
    """A build with what is left of it to hand out, and its first error by row."""

    __slots__ = ("build", "chunk", "error", "failed_at", "next", "running", "task")

    def __init__(self, task: Task, build: Build, chunk: int) -> None:
        self.task, self.build, self.chunk = task, build, chunk
        self.next = self.running = 0
        self.error: BaseException | None = None
        self.failed_at = -1

    def fail(self, start: int, error: BaseException) -> None:
        """Keep the error of the lowest row: it was handed out before any higher one, so it is always known."""
        if self.error is None or start < self.failed_at:
            self.error, self.failed_at = error, start


class _Shared:
    """What the threads share with the backend."""

    def __init__(self, num_workers: int, chunk_size: int | None) -> None:
        self.num_workers, self.chunk_size = num_workers, chunk_size
        self.pid = os.getpid()
        self.job: Job | None = None
        self.threads: list[threading.Thread] = []
        # taken by each thread when it begins; the job may be gone by then
        self.beginnings: dict[int, Callable[[int], None]] = {}
        self.positions = [_Position() for _ in range(num_workers)]
        self.progress = 0
        self._lock = threading.RLock()  # the collector may run a finalizer (stop) in the thread that holds it
        self._work = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)
        self._queue: deque[_Batch] = deque()
        self._done: deque[Done] = deque()
        self._idle = 0
        self._closed = False

    def submit(self, task: Task) -> None:
        assert self.job is not None, "start() comes first"
        if self.job.prefetches:
            self.job.prefetch(task)
        try:
            build = self.job.begin(task)
        except Exception as error:  # noqa: BLE001  # carried to the consumer, who raises it in its turn
            self._done.append(Done(task.seq, error=_without_traceback(error), task=task))
            return
        chunk = chunk_rows(build.rows, self.num_workers, self.chunk_size)
        with self._lock:
            self._queue.append(_Batch(task, build, chunk))
            if self._idle:
                self._work.notify(max(1, -(-build.rows // chunk)))

    def result(self, timeout_s: float | None) -> Done | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while not self._done:
                left = None if deadline is None else deadline - time.monotonic()
                if self._closed and _at_exit.is_set() and threading.current_thread() is not threading.main_thread():
                    self._ready.wait()  # a daemon in the middle of an epoch: it ends with the interpreter, silently
                if self._closed or (left is not None and left <= 0):
                    return None
                self._ready.wait(left)
            return self._done.popleft()

    def stop(self) -> None:
        if self.pid != os.getpid():
            return  # a forked child has no threads, and one that it does not have may hold the lock
        with self._lock:
            self._closed = True  # what is queued goes with the last thread: nothing is taken from under a thread here
            self._work.notify_all()
            self._ready.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the threads, after :meth:`stop`; ``deadline`` is a time of the monotonic clock."""
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def drop(self) -> None:
        """Forget what was queued and what is done, after :meth:`stop`."""
        with self._lock:
            self._queue.clear()
            self._done.clear()

    def take(self) -> tuple[_Batch, int, int] | None:
        """The next chunk; waits for one; None when closed."""
        with self._lock:
            while not self._queue and not self._closed:
                self._idle += 1
                self._work.wait()
                self._idle -= 1
            if self._closed:
                return None
            batch = self._queue[0]
            start = batch.next
            batch.next = stop = min(start + batch.chunk, batch.build.rows)
            batch.running += 1
            if stop == batch.build.rows:
                self._queue.popleft()
            return batch, start, stop

    def ended(self, batch: _Batch, start: int, error: BaseException | None) -> bool:
        """Report a chunk; whether it was the batch's last, so that the caller must finish it."""
        with self._lock:
            self.progress += 1
            batch.running -= 1
            if error is not None:
                batch.fail(start, error)
                if batch.next < batch.build.rows:
                    batch.next = batch.build.rows  # nobody starts on the rest
                    if batch in self._queue:
                        self._queue.remove(batch)
            return batch.running == 0 and batch.next == batch.build.rows

    def deliver(self, done: Done) -> None:
        with self._lock:
            if not self._closed:
                self._done.append(done)
                self._ready.notify()


def _without_traceback(error: Exception) -> Exception:
    """An error of the calling thread: its frames lead to the backend, which the threads would so keep alive."""
    part: BaseException | None = error
    while part is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error


def _serve(shared: _Shared, worker: int) -> None:
    """A thread's life. Everything about a batch lives in :func:`_work`, so that an idle thread keeps none alive."""
    failure: BaseException | None = None
    _local.position = shared.positions[worker]
    try:
        shared.beginnings.pop(worker)(worker)
    except BaseException as error:  # noqa: BLE001  # raised in the consumer, instead of the first batch of this worker
        failure = located(error, worker=worker)
    while _work(shared, worker, failure):
        failure = None


def _work(shared: _Shared, worker: int, failure: BaseException | None) -> bool:
    chunk = shared.take()
    if chunk is None:
        return False
    batch, start, stop = chunk
    position = shared.positions[worker]
    position.begin(batch.task, start, 0, stop - start)
    if failure is None:
        try:
            batch.build.run(start, stop)
        except BaseException as error:  # noqa: BLE001  # carried to the consumer, who raises it in its turn
            failure = located(error, worker=worker)
    if shared.ended(batch, start, failure):
        position.begin(batch.task, 0, -1, batch.build.rows)
        done = _finished(batch, worker)
        position.task = None
        shared.deliver(done)
    position.task = None
    return True


def _finished(batch: _Batch, worker: int) -> Done:
    build, error, content = batch.build, batch.error, None
    if error is None:
        try:
            content = build.finish()
        except BaseException as raised:  # noqa: BLE001  # carried to the consumer, who raises it in its turn
            error = located(raised, worker=worker)
    left_out = build.left_out if error is None else ()
    return Done(build.seq, content, error, build.rows, build.state, batch.task, left_out=left_out)
