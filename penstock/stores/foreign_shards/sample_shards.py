"""Shards of samples with a table of offsets: what MosaicML's MDS and LitData have in common.

::

    index.json      shards: files, numbers of samples, compression; columns: names, encodings
    shard           count | offset of each sample and of the end, uint32 | ... | sample | sample | ...
    sample          sizes of the columns without a fixed size, uint32 | value | value | ...

Shards are mapped into memory; a compressed one is decompressed when it is first read. Reading a record unpacks two
offsets and a few sizes; encoded images are views. A subclass parses ``index.json``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, StoreNotFoundError
from penstock.fields.roles import Candidate, Stated, choose_roles, select_paths
from penstock.pixel_rows import to_rgb
from penstock.sample import Array, DType, Field, Record
from penstock.stores.base import PathLike
from penstock.stores.common.decompressed import DecompressedCopies, Expand, select_cache_options
from penstock.stores.common.keys import make_keys
from penstock.stores.common.mapped_files import open_source
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.container import DAMAGE, ContainerStore, select_given
from penstock.stores.fields.exact_casts import UnfitValueError
from penstock.stores.fields.values import ValueReader, find_kind, find_pixels_kind, read_pil, view_array
from penstock.stores.foreign_shards.shard_index import (
    INDEX,
    find_splits,
    read_index_head,
    read_index_json,
    refuse_parts,
)
from penstock.stores.indices import spread_indices
from penstock.stores.location import Location
from penstock.wording import counted

__all__ = [
    "SampleColumn",
    "SampleShard",
    "SampleShardStore",
    "ShardFolder",
    "get_dtype",
    "read_shaped_array",
]

_PAIR: Final = struct.Struct("<II")
_COUNT: Final = struct.Struct("<I")
_MAX_AXES: Final = 31


@dataclass(frozen=True, slots=True)
class SampleShard:
    """One file of samples: its path, the number of samples, and how it is compressed.

    ``nbytes``: size of the uncompressed file, where the index has it; ``codec``: a compression of
    :data:`~penstock.stores.common.compression.CODECS`, or empty; ``expand``: decompresses files that are compressed in
    parts.
    """

    path: Path
    count: int
    nbytes: int | None = None
    codec: str = ""
    expand: Expand | None = None


@dataclass(frozen=True, slots=True)
class SampleColumn:
    """A column of the samples: its name, the name of its encoding, and its reader; None: it cannot be read."""

    name: str
    encoding: str
    reader: ValueReader | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """What ``index.json`` says. ``has_sizes``: samples begin with the sizes of columns that have no fixed size."""

    shards: Sequence[SampleShard]
    columns: Sequence[SampleColumn]
    has_sizes: bool = True


class OpenedShards:
    """The shards, each mapped and checked when it is first read in this process."""

    def __init__(self, shards: Sequence[SampleShard], copies: DecompressedCopies) -> None:
        self._shards, self._copies = shards, copies
        self._views: list[tuple[ByteRanges, memoryview] | None] = [None] * len(shards)

    def get(self, number: int) -> tuple[ByteRanges, memoryview]:
        """Return the uncompressed bytes of a shard, and those of them with its table of offsets."""
        return self._views[number] or self._open(number)

    def find_missing(self, numbers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Where the tables are that were not read yet, of shards that are not compressed; file, offset and bytes."""
        for number in numbers:
            shard = self._shards[number]
            if not (self._views[number] or shard.codec):
                yield number, 0, 4 * shard.count + 8

    def _open(self, number: int) -> tuple[ByteRanges, memoryview]:
        shard, path = self._shards[number], self._shards[number].path
        if shard.codec:
            path = self._copies.find(path, shard.codec, nbytes=shard.nbytes, expand=shard.expand)
        source = open_source(path)
        view = source.ranges()
        if shard.nbytes is not None and len(view) != shard.nbytes:
            raise ValueError(f"{shard.path.name} must have {shard.nbytes} bytes by the index, got {len(view)}")
        if len(view) < 4 * shard.count + 8:
            raise ValueError(f"{shard.path.name} is too short for {counted(shard.count, 'sample')}")
        table = source.read(0, 4 * shard.count + 8, keep=True)
        if (count := _COUNT.unpack_from(table)[0]) != shard.count:
            raise ValueError(f"{shard.path.name} must have {counted(shard.count, 'sample')} by the index, got {count}")
        self._views[number] = view, table
        return view, table


