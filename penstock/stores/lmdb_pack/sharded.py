"""The ``sharded`` store: a folder of packs and the manifest that names them, on this machine or below a URL.

::

    photos.lmdb/manifest.json ──> length, schema, fingerprint           no shard is opened for these
    indices ──searchsorted──> (shard, positions, indices there) ──> LmdbStore of each shard, opened when first read
                                                                     a bounded number of them stay open

A shard whose content is not the one in the manifest is refused: it was replaced. Threads open shards ahead of their
readers, and a shard that is left out stays open for those that still read it (:class:`OpenShards`).
:mod:`.lmdb_pack.sharded_writer` writes such packs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock import paths, system
from penstock.errors import IncompleteStoreError, PenstockError, StoreError, StoreNotFoundError
from penstock.pixel_rows import PixelRows
from penstock.sample import Array, Blob, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.common.keys import LazyKeys, make_keys
from penstock.stores.common.per_process import PerProcess
from penstock.stores.container import load_column
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.fields.record_names import check_classes
from penstock.stores.indices import check_indices
from penstock.stores.kinds import LOCK, MANIFEST, MANIFEST_MAGIC, UNFINISHED, Sign
from penstock.stores.lmdb_pack.manifest import PackManifest
from penstock.stores.lmdb_pack.store import LEAST_PREFETCHED_NBYTES, LOOK_AHEAD, LmdbStore, refuse_other_classes
from penstock.stores.location import Location
from penstock.stores.problems import Problem
from penstock.stores.remote.request_queue import Fetcher
from penstock.stores.writing import CommittedRecords, Writer
from penstock.wording import counted

__all__ = ["ShardPart", "ShardedPack"]

_OPENED_AHEAD: Final = 32
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_MOST_OPEN: Final = 1024
"""Of 10,000 records each, they take some 460 MB (``benches/sharded.py``)."""
_DESCRIPTORS: Final = 2
"""Files that an open shard has open: those of its seek tables, and one while it is opened."""


class ShardPart(NamedTuple):
    """Those of some records that are in one shard: its number, their positions among all, their indices in it."""

    number: int
    positions: NDArray[np.int64]
    indices: NDArray[np.int64]


class ShardedPack(Store):
    """A finished sharded pack.

    Parameters
    ----------
    path : str, path or Location
        The folder.
    check : bool
        As for :class:`~penstock.stores.lmdb_pack.store.LmdbStore`.
    classes : sequence of str, optional
        The classes that the pack must have, by number.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If the manifest is damaged, or of an unknown version.
    IncompleteStoreError
        If it was never finished.
    ArgumentError
        If its classes are not ``classes``.

    Notes
    -----
    What is wrong with a shard is raised when its records are read; ``penstock verify`` finds it in all shards.
    """

    kind: ClassVar[str] = "sharded"
    reads_ranges: ClassVar[bool] = True

    def __init__(self, path: PathLike, *, check: bool = True, classes: Sequence[str] | None = None) -> None:
        super().__init__(path, check=check)
        self.manifest = _read_manifest(self.location)
        self._skipped = tuple(self.manifest.skipped)
        shards = self.manifest.shards
        self._names, self._content = shards.names, shards.content
        self._ends = np.cumsum(np.array(shards.counts, np.int64))
        self._count = int(self._ends[-1])
        self._begins = self._ends - np.array(shards.counts, np.int64)
        self.look_ahead = 0 if self.location.remote is None else LOOK_AHEAD
        self._columns: dict[str, Array] = {}
        self.opened = OpenShards(self.location, self.manifest, check=check)
        if classes is not None:
            refuse_other_classes(self, check_classes(classes))

    @property
    def schema(self) -> Schema:
        """Fields of the records."""
        return self.manifest.schema

    @property
    def description(self) -> str:
        """How many packs it consists of."""
        return f"sharded pack of {counted(len(self._names), 'shard')}"

    def __len__(self) -> int:
        return self._count

    def shards(self) -> Iterator[LmdbStore]:
        """The packs that it consists of, in order; each is opened when it is reached, and must not be closed."""
        self._refuse_closed()
        for number in range(len(self._names)):
            if self.location.remote is not None and number % _OPENED_AHEAD == 0:
                self.opened.open_ahead(range(number, min(number + _OPENED_AHEAD, len(self._names))))
            yield self.shard(number)

    def shard(self, number: int) -> LmdbStore:
        """Return one of the packs that it consists of; it must not be closed. StoreError if it cannot be opened."""
        self._refuse_closed()
        return self.opened.get(number)

    def split(self, indices: Indices) -> list[ShardPart]:
        """Return which shards hold some records.

        Raises
        ------
        RecordIndexError
            If an index is not in the pack.
        """
        self._refuse_closed()
        given = check_indices(indices, "a store")
        if not len(given):
            return []
        if given.min() < 0 or given.max() >= self._count:
            self._check_indices(given)
        wanted = given.astype(np.int64)
        numbers = np.searchsorted(self._ends, wanted, "right")
        wanted -= self._begins[numbers]
        first = int(numbers[0])
        if (numbers == first).all():
            return [ShardPart(first, np.arange(len(wanted)), wanted)]
        order = np.argsort(numbers, kind="stable")
        numbers, wanted = numbers[order], wanted[order]
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(order)]
        return [ShardPart(int(numbers[a]), order[a:b], wanted[a:b]) for a, b in itertools.pairwise(cuts)]

    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``, with the files of images; see :meth:`Store.read`."""
        return self._read(indices, LmdbStore.read)

    def read_stored(self, indices: Indices) -> list[Record]:
        """The records as they are stored; see :meth:`Store.read_stored`."""
        return self._read(indices, LmdbStore.read_stored)

    def _read(self, indices: Indices, read: Callable[[LmdbStore, Indices], list[Record]]) -> list[Record]:
        def call(shard: LmdbStore, numbers: NDArray[np.int64], begin: int) -> list[Record]:
            records = read(shard, numbers)
            return [Record(begin + each.index, each.key, each.fields) for each in records] if begin else records

        return list(_order(self._call(indices, call)))

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """Return one encoded field; rows of one buffer where all records are in one shard. See :meth:`Store.blobs`."""
        self.schema.refuse_small(field)
        return _order(self._call(indices, lambda shard, numbers, _: shard.blobs(field, numbers)))

    def pixels(self, field: str, indices: Indices) -> Sequence[Array]:
        """Return the images of a field of pixels; those in blocks of several shards are copied to one buffer."""
        self.schema.refuse_encoded(field)
        parts = self._call(indices, lambda shard, numbers, _: shard.pixels(field, numbers))
        if len(parts) < 2 or not all(isinstance(images, PixelRows) for _, images in parts):
            return _order(parts)
        joined = _gather([(part, np.stack(list(images))) for part, images in parts])
        offsets = np.arange(len(joined), dtype=np.int64) * joined[0].nbytes
        return PixelRows(joined.data.toreadonly().cast("B"), offsets, joined.shape[1:], joined.dtype)

    def rows(self, field: str, indices: Indices) -> Array | None:
        """Return small values of fixed size at ``indices``, numbers too: no column of all records is made for these."""
        kind = self.schema[field]
        if kind.array is None and get_column_dtype(kind) is None:
            return None

        def read(shard: LmdbStore, numbers: NDArray[np.int64], _: int) -> Array | None:
            return shard.column(field)[numbers] if kind.array is None else shard.rows(field, numbers)

        parts = [(part, values) for part, values in self._call(indices, read) if values is not None]
        return _gather(parts) if parts else None

    @property
    def prefetches(self) -> bool:
        """Whether records are so large that reading ahead pays."""
        is_large = self.manifest.committed.nbytes >= LEAST_PREFETCHED_NBYTES * max(len(self), 1)
        return self.location.remote is not None or is_large

    def prefetch(self, indices: Indices) -> bool:
        """Begin to open the shards, and to read the records, that are asked for soon; see :meth:`Store.prefetch`."""
        is_asked = False
        for part in self.split(indices):
            opening = self.opened.open_ahead([part.number])
            for each in opening:
                each.add_done_callback(functools.partial(_prefetch_opened, part.indices))
            is_asked |= bool(opening) or self.shard(part.number).prefetch(part.indices)
        return is_asked

    def column(self, field: str) -> Array:
        """A small field of all records, for which each shard is opened; see :meth:`Store.column`."""
        self._refuse_closed()
        if field not in self._columns:

            def read() -> Array:
                column = np.concatenate([shard.column(field) for shard in self.shards()])
                column.flags.writeable = False
                return column

            self._columns[field] = load_column(field, self.schema[field], read, self.url)
        return self._columns[field]

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which records lack a value, as each shard says; see :meth:`Store.lacks_value`."""
        parts = self._call(indices, lambda shard, numbers, _: shard.lacks_value(field, numbers))
        return _gather(parts) if parts else np.zeros(0, np.bool_)

    def _iter_values(self, field: str) -> Iterator[object]:
        """A small field of each record, shard by shard."""
        for shard in self.shards():
            yield from shard.ragged_column(field)

    def keys(self) -> Sequence[str]:
        """The names of the records. Indexing reads one name; iterating opens each shard."""
        self._refuse_closed()
        return LazyKeys(
            lambda index: self.read([index])[0].key,
            len(self),
            lambda: make_keys(itertools.chain.from_iterable(shard.keys() for shard in self.shards())),
        )

    def get_key(self, index: int) -> str | None:
        """The key of a record, also of one that is damaged; None if it is not found."""
        with suppress(PenstockError):
            (part,) = self.split([index])
            return self.shard(part.number).get_key(int(part.indices[0]))
        return None

    def digest(self) -> str:
        """The hash over the contents of all shards."""
        self._refuse_closed()
        return self._content

    def fingerprint(self) -> str:
        """The hash of the content, on which alone it depends."""
        return self._content

    def close(self) -> None:
        """Close the shards."""
        super().close()
        self.opened.close()

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with the manifest of a sharded pack, or with the files of one that was not finished."""
        is_unfinished = Sign(LOCK).is_at(path) and Sign(UNFINISHED).is_at(path)
        return is_unfinished or Sign(MANIFEST, MANIFEST_MAGIC).is_at(path)

    @classmethod
    def check(
        cls, location: Location, progress: Callable[[int, int], None] | None = None, **options: object
    ) -> Iterator[Problem]:
        """Everything that is wrong with the manifest, and with the files of each shard."""
        del options
        try:
            store = cls(location)
        except StoreNotFoundError:
            raise
        except PenstockError as error:
            yield Problem(error.message)
            return
        with store:
            for name in dict.fromkeys(store._names):  # one that occurs several times is checked once
                yield from store._check_shard(name, store._names.index(name), progress)

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Return what the finished pack holds, if its origin is ``source``; see :meth:`Store.finished`."""
        try:
            manifest = _read_manifest(location)
        except StoreError:
            return None  # there is no pack, or it is unfinished or damaged
        is_unfinished = os.path.lexists(location.local_path / UNFINISHED)
        if is_unfinished or (manifest.source, manifest.schema) != (source, schema):
            return None
        return manifest.committed

    @classmethod
    def writer(  # type: ignore[override]  # its option is named
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False, shard_size: int | str = "1GB"
    ) -> Writer[object]:
        """Begin or resume a sharded pack; see :class:`.pack.sharded_writer.ShardedWriter`."""
        from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter  # readers need not load it

        nbytes = paths.parse_size(shard_size, "shard_size")
        return ShardedWriter(location, schema, source, shard_nbytes=nbytes, overwrite=overwrite)

    def _call(
        self, indices: Indices, read: Callable[[LmdbStore, NDArray[np.int64], int], T]
    ) -> list[tuple[ShardPart, T]]:
        """Call ``read`` for the records of each shard, given the index of its first record in this store."""
        parts = self.split(indices)
        if self.location.remote is not None and len(parts) > 1:
            self.opened.open_ahead([part.number for part in parts])
        found = []
        for part in parts:
            shard, begin = self.shard(part.number), int(self._begins[part.number])
            try:
                found.append((part, read(shard, part.indices, begin)))
            except PenstockError as error:
                index = error.where.get("index")
                error.where |= {"store": self.url} | ({} if index is None else {"index": begin + index})
                raise name_shard(error, self._names[part.number])  # noqa: B904  # the same error
        return found

    def _check_shard(self, name: str, number: int, progress: Callable[[int, int], None] | None) -> Iterator[Problem]:
        begin = int(self._begins[number])
        found: list[Problem] = []
        try:
            report = None if progress is None else lambda done, _: progress(begin + done, len(self))
            found += LmdbStore.check(self.opened.locate(name), report)
            if all(each.index is not None for each in found):
                self.shard(number)
        except PenstockError as error:
            found.append(Problem(error.message))
        for each in found:
            index, reason = each.index, each.reason
            yield replace(
                each,
                index=None if index is None else begin + index,
                reason=reason if reason.startswith("shard ") else f"shard {name}: {reason}",
            )


def _read_manifest(location: Location) -> PackManifest:
    folder, url = location.local_path, str(location)
    try:
        return PackManifest.read(folder / MANIFEST, url)
    except StoreError:
        raise
    except FileNotFoundError as error:
        if os.path.lexists(folder / UNFINISHED):
            raise IncompleteStoreError(
                "this pack was never finished; pack the same source again to resume", store=url
            ) from error
        raise StoreNotFoundError(f"there is no folder with {MANIFEST} at this path", store=url) from error


def _prefetch_opened(indices: NDArray[np.int64], opening: Future[LmdbStore]) -> None:
    with suppress(PenstockError, CancelledError):  # raised when the records are read
        opening.result().prefetch(indices)


def _order(parts: Sequence[tuple[ShardPart, Sequence[T]]]) -> Sequence[T]:
    """The values of all shards in the order in which they were asked for; those of one shard as they are."""
    if len(parts) == 1:
        return parts[0][1]
    found = [value for _, values in parts for value in values]
    places = np.empty(len(found), np.int64)
    places[np.concatenate([part.positions for part, _ in parts] or [places])] = np.arange(len(found))
    return [found[place] for place in places.tolist()]


def _gather(parts: Sequence[tuple[ShardPart, Array]]) -> Array:
    """Gather the values of all shards in one array, in the order in which they were asked for."""
    first = parts[0][1]
    gathered = np.empty((sum(len(values) for _, values in parts), *first.shape[1:]), first.dtype)
    for part, values in parts:
        gathered[part.positions] = values
    return gathered


class OpenShards:
    """The open packs of one sharded pack.

    ``location``: of the sharded pack. ``manifest``: what it says. ``check``: whether checksums of blobs are verified.
    """

    def __init__(self, location: Location, manifest: PackManifest, *, check: bool) -> None:
        self._location, self._manifest, self._check = location, manifest, check
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LmdbStore] = OrderedDict()
        self._opening: dict[str, Future[LmdbStore]] = {}
        self._opener = PerProcess(Fetcher)
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = _MOST_OPEN if allowed < 0 else min(_MOST_OPEN, max(allowed // (2 * _DESCRIPTORS), 1))
        """How many stay open."""
        names = len(set(manifest.shards.names))
        if self.most < min(names, _MOST_OPEN):
            _logger.warning(
                "%s: %d of its %d shards stay open, since this process may open %d files (ulimit -n); others are "
                "opened again when they are read",
                location, self.most, names, allowed,
            )  # fmt: skip
        system.watch(self)

    def __len__(self) -> int:
        """Number of open shards."""
        return len(self._open)

    def get(self, number: int) -> LmdbStore:
        """Return one of the shards, open.

        Raises StoreError if it cannot be opened, or is not the one that the manifest names.
        """
        name = self._manifest.shards.names[number]
        with self._lock:
            shard = self._open.get(name)
            if shard is not None:
                self._open.move_to_end(name)
                return shard
            opening = self._opening.get(name)
        return self._open_shard(number) if opening is None else opening.result()

    def open_ahead(self, numbers: Sequence[int]) -> list[Future[LmdbStore]]:
        """Begin to open shards in other threads; returns those that are not open yet."""
        opening = []
        with self._lock:
            for number in numbers:
                name = self._manifest.shards.names[number]
                if name in self._open:
                    continue
                if name not in self._opening:
                    self._opening[name] = self._opener.get().submit(functools.partial(self._open_shard, number), 0)
                opening.append(self._opening[name])
        return opening

    def locate(self, name: str) -> Location:
        """Return where a shard is; StoreError if a remote place cannot be asked."""
        if self._location.remote is None:
            return Location(LmdbStore.kind, f"{self._location.path}/{name}")
        from penstock.stores.remote.opening import find_below  # stores on this machine do not need it

        return find_below(self._location, name, LmdbStore)

    def close(self) -> None:
        """Close the shards."""
        with self._lock:
            shards, self._open = self._open, OrderedDict()
        for shard in shards.values():
            shard.close()

    def renew_in_child(self) -> None:
        """Begin anew in a forked child: it has no threads that open shards."""
        self._lock, self._opening = threading.Lock(), {}

    def _open_shard(self, number: int) -> LmdbStore:
        shards = self._manifest.shards
        name = shards.names[number]
        try:
            shard = LmdbStore(self.locate(name), check=self._check)
            named = shards.contents[number], shards.counts[number], self._manifest.schema
            if (shard.meta.content, len(shard), shard.schema) != named:
                raise StoreError(f"it is not the one that {MANIFEST} names: it was replaced; open the pack again")
            with self._lock:
                self._open[name] = shard
                while len(self._open) > self.most:
                    self._open.popitem(last=False)
        except PenstockError as error:
            error.where["store"] = str(self._location)
            raise name_shard(error, name)  # noqa: B904  # the same error
        finally:
            with self._lock:
                self._opening.pop(name, None)
        return shard


def name_shard(error: PenstockError, name: str) -> PenstockError:
    """Return an error of a shard, with the name of the shard in its message; the same object."""
    error.message = f"shard {name}: {error.message}"
    return error
