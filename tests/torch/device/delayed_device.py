"""A fake device whose streams run late, in any order that the calls allow: what is not waited for is seen torn.

::

    host calls ──> queue of each stream ──> run() executes heads of queues, of random streams, at random moments
    host memory    is overwritten when its tensor dies
    device memory  is used again as CUDA's caching allocator does: at once on its own stream, after recorded streams

A copy is two operations, so that a reader may see one half. :attr:`DelayedDevice.ignored` names calls that do nothing,
which is what a program without these calls would do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from penstock.torch.device.copying import CopyStreams

WIDTH: Final = 4
OVERWRITTEN: Final = -1


class LateEvent:
    """An event of a stream; done when the stream has come to it."""

    def __init__(self, device: DelayedDevice) -> None:
        self._device, self.done = device, False

    def query(self) -> bool:
        """Whether the device has reached the event."""
        self._device.run_a_little()
        return self.done

    def synchronize(self) -> None:
        """Run until the event is done."""
        self._device.run_until(lambda: self.done)


class LateStream:
    """A queue of operations. None in it is no operation; an event that is not done blocks what is behind."""

    def __init__(self, device: DelayedDevice) -> None:
        self._device = device
        self.queue: deque[Callable[[], None] | LateEvent] = deque()

    def enqueue(self, operation: Callable[[], None] | LateEvent) -> None:
        """Queue an operation."""
        self.queue.append(operation)
        self._device.run_a_little()

    def record_event(self) -> LateEvent:
        """An event behind all that is queued."""
        event = LateEvent(self._device)

        def finish() -> None:
            event.done = True

        self.queue.append(finish)
        return event

    def wait_event(self, event: LateEvent) -> None:
        """Block until an event is done."""
        if "wait_event" not in self._device.ignored:
            self.enqueue(event)

    def wait_stream(self, other: LateStream) -> None:
        """Block until the present work of another stream is done."""
        if "wait_stream" not in self._device.ignored:
            self.enqueue(other.record_event())

    def synchronize(self) -> None:
        """Run until the queue is empty."""
        self._device.run_until(lambda: not self.queue)

    def is_blocked(self) -> bool:
        """Whether the head of the queue cannot run."""
        return not self.queue or (isinstance(self.queue[0], LateEvent) and not self.queue[0].done)


@dataclass
class Block:
    """One piece of device memory: where it was allocated, and who else uses it."""

    number: int
    stream: LateStream
    users: set[LateStream] = field(default_factory=set)


class HostTensor(torch.Tensor):
    """A tensor in page-locked memory, from which the device copies later."""

    owner: DelayedDevice

    def to(self, *_: Any, **__: Any) -> DeviceTensor:
        """Queue the copy. It keeps nothing alive: only the address is known to a device."""
        return self.owner.copy_from(self.data_ptr())


class DeviceTensor(torch.Tensor):
    """A tensor in the fake device's memory."""

    block: Block

    def to(self, *_: Any, **__: Any) -> DeviceTensor:
        """It is there."""
        return self


