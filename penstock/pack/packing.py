"""``pack``: all threads read, check and hash; one writes, in the source's order.

::

    source ──> [8 records] ──> thread: read, check, encode, hash ──┐
           ──> [8 records] ──> thread: ...                         ├──in order──> writer ──> commits
           ──> [8 records] ──> ...                                 ┘

Whatever is not a whole, uniquely named image is listed by name: nothing is dropped silently. An interrupted pack stays
and is resumed by packing again; a refused one leaves nothing behind.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock import stores
from penstock.errors import ArgumentError, DecodeError, PackError, StoreError
from penstock.pack.check import CHECKS, check_image
from penstock.pack.indexing import KINDS, IndexReport, image_field
from penstock.pack.indexing import index as index_images
from penstock.pack.progress import shown
from penstock.pack.transcoding import TRANSCODES, to_baseline
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped, Store, Writer
from penstock.stores.names import check_classes, clashes, differing_classes

__all__ = ["ON_ERROR", "PackProgress", "PackReport", "list_bounded", "pack"]

ON_ERROR: Final = ("raise", "skip")
_CHUNK: Final = 8
_WAITING_NBYTES: Final = 64 << 20
_MAX_WAITING: Final = 256
_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class PackProgress:
    """How far a pack is: records of the source dealt with and in all, bytes of images, records left out."""

    done: int
    total: int
    nbytes: int
    skipped: int


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
        The store to write; the ending chooses its kind (``.lmdb``). An unfinished pack of the same source that is there
        is resumed, to the same bytes as if it had never been interrupted.
    on_error : {"raise", "skip"}
        What becomes of a source with files that are no images, empty, cut short, unreadable or named alike.
        ``"raise"``: all are listed, nothing is written. ``"skip"``: they are left out, and listed in the report and
        in the pack.
    workers : int, optional
        Threads that read and check; by default one per core, less one for the writer where only headers are checked.
    overwrite : bool
        Whether to replace a pack that is there, finished or not.
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
        If a finished pack is at ``dst``, or source and destination lie in one another.
    StoreError
        If the source cannot be opened or the destination not written.

    Notes
    -----
    Records keep the source's order, so index ``i`` of the pack is index ``i`` of the source unless something before it
    was skipped. The image's size is stored besides, as fields ``width`` and ``height``.
    """
    _refuse_arguments(on_error, check, transcode, index, workers)
    start = time.monotonic()
    with ExitStack() as stack:
        source = _open_source(src, classes, stack)
        kind, path = stores.find(dst, to_write=True)
        _refuse_overlap(source.url.partition("://")[2], path)
        if index != "none":
            image_field(source)
        report = _reporter(progress, stack)
        # an unfinished pack is resumed only with the same bytes to come
        digest = source.digest() + ("" if transcode == "none" else f"+{transcode}")
        writer = kind.writer(path, _packed_schema(source.schema), digest, overwrite=overwrite)
        stack.callback(writer.close)
        job = _Job(source, writer, on_error, check, transcode)
        resumed = writer.committed.records
        readers = workers or _readers(check)
        with ThreadPoolExecutor(readers, thread_name_prefix="penstock-pack") as pool:
            try:
                job.run(pool, readers, report)
            except BaseException:
                job.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        problems = job.finish()
    packed, url = writer.committed, f"{kind.kind}://{Path(path).absolute()}"
    indexed = None if index == "none" else _indexed(url, index, workers, progress)
    return PackReport(
        store=url,
        records=packed.records,
        nbytes=packed.nbytes,
        resumed=resumed,
        skipped=problems,
        elapsed_s=time.monotonic() - start,
        transcoded=job.transcoded,
        kept=job.kept,
        indexed=indexed,
    )


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


