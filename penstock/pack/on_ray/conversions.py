"""``convert`` to a pack on Ray: each task converts a run of the source's records, and compares both sides of it.

::

    driver: write_parts ──> task: StoreRange ──> Conversion: copy, prove ──> DST/00007.lmdb
            manifest    <── counts, digests, differences ──┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import xxhash

from penstock.errors import ArgumentError
from penstock.pack.conversion.comparison import Unreadable, read_each
from penstock.pack.conversion.report import ConvertReport
from penstock.pack.conversion.run import Conversion, ConvertProgress, refuse_records
from penstock.pack.on_ray.parts import SHARD_NBYTES, Parts, WrittenPart, choose_samples, write_parts
from penstock.pack.pipeline.record_checks import count_fields
from penstock.pack.pipeline.run import NothingPackedError
from penstock.pack.staging import find_finished
from penstock.sample import Array, Record, Schema
from penstock.stores import StoreLike, find
from penstock.stores.base import Indices, Skipped, Store
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import CommittedRecords

__all__ = ["StoreRange", "convert_on_ray"]


class StoreRange(Store):
    """Some consecutive records of a store, as a store; it is not closed with this one.

    ``numbers``: the numbers of the records.
    """

    def __init__(self, store: Store, numbers: range) -> None:
        super().__init__(store.location, **store.options)
        self.kind = store.kind  # type: ignore[misc]  # a store of the kind of the whole
        self._store, self._numbers = store, numbers

    @property
    def schema(self) -> Schema:
        """That of the store."""
        return self._store.schema

    def __len__(self) -> int:
        return len(self._numbers)

    def read(self, indices: Indices) -> list[Record]:
        """The records; see :meth:`Store.read`."""
        numbers = self._check_indices(indices)
        records = self._store.read([self._numbers[number] for number in numbers])
        return [replace(record, index=number) for record, number in zip(records, numbers, strict=True)]

    def column(self, field: str) -> Array:
        """A small field of these records; see :meth:`Store.column`."""
        return self._store.column(field)[self._numbers.start : self._numbers.stop]

    def keys(self) -> Sequence[str]:
        """The keys of these records."""
        return self._store.keys()[self._numbers.start : self._numbers.stop]

    def digest(self) -> str:
        """Return that of the store, and the numbers."""
        return f"{self._store.digest()} {self._numbers.start}:{self._numbers.stop}"

    def __reduce__(self) -> tuple[object, ...]:
        return StoreRange, (self._store, self._numbers)


@dataclass(frozen=True, slots=True)
class _ConvertJob:
    """What the tasks of one run have in common."""

    source: Store
    parts: Parts
    workers: int
    overwrite: bool


def convert_on_ray(
    source: Store,
    dst: StoreLike,
    options: Mapping[str, object],
    *,
    on_error: str,
    workers: int | None,
    shard_nbytes: int | None,
    overwrite: bool,
    show: ConvertProgress,
) -> tuple[ConvertReport, Location]:
    """Convert a store to a sharded pack in tasks of Ray; see :func:`penstock.convert`, which calls this.

    Returns
    -------
    tuple of ConvertReport and Location
        The report, whose digests are hashes of those of the parts, in order; and where the pack is.

    Raises
    ------
    ArgumentError
        If something else than a pack is to be written, or it has options.
    """
    kind, place = find(dst, to_write=True)
    if kind not in (LmdbStore, ShardedPack) or options:
        what = (
            f"of kind {kind.kind!r}" if kind not in (LmdbStore, ShardedPack) else f"with options {', '.join(options)}"
        )
        raise ArgumentError(
            f"on='ray' writes packs (.lmdb) without options, got a destination {what}: convert without on='ray'"
        )
    location, schema = replace(place, scheme=ShardedPack.kind), LmdbStore.storable(source.schema)
    if on_error == "raise" and source.unreadable:
        refuse_records(source, source.unreadable)
    nbytes = shard_nbytes or SHARD_NBYTES
    origin = Origin(source.digest(), {"shard_size": str(nbytes), "on": "ray"}).to_text()
    finished, found = (None, location) if overwrite else find_finished(ShardedPack, location, schema, origin)
    writer = (
        ShardedWriter(location, schema, origin, shard_nbytes=nbytes, overwrite=overwrite, finds_shards=False)
        if finished is None
        else None
    )
    try:
        records = read_each(source, choose_samples(len(source)))
        sizes = [count_fields(record.fields) for record in records if not isinstance(record, Unreadable)]
        parts = Parts.divide(location, len(source), sizes, nbytes)
        job = _ConvertJob(source, parts, workers or 1, overwrite and location.remote is not None)
        written = write_parts(
            _convert_part,
            job,
            parts,
            writer,
            job.workers,
            lambda held: show("converting", held.consumed, parts.total, held.nbytes),
        )
        skipped = tuple(entry for part in written for entry in part.held.skipped)
        if writer is not None:
            if on_error == "raise" and skipped:
                writer.discard()
                refuse_records(source, skipped)
            if not writer.committed.records:
                writer.discard()
                raise NothingPackedError("there is no record to convert", skipped, store=source.url)
            writer.finish(source.problems)
    finally:
        if writer is not None:
            writer.close()
    return _join(source, found, [part.report for part in written if part.report is not None], skipped), found


def _convert_part(job: _ConvertJob, number: int) -> WrittenPart[ConvertReport]:
    """Convert some records in a task, unless they are converted, and compare both sides."""
    source = StoreRange(job.source, job.parts.get_range(number))
    try:
        with job.parts.writing(number, overwrite=job.overwrite) as target:
            kind, location = find(target, to_write=True)
            conversion = Conversion(
                source, kind, location, {}, on_error="skip", workers=job.workers, show=lambda *_counts: None
            )
            conversion.copy(overwrite=job.overwrite)
            conversion.write_sidecar()
            report = conversion.prove()
    except NothingPackedError as error:
        return WrittenPart(CommittedRecords(skipped=error.skipped))
    with job.parts.open(number) as store:
        held = CommittedRecords(len(store), store.meta.nbytes, report.left_out)
        return WrittenPart(held, store.meta.content, report)


def _join(
    source: Store, location: Location, reports: Sequence[ConvertReport], skipped: tuple[Skipped, ...]
) -> ConvertReport:
    """The report on all parts."""
    problems, begin = [], 0
    for report in reports:
        problems += [
            each if each.index is None else replace(each, index=begin + each.index) for each in report.problems
        ]
        begin += report.records
    return ConvertReport(
        source=source.url,
        store=str(location),
        records=begin,
        source_digest=_hash_digests([report.source_digest for report in reports]),
        store_digest=_hash_digests([report.store_digest for report in reports]),
        left_out=(*skipped, *source.problems),
        duplicates=tuple(key for key, count in Counter(source.keys()).items() if count > 1),
        problems=tuple(problems),
    )


def _hash_digests(digests: Sequence[str]) -> str:
    return xxhash.xxh3_128_hexdigest("\n".join(digests).encode())
