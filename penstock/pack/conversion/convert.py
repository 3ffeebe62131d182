"""``convert``: writes a store as one of another kind, and proves that nothing was lost or mispaired.

::

    1. copy     source ──threads──> records in order ──> writer of the kind          resumed after a kill
    2. sidecar  fields, class names and keys without a place ──> a pack beside it    only where there are any
    3. proof    both sides are opened anew, and compared record by record
    4. report   counts, digests, what was renamed, added beside or left out: printed, and kept beside the store
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from penstock import stores
from penstock.annotations import WRITERS
from penstock.errors import ArgumentError, CorruptRecordError, check_choice
from penstock.pack.conversion.report import ConvertReport, describe_problems
from penstock.pack.conversion.run import Conversion, ConvertProgress
from penstock.pack.export.exporting import export
from penstock.pack.on_ray.conversions import convert_on_ray
from penstock.pack.on_ray.tasks import is_on_ray
from penstock.pack.sources.store import refuse_annotations
from penstock.pack.staging import staged
from penstock.paths import parse_size
from penstock.progress import make_reporter
from penstock.stores import StoreLike
from penstock.stores.base import Store
from penstock.stores.common.journal import writing_at
from penstock.stores.location import Location
from penstock.system.control_group import count_usable_cores

__all__ = ["convert"]

ON_ERROR: Final = ("raise", "skip")


def convert(
    src: StoreLike | Store,
    dst: str | os.PathLike[str],
    *,
    layout: str | None = None,
    options: Mapping[str, object] | None = None,
    to_layout: str | None = None,
    to_options: Mapping[str, object] | None = None,
    on_error: str = "raise",
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool | ConvertProgress | None = None,
    storage_options: Mapping[str, object] | None = None,
    on: str | None = None,
    shard_size: int | str | None = None,
) -> ConvertReport:
    """Write a store as one of another kind, then read both back and compare every record.

    Parameters
    ----------
    src : str, path, list of paths, or Store
        The source: anything that :func:`penstock.open` opens.
    dst : str or path
        What is written; its suffix or scheme chooses the kind: ``.lmdb``, ``.tar``, ``.h5``, ``.parquet``,
        ``files://folder``. An unfinished conversion of the same source is resumed.
    layout, options : str and mapping, optional
        How the source is opened: see :func:`penstock.open`.
    to_layout, to_options : str and mapping, optional
        The format of what is written, and the options of its writer. ``"voc"``, ``"yolo"`` and ``"coco"`` write a
        folder of images and annotations from a store with boxes and their classes
        (:data:`penstock.annotations.WRITERS`); it is never there in part, and an interrupted run begins anew. Fields
        without a place in such a format are listed in ``left_out``.
    on_error : {"raise", "skip"}
        What to do with records that cannot be read or written: raise an error that lists them, or leave them out and
        list them in the report.
    workers : int, optional
        Number of threads that read; by default one for each core.
    overwrite : bool
        Whether to replace what is at ``dst``.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets the step, the number of records done and of all records, and the
        bytes so far.
    storage_options : mapping, optional
        Of ``dst``, where it is a URL such as ``s3://bucket/photos.lmdb``; as for :func:`penstock.pack`.
    on : {"ray"}, optional
        Convert in tasks of a Ray cluster, to a sharded pack; as for :func:`penstock.pack`. Each task compares both
        sides of the records that it wrote. By default in threads of this process.
    shard_size : int or str, optional
        With ``on="ray"``: at most about so many bytes a shard, by default "256MB".

    Returns
    -------
    ConvertReport
        Counts, digests of both sides, what was renamed, what is in the sidecar pack, and what was left out.

    Raises
    ------
    ArgumentError
        If an argument is invalid, the kind cannot be written, or one of source and destination is inside the other.
    PackError
        With ``on_error="raise"``, if records cannot be converted; each is named with the reason.
    CorruptRecordError
        If what was written is not what is in the source. The destination stays for inspection.
    StoreError
        If the source cannot be opened, or the destination cannot be written.

    Notes
    -----
    Fields, class names and keys for which the format has no place are written to a sidecar pack beside the store, and
    :func:`penstock.open` joins both. The memory needed does not grow with the number of records, except for their keys.
    """
    shard_nbytes = _check_arguments(on_error, workers, to_layout, on, shard_size)
    start = time.monotonic()
    with ExitStack() as stack:
        if isinstance(src, Store) and (layout is not None or options):
            raise ArgumentError("layout and options must be given where the source is opened; it is open already")
        if isinstance(src, str | os.PathLike) and "classes" not in (options or {}):
            refuse_annotations(Path(src))
        source = (
            src if isinstance(src, Store) else stack.enter_context(stores.open(src, layout=layout, **options or {}))
        )
        show = _make_reporter(progress, stack)
        if to_layout is not None:
            report = export(source, dst, to_layout, to_options or {}, on_error=on_error, overwrite=overwrite, show=show)
            return _finish(report, Location.from_path(to_layout, dst), time.monotonic() - start, start)
        target = stack.enter_context(staged(dst, storage_options, overwrite=overwrite))
        kind, location = stores.find(target, to_write=True)
        _refuse_overlap(source.location, location)
        stores.refuse_unknown_options(kind, kind.writer, to_options or {})
        if is_on_ray(on):
            report, location = convert_on_ray(
                source, target, to_options or {}, on_error=on_error, workers=workers, shard_nbytes=shard_nbytes,
                overwrite=overwrite, show=show,
            )  # fmt: skip
            return _finish(report, location, time.monotonic() - start, start)
        threads, chosen = workers or count_usable_cores(), dict(to_options or {})
        conversion = Conversion(source, kind, location, chosen, on_error=on_error, workers=threads, show=show)
        conversion.copy(overwrite=overwrite)
        copied_s = time.monotonic() - start
        with writing_at("the fields beside the container cannot be written", str(location)):
            conversion.write_sidecar()
        return _finish(conversion.prove(), conversion.written_location, copied_s, start)


def _check_arguments(
    on_error: str, workers: int | None, to_layout: str | None, on: str | None, shard_size: int | str | None
) -> int | None:
    """Return the bytes of a shard, if they are given.

    Raises an ArgumentError for what no source and destination allow.
    """
    check_choice("on_error", on_error, ON_ERROR)
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers must be at least 1, or None for one for each core, got {workers}")
    if is_on_ray(on) and to_layout is not None:
        raise ArgumentError(f"on='ray' writes packs (.lmdb), got to_layout={to_layout!r}: convert without on='ray'")
    if to_layout is not None:
        check_choice("to_layout", to_layout, tuple(WRITERS))
    if not is_on_ray(on) and shard_size is not None:
        raise ArgumentError(f"shard_size must be given with on='ray', or to pack, got shard_size={shard_size!r}")
    return None if shard_size is None else parse_size(shard_size, "shard_size")


def _finish(report: ConvertReport, written: Location, copied_s: float, start: float) -> ConvertReport:
    """Keep the report beside what was written; refuse differences."""
    report = report.with_times(copied_s, time.monotonic() - start)
    with writing_at("the report of the conversion cannot be written", str(written)):
        report.write(written)
    if not report.ok:
        differences = describe_problems(report.problems)
        raise CorruptRecordError(
            f"what was written is not what is in the source; nothing was removed:\n{differences}", store=str(written)
        )
    return report


def _refuse_overlap(src: Location, dst: Location) -> None:
    if src.overlaps(dst):
        raise ArgumentError(f"the destination must be outside the source, got source {src} and destination {dst}")


def _make_reporter(progress: bool | ConvertProgress | None, stack: ExitStack) -> ConvertProgress:
    if callable(progress):
        return progress
    show = functools.cache(lambda step: make_reporter(bool(progress), step, stack))
    return lambda step, *counts: show(step)(*counts)
