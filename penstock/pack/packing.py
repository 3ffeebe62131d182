"""``pack``: a source becomes a store; :mod:`.job` does the work.

Whatever is not a whole, uniquely named image is listed by name: nothing is dropped silently. An interrupted pack stays
and is resumed by packing again; a refused one leaves nothing behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock import stores
from penstock.errors import ArgumentError
from penstock.pack.check import CHECKS
from penstock.pack.indexing import KINDS, IndexReport, image_field
from penstock.pack.indexing import index as index_images
from penstock.pack.job import Job, PackProgress, find_clashing, packed_schema, refuse_left_out, refuse_listed
from penstock.pack.progress import shown
from penstock.pack.transcoding import TRANSCODES
from penstock.stores.base import Skipped, Store
from penstock.stores.names import check_classes, differing_classes
from penstock.stores.origin import Origin

__all__ = ["ON_ERROR", "PackReport", "pack"]

ON_ERROR: Final = ("raise", "skip")


@dataclass(frozen=True, slots=True)
class PackReport:
    """What came of a pack.

    Parameters
    ----------
    store : str
        URL of the store.
    records, nbytes : int
        Records in it, and bytes of their blobs.
    resumed : int
        How many of the records an earlier, interrupted run had written.
    skipped : tuple of Skipped
        (name, reason) of whatever the source holds that the pack does not.
    elapsed_s : float
        Duration of this run.
    transcoded, kept : int
        Images that this run rewrote (``transcode="baseline"``), and those that it stored as they were.
    indexed : IndexReport, optional
        What came of ``index``.
    reused : bool
        Whether a finished pack of the same source and options was there: it is used as it is, and nothing was written.
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
        Whatever :func:`penstock.open` opens: a folder of images, another store.
    dst : str or path
        The store to write; the ending chooses its kind (``.lmdb``). If a pack of the same source and options is there,
        an unfinished one is resumed, to the same bytes as if it had never been interrupted, and a finished one is used
        as it is.
    on_error : {"raise", "skip"}
        What becomes of images that are empty, cut short, damaged, unreadable, named alike or of a format that is not
        read. ``"raise"``: all are listed, nothing is written; what the listing alone tells, before an image is read.
        ``"skip"``: they are left out, and listed in the report and in the pack. What is no image by its name (a README,
        a table of labels, ``Thumbs.db``) is listed there in either case, and refuses nothing.
    workers : int, optional
        Threads that read and check; by default one per core, less one for the writer where only headers are checked.
    overwrite : bool
        Whether to replace a pack that is there, finished or not, and whatever it was made from.
    check : {"header", "decode"}
        How closely each image is looked at; see :mod:`penstock.pack.check`.
    transcode : {"none", "baseline"}
        ``"baseline"``: JPEGs of several scans (progressive ones, and a few others) are stored as baseline ones of the
        same pixels and metadata, a few per cent larger, which decode faster and in parts; all else is stored as it is.
    index : {"none", "rows", "tiles"}
        Make decode indices beside the finished pack; see :func:`penstock.index`, which can do it later as well.
    classes : sequence of str, optional
        Names of the classes in the order of their numbers, for a folder of images; see
        :class:`~penstock.stores.files.FilesStore`. By default its sub-folders in plain string order, as in torchvision.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets a :class:`PackProgress` now and then, in this thread.

    Returns
    -------
    PackReport
        Counts, and what was left out.

    Raises
    ------
    PackError
        With ``on_error="raise"``, if anything cannot be packed; each such file is named with the reason.
    ArgumentError
        If a finished pack is at ``dst`` whose source was changed since or that was made with other options (the message
        says which), or source and destination lie in one another.
    StoreError
        If the source cannot be opened or the destination not written, or an unfinished pack of another source or
        other options is there.

    Notes
    -----
    Records keep the source's order, so index ``i`` of the pack is index ``i`` of the source unless something before it
    was skipped. The image's size is stored besides, as fields ``width`` and ``height``. The options that decide what a
    pack holds are ``check``, ``transcode`` and ``classes``; a folder counts as unchanged if names, sizes and times of
    change of its images are the same.
    """
    _refuse_arguments(on_error, check, transcode, index, workers)
    start = time.monotonic()
    with ExitStack() as stack:
        source = _open_source(src, classes, stack)
        kind, path = stores.find(dst, to_write=True)
        _refuse_overlap(source.url.partition("://")[2], path)
        if index != "none":
            image_field(source)
        clashing = find_clashing(source)
        if on_error == "raise":
            refuse_listed(source, clashing)
        schema = packed_schema(source.schema)
        origin = Origin(source.digest(), {"check": check, "transcode": transcode}).to_text()
        url = f"{kind.kind}://{Path(path).absolute()}"
        held = None if overwrite else kind.finished(path, schema, origin)
        if held is not None:
            if on_error == "raise":
                refuse_left_out(source, held.skipped)
            report = PackReport(url, held.records, held.nbytes, 0, held.skipped, 0.0, reused=True)
        else:
            replaces = overwrite and os.path.lexists(path)
            writer = kind.writer(path, schema, origin, overwrite=overwrite)
            stack.callback(writer.close)
            resumed = writer.committed
            if on_error == "raise":
                refuse_left_out(source, resumed.skipped)
            job = Job(source, writer, clashing, on_error=on_error, check=check, transcode=transcode, replaces=replaces)
            left_out = _run(job, workers or _readers(check), _reporter(progress, stack))
            done = writer.committed
            report = PackReport(
                url, done.records, done.nbytes, resumed.records, left_out, 0.0, job.transcoded, job.kept
            )
    indexed = None if index == "none" else _indexed(url, index, workers, progress)
    return replace(report, elapsed_s=time.monotonic() - start, indexed=indexed)


def _run(job: Job, readers: int, report: Callable[[PackProgress], None]) -> tuple[Skipped, ...]:
    """Run a job to its end; gives what was left out."""
    with ThreadPoolExecutor(readers, thread_name_prefix="penstock-pack") as pool:
        try:
            job.run(pool, readers, report)
        except BaseException:
            job.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return job.finish()


def _open_source(src: str | os.PathLike[str] | Store, classes: Sequence[str] | None, stack: ExitStack) -> Store:
    if not isinstance(src, Store):
        return stack.enter_context(stores.open(src, **({} if classes is None else {"classes": classes})))
    held = src.schema["label"].classes if "label" in src.schema else ()
    if classes is not None and check_classes(classes) != held:
        raise ArgumentError(
            f"the source is open, and its classes {differing_classes(held, tuple(classes))}; open the source with "
            "classes=[...]",
            store=src.url,
        )
    return src


def _indexed(
    url: str, kind: str, workers: int | None, progress: bool | Callable[[PackProgress], None] | None
) -> IndexReport:
    def told(done: int, total: int) -> None:
        assert callable(progress), "only then"
        progress(PackProgress(done, total, 0, 0))

    return index_images(url, kind=kind, workers=workers, progress=told if callable(progress) else progress)


def _refuse_arguments(on_error: str, check: str, transcode: str, index: str, workers: int | None) -> None:
    if on_error not in ON_ERROR:
        raise ArgumentError(f"on_error={on_error!r} is not one of {', '.join(ON_ERROR)}")
    if check not in CHECKS:
        raise ArgumentError(f"check={check!r} is not one of {', '.join(CHECKS)}")
    if transcode not in TRANSCODES:
        raise ArgumentError(f"transcode={transcode!r} is not one of {', '.join(TRANSCODES)}")
    if index not in ("none", *KINDS):
        raise ArgumentError(f"index={index!r} is not one of none, {', '.join(KINDS)}")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers}: at least one thread must read; None takes one per core")


def _refuse_overlap(src: str, dst: str) -> None:
    real_src, real_dst = Path(src).resolve(), Path(dst).resolve()
    if real_src.is_relative_to(real_dst) or real_dst.is_relative_to(real_src):
        raise ArgumentError(
            f"source {src!r} and destination {dst!r} lie in one another; choose a destination outside the source"
        )


def _reporter(
    progress: bool | Callable[[PackProgress], None] | None, stack: ExitStack
) -> Callable[[PackProgress], None]:
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None
    show = stack.enter_context(shown("packing"))
    return lambda at: show(at.done, at.total, at.nbytes)


def _readers(check: str) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if check == "decode" else max(1, cores - 1)
