"""``index``: make the decode indices of a store's images, in a file beside it. No image is touched.

::

    records without an entry ──> thread: read, walk through the JPEG once ──entry──> file
                             ──> thread: ...

An interrupted run is resumed: entries that are there are not made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock import _native, stores
from penstock.errors import ArgumentError, DecodeError, StoreError, StoreFormatError
from penstock.pack.check import MAX_PIXELS
from penstock.pack.progress import shown
from penstock.stores.base import Skipped, Store
from penstock.stores.index_file import IndexFile, index_path
from penstock.transforms import fallback

__all__ = ["KINDS", "IndexReport", "image_field", "index"]

KINDS: Final = ("rows", "tiles")
_CHUNK: Final = 16


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What came of indexing.

    Parameters
    ----------
    store, path : str
        URL of the store, and the file of indices.
    kind : {"rows", "tiles"}
        Of the indices.
    indexed, nbytes : int
        Images that have one now, and the file's size.
    resumed : int
        How many had one before.
    left_out : tuple of Skipped
        (key, reason) of images that decoding can begin in only at their beginning.
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
    kind: str = "rows",
    field: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Make the decode indices of a store's images: crops then begin in the middle of a JPEG.

    Parameters
    ----------
    store : str, path or Store
        A pack, or a folder of images.
    kind : {"rows", "tiles"}
        Places to begin: each row of 8 or 16 pixels (about 0.25 % of the images' size), or each 64 pixels of one (2 %).
    field : str, optional
        Which field, where several are images.
    workers : int, optional
        Threads; by default one per core.
    overwrite : bool
        Whether to make again what is there; without, only images without an index get one.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets images done and images in all.

    Returns
    -------
    IndexReport
        Counts, and which images have none: other formats, and JPEGs that are not baseline.

    Raises
    ------
    ArgumentError
        If there is no such field.
    StoreFormatError
        If indices of another kind, or of other records, are there and ``overwrite`` is not given.
    StoreError
        If the store cannot be read, or the file beside it not be written.
    """
    if kind not in KINDS:
        raise ArgumentError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    start = time.monotonic()
    with ExitStack() as stack:
        opened = store if isinstance(store, Store) else stack.enter_context(stores.open(store))
        name = image_field(opened, field)
        path = index_path(opened.url.partition("://")[2], name)
        if overwrite:
            _remove(path)
        file = stack.enter_context(_index_file(path, opened, kind))
        report = _reporter(progress, stack)
        resumed = len(file)
        left_out = _run(opened, name, file, workers or len(os.sched_getaffinity(0)), report)
        return IndexReport(
            store=opened.url,
            path=str(path),
            kind=kind,
            indexed=len(file),
            nbytes=path.stat().st_size,
            resumed=resumed,
            left_out=tuple(Skipped(opened.keys()[at], reason) for at, reason in sorted(left_out)),
            elapsed_s=time.monotonic() - start,
        )


def image_field(store: Store, field: str | None = None) -> str:
    """The field of images that is meant; an ArgumentError says which there are."""
    images = [name for name in store.schema.blobs if store.schema[name].kind == "image"]
    if field is None and len(images) == 1:
        return images[0]
    if field not in images:
        raise ArgumentError(f"field={field!r} is no field of images; this store has: {', '.join(images) or 'none'}")
    return field


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"its decode indices cannot be removed: {error.strerror}", store=str(path)) from error


def _index_file(path: Path, store: Store, kind: str) -> IndexFile:
    try:
        return IndexFile(path, store.fingerprint(), len(store), kind)
    except StoreFormatError as error:
        raise StoreFormatError(
            f"{error.message}; overwrite=True (--overwrite) replaces them by new ones", **error.where
        ) from error


def _run(
    store: Store, field: str, file: IndexFile, workers: int, report: Callable[[int, int, int], None]
) -> list[tuple[int, str]]:
    """Index what is missing; records that have no index, and why."""
    missing = file.missing()
    left_out: list[tuple[int, str]] = []

    def work(indices: Sequence[int]) -> tuple[int, int]:
        images = store.blobs(field, indices)
        for at, image in zip(indices, images, strict=True):
            try:
                if bytes(image[:2]) != b"\xff\xd8":
                    left_out.append((at, _what_it_is(image)))
                    continue
                file.put(at, _native.build_index(image, file.kind, MAX_PIXELS))
            except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError) as error:
                left_out.append((at, str(error)))
        return len(indices), sum(map(len, images))

    done, nbytes = len(store) - len(missing), 0
    chunks = iter(np.array_split(missing, max(1, -(-len(missing) // _CHUNK))))
    with ThreadPoolExecutor(workers, thread_name_prefix="penstock-index") as pool:
        waiting: set[Future[tuple[int, int]]] = set()
        try:
            for chunk in chunks:
                waiting.add(pool.submit(work, chunk.tolist()))
                if len(waiting) >= 2 * workers:
                    ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in ready:
                        count, size = future.result()
                        done, nbytes = done + count, nbytes + size
                    report(done, len(store), nbytes)
            for future in waiting:
                count, size = future.result()
                done, nbytes = done + count, nbytes + size
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # each would wait for a lock that cannot be had
            raise
        report(done, len(store), nbytes)
    return left_out


def _what_it_is(image: Any) -> str:
    """Why bytes that do not begin as a JPEG have no decode index."""
    try:
        return f"{fallback.sniff(bytes(image[:32]))}, not JPEG: only JPEGs have a decode index"
    except DecodeError as error:
        return error.message


def _reporter(progress: Any, stack: ExitStack) -> Callable[[int, int, int], None]:
    if callable(progress):
        return lambda done, total, _nbytes: progress(done, total)
    if not progress:
        return lambda *_: None
    return stack.enter_context(shown("indexing"))
