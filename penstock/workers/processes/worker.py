"""A worker process: from its first instruction to its last.

::

    tied to the parent -> seeded -> worker_init_fn -> dataset opened --"opened"--> task --"done"--> ... -> end of socket

It does one thing at a time, in its only thread. It ends when the socket ends, and is killed by the kernel when the
parent dies, whatever it is doing.
"""

from __future__ import annotations

import fcntl
import importlib
import multiprocessing.reduction
import os
import pickle
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock import collate
from penstock.errors import SampleError
from penstock.sample import SampleKeys
from penstock.trace import STAGES, Trace
from penstock.workers import info
from penstock.workers.base import Build, Job, Task
from penstock.workers.processes.board import Board, StopWork
from penstock.workers.processes.channel import Channel
from penstock.workers.processes.failures import Failure
from penstock.workers.processes.memory import WorkerMemory
from penstock.workers.processes.packing import pack, packed_state

__all__ = ["Ends", "Place", "serve"]

_SET_SIGNAL: Final = 10  # F_SETSIG of Linux's fcntl.h, which Python's fcntl does not name
_CHUNK: Final = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Which worker this is."""

    worker: int
    num_workers: int
    base_seed: int


@dataclass(slots=True)
class Ends:
    """The worker's descriptors: its socket, the pipe that ends with the parent, the board."""

    socket: int
    lifeline: int
    board: int

    def __getstate__(self) -> Any:
        duplicate = multiprocessing.reduction.DupFd
        return tuple(duplicate(fd) for fd in (self.socket, self.lifeline, self.board))

    def __setstate__(self, state: Any) -> None:
        self.socket, self.lifeline, self.board = (fd.detach() for fd in state)


