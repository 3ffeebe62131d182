"""``pack`` on Ray: each task packs a run of the source's records, as ``pack`` does where it reads all of them.

::

    driver: keys compared ──> write_parts ──> task: SourceRange ──> pack_source ──> DST/00007.lmdb, its seek tables
            manifest      <── counts, hashes, entries that were left out ──┘
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PackError
from penstock.pack.on_ray.parts import SHARD_NBYTES, Parts, WrittenPart, choose_samples, write_parts
from penstock.pack.pipeline.pack_source import (
    PackReport,
    PackSettings,
    Progress,
    make_pack_reporter,
    pack_source,
)
from penstock.pack.pipeline.processes import load_items
from penstock.pack.pipeline.record_checks import RecordChecks, count_fields, make_stored_schema
from penstock.pack.pipeline.run import ClashFinder, NothingPackedError, PackProgress, finish_pack
from penstock.pack.resize.resizing import NOTHING_RESIZED
from penstock.pack.seek_tables import join_reports
from penstock.pack.sources.base import Source, SourceItem
from penstock.sample import Index, Value
from penstock.stores import StoreLike
from penstock.stores.base import Store
from penstock.stores.fields.record_names import fold_name
from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter
from penstock.stores.location import Location
from penstock.stores.writing import CommittedRecords, Skipped
from penstock.wording import counted

__all__ = ["SourceRange", "pack_on_ray"]


class SourceRange(Source):
    """Some consecutive records of a source.

    Parameters
    ----------
    source : Source
        Read by index; it stays open.
    digest : str
        That of the source.
    numbers : range
        The positions of the records.
    refused : mapping of int to str
        Positions whose keys clash with those of earlier records, and the reasons.
    """

    def __init__(self, source: Source, digest: str, numbers: range, refused: Mapping[int, str]) -> None:
        self._source, self._digest, self._numbers, self._refused = source, digest, numbers, refused
        self.url, self.schema, self.total = source.url, source.schema, len(numbers)
        self.numbers_records = source.numbers_records or source.keys is not None  # they are compared already

    def items(self, start: int) -> Iterator[SourceItem]:
        """Return the items, with their positions as a part of the token."""
        begin = self._numbers.start + start
        items = itertools.islice(self._source.items(begin), max(0, self._numbers.stop - begin))
        return (SourceItem(item.key, (position, item.token)) for position, item in enumerate(items, begin))

    def load(self, token: Index) -> Mapping[str, Value]:
        """Return the fields of an item; PackError if its key clashes."""
        position, own = token
        if position in self._refused:
            raise PackError(self._refused[position])
        return self._source.load(own)

    def describe_item(self, token: Index) -> str:
        """Describe where an item is, as the source does; an item that was refused has no place."""
        position, own = token
        return "" if position in self._refused else self._source.describe_item(own)

    def load_records(self, tokens: Sequence[Value]) -> Sequence[Mapping[str, Value]] | None:
        """Load records by the source; None if it cannot, or if one was refused."""
        own = self._take_own(tokens)
        return None if own is None else self._source.load_records(own)

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value] | None:
        """Load a batch by the source; None if it cannot, or if a record was refused."""
        own = self._take_own(tokens)
        return None if own is None else self._source.load_batch(own)

    def _take_own(self, tokens: Sequence[Value]) -> list[Value] | None:
        """Return the tokens of the source; None if one is refused."""
        return None if any(position in self._refused for position, _ in tokens) else [own for _, own in tokens]

    def digest(self) -> str:
        """Return that of the source, and the positions."""
        return f"{self._digest} {self._numbers.start}:{self._numbers.stop}"


@dataclass(frozen=True, slots=True)
class _PackJob:
    """What the tasks of one run have in common."""

    source: Source
    digest: str
    parts: Parts
    settings: PackSettings
    refused: Mapping[int, str] = field(default_factory=dict)

    @property
    def compares_keys(self) -> bool:
        """Whether keys are known only when a part is written."""
        return self.source.keys is None and not self.source.numbers_records


def pack_on_ray(source: Source, dst: StoreLike, settings: PackSettings, progress: Progress) -> PackReport:
    """Pack a source in tasks of Ray, into a sharded pack; see :func:`penstock.pack`, which calls this.

    Raises ArgumentError if the source is not read by index, or the options are those of one process.
    """
    try:
        _refuse(source, settings)
    except BaseException:
        source.close()
        raise
    chosen = replace(
        settings,
        shard_nbytes=settings.shard_nbytes or SHARD_NBYTES,
        workers=settings.workers or 1,
        options={**settings.options, "on": "ray"},
    )
    return pack_source(source, dst, chosen, progress, _write)


def _refuse(source: Source, settings: PackSettings) -> None:
    if settings.jobs:
        raise ArgumentError(f"jobs must be 0 with on='ray', whose tasks are processes, got {settings.jobs}")
    if not (source.has_jobs and source.has_random_access) or source.total is None or source.digest() is None:
        raise ArgumentError(
            f"on='ray' needs a source that is read by index; {source.url} is read in order, by one process. Pack "
            "without on='ray', or give a dataset with __getitem__ and __len__"
        )


def _write(
    source: Source,
    location: Location,
    writer: ShardedWriter,
    clashes: ClashFinder,
    settings: PackSettings,
    progress: Progress,
) -> PackReport:
    digest, shard_nbytes, workers = source.digest(), settings.shard_nbytes, settings.workers
    assert source.total is not None and digest is not None and shard_nbytes and workers, "as pack_on_ray chose them"  # noqa: PT018  # one reason
    parts = Parts.divide(location, source.total, _measure(source, settings), shard_nbytes)
    of_parts = replace(
        settings,
        on_error="skip",  # the driver refuses what all parts leave out
        shard_nbytes=None,
        overwrite=settings.overwrite and location.remote is not None,  # the writer removed what was here
        options={**settings.options, "shard_size": str(shard_nbytes)},
    )
    job = _PackJob(source, digest, parts, of_parts, clashes.known)
    with ExitStack() as stack:
        show = make_pack_reporter(progress, stack)
        written = write_parts(
            _pack_part,
            job,
            parts,
            writer,
            workers,
            lambda held: show(PackProgress(held.consumed, parts.total, held.nbytes, len(held.skipped))),
        )
    if job.compares_keys:
        _refuse_equal_keys(parts, written)
    skipped, count = writer.committed.skipped, writer.committed.records
    raises = settings.on_error == "raise"
    outcome = "nothing was written" if location.remote is None else "its finished parts stay there"
    left_out = finish_pack(source, writer, skipped, count, outcome, is_refused=raises and bool(skipped))
    return _join(location, [part.report for part in written if part.report is not None], writer, left_out)


def _measure(source: Source, settings: PackSettings) -> list[int]:
    """The bytes of some records as they are stored; those that cannot be packed are left out."""
    assert source.total is not None, "a source that is read by index"
    schema = make_stored_schema(source.schema, settings.resizing)
    checks = RecordChecks.for_schema(source.schema, schema, "header", settings.transcode, settings.resizing)
    items = [next(source.items(number)) for number in choose_samples(source.total)]
    return [count_fields(each.fields) for each in load_items(source, checks, items) if not isinstance(each, Skipped)]


def _pack_part(job: _PackJob, number: int) -> WrittenPart[PackReport]:
    """Pack some records in a task, unless they are packed."""
    source = SourceRange(job.source, job.digest, job.parts.get_range(number), job.refused)
    try:
        with job.parts.writing(number, overwrite=job.settings.overwrite) as target:
            report = pack_source(source, target, job.settings, None)
    except NothingPackedError as error:
        return WrittenPart(CommittedRecords(skipped=error.skipped))
    with job.parts.open(number) as store:
        held = CommittedRecords(report.records, report.nbytes, report.skipped)
        return WrittenPart(held, store.meta.content, report, _hash_keys(store) if job.compares_keys else None)


def _hash_keys(store: Store) -> NDArray[np.uint64]:
    return np.array([xxhash.xxh3_64_intdigest(fold_name(key).encode()) for key in store.keys()], np.uint64)  # noqa: SIM118  # a store is no mapping


def _refuse_equal_keys(parts: Parts, written: Sequence[WrittenPart[PackReport]]) -> None:
    """Raise PackError if records of two parts have one name."""
    hashes = [part.keys for part in written if part.keys is not None]
    numbers = [number for number, part in enumerate(written) if part.keys is not None]
    every = np.concatenate([np.zeros(0, np.uint64), *hashes])
    order = np.argsort(every, kind="stable")
    later = order[1:][every[order][1:] == every[order][:-1]]
    if not len(later):
        return
    ends = np.cumsum([len(each) for each in hashes])
    first = int(later.min())
    at = int(np.searchsorted(ends, first, side="right"))
    with parts.open(numbers[at]) as store:
        key = store.keys()[first - (int(ends[at - 1]) if at else 0)]
    raise PackError(
        f"{counted(len(later), 'record')} in different parts have the name of an earlier one, such as {key!r}, and a "
        "part that is packed leaves none out. Give other keys, key=\"index\" (--key index), or pack without on='ray'",
        store=parts.folder,
    )


def _join(
    location: Location, reports: Sequence[PackReport], writer: ShardedWriter, left_out: tuple[Skipped, ...]
) -> PackReport:
    """The report on all parts."""
    indexed = [report.indexed for report in reports if report.indexed is not None]
    resized = [report.resized for report in reports if report.resized is not None]
    path = location.path if location.remote is None else location.remote.url
    return replace(
        reports[0],
        store=str(location),
        records=writer.committed.records,
        nbytes=writer.committed.nbytes,
        resumed=sum(report.records if report.reused else report.resumed for report in reports),
        skipped=left_out,
        reused=False,
        transcoded=sum(report.transcoded for report in reports),
        kept=sum(report.kept for report in reports),
        resized=sum(resized, NOTHING_RESIZED) if resized else None,
        indexed=replace(join_reports(indexed), store=str(location), path=path) if indexed else None,
    )
