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
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.doctor.watching.recording import EVENT, STAGES

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

Events = npt.NDArray[Any]
EventRow = tuple[int, int, int, int, int, int, int, int, int]
"""One EVENT as numbers, in the order of its fields: to make an array of one costs ten times as much."""

_MAGIC: Final = 0x50454E53544F434B
_HEADER: Final = np.dtype(
    [
        ("magic", np.int64),
        ("count", np.int64),
        ("dropped", np.int64),
        ("busy", np.int64),  # whether the process is building a batch
        ("pid", np.int64),
        ("worker", np.int64),
    ]
)
_CONTROL: Final = np.dtype([("stopped", np.int64), ("first_batch", np.int64)])
_COUNT, _DROPPED, _BUSY = 1, 2, 3
"""Positions in the header."""
_STOPPED, _FIRST_BATCH = 0, 1
"""Positions in the control file."""
_ROW: Final = struct.Struct("=Bhiqqqqqi")
"""An EVENT."""
_NUMBERS: Final = {stage: number for number, stage in enumerate(STAGES)}
_CAPACITY: Final = 400_000
"""Events for which a file has room; what is not written takes no space on the disk."""


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
    """One event; ``stage`` is one of :data:`~penstock.doctor.watching.recording.STAGES`, ``SAMPLE`` or ``BATCH``."""
    number = _NUMBERS[stage] if isinstance(stage, str) else stage
    return number, worker, batch, index, start, end, cpu, nbytes, samples


class EventSink(Protocol):
    """Where a process puts its events."""

    busy: bool

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events."""
        ...

    def write(self, events: Events) -> None:
        """Append an array of EVENT; it is copied."""
        ...


class EventList:
    """Events of the watching process itself."""

    def __init__(self) -> None:
        self._parts: list[Events] = []
        self._rows: list[EventRow] = []
        self.busy = False

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events."""
        self._rows.extend(rows)

    def write(self, events: Events) -> None:
        """Append an array of EVENT, which is kept."""
        self._parts.append(events)

    def read(self) -> Events:
        """All events so far, those of :meth:`add` first; a copy."""
        return np.concatenate([np.array(list(self._rows), EVENT), *self._parts])


class EventFile:
    """A new file for the events of this process.

    Parameters
    ----------
    path : Path
        It must not exist.
    worker : int
        Number of the worker.
    capacity : int
        Most events; further ones are counted and dropped.
    """

    def __init__(self, path: Path, worker: int, capacity: int = _CAPACITY) -> None:
        size = _HEADER.itemsize + capacity * EVENT.itemsize
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
            mapped = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        header = np.frombuffer(mapped, _HEADER, 1)
        header["pid"], header["worker"] = os.getpid(), worker
        header["magic"] = _MAGIC
        self._mapped, self._numbers = mapped, memoryview(mapped)[: _HEADER.itemsize].cast("q")
        self._events = np.frombuffer(mapped, EVENT, capacity, _HEADER.itemsize)
        self._count, self._capacity, self._busy, self._lock = 0, capacity, False, threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether the process is building a batch."""
        return self._busy

    @busy.setter
    def busy(self, value: bool) -> None:
        self._busy = self._numbers[_BUSY] = value

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events; by any thread."""
        with self._lock:
            if not self._has_room(len(rows)):
                return
            at = _HEADER.itemsize + self._count * _ROW.size
            for row in rows:
                _ROW.pack_into(self._mapped, at, *row)
                at += _ROW.size
            self._count += len(rows)
            self._numbers[_COUNT] = self._count

    def write(self, events: Events) -> None:
        """Append an array of EVENT; by any thread."""
        with self._lock:
            if not self._has_room(len(events)):
                return
            self._events[self._count : self._count + len(events)] = events
            self._count += len(events)
            self._numbers[_COUNT] = self._count

    def _has_room(self, count: int) -> bool:
        """Whether the file has room for ``count`` more events; else they are counted as dropped."""
        if self._count + count <= self._capacity:
            return True
        self._numbers[_DROPPED] += count
        return False


@dataclass(frozen=True, slots=True)
class FileState:
    """The header of a file of events."""

    worker: int
    pid: int
    count: int
    dropped: int
    is_busy: bool


def read_state(path: Path) -> FileState | None:
    """The header of a file; None if it is none, or not complete yet."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.itemsize)
    except OSError:
        return None
    if len(header) < _HEADER.itemsize:
        return None
    row = np.frombuffer(header, _HEADER)[0]
    if row["magic"] != _MAGIC:
        return None
    return FileState(int(row["worker"]), int(row["pid"]), int(row["count"]), int(row["dropped"]), bool(row["busy"]))


def read_events(path: Path) -> tuple[Events, int]:
    """The events of a file, and how many were dropped; none, if it is no such file."""
    state = read_state(path)
    if state is None or state.count < 0:
        return np.empty(0, EVENT), 0
    with path.open("rb") as file:
        file.seek(_HEADER.itemsize)
        content = file.read(min(state.count, _CAPACITY) * EVENT.itemsize)
    count = len(content) // EVENT.itemsize
    return np.frombuffer(content, EVENT, count).copy(), state.dropped


def is_any_busy(paths: Iterable[Path]) -> bool:
    """Whether a process is building a batch, by its file."""
    states = [read_state(path) for path in paths]
    return any(state is not None and state.is_busy for state in states)


class Control:
    """What the watching process says to the workers of one loader: a small file that all of them map.

    Parameters
    ----------
    path : Path
        Of the file; it is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _CONTROL.itemsize)
            mapped = mmap.mmap(descriptor, _CONTROL.itemsize)
        finally:
            os.close(descriptor)
        self._values = memoryview(mapped)[: _CONTROL.itemsize].cast("q")  # read for each batch

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
