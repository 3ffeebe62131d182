"""One actor of Ray as a backend starts, watches and ends it.

::

    parent                                               actor
    RunningActor ── start, handle: encoded message ────> WorkerActor
       replies <─── references, in order ──────────────  another node: buffers in Ray's object store
       unpack: views of the object store of this node    this node: slots, as those of a worker process

A descriptor of an actor on this node is opened by /proc/<pid>/fd. An object of the store is freed with the last array
of its batch. The parent is its only reader: Ray maps an object read-only for Python, since several readers may share
it, but nobody else sees what is written to this one. So its arrays are writable views where the system has mapped the
store writable, and copies elsewhere.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Batch
from penstock.system import open_descriptor_of
from penstock.workers.base import Job, Task, WorkerStart
from penstock.workers.processes.batch_encoding import unpack_payload
from penstock.workers.processes.memory import ParentSlots
from penstock.workers.processes.messages import (
    BatchBuilt,
    BufferSpan,
    FromWorker,
    SlotPayload,
    SlotReport,
    ToWorker,
    decode,
    encode,
)
from penstock.workers.processes.status import StatusReading, WorkerStatus
from penstock.workers.processes.transport import Connection
from penstock.workers.processes.worker import WorkerIdentity
from penstock.workers.ray.actor import ActorPlace, Reply, SlotNews

__all__ = ["RunningActor"]

_END_S: Final = 2.0
"""Longest wait for an actor that was killed."""
_SMALL: Final = 100_000
"""Bytes of a buffer that is copied: Ray sends so small a reply without its object store."""


class ActorMaker(Protocol):
    """What an actor's parent side needs of the backend's transport.

    Attributes
    ----------
    ray : module
        Ray, initialized.
    node : str
        Ray's name of this node.
    job_ref : object
        Reference to the pickled job.
    nbytes : int
        Bytes of the largest batch so far; each actor raises it.
    """

    ray: Any
    node: str
    job_ref: object
    nbytes: int

    def is_connected(self) -> bool:
        """Return whether Ray is still the one that the actors are of."""
        ...

    def make_actor(self) -> Any:
        """Return a new actor of :class:`~penstock.workers.ray.actor.WorkerActor`."""
        ...

    def read_dead(self, node: str, path: str) -> StatusReading | None:
        """Return the last status of an actor that is dead; None if that is not there."""
        ...


class RunningActor:
    """One actor: a :class:`~penstock.workers.processes.transport.RunningWorker`, its connection, and its process.

    ``number``: the worker's. ``transport``: has Ray, and the job.
    """

    def __init__(self, number: int, transport: ActorMaker) -> None:
        self._number, self._transport, self._ray = number, transport, transport.ray
        self.place = self.exit_reason = self.memory_error = self._node = ""
        self.was_killed = self.ended = self._prefetches = False
        self.pid: int | None = None
        self.replies: deque[Any] = deque()
        """References to what is not received yet, oldest first."""
        self._withdrawn: set[int] = set()
        self._slots = ParentSlots()
        self._can_map = False
        self._memory: WorkerStatus | None = None
        """The actor's status, where this process can map it."""
        self._opened: list[int] = []
        """Descriptors that were opened since the last message."""
        self.received = 0
        self.last: Any = None
        """A reference that is ready when the actor is dead."""
        self._actor: Any = None
        self._error: BaseException | None = None
        self._reading = StatusReading()
        self.since = time.monotonic()
        self.is_late = False
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()  # noqa: S108  # the name is random
        self._status_path = f"{folder}/penstock-status-{uuid.uuid4().hex}"

    # what a worker is

    @property
    def process(self) -> BaseProcess:
        """The object itself: it has ``pid``, ``exitcode``, ``is_alive()``, ``join()``, ``kill()``, ``terminate()``."""
        return cast("BaseProcess", self)

    @property
    def connection(self) -> Connection:
        """The connection, which is this object."""
        return self

    @property
    def status(self) -> StatusReading:
        """What the actor said last of itself."""
        return self._reading

    @property
    def exitcode(self) -> int | None:
        """The exit code: None while the actor is alive, else -1, as Ray does not say how its process exited."""
        return -1 if self.has_exited() else None

    def is_alive(self) -> bool:
        """Return whether the actor is alive, or waits for resources."""
        return not self.has_exited()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the actor is dead."""
        if self._is_usable():
            self._ray.wait([self.last], timeout=timeout)

    # its life

    def start(self, identity: WorkerIdentity, job: Job, start: WorkerStart) -> None:  # noqa: ARG002  # the transport has it
        """Create the actor, and call its ``start``; does not wait."""
        self._actor = self._transport.make_actor()
        self.last = self._actor.hold.options(concurrency_group="end").remote()
        sent = self._transport.job_ref
        self.replies.append(self._actor.start.remote(sent, identity, start, sys.path, self._status_path))

    def has_exited(self) -> bool:
        """Return whether the actor has exited or is lost."""
        return not self._is_usable() or bool(self._ray.wait([self.last], timeout=0)[0])

    def _is_usable(self) -> bool:
        """Return whether Ray may be asked about it."""
        return not self.ended and self._transport.is_connected()

    def request_stop(self) -> None:
        """Have Ray end the actor; does not wait."""
        self.kill()

    def kill(self) -> None:
        """Have Ray kill the actor's process, or give up its start; does not wait."""
        if self._actor is not None and self._transport.is_connected():
            with suppress(Exception):  # it is dead
                self._ray.kill(self._actor)

    terminate = kill

    def end(self, reason: str = "") -> None:
        """Kill the actor, wait for its end, and read its last status."""
        self.kill()
        if self._error is None and self._transport.is_connected():
            try:
                self._ray.get(self.last, timeout=_END_S)
            except self._ray.exceptions.RayError as error:
                self._error = error
        self.exit_reason = reason or _describe_death(self._error)
        if self._memory is not None:
            self._reading = self._memory.read()
        else:
            self._reading = self._transport.read_dead(self._node, self._status_path) or self._reading
        self.was_killed = not self._reading.stacks()  # a crash leaves its stack
        self.close()

    def close(self) -> None:
        """Kill the actor, and close its memory and the file of its status."""
        self.ended = True
        self.kill()
        self.replies.clear()
        if self._memory is not None:
            self._memory.close()
        with suppress(OSError):
            os.unlink(self._status_path)  # noqa: PTH108  # a str

    def close_in_child(self) -> None:
        """Do nothing: the actor and Ray's connections are the parent's."""

    # the connection

    def send(self, message: ToWorker) -> None:
        """Send a message by a method call of the actor, with news of slots."""
        returned = self._slots.take_returned()
        is_plain = not isinstance(message, Task) or isinstance(message.indices, np.ndarray)
        dumps = pickle.dumps if is_plain else self._ray.cloudpickle.dumps  # indices may be of the main script's classes
        try:
            sent = dumps((encode(message), SlotNews(self._can_map, returned, self._opened)))
            self.replies.append(self._actor.handle.remote(sent))
        except BaseException:
            self._slots.put_back(returned)
            raise
        self._opened = []
        if self._prefetches and isinstance(message, Task):
            self._actor.look_ahead.options(concurrency_group="control").remote(sent)

    def withdraw(self, task: Task) -> None:
        """Drop the reply of a task, which another worker builds."""
        self._withdrawn.add(task.seq)

    def flush(self) -> None:
        """Do nothing: Ray sends."""

    def receive(self) -> FromWorker | None:
        """Return the reply of the oldest call; None if it is not there yet, or the actor is lost."""
        if not self.replies or not self._is_usable() or not self._ray.wait([self.replies[0]], timeout=0)[0]:
            return None
        try:
            reply = self._ray.get(self.replies[0])
        except self._ray.exceptions.RayError as error:  # the actor, its node or the object is lost
            self.ended, self._error = True, error
            return None
        self.replies.popleft()
        if isinstance(reply, bytes):
            reply = cast("Reply", pickle.loads(reply))  # noqa: S301  # from a worker of this program
        elif isinstance(reply, tuple):
            place, reply = reply
            self._note_place(place)
        message = cast("FromWorker", decode(reply.values))
        if not isinstance(message, BatchBuilt):
            return message
        self.received += 1
        try:
            message.payload = self._read_payload(reply)
        except OSError as error:  # the actor has just died
            self.ended, self._error = True, error
            return None
        if message.seq in self._withdrawn:
            self._withdrawn.remove(message.seq)
            self.unpack(message.payload)
            return self.receive()
        return message

    def _note_place(self, place: ActorPlace) -> None:
        self.pid, self._node, self._prefetches = place.pid, place.node, place.prefetches
        if place.node != self._transport.node:
            self.place = f"node {place.address} of Ray"
            return
        with suppress(OSError):  # another user's, or another container's
            fd = self._open(place.fd)
            found = os.fstat(fd)
            self._can_map = (found.st_dev, found.st_ino) == place.inode
            if self._can_map:
                self._memory = WorkerStatus(fd)
                os.unlink(self._status_path)  # noqa: PTH108  # a str; nothing is left then if both processes are killed
            else:
                os.close(fd)

    def _open(self, fd: int) -> int:
        """Open a descriptor of the actor's process."""
        return open_descriptor_of(self.pid or 0, fd)  # no process has the number 0

    def _read_payload(self, reply: Reply) -> SlotPayload:
        nbytes = len(reply.pickled)
        if reply.report is None:
            payload: SlotPayload = ObjectPayload(reply.pickled, buffers=reply.buffers)
            nbytes += sum(buffer.nbytes for buffer in reply.buffers)
        else:
            report = cast("SlotReport", decode(reply.report))
            fds: list[int] = []
            fds += map(self._open, reply.fds)
            self._opened += reply.fds
            self._slots.drop(report.dropped)
            self.memory_error = report.refused
            spans = [BufferSpan(*span) for span in report.spans]
            payload = SlotPayload(reply.pickled, spans, report.new, fds)
            nbytes += sum(span.nbytes for span in spans)
        self._transport.nbytes = max(self._transport.nbytes, nbytes, 1)
        return payload

    def unpack(self, payload: SlotPayload) -> Batch:
        """Unpack the batch of a payload; the arrays are writable."""
        if not isinstance(payload, ObjectPayload):
            return unpack_payload(payload, self._slots)
        return pickle.loads(payload.pickled, buffers=map(as_writable, payload.buffers))  # noqa: S301  # from a worker of this program

    # watching

    def count_finished(self) -> int:
        """Count the batches that were received, and those that are ready."""
        return self.received + self._count_ready()

    def _count_ready(self) -> int:
        replies = list(self.replies)
        if not replies or not self._is_usable():
            return 0
        return len(self._ray.wait(replies, num_returns=len(replies), timeout=0, fetch_local=False)[0])

    def ask(self, *, with_stacks: bool) -> Any:
        """Ask the actor what it is doing; a reference to its answer."""
        return self._actor.read.options(concurrency_group="control").remote(with_stacks=with_stacks)

    def note_answer(self, reference: Any) -> bool:
        """Keep what the actor has answered; whether it has."""
        try:
            self.pid, self._reading = self._ray.get(reference, timeout=0)
        except self._ray.exceptions.RayError:
            return False
        return True

    def note_wait(self) -> None:
        """Keep how long it has been starting."""
        self._reading = StatusReading(busy_s=time.monotonic() - self.since)


