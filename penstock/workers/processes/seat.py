"""A worker's seat in a pool: its process, its descriptors, what it was given and what it has said.

Made once for each worker; the process that sits there may die and be replaced. What to do then is the pool's to say.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from penstock.errors import SampleError
from penstock.slots import PageLock, Quarantine
from penstock.workers.base import Done, Job, Task, between, name_samples
from penstock.workers.processes.board import Board
from penstock.workers.processes.channel import Channel
from penstock.workers.processes.failures import Failure
from penstock.workers.processes.memory import ParentSlots
from penstock.workers.processes.packing import unpacked_state
from penstock.workers.processes.start import Launcher
from penstock.workers.processes.worker import Ends, Place, serve

__all__ = ["Seat", "Start"]


@dataclass(slots=True)
class Start:
    """What a worker said when it had begun an epoch."""

    state: Any
    failure: Failure | None

    @classmethod
    def told(cls, state: bytes | None, failure: Failure | None, worker: int) -> Start:
        """From the message; a state that cannot be loaded is a failure."""
        try:
            return cls(unpacked_state(state), failure)
        except Exception as error:  # noqa: BLE001  # raised by the consumer in its turn
            reason = f"the dataset's state cannot be unpacked: {type(error).__name__}: {error}"
            return cls(None, Failure.of(SampleError(reason, worker=worker)))


class Seat:
    """One worker as the parent sees it; its process may be replaced.

    Parameters
    ----------
    number : int
        The worker's.
    page_lock, quarantine
        As :class:`~penstock.workers.processes.memory.ParentSlots` takes them.
    """

    def __init__(self, number: int, page_lock: PageLock | None, quarantine: Quarantine | None) -> None:
        self.number = number
        self.process: Any = None
        self.channel: Channel
        self.board: Board
        self.slots: ParentSlots
        self.lifeline = -1
        self.pending: deque[Task] = deque()
        self.state_at_start: Start | None = None
        self.finished: Done | None = None
        self.last: Done | None = None
        self.samples = 0
        self.rng: bytes | None = None
        self.reported = 0
        self.dead = False
        self.fate = ""
        self.in_hand = False  # while its state is being changed: an interrupt then leaves it half changed
        self._page_lock, self._quarantine = page_lock, quarantine

    def launch(self, launcher: Launcher, place: Place, job: Job, opening: Any) -> None:
        """Start the process, with descriptors of its own; if that fails, none are left."""
        with ExitStack() as given_away, ExitStack() as undo:
            ours, theirs = socket.socketpair()
            given_away.callback(theirs.close)
            self.channel = Channel(ours, blocking=False)
            undo.callback(self.channel.close)
            life_read, self.lifeline = os.pipe()
            given_away.callback(os.close, life_read)
            undo.callback(self.let_go)
            self.board = Board()
            undo.callback(self.board.close)
            ends = Ends(theirs.fileno(), life_read, self.board.fd)
            self.process = launcher.start(_serve, (ends, place, job, opening), f"penstock-worker-{self.number}")
            undo.pop_all()
        self.slots, self.state_at_start, self.dead = ParentSlots(self._page_lock, self._quarantine), None, False

    def send(self, task: Task) -> None:
        """Give it a task."""
        keys = task.keys
        drawn = None if keys.indices is task.indices else keys.indices
        numbers = (task.seq, task.indices, keys.seed, keys.epoch, drawn, task.snapshot, task.fatal, task.size)
        came_back = self.slots.take_freed()
        try:
            self.channel.send(("task", numbers, came_back))
        except BaseException:
            self.slots.put_back(*came_back)
            raise

    def doing(self) -> str:
        """What it is at, in words."""
        batch, row = self.board.batch, self.board.row
        if batch < 0 and self.state_at_start is None:
            return "its beginning (worker_init_fn, or opening the dataset)"
        task = next((task for task in self.pending if task.seq == batch), self.pending[0])
        return name_samples(task, row, self.board.count) if row >= 0 else f"batch {task.seq}"

    def asked_for(self, task: Task) -> dict[str, Any]:
        """The index, or indices, of ``task`` that the call in the worker asks for; none if that is unknown."""
        row = self.board.row
        return between(task, row, row + self.board.count) if row >= 0 and self.state_at_start is not None else {}

    def release(self) -> None:
        """Close the parent's descriptors."""
        self.board.close()
        self.let_go()

    def let_go(self) -> None:
        """Close the parent's ends, by which a worker sees that nobody is there; the board is the worker's too."""
        self.channel.close()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


def _serve(ends: Ends, place: Place, job: Job, opening: Any) -> None:
    serve(ends, place, job, opening)