def serve(ends: Ends, place: Place, job: Job, opening: Any) -> None:
    """A worker's life; the target of its process."""
    _die_with(ends.lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent raises KeyboardInterrupt, and ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not what the parent does on being preempted
    board = Board(ends.board)
    board.answer()
    worker = _Worker(Channel(socket.socket(fileno=ends.socket), blocking=True), board, place, job)
    try:
        worker.open(opening, first=True)
        while worker.work():
            pass
    except StopWork:
        pass


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when the parent's end of the pipe closes: when the parent is gone."""
    if not hasattr(fcntl, "F_SETOWN") or not os.path.exists("/proc/self/fd"):  # noqa: PTH110  # a probe for Linux
        threading.Thread(target=_watch_parent, args=(lifeline,), daemon=True).start()
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        gone = os.read(lifeline, 1) == b""
    except BlockingIOError:
        gone = False
    if gone:  # before the signal was asked for
        os._exit(1)


def _watch_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


class _Worker:
    """Job, memory and socket of this process."""

    def __init__(self, channel: Channel, board: Board, place: Place, job: Job) -> None:
        self._channel, self._board, self._place, self._job = channel, board, place, job
        self._memory, self._trace = WorkerMemory(), Trace()
        self._failure: Failure | None = None
        self._rng = info.RngWatch()
        job.move_in(self._memory, self._trace, board.watch)
        collate.allocate_by(self._memory.allocate)
        seed = place.base_seed + place.worker
        info.become(
            info.WorkerInfo(place.worker, place.num_workers, seed, getattr(job, "dataset", None)), place.base_seed
        )
        info.when_torch(_teach_torch)

    def open(self, opening: Any, *, first: bool) -> None:
        """Begin an epoch, and say so."""
        state, self._failure = None, None
        try:
            if first:
                self._job.start_worker(self._place.worker)
            state = packed_state(self._job.open(opening))
            if getattr(opening, "rng", None) is not None:
                info.restore_rng(opening.rng)
        except StopWork:
            raise
        except BaseException as error:  # noqa: BLE001  # told to the parent, who raises it
            self._failure = Failure.of(error)
        self._rng = info.RngWatch()
        self._channel.send(("opened", state, self._failure))

    def work(self) -> bool:
        """One message; False at the end."""
        message = self._channel.receive()
        if message is None:
            return False
        head, _, _ = message
        if head[0] == "open":
            self.open(head[1], first=False)
        else:
            self._memory.give_back(*head[2])
            self._build(_task(*head[1]))
        return True

    def _build(self, task: Task) -> None:
        memory = self._memory
        self._board.begin(task.seq)
        memory.begin()
        build, failure, body = None, self._failure, b""
        places: Any = []
        if failure is None:
            try:
                build = self._job.begin(task)
                self._run(build)
                self._board.first_row = 0
                self._board.watch(-1, build.rows)  # a death from here on is no sample's
                batch = build.finish()
                start = time.perf_counter_ns()
                body, places = _packed(batch, memory, task)
                self._trace.add("transport", time.perf_counter_ns() - start, build.rows)
                del batch
            except StopWork:
                raise
            except BaseException as error:  # noqa: BLE001  # told to the parent, who raises it
                failure, body, places = Failure.of(error), b"", []
                memory.begin()
        self._send(task, build, failure, body, places)
        self._board.end()

    def _run(self, build: Build) -> None:
        chunk = build.rows if getattr(build, "whole", False) else _CHUNK
        for start in range(0, build.rows, max(chunk, 1)):
            stop = min(start + chunk, build.rows)
            self._board.first_row = start
            self._board.watch(0, stop - start)
            build.run(start, stop)

    def _send(self, task: Task, build: Build | None, failure: Failure | None, body: bytes, places: Any) -> None:
        memory = self._memory
        new, fds = memory.finish(places)
        rows, state = (build.rows, build.state) if build is not None else (0, None)
        left_out = getattr(build, "left_out", ()) if failure is None else ()
        head: tuple[Any, ...] = (
            "done",
            task.seq,
            rows,
            None,
            self._changed_rng(task),
            failure,
            left_out,
            places,
            new,
            self._drop(),
            self._times(),
        )
        try:
            self._channel.send((*head[:3], packed_state(state), *head[4:]), body, fds)
        except Exception as error:  # noqa: BLE001  # the dataset's state cannot be pickled
            reason = Failure.of(
                SampleError(f"the dataset's state cannot be sent to the parent: {error}", batch=task.seq)
            )
            memory.begin()
            self._channel.send((*head[:3], None, None, reason, (), [], [], head[9], ()))
        else:
            memory.sent()

    def _drop(self) -> tuple[list[int], str]:
        memory = self._memory
        dropped, memory.dropped = memory.dropped, []
        refused = "" if memory.refused is None else str(memory.refused)
        return dropped, refused

    def _changed_rng(self, task: Task) -> bytes | None:
        """The generators' state, if it is asked for and not what it was."""
        if not task.snapshot:
            return None
        return self._rng.changed()

    def _times(self) -> tuple[tuple[int, int], ...]:
        total = self._trace.total()
        self._trace.reset()
        return tuple(total[stage] for stage in STAGES)


def _packed(batch: Any, memory: WorkerMemory, task: Task) -> tuple[bytes, Any]:
    try:
        return pack(batch, memory)
    except StopWork:
        raise
    except BaseException as error:
        reason = (
            f"a batch of type {type(batch).__qualname__} cannot be sent to the parent: {type(error).__name__}: {error}"
        )
        raise SampleError(reason, batch=task.seq, **_culprit(batch, task)) from error


def _culprit(batch: Any, task: Task) -> dict[str, Any]:
    """Which sample cannot be sent, where the batch is still a list of samples; else all of them."""
    indices = list(task.indices)
    if isinstance(batch, list) and len(batch) == len(indices):
        for index, sample in zip(indices, batch, strict=True):
            try:
                pickle.dumps(sample)
            except BaseException:  # noqa: BLE001  # the reason is told already
                return {"index": getattr(index, "item", lambda index=index: index)(), "type": type(sample).__qualname__}
    return {"indices": ", ".join(map(str, indices[:16])) + (", ..." if len(indices) > 16 else "")}


def _task(seq: int, indices: Any, seed: int, epoch: int, drawn: Any, snapshot: bool, fatal: Any, size: Any) -> Task:
    keys = SampleKeys(seed, epoch, indices if drawn is None else drawn)
    return Task(seq, indices, keys, snapshot=snapshot, fatal=fatal, size=size)


def _teach_torch(torch: Any) -> None:  # noqa: ARG001  # what waits for torch is given it
    """Tensors are collated and sent through slots; asked for by name, since this layer knows no torch."""
    importlib.import_module("penstock.torch.transport").install()
