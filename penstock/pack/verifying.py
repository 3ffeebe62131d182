"""``verify``: is a store what was packed, and does it still agree with its source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock import _native, stores
from penstock.errors import ArgumentError, PenstockError, StoreError
from penstock.pack.progress import shown
from penstock.pack.transcoding import to_baseline
from penstock.sample import Record, Schema
from penstock.stores.base import Problem, Store
from penstock.stores.index_file import IndexFile, index_path
from penstock.stores.names import listed

__all__ = ["VerifyReport", "verify"]

_CHUNK: Final = 32


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verifying found.

    Parameters
    ----------
    store : str
        URL of the store.
    records : int
        Records in it; 0 if its structure is too damaged to open it.
    problems : tuple of Problem
        Whatever is wrong, with key, index or page.
    compared : int
        Records that were compared with the source.
    """

    store: str
    records: int
    problems: tuple[Problem, ...]
    compared: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    store: str | os.PathLike[str] | Store,
    source: str | os.PathLike[str] | Store | None = None,
    *,
    progress: bool | Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check every page and checksum of a store, its counts and keys, and its agreement with the source.

    Parameters
    ----------
    store : str, path or Store
        What to check; a damaged one is reported on, not refused.
    source : str, path or Store, optional
        What it was packed from: the same keys (but for those that were skipped), classes and bytes are expected; for
        JPEGs of several scans also the bytes that ``transcode="baseline"`` makes of them. A class is compared by its
        name: the pack may number the classes in another order.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets records done and records in all.

    Returns
    -------
    VerifyReport
        All problems, each with its record or page; none: the store is what was packed.

    Raises
    ------
    StoreNotFoundError
        If there is no store, or no source.
    """
    kind, path = (type(store), store.url.partition("://")[2]) if isinstance(store, Store) else stores.find(store)
    with ExitStack() as stack:
        report = _reporter(progress, stack)
        problems = list(kind.check(path, report))
        records = compared = 0
        if all(problem.index is not None for problem in problems):  # else its structure is not to be trusted to a map
            opened = stack.enter_context(kind(path))
            records = len(opened)
            problems += _check_indices(opened)
            if source is not None:
                origin = _open_source(source, opened.schema, stack)
                compared = records
                problems += _compare(opened, origin, report)
    return VerifyReport(f"{kind.kind}://{Path(path).absolute()}", records, tuple(problems), compared)


def _open_source(source: str | os.PathLike[str] | Store, packed: Schema, stack: ExitStack) -> Store:
    """Open a source with the pack's classes; where it has others, with its own."""
    if isinstance(source, Store):
        return source
    classes = packed["label"].classes if "label" in packed else ()
    if classes:
        with suppress(ArgumentError):  # `_compare` names the classes that the pack does not have
            return stack.enter_context(stores.open(source, classes=classes))
    return stack.enter_context(stores.open(source))


def _check_indices(store: Store) -> Iterator[Problem]:
    """What is wrong with the decode indices beside a store, if it has any."""
    for field in store.schema.blobs:
        path = index_path(store.url.partition("://")[2], field)
        if not path.exists():
            continue
        try:
            file = IndexFile(path, store.fingerprint(), len(store))
        except StoreError as error:
            yield Problem(f"{path.name}: {error.message}")
            continue
        with file:
            absent = set(file.missing().tolist())
            for index in sorted(set(range(len(store))) - absent):
                yield from _check_index(store, field, index, file.get([index])[0])


def _check_index(store: Store, field: str, index: int, entry: bytes | None) -> Iterator[Problem]:
    try:
        record = store.read([index])[0]
    except PenstockError:
        return  # the store's own check has named it
    if entry is None or _native.inspect_index(record.fields[field], entry) is None:
        reason = "its decode index is damaged or another image's (`penstock index --overwrite` makes all again)"
        yield Problem(reason, record.key, index)


def _compare(store: Store, source: Store, report: Callable[[int, int], None]) -> Iterator[Problem]:
    """Where a store and its source disagree."""
    where = {key: index for index, key in enumerate(source.keys())}
    left_out = {entry.key for entry in getattr(getattr(store, "meta", None), "skipped", ())}
    shared = [name for name in store.schema.fields if name in source.schema]
    for name in shared:
        if unknown := [each for each in source.schema[name].classes if each not in store.schema[name].classes]:
            yield Problem(f"its classes are not those of the source, which also has {listed(unknown)}")
    for index in range(len(store)):
        try:
            record = store.read([index])[0]
        except PenstockError:
            continue  # the store's own check has named it
        at = where.pop(record.key, None)
        if at is None:
            yield Problem("the source has no record of this name", record.key, index)
        else:
            yield from _differences(record, store.schema, source, at, shared)
        if index % _CHUNK == 0:
            report(index + 1, len(store))
    for key, at in where.items():
        if key not in left_out:
            yield Problem(f"record {at} of the source is not in the store", key)


def _differences(record: Record, schema: Schema, source: Store, at: int, shared: list[str]) -> Iterator[Problem]:
    try:
        original: Mapping[str, Any] = source.read([at])[0].fields
    except PenstockError as error:
        yield Problem(f"it cannot be read from the source: {error.message}", record.key, record.index)
        return
    for name in shared:
        if source.schema[name].is_blob:
            if not _same(bytes(record.fields[name]), bytes(original[name])):
                yield Problem(f"the bytes of its {name} are not those of the source", record.key, record.index)
            continue
        stored, wanted = record.fields[name], original[name]
        classes, others = schema[name].classes, source.schema[name].classes
        if classes and others:
            stored, wanted = _class_name(classes, stored), _class_name(others, wanted)
        if not np.array_equal(stored, wanted):
            yield Problem(f"its {name} is {stored!r}, in the source {wanted!r}", record.key, record.index)


def _class_name(classes: Sequence[str], number: int) -> str | int:
    return classes[number] if 0 <= number < len(classes) else number


def _same(stored: bytes, original: bytes) -> bool:
    """Whether a blob is the source's, or its lossless transcoding."""
    return stored == original or stored == to_baseline(original)


def _reporter(progress: bool | Callable[[int, int], None] | None, stack: ExitStack) -> Callable[[int, int], None]:
    if callable(progress):
        return progress
    if not progress:
        return lambda _done, _total: None
    show = stack.enter_context(shown("verifying"))
    return lambda done, total: show(done, total, 0)
