"""``index``: makes the seek tables of the images of a store, in a file beside it. No image is changed.

::

    records without a table ──> thread, or task of Ray: read, scan the JPEG once ──table──> file
                            ──> thread, or task of Ray: ...

An interrupted run is resumed: existing tables are not made again.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from penstock import _native, stores
from penstock.errors import ArgumentError, DecodeError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.pack.on_ray.tasks import connected, is_on_ray, run_on_ray
from penstock.pack.pipeline.image_check import MAX_PIXELS
from penstock.pack.pipeline.run import run_in_order
from penstock.paths import COEFFICIENTS
from penstock.progress import ProgressReporter, make_reporter
from penstock.sample import Blob
from penstock.stores.base import Skipped, Store
from penstock.stores.common.seek_table_file import SEEK_TABLE_KINDS, SeekTableFile, seek_table_path
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.location import Location
from penstock.system.control_group import count_usable_cores
from penstock.transforms.decoding import fallback

__all__ = ["IndexReport", "find_image_field", "index", "join_reports", "make_seek_tables"]

_TASK_RECORDS: Final = 16
_RAY_TASK_RECORDS: Final = 256
_LOOKED_AT: Final = 64
_JPEG: Final = b"\xff\xd8"
_Scanned = tuple[Sequence[int], list[bytes | str], int]
"""Some images, of each its seek table or why it can have none, and their bytes in all."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of :func:`index`.

    Parameters
    ----------
    store, path : str
        URL of the store, and the file of decode indices.
    kind : {"rows", "tiles"}
        Of the indices.
    indexed, nbytes : int
        Number of images that have an index now, and the size of the file.
    resumed : int
        Number of images that had one before.
    left_out : tuple of Skipped
        (key, reason) of images without an index: they are decoded from their beginning.
    elapsed_s : float
        Duration.
    """

    store: str
    path: str
    kind: str
    indexed: int
    nbytes: int
    resumed: int
    left_out: tuple[Skipped, ...]
    elapsed_s: float


def index(
    store: str | os.PathLike[str] | Store,
    *,
    kind: str = "auto",
    field: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], None] | None = None,
    on: str | None = None,
) -> IndexReport:
    """Make the decode indices of the images of a store: decoding of a crop then begins inside the JPEG.

    Parameters
    ----------
    store : str, path or Store
        A pack, or a folder of images.
    kind : {"auto", "rows", "tiles"}
        Where decoding may begin: at each row of 8 or 16 pixels (about 0.25 % of the size of the images), or at each 64
        pixels of a row (2 %). "auto": as the indices that the store has, else tiles.
    field : str, optional
        The field of images; needed if there are several.
    workers : int, optional
        Number of threads; by default one for each core.
    overwrite : bool
        Whether to make existing indices again. By default only images without an index get one.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets the number of images done and of all images.
    on : {"ray"}, optional
        Where images are read: on the nodes of a Ray cluster, which open the store; this process writes the file. By
        default in threads of this process.

    Returns
    -------
    IndexReport
        Counts, and the images without an index: other formats, and JPEGs that are not baseline.

    Raises
    ------
    ArgumentError
        If ``kind`` or ``on`` is unknown, there is no such field, or ``workers`` is given with ``on="ray"``.
    WorkerError
        With ``on="ray"``, if a task is lost again and again. The tables that were made are kept.
    StoreFormatError
        If there are indices of another kind or of other records, and ``overwrite`` is not given.
    StoreError
        If the store cannot be read, or the file beside it cannot be written.
    """
    if kind not in ("auto", *SEEK_TABLE_KINDS):
        raise ArgumentError(f"kind must be one of auto, {', '.join(SEEK_TABLE_KINDS)}, got {kind!r}")
    if is_on_ray(on) and workers is not None:
        raise ArgumentError(f"workers must be None with on='ray', whose tasks take one CPU each, got {workers}")
    start = time.monotonic()
    with ExitStack() as stack:
        opened = store if isinstance(store, Store) else stack.enter_context(stores.open(store))
        if is_on_ray(on):
            stack.enter_context(connected())
        name = find_image_field(opened, field)
        if isinstance(opened, ShardedPack):
            show = make_reporter(progress, "indexing", stack)
            reports = list(_index_shards(opened, kind, name, workers, show, on=on, overwrite=overwrite))
            joined = join_reports(reports)
            return replace(joined, store=opened.url, path=opened.location.path, elapsed_s=time.monotonic() - start)
        path = seek_table_path(opened.location, name)
        if overwrite:
            _remove(path)
        if kind == "auto":
            kind = _find_kind(opened, name) or "tiles"
        file = stack.enter_context(_open_file(path, opened, kind))
        report = make_reporter(progress, "indexing", stack)
        resumed = len(file)
        left_out = _make_tables(opened, name, file, None if is_on_ray(on) else workers or count_usable_cores(), report)
        return IndexReport(
            store=opened.url,
            path=str(path),
            kind=kind,
            indexed=len(file),
            nbytes=path.stat().st_size,
            resumed=resumed,
            left_out=tuple(Skipped(opened.keys()[index], reason) for index, reason in sorted(left_out)),
            elapsed_s=time.monotonic() - start,
        )


def make_seek_tables(
    location: Location, kind: str, workers: int | None, progress: bool | Callable[[int, int], None] | None
) -> IndexReport | None:
    """Make the seek tables of each field of images of a pack that was just written.

    Parameters
    ----------
    location : Location
        The pack.
    kind : {"auto", "rows", "tiles"}
        ``"auto"``: for fields that hold JPEGs, tiles, or as the seek tables that the field has; none for a server.
    workers, progress
        As for :func:`index`.

    Returns
    -------
    IndexReport or None
        Of all fields together; None if nothing was made.
    """
    if kind == "auto" and not location.is_local:
        return None
    reports = []
    with stores.open(location) as store:
        for field in _list_image_fields(store):
            if kind == "auto" and (_find_kind(store, field) is None or not _holds_jpegs(store, field)):
                continue
            reports.append(index(store, kind=kind, field=field, workers=workers, progress=progress))
    if not reports:
        return None
    joined, remote = join_reports(reports), location.remote
    # a file here is sent there, and removed
    return joined if remote is None else replace(joined, path=f"{remote.url}/{Path(joined.path).name}")


def _index_shards(
    store: ShardedPack,
    kind: str,
    field: str,
    workers: int | None,
    show: ProgressReporter,
    *,
    on: str | None,
    overwrite: bool,
) -> Iterator[IndexReport]:
    begin = 0
    for shard in store.shards():
        report = functools.partial(_report_shard, show, begin, len(store))
        yield index(shard, kind=kind, field=field, workers=workers, overwrite=overwrite, progress=report, on=on)
        begin += len(shard)


def _report_shard(show: ProgressReporter, begin: int, total: int, done: int, _: int) -> None:
    show(begin + done, total, 0)


def join_reports(reports: Sequence[IndexReport]) -> IndexReport:
    """Return what is said of the first, with the counts of all."""
    return replace(
        reports[0],
        indexed=sum(report.indexed for report in reports),
        nbytes=sum(report.nbytes for report in reports),
        resumed=sum(report.resumed for report in reports),
        left_out=tuple(entry for report in reports for entry in report.left_out),
        elapsed_s=sum(report.elapsed_s for report in reports),
    )


def _find_kind(store: Store, field: str) -> str | None:
    """The kind of the seek tables of this store, tiles if there are none; None if the file is of other records."""
    try:
        with SeekTableFile(seek_table_path(store.location, field), store.fingerprint(), len(store)) as file:
            return file.kind
    except StoreNotFoundError:
        return "tiles"
    except StoreError:
        return None


def _holds_jpegs(store: Store, field: str) -> bool:
    """Return whether one of some images is a JPEG."""
    some = np.unique(np.linspace(0, len(store) - 1, min(len(store), _LOOKED_AT)).astype(np.int64))
    return any(bytes(image[:2]) == _JPEG for index in some.tolist() for image in store.blobs(field, [index]))


def find_image_field(store: Store, field: str | None = None) -> str:
    """The name of the field of images; ArgumentError if there is none, or several and ``field`` is not given."""
    images = _list_image_fields(store)
    if field is None and len(images) == 1:
        return images[0]
    if field not in images:
        raise ArgumentError(
            f"field must be one of the fields of images ({', '.join(images) or 'there are none'}), got {field!r}"
        )
    return field


def _list_image_fields(store: Store) -> list[str]:
    return [name for name in store.schema.blobs if store.schema[name].kind == "image"]


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"its decode indices cannot be removed: {error.strerror}", store=str(path)) from error


def _open_file(path: Path, store: Store, kind: str) -> SeekTableFile:
    if not store.location.is_local:
        path.parent.mkdir(parents=True, exist_ok=True)  # in the cache folder
    try:
        return SeekTableFile(path, store.fingerprint(), len(store), kind)
    except StoreFormatError as error:
        raise StoreFormatError(f"{error.message}; overwrite=True (--overwrite) replaces them", **error.where) from error


def _make_tables(
    store: Store, field: str, file: SeekTableFile, workers: int | None, report: Callable[[int, int, int], None]
) -> list[tuple[int, str]]:
    """Make the missing seek tables, in threads or on Ray; return the records that can have none, with the reason."""
    missing = file.missing()
    left_out: list[tuple[int, str]] = []
    done, nbytes = len(store) - len(missing), 0
    given, step = (store, field, file.kind), _RAY_TASK_RECORDS if workers is None else _TASK_RECORDS
    tasks = (missing[first : first + step].tolist() for first in range(0, len(missing), step))
    with ExitStack() as stack:
        if workers is None:
            results = run_on_ray(_scan_images, given, tasks)
        else:
            results = run_in_order(functools.partial(_scan_images, given), tasks, workers, "index", 2 * workers)
        for indices, tables, size in stack.enter_context(closing(results)):
            for index, table in zip(indices, tables, strict=True):
                if isinstance(table, bytes):
                    file.put(index, table)
                else:
                    left_out.append((index, table))
            done, nbytes = done + len(indices), nbytes + size
            report(done, len(store), nbytes)
    return left_out


def _scan_images(given: tuple[Store, str, str], indices: Sequence[int]) -> _Scanned:
    """Make the seek tables, of a kind, of some images of a field."""
    store, field, kind = given
    images = store.blobs(field, indices)
    return indices, [_scan_image(image, kind) for image in images], sum(len(image or b"") for image in images)


def _scan_image(image: Blob | None, kind: str) -> bytes | str:
    """The seek table of an image, or why it can have none."""
    if image is None:
        return "the record has no image"
    try:
        return _native.build_index(image, kind, MAX_PIXELS) if bytes(image[:2]) == _JPEG else _describe_format(image)
    except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError) as error:
        return str(error)


def _describe_format(image: bytes | memoryview) -> str:
    """Why an image that is no JPEG has no seek table."""
    if bytes(image[:4]) == COEFFICIENTS:
        return "stored as coefficients: a crop reads only a part of them without a decode index"
    try:
        return f"{fallback.sniff(bytes(image[:32]))}, not JPEG: only JPEGs have a decode index"
    except DecodeError as error:
        return error.message
