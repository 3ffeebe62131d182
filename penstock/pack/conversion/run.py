"""One run of a conversion: copies records, writes the sidecar pack, and compares both sides.

::

    source ──> [records] ──> thread: read, translate labels, prepare ──┐
           ──> [records] ──> thread: ...                               ├──in order──> writer ──> sidecar ──> proof
           ──> [records] ──> ...                                       ┘

A record travels as one object from the source to the writer: an image and its label are never looked up separately.
Called by :func:`penstock.convert`.
"""

from __future__ import annotations

import inspect
import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import chain
from typing import Final, NoReturn, TypeVar

import numpy as np

from penstock import stores
from penstock.errors import CorruptRecordError, PackError, StoreError
from penstock.pack.conversion.comparison import Unreadable, choose_step, compare, read_each
from penstock.pack.conversion.report import ConvertReport
from penstock.pack.pipeline.run import NothingPackedError, list_skipped, run_in_order
from penstock.pack.staging import find_finished
from penstock.sample import Field, Schema, Value
from penstock.stores.base import Skipped, Store
from penstock.stores.fields.image_signatures import refuse_array
from penstock.stores.joined import NUMBER, JoinedStore, Sidecar, sidecar_location
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.problems import Problem
from penstock.stores.writing import CommittedRecords, Writer

__all__ = ["Conversion", "ConvertProgress", "refuse_records"]

ConvertProgress = Callable[[str, int, int, int], None]
"""``report(step, done, total, nbytes)``: step is "copying" or "comparing"."""

T_result = TypeVar("T_result")

_NUMBERS: Final = frozenset({"label", "int", "float"})
_TASK_RECORDS: Final = 64
_PENDING_TASKS: Final = 4


