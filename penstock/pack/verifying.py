"""``verify``: checks that a store is undamaged and agrees with its source."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock import _native, stores
from penstock.errors import ArgumentError, DecodeError, PackError, PenstockError, StoreError
from penstock.pack.conversion.comparison import Unreadable, is_equal, read_each
from penstock.pack.pipeline.record_checks import rewrite
from penstock.pack.resize.fields import FieldResizing
from penstock.pack.resize.resizing import Resizing
from penstock.pack.upright_fields import state_upright
from penstock.progress import ProgressReporter, make_reporter
from penstock.sample import Record, Schema, Value
from penstock.stores.base import Store
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.fields.record_names import quote_names
from penstock.stores.joined import JoinedStore, check_sidecar, join
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.location import is_remote_url
from penstock.stores.origin import read_options
from penstock.stores.problems import Problem

__all__ = ["VerifyReport", "verify"]

_REPORT_EVERY: Final = 32


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of :func:`verify`.

    Parameters
    ----------
    store : str
        URL of the store.
    records : int
        Number of records in it; 0 if its structure is too damaged to open it.
    problems : tuple of Problem
        Everything that is wrong, with key, index or page.
    compared : int
        Number of records that were compared with the source.
    """

    store: str
    records: int
    problems: tuple[Problem, ...]
    compared: int = 0

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify(
    store: str | os.PathLike[str] | Store,
    source: str | os.PathLike[str] | Store | None = None,
    *,
    progress: bool | Callable[[int, int], None] | None = None,
    layout: str | None = None,
    **options: object,
) -> VerifyReport:
    """Check every page and checksum of a store, its counts and keys, and its agreement with the source.

    Parameters
    ----------
    store : str, path or Store
        The store to check. Damage is reported, not raised.
    source : str, path or Store, optional
        What it was packed from. The store must have the same keys (except those that were skipped), its fields, classes
        and bytes; of a source that was packed in part, give the open store, such as ``ps.open(src, fields=[...])``. A
        JPEG of several scans may have the bytes that ``transcode="baseline"`` makes of it. If it was packed with
        ``resize``, records of the source are resized again, and must be the same. Classes are compared by
        name: the pack may number them in another order.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets the number of records done and of all records.
    layout, **options
        As for :func:`penstock.open`, where ``store`` is not open yet.

    Returns
    -------
    VerifyReport
        All problems, each with its record or page.

    Raises
    ------
    StoreNotFoundError
        If there is no store, or no source.
    """
    if isinstance(store, Store):
        container = store.container if isinstance(store, JoinedStore) else store
        kind, location, options = type(container), container.location, dict(container.options)
    else:
        of_place = {name: options.pop(name) for name in stores.PLACE_OPTIONS if name in options}
        remote = stores.find_remote([str(store)], layout, of_place) if is_remote_url(store) else None
        kind, location = remote or stores.find(store, layout=layout)
        stores.refuse_unknown_options(kind, kind.__init__, options)
    with ExitStack() as stack:
        report = make_reporter(progress, "verifying", stack)
        problems = [
            *kind.check(location, lambda done, total: report(done, total, 0), **options),
            *check_sidecar(location),
        ]
        records = compared = 0
        if all(problem.index is not None for problem in problems):  # else its structure is damaged
            try:
                opened = stack.enter_context(join(kind(location, **options)))
            except StoreError as error:  # its sidecar is of another container
                return VerifyReport(str(location), 0, (*problems, Problem(error.message)))
            records = len(opened)
            problems += _check_seek_tables(opened)
            if source is not None:
                origin = _open_source(source, opened.schema, stack)
                compared = records
                problems += _compare_stores(opened, origin, report)
    return VerifyReport(str(location), records, tuple(problems), compared)


def _open_source(source: str | os.PathLike[str] | Store, packed: Schema, stack: ExitStack) -> Store:
    """Open a source with the classes of the pack; if it has others, with its own."""
    if isinstance(source, Store):
        return source
    classes = packed["label"].classes if "label" in packed else ()
    if classes:
        with suppress(ArgumentError):  # `_compare_stores` reports the classes that the pack lacks
            return stack.enter_context(stores.open(source, classes=classes))
    return stack.enter_context(stores.open(source))


def _check_seek_tables(store: Store) -> Iterator[Problem]:
    """Check the seek tables beside a store, or beside its shards, if there are any."""
    if isinstance(store, ShardedPack):
        begin = 0
        for shard in store.shards():
            yield from (replace(each, index=begin + (each.index or 0)) for each in _check_seek_tables(shard))
            begin += len(shard)
        return
    for field in store.schema.blobs:
        path = seek_table_path(store.location, field)
        if not path.exists():
            continue
        try:
            file = SeekTableFile(path, store.fingerprint(), len(store))
        except StoreError as error:
            yield Problem(f"{path.name}: {error.message}")
            continue
        with file:
            missing = set(file.missing().tolist())
            for index in sorted(set(range(len(store))) - missing):
                yield from _check_seek_table(store, field, index, file.get([index])[0])


