"""What runs in an actor of Ray: the job of one worker, as in a worker process.

::

    start()    unpickle the job, start the epoch ─┐  in one thread of the actor's own, one after the other
    handle()   StartEpoch, Task                  ─┘  ──> the reply: EpochStarted, BatchBuilt, with the batch's buffers
    read()     what that thread is doing             answered at any time, by another thread
    hold()     never ends: its error tells the parent that the actor is dead

The status is a file in memory, so that it can be read when the actor is dead. Nothing here imports Ray before an actor
runs. A batch for a parent on another node is copied to Ray's object store when the method returns. A parent on this
node, once it has seen that it can open descriptors of this process, maps the slots, as that of a worker process does.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from penstock.frameworks import REDUCERS
from penstock.registry import require
from penstock.sample import Batch
from penstock.trace import STAGES
from penstock.workers.base import Job, Task, WorkerStart
from penstock.workers.processes.batch_encoding import pack
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.memory import WorkerMemory
from penstock.workers.processes.messages import (
    BatchBuilt,
    EpochStarted,
    FromWorker,
    SlotPayload,
    SlotReturn,
    StartEpoch,
    decode,
    encode,
)
from penstock.workers.processes.status import StatusReading, WorkerStatus
from penstock.workers.processes.worker import JobRunner, WorkerIdentity

__all__ = ["ActorPlace", "Reply", "SlotNews", "WorkerActor", "read_status"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What an actor answers."""

    values: tuple[object, ...] = ()  # an encoded message
    pickled: bytes = b""  # of a batch: what is left of it in the pickle
    buffers: list[NDArray[np.uint8]] = field(default_factory=list)
    """The buffers that are not in the pickle, for the object store."""
    report: tuple[object, ...] | None = None
    """In place of the buffers: the encoded :class:`~penstock.workers.processes.messages.SlotReport`."""
    fds: list[int] = field(default_factory=list)
    """Descriptors of new slots in the actor's process, open until the parent says that it has opened them."""


@dataclass(frozen=True, slots=True)
class SlotNews:
    """What the parent says with a message of the slots that it maps."""

    can_map: bool  # whether it can open descriptors of the actor's process
    returned: SlotReturn  # slots that it no longer uses
    opened: Sequence[int]  # descriptors that it has opened


@dataclass(frozen=True, slots=True)
class ActorPlace:
    """Where an actor runs, whether its job looks ahead to tasks, and a descriptor to try, with its device and inode."""

    pid: int
    node: str
    address: str
    prefetches: bool
    fd: int
    inode: tuple[int, int]


class WorkerActor:
    """One worker of a loader; made an actor by :mod:`penstock.workers.ray.running_actor`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "penstock-worker")  # a decoder or a generator may belong to its thread
        self._channel: _Channel | None = None
        self._runner: JobRunner | None = None
        self._job: Job | None = None
        self._failure: CapturedError | None = None

    def start(
        self, pickled_job: bytes, identity: WorkerIdentity, start: WorkerStart, paths: Sequence[str], status: str
    ) -> tuple[ActorPlace, Reply]:
        """Start the first epoch.

        Parameters
        ----------
        pickled_job : bytes
            The job, by cloudpickle.
        identity, start
            As for :func:`penstock.workers.processes.worker.run_worker`.
        paths : sequence of str
            Where the parent finds modules; those that this process lacks are added to ``sys.path``.
        status : str
            Path of the file of the status.
        """
        context = require("ray").get_runtime_context()
        reply = self._thread.submit(self._start, pickled_job, identity, start, paths, status).result()
        prefetches = self._job is not None and self._job.prefetches
        address = require("ray").util.get_node_ip_address()
        assert self._channel is not None, "_start() has made it"
        fd = self._channel.status.fd
        found = os.fstat(fd)
        inode = found.st_dev, found.st_ino
        return ActorPlace(os.getpid(), context.get_node_id(), address, prefetches, fd, inode), reply

    def _start(
        self, pickled_job: bytes, identity: WorkerIdentity, start: WorkerStart, paths: Sequence[str], status: str
    ) -> Reply:
        channel = self._channel = _Channel(WorkerStatus.create(status))
        channel.status.enable_stack_dumps()
        sys.path += [path for path in paths if path not in sys.path]
        try:
            self._job = cast("Job", pickle.loads(pickled_job))  # noqa: S301  # from the program that the actor belongs to
            self._runner = JobRunner(channel, identity, self._job)
        except BaseException as error:  # noqa: BLE001  # sent to the parent, which raises it
            self._failure = CapturedError.capture(error, channel.dumps)
            channel.send(EpochStarted(None, self._failure))
        else:
            self._runner.start_epoch(start, first=True)
        return channel.take_reply()

    def handle(self, sent: bytes) -> Reply | bytes:
        """Do what a message says; it is pickled with :class:`SlotNews`. The reply is pickled, but for one with buffers.

        Ray itself sends bytes as they are, and pickles all else in Python.
        """
        reply = self._thread.submit(self._handle, sent).result()
        return reply if reply.buffers else pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)

    def _handle(self, sent: bytes) -> Reply:
        assert self._channel is not None, "start() comes first"
        values, news = pickle.loads(sent)  # noqa: S301  # as the job
        self._channel.accept(news)
        message = cast("Task | StartEpoch", decode(values))
        if self._runner is None:
            times = tuple((0, 0) for _ in STAGES)
            failed = isinstance(message, Task) and BatchBuilt(message.seq, 0, None, None, self._failure, (), times)
            self._channel.send(failed or EpochStarted(None, self._failure))
        elif isinstance(message, StartEpoch):
            self._runner.start_epoch(message.start, first=False)
        else:
            self._runner.build(message)
        return self._channel.take_reply()

    def look_ahead(self, sent: bytes) -> None:
        """Have the job look ahead to the samples of a task, sent as for :meth:`handle`."""
        if self._job is not None:
            values, _ = pickle.loads(sent)  # noqa: S301  # as the job
            self._job.prefetch(cast("Task", decode(values)))

    def read(self, *, with_stacks: bool) -> tuple[int, StatusReading]:
        """The process's number, and what the worker is doing; ``with_stacks``: with the stacks of its threads."""
        if self._channel is None:
            return os.getpid(), StatusReading()
        status = self._channel.status
        if with_stacks:
            status.dump_stacks()
        reading = status.read()
        if with_stacks:
            status.clear_stacks()  # what is found there when the actor is dead is of a crash
        return os.getpid(), reading

    def hold(self) -> None:
        """Wait for the end of the process."""
        threading.Event().wait()


