"""What runs in a worker process.

::

    connection opened -> seeded -> worker_init_fn -> StartEpoch -> EpochStarted -> Task -> BatchBuilt ... -> end

The worker does one thing at a time, in its only thread. It exits when its connection is closed. When the parent exits,
the kernel kills it, whatever it is doing.
"""

from __future__ import annotations

import pickle
import signal
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock import collate
from penstock.errors import SampleError
from penstock.sample import Batch
from penstock.trace import STAGES, Trace
from penstock.workers import info
from penstock.workers.base import BatchBuild, Job, Task, WorkerStart
from penstock.workers.processes.batch_encoding import pack_state
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.messages import BatchBuilt, EpochStarted, SlotPayload, StartEpoch
from penstock.workers.processes.sockets import SocketRemoteEnd, WorkerSocket
from penstock.workers.processes.status import StopWork

__all__ = ["WorkerIdentity", "run_worker"]

_CHUNK: Final = 32
"""Rows that a build runs at once, unless it is to run whole."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Which worker of a backend a process is."""

    worker: int
    num_workers: int
    base_seed: int


def run_worker(remote: SocketRemoteEnd, identity: WorkerIdentity, job: Job, start: WorkerStart) -> None:
    """Work until the connection is closed; the target of a worker process.

    Parameters
    ----------
    remote : SocketRemoteEnd
        The worker's end of its connection.
    identity : WorkerIdentity
        Which worker it is.
    job : Job
        The worker's own copy.
    start : WorkerStart
        How it starts its first epoch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent raises KeyboardInterrupt, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the handler that a parent may have, for its preemption
    worker = _Worker(remote.open(), identity, job)
    try:
        worker.start_epoch(start, first=True)
        while worker.handle_message():
            pass
    except StopWork:
        pass


class _Worker:
    """The job and connection of this process."""

    def __init__(self, connection: WorkerSocket, identity: WorkerIdentity, job: Job) -> None:
        self._connection, self._identity, self._job = connection, identity, job
        self._status, self._memory, self._trace = connection.status, connection.memory, Trace()
        self._error: CapturedError | None = None
        self._rng = info.RngMonitor()
        self._messages: deque[StartEpoch | Task] = deque()
        job.attach(self._memory, self._trace, self._status.watch)
        collate.set_allocator(self._memory.allocate)
        seed = identity.base_seed + identity.worker
        worker = info.WorkerInfo(identity.worker, identity.num_workers, seed, job.dataset)
        info.start_as_worker(worker, identity.base_seed)

    def start_epoch(self, start: WorkerStart, *, first: bool) -> None:
        """Start an epoch, and report it."""
        state, self._error = None, None
        try:
            if first:
                self._job.start_worker(self._identity.worker)
            state = pack_state(self._job.start_epoch(start))
            if start.rng is not None:
                info.restore_rng(start.rng)
        except StopWork:
            raise
        except BaseException as error:  # noqa: BLE001  # sent to the parent, which raises it
            self._error = CapturedError.capture(error)
        self._rng = info.RngMonitor()
        self._connection.send(EpochStarted(state, self._error))

    def handle_message(self) -> bool:
        """Do what the next message says; False if the connection is closed."""
        if not self._messages and not self._receive(wait=True):
            return False
        if self._job.prefetches:
            while self._receive(wait=False):
                pass
        message = self._messages.popleft()
        if isinstance(message, StartEpoch):
            self.start_epoch(message.start, first=False)
        else:
            self._build(message)
        return True

    def _receive(self, *, wait: bool) -> bool:
        """Queue one message, and have the job look ahead to its task; whether there was one."""
        message = self._connection.receive(wait=wait)
        if message is not None:
            self._messages.append(message)
        if isinstance(message, Task) and self._job.prefetches:
            self._job.prefetch(message)
        return message is not None

    def _build(self, task: Task) -> None:
        self._status.begin_batch(task.seq)
        self._memory.begin()
        build, payload, captured = None, SlotPayload(), self._error
        if captured is None:
            try:
                build = self._job.begin(task)
                self._run(build)
                self._status.first_row = 0
                self._status.watch(-1, build.rows)  # from here on, no sample is to blame if the worker dies
                batch = build.finish()
                start = time.perf_counter_ns()
                payload = self._pack(batch, task)
                self._trace.add("transport", time.perf_counter_ns() - start, build.rows)
                del batch
            except StopWork:
                raise
            except BaseException as error:  # noqa: BLE001  # sent to the parent, which raises it
                captured, payload = CapturedError.capture(error), SlotPayload()
        self._send(task, build, captured, payload)
        self._status.end_batch()

    def _run(self, build: BatchBuild) -> None:
        chunk = build.rows if build.whole else _CHUNK
        for start in range(0, build.rows, max(chunk, 1)):
            stop = min(start + chunk, build.rows)
            self._status.first_row = start
            self._status.watch(0, stop - start)
            build.run(start, stop)

    def _pack(self, batch: Batch, task: Task) -> SlotPayload:
        try:
            return self._connection.pack(batch)
        except StopWork:
            raise
        except BaseException as error:
            kind, why = type(batch).__qualname__, f"{type(error).__name__}: {error}"
            where = _unpicklable_sample(batch, task)
            raise SampleError(
                f"a batch of type {kind} cannot be sent to the parent: {why}", batch=task.seq, **where
            ) from error

    def _send(self, task: Task, build: BatchBuild | None, captured: CapturedError | None, payload: SlotPayload) -> None:
        rows, state = (build.rows, build.state) if build is not None else (0, None)
        left_out = build.left_out if build is not None and captured is None else ()
        repaired = build.repaired if build is not None and captured is None else ()
        rng, times = self._rng.changed() if task.snapshot else None, self._take_times()
        remote = self._trace.remote(take=True)
        try:
            state = pack_state(state)
            self._connection.send(
                BatchBuilt(task.seq, rows, state, rng, captured, left_out, times, repaired, remote, payload)
            )
        except Exception as error:  # noqa: BLE001  # the dataset's state cannot be pickled
            reason = f"the dataset's state cannot be sent to the parent: {error}"
            captured = CapturedError.capture(SampleError(reason, batch=task.seq))
            self._connection.send(BatchBuilt(task.seq, rows, None, None, captured, (), times, remote=remote))

    def _take_times(self) -> tuple[tuple[int, int], ...]:
        total = self._trace.total()
        self._trace.reset()
        return tuple(total[stage] for stage in STAGES)


def _unpicklable_sample(batch: Batch, task: Task) -> dict[str, object]:
    """Which sample cannot be pickled if the batch is a list of samples, else the indices of all of them."""
    indices = list(task.indices)
    if isinstance(batch, list) and len(batch) == len(indices):
        for index, sample in zip(indices, batch, strict=True):
            try:
                pickle.dumps(sample)
            except BaseException:  # noqa: BLE001  # the caller has the reason
                return {"index": getattr(index, "item", lambda index=index: index)(), "type": type(sample).__qualname__}
    return {"indices": ", ".join(map(str, indices[:16])) + (", ..." if len(indices) > 16 else "")}