class SampleShardStore(ContainerStore[OpenedShards]):
    """A folder of shards of samples; the parameters are those of :class:`~.mds.MdsStore`."""

    def __init__(
        self,
        path: PathLike,
        *,
        image: str | None = None,
        label: str | None = None,
        key: str | None = None,
        fields: Sequence[str] | Mapping[str, str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_nbytes: int | None = None,
    ) -> None:
        stated = Stated(image, label, key, fields)
        options = select_given(type(self), image=image, label=label, key=key, fields=stated.fields)
        options |= select_cache_options(cache, cache_nbytes)
        location = self.locate(path)
        folder = self.read_folder(location)
        self._shards = folder.shards
        self._copies = DecompressedCopies([shard.path for shard in folder.shards if shard.codec], cache, cache_nbytes)
        self._all_columns = folder.columns
        try:
            super().__init__(
                location, files=[*(shard.path for shard in folder.shards), location.local_path / INDEX], **options
            )
        except StoreNotFoundError as error:
            raise StoreFormatError(
                f"{Path(str(error.where.get('store'))).name} is listed in {INDEX}, and is not in the folder",
                store=str(location),
            ) from error
        self._ends = list(itertools.accumulate(shard.count for shard in folder.shards))
        self._starts = [end - shard.count for end, shard in zip(self._ends, folder.shards, strict=True)]
        self._sizes = struct.Struct(f"<{sum(_is_sized(c) for c in folder.columns)}I" if folder.has_sizes else "<")
        self._has_sizes = folder.has_sizes
        self._fixed_nbytes = [column.reader.nbytes if column.reader else None for column in folder.columns]
        self._readers = self._find_readers(select_paths([column.name for column in folder.columns], stated))
        self._roles = choose_roles([Candidate(*found) for found in self._find_kinds().items()], stated)
        self._schema = self._roles.schema
        places = {column.name: place for place, column in enumerate(folder.columns)}
        columns = self._roles.columns
        self._steps = [(places[name], self._readers[name].read) for name in columns]
        self._key_place = columns.index(self._roles.key) if self._roles.key is not None else None

    @staticmethod
    @abstractmethod
    def is_index(head: bytes) -> bool:
        """Return whether the first bytes of ``index.json`` are those of this format."""

    @staticmethod
    @abstractmethod
    def parse_index(folder: Path, index: Mapping[str, Any]) -> ShardFolder:
        """Return what ``index.json`` says.

        Raises ValueError, KeyError, TypeError, OverflowError or RecursionError if it is not valid.
        """

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Return whether the folder, or a part of it, has an index of this format."""
        return cls.is_index(read_index_head(path)) or bool(find_splits(path, cls.is_index))

    @classmethod
    def read_folder(cls, location: Location) -> ShardFolder:
        """Read ``index.json``.

        Raises StoreFormatError if it is not valid. Raises ArgumentError if the folder has parts.
        """
        refuse_parts(location, cls.is_index)
        index = read_index_json(location)
        try:
            return cls.parse_index(location.local_path, index)
        except PenstockError:
            raise
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            missing = " is missing" if isinstance(error, KeyError) else ""
            raise StoreFormatError(f"{INDEX} is not valid: {error}{missing}", store=str(location)) from error

    @property
    def description(self) -> str:
        """Number of shards, and the encoding of each column."""
        columns = ", ".join(f"{column.name} ({column.encoding})" for column in self._all_columns)
        compressed = f", compressed ({codec})" if self._shards and (codec := self._shards[0].codec) else ""
        roles = self._roles.describe()
        return f"{self.kind}: {counted(len(self._shards), 'shard')}{compressed} of columns {columns}; {roles}"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def open_files(self) -> OpenedShards:
        """Shards are opened when they are first read."""
        return OpenedShards(self._shards, self._copies)

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """The shards of some records."""
        return {bisect_right(self._ends, index) for index in indices}

    def ranges_of(self, opened: OpenedShards, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The sample of each record, where its shard is not compressed."""
        for index in indices:
            number = bisect_right(self._ends, index)
            if not self._shards[number].codec:
                with contextlib.suppress(ValueError, OSError):  # reading the record raises it
                    begin, end = _PAIR.unpack_from(opened.get(number)[1], 4 + 4 * (index - self._starts[number]))
                    yield number, begin, max(end - begin, 0)

    def announce_places(self, opened: OpenedShards, indices: Sequence[int]) -> bool:
        """Begin to fetch the tables of offsets."""
        return self._sources.announce(opened.find_missing(self.files_of(indices))) > 0

    def read_record(self, opened: OpenedShards, index: int) -> Record:
        """Read one record; encoded images are views of the mapped shard."""
        values = self._read_values(opened, index, self._steps)
        key = str(index) if self._key_place is None else str(values[self._key_place])
        return Record(index, key, dict(zip(self.schema.fields, values, strict=False)))

    def read_column(self, opened: OpenedShards, field: str) -> Iterable[object]:
        """Return the values of one column; the others are not touched."""
        return self._iterate(opened, list(self.schema.fields).index(field))

    def read_keys(self) -> Sequence[str]:
        """Return the values of the column of the keys; else the numbers of the rows."""
        if self._key_place is None:
            return super().read_keys()
        return make_keys(map(str, self._iterate(self.get_opened(), self._key_place)))

    def get_key(self, index: int) -> str | None:
        """The key of a record that cannot be read; other records are not read for it."""
        if self._keys is not None or self._key_place is None:
            return self.keys()[index]
        try:
            return str(self._read_values(self.get_opened(), index, [self._steps[self._key_place]])[0])
        except (ValueError, OSError):
            return None

    def _iterate(self, opened: OpenedShards, place: int) -> Iterator[object]:
        steps = [self._steps[place]]
        for index in self.iterate(opened):
            yield self._read_values(opened, index, steps)[0]

    def _read_values(
        self, opened: OpenedShards, index: int, steps: Sequence[tuple[int, Callable[[memoryview], object]]]
    ) -> list[object]:
        """The values of some columns of a sample: their places among all columns, and their readers."""
        number = bisect_right(self._ends, index)
        whole, table = opened.get(number)
        begin, end = _PAIR.unpack_from(table, 4 + 4 * (index - self._starts[number]))
        at = self._sizes.size
        if not 8 <= begin <= begin + at <= end <= len(whole):
            raise ValueError(f"its bytes {begin} to {end} are not inside the {len(whole)} of its shard")
        view = whole[begin:end]
        bounds = [at]
        if self._has_sizes:
            sizes = iter(self._sizes.unpack_from(view))
            for fixed in self._fixed_nbytes:
                at += next(sizes) if fixed is None else fixed
                bounds.append(at)
            if at != end - begin:
                raise ValueError(f"its values end at byte {begin + at}, and it ends at byte {end}")
        else:
            bounds.append(end - begin)
        return [read(view[bounds[place] : bounds[place + 1]]) for place, read in steps]

    def _find_readers(self, wanted: Sequence[str]) -> dict[str, ValueReader]:
        """Return the reader of each column that is read; a column that cannot be read is an error."""
        readers = {}
        for column in self._all_columns:
            if column.name in wanted:
                if column.reader is None:
                    others = [each.name for each in self._all_columns if each.reader is not None]
                    raise ArgumentError(
                        f"column {column.name!r} of {self.url} cannot be read: {column.refusal}; leave it out with "
                        f"fields={others!r}"
                    )
                readers[column.name] = column.reader
        return readers

    def _find_kinds(self) -> dict[str, Field]:
        """The kind of each column that is read; where the index does not say it, by the values of some records."""
        names = [column.name for column in self._all_columns]
        kinds: dict[str, Field] = {}
        for name, reader in self._readers.items():
            kind = reader.kind
            if not kind:
                values = self._probe([(names.index(name), reader.read)])
                try:
                    is_pixels = reader.read is read_pil
                    kind = find_pixels_kind(cast("list[Array]", values)) if is_pixels else find_kind(values)
                    kinds[name] = Field(kind)
                except (ValueError, ArgumentError) as error:
                    raise StoreFormatError(
                        f"column {name!r} cannot be a field: {error}; leave it out with fields=", store=self.url
                    ) from error
                self._readers[name] = _adapt(reader, kinds[name])
            else:
                kinds[name] = Field(kind)
        return kinds

    def _probe(self, steps: Sequence[tuple[int, Callable[[memoryview], object]]]) -> list[object]:
        """The values of a column in some records, evenly spread; those that are damaged are left out."""
        opened = self._opened.get()
        values = []
        failure: Exception | None = None
        for index in spread_indices(len(self)):
            try:
                values.append(self._read_values(opened, index, steps)[0])
            except (*DAMAGE, OSError) as error:
                failure = error
        if not values and len(self):
            raise StoreFormatError(f"none of its records can be read: {failure}", store=self.url) from failure
        return values


def read_shaped_array(
    content: memoryview, at: int, dtype: DType, axes: int, width: int, order: Literal["little", "big"] = "little"
) -> Array:
    """Return the array behind so many lengths of axes, which begin at byte ``at`` and have ``width`` bytes each."""
    end = at + axes * width
    if axes > _MAX_AXES or end > len(content):
        raise ValueError(f"an array cannot have {axes} axes in {len(content)} bytes")
    lengths = tuple(int.from_bytes(content[begin : begin + width], order) for begin in range(at, end, width))
    return view_array(content[end:], dtype, lengths)


def get_dtype(number: int, dtypes: Mapping[int, str]) -> DType:
    """Return the dtype of a number that stands before an array."""
    if number not in dtypes:
        raise ValueError(f"arrays of type number {number} are not read")
    return np.dtype(dtypes[number])


def _is_sized(column: SampleColumn) -> bool:
    """Return whether a sample begins with the size of this column."""
    return column.reader is None or column.reader.nbytes is None


def _adapt(reader: ValueReader, field: Field) -> ValueReader:
    """Return the reader of a column whose kind was found in its values: a value of another kind is an error."""
    if field.kind in {"int", "float"}:
        return replace(reader, read=lambda content: cast("Array", reader.read(content)).item())
    kind = field.pixels or field.array
    if kind is None:
        return reader

    def read(content: memoryview) -> object:
        value = cast("Array", reader.read(content))
        if field.pixels is not None and value.ndim == 3 and value.shape[2] == 1 and kind.axes[2] == (3,):
            value = to_rgb(value)
            value.flags.writeable = False
        if value.dtype != kind.dtype or not kind.allows(value.shape):
            raise UnfitValueError(f"it must be {kind}, as in other records, got {value.dtype} of shape {value.shape}")
        return value

    return replace(reader, read=read)
