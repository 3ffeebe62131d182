"""The ``lmdb`` store: packs read through a memory map, checked record by record.

::

    LmdbStore ──(per process)──> PackMap, one per file ──record(i)──> view of the map ──check──> key, fields

A view of a record stays valid as long as it is referenced, also after the store is closed. A map is never used across a
fork; nothing is unpickled or written here: :mod:`.pack.writer` writes, :mod:`.pack.mapping` opens, :mod:`.pack.check`
verifies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.sample import Array, ArrayKind, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.common.keys import LazyKeys
from penstock.stores.fields.record_names import check_classes, describe_class_difference
from penstock.stores.lmdb.files import FILE, HASHES, LOCK, looks_like_lmdb
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_origin
from penstock.stores.pack.block_reader import BlockReader, DamagedRecordError
from penstock.stores.pack.blocks import find_layout, missing_value
from penstock.stores.pack.format import RecordCodec, decode_column, get_column_dtype, join_texts
from penstock.stores.pack.mapping import PackMap
from penstock.stores.pack.meta import PackMeta
from penstock.stores.problems import Problem
from penstock.stores.writing import CommittedRecords, Writer

__all__ = ["LmdbStore"]

_LEAST_PREFETCHED_NBYTES: Final = 4096
"""Mean bytes of a record from which on records are read ahead. Smaller ones share their pages with others."""
_FEWEST_AT_ONCE: Final = 4
"""Records from which on one native call takes less time than Python for each of them."""
T = TypeVar("T")


class LmdbStore(Store):
    """A finished pack.

    Parameters
    ----------
    path : str, path or Location
        The folder of the LMDB environment.
    check : bool
        Whether the checksum of a blob is verified each time the blob is read (xxh3, some 25 GB/s). Lengths, and the
        checksum of the small fields, are always verified. Of small records of fixed size, which are stored in blocks,
        the checksum of a block is verified once in a process, when one of its records is first read.
    classes : sequence of str, optional
        The classes that the pack must have, by number. Opening cannot change the classes of a pack.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If it is truncated, not a pack, or of an unknown version.
    IncompleteStoreError
        If it was never finished.
    ArgumentError
        If its classes are not ``classes``.

    Notes
    -----
    Reading costs about 3 microseconds a record, without its checksum. The file's format: :mod:`.pack.format`.
    """

    kind: ClassVar[str] = "lmdb"
    suffixes: ClassVar[tuple[str, ...]] = (".lmdb", ".mdb")
    reads_ranges: ClassVar[bool] = True

    def __init__(self, path: PathLike, *, check: bool = True, classes: Sequence[str] | None = None) -> None:
        super().__init__(path, check=check)
        self._check = check
        self._map: PackMap | None = None
        meta = self._open().meta
        self._meta = meta
        self._skipped = meta.skipped
        self._codec = RecordCodec(meta.schema, allows_none=meta.version > 1)
        self._layout = find_layout(meta, self.url)
        self._blocks: BlockReader | None = None
        self._columns: dict[str, Array] = {}
        if classes is not None:
            self._refuse_other_classes(check_classes(classes))

    @property
    def schema(self) -> Schema:
        """Fields of the records, in order."""
        return self._meta.schema

    @property
    def meta(self) -> PackMeta:
        """The description in the pack: counts, columns, and what was left out when it was written."""
        return self._meta

    def __len__(self) -> int:
        return self._meta.count

    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``; blobs are views of the map. See :meth:`Store.read`."""
        return self._read_records(indices, check=self._check)

    def _read_records(self, indices: Indices, *, check: bool) -> list[Record]:
        if self._layout is not None:
            return self._call_blocks(indices, BlockReader.read)
        decode = self._codec.decode
        records = []
        for number, value in self._read_values(indices):
            try:
                key, fields = decode(value, number, check=check)
            except ValueError as error:
                raise self._make_damage_error(number, error) from error
            records.append(Record(number, key, fields))
        return records

    @property
    def prefetches(self) -> bool:
        """Whether records are so large that reading ahead pays."""
        return self.location.remote is not None or self._meta.nbytes >= _LEAST_PREFETCHED_NBYTES * max(len(self), 1)

    @property
    def look_ahead(self) -> int:
        """Of a pack in object storage: what comes in 200 ms at 5,000 records a second."""
        return 0 if self.location.remote is None else 1024

    def prefetch(self, indices: Indices) -> bool:
        """Have the system read records that are not in its page cache; see :meth:`Store.prefetch`."""
        return self._layout is None and self._open().read_ahead(self._as_numbers(indices)) > 0

    def blobs(self, field: str, indices: Indices) -> Sequence[Any]:
        """Views of one field; keys and small fields are not read. See :meth:`Store.blobs`."""
        place = self._codec.encoded.get(field)
        if place is None:
            self.schema.refuse_small(field)
        if self._layout is not None:
            return list(self._call_blocks(indices, lambda blocks, numbers: blocks.pixels(field, numbers)))
        numbers = np.ascontiguousarray(indices if isinstance(indices, np.ndarray) else list(indices), np.int64)
        if len(numbers) >= _FEWEST_AT_ONCE and place is not None:
            found = self._open().find_blobs(numbers, *place, check=self._check)
            if found is not None:
                return found
        blob, check = self._codec.blob, self._check
        views = []
        for number, value in self._read_values(numbers):
            try:
                views.append(blob(value, number, field, check=check))
            except ValueError as error:
                raise self._make_damage_error(number, error) from error
        return views

    def pixels(self, field: str, indices: Indices) -> Sequence[Array]:
        """The images of a field of pixels; those in blocks as their places in the map."""
        if self._layout is None:
            return super().pixels(field, indices)
        self.schema.refuse_encoded(field)
        return self._call_blocks(indices, lambda blocks, numbers: blocks.pixels(field, numbers))

    def rows(self, field: str, indices: Indices) -> Array | None:
        """The arrays of a field of fixed shape, where they are in blocks; see :meth:`Store.rows`."""
        kind = self.schema[field]
        if self._layout is None or kind.array is None:
            return None
        return self._call_blocks(indices, lambda blocks, numbers: blocks.rows(field, numbers))

    def _call_blocks(self, indices: Indices, read: Callable[[BlockReader, NDArray[np.int64]], T]) -> T:
        """What ``read`` returns for some records of blocks, whose numbers are checked."""
        numbers = self._as_numbers(indices)
        blocks = self._open_blocks()
        try:
            return read(blocks, numbers)
        except DamagedRecordError as error:
            raise self._make_damage_error(error.index, error) from error

    def _as_numbers(self, indices: Indices) -> NDArray[np.int64]:
        """Indices as an array, all of them in the pack."""
        if not isinstance(indices, np.ndarray):
            listed = [int(index) for index in indices]
            if listed and not 0 <= min(listed) <= max(listed) < len(self):
                for number in listed:
                    self._refuse_outside(number)
            return np.array(listed, np.int64)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self)):
            for number in indices.tolist():
                self._refuse_outside(number)
        return np.ascontiguousarray(indices, np.int64)

    def _open_blocks(self) -> BlockReader:
        """The reader of blocks of this process."""
        source = self._open()
        source.refuse_changed(self.url)
        found = self._blocks
        if found is None or found.source is not source:
            assert self._layout is not None, "called for packs of blocks"
            found = self._blocks = BlockReader(source, self._layout, check=self._check)
        return found

    def _read_values(self, indices: Indices) -> Iterator[tuple[int, memoryview]]:
        """Index and stored value of each record."""
        source = self._open()
        source.refuse_changed(self.url)
        numbers = self._check_indices(indices)
        source.fetch(numbers)
        for number in numbers:
            try:
                value = source.record(number)
            except ValueError as error:
                raise self._make_damage_error(number, error) from error
            yield number, value

    def column(self, field: str) -> Array:
        """A small field of all records, read at the first call: from its column, or text record by record."""
        self._refuse_closed()
        if field not in self._columns:
            kind = self.schema[field]
            if get_column_dtype(kind) is not None:
                self._columns[field] = self._read_column(field)
            elif kind.kind == "text":
                texts = [text or "" for text in self._iter_values(field)]
                self._columns[field] = join_texts(texts, field, self.url)
            elif kind.array is not None and kind.array.shape is not None:
                self._columns[field] = self._read_arrays(field, kind.array)
            else:
                raise ArgumentError(f"field {field!r} is {kind.kind}, which varies in size; read the records instead")
        return self._columns[field]

    def keys(self) -> Sequence[str]:
        """The names of the records. Indexing reads one name, iterating reads all names at once."""
        self._refuse_closed()
        return _LmdbKeys(self)

    def digest(self) -> str:
        """The hash over all records, as the pack stores it."""
        self._refuse_closed()
        return self._meta.content

    def fingerprint(self) -> str:
        """The same hash: it depends on the content alone."""
        return self._meta.content

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with an LMDB data file, or with files of an unfinished or damaged pack; or an LMDB file."""
        has_files = any(os.path.lexists(f"{path}/{name}") for name in (FILE, LOCK, HASHES))
        return has_files or (Path(path).is_file() and looks_like_lmdb(path))

    @classmethod
    def check(
        cls, location: Location, progress: Callable[[int, int], None] | None = None, **options: object
    ) -> Iterator[Problem]:
        """Everything that is wrong with the files of the pack, by page and by record, without mapping them."""
        del options
        from penstock.stores.pack.check import check  # readers need not load it

        return check(location.local_path, progress)

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """What the finished pack holds, if its origin is ``source``; see :meth:`Store.finished`."""
        try:
            with cls(location) as store:
                meta = store.meta
                origin = read_origin(location, meta.content)
        except StoreError:
            return None  # there is no pack, or it is unfinished or damaged
        if origin != Origin.from_text(source) or meta.schema != schema:
            return None
        return meta.committed

    @classmethod
    def writer(  # type: ignore[override]  # it has no options
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False
    ) -> Writer[Any]:
        """Begin or resume a pack; see :class:`.pack.writer.LmdbWriter`."""
        from penstock.stores.pack.writer import LmdbWriter  # readers need not load it

        return LmdbWriter(location.local_path, schema, source, overwrite=overwrite)

    def close(self) -> None:
        """Release the map. The file is unmapped when the last store on it and the last view of it are deleted."""
        super().close()
        self._map = self._blocks = None

    def _open(self) -> PackMap:
        """The map of this process; after a fork, the first use maps the file again."""
        found = self._map  # None if it is closed
        if found is None or found.process != os.getpid():
            self._refuse_closed()
            known = found.meta if found is not None else None
            found = PackMap.open(self.location.local_path, self.url)
            if known is not None and known.content != found.meta.content:
                raise StoreError("this store was replaced by another; open it again", store=self.url)
            self._map = found
        return found

    def _refuse_other_classes(self, wanted: tuple[str, ...]) -> None:
        held = self.schema["label"].classes if "label" in self.schema else ()
        if held != wanted:
            raise ArgumentError(
                "classes must be those that the pack was packed with; its classes "
                f"{describe_class_difference(held, wanted)}. Open it without classes, or pack the source again with "
                "classes=[...] (--classes)",
                store=self.url,
            )

    def _make_damage_error(self, index: int, error: Exception) -> CorruptRecordError:
        return CorruptRecordError(
            f"record {index} is damaged: {error}; `penstock verify` lists all that is",
            store=self.url,
            key=self._find_key(index),
            index=index,
        )

    def _find_key(self, index: int) -> str | None:
        """The key of a record that cannot be decoded, found in the database of keys, or in its block."""
        try:
            if self._layout is not None:
                return self._open_blocks().key(index)
            return next((key for key, at in self._open().key_entries() if at == index), None)
        except ValueError:
            return None  # the database is damaged as well; the index alone names the record

    def _read_arrays(self, field: str, kind: ArrayKind) -> Array:
        """The arrays of all records, which have one shape."""
        if self._layout is not None:
            return self._call_blocks([], lambda blocks, _: blocks.column(field))
        column = np.empty((len(self), *(kind.shape or ())), kind.dtype)
        for index, value in enumerate(self._iter_values(field)):
            try:
                column[index] = missing_value(kind.dtype) if value is None else value
            except ValueError as error:
                raise self._make_damage_error(index, error) from error
        column.flags.writeable = False
        return column

    def _iter_keys(self) -> Iterator[tuple[str, int]]:
        """All keys with their numbers, in any order; ValueError if they are damaged."""
        if self._layout is None:
            return self._open().key_entries()
        return ((key, index) for index, key in enumerate(self._open_blocks().keys()))

    def _iter_values(self, field: str) -> Iterator[Any]:
        """Without checksums of blobs, whose pages are not touched then."""
        return (self._read_records([index], check=False)[0].fields[field] for index in range(len(self)))

    def _read_column(self, field: str) -> Array:
        hashed = (self._meta.columns or {}).get(field)
        try:
            content = self._open().column(field)
            if content is None:
                raise ValueError("it is missing")  # noqa: TRY301  # one handler for every damage
            if xxhash.xxh3_64_hexdigest(content) != hashed:
                raise ValueError("its checksum does not match")  # noqa: TRY301  # one handler for every damage
            return decode_column(content, len(self), self.schema[field])
        except ValueError as error:
            raise CorruptRecordError(f"the column of field {field!r} is damaged: {error}", store=self.url) from error


class _LmdbKeys(LazyKeys):
    """The keys of a store, read when they are needed."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._all: list[str] | None = None

    def __len__(self) -> int:
        return len(self._store)

    def get(self, number: int) -> str:
        """The key of a record, from the record unless all keys are known."""
        return self._store.read([number])[0].key if self._all is None else self._all[number]

    def get_several(self, numbers: range) -> list[str]:
        """The keys of a slice, from the database of keys."""
        keys = self._read_all()
        return [keys[number] for number in numbers]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_all())

    def __repr__(self) -> str:
        return f"<{len(self)} keys of {self._store.url!r}>"

    def _read_all(self) -> list[str]:
        if self._all is None:
            found = [""] * len(self)
            try:
                for key, index in self._store._iter_keys():  # noqa: SLF001  # a part of the store
                    found[index] = key
                if "" in found:
                    raise ValueError(f"it has no key for record {found.index('')}")  # noqa: TRY301  # one handler
            except (ValueError, IndexError) as error:
                raise CorruptRecordError(f"the database of keys is damaged: {error}", store=self._store.url) from error
            self._all = found
        return self._all
