"""What stores of other programs' records share: checked reads, columns that are kept; over files, their changes too.

::

    ForeignStore     read(indices) ──> make_record_reader ──> Record         also for servers: MongoDB
    ContainerStore ──PerProcess──> the library's file, environment, table
        read(indices) ──files unchanged?──> read_record(opened, index) ──> Record
                                                 └ ValueError, KeyError ...──> CorruptRecordError: store, key, index

A subclass says how its files are opened and how one record is read. Nothing here knows a format.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.sample import Array, Blob, Field, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.common.keys import RowKeys
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.mirrors import read_mended
from penstock.stores.common.per_process import PerProcess
from penstock.stores.common.regular_file import FileIdentity, fingerprint_files, identify, name_failure
from penstock.stores.fields.columns import make_column
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_finished
from penstock.stores.problems import DAMAGE, say_wrong
from penstock.stores.writing import CommittedRecords

__all__ = [
    "DAMAGE",
    "LOOK_AHEAD",
    "ContainerStore",
    "ForeignStore",
    "fingerprint_files",
    "load_column",
    "naming_damage",
    "select_given",
]

T_opened = TypeVar("T_opened")
T_read = TypeVar("T_read")
LOOK_AHEAD: Final = 1 << 10
"""Records that a loader announces before it plans their batches, of remote objects."""
_BLOCK_RECORDS: Final = 256


class ForeignStore(Store, Generic[T_opened]):
    """A store of records that another program wrote, in files or on a server: checked reads, columns that are kept.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        Where they are.
    **options
        As for :class:`Store`.
    """

    damage: ClassVar[tuple[type[Exception], ...]] = DAMAGE
    """What reading a record raises for wrong bytes."""
    _keys: Sequence[str] | None = None
    _schema: Schema

    def __init__(self, path: PathLike, **options: object) -> None:
        super().__init__(path, **options)
        self._damaged: dict[str, str] = {}  # what was found damaged, and how
        self._columns: dict[str, Array] = {}
        self._missing: dict[str, NDArray[np.int64]] = {}
        """The records without a value in a field of which a column was read, once they are known."""

    @property
    def schema(self) -> Schema:
        """Fields of the records, which the kind found when it was opened."""
        return self._schema

    @abstractmethod
    def get_opened(self) -> T_opened:
        """Return what records are read from in this process. Raises StoreError if the store is closed."""

    @abstractmethod
    def make_record_reader(self, opened: T_opened, indices: Sequence[int]) -> Callable[[int], Record]:
        """Return what gives the record at each of ``indices``, which are in the store.

        An exception of :attr:`damage` becomes a :class:`CorruptRecordError` that names store, key and index.
        """

    def make_blob_reader(self, opened: T_opened, field: str, indices: Sequence[int]) -> Callable[[int], Blob]:
        """Return what gives one large field of the record at each of ``indices``.

        By default the whole record is read.
        """
        read = self.make_record_reader(opened, indices)
        return lambda index: read(index).fields[field]

    @abstractmethod
    def read_column(self, opened: T_opened, field: str) -> Iterable[object]:
        """The values of a small field of all records, in order, without images.

        A read-only array in the dtype of the column is used as it is.
        """

    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``; see :meth:`Store.read`."""
        return self._read_each(indices, self.make_record_reader)

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """Return one large field of the records at ``indices``; see :meth:`Store.blobs`."""
        self.schema.refuse_small(field)
        return self._read_each(indices, lambda opened, numbers: self.make_blob_reader(opened, field, numbers))

    def _read_each(
        self, indices: Indices, make_reader: Callable[[T_opened, Sequence[int]], Callable[[int], T_read]]
    ) -> list[T_read]:
        """Return what a reader gives for each record; its errors name the record."""
        numbers = self._check_indices(indices)
        return self._read_mended(
            lambda: self._read_numbers(numbers, make_reader),
            lambda error: self._read_numbers([getattr(error, "where", {}).get("index", numbers[0])], make_reader),
        )

    def _read_mended(self, read: Callable[[], T_read], find: Callable[[Exception], object] | None = None) -> T_read:  # noqa: ARG002  # of copies, which an override mends
        """Return what ``read`` returns; ``find`` reads what an error names."""
        return read()

    def _begin_read(self, numbers: Sequence[int]) -> T_opened:  # noqa: ARG002  # a default
        """Return what some records are read from."""
        return self.get_opened()

    def _read_numbers(
        self, numbers: Sequence[int], make_reader: Callable[[T_opened, Sequence[int]], Callable[[int], T_read]]
    ) -> list[T_read]:
        opened = self._begin_read(numbers)
        found: list[T_read] = []
        if not numbers:
            return found
        try:
            read = make_reader(opened, numbers)
            for number in numbers:
                found.append(read(number))  # noqa: PERF401  # how many were read says which one failed
        except PenstockError as error:
            failed = numbers[len(found)]
            self.location.name_source(error)
            error.locate(store=self.url, key=self.get_key(failed), index=failed)
            raise
        except self.damage as error:
            raise self.make_damage_error(numbers[len(found)], error) from error
        except OSError as error:
            failed = numbers[len(found)]
            raise StoreError(
                f"record {failed} cannot be read: {name_failure(error)}",
                store=self.url,
                key=self.get_key(failed),
                index=failed,
            ) from error
        return found

    def read_keys(self) -> Sequence[str]:
        """The keys of all records; by default their numbers."""
        return RowKeys(len(self))

    def keys(self) -> Sequence[str]:
        """Return the keys, read at the first call, damaged or not; see :meth:`Store.keys`."""
        self._refuse_closed()
        if self._keys is None:
            with self._refusing_again("the list of keys"), naming_damage("the list of keys", self.url, self.damage):
                self._keys = self._read_mended(self.read_keys)
        return self._keys

    def column(self, field: str) -> Array:
        """A small field of all records, read at the first call; see :meth:`Store.column`."""
        self._refuse_closed()
        if field not in self._columns:
            self._columns[field] = load_column(field, self.schema[field], lambda: self._read_column(field), self.url)
        return self._columns[field]

    def _read_column(self, field: str) -> Iterable[object]:
        def read() -> Sequence[object] | Array:
            values = self.read_column(self.get_opened(), field)
            return values if isinstance(values, np.ndarray) else list(values)

        with naming_damage(f"the column of field {field!r}", self.url, self.damage):
            values = self._read_mended(read)
        if not isinstance(values, np.ndarray):
            self._missing[field] = np.array([at for at, value in enumerate(values) if value is None], np.int64)
        return values

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Look into its column, or into the records that could lack one, once; see :meth:`Store.lacks_value`."""
        self.column(field)
        if field not in self._missing:
            empty = self._find_empty(field)
            self._missing[field] = empty[super().lacks_value(field, empty)]
        return np.isin(indices, self._missing[field])

    def _iter_values(self, field: str) -> Iterator[object]:
        """Yield the values of a column as the kind reads it."""
        with naming_damage(f"the column of field {field!r}", self.url, self.damage):
            yield from self._read_mended(lambda: list(self.read_column(self.get_opened(), field)))

    def make_damage_error(self, index: int, error: Exception) -> CorruptRecordError:
        """The error for a record whose bytes are wrong."""
        return CorruptRecordError(
            say_wrong(f"record {index}", error), store=self.url, key=self.get_key(index), index=index
        )

    @contextlib.contextmanager
    def _refusing_again(self, what: str) -> Iterator[None]:
        """Remember damage, which a library may search for long: each error of a record asks for its key."""
        if what in self._damaged:
            raise CorruptRecordError(self._damaged[what], store=self.url)
        try:
            yield
        except CorruptRecordError as error:
            self._damaged[what] = error.message
            raise


class ContainerStore(ForeignStore[T_opened]):
    """A store over files that another program wrote.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        The files.
    files : sequence of Path, optional
        The files whose changes are noticed; by default those of the location. For a folder, its data files.
    **options
        As for :class:`Store`.

    Raises
    ------
    StoreNotFoundError
        If a file is missing.
    """

    reads_ranges: ClassVar[bool] = True
    reads_copies: ClassVar[bool] = True
    """Whether remote files are read as copies; a library that reads them itself would open a later version anew."""

    def __init__(self, path: PathLike, *, files: Sequence[Path] | None = None, **options: object) -> None:
        super().__init__(path, **options)
        self._files = tuple(self.location.paths if files is None else files)
        self._file_names = tuple(map(os.fspath, self._files))
        self._sources = MappedFiles(self._files)  # which is asked for copies of remote objects alone
        self._identities = self._identify_all(self._files)
        self._opened = self._make_opened()
        self._fingerprint = ""
        if self._announces:
            self.look_ahead = LOOK_AHEAD

    def _make_opened(self) -> PerProcess[T_opened]:
        owner = weakref.proxy(self)  # its methods, once bound, would make a circle that keeps a dropped store
        return PerProcess(
            lambda: owner._open_again(),  # noqa: PLW0108, SLF001  # bound when it is called; of the store itself
            lambda opened: owner.close_files(opened),  # noqa: PLW0108  # bound when it is called
        )

    @abstractmethod
    def open_files(self) -> T_opened:
        """Open the files in this process; called once in each.

        An exception of :attr:`damage` becomes a :class:`CorruptRecordError`, and an OSError a :class:`StoreError`; both
        name the store.
        """

    def close_files(self, opened: T_opened) -> None:
        """Close what :meth:`open_files` returned. Arrays and views that were read from it must stay readable."""

    @abstractmethod
    def read_record(self, opened: T_opened, index: int) -> Record:
        """The record at ``index``, which is in the store.

        An exception that a parser raises for wrong bytes (:class:`ValueError`, :class:`KeyError`, ...) becomes a
        :class:`CorruptRecordError` that names store, key and index.
        """

    def make_record_reader(self, opened: T_opened, indices: Sequence[int]) -> Callable[[int], Record]:
        """Return what gives the record at each of ``indices``; by default :meth:`read_record`, with its errors.

        A kind that reads several records at once does so here.
        """
        del indices
        return functools.partial(self.read_record, opened)

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """The numbers of the files that hold some records: those whose changes are noticed when they are read."""
        del indices
        return range(len(self._files))

    def ranges_of(self, opened: T_opened, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """Return the ranges that reading some records reads: number of the file, offset and number of bytes.

        Asked for copies of remote objects alone, and for files that are not decompressed.
        """
        del opened, indices
        return ()

    @property
    def _announces(self) -> bool:
        """Whether records are ranges of remote objects."""
        return self.location.remote is not None and type(self).ranges_of is not ContainerStore.ranges_of

    @property
    def prefetches(self) -> bool:
        """Whether the kind reads ahead, or records are ranges of remote objects."""
        return self._announces or type(self).prefetch is not ContainerStore.prefetch

    def prefetch(self, indices: Indices) -> bool | None:
        """Begin to fetch the bytes of records of remote objects; see :meth:`Store.prefetch`."""
        if not self._announces:
            return False
        numbers, opened = self._check_indices(indices), self.get_opened(())
        if self.announce_places(opened, numbers):
            self._sources.source(0).submit(functools.partial(self.announce, opened, numbers))
            return True
        return self.announce(opened, numbers) > 0

    def announce_places(self, opened: T_opened, indices: Sequence[int]) -> bool:
        """Begin to fetch what says where records of remote objects are; False if nothing of it is missing."""
        del opened, indices
        return False

    def announce(self, opened: T_opened, indices: Sequence[int]) -> int:
        """Begin to fetch the bytes of records of remote objects; how many bytes are asked for."""
        return self._sources.announce(self.ranges_of(opened, indices))

    def iterate(self, opened: T_opened) -> Iterator[int]:
        """The indices of all records, in order; those of remote objects are fetched ahead."""
        for index in range(len(self)):
            if index % _BLOCK_RECORDS == 0 and self._announces:
                self.announce(opened, range(index, min(index + 2 * _BLOCK_RECORDS, len(self))))
            yield index

    def read_column(self, opened: T_opened, field: str) -> Iterable[object]:
        """Read record by record, by default; see :meth:`ForeignStore.read_column`."""
        return (self.read_record(opened, index).fields[field] for index in self.iterate(opened))

    def _begin_read(self, numbers: Sequence[int]) -> T_opened:
        opened = self.get_opened(self.files_of(numbers))
        if len(numbers) > 1 and self._announces:
            self.announce(opened, numbers)
        return opened

    def _read_mended(self, read: Callable[[], T_read], find: Callable[[Exception], object] | None = None) -> T_read:
        """Return what ``read`` returns.

        See :func:`.read_mended`. Files are opened anew, which may have read what is damaged.

        Others that read at this moment keep what they have opened.
        """
        if self.location.remote is None or not self.reads_copies:
            return read()

        def find_again(error: Exception) -> object:
            self._opened = self._make_opened()
            try:
                return read() if find is None else find(error)
            finally:
                self._opened = self._make_opened()

        return read_mended(read, self.damage, find_again)

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Return what the finished files hold, if a :class:`.FileWriter` wrote them from this source; else None."""
        del schema
        try:
            return read_finished(location, fingerprint_files(location.paths), Origin.from_text(source))
        except OSError:
            return None  # no file

    def digest(self) -> str:
        """Hash names, sizes and times of change of the files, and the options that say how they are read."""
        state = xxhash.xxh3_128(repr(sorted(self._options.items(), key=lambda item: item[0])).encode())
        for path, identity in zip(self._files, self._identities, strict=True):
            state.update(os.fsencode(path.name) + f"\0{identity.nbytes}\0{identity.changed_ns}\0".encode())
        return state.hexdigest()

    def fingerprint(self) -> str:
        """Hash sizes, first and last bytes of the files, and the options."""
        if not self._fingerprint:
            options = repr(sorted(self._options.items(), key=lambda item: item[0]))
            with naming_damage("the store", self.url):
                self._fingerprint = fingerprint_files(self._files, options)
        return self._fingerprint

    def close(self) -> None:
        """Close the files."""
        super().close()
        self._opened.close()

    def get_opened(self, files: Iterable[int] | None = None) -> T_opened:
        """Return what :meth:`open_files` opened in this process, after the files (by default all) were found unchanged.

        Raises StoreError if the store is closed, or a file was replaced or changed since the store was opened.
        """
        self._refuse_closed()
        self._refuse_changed(files)
        return self._opened.get()

    @contextlib.contextmanager
    def opening(self, what: str) -> Iterator[None]:
        """Raise what is wrong with the files, each of which must be ``what``, as errors that name the store."""
        try:
            yield
        except PenstockError as error:
            error.locate(store=self.url)
            raise
        except ValueError as error:
            raise StoreFormatError(f"this is no {what}, or it is damaged: {error}", store=self.url) from error
        except OSError as error:
            raise StoreError(f"a {what} cannot be read: {name_failure(error)}", store=self.url) from error

    def _open_again(self) -> T_opened:
        self._refuse_changed()
        with naming_damage("the store", self.url, self.damage):
            return self.open_files()

    def _watch(self, files: Sequence[Path]) -> None:
        """Notice changes of other files, too, which this store reads through its own."""
        self._files += tuple(files)
        self._file_names = tuple(map(os.fspath, self._files))
        self._sources = MappedFiles(self._files)
        self._identities += self._identify_all(files)

    def _identify_all(self, files: Sequence[Path]) -> tuple[FileIdentity, ...]:
        identities = []
        for path in files:
            try:
                identities.append(identify(path))
            except FileNotFoundError as error:
                missing = self.location.name_copy(str(path))
                raise StoreNotFoundError("there is no store at this path", store=missing) from error
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror}", store=self.url) from error
            if self.location.remote is None and not path.is_file():
                raise StoreError(f"{path.name} is not a regular file", store=self.url)
        return tuple(identities)

    def _refuse_changed(self, files: Iterable[int] | None = None) -> None:
        for number in range(len(self._files)) if files is None else files:
            try:
                if identify(self._file_names[number]) == self._identities[number]:
                    continue
            except OSError:
                pass
            raise StoreError(
                f"{self._files[number].name} was replaced or changed while this store was open; open it again",
                store=self.url,
            )


