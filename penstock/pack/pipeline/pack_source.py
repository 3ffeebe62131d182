"""Writes the records of a source to a store: what ``pack`` and ``merge`` share.

::

    Source ──> threads or processes: load, check ──> Writer ──> store ──> seek tables beside it
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from penstock import stores
from penstock.errors import ArgumentError, StoreError, check_choice
from penstock.pack.conversion.report import ConvertReport
from penstock.pack.pipeline.image_check import CHECKS
from penstock.pack.pipeline.processes import RecordLoader, load_items, loading_in_processes
from penstock.pack.pipeline.record_checks import TRANSCODES, RecordChecks, make_stored_schema
from penstock.pack.pipeline.run import (
    ClashFinder,
    PackProgress,
    PackRun,
    refuse_left_out,
    refuse_unpackable,
)
from penstock.pack.resize.fields import FieldResizing
from penstock.pack.resize.resizing import ResizeReport, Resizing
from penstock.pack.seek_tables import IndexReport, make_seek_tables
from penstock.pack.sources.base import Source
from penstock.pack.staging import Staging, find_finished
from penstock.progress import make_reporter
from penstock.sample import Schema
from penstock.stores import StoreLike
from penstock.stores.base import Skipped, Store
from penstock.stores.common.seek_table_file import SEEK_TABLE_KINDS
from penstock.stores.joined import Sidecar
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import Writer
from penstock.system.control_group import count_usable_cores

__all__ = [
    "INDEX_KINDS",
    "ON_ERROR",
    "PackReport",
    "PackSettings",
    "Progress",
    "RecordWriting",
    "make_pack_reporter",
    "pack_source",
]

ON_ERROR: Final = ("raise", "skip")
INDEX_KINDS: Final = ("auto", "none", *SEEK_TABLE_KINDS)
T_prepared = TypeVar("T_prepared")
Progress = bool | Callable[[PackProgress], None] | None


@dataclass(frozen=True, slots=True)
class PackReport:
    """The result of :func:`pack`.

    Parameters
    ----------
    store : str
        URL of the store.
    records, nbytes : int
        Number of records in it, and of bytes of their blobs.
    resumed : int
        Number of records that an earlier, interrupted run had written.
    skipped : tuple of Skipped
        (name, reason) of each entry of the source that is not in the pack.
    elapsed_s : float
        Duration of this run.
    transcoded, kept : int
        Number of images that this run rewrote (``transcode=``), and that it stored as they were.
    indexed : IndexReport, optional
        The result of ``index``.
    reused : bool
        Whether a finished pack of the same source and options existed; it is used as it is, and nothing was written.
    schema : Schema, optional
        Fields of the records.
    resized : ResizeReport, optional
        What ``resize`` changed in this run.
    """

    store: str
    records: int
    nbytes: int
    resumed: int
    skipped: tuple[Skipped, ...]
    elapsed_s: float
    transcoded: int = 0
    kept: int = 0
    indexed: IndexReport | None = None
    reused: bool = False
    schema: Schema | None = None
    resized: ResizeReport | None = None


@dataclass(frozen=True, slots=True)
class PackSettings:
    """How a source is packed; see :func:`penstock.pack`.

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    """

    on_error: str = "raise"
    workers: int | None = None
    jobs: int = 0
    overwrite: bool = False
    check: str = "header"
    transcode: str = "none"
    index: str = "auto"
    shard_nbytes: int | None = None
    resizing: Resizing | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options that decide what the pack contains, for its origin."""

    def __post_init__(self) -> None:
        choices = {"on_error": ON_ERROR, "check": CHECKS, "transcode": TRANSCODES, "index": INDEX_KINDS}
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.workers is not None and self.workers < 1:
            raise ArgumentError(f"workers must be at least 1, or None for one for each core, got {self.workers}")
        if self.jobs < 0:
            raise ArgumentError(f"jobs must be at least 0 (no worker processes), got {self.jobs}")
        if self.shard_nbytes is not None and self.shard_nbytes < 1:
            raise ArgumentError(f"shard_size must be at least 1 byte, got {self.shard_nbytes}")

    def make_origin(self, digest: str) -> str:
        """The text of the origin of a pack."""
        resizing = {} if self.resizing is None else self.resizing.options
        sharding = {} if self.shard_nbytes is None else {"shard_size": str(self.shard_nbytes)}
        options = {"check": self.check, "transcode": self.transcode, **resizing, **sharding, **self.options}
        return Origin(digest, options).to_text()


