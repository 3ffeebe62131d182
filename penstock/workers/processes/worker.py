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
from typing import Final, Protocol

from penstock import collate
from penstock.errors import SampleError
from penstock.ranks import hand_world
from penstock.sample import Batch
from penstock.trace import STAGES, Trace
from penstock.workers import info
from penstock.workers.base import BatchBuild, Job, Task, WorkerStart
from penstock.workers.processes.batch_encoding import pack_state
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.memory import WorkerMemory
from penstock.workers.processes.messages import BatchBuilt, EpochStarted, FromWorker, SlotPayload, StartEpoch
from penstock.workers.processes.sockets import SocketRemoteEnd, WorkerSocket
from penstock.workers.processes.status import StopWork, WorkerStatus

__all__ = ["JobRunner", "WorkerIdentity", "run_worker"]

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
    connection = remote.open()
    runner = JobRunner(connection, identity, job)
    messages: deque[StartEpoch | Task] = deque()
    try:
        runner.start_epoch(start, first=True)
        while messages or _receive(connection, job, messages, wait=True):
            while job.prefetches and _receive(connection, job, messages, wait=False):
                pass
            message = messages.popleft()
            if isinstance(message, StartEpoch):
                runner.start_epoch(message.start, first=False)
            else:
                runner.build(message)
    except StopWork:
        pass
    connection.close()


def _receive(connection: WorkerSocket, job: Job, messages: deque[StartEpoch | Task], *, wait: bool) -> bool:
    """Queue one message, and have the job look ahead to its task; whether there was one."""
    message = connection.receive(wait=wait)
    if message is not None:
        messages.append(message)
    if isinstance(message, Task) and job.prefetches:
        job.prefetch(message)
    return message is not None


class ReplyChannel(Protocol):
    """The worker's end of a connection, as far as replies go.

    Attributes
    ----------
    status : WorkerStatus
        Where the worker says what it is doing.
    memory : WorkerMemory
        Where batches are built.
    """

    status: WorkerStatus
    memory: WorkerMemory

    def dumps(self, value: object) -> bytes:
        """Pickle a state, or a part of an error; raises what pickling it raises."""
        ...

    def pack(self, batch: Batch) -> SlotPayload:
        """Return ``batch`` as the payload of a message; raises what pickling it raises."""
        ...

    def send(self, message: FromWorker) -> None:
        """Send a message with its payload; if it cannot be pickled, nothing is sent and the error is raised."""
        ...


class JobRunner:
    """Does the job of one worker in its process: starts epochs, builds batches, and sends what comes of it.

    ``connection``: gets the replies. ``identity``: which worker it is; the process is seeded for it. ``job``: the
    worker's own copy.
    """

    def __init__(self, connection: ReplyChannel, identity: WorkerIdentity, job: Job) -> None:
        self._connection, self._identity, self._job = connection, identity, job
        self._status, self._memory, self._trace = connection.status, connection.memory, Trace()
        self._error: CapturedError | None = None
        self._rng = info.RngMonitor()
        job.attach(self._memory, self._trace, self._status.watch)
        collate.set_allocator(self._memory.allocate)
        seed = identity.base_seed + identity.worker
        worker = info.WorkerInfo(identity.worker, identity.num_workers, seed, job.dataset)
        info.start_as_worker(worker, identity.base_seed)

    def start_epoch(self, start: WorkerStart, *, first: bool) -> None:
        """Start an epoch, and report it."""
        state, self._error = None, None
        hand_world(start.world)
        try:
            if first:
                self._job.start_worker(self._identity.worker)
            state = pack_state(self._job.start_epoch(start), self._connection.dumps)
            if start.rng is not None:
                info.restore_rng(start.rng)
        except StopWork:
            raise
        except BaseException as error:  # noqa: BLE001  # sent to the parent, which raises it
            self._error = self._capture(error)
        self._rng = info.RngMonitor()
        self._connection.send(EpochStarted(state, self._error))

    def build(self, task: Task) -> None:
        """Build the batch of a task, and send it."""
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
                captured, payload = self._capture(error), SlotPayload()
        self._send(task, build, captured, payload)
        self._status.end_batch()

    def _run(self, build: BatchBuild) -> None:
        chunk = build.rows if build.whole else min(_CHUNK, build.most_rows)
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
        rng, times = None, self._take_times()
        if task.snapshot and not self._job.seeds_globals:
            rng = self._rng.changed()
        remote, slow = self._trace.remote(take=True), self._job.slow.take() if self._job.slow is not None else ()
        try:
            state = pack_state(state, self._connection.dumps)
            self._connection.send(
                BatchBuilt(task.seq, rows, state, rng, captured, left_out, times, repaired, remote, slow, payload)
            )
        except Exception as error:  # noqa: BLE001  # the dataset's state cannot be pickled
            reason = f"the dataset's state cannot be sent to the parent: {error}"
            captured = self._capture(SampleError(reason, batch=task.seq))
            self._connection.send(BatchBuilt(task.seq, rows, None, None, captured, (), times, remote=remote))

    def _capture(self, error: BaseException) -> CapturedError:
        return CapturedError.capture(error, self._connection.dumps)

    def _take_times(self) -> tuple[tuple[int, int], ...]:
        total = self._trace.total()
        self._trace.reset()
        return tuple(total[stage] for stage in STAGES)


def _unpicklable_sample(batch: Batch, task: Task) -> dict[str, object]:
    """Return which sample cannot be pickled if the batch is a list of samples, else the indices of all of them."""
    indices = list(task.indices)
    if isinstance(batch, list) and len(batch) == len(indices):
        for index, sample in zip(indices, batch, strict=True):
            try:
                pickle.dumps(sample)
            except BaseException:  # noqa: BLE001  # the caller has the reason
                return {"index": getattr(index, "item", lambda index=index: index)(), "type": type(sample).__qualname__}
    return {"indices": ", ".join(map(str, indices[:16])) + (", ..." if len(indices) > 16 else "")}
