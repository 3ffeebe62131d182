"""What every store does: give records by index, safely in threads and after a fork; pickle as its location.

::

    path or URL ──find──> Store ──read([3, 1])──> [Record(3, "cats/4.jpg", {"image": view, "label": 0}), ...]
                            └────column("label")─> int64 array, no image is read

Datasets, packing and the views call a store; a store calls none of them. It returns bytes and small fields: it decodes
no image. Containers that can only be read from their beginning are :class:`~penstock.stores.shards.ShardStream`.
"""

from __future__ import annotations

import functools
import operator
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec, Self, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from penstock import forks
from penstock.errors import ArgumentError, PenstockError, RecordIndexError, StoreError
from penstock.plurals import counted
from penstock.stores.location import Location
from penstock.stores.writing import CommittedRecords, Skipped, Writer

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.sample import Array, Record, Schema

__all__ = ["Indices", "LazyColumn", "Problem", "Skipped", "Store", "check_index"]

Indices = Iterable[int] | NDArray[np.int64]
"""Indices of records, as a sampler gives them."""

_LOCKED_METHODS: Final = ("read", "blobs", "column", "keys")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_StoreT = TypeVar("_StoreT", bound="Store")


def check_index(index: object, what: str) -> int:
    """Return ``index`` as an int.

    Raises
    ------
    ArgumentError
        If it is no integer; ``what`` names the object that is indexed.
    """
    try:
        return operator.index(index)  # type: ignore[arg-type]  # any object: its own TypeError is the answer
    except TypeError as error:
        raise ArgumentError(
            f"{what} is indexed by an int or a slice, got {type(index).__name__} {index!r:.80}"
        ) from error


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a store, as found by :meth:`Store.check`.

    Parameters
    ----------
    reason : str
        What is wrong.
    key, index : str and int, optional
        The record it concerns.
    page : int, optional
        The page of the store's file that it was found in.
    """

    reason: str
    key: str | None = None
    index: int | None = None
    page: int | None = None

    def __str__(self) -> str:
        where = (("record ", self.index), ("", None if self.key is None else repr(self.key)), ("page ", self.page))
        named = ", ".join(f"{what}{value}" for what, value in where if value is not None)
        return f"{named}: {self.reason}" if named else self.reason


class Store(ABC):
    """A container of records with random access.

    Parameters
    ----------
    path : str, path or Location
        Where it is: a path on this machine, or a URL if :attr:`is_remote`.
    **options
        The options of its kind; a pickled store is reopened with them.

    Notes
    -----
    Several threads may call every method at once; see :attr:`reads_concurrently`. A store is pickled as its
    location, options and digest, and is reopened when it is unpickled; there, a store that was changed in between is
    refused. A store without checksums may carry its listing instead and refuse each record that changed
    (:class:`~penstock.stores.files.FilesStore`). After a fork, a store reopens what it must at its next use.
    """

    kind: ClassVar[str]
    """The name it is registered under; the scheme of its URLs."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of a path that choose this kind for a store that is to be written."""
    is_remote: ClassVar[bool] = False
    """Whether URLs of this kind name a server: ``kind://host/path?query``. Otherwise ``://`` is followed by a path."""
    reads_concurrently: ClassVar[bool] = True
    """Whether several threads may read at once. If False, one lock for each store lets them read one after another."""
    location: Location
    """Where it is."""

    def __init__(self, path: str | os.PathLike[str] | Location, **options: object) -> None:
        self.location = self.locate(path)
        self._url = str(self.location)
        self._options = options
        self._closed = False
        self._read_lock = threading.RLock()
        if not self.reads_concurrently:
            forks.watch(self)

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if not cls.reads_concurrently:
            for name in _LOCKED_METHODS:  # inherited ones too: the class they are from may read concurrently
                setattr(cls, name, _lock_method(getattr(cls, name)))

    @classmethod
    def locate(cls, path: str | os.PathLike[str] | Location) -> Location:
        """The location that a path (or, if :attr:`is_remote`, a URL) of a store of this kind means."""
        if isinstance(path, Location):
            return path
        return Location.from_url(os.fsdecode(path)) if cls.is_remote else Location.from_path(cls.kind, path)

    @property
    def url(self) -> str:
        """The location as text, as :func:`penstock.open` takes it; passwords are left out."""
        return self._url

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of the records, in order."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``, in that order; an index may occur twice.

        Returns
        -------
        list of Record
            Blobs are ``bytes`` or read-only ``memoryview``, valid at least while the store is open.

        Raises
        ------
        RecordIndexError
            If an index is not in ``0 .. len(self) - 1``.
        StoreError
            If a record cannot be read; names store, key and index. :class:`CorruptRecordError` if its bytes are not
            those that were written.
        """

    @overload
    def __getitem__(self, index: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Record | list[Record]:
        """The record at ``index``, which may count from the end; a slice gives a list of records."""
        if isinstance(index, slice):
            return self.read(range(*index.indices(len(self))))
        number = check_index(index, "a store")
        count = len(self)
        if not -count <= number < count:
            self._refuse_outside(number)
        return self.read([number % count])[0]

    def __iter__(self) -> Iterator[Record]:
        """Every record in order; each is read when it is reached."""
        for index in range(len(self)):
            yield self.read([index])[0]

    def blobs(self, field: str, indices: Indices) -> list[Any]:
        """One encoded field of the records at ``indices``, equal to what :meth:`read` gives under its name.

        Called to fill batches, which need no other field; a store may skip reading the rest.

        Raises
        ------
        ArgumentError
            If there is no such field, or it is no encoded field.
        RecordIndexError, StoreError
            As :meth:`read`.
        """
        self.schema.refuse_small(field)
        return [record.fields[field] for record in self.read(indices)]

    def prefetch(self, indices: Indices) -> None:  # noqa: B027  # optional: the default does nothing
        """Begin to read records that are asked for soon; returns at once.

        Called with the indices of a batch as soon as the batch is planned. A store that is slow to answer (a server, a
        disk without cache) overrides this. It is only a hint: an index may never be read, and one that was not
        announced may be. An error is raised by :meth:`read`, not here. The default does nothing.
        """

    @abstractmethod
    def column(self, field: str) -> Array:
        """A small field of all records, ``(len(self),)``, without reading images; read-only, shared.

        Called when the values are first needed, not when a store or a dataset is opened.
        """

    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The names of the records, in order of index."""

    @abstractmethod
    def digest(self) -> str:
        """A short text that differs wherever the store's records do; reads no images."""

    def fingerprint(self) -> str:
        """A short text that tells these records, in this order, from others: the same for a copy of the store.

        It does not depend on where the records are and when they were written. It works on a closed store.
        """
        return self.digest()

    @classmethod
    @abstractmethod
    def recognises(cls, path: str) -> bool:
        """Whether what is at ``path`` (it exists) looks like a store of this kind; reads a few bytes at most."""

    @classmethod
    def check(cls, location: Location, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
        """Everything that is wrong with the store at ``location``; by default whatever reading each record raises.

        Parameters
        ----------
        location : Location
            The store.
        progress : callable, optional
            Called with the number of records checked and of all records, from time to time.
        """
        try:
            store = cls(location)
        except PenstockError as error:
            yield Problem(error.message)
            return
        with store:
            for index in range(len(store)):
                try:
                    store.read([index])
                except PenstockError as error:
                    yield Problem(error.message, key=error.where.get("key"), index=index)
                if progress is not None:
                    progress(index + 1, len(store))

    @classmethod
    def writer(cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False) -> Writer[Any]:
        """Begin or resume a pack at ``location``; ``source`` is the text of its origin. See :class:`Writer`.

        Raises
        ------
        ArgumentError
            If stores of this kind cannot be written.
        """
        del schema, source, overwrite
        raise ArgumentError(f"stores of kind {cls.kind!r} cannot be written, got destination {str(location)!r}")

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """What the finished store at ``location`` holds, if it was written with this schema and source; else None.

        None also where nothing is, or something that cannot be opened; :meth:`writer` then raises the error.
        """
        del location, schema, source
        return None

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """Entries of the store that are not records, with the reason; nothing is left out silently."""
        return ()

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """Those of :attr:`problems` that may be records; packing refuses them unless ``on_error="skip"``."""
        return ()

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Entries of the source that were left out when the store was written."""
        return ()

    def close(self) -> None:
        """Release what the store holds. Reading raises afterwards; closing again does nothing."""
        self._closed = True

    def renew_in_child(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold."""
        self._read_lock = threading.RLock()

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse_closed()
        return _reopen, (type(self), self.location, self._options, self.digest())

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{counted(len(self), 'record')}: {', '.join(self.schema.fields)}"
        return f"<{type(self).__name__} {self.url!r}, {state}>"

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("this store is closed; open it again", store=self.url)

    def _refuse_outside(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise RecordIndexError(
                f"index {index} is outside this store of {counted(len(self), 'record')} (0 .. {len(self) - 1})",
                store=self.url,
            )


class LazyColumn:
    """A column of a store that is read when its first value is needed.

    It is pickled without its values: a worker process reads them from its own store.
    """

    def __init__(self, store: Store, field: str) -> None:
        self._store, self._field = store, field
        self._values: Array | None = None

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Array:
        values = self._values
        if values is None:
            values = self._values = self._store.column(self._field)
        return values[rows]

    def __reduce__(self) -> tuple[object, ...]:
        return LazyColumn, (self._store, self._field)


def _lock_method(method: Callable[Concatenate[_StoreT, _P], _T]) -> Callable[Concatenate[_StoreT, _P], _T]:
    """The method of a store, called by one thread at a time."""

    @functools.wraps(method)
    def locked(self: _StoreT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._read_lock:
            return method(self, *args, **kwargs)

    return locked


def _reopen(cls: type[Store], location: Location, options: Mapping[str, Any], digest: str) -> Store:
    store = cls(location, **options)
    if store.digest() != digest:
        store.close()
        raise StoreError("this store was changed since it was pickled; open it again by its path", store=store.url)
    return store
