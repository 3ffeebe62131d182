"""Worker processes that load and check records of a source, for sources whose work is in Python.

::

    thread of the run ──[8 items]──> process: source.load, checks ──fields──> thread: writer.prepare ──> writer

One process writes, however many load. The processes are made before the run's threads: a fork copies no lock that a
thread holds. Called by :mod:`.packing`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from penstock.errors import DecodeError, PackError, StoreError, WorkerError
from penstock.pack.pipeline.record_checks import CheckedRecord, RecordChecks
from penstock.pack.sources.base import Source, SourceItem
from penstock.sample import Value
from penstock.stores.writing import Skipped
from penstock.workers.processes.start import Environment, Launcher

__all__ = ["RecordLoader", "load_items", "loading_in_processes"]


class RecordLoader(Protocol):
    """Loads and checks some items: each becomes a record, or is left out with a reason."""

    def __call__(self, items: Sequence[SourceItem]) -> list[CheckedRecord | Skipped]:
        """The records, in order."""
        ...


def load_items(source: Source, checks: RecordChecks, items: Sequence[SourceItem]) -> list[CheckedRecord | Skipped]:
    """Load and check some items in this thread: all at once, and one by one where that fails."""
    try:
        together = source.load_records([item.token for item in items])
    except (PackError, DecodeError, StoreError):
        together = None  # one by one, it is found out which record cannot be read
    loaded: list[CheckedRecord | Skipped] = []
    for number, item in enumerate(items):
        try:
            loaded.append(checks.apply(source.load(item.token) if together is None else together[number]))
        except (PackError, DecodeError, StoreError) as error:
            loaded.append(Skipped(item.key, f"{source.describe_item(item.token)}{error.message}"))
    return loaded


@contextmanager
def loading_in_processes(source: Source, checks: RecordChecks, jobs: int) -> Iterator[RecordLoader]:
    """Yield a loader that uses ``jobs`` processes while the body runs.

    Raises WorkerError when it is called, if a process died.
    """
    context = Launcher.choose(None, source).context
    executor = ProcessPoolExecutor(jobs, context, initializer=_begin_process, initargs=(Environment(), source, checks))

    def load(items: Sequence[SourceItem]) -> list[CheckedRecord | Skipped]:
        try:
            return executor.submit(_load_here, items).result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that loads records died (killed, out of memory, or a crash in the source's code); records "
                "that were committed are kept. Pack again to resume, with fewer jobs if memory was short"
            ) from error

    try:
        load([])  # starts all processes in this thread
        yield load
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_given: tuple[Source, RecordChecks] | None = None
"""In a worker process: what it loads from."""


def _begin_process(_: Environment | None, source: Source, checks: RecordChecks) -> None:
    global _given  # noqa: PLW0603  # a worker process has one source
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    _given = source, checks


def _load_here(items: Sequence[SourceItem]) -> list[CheckedRecord | Skipped]:
    assert _given is not None, "the initializer ran"
    return [_to_picklable(entry) for entry in load_items(*_given, items)]


def _to_picklable(entry: CheckedRecord | Skipped) -> CheckedRecord | Skipped:
    if isinstance(entry, Skipped):
        return entry
    fields: dict[str, Value] = {
        name: bytes(value) if isinstance(value, memoryview) else value for name, value in entry.fields.items()
    }
    return replace(entry, fields=fields)