class Conversion:
    """One run of :func:`penstock.convert`."""

    def __init__(
        self,
        source: Store,
        kind: type[Store],
        location: Location,
        options: Mapping[str, object],
        *,
        on_error: str,
        workers: int,
        show: ConvertProgress,
    ) -> None:
        self.source, self.kind, self.location = source, kind, location
        self._options, self._raises, self._workers, self._show = options, on_error == "raise", workers, show
        self._stored = kind.storable(source.schema)
        self._translations = _make_translations(source.schema, self._stored)
        self._skipped: list[Skipped] = []
        self._indices: list[int] = []
        """Indices in the source of the records that were written, in order."""

    @cached_property
    def _keys(self) -> list[str]:
        """The keys of the source, read once."""
        return list(self.source.keys())

    @property
    def written_location(self) -> Location:
        """Where the finished store is: its location, or its shards."""
        return self.kind.locate_written(self.location, **self._options)

    def copy(self, *, overwrite: bool) -> None:
        """Write the records."""
        source = self.source
        if self._raises and source.unreadable:
            refuse_records(source, source.unreadable)
        origin = Origin(source.digest(), {name: repr(value) for name, value in self._options.items()}).to_text()
        if not overwrite:
            finished, found = find_finished(self.kind, self.written_location, self._stored, origin)
            if finished is not None:
                self.location = self.location if found == self.written_location else found
                self._take_over(finished)
                return
        writer = self.kind.writer(self.location, self._stored, origin, overwrite=overwrite, **self._options)
        writer.before_visible = Sidecar.begin  # what has no place there is written behind it
        try:
            self._write_all(writer)
        except BaseException:
            writer.close()
            raise
        if self._raises and self._skipped:
            writer.discard()
            refuse_records(source, self._skipped)
        if not self._indices:
            writer.discard()
            raise NothingPackedError("there is no record to convert", self._skipped, store=source.url)
        writer.finish(source.problems)
        writer.close()

    def _write_all(self, writer: Writer[object]) -> None:
        done = writer.committed
        self._take_over(done)
        total = len(self.source)
        indices = range(done.consumed, total)
        with closing(self._run_in_order(lambda some: self._prepare(writer, some), indices)) as tasks:
            for prepared in tasks:
                for index, entry in prepared:
                    if not isinstance(entry, Skipped):
                        try:
                            writer.append(entry)
                            self._indices.append(index)
                            continue
                        except PackError as error:
                            entry = Skipped(self._keys[index], error.message)  # noqa: PLW2901  # one end for both
                    self._skipped.append(entry)
                    writer.skip(entry)
                self._show("copying", prepared[-1][0] + 1, total, writer.committed.nbytes)

    def _take_over(self, done: CommittedRecords) -> None:
        """Note what an earlier run has written and left out."""
        self._skipped += done.skipped
        indices = range(min(done.consumed, len(self.source)))
        left_out = self._find_left_out(done.skipped, indices) if done.skipped else frozenset()
        self._indices += [index for index in indices if index not in left_out]

    def _find_left_out(self, skipped: Sequence[Skipped], indices: range) -> frozenset[int]:
        """The records that an earlier run left out, of which only the keys are known; keys may occur several times."""
        places: dict[str, list[int]] = {entry.key: [] for entry in skipped}
        for index in indices:
            if self._keys[index] in places:
                places[self._keys[index]].append(index)
        found: set[int] = set()
        for key, count in Counter(entry.key for entry in skipped).items():
            candidates = places[key]
            if len(candidates) > count:  # those that cannot be read, then those whose name was taken: the last ones
                refused = [index for index in candidates if not self._is_readable(index)][:count]
                others = [index for index in candidates if index not in refused]
                candidates = refused + others[len(others) - (count - len(refused)) :]
            found.update(candidates)
        return frozenset(found)

    def _is_readable(self, index: int) -> bool:
        try:
            self._translate(self.source.read([index])[0].fields, self._stored.fields)
        except (PackError, StoreError):
            return False
        return True

    def _run_in_order(self, work: Callable[[range], T_result], numbers: range) -> Generator[T_result]:
        """Call ``work`` in threads with runs of ``numbers``; yields the results in order, few at a time in memory."""
        step = choose_step(self.source, numbers, _TASK_RECORDS)
        tasks = (range(first, min(first + step, numbers.stop)) for first in range(numbers.start, numbers.stop, step))
        return run_in_order(work, tasks, self._workers, "convert", _PENDING_TASKS * self._workers)

    def _prepare(self, writer: Writer[object], indices: range) -> list[tuple[int, Value]]:
        """Read some records and convert them to what the writer takes; runs in the pool."""
        prepared: list[tuple[int, Value]] = []
        for index, record in zip(indices, read_each(self.source, indices), strict=True):
            try:
                if isinstance(record, Unreadable):
                    raise PackError(record.error)  # noqa: TRY301  # one handler
                entry: Value = writer.prepare(record.key, self._translate(record.fields, self._stored.fields))
            except (PackError, StoreError) as error:
                entry = Skipped(self._keys[index], error.message)
            prepared.append((index, entry))
        return prepared

    def _translate(self, fields: Mapping[str, Value], names: Iterable[str]) -> dict[str, Value]:
        """Return the fields that are written; labels with the numbers that their classes have there."""
        chosen: dict[str, Value] = {name: fields.get(name) for name in names}
        for name in self.source.schema.blobs:
            if self.source.schema[name].pixels is None:
                refuse_array(name, chosen.get(name))
        for name, numbers in self._translations.items():
            if chosen[name] not in numbers:
                raise PackError(f"its {name} must be the number of a class, got {chosen[name]!r:.80}")
            chosen[name] = numbers[chosen[name]]
        return chosen

    def write_sidecar(self) -> None:
        """Write what the container has no place for; remove an older sidecar where it has a place for all."""
        location = self.written_location
        with self.kind(location, **self._reading_options()) as written:
            self._numbers = self._match(written)
            extra = self._extra_schema(written)
            if extra is None:
                self._remove_sidecar()
                return
            fingerprint = written.fingerprint()
        origin = Origin(f"{self.source.digest()}+{fingerprint}").to_text()
        target = sidecar_location(location)
        if LmdbStore.finished(target, extra, origin) is None:
            Sidecar.begin(location)
            self._write_sidecar_pack(LmdbStore.writer(target, extra, origin, overwrite=True), extra)
        Sidecar(fingerprint, tuple(self.source.schema.fields)).write(location)

    def _write_sidecar_pack(self, writer: Writer[object], extra: Schema) -> None:
        names = [name for name in extra.fields if name != NUMBER]

        def prepare(rows: range) -> list[Value]:
            if not names:
                return [writer.prepare(self._keys[self._indices[row]], {NUMBER: self._numbers[row]}) for row in rows]
            records = self.source.read([self._indices[row] for row in rows])
            return [
                writer.prepare(record.key, {name: record.fields[name] for name in names} | {NUMBER: self._numbers[row]})
                for row, record in zip(rows, records, strict=True)
            ]

        try:
            with closing(self._run_in_order(prepare, range(len(self._indices)))) as tasks:
                for prepared in chain.from_iterable(tasks):
                    writer.append(prepared)
        except BaseException:
            writer.discard()
            raise
        writer.finish()
        writer.close()

    def _match(self, written: Store) -> Sequence[int]:
        """The number in the container of each record, in the order of the source."""
        if self.kind.keeps_order:
            return range(len(self._indices))
        numbers = {key: number for number, key in enumerate(written.keys())}

        def name_stored(rows: range) -> list[str]:
            return [
                self.kind.stored_key(record.key, self._translate(record.fields, self._stored.fields), self._stored)
                for record in self.source.read([self._indices[row] for row in rows])
            ]

        found = []
        with closing(self._run_in_order(name_stored, range(len(self._indices)))) as tasks:
            for row, key in enumerate(chain.from_iterable(tasks)):
                if key not in numbers:
                    raise CorruptRecordError(
                        "it is missing from what was written", store=written.url, key=self._keys[self._indices[row]]
                    )
                found.append(numbers.pop(key))
        return found

    def _extra_schema(self, written: Store) -> Schema | None:
        """The fields of the sidecar pack; None if none is needed."""
        schema = self.source.schema
        extra = {name: field for name, field in schema.fields.items() if written.schema.fields.get(name) != field}
        in_order = self.kind.keeps_order or list(self._numbers) == list(range(len(self._indices)))
        same_keys = len(written) == len(self._indices) and all(
            self._keys[index] == key for index, key in zip(self._indices, written.keys(), strict=True)
        )
        if not extra and same_keys and in_order:
            return None
        return Schema({**extra, NUMBER: Field("int")})

    def prove(self) -> ConvertReport:
        """Open both sides anew, and compare them."""
        source, location = self.source, self.written_location
        with ExitStack() as stack:
            again = stack.enter_context(_open_anew(source))
            written = stack.enter_context(stores.open(location, **self._reading_options()))
            alone = written.container if isinstance(written, JoinedStore) else written
            comparison = compare(
                again,
                written,
                self._indices,
                workers=self._workers,
                report=lambda done, total: self._show("comparing", done, total, 0),
            )
            problems = [*comparison.problems, *self._compare_columns(again, alone)]
            side = sidecar_location(location) if alone is not written else None
            keys, keys_there = list(again.keys()), list(alone.keys())
            renamed = [
                (keys[index], keys_there[number])
                for index, number in zip(self._indices, self._numbers, strict=True)
                if keys[index] != keys_there[number]
            ]
            beside = [name for name in source.schema.fields if alone.schema.fields.get(name) != source.schema[name]]
        known = frozenset(self._skipped)  # a finished store has kept the problems of its source
        duplicates = [key for key, count in Counter(keys).items() if count > 1]
        return ConvertReport(
            source=source.url,
            store=str(location),
            records=comparison.records,
            source_digest=comparison.source,
            store_digest=comparison.written,
            renamed=tuple(renamed),
            sidecar="" if side is None else str(side.local_path),
            beside=tuple(beside) if side is not None else (),
            left_out=(*self._skipped, *(each for each in source.problems if each not in known)),
            duplicates=tuple(duplicates),
            problems=tuple(problems),
        )

    def _compare_columns(self, source: Store, alone: Store) -> Iterator[Problem]:
        """Compare the numbers in the container itself with the source, where a sidecar pack replaces them."""
        for name, field in self._stored.fields.items():
            if field.kind not in _NUMBERS or name not in alone.schema or name not in source.schema:
                continue
            if alone.schema[name] == source.schema[name]:
                continue
            wanted = source.column(name)[self._indices].tolist()
            if name in self._translations:
                wanted = [self._translations[name][number] for number in wanted]
            found = alone.column(name)[np.asarray(self._numbers, np.int64)]
            names = alone.schema[name].classes
            if names and not source.schema[name].classes and all(map(str.isdecimal, names)):
                found = np.asarray([int(each) for each in names])[found]  # folders are named by the numbers
            for row in np.flatnonzero(~np.isclose(found, wanted, rtol=1e-6, equal_nan=True)).tolist()[:100]:
                key = self._keys[self._indices[row]]
                yield Problem(f"its {name} in the container is {found[row]!r}, not {wanted[row]!r}", key, row)

    def _reading_options(self) -> dict[str, Value]:
        """Return the options with which what was written is read: those of its writer that its reader has as well."""
        allowed = inspect.signature(self.kind.__init__).parameters
        return {name: value for name, value in self._options.items() if name in allowed}

    def _remove_sidecar(self) -> None:
        location = self.written_location
        if location.exists() or not location.is_local:
            Sidecar.remove(location)


def refuse_records(source: Store, refused: Sequence[Skipped]) -> NoReturn:
    """Raise the PackError for records that cannot be converted."""
    raise PackError(
        f"{len(refused):,} of the source's records cannot be converted; nothing was written. Convert with "
        f'on_error="skip" (--on-error skip) to leave them out:\n{list_skipped(refused)}',
        store=source.url,
    )


def _open_anew(store: Store) -> Store:
    """Open a store anew, as a worker process opens it: refused if it was changed."""
    again: Store = pickle.loads(pickle.dumps(store))  # noqa: S301  # what was pickled here
    return again


def _make_translations(source: Schema, stored: Schema) -> dict[str, Mapping[int, int]]:
    """Find new numbers, by those in the source, for labels whose classes have others where they are written."""
    translations: dict[str, Mapping[int, int]] = {}
    for name, field in stored.fields.items():
        if name not in source:
            continue  # a format may need a field that the source has not: it holds no values
        theirs, ours = source[name].classes, field.classes
        if theirs and ours and theirs != ours:
            translations[name] = {number: ours.index(each) for number, each in enumerate(theirs)}
    return translations