class DelayedDevice(CopyStreams):
    """Streams and memory of the fake device, with the methods of ``CopyStreams``.

    Parameters
    ----------
    seed : int
        Of the moments at which the device runs.
    slow : {"main", "side", ""}
        The streams that run seldom.
    """

    device = torch.device("meta")

    def __init__(self, seed: int = 0, slow: str = "") -> None:
        self._idle = []
        self._random = random.Random(seed)
        self._slow = slow
        self.ignored: set[str] = set()
        self.main = self.active = LateStream(self)
        self.streams = [self.main]
        self.late_reads = 0
        """Copies that read host memory after it was released."""
        self.rows: list[Any] = []
        self._free: dict[LateStream, list[int]] = {}
        self._freed_later: list[tuple[list[LateEvent], Block]] = []

    # as CopyStreams

    def side(self) -> LateStream:
        """A new stream."""
        self.streams.append(LateStream(self))
        return self.streams[-1]

    def current(self) -> LateStream:
        """The active stream."""
        return self.active

    @contextlib.contextmanager
    def on(self, stream: LateStream) -> Iterator[None]:
        """Make a stream the active one."""
        before, self.active = self.active, stream
        try:
            yield
        finally:
            self.active = before

    def record(self, tensor: Any, stream: LateStream) -> None:
        """Keep the block until the stream has finished its present work."""
        if "record" not in self.ignored and stream is not tensor.block.stream:
            tensor.block.users.add(stream)

    def is_resident(self, tensor: Any) -> bool:
        """Whether a tensor is on this device."""
        return isinstance(tensor, DeviceTensor)

    # work

    def copy_from(self, address: int) -> DeviceTensor:
        """Queue a copy on the active stream, in two halves."""
        source = np.ctypeslib.as_array((ctypes.c_int32 * WIDTH).from_address(address))
        queued = source.tolist()
        tensor, target = self._allocate()

        def copy(half: slice) -> None:
            self.late_reads += source.tolist() != queued
            target[half] = source[half]

        for half in (slice(0, WIDTH // 2), slice(WIDTH // 2, WIDTH)):
            self.active.enqueue(functools.partial(copy, half))
        return tensor

    def add(self, tensor: DeviceTensor, value: Any) -> DeviceTensor:
        """Queue a kernel on the active stream that adds a number, or a tensor of one."""
        source = self.rows[tensor.block.number]
        added = self.rows[value.block.number] if isinstance(value, DeviceTensor) else value
        result, target = self._allocate()
        self.active.enqueue(lambda: np.add(source, added, out=target))
        return result

    def make(self, value: int) -> DeviceTensor:
        """Queue a kernel on the active stream that fills a new tensor."""
        tensor, target = self._allocate()
        self.active.enqueue(lambda: target.fill(value))
        return tensor

    def read(self, tensor: DeviceTensor, into: list[list[int]]) -> None:
        """Queue a kernel on the active stream that reads the tensor's memory."""
        row = self.rows[tensor.block.number]
        self.active.enqueue(lambda: into.append(row.tolist()))

    def _allocate(self) -> tuple[DeviceTensor, Any]:
        waiting = [(events, block) for events, block in self._freed_later if not all(e.done for e in events)]
        for _, block in (entry for entry in self._freed_later if entry not in waiting):
            self._free[block.stream].append(block.number)
        self._freed_later = waiting
        free = self._free.setdefault(self.active, [])
        if not free:
            self.rows.append(np.full(WIDTH, OVERWRITTEN, np.int32))
            free.append(len(self.rows) - 1)
        block = Block(free.pop(), self.active)
        tensor = torch.from_numpy(self.rows[block.number]).as_subclass(DeviceTensor)
        tensor.block = block
        weakref.finalize(tensor, self._release, block)
        return tensor, self.rows[block.number]

    def _release(self, block: Block) -> None:
        if block.users:
            self._freed_later.append(([user.record_event() for user in block.users], block))
        else:
            self._free[block.stream].append(block.number)

    # time

    def run_a_little(self) -> None:
        """Run some operations, or none."""
        if self._random.random() < 0.3:
            for _ in range(self._random.randrange(9)):
                self._run_one()
        while sum(len(stream.queue) for stream in self.streams) > 300:
            self._run_one()

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Run until a condition is true."""
        while not is_done():
            assert self._run_one(), "the device waits for what is not queued"

    def finish(self) -> None:
        """Run all that is queued."""
        self.run_until(lambda: not any(stream.queue for stream in self.streams))

    def _run_one(self) -> bool:
        ready = [stream for stream in self.streams if not stream.is_blocked()]
        if not ready:
            return False
        seldom = [stream for stream in ready if self._slow == ("main" if stream is self.main else "side")]
        quick = [stream for stream in ready if stream not in seldom]
        chosen = self._random.choice(quick if quick and self._random.random() < 0.9 else ready)
        operation = chosen.queue.popleft()
        if not isinstance(operation, LateEvent):
            operation()
        return True


class HostMemory:
    """Rows of page-locked memory. One is overwritten, and used again, when its tensor dies."""

    def __init__(self, device: DelayedDevice) -> None:
        self._device = device
        self.rows: list[Any] = []
        self._free: list[int] = []

    @property
    def in_use(self) -> int:
        """Number of rows whose tensor is alive."""
        return len(self.rows) - len(self._free)

    def make(self, value: int) -> HostTensor:
        """A tensor that holds one number."""
        if not self._free:
            self.rows.append(np.empty(WIDTH, np.int32))
            self._free.append(len(self.rows) - 1)
        number = self._free.pop()
        self.rows[number][:] = value
        tensor = torch.from_numpy(self.rows[number]).as_subclass(HostTensor)
        tensor.owner = self._device
        weakref.finalize(tensor, self._release, number)
        return tensor

    def _release(self, number: int) -> None:
        self.rows[number][:] = OVERWRITTEN
        self._free.append(number)
