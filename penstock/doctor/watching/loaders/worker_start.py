"""Begins to record in a worker process, of torch's loaders or penstock's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock.doctor.watching.event_file import Control, EventFile, EventSink
from penstock.doctor.watching.stack_sampling import SampledThread
from penstock.doctor.watching.work_recorder import WorkRecorder

__all__ = ["RecordingStart", "open_recorder"]


def open_recorder(folder: Path, iterator: int, worker: int) -> WorkRecorder | None:
    """A recorder for this worker process, which is of an iterator of the loader; None if its file cannot be made."""
    try:
        sink: EventSink = EventFile(folder / f"{iterator}-{worker}-{os.getpid()}.events", worker)
    except OSError:  # no room, or the watching process has ended: the worker works unwatched
        return None
    return WorkRecorder(sink, worker, SampledThread())


class RecordingStart:
    """What a worker calls in the place of ``worker_init_fn``: it begins to record, and calls that function.

    Parameters
    ----------
    record : callable
        Begins to record; called with the control file and the recorder of the worker. A function of a module, since it
        is sent to workers that are not forked.
    function : callable, optional
        The loader's ``worker_init_fn``.
    folder : Path
        Of the loader's files.
    iterator : int
        Number of the iterator that starts the worker.
    """

    def __init__(
        self,
        record: Callable[[Control, WorkRecorder], None],
        function: Callable[[int], None] | None,
        folder: Path,
        iterator: int,
    ) -> None:
        self.record, self.function, self.folder, self.iterator = record, function, folder, iterator

    def __call__(self, worker: int) -> None:
        """Called by the worker with its number."""
        work = open_recorder(self.folder, self.iterator, worker)
        if work is not None:
            self.record(Control(self.folder / "control"), work)
        if self.function is not None:
            self.function(worker)
