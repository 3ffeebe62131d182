"""The ``lmdb`` store: packs read through a memory map, checked record by record.

::

    LmdbStore ──(per process)──> PackMap, one per file ──record(i)──> view of the map ──check──> key, fields

A view of a record stays valid as long as it is referenced, also after the store is closed. A map is never used across a
fork; nothing is unpickled or written here: :mod:`.lmdb_pack.writer` writes, :mod:`.lmdb_pack.mapping` opens,
:mod:`.lmdb_pack.check` verifies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.sample import Array, Blob, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.common.keys import LazyKeys
from penstock.stores.common.lmdb.pages import FILE
from penstock.stores.common.regular_file import FileIdentity
from penstock.stores.container import ContainerStore, naming_damage
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.fields.image_signatures import make_file
from penstock.stores.fields.record_names import check_classes, describe_class_difference
from penstock.stores.indices import check_indices
from penstock.stores.kinds import STORES
from penstock.stores.lmdb_pack.block_reader import BlockReader, DamagedRecordError
from penstock.stores.lmdb_pack.blocks import find_layout
from penstock.stores.lmdb_pack.format import RecordCodec, decode_column
from penstock.stores.lmdb_pack.mapping import PackMap
from penstock.stores.lmdb_pack.meta import PackMeta
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_origin
from penstock.stores.problems import Problem
from penstock.stores.writing import CommittedRecords, Writer

__all__ = ["LEAST_PREFETCHED_NBYTES", "LOOK_AHEAD", "LmdbStore", "refuse_other_classes"]

LEAST_PREFETCHED_NBYTES: Final = 4096
"""Mean bytes of a record from which on records are read ahead. Smaller ones share their pages with others."""
LOOK_AHEAD: Final = 2048
"""Records of a pack in object storage: twice what comes in 200 ms at 5,000 a second."""
_FEWEST_AT_ONCE: Final = 4
"""Records from which on one native call takes less time than Python for each of them."""
T = TypeVar("T")


class OpenPack(NamedTuple):
    """The map of a pack in a process; for a pack of blocks, the reader of these."""

    map: PackMap
    blocks: BlockReader | None


class LmdbStore(ContainerStore[OpenPack]):
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
    Reading costs about 3 microseconds a record, without its checksum. The file's format: :mod:`.lmdb_pack.format`.
    """

    kind: ClassVar[str] = "lmdb"
    reads_ranges: ClassVar[bool] = True

    def __init__(self, path: PathLike, *, check: bool = True, classes: Sequence[str] | None = None) -> None:
        location = self.locate(path)
        super().__init__(location, files=[location.local_path / FILE], check=check)
        self._check = check
        meta = self.get_opened(()).map.meta
        self._meta, self._schema, self._skipped = meta, meta.schema, meta.skipped
        self._codec = RecordCodec(meta.schema, allows_none=meta.version > 1)
        self._layout = find_layout(meta, self.url)
        self.look_ahead = 0 if self.location.remote is None else LOOK_AHEAD
        if classes is not None:
            refuse_other_classes(self, check_classes(classes))

    @property
    def meta(self) -> PackMeta:
        """The description in the pack: counts, columns, and what was left out when it was written."""
        return self._meta

    def __len__(self) -> int:
        return self._meta.count

    def open_files(self) -> OpenPack:
        """The map of this process; after a fork, the first use maps the file again."""
        source = PackMap.open(self.location.local_path, self.url)
        layout = find_layout(source.meta, self.url)
        return OpenPack(source, None if layout is None else BlockReader(source, layout, check=self._check))

    def _identify_all(self, files: Sequence[Path]) -> tuple[FileIdentity, ...]:
        try:
            return super()._identify_all(files)
        except StoreError:
            PackMap.open(self.location.local_path, self.url)  # says what is missing of a pack
            raise

    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``, with the files of images; see :meth:`Store.read`."""
        return self._read_each(indices, self._make_file_reader)

    def read_stored(self, indices: Indices) -> list[Record]:
        """The records as they are stored; see :meth:`Store.read_stored`."""
        return super().read(indices)

    def _make_file_reader(self, opened: OpenPack, indices: Sequence[int]) -> Callable[[int], Record]:
        """What gives each record with the files of its images."""
        read, images = self.make_record_reader(opened, indices), self._images

        def read_files(index: int) -> Record:
            record = read(index)
            for name in images:
                content = record.fields[name]
                if (file := make_file(content)) is not content:
                    record = Record(record.index, record.key, {**record.fields, name: file})
            return record

        return read_files if images else read

    @functools.cached_property
    def _images(self) -> tuple[str, ...]:
        """Fields of encoded images."""
        return tuple(name for name in self.schema.blobs if self.schema[name].kind in {"image", "mask"})

    def read_record(self, opened: OpenPack, index: int) -> Record:
        """Read one record; blobs are views of the map."""
        key, fields = self._codec.decode(opened.map.record(index), index, check=self._check)
        return Record(index, key, fields)

    def make_record_reader(self, opened: OpenPack, indices: Sequence[int]) -> Callable[[int], Record]:
        """Return what gives each record; those of blocks are read at once."""
        if opened.blocks is None:
            opened.map.fetch(indices)
            return super().make_record_reader(opened, indices)
        records = dict(zip(indices, opened.blocks.read(np.array(indices, np.int64)), strict=True))
        return records.__getitem__

    @property
    def prefetches(self) -> bool:
        """Whether records are so large that reading ahead pays."""
        return self.location.remote is not None or self._meta.nbytes >= LEAST_PREFETCHED_NBYTES * max(len(self), 1)

    def prefetch(self, indices: Indices) -> bool:
        """Have the system read records that are not in its page cache; see :meth:`Store.prefetch`."""
        opened, numbers = self.get_opened(), self._as_numbers(indices)
        if opened.blocks is not None:
            return self.location.remote is not None and opened.blocks.prefetch(numbers)
        return opened.map.read_ahead(numbers) > 0

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """Return views of one field; keys and small fields are not read. See :meth:`Store.blobs`."""
        if self._layout is not None:
            self.schema.refuse_small(field)
            return list(self._call_blocks(indices, lambda blocks, numbers: blocks.pixels(field, numbers)))
        place = self._codec.encoded.get(field)
        if place is not None:
            indices = np.ascontiguousarray(check_indices(indices, "a store"), np.int64)
            if len(indices) >= _FEWEST_AT_ONCE:
                found = self.get_opened(()).map.find_blobs(indices, *place, check=self._check)
                if found is not None:
                    return found
        return super().blobs(field, indices)

    def make_blob_reader(self, opened: OpenPack, field: str, indices: Sequence[int]) -> Callable[[int], Blob]:
        """Return what gives one blob of each record."""
        opened.map.fetch(indices)
        find, blob, check = opened.map.record, self._codec.blob, self._check
        return lambda index: blob(find(index), index, field, check=check)

    def pixels(self, field: str, indices: Indices) -> Sequence[Array]:
        """Return the images of a field of pixels; those in blocks as their places in the map."""
        if self._layout is None:
            return super().pixels(field, indices)
        self.schema.refuse_encoded(field)
        return self._call_blocks(indices, lambda blocks, numbers: blocks.pixels(field, numbers))

    def rows(self, field: str, indices: Indices) -> Array | None:
        """Return the arrays of a field of fixed shape, where they are in blocks; see :meth:`Store.rows`."""
        kind = self.schema[field]
        if self._layout is None or kind.array is None:
            return None
        return self._call_blocks(indices, lambda blocks, numbers: blocks.rows(field, numbers))

    def _call_blocks(self, indices: Indices, read: Callable[[BlockReader, NDArray[np.int64]], T]) -> T:
        """Return what ``read`` returns for some records of blocks, whose numbers are checked."""
        blocks = self.get_opened().blocks
        assert blocks is not None, "called for packs of blocks"
        try:
            return read(blocks, self._as_numbers(indices))
        except DamagedRecordError as error:
            raise self.make_damage_error(error.index, error) from error

    def _as_numbers(self, indices: Indices) -> NDArray[np.int64]:
        """Indices as an array, all of them in the pack."""
        numbers = check_indices(indices, "a store")
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            self._check_indices(numbers)
        return np.ascontiguousarray(numbers, np.int64)

    def read_column(self, opened: OpenPack, field: str) -> Iterable[object]:
        """Return the stored column, or the values record by record."""
        if get_column_dtype(self.schema[field]) is not None:
            return self._load_column(opened.map, field)
        if opened.blocks is not None:
            return self._call_blocks([], lambda blocks, _: blocks.column(field))
        return self._iter_unchecked(opened.map, field)

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Read no record where the pack says that all have values; see :meth:`Store.lacks_value`."""
        return super().lacks_value(field, indices) if self._meta.has_none else np.zeros(len(indices), np.bool_)

    def keys(self) -> Sequence[str]:
        """The names of the records. Indexing reads one name, iterating reads all names at once."""
        self._refuse_closed()
        return LazyKeys(lambda index: self.read([index])[0].key, len(self), self._load_keys)

    def digest(self) -> str:
        """The hash over all records, as the pack stores it."""
        self._refuse_closed()
        return self._meta.content

    def fingerprint(self) -> str:
        """The hash of the content, on which alone it depends."""
        return self._meta.content

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with an LMDB data file, or with files of an unfinished or damaged pack; or an LMDB file."""
        return STORES.row(cls.kind).has_sign(path)

    @classmethod
    def check(
        cls, location: Location, progress: Callable[[int, int], None] | None = None, **options: object
    ) -> Iterator[Problem]:
        """Everything that is wrong with the files of the pack, by page and by record, without mapping them."""
        del options
        from penstock.stores.lmdb_pack.check import check  # readers need not load it

        return check(location.local_path, str(location), progress)

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Return what the finished pack holds, if its origin is ``source``; see :meth:`Store.finished`."""
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
        from penstock.stores.lmdb_pack.writer import LmdbWriter  # readers need not load it

        return LmdbWriter(location, schema, source, overwrite=overwrite)

    def make_damage_error(self, index: int, error: Exception) -> CorruptRecordError:
        """The error for a record whose bytes are wrong."""
        if isinstance(error, DamagedRecordError):
            index = error.index
        return super().make_damage_error(index, ValueError(f"{error}; `penstock verify` lists all that is"))

    def get_key(self, index: int) -> str | None:
        """The key of a record that cannot be decoded, found in the database of keys, or in its block."""
        try:
            opened = self.get_opened()
            if opened.blocks is not None:
                return opened.blocks.key(index)
            return next((key for key, at in opened.map.key_entries() if at == index), None)
        except (ValueError, StoreError):
            return None  # the database is damaged as well; the index alone names the record

    def _load_keys(self) -> Sequence[str]:
        """Return all keys, from the database of keys, or from the blocks."""
        opened = self.get_opened()
        found = [""] * len(self)
        with naming_damage("the database of keys", self.url):
            if opened.blocks is not None:
                return list(opened.blocks.keys())
            for key, index in opened.map.key_entries():
                found[index] = key
            if "" in found:
                raise ValueError(f"it has no key for record {found.index('')}")
        return found

    def _iter_unchecked(self, source: PackMap, field: str) -> Iterator[object]:
        """A small field of each record, without checksums of blobs, whose pages are not touched then."""
        for index in range(len(self)):
            try:
                yield self._codec.decode(source.record(index), index, check=False)[1][field]
            except ValueError as error:
                raise self.make_damage_error(index, error) from error

    def _load_column(self, source: PackMap, field: str) -> Array:
        """Return a stored column; ValueError if it is damaged."""
        content = source.column(field)
        if content is None:
            raise ValueError("it is missing")
        if xxhash.xxh3_64_hexdigest(content) != (self._meta.columns or {}).get(field):
            raise ValueError("its checksum does not match")
        return decode_column(content, len(self), self.schema[field])


def refuse_other_classes(pack: Store, wanted: tuple[str, ...]) -> None:
    """Raise ArgumentError unless the classes of a pack are these."""
    held = pack.schema["label"].classes if "label" in pack.schema else ()
    if held != wanted:
        raise ArgumentError(
            "classes must be those that the pack was packed with; its classes "
            f"{describe_class_difference(held, wanted)}. Open it without classes, or pack the source again with "
            "classes=[...] (--classes)",
            store=pack.url,
        )
