"""The ``tar`` store: records of WebDataset's shards by index, views of the mapped files.

::

    train-{000..099}.tar ──one scan──> where the files of each record lie, kept in train-000.tar.index.npz
    read([3, 1]) ──────────────────> views of the mapped shards: nothing is extracted or copied

Records are those that webdataset yields, in its order, with its keys. Compressed shards are decompressed once
(:mod:`.common.decompressed`). :class:`~penstock.stores.tar.stream.TarStream` reads the same shards from their
beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from penstock.errors import StoreFormatError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.compression import PROGRAMS, DecompressedFile, find_codec
from penstock.stores.common.decompressed import DecompressedCopies, select_cache_options
from penstock.stores.common.keys import KeyList
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.mirrors import announce_ends
from penstock.stores.common.record_index import load_or_scan
from penstock.stores.container import ContainerStore, select_given
from penstock.stores.fields.record_names import make_natural_key
from penstock.stores.location import Location
from penstock.stores.tar.format import BLOCK_NBYTES, is_header
from penstock.stores.tar.index import TarIndex, scan_shards, warn_of_dots
from penstock.stores.tar.shards_writer import ShardedTarWriter, list_written_shards
from penstock.stores.tar.writer import TarWriter
from penstock.wording import counted

__all__ = ["TarStore"]

_VERSION: Final = "tar-4"
_SHARD_SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class TarStore(ContainerStore[MappedFiles]):
    """Tar shards with random access.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        The shards, in order; or a folder that contains only shards, which are then in the natural order of their names.
    cache : str or path, optional
        The folder for decompressed copies of compressed shards.
    cache_nbytes : int, optional
        The most bytes of these copies. See :class:`~penstock.stores.common.decompressed.DecompressedCopies`.
    shard_keys : bool
        True: a key begins with the name of its shard (``train-000/0001``), for shards that have the same keys.
    dotted_keys : bool, optional
        True: a key ends at the last dot of a file's name (``2024.05.01.jpg``), not at the first one. None: as False,
        and records that look like several such files are warned of.
    image : str, optional
        The name of the image, where files have names before their types: ``left`` of ``0001.left.jpg``; empty: there is
        none. By default images without a name, or the one whose name fits best.

    Raises
    ------
    ArgumentError
        If several images of a record fit equally well, and none is stated.
    StoreFormatError
        If a shard is truncated or no tar file, there is no record, or a record has two files of one suffix.

    Notes
    -----
    A key ends at the first dot of the last part of a file's name; the rest, in lower case, is the suffix. The files of
    a record are in one shard; those that do not follow one another are joined, unless a suffix comes again: that is
    another record. The image is the field ``image`` whatever its suffix, ``cls`` is ``label``; the other
    fields are named by their suffix. A record that lacks a file has None. Entries that are not files of records (links,
    names without a suffix) are in :attr:`problems`.
    """

    kind: ClassVar[str] = "tar"
    takes_shards: ClassVar[bool] = True
    _keys: Sequence[str]

    def __init__(
        self,
        path: PathLike,
        *,
        cache: str | os.PathLike[str] | None = None,
        cache_nbytes: int | None = None,
        shard_keys: bool = False,
        dotted_keys: bool | None = None,
        image: str | None = None,
    ) -> None:
        options = select_given(type(self), shard_keys=shard_keys, dotted_keys=dotted_keys, image=image)
        options |= select_cache_options(cache, cache_nbytes)
        location = self.locate(path)
        shards = tuple(shard for each in location.paths for shard in _list_shards(each))
        super().__init__(location, files=shards, **options)
        self._copies = DecompressedCopies(shards, cache, cache_nbytes)
        with self.opening("tar file"):
            announce_ends(shards)
            self._codecs = tuple(map(find_codec, shards))
            mapped = self.open_files()
            names = [shard.name for shard in shards]
            index = load_or_scan(
                location,
                f"{_VERSION}:{self.digest()}",
                lambda: f"{_VERSION}:{self.fingerprint()}",
                lambda: scan_shards(names, mapped.whole, dotted_keys=bool(dotted_keys)).to_arrays(),
                lambda arrays: TarIndex.from_arrays(arrays, len(shards)),
            )
            if not len(index.records):
                raise StoreFormatError("there is no record in these shards", store=self.url)
            self._set_index(index, image)
            if shard_keys:
                stems = [name.partition(".")[0] for name in names]
                pairs = zip(index.records["shard"].tolist(), index.keys, strict=True)
                self._keys = KeyList.from_names(f"{stems[shard]}/{key}" for shard, key in pairs)
        if dotted_keys is None and image is None and not index.declared:
            images = set(self._plan.images)
            usual = {suffix for group in index.suffixes if not images.isdisjoint(group) for suffix in group}
            for number, group in enumerate(index.suffixes):
                row = int(np.argmax(index.records["group"] == number))
                if warn_of_dots(index.keys[row], group, usual, 3):  # who calls `penstock.open`
                    break

    def _set_index(self, index: TarIndex, image: str | None) -> None:
        self._index, self._plan, self._keys = index, index.make_plan(image), index.keys
        self._schema, self._problems, self._unreadable = self._plan.schema, index.problems, index.unreadable
        self._places: dict[str, list[int]] = {}
        # views give Python numbers, faster than arrays do
        self._groups, self._shards = index.records["group"].data, index.records["shard"].data
        self._begins, self._offsets, self._sizes = (
            index.begins.data,
            index.files["offset"].data,
            index.files["nbytes"].data,
        )

    @property
    def description(self) -> str:
        """How many records and shards, and what is compressed."""
        parts = [f"tar (WebDataset): {counted(len(self), 'record')} in {counted(len(self._files), 'shard')}"]
        if codecs := set(self._codecs) - {""}:
            names = ", ".join(sorted(PROGRAMS.get(codec, codec) for codec in codecs))
            parts.append(f"compressed with {names}, read from decompressed copies")
        if self._index.declared:
            parts.append("fields as declared in the shards")
        if self.problems:
            parts.append(f"{counted(len(self.problems), 'entry')} left out")
        return ", ".join(parts)

    def __len__(self) -> int:
        return len(self._groups)

    def open_files(self) -> MappedFiles:
        """Map the shards, or their decompressed copies, when they are first read."""
        pairs = zip(self._files, self._codecs, strict=True)
        return MappedFiles([self._copies.find(path, codec) if codec else path for path, codec in pairs])

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """The shards of these records."""
        shards = self._shards
        return {shards[index] for index in indices}

    def ranges_of(self, opened: MappedFiles, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The files of each record, where its shard is not compressed."""
        del opened
        for index in indices:
            if not self._codecs[shard := self._shards[index]]:
                for number in range(self._begins[index], self._begins[index + 1]):
                    yield shard, self._offsets[number], self._sizes[number]

    def read_record(self, opened: MappedFiles, index: int) -> Record:
        """Read one record; encoded bytes are views."""
        shard, at = self._shards[index], self._begins[index]
        offsets, sizes, view = self._offsets, self._sizes, opened.view
        files = [
            (suffix, view(shard, offsets[number], sizes[number]))
            for number, suffix in enumerate(self._index.suffixes[self._groups[index]], at)
        ]
        return Record(index, self._keys[index], self._plan.read(files))

    def make_blob_reader(self, opened: MappedFiles, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """Return what gives views of one field; the other files are not read."""
        if not self._plan.is_plain(field):
            return super().make_blob_reader(opened, field, indices)
        view, places = opened.view, self._places_of(field)
        groups, begins, shards = self._groups, self._begins, self._shards
        offsets, sizes = self._offsets, self._sizes

        def read(index: int) -> memoryview | None:
            place = places[groups[index]]
            file = begins[index] + place
            return None if place < 0 else view(shards[index], offsets[file], sizes[file])

        return read

    def read_column(self, opened: MappedFiles, field: str) -> Iterable[object]:
        """Return the values of a field, from its files only."""
        suffixes = self._plan.find_suffixes(field)
        places = self._places_of(field)
        for index in self.iterate(opened):
            place = places[self._groups[index]]
            if place < 0:
                yield None
                continue
            file = self._begins[index] + place
            content = opened.view(self._shards[index], self._offsets[file], self._sizes[file])
            suffix = suffixes[0] if len(suffixes) == 1 else self._index.suffixes[self._groups[index]][place]
            yield self._plan.read([(suffix, content)])[field]

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Recognise a tar file, compressed or not, and a folder that contains only such files, no images or folders."""
        place = Path(path)
        try:
            if place.is_dir():
                return _contains_shards(place)
            with DecompressedFile(place, find_codec(place)) as file:
                return is_header(file.read(BLOCK_NBYTES))
        except (OSError, ValueError, EOFError):
            return False

    @classmethod
    def writer(  # type: ignore[override]  # the options of this kind, by name
        cls,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        shard_nbytes: int | None = None,
        shard_records: int | None = None,
    ) -> TarWriter:
        """Begin or resume a tar file (:class:`TarWriter`), or with a limit shards (:class:`ShardedTarWriter`)."""
        if shard_nbytes is None and shard_records is None:
            return TarWriter(location, schema, source, overwrite=overwrite)
        return ShardedTarWriter(
            location, schema, source, overwrite=overwrite, shard_nbytes=shard_nbytes, shard_records=shard_records
        )

    @classmethod
    def locate_written(cls, location: Location, **options: object) -> Location:
        """Return the shards, if they were written with a limit; see :meth:`Store.locate_written`."""
        if all(options.get(name) is None for name in ("shard_nbytes", "shard_records")):
            return location
        shards = list_written_shards(location)
        return Location.from_paths(cls.kind, shards) if shards else location

    def _places_of(self, field: str) -> list[int]:
        """Find which file of each group of suffixes holds a field; -1: none."""
        places = self._places.get(field)
        if places is None:
            suffixes = set(self._plan.find_suffixes(field))
            groups = self._index.suffixes
            places = [next((i for i, each in enumerate(group) if each in suffixes), -1) for group in groups]
            self._places[field] = places
        return places


def _list_shards(path: Path) -> list[Path]:
    """Return the shards in a folder, by name; for a file, itself."""
    if not path.is_dir():
        return [path]
    found = [each for each in path.iterdir() if each.name.endswith(_SHARD_SUFFIXES) and each.name[0] != "."]
    shards = sorted(found, key=lambda shard: make_natural_key(shard.name))
    if not shards:
        suffixes = ", ".join(_SHARD_SUFFIXES)
        raise StoreFormatError(f"there is no shard in this folder; their names end in {suffixes}", store=str(path))
    return shards


def _is_sidecar(name: str) -> bool:
    """Return whether a file or folder lies beside a shard and has its name: an index, or what a conversion wrote."""
    return not name.endswith(_SHARD_SUFFIXES) and any(f"{suffix}." in name for suffix in _SHARD_SUFFIXES)


def _contains_shards(folder: Path) -> bool:
    has_shard = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or _is_sidecar(entry.name):
                continue
            if entry.is_dir() or os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:  # noqa: PTH122  # a text
                return False
            has_shard = has_shard or entry.name.endswith(_SHARD_SUFFIXES)
    return has_shard
