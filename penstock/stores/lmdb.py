"""The ``lmdb`` store: packs read through a memory map, checked record by record.

::

    LmdbStore ──(per process)──> PackMap, one per file ──record(i)──> view of the map ──check──> key, fields

A view of a record stays valid as long as someone holds it, also after the store is closed. Never used across a fork,
never unpickles, writes nothing: :mod:`.lmdb_write` writes, :mod:`.lmdb_map` opens, :mod:`.lmdb_check` verifies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, overload

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.sample import Record, Schema
from penstock.stores.base import Problem, Progress, Skipped, Store, Writer
from penstock.stores.lmdb_format import Layout, PackMeta, column_dtype, parse_column
from penstock.stores.lmdb_map import FILE, LOCK, PackMap
from penstock.stores.lmdb_pages import looks_like_lmdb
from penstock.stores.lmdb_seals import SEALS
from penstock.stores.names import check_classes, differing_classes
from penstock.stores.origin import Origin, read_note

__all__ = ["LmdbStore"]

_MAX_TEXT_NBYTES: Final = 4 << 30


class LmdbStore(Store):
    """A finished pack.

    Parameters
    ----------
    path : str or path
        The environment's folder.
    check : bool
        Whether each blob's checksum is verified whenever it is read (xxh3, some 25 GB/s). Lengths, and the checksum of
        the small fields, always are.
    classes : sequence of str, optional
        The classes that the pack is expected to have, by number; it keeps those that it was packed with.

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
    Reading costs about 3 microseconds a record beside its checksum. Layout of the file: :mod:`.lmdb_format`.
    """

    kind: ClassVar[str] = "lmdb"
    suffixes: ClassVar[tuple[str, ...]] = (".lmdb", ".mdb")

    def __init__(
        self, path: str | os.PathLike[str], *, check: bool = True, classes: Sequence[str] | None = None
    ) -> None:
        super().__init__(path, check=check)
        self._check = check
        self._map: PackMap | None = None
        meta = self._open().meta
        self._meta = meta
        self._layout = Layout(meta.schema)
        self._columns: dict[str, NDArray[Any]] = {}
        if classes is not None:
            self._refuse_other_classes(check_classes(classes))

    @property
    def schema(self) -> Schema:
        """Fields of the records, in order."""
        return self._meta.schema

    @property
    def meta(self) -> PackMeta:
        """What the pack says of itself: counts, columns, what was skipped when it was written."""
        return self._meta

    def __len__(self) -> int:
        return self._meta.count

    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[Record]:
        """The records at ``indices``; blobs are views of the map. See :meth:`Store.read`."""
        decode, check = self._layout.decode, self._check
        records = []
        for number, value in self._values(indices):
            try:
                key, fields = decode(value, number, check=check)
            except ValueError as error:
                raise self._unreadable(number, error) from error
            records.append(Record(number, key, fields))
        return records

    def blobs(self, field: str, indices: Iterable[int] | NDArray[np.int64]) -> list[memoryview]:
        """One field's views; keys and small fields are left alone. See :meth:`Store.blobs`."""
        self.schema.refuse_small(field)
        blob, check = self._layout.blob, self._check
        views = []
        for number, value in self._values(indices):
            try:
                views.append(blob(value, number, field, check=check))
            except ValueError as error:
                raise self._unreadable(number, error) from error
        return views

    def _values(self, indices: Iterable[int] | NDArray[np.int64]) -> Iterator[tuple[int, memoryview]]:
        """Index and stored value of each record."""
        source = self._open()
        source.refuse_changed(self.url)
        count = len(self)
        for index in indices.tolist() if isinstance(indices, np.ndarray) else indices:
            number = int(index)
            if not 0 <= number < count:
                self._refuse_outside(number)
            try:
                value = source.record(number)
            except ValueError as error:
                raise self._unreadable(number, error) from error
            yield number, value

    def column(self, field: str) -> NDArray[Any]:
        """A small field of all records, from its column; text is gathered record by record at the first call."""
        self._refuse_closed()
        if field not in self._columns:
            kind = self.schema[field]
            if column_dtype(kind) is not None:
                self._columns[field] = self._stored_column(field)
            elif kind.kind == "text":
                self._columns[field] = self._text_column(field)
            else:
                raise ArgumentError(f"field {field!r} is {kind.kind}, which varies in size; read the records instead")
        return self._columns[field]

    def keys(self) -> Sequence[str]:
        """The records' names; each is read when it is asked for, iterating reads all at once."""
        self._refuse_closed()
        return _Keys(self)

    def digest(self) -> str:
        """The hash over all records that the pack carries."""
        self._refuse_closed()
        return self._meta.content

    def fingerprint(self) -> str:
        """The same hash: it is one of content alone."""
        return self._meta.content

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with an LMDB data file, or the beginning or the rest of a pack, in it; or such a file."""
        begun = any(os.path.lexists(f"{path}/{name}") for name in (FILE, LOCK, SEALS))
        return begun or (Path(path).is_file() and looks_like_lmdb(path))

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
        """Everything wrong with the pack's files, page by page and record by record, without mapping them."""
        from penstock.stores.lmdb_check import check  # it imports this module

        return check(path, progress)

    @classmethod
    def finished(cls, path: str, schema: Schema, source: str) -> Progress | None:
        """What the finished pack holds, if its note says that it was made from this; see :meth:`Store.finished`."""
        try:
            with cls(path) as store:
                meta = store.meta
                made = read_note(Path(path), meta.content)
        except StoreError:
            return None  # there is none, or it is unfinished or damaged
        if made != Origin.from_text(source) or meta.schema != schema:
            return None
        return Progress(meta.count, meta.nbytes, tuple(meta.skipped))

    @classmethod
    def writer(cls, path: str, schema: Schema, source: str, *, overwrite: bool = False) -> Writer:
        """Begin or resume a pack; see :class:`.lmdb_write.LmdbWriter`."""
        from penstock.stores.lmdb_write import LmdbWriter  # readers need not load it

        return LmdbWriter(path, schema, source, overwrite=overwrite)

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """What was skipped when the pack was written is not in it; so, nothing."""
        return ()

    def close(self) -> None:
        """Let go of the map; it is unmapped when the last store and the last view of it are gone."""
        super().close()
        self._map = None

    def _open(self) -> PackMap:
        """The map in this process; made anew at the first use after a fork."""
        self._refuse_closed()
        found = self._map
        if found is None or found.process != os.getpid():
            known = found.meta if found is not None else None
            found = PackMap.of(self._path, self.url)
            if known is not None and known.content != found.meta.content:
                raise StoreError("this store was replaced by another; open it again", store=self.url)
            self._map = found
        return found

    def _refuse_other_classes(self, wanted: tuple[str, ...]) -> None:
        held = self.schema["label"].classes if "label" in self.schema else ()
        if held != wanted:
            raise ArgumentError(
                "a pack keeps the classes that it was packed with; its classes "
                f"{differing_classes(held, wanted)}. Open it without classes, or pack the source again with "
                "classes=[...] (--classes)",
                store=self.url,
            )

    def _unreadable(self, index: int, error: Exception) -> CorruptRecordError:
        return CorruptRecordError(
            f"record {index} is damaged: {error}; `penstock verify` lists all that is",
            store=self.url,
            key=self._key_elsewhere(index),
            index=index,
        )

    def _key_elsewhere(self, index: int) -> str | None:
        """The key of a record that cannot be decoded, from the database of keys."""
        try:
            return next((key for key, at in self._open().key_entries() if at == index), None)
        except ValueError:
            return None  # that database is damaged as well; the index names the record

    def _text_column(self, field: str) -> NDArray[np.str_]:
        """The texts of all records; NumPy gives each the room of the longest."""
        texts = [self.read([index])[0].fields[field] for index in range(len(self))]
        longest = max(map(len, texts), default=0)
        if 4 * longest * len(texts) > _MAX_TEXT_NBYTES:
            raise StoreError(
                f"a column of {len(texts)} texts of up to {longest} characters needs more than {_MAX_TEXT_NBYTES} "
                f"bytes; read field {field!r} from the records instead",
                store=self.url,
            )
        column = np.array(texts, np.str_)
        column.flags.writeable = False
        return column

    def _stored_column(self, field: str) -> NDArray[Any]:
        hashed = (self._meta.columns or {}).get(field)
        try:
            content = self._open().column(field)
            if content is None:
                raise ValueError("it is missing")  # noqa: TRY301  # one end for all that is wrong with it
            if xxhash.xxh3_64_hexdigest(content) != hashed:
                raise ValueError("its checksum does not hold")  # noqa: TRY301  # one end for all that is wrong with it
            return parse_column(content, len(self), self.schema[field])
        except ValueError as error:
            raise CorruptRecordError(f"the column of field {field!r} is damaged: {error}", store=self.url) from error


class _Keys(Sequence[str]):
    """The keys of a store, read as they are needed."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._all: list[str] | None = None

    def __len__(self) -> int:
        return len(self._store)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._gather()[index]
        if self._all is not None:
            return self._all[index]
        return self._store.read([index + len(self) if index < 0 else index])[0].key

    def __iter__(self) -> Iterator[str]:
        return iter(self._gather())

    def __repr__(self) -> str:
        return f"<{len(self)} keys of {self._store.url!r}>"

    def _gather(self) -> list[str]:
        if self._all is None:
            found = [""] * len(self)
            try:
                for key, index in self._store._open().key_entries():  # noqa: SLF001  # the store's own part
                    found[index] = key
                if "" in found:
                    raise ValueError(f"it has none for record {found.index('')}")  # noqa: TRY301  # one end
            except (ValueError, IndexError) as error:
                raise CorruptRecordError(f"the database of keys is damaged: {error}", store=self._store.url) from error
            self._all = found
        return self._all