class RecordWriting(Protocol):
    """Writes the records of a source to a store that is begun, with ``writer``, and makes its seek tables."""

    def __call__(
        self,
        source: Source,
        location: Location,
        writer: ShardedWriter,
        clashes: ClashFinder,
        settings: PackSettings,
        progress: Progress,
    ) -> PackReport:
        """The report on this run, without ``elapsed_s``."""
        ...


def pack_source(
    source: Source, dst: StoreLike, settings: PackSettings, progress: Progress, write: RecordWriting | None = None
) -> PackReport:
    """Pack a source; see :func:`penstock.pack`, which calls this, for what is raised.

    ``write`` writes the records of a sharded pack elsewhere, by default this process does.
    """
    start = time.monotonic()
    with ExitStack() as stack:
        stack.callback(source.close)
        kind, location = _find_destination(dst, settings)
        _refuse_settings(source, settings, location)
        clashes = ClashFinder(source)
        if settings.on_error == "raise":
            refuse_unpackable(source, clashes)
        schema = _make_schema(source, kind, settings.resizing)
        digest = source.digest()
        origin = settings.make_origin(f"stream {secrets.token_hex(16)}" if digest is None else digest)
        finished = None
        if source.is_exact and not settings.overwrite:
            finished, _ = find_finished(kind, location, schema, origin)
        if finished is not None:
            if settings.on_error == "raise":
                refuse_left_out(source, finished.skipped)
            counts = finished.records, finished.nbytes, 0
            report = PackReport(str(location), *counts, finished.skipped, 0.0, reused=True, schema=schema)
        else:
            replaces = settings.overwrite and location.exists()
            writer = _begin_store(
                kind, location, schema, origin, settings, can_resume=digest is not None, finds_shards=write is None
            )
            stack.callback(writer.close)
            if write is not None:
                assert isinstance(writer, ShardedWriter), "the settings have a size of shards"
                report = write(source, location, writer, clashes, settings, progress)
            else:
                report = _write(
                    source, location, schema, writer, clashes, settings, replaces=replaces, progress=progress
                )
            if replaces and location.is_local:
                _remove_conversion(location)
    is_sent = location.remote is not None and (settings.shard_nbytes is not None or not location.exists())
    if settings.index != "none" and not is_sent and (write is None or report.reused):
        report = replace(report, indexed=_index(location, settings, progress))
    return replace(report, elapsed_s=time.monotonic() - start)


def _find_destination(dst: StoreLike, settings: PackSettings) -> tuple[type[Store], Location]:
    """Return the kind and location of what is written.

    A sharded pack in place of another one is refused, and the reverse.
    """
    kind, location = stores.find(dst, to_write=True)
    if settings.shard_nbytes is None:
        if kind is LmdbStore and ShardedPack.recognises(location.path):
            raise ArgumentError(
                f"a sharded pack is at {location.path}; pack with shard_size=... (--shard-size), or remove it"
            )
        return kind, location
    if kind not in (LmdbStore, ShardedPack):
        raise ArgumentError(
            f"shard_size needs a pack (.lmdb) as the destination, and so does on='ray', got one of kind {kind.kind!r}"
        )
    return ShardedPack, replace(location, scheme=ShardedPack.kind)


def _remove_conversion(location: Location) -> None:
    """Remove what a conversion wrote beside the store that was replaced: other fields, and the report."""
    Sidecar.remove(location)
    ConvertReport.remove(location)


def _refuse_settings(source: Source, settings: PackSettings, location: Location) -> None:
    if source.location is not None and source.location.overlaps(location):
        raise ArgumentError(
            f"the destination must be outside the source, got source {source.location} and destination {location}"
        )
    if settings.index in SEEK_TABLE_KINDS and not any(
        source.schema[name].kind == "image" for name in source.schema.blobs
    ):
        raise ArgumentError(f"index={settings.index!r} needs a field of images, and {source.url} has none")
    if settings.resizing is not None:
        FieldResizing.for_schema(settings.resizing, source.schema)
    if settings.jobs and not source.has_jobs:
        raise ArgumentError(
            f"jobs={settings.jobs} needs a source that is read by index; {source.url} is read in order, by one "
            "process. Pack with jobs=0, or give a dataset with __getitem__ and __len__"
        )


