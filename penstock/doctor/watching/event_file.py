"""Events of one process, in a file that is mapped to memory: a process that is killed loses none.

::

    folder/control                     what the watching process says: stop; the number of the epoch's first batch
    folder/I-W-PID.events              of iterator I, worker W:   header | event | event | ... (EVENT, fixed size)

One process writes a file. The watching process may read it at any time: an event is counted after it is written.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from penstock.doctor.watching.recording import EVENT, STAGES, Events

__all__ = [
    "Control",
    "EventFile",
    "EventList",
    "EventRow",
    "EventSink",
    "FileState",
    "is_any_busy",
    "make_row",
    "read_events",
    "read_state",
]

EventRow = tuple[int, int, int, int, int, int, int, int, int]
"""One EVENT as numbers, in the order of its fields: to make an array of one costs ten times as much."""

_MAGIC: Final = 0x50454E53544F434B
_HEADER: Final = struct.Struct("=qqqqqq")
"""Magic number; events written; events dropped; whether the process builds a batch; its id; number of the worker."""
_COUNT, _DROPPED, _BUSY = 1, 2, 3
"""Positions in the header."""
_CONTROL_BYTES: Final = 16
_STOPPED, _FIRST_BATCH = 0, 1
"""Positions in the control file."""
_ROW: Final = struct.Struct("=Bhiqqqqqi")
"""An EVENT."""
_NUMBERS: Final = {stage: number for number, stage in enumerate(STAGES)}
_CAPACITY: Final = 400_000
"""Most events of a file."""
_RESERVED_NBYTES: Final = 1 << 20
"""The room on the disk that a file gets at a time: on a full one, writing to a hole of a map ends the process."""


def make_row(
    stage: int | str,
    worker: int,
    batch: int,
    start: int,
    end: int,
    *,
    cpu: int = -1,
    nbytes: int = -1,
    samples: int = 0,
    index: int = -1,
) -> EventRow:
    """Make an event; ``stage`` is of :data:`~penstock.doctor.watching.recording.STAGES`, ``SAMPLE`` or ``BATCH``."""
    number = _NUMBERS[stage] if isinstance(stage, str) else stage
    return number, worker, batch, index, start, end, cpu, nbytes, samples


class EventSink(Protocol):
    """Where a process puts its events."""

    busy: bool

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread."""
        ...


class EventList:
    """Events of the watching process itself."""

    def __init__(self) -> None:
        self._rows: list[EventRow] = []
        self.busy = False

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread."""
        self._rows.extend(rows)

    def read(self) -> Events:
        """Return all events so far; a copy."""
        return np.array(list(self._rows), EVENT)


def _map_file(path: Path, nbytes: int, flags: int = 0) -> mmap.mmap:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        os.ftruncate(descriptor, nbytes)
        _reserve(descriptor, 0, nbytes)
        return mmap.mmap(descriptor, nbytes)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, begin: int, nbytes: int) -> int:
    """Have the disk give a map room for its next bytes, or a write to it ends the process with SIGBUS; where they end.

    Raises OSError if the disk is full.
    """
    end = min(begin + _RESERVED_NBYTES, nbytes)
    os.posix_fallocate(descriptor, begin, end - begin)
    return end


class EventFile:
    """A new file for the events of this process.

    ``path``: it must not exist. ``worker``: number of the worker. ``capacity``: most events; further ones are counted
    and dropped.
    """

    def __init__(self, path: Path, worker: int, capacity: int = _CAPACITY) -> None:
        self._path = path
        self._mapped = _map_file(path, _HEADER.size + capacity * _ROW.size, os.O_EXCL)
        self._reserved = min(_RESERVED_NBYTES, len(self._mapped))
        _HEADER.pack_into(self._mapped, 0, _MAGIC, 0, 0, 0, os.getpid(), worker)
        self._numbers = memoryview(self._mapped)[: _HEADER.size].cast("q")
        self._count, self._capacity, self._busy, self._lock = 0, capacity, False, threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether the process is building a batch."""
        return self._busy

    @busy.setter
    def busy(self, value: bool) -> None:
        self._busy = self._numbers[_BUSY] = value

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread. Those that the file cannot hold are counted as dropped."""
        with self._lock:
            at = _HEADER.size + self._count * _ROW.size
            if self._count + len(rows) > self._capacity or not self._has_room(at + len(rows) * _ROW.size):
                self._numbers[_DROPPED] += len(rows)
                return
            for row in rows:
                _ROW.pack_into(self._mapped, at, *row)
                at += _ROW.size
            self._count += len(rows)
            self._numbers[_COUNT] = self._count

    def _has_room(self, end: int) -> bool:
        """Return whether the file may be written up to there; False where the disk is full, or the file was removed."""
        try:
            while self._reserved < end:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    self._reserved = _reserve(descriptor, self._reserved, len(self._mapped))
                finally:
                    os.close(descriptor)
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class FileState:
    """The header of a file of events."""

    count: int
    dropped: int
    is_busy: bool
    pid: int
    worker: int


def read_state(path: Path) -> FileState | None:
    """Return the header of a file; None if it is none, or not complete yet."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError:
        return None
    if len(header) < _HEADER.size:
        return None
    magic, count, dropped, busy, pid, worker = _HEADER.unpack(header)
    return FileState(count, dropped, bool(busy), pid, worker) if magic == _MAGIC and count >= 0 else None


def read_events(path: Path) -> tuple[Events, int]:
    """Return the events of a file, and how many were dropped; none, if it is no such file."""
    state = read_state(path)
    if state is None:
        return np.empty(0, EVENT), 0
    count = min(state.count, max(path.stat().st_size - _HEADER.size, 0) // EVENT.itemsize)
    return np.fromfile(path, EVENT, count, offset=_HEADER.size), state.dropped


def is_any_busy(paths: Iterable[Path]) -> bool:
    """Return whether a process is building a batch, by its file."""
    states = [read_state(path) for path in paths]
    return any(state is not None and state.is_busy for state in states)


class Control:
    """What the watching process says to the workers of one loader: a small file that all of them map.

    ``path``: the file, which is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._values = memoryview(_map_file(path, _CONTROL_BYTES)).cast("q")  # read for each batch

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is to be recorded."""
        return bool(self._values[_STOPPED])

    def stop(self) -> None:
        """Have all workers stop recording."""
        self._values[_STOPPED] = 1

    @property
    def first_batch(self) -> int:
        """Batches of the loader before this epoch."""
        return self._values[_FIRST_BATCH]

    @first_batch.setter
    def first_batch(self, value: int) -> None:
        self._values[_FIRST_BATCH] = value