def _describe_death(error: BaseException | None) -> str:
    """Return how an actor died, as a predicate."""
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("The actor ") and "unexpectedly" not in line), "")
    return f"died: {told or (lines[-1] if lines else 'Ray does not say how')}"


@dataclass(slots=True)
class ObjectPayload(SlotPayload):
    """A batch in Ray's object store: its buffers, read-only."""

    buffers: Sequence[NDArray[np.uint8]] = ()


def as_writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A writable view of memory of the object store that nobody else reads; a copy if it is small, or not writable."""
    address = buffer.__array_interface__["data"][0]
    if buffer.nbytes < _SMALL or not _is_mapped_writable(address, buffer.nbytes):
        return buffer.copy()
    return np.asarray(_WritableView(buffer, address))


class _WritableView:
    """The memory of an array, which it keeps alive, as a writable array."""

    def __init__(self, array: NDArray[np.uint8], address: int) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _is_mapped_writable(address: int, nbytes: int) -> bool:
    """Return whether this process has mapped these bytes of shared memory writable, as Linux says."""
    if any(start <= address and address + nbytes <= stop for start, stop in _writable):
        return True
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in maps.splitlines():
        addresses, permissions, *_ = line.split(maxsplit=2)
        start, stop = (int(part, 16) for part in addresses.split("-"))
        if start <= address and address + nbytes <= stop and permissions.startswith("rw") and permissions[3] == "s":
            _writable.append((start, stop))
            return True
    return False


_writable: list[tuple[int, int]] = []
"""Mappings of object stores that were found writable; they last as long as the process."""