def select_given(kind: type[Store], **options: object) -> dict[str, object]:
    """Return those of the options of a kind that differ from its defaults; sequences as tuples."""
    defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()}
    plain = {
        name: value if isinstance(value, str | Mapping) or not hasattr(value, "__iter__") else tuple(value)
        for name, value in options.items()
    }
    return {name: value for name, value in plain.items() if value != defaults[name]}


def load_column(field: str, kind: Field, read: Callable[[], Iterable[object]], url: str) -> Array:
    """Return the column of a field whose values ``read`` returns; a read-only array in its dtype is used as it is.

    Raises ArgumentError if values of this kind are no column. Raises CorruptRecordError if a value is damaged.
    """
    if kind.is_blob or kind.kind == "json" or (kind.array is not None and kind.array.shape is None):
        raise ArgumentError(f"field {field!r} is {kind.kind}, which has no column; read the records instead")
    with naming_damage(f"the column of field {field!r}", url):
        values = read()
        return values if isinstance(values, np.ndarray) else make_column(field, list(values), kind, url)


@contextlib.contextmanager
def naming_damage(what: str, url: str, damage: tuple[type[Exception], ...] = DAMAGE) -> Iterator[None]:
    """Raise errors of reading as those that name what was read, and its store: damage, or what the system refuses."""
    try:
        yield
    except PenstockError as error:
        error.locate(store=url)
        raise
    except OSError as error:
        if error.errno is None:  # libraries raise it for wrong bytes
            raise CorruptRecordError(say_wrong(what, error), store=url) from error
        raise StoreError(f"{what} cannot be read: {name_failure(error)}", store=url) from error
    except damage as error:
        raise CorruptRecordError(say_wrong(what, error), store=url) from error
