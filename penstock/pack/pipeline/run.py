"""One run of packing: several threads read, check and hash; one thread writes, in the order of the source.

::

    source ──> [8 records] ──> thread: read, check, encode, hash ──┐
           ──> [8 records] ──> thread: ...                         ├──in order──> writer ──> commits
           ──> [8 records] ──> ...                                 ┘

Called by :func:`penstock.pack`, which opens the source and the writer.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from penstock.errors import PackError, StoreError
from penstock.pack.pipeline.processes import RecordLoader
from penstock.pack.pipeline.record_checks import count_bytes
from penstock.pack.resize.resizing import NOTHING_RESIZED, ResizeReport
from penstock.pack.sources.base import Source, SourceItem
from penstock.sample import Value
from penstock.stores.base import Skipped
from penstock.stores.fields.record_names import find_name_clashes, fold_name
from penstock.stores.writing import Writer
from penstock.wording import counted, escape_unprintable, list_problems

__all__ = [
    "ClashFinder",
    "NothingPackedError",
    "PackProgress",
    "PackRun",
    "finish_pack",
    "list_skipped",
    "refuse_left_out",
    "refuse_unpackable",
    "run_in_order",
]

_TASK_RECORDS: Final = 8
_BATCH_RECORDS: Final = 512
"""Records of a task where no image is checked: numbers, text, arrays, pixels."""
_PENDING_NBYTES: Final = 64 << 20
_MAX_PENDING: Final = 256
_MAX_LISTED: Final = 100
T_prepared = TypeVar("T_prepared")
T_task = TypeVar("T_task")
T_result = TypeVar("T_result")


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Progress of packing: number of source records done and in all, of bytes of images, and of records left out."""

    done: int
    total: int
    nbytes: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _PreparedRecords(Generic[T_prepared]):
    """The records that one task prepared, in order: the key and the content of each."""

    records: list[tuple[str, T_prepared] | Skipped]
    nbytes: int
    transcoded: int = 0
    kept: int = 0
    resized: ResizeReport = NOTHING_RESIZED
    batch: Value = None
    """All of them at once, as ``prepare_batch`` returned them; ``records`` is then empty."""
    count: int = 0
    """The number of records of ``batch``."""