def read_status(path: str) -> StatusReading:
    """Return the last status of a dead actor of this machine, whose file is deleted.

    Raises an OSError if there is none.
    """
    return WorkerStatus.read_file(path)


class _Channel:
    """The worker's end: keeps the reply until the method returns; a :class:`~..processes.worker.ReplyChannel`."""

    def __init__(self, status: WorkerStatus) -> None:
        self.status, self.memory = status, WorkerMemory()
        self._reply = Reply()
        self._can_map = False
        self._pickles: Any = require("ray").cloudpickle
        self._pickler = self._make_pickler_class()

    def dumps(self, value: object) -> bytes:
        """Pickle ``value`` by cloudpickle, which also pickles classes of the main script; raises what that raises."""
        pickled: bytes = self._pickles.dumps(value)
        return pickled

    def pack(self, batch: Batch) -> SlotPayload:
        """Pack a batch into the memory of the worker."""
        return SlotPayload(*pack(batch, self.memory, self._make_pickler))

    def _make_pickler(self, file: io.BytesIO, hand_out: Callable[[pickle.PickleBuffer], bool]) -> pickle.Pickler:
        return self._pickler(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=hand_out)

    def _make_pickler_class(self) -> Callable[..., pickle.Pickler]:
        reduce_other = self._pickles.Pickler.reducer_override

        class Pickler(self._pickles.Pickler):  # type: ignore[misc,name-defined]  # Ray is imported where an actor runs
            def reducer_override(self, value: object) -> Any:
                reduce = REDUCERS.get(type(value))
                reduced = NotImplemented if reduce is None else reduce(value)
                return reduce_other(self, value) if reduced is NotImplemented else reduced

        return Pickler

    def send(self, message: FromWorker) -> None:
        """Set the reply of the call: a message, and the batch's memory as descriptors or as buffers."""
        if not isinstance(message, BatchBuilt):
            self._reply = Reply(encode(message))
            return
        payload = message.payload
        if not self._can_map:  # Ray copies the buffers before the next batch begins in the same memory
            buffers = [self.memory.view(span) for span in payload.spans]
            self._reply = Reply(encode(message), payload.pickled, buffers)
            return
        report, fds = self.memory.finish(payload.spans)
        self._reply = Reply(encode(message), payload.pickled, [], encode(report), [os.dup(fd) for fd in fds])
        self.memory.record_sent()

    def accept(self, news: SlotNews) -> None:
        """Note what the parent says of the slots."""
        self._can_map = news.can_map
        self.memory.accept_returned(news.returned)
        for fd in news.opened:
            os.close(fd)

    def take_reply(self) -> Reply:
        """Return the reply, which is not kept."""
        reply, self._reply = self._reply, Reply()
        return reply