def list_bounded(skipped: Sequence[Skipped], limit: int = _LISTED) -> str:
    """One line per entry, the first ``limit`` of them."""
    lines = [f"  {key}: {reason}" for key, reason in skipped[:limit]]
    if len(skipped) > limit:
        lines.append(f"  ... and {len(skipped) - limit} more")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records as they come from a thread, in order."""

    records: list[Any]
    nbytes: int
    transcoded: int
    kept: int


class _Job:
    """One run of packing: what the threads do, and what is done with it in order."""

    def __init__(self, source: Store, writer: Writer, on_error: str, check: str, transcode: str) -> None:
        self._source, self._writer = source, writer
        self._raise, self._check, self._transcode = on_error == "raise", check, transcode == "baseline"
        self.transcoded = self.kept = 0
        keys = source.keys()
        self._refused = {
            position: f"its name equals that of {other!r}, but for case or Unicode form"
            for position, other in clashes(keys).items()
        }
        self._images = tuple(name for name in source.schema.blobs if source.schema[name].kind in {"image", "mask"})
        self._sized = "width" in _packed_schema(source.schema) and "width" not in source.schema
        self._skipped = list(writer.committed.skipped)
        self._failed = self._raise and bool(source.problems or self._refused or self._skipped)
        self._stopped = False

    def run(self, pool: ThreadPoolExecutor, workers: int, report: Callable[[PackProgress], None]) -> None:
        """Deal with every record that no earlier run has."""
        total = len(self._source)
        done, nbytes = self._writer.committed.consumed, self._writer.committed.nbytes
        for chunk in _in_order(pool, self._prepare, range(done, total), 2 * workers):
            for entry in chunk.records:
                if isinstance(entry, Skipped):
                    self._skipped.append(entry)
                    self._failed = self._failed or self._raise
                    self._writer.skip(entry)
                elif not self._failed:
                    self._writer.append(entry)
            done += len(chunk.records)
            nbytes += chunk.nbytes
            self.transcoded += chunk.transcoded
            self.kept += chunk.kept
            report(PackProgress(done, total, nbytes, len(self._skipped)))

    def stop(self) -> None:
        """Let the threads end after the record they are at."""
        self._stopped = True

    def finish(self) -> tuple[Skipped, ...]:
        """Complete the pack, or refuse the source; returns what was left out."""
        problems = (*self._skipped, *self._source.problems)
        if self._failed:
            self._writer.discard()
            raise PackError(
                f"{len(problems)} of the source's files cannot be packed (nothing was written; mend or remove them, or "
                f'pack with on_error="skip", --on-error skip):\n{list_bounded(problems)}',
                store=self._source.url,
            )
        if len(problems) >= len(self._source) + len(self._source.problems):
            self._writer.discard()
            raise PackError(f"nothing can be packed:\n{list_bounded(problems)}", store=self._source.url)
        self._writer.finish(self._source.problems)
        return problems

    def _prepare(self, indices: Sequence[int]) -> _Chunk:
        """Read, check and encode some records; runs in the pool."""
        records: list[Any] = []
        nbytes = transcoded = kept = 0
        for index in indices:
            if self._stopped:
                break
            key = self._source.keys()[index]
            try:
                if index in self._refused:
                    raise PackError(self._refused[index])  # noqa: TRY301  # one end for every refusal
                record = self._source.read([index])[0]
                fields = self._checked(record.fields)
                baseline = self._baseline(fields)
                fields = {**fields, **baseline}
                records.append(self._writer.prepare(record.key, fields))
                nbytes += sum(len(fields[name]) for name in self._source.schema.blobs)
                transcoded, kept = transcoded + len(baseline), kept + len(self._images) - len(baseline)
            except (PackError, DecodeError, StoreError) as error:
                records.append(Skipped(key, error.message))
        return _Chunk(records, nbytes, transcoded, kept)

    def _checked(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        sizes = {name: check_image(bytes(fields[name]), self._check) for name in self._images}
        if not self._sized:
            return fields
        width, height = sizes["image"]
        return {**fields, "width": width, "height": height}

    def _baseline(self, fields: Mapping[str, Any]) -> dict[str, bytes]:
        """Those of a record's images that are rewritten."""
        if not self._transcode:
            return {}
        rewritten = {name: to_baseline(bytes(fields[name])) for name in self._images}
        return {name: image for name, image in rewritten.items() if image is not None}


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[Sequence[int]], _Chunk], indices: range, least: int
) -> Iterator[_Chunk]:
    """Results of chunks of indices, in order; as many run ahead as fit in bounded memory, and ``least`` at least."""
    waiting: deque[Future[_Chunk]] = deque()
    done = nbytes = 0
    for first in range(indices.start, indices.stop, _CHUNK):
        waiting.append(pool.submit(work, range(first, min(first + _CHUNK, indices.stop))))
        allowed = max(least, min(_MAX_WAITING, _WAITING_NBYTES * done // max(nbytes, 1)))
        while len(waiting) > allowed:
            chunk = waiting.popleft().result()
            done, nbytes = done + 1, nbytes + chunk.nbytes
            yield chunk
    while waiting:
        yield waiting.popleft().result()


def _packed_schema(schema: Schema) -> Schema:
    """The source's fields, and the image's size where there is one image and no such fields."""
    if "image" in schema and schema["image"].kind == "image" and "width" not in schema and "height" not in schema:
        return Schema({**schema.fields, "width": Field("int"), "height": Field("int")})
    return schema


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
        raise ArgumentError(f"source {src!r} and destination {dst!r} lie in one another; pack to a place beside them")


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