class PackRun(Generic[T_prepared]):
    """One run of packing: prepares records in threads, and writes them in order."""

    def __init__(
        self,
        source: Source,
        writer: Writer[T_prepared],
        load: RecordLoader,
        clashes: ClashFinder,
        *,
        on_error: str,
        replaces: bool,
        uses_batches: bool,
    ) -> None:
        self._outcome = "the existing pack was removed" if replaces else "nothing was written"
        self._source, self._writer, self._load, self._clashes = source, writer, load, clashes
        self._uses_batches = uses_batches and (source.keys is not None or source.numbers_records)
        self._raises = on_error == "raise"
        self.transcoded = self.kept = 0
        self.resized = NOTHING_RESIZED
        self._skipped = list(writer.committed.skipped)
        self._count = writer.committed.records
        self._has_failed = self._is_stopped = False

    def run(self, workers: int, report: Callable[[PackProgress], None]) -> None:
        """Pack every record that no earlier run has packed, with ``workers`` threads."""
        done, nbytes = self._writer.committed.consumed, self._writer.committed.nbytes
        size = _BATCH_RECORDS if self._uses_batches else _TASK_RECORDS
        items = self._open_items()
        tasks = iter(lambda: list(itertools.islice(items, size)), [])
        prepared = run_in_order(
            self._prepare, tasks, workers, "pack", 2 * workers, count_nbytes=lambda task: task.nbytes, stop=self._stop
        )
        with closing(prepared):
            for task in prepared:
                if task.count and not self._has_failed:
                    self._writer.append_batch(task.batch)
                    self._count += task.count
                for record in task.records:
                    reason = None if isinstance(record, Skipped) else self._clashes.find_repeated(record[0])
                    entry = record if reason is None else Skipped(record[0], reason)
                    if isinstance(entry, Skipped):
                        entry = Skipped(*(text.encode(errors="backslashreplace").decode() for text in entry))
                        self._skipped.append(entry)
                        self._has_failed = self._has_failed or self._raises
                        self._writer.skip(entry)
                    elif not self._has_failed:
                        self._writer.append(entry[1])
                        self._count += 1
                done += len(task.records) + task.count
                nbytes += task.nbytes
                self.transcoded += task.transcoded
                self.kept += task.kept
                self.resized += task.resized
                report(PackProgress(done, max(done, self._source.total or 0), nbytes, len(self._skipped)))

    def _stop(self) -> None:
        """Make the threads end after the current record."""
        self._is_stopped = True

    def finish(self) -> tuple[Skipped, ...]:
        """Complete the pack, or refuse the source; returns what was left out.

        Raises PackError if a record cannot be packed and ``on_error`` is "raise", or there is nothing to pack.
        """
        return finish_pack(
            self._source, self._writer, self._skipped, self._count, self._outcome, is_refused=self._has_failed
        )

    def _open_items(self) -> Iterator[SourceItem | Skipped]:
        """Yield the items that are not packed yet, in order; those whose key is taken are left out."""
        committed = self._writer.committed
        begins_there = self._source.is_exact and self._source.has_random_access
        start = committed.consumed if begins_there else 0
        last: deque[SourceItem] = deque(maxlen=len(committed.skipped) + 1)
        for position, item in enumerate(self._source.items(start), start):
            if position < committed.consumed:
                self._clashes.find_repeated(item.key)  # keys of a stream are known; later ones are compared with them
                last.append(item)
                if position + 1 == committed.consumed:
                    self._refuse_other_record(last)
            else:
                reason = self._clashes.find(position)
                yield item if reason is None else Skipped(item.key, reason)

    def _refuse_other_record(self, last: Sequence[SourceItem]) -> None:
        """Raise StoreError unless the last committed record is the source's; ``last`` are its items up to there."""
        left_out = Counter(entry.key for entry in self._writer.committed.skipped)
        for item in reversed(last):
            if left_out[item.key]:
                left_out[item.key] -= 1
                continue
            loaded = self._load([item])[0]
            if isinstance(loaded, Skipped) or not self._writer.repeats_last(
                self._writer.prepare(loaded.key or item.key, loaded.fields)
            ):
                raise StoreError(
                    f"an unfinished pack is here, and its last record is not record {item.key!r} of the source: the "
                    "source gives other records, or in another order, than before. Pack with overwrite=True "
                    "(--overwrite) to start anew",
                    store=self._source.url,
                )
            return

    def _prepare_batch(self, items: Sequence[SourceItem | Skipped]) -> _PreparedRecords[T_prepared] | None:
        """Encode records without encoded images, all at once; None if they must be done one by one."""
        some = [item for item in items if isinstance(item, SourceItem)]
        if len(some) < len(items):
            return None
        try:
            fields = self._source.load_batch([item.token for item in some])
            if fields is None:
                return None
            batch = self._writer.prepare_batch([item.key for item in some], fields)
        except (PackError, StoreError):
            return None  # one by one, it is found out which record cannot be packed
        nbytes = sum(_count_batch(fields[name]) for name in self._source.schema.blobs)
        return _PreparedRecords([], nbytes, batch=batch, count=len(some))

    def _prepare(self, items: Sequence[SourceItem | Skipped]) -> _PreparedRecords[T_prepared]:
        """Load, check and encode some records; runs in the pool."""
        if self._is_stopped:
            return _PreparedRecords([], 0)
        if self._uses_batches and (batch := self._prepare_batch(items)) is not None:
            return batch
        loaded = iter(self._load([item for item in items if isinstance(item, SourceItem)]))
        records: list[tuple[str, T_prepared] | Skipped] = []
        nbytes = transcoded = kept = 0
        resized = NOTHING_RESIZED
        for item in items:
            if isinstance(item, Skipped):
                records.append(item)
                continue
            entry = next(loaded)
            if isinstance(entry, Skipped):
                records.append(entry)
                continue
            key = entry.key or item.key
            try:
                records.append((key, self._writer.prepare(key, entry.fields)))
            except PackError as error:
                number = f"sample {item.key}: " if entry.key else ""
                records.append(Skipped(key, f"{number}{error.message}"))
                continue
            nbytes += entry.nbytes
            transcoded, kept = transcoded + entry.transcoded, kept + entry.kept
            resized += entry.resized
        return _PreparedRecords(records, nbytes, transcoded, kept, resized)


class NothingPackedError(PackError):
    """No record of a source can be packed; ``skipped`` are its entries, with the reasons."""

    def __init__(self, message: str, skipped: Sequence[Skipped] = (), **where: object) -> None:
        super().__init__(message, **where)
        self.skipped = tuple(skipped)


def finish_pack(
    source: Source,
    writer: Writer[T_prepared],
    skipped: Sequence[Skipped],
    count: int,
    outcome: str,
    *,
    is_refused: bool,
) -> tuple[Skipped, ...]:
    """Complete a pack of ``count`` records, or discard it and refuse the source; see :meth:`PackRun.finish`."""
    if is_refused:
        writer.discard()
        raise _make_refusal(source, skipped, outcome)
    if not count:
        writer.discard()
        raise NothingPackedError(
            f"nothing can be packed; {outcome}:\n{list_skipped(skipped)}", skipped, store=source.url
        )
    writer.finish(source.problems)
    return (*skipped, *source.problems)


