"""Events of one process, appended to a file: a process that is killed loses none.

::

    folder/control                     what the watching process says: stop; the number of the epoch's first batch
    folder/I-W-PID.events              of iterator I, worker W:   event | event | ... (EVENT, fixed size)

One process writes a file. The watching process may read it at any time.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from penstock.doctor.watching.recording import EVENT, STAGES, Events

__all__ = ["Control", "EventFile", "EventList", "EventRow", "EventSink", "find_writer", "make_row", "read_events"]

EventRow = tuple[int, int, int, int, int, int, int, int, int]
"""One EVENT as numbers, in the order of its fields: to make an array of one costs ten times as much."""

_CONTROL_BYTES: Final = 16
_STOPPED, _FIRST_BATCH = 0, 1
"""Positions in the control file."""
_ROW: Final = struct.Struct("=Bhiqqqqqi")
"""An EVENT."""
_NUMBERS: Final = {stage: number for number, stage in enumerate(STAGES)}


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

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread."""
        ...


class EventList:
    """Events of the watching process itself."""

    def __init__(self) -> None:
        self._rows: list[EventRow] = []

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread."""
        self._rows.extend(rows)

    def read(self) -> Events:
        """Return all events so far; a copy."""
        return np.array(list(self._rows), EVENT)


class EventFile:
    """A new file for the events of this process; where the disk is full, no more are kept.

    Raises OSError if the file cannot be made, or is there.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._descriptor, self._is_full = os.open(path, flags, 0o600), False

    def add(self, rows: Sequence[EventRow]) -> None:
        """Append events, which stay together; by any thread."""
        content = b"".join([_ROW.pack(*row) for row in rows])
        try:
            # What comes behind a part of a row would be out of line.
            self._is_full = self._is_full or os.write(self._descriptor, content) < len(content)
        except OSError:
            self._is_full = True


def read_events(path: Path) -> Events:
    """Return the events of a file, as far as they are whole."""
    return np.fromfile(path, EVENT, path.stat().st_size // EVENT.itemsize)


def find_writer(path: Path) -> tuple[int, int]:
    """Return the process that writes a file, and the number of its worker."""
    _, worker, process = path.stem.split("-")
    return int(process), int(worker)


class Control:
    """What the watching process says to the workers of one loader: a small file that all of them map.

    ``path``: the file, which is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _CONTROL_BYTES)  # a write to a hole of a map could end the process
            self._values = memoryview(mmap.mmap(descriptor, _CONTROL_BYTES)).cast("q")  # read for each batch
        finally:
            os.close(descriptor)

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