def _check_seek_table(store: Store, field: str, index: int, table: bytes | None) -> Iterator[Problem]:
    try:
        record = store.read([index])[0]
    except PenstockError:
        return  # the check of the store reports it
    if table is None or _native.inspect_index(record.fields[field], table) is None:
        reason = "its decode index is damaged or of another image (`penstock index --overwrite` makes all again)"
        yield Problem(reason, record.key, index)


def _compare_stores(store: Store, source: Store, report: ProgressReporter) -> Iterator[Problem]:
    """Yield the differences between a store and its source."""
    numbers: dict[str, deque[int]] = {}
    for number, key in enumerate(source.keys()):
        numbers.setdefault(key, deque()).append(number)
    left_out = {entry.key for entry in store.skipped}
    options = read_options(store.location)
    resizing, schema = Resizing.from_options(options), source.schema
    if "upright" in options and schema.upright is None:
        schema = state_upright(schema, upright=options["upright"] == str(True))
    changed = None if resizing is None else FieldResizing.for_schema(resizing, schema)
    shared = [name for name in store.schema.fields if name in source.schema]
    yield from _compare_schemas(store.schema, source.schema)
    for first in range(0, len(store), _REPORT_EVERY):
        pairs = []
        for record in read_each(store, range(first, min(first + _REPORT_EVERY, len(store)))):
            if isinstance(record, Unreadable):
                continue  # the check of the store reports it
            if not numbers.get(record.key):
                yield Problem("the source has no record with this key", record.key, record.index)
            else:
                pairs.append((record, numbers[record.key].popleft()))
        for (record, _), original in zip(pairs, read_each(source, [number for _, number in pairs]), strict=True):
            expected = original if changed is None else _resize_again(original, changed)
            yield from _compare_records(record, expected, store.schema, source.schema, shared)
        report(min(first + _REPORT_EVERY, len(store)), len(store), 0)
    for key, left in numbers.items():
        if key not in left_out:
            yield from (Problem(f"record {number} of the source is not in the store", key) for number in left)


def _compare_schemas(schema: Schema, source: Schema) -> Iterator[Problem]:
    """Yield the fields and classes that only the source has; more of them in the store are no loss."""
    if lost := [name for name in source.fields if name not in schema]:
        yield Problem(f"the store has not all fields of the source, which also has {quote_names(lost)}")
    for name in (each for each in schema.fields if each in source):
        if unknown := [each for each in source[name].classes if each not in schema[name].classes]:
            yield Problem(f"its classes are not those of the source, which also has {quote_names(unknown)}")


def _resize_again(record: Record | Unreadable, resizing: FieldResizing) -> Record | Unreadable:
    """A record of the source as it is packed with ``resize``."""
    if isinstance(record, Unreadable):
        return record
    try:
        return replace(record, fields=resizing.apply(record.fields, "header")[0])
    except (DecodeError, PackError) as error:
        return Unreadable(error.message)


def _compare_records(
    record: Record, other: Record | Unreadable, schema: Schema, others: Schema, shared: list[str]
) -> Iterator[Problem]:
    """Compare a record with that of the source, of the schema ``others``."""
    if isinstance(other, Unreadable):
        yield Problem(f"it cannot be read from the source: {other.error}", record.key, record.index)
        return
    original = other.fields
    for name in shared:
        if others[name].pixels is not None:
            if not is_equal(record.fields[name], original[name]):
                yield Problem(f"the pixels of its {name} are not those of the source", record.key, record.index)
            continue
        if others[name].is_blob:
            if not _is_same_blob(bytes(record.fields[name]), bytes(original[name])):
                yield Problem(f"the bytes of its {name} are not those of the source", record.key, record.index)
            continue
        stored, wanted = record.fields[name], original[name]
        classes, names = schema[name].classes, others[name].classes
        if classes and names:
            stored, wanted = _name_class(classes, stored), _name_class(names, wanted)
        if not is_equal(stored, wanted):
            yield Problem(f"its {name} is {stored!r}, in the source {wanted!r}", record.key, record.index)


def _name_class(classes: Sequence[str], number: Value) -> Value:
    if isinstance(number, np.ndarray):
        return [_name_class(classes, each) for each in number.tolist()]
    return classes[number] if number is not None and 0 <= number < len(classes) else number


def _is_same_blob(stored: bytes, original: bytes) -> bool:
    """Whether a blob has the bytes of the source, or those of its lossless transcoding."""
    return stored == original or stored == rewrite(original, "baseline")