def _count_batch(values: Value) -> int:
    return int(values.nbytes) if isinstance(values, np.ndarray) else sum(map(count_bytes, values))


class ClashFinder:
    """Finds records whose names some file systems do not distinguish from an earlier name.

    ``source``: if it does not know the keys of its records, each is compared with those before it.
    """

    def __init__(self, source: Source) -> None:
        keys = source.keys
        self._known = None if keys is None else find_name_clashes(keys)
        self._compares = keys is None and not source.numbers_records
        self._seen: set[int] = set()

    @property
    def known(self) -> dict[int, str]:
        """The reasons by position, of records whose keys are known."""
        return {position: _describe_clash(f"that of {other!r}") for position, other in (self._known or {}).items()}

    def find(self, position: int) -> str | None:
        """Why the record at ``position`` clashes with an earlier one, if its key is known; None if it does not."""
        if self._known is None or position not in self._known:
            return None
        return _describe_clash(f"that of {self._known[position]!r}")

    def find_repeated(self, key: str) -> str | None:
        """Why a key that was not known before clashes with an earlier one; None if it does not."""
        if not self._compares:
            return None
        hashed = hash(fold_name(key))  # one number a record, not its name
        if hashed in self._seen:
            return _describe_clash("that of an earlier record")
        self._seen.add(hashed)
        return None


def _describe_clash(other: str) -> str:
    return f"its name equals {other}, except for case or Unicode form"


def refuse_unpackable(source: Source, clashes: ClashFinder) -> None:
    """Raise PackError if the listing of the source, without its images, shows that records cannot be packed."""
    keys = source.keys or ()
    clashing = (Skipped(keys[position], reason) for position, reason in clashes.known.items())
    if known := [*clashing, *source.unreadable]:
        raise _make_refusal(source, known, "nothing was written, and no image was read yet")


def refuse_left_out(source: Source, skipped: Sequence[Skipped]) -> None:
    """Raise PackError if an existing pack lacks images of the source, as ``skipped`` says."""
    if not skipped:
        return
    names = None if source.keys is None else {*source.keys, *(entry.key for entry in source.unreadable)}
    if missing := [entry for entry in skipped if names is None or entry.key in names]:  # other entries are no images
        raise PackError(
            f'an earlier run with on_error="skip" left out {counted(len(missing), "file")} of the source; pack with '
            'on_error="skip" (--on-error skip) as before, or repair or remove the files and pack with overwrite=True '
            f"(--overwrite):\n{list_skipped(missing)}",
            store=source.url,
        )


def _make_refusal(source: Source, refused: Sequence[Skipped], outcome: str) -> PackError:
    them = "it" if len(refused) == 1 else "them"
    return PackError(
        f"{len(refused):,} of the source's files cannot be packed; {outcome}. Repair or remove {them}, or pack with "
        f'on_error="skip" (--on-error skip), which leaves {them} out:\n{list_skipped(refused)}',
        store=source.url,
    )


def list_skipped(skipped: Sequence[Skipped]) -> str:
    """Return one line for each of the first entries, at most five for the same problem."""
    lines = list_problems(skipped)
    shown = [f"  {escape_unprintable(line)}" for line in lines[:_MAX_LISTED]]
    if len(lines) > _MAX_LISTED:
        shown.append(f"  ... and {len(lines) - _MAX_LISTED} more")
    return "\n".join(shown)


def run_in_order(
    work: Callable[[T_task], T_result],
    tasks: Iterable[T_task],
    workers: int,
    name: str,
    least: int,
    *,
    count_nbytes: Callable[[T_result], int] | None = None,
    stop: Callable[[], None] | None = None,
) -> Generator[T_result]:
    """The results of ``work`` for each task, in order, from threads that run ahead.

    Parameters
    ----------
    work, tasks : callable and iterable
        What is called in the threads, and with what. Tasks are taken in the caller's thread.
    workers, name : int and str
        Number of threads, and the beginning of their names.
    least : int
        Tasks that are under way or done before their results are taken.
    count_nbytes : callable, optional
        Bytes that a result holds: then as many more tasks as fit into memory.
    stop : callable, optional
        Called first if the caller ends early, or a task fails; tasks that have not begun are then left out.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix=f"penstock-{name}")
    pending: deque[Future[T_result]] = deque()
    done = nbytes = 0
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            allowed = max(least, min(_MAX_PENDING, _PENDING_NBYTES * done // max(nbytes, 1)) if count_nbytes else 0)
            while len(pending) > allowed:
                result = pending.popleft().result()
                done, nbytes = done + 1, nbytes + (count_nbytes(result) if count_nbytes else 0)
                yield result
        while pending:
            yield pending.popleft().result()
    finally:
        if pending and stop is not None:
            stop()
        pool.shutdown(cancel_futures=True)