def _make_schema(source: Source, kind: type[Store], resizing: Resizing | None) -> Schema:
    """The fields of the pack; refuses a kind of store that has no place for one of the source's."""
    schema = make_stored_schema(source.schema, resizing)
    stored = kind.storable(schema)
    if "width" not in stored or "height" not in stored:
        stored = kind.storable(Schema({name: schema[name] for name in source.schema.fields}))
    lost = [name for name in source.schema.fields if name not in stored or stored[name].upright != schema[name].upright]
    if lost:
        raise ArgumentError(
            f"stores of kind {kind.kind!r} have no place for {', '.join(map(repr, lost))}; convert the store instead, "
            "which keeps these fields beside it, or pack into a .lmdb",
        )
    return stored


def _begin_store(
    kind: type[Store],
    location: Location,
    schema: Schema,
    origin: str,
    settings: PackSettings,
    *,
    can_resume: bool,
    finds_shards: bool,
) -> Writer[object]:
    try:
        if settings.shard_nbytes is not None:
            return ShardedWriter(
                location,
                schema,
                origin,
                shard_nbytes=settings.shard_nbytes,
                overwrite=settings.overwrite,
                send=_make_send(location, settings),
                finds_shards=finds_shards,
            )
        return kind.writer(location, schema, origin, overwrite=settings.overwrite)
    except StoreError as error:
        if can_resume or settings.overwrite:
            raise
        raise StoreError(
            f"{error.message}. (An iterator can be told from another one only by source_id=...; without it, a pack is "
            "not resumed.)",
            **error.where,
        ) from error


def _make_send(location: Location, settings: PackSettings) -> Callable[[Path, str], None] | None:
    """Make what sends a finished shard with its seek tables, or the manifest, to the URL of a pack."""
    if not isinstance(location.remote, Staging):
        return None
    upload = location.remote.upload

    def send(path: Path, name: str) -> None:
        if settings.index != "none" and path.is_dir():
            make_seek_tables(Location.from_path(LmdbStore.kind, path), settings.index, settings.workers, None)
        upload.send(path, name)

    return send


def _write(
    source: Source,
    location: Location,
    schema: Schema,
    writer: Writer[T_prepared],
    clashes: ClashFinder,
    settings: PackSettings,
    *,
    replaces: bool,
    progress: Progress,
) -> PackReport:
    resumed = writer.committed
    if settings.on_error == "raise":
        refuse_left_out(source, resumed.skipped)
    checks = RecordChecks.for_schema(source.schema, schema, settings.check, settings.transcode, settings.resizing)
    is_decoding = settings.check == "decode" or settings.transcode != "none" or settings.resizing is not None
    threads = settings.jobs or settings.workers or _count_readers(is_decoding=is_decoding)
    with ExitStack() as stack:
        load: RecordLoader = lambda items: load_items(source, checks, items)  # noqa: E731  # as the other one: a function
        if settings.jobs:
            load = stack.enter_context(loading_in_processes(source, checks, settings.jobs))
        run = PackRun(
            source,
            writer,
            load,
            clashes,
            on_error=settings.on_error,
            replaces=replaces,
            uses_batches=not (settings.jobs or checks.images or checks.new_numbers),
        )
        try:
            run.run(threads, make_pack_reporter(progress, stack))
            left_out = run.finish()
        except BaseException:
            if source.digest() is None:
                writer.discard()  # it can never be resumed
            raise
    return PackReport(
        str(location),
        writer.committed.records,
        writer.committed.nbytes,
        resumed.records,
        left_out,
        0.0,
        transcoded=run.transcoded,
        kept=run.kept,
        schema=schema,
        resized=None if settings.resizing is None else run.resized,
    )


def _index(location: Location, settings: PackSettings, progress: Progress) -> IndexReport | None:
    def report(done: int, total: int) -> None:
        assert callable(progress), "called only then"
        progress(PackProgress(done, total, 0, 0))

    return make_seek_tables(location, settings.index, settings.workers, report if callable(progress) else progress)


def make_pack_reporter(progress: Progress, stack: ExitStack) -> Callable[[PackProgress], None]:
    """Make what is called for ``progress``: the caller's function, a bar that ``stack`` ends, or nothing."""
    if callable(progress):
        return progress
    show = make_reporter(bool(progress), "packing", stack)
    return lambda now: show(now.done, now.total, now.nbytes)


def _count_readers(*, is_decoding: bool) -> int:
    return count_usable_cores() if is_decoding else max(1, count_usable_cores() - 1)
