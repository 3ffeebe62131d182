"""``pack``: makes a store from a source; :mod:`.run` runs the threads.

An entry that is not a complete, uniquely named image is listed by name: nothing is dropped silently. An interrupted
pack stays and is resumed by packing again; a refused one leaves no files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from penstock import stores
from penstock.errors import ArgumentError
from penstock.pack.image_check import CHECKS
from penstock.pack.progress import show_progress
from penstock.pack.run import PackProgress, PackRun, add_size_fields, find_clashes, refuse_left_out, refuse_unpackable
from penstock.pack.seek_tables import IndexReport, find_image_field
from penstock.pack.seek_tables import index as index_images
from penstock.pack.transcoding import TRANSCODES
from penstock.stores.base import Skipped, Store
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.record_names import check_classes, describe_class_difference
from penstock.stores.seek_table_file import SEEK_TABLE_KINDS
from penstock.stores.writing import CommittedRecords

__all__ = ["ON_ERROR", "PackReport", "pack"]

ON_ERROR: Final = ("raise", "skip")
T_prepared = TypeVar("T_prepared")


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
        Number of images that this run rewrote (``transcode="baseline"``), and that it stored as they were.
    indexed : IndexReport, optional
        The result of ``index``.
    reused : bool
        Whether a finished pack of the same source and options existed; it is used as it is, and nothing was written.
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


def pack(
    src: str | os.PathLike[str] | Store,
    dst: str | os.PathLike[str],
    *,
    on_error: str = "raise",
    workers: int | None = None,
    overwrite: bool = False,
    check: str = "header",
    transcode: str = "none",
    index: str = "none",
    classes: Sequence[str] | None = None,
    progress: bool | Callable[[PackProgress], None] | None = None,
) -> PackReport:
    """Pack a source into a store.

    Parameters
    ----------
    src : str, path or Store
        Anything that :func:`penstock.open` opens: a folder of images, another store.
    dst : str or path
        The store to write; its ending chooses its kind (``.lmdb``). If a pack of the same source and options exists, an
        unfinished one is resumed, to the same bytes as without the interruption, and a finished one is used as it is.
    on_error : {"raise", "skip"}
        What to do with images that are empty, truncated, damaged or unreadable, that have the name of another, or a
        format that cannot be decoded. ``"raise"``: list all of them and write nothing; those that the listing shows are
        reported before an image is read. ``"skip"``: leave them out, and list them in the report and in the pack. Files
        that are no images by their names (a README, ``Thumbs.db``) are only listed.
    workers : int, optional
        Number of threads that read and check; by default one for each core, less one for the writer if only headers are
        checked.
    overwrite : bool
        Whether to replace an existing pack, finished or not, whatever its source.
    check : {"header", "decode"}
        How each image is checked; see :mod:`penstock.pack.image_check`.
    transcode : {"none", "baseline"}
        ``"baseline"``: store JPEGs of several scans (progressive ones, and a few others) as baseline JPEGs of the same
        pixels and metadata, which are a few per cent larger and decode faster and in parts.
    index : {"none", "rows", "tiles"}
        Make decode indices beside the finished pack; :func:`penstock.index` can make them later.
    classes : sequence of str, optional
        Names of the classes in the order of their numbers, for a folder of images; see
        :class:`~penstock.stores.files.FilesStore`. By default its sub-folders in plain string order, as in torchvision.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets a :class:`PackProgress` from time to time, in this thread.

    Returns
    -------
    PackReport
        Counts, and the entries that were left out.

    Raises
    ------
    PackError
        With ``on_error="raise"``, if a file cannot be packed; each such file is named with the reason.
    ArgumentError
        If an argument is invalid, one of source and destination is inside the other, or ``dst`` is a finished pack of
        another or a changed source, or of other options; the message says which.
    StoreError
        If the source cannot be opened, the destination cannot be written, or ``dst`` is an unfinished pack of another
        source or other options.

    Notes
    -----
    Records keep the order of the source: index ``i`` of the pack is index ``i`` of the source unless a record before it
    was skipped. The size of the image is added, as fields ``width`` and ``height``. The options that decide what a pack
    contains are ``check``, ``transcode`` and ``classes``. A folder is unchanged if names, sizes and times of change of
    its images are the same.
    """
    _refuse_arguments(on_error, check, transcode, index, workers)
    start = time.monotonic()
    with ExitStack() as stack:
        source = _open_source(src, classes, stack)
        kind, location = stores.find(dst, to_write=True)
        _refuse_overlap(source.location, location)
        if index != "none":
            find_image_field(source)
        clashing = find_clashes(source)
        if on_error == "raise":
            refuse_unpackable(source, clashing)
        schema = add_size_fields(source.schema)
        origin = Origin(source.digest(), {"check": check, "transcode": transcode}).to_text()
        finished = None if overwrite else kind.finished(location, schema, origin)
        if finished is not None:
            if on_error == "raise":
                refuse_left_out(source, finished.skipped)
            report = _report(location, finished, 0, finished.skipped, reused=True)
        else:
            replaces = overwrite and location.exists()
            writer = kind.writer(location, schema, origin, overwrite=overwrite)
            stack.callback(writer.close)
            resumed = writer.committed
            if on_error == "raise":
                refuse_left_out(source, resumed.skipped)
            run = PackRun(
                source, writer, clashing, on_error=on_error, check=check, transcode=transcode, replaces=replaces
            )
            left_out = _complete(run, workers or _count_readers(check), _make_reporter(progress, stack))
            report = _report(location, writer.committed, resumed.records, left_out)
            report = replace(report, transcoded=run.transcoded, kept=run.kept)
    indexed = None if index == "none" else _make_seek_tables(location, index, workers, progress)
    return replace(report, elapsed_s=time.monotonic() - start, indexed=indexed)


def _report(
    location: Location, done: CommittedRecords, resumed: int, skipped: tuple[Skipped, ...], *, reused: bool = False
) -> PackReport:
    return PackReport(str(location), done.records, done.nbytes, resumed, skipped, 0.0, reused=reused)


def _complete(run: PackRun[T_prepared], readers: int, report: Callable[[PackProgress], None]) -> tuple[Skipped, ...]:
    """Run packing to its end; returns the entries that were left out."""
    with ThreadPoolExecutor(readers, thread_name_prefix="penstock-pack") as pool:
        try:
            run.run(pool, readers, report)
        except BaseException:
            run.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return run.finish()


def _open_source(src: str | os.PathLike[str] | Store, classes: Sequence[str] | None, stack: ExitStack) -> Store:
    if not isinstance(src, Store):
        return stack.enter_context(stores.open(src, **({} if classes is None else {"classes": classes})))
    held = src.schema["label"].classes if "label" in src.schema else ()
    if classes is not None and check_classes(classes) != held:
        raise ArgumentError(
            "classes must be those of the source, which is open already; its classes "
            f"{describe_class_difference(held, tuple(classes))}; open the source with "
            "classes=[...]",
            store=src.url,
        )
    return src


def _make_seek_tables(
    location: Location, index: str, workers: int | None, progress: bool | Callable[[PackProgress], None] | None
) -> IndexReport:
    def report(done: int, total: int) -> None:
        assert callable(progress), "called only then"
        progress(PackProgress(done, total, 0, 0))

    return index_images(location, kind=index, workers=workers, progress=report if callable(progress) else progress)


def _refuse_arguments(on_error: str, check: str, transcode: str, index: str, workers: int | None) -> None:
    if on_error not in ON_ERROR:
        raise ArgumentError(f"on_error must be one of {', '.join(ON_ERROR)}, got {on_error!r}")
    if check not in CHECKS:
        raise ArgumentError(f"check must be one of {', '.join(CHECKS)}, got {check!r}")
    if transcode not in TRANSCODES:
        raise ArgumentError(f"transcode must be one of {', '.join(TRANSCODES)}, got {transcode!r}")
    if index not in ("none", *SEEK_TABLE_KINDS):
        raise ArgumentError(f"index must be one of none, {', '.join(SEEK_TABLE_KINDS)}, got {index!r}")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers must be at least 1, or None for one for each core, got {workers}")


def _refuse_overlap(src: Location, dst: Location) -> None:
    if src.overlaps(dst):
        raise ArgumentError(f"the destination must be outside the source, got source {src} and destination {dst}")


def _make_reporter(
    progress: bool | Callable[[PackProgress], None] | None, stack: ExitStack
) -> Callable[[PackProgress], None]:
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None
    show = stack.enter_context(show_progress("packing"))
    return lambda progress: show(progress.done, progress.total, progress.nbytes)


def _count_readers(check: str) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if check == "decode" else max(1, cores - 1)
