"""What every store does: give records by index, safely in threads and after a fork; pickle as its location.

::

    path or URL ──find──> Store ──read([3, 1])──> [Record(3, "cats/4.jpg", {"image": view, "label": 0}), ...]
                            └────column("label")─> int64 array, no image is read

Datasets, packing and the views call a store; a store calls none of them. It returns bytes and small fields: it decodes
no image. Its kind says how stores of it are written, if they are (:class:`WritableKind`). Containers that can only be
read from their beginning are :class:`~penstock.stores.streams.ShardStream`.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from penstock import system
from penstock.errors import ArgumentError, PenstockError, RecordIndexError, RecordKeyError, StoreError
from penstock.sample import Schema
from penstock.stores.common.mirrors import read_mended
from penstock.stores.common.per_process import lock_methods
from penstock.stores.fields.columns import join_values, refuse_fixed
from penstock.stores.indices import Indices, check_index, list_indices
from penstock.stores.location import Location
from penstock.stores.problems import DAMAGE, Problem, find_unreadable
from penstock.stores.writing import CommittedRecords, Skipped, Writer
from penstock.wording import NotebookView, counted

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.ragged import Ragged
    from penstock.sample import Array, Blob, Record, Schema

__all__ = ["Indices", "PathLike", "Skipped", "Store"]

PathLike = str | os.PathLike[str] | Location | Sequence[str | os.PathLike[str]]
"""Where a store is: a path, a location, or for a store of several files a sequence of paths."""
_VALUES_BATCH: Final = 256


class WritableKind(NotebookView):
    """The part of :class:`~penstock.stores.base.Store` that writes; by default, stores of a kind cannot be written."""

    kind: ClassVar[str]
    """The name it is registered under; the scheme of its URLs."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of a path that choose this kind for a store that is to be written."""
    keeps_order: ClassVar[bool] = True
    """Whether a store that is written has its records in the order in which they were appended."""

    @classmethod
    def storable(cls, schema: Schema) -> Schema:
        """The fields of ``schema`` that this kind has a place for, as they are read back; by default all of them.

        Only those are given to :meth:`writer`. Conversion writes the others to a sidecar.
        """
        return schema

    @classmethod
    def stored_key(cls, key: str, fields: Mapping[str, Any], schema: Schema) -> str:
        """Return the key that a record has when it is read back from a store of this kind; by default the same.

        Raises
        ------
        PackError
            If the record cannot have a key there.
        """
        del fields, schema
        return key

    @classmethod
    def writer(
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False, **options: object
    ) -> Writer[Any]:
        """Begin or resume a store at ``location``; ``source`` is the text of its origin. See :class:`Writer`.

        Parameters
        ----------
        location : Location
            Where it is written.
        schema : Schema
            Fields of the records: what :meth:`storable` returned.
        source : str
            The text of its origin.
        overwrite : bool
            Whether to replace what is there.
        **options
            Options of the kind; an override names them, keyword-only.

        Raises
        ------
        ArgumentError
            If stores of this kind cannot be written.
        """
        del schema, source, overwrite, options
        raise ArgumentError(f"stores of kind {cls.kind!r} cannot be written, got destination {str(location)!r}")

    @classmethod
    def locate_written(cls, location: Location, **options: object) -> Location:
        """Return where the store is that :meth:`writer` wrote at ``location`` with these options; by default there.

        A kind that writes shards under names of their own overrides it.
        """
        del options
        return location

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Say what the finished store at ``location`` holds, if it was written with this schema and source; else None.

        None also where nothing is, or something that cannot be opened; :meth:`writer` then raises the error.
        """
        del location, schema, source
        return None


class Store(WritableKind, ABC):
    """A container of records with random access.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        Where it is: a path on this machine, or a URL if :attr:`is_remote`; several paths if :attr:`takes_shards`.
    **options
        The options of its kind; a pickled store is reopened with them.

    Notes
    -----
    Several threads may call every method at once; see :attr:`reads_concurrently`. A store is pickled as its
    location, options and digest, and is reopened when it is unpickled; there, a store that was changed in between is
    refused. A store without checksums may carry its listing instead and refuse each record that changed
    (:class:`~penstock.stores.images.store.FilesStore`). After a fork, a store reopens what it must at its next use.
    """

    is_remote: ClassVar[bool] = False
    """Whether URLs of this kind name a server: ``kind://host/path?query``. Otherwise ``://`` is followed by a path."""
    takes_shards: ClassVar[bool] = False
    """Whether a store of this kind may consist of several files."""
    layout: ClassVar[str] = ""
    """The name of the layout, where other programs write containers of this kind in several ways; else empty."""
    reads_ranges: ClassVar[bool] = False  # or files in object storage are fetched as a whole when they are opened
    look_ahead: int = 0  # records that a loader announces before it plans their batches; 0: those of planned ones
    reads_concurrently: ClassVar[bool] = True
    """Whether several threads may read at once. If False, one lock for each store lets them read one after another."""
    location: Location
    """Where it is."""
    _problems: Sequence[Skipped] = ()
    _unreadable: Sequence[Skipped] = ()
    _skipped: Sequence[Skipped] = ()

    def __init__(self, path: PathLike, **options: object) -> None:
        self.location = self.locate(path)
        self._url = str(self.location)
        self._options = options
        self._closed = False
        self._read_lock = threading.RLock()
        if not self.reads_concurrently:
            system.watch(self)

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if not cls.reads_concurrently:
            lock_methods(cls)

    @classmethod
    def locate(cls, path: PathLike) -> Location:
        """Return the location that a path (or, if :attr:`is_remote`, a URL) of a store of this kind means.

        Raises
        ------
        ArgumentError
            If several paths are given, and stores of this kind consist of one file or folder.
        """
        if isinstance(path, Location):
            return path
        if isinstance(path, list | tuple):
            if len(path) > 1 and not cls.takes_shards:
                raise ArgumentError(f"a store of kind {cls.kind!r} must be one path, got {len(path)}")
            return Location.from_paths(cls.kind, path)
        assert isinstance(path, str | os.PathLike), "one path"
        return Location.from_url(os.fsdecode(path)) if cls.is_remote else Location.from_path(cls.kind, path)

    @property
    def url(self) -> str:
        """The location as text, as :func:`penstock.open` takes it; passwords are left out."""
        return self._url

    @property
    def options(self) -> Mapping[str, object]:
        """The options with which it was opened; a pickled store is reopened with them."""
        return self._options

    @property
    def description(self) -> str:
        """What was found out about a container of another program, in one sentence; empty for other stores.

        Such as ``"pickle-index: 24 records by __keys__, values are tuples (bytes, int)"``.
        """
        return ""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of the records, in order."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``, in that order; an index may occur twice. Masks of bools are an ArgumentError.

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

    def read_stored(self, indices: Indices) -> list[Record]:
        """The same records, with images as they are stored, for decoding.

        A pack may hold a JPEG in a form that decodes faster (``transcode="coefficients"``), from which :meth:`read`
        makes the file, byte for byte; decoding takes both.
        """
        return self.read(indices)

    @overload
    def __getitem__(self, index: SupportsIndex | str) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: SupportsIndex | str | slice) -> Record | list[Record]:
        """The record at ``index``, which may count from the end; a slice gives a list of records.

        A text is a key: the first record with that key, found in O(n) each time. For many keys, make a dict of
        :meth:`keys`.
        """
        if isinstance(index, slice):
            return self.read(range(*index.indices(len(self))))
        if isinstance(index, str):
            return self.read([self._locate(index)])[0]
        number = check_index(index, "a store")
        count = len(self)
        if not -count <= number < count:
            self._refuse_outside(number)
        return self.read([number % count])[0]

    def _locate(self, key: str) -> int:
        for index, each in enumerate(self.keys()):
            if each == key:
                return index
        raise RecordKeyError(f"no record has the key {key!r:.200}", store=self.url)

    def __iter__(self) -> Iterator[Record]:
        """Every record in order; each is read when it is reached."""
        for index in range(len(self)):
            yield self.read([index])[0]

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """One encoded field of the records at ``indices``, equal to what :meth:`read_stored` gives under its name.

        Called to fill batches, which need no other field; a store may skip reading the rest. A store whose records lie
        in one buffer returns :class:`~penstock.pixel_rows.EncodedRows`, which the native fill reads without an object
        for each image.

        Raises
        ------
        ArgumentError
            If there is no such field, or it is no encoded field.
        RecordIndexError, StoreError
            As :meth:`read`.
        """
        self.schema.refuse_small(field)
        return [record.fields[field] for record in self.read(indices)]

    def pixels(self, field: str, indices: Indices) -> Sequence[Array]:
        """Return the images of a field of pixels at ``indices``, equal to what :meth:`read` gives under its name.

        Called to fill batches. A store whose images have one shape and lie in one buffer returns
        :class:`~penstock.pixel_rows.PixelRows`, which the native fill reads without an object for each image.

        Raises
        ------
        ArgumentError
            If there is no such field, or it is no field of pixels.
        RecordIndexError, StoreError
            As :meth:`read`.
        """
        self.schema.refuse_encoded(field)
        return self.blobs(field, indices)

    def rows(self, field: str, indices: Indices) -> Array | None:  # noqa: ARG002  # the default knows none
        """A field of small arrays of fixed shape at ``indices``, (n, ...), a new array; None: read the records instead.

        Called to fill batches. A store that finds such arrays without reading whole records overrides this. An array
        of a record that has no value is filled with -1, or NaN.

        Raises
        ------
        RecordIndexError, StoreError
            As :meth:`read`.
        """
        return None

    @property
    def prefetches(self) -> bool:
        """Whether :meth:`prefetch` does something; loaders call it then."""
        return type(self).prefetch is not Store.prefetch

    def prefetch(self, indices: Indices) -> bool | None:  # noqa: ARG002  # a default
        """Begin to read records that are asked for soon; returns at once.

        Called with the indices of a batch as soon as the batch is planned. A store that is slow to answer (a server, a
        disk without cache) overrides this. It is only a hint: an index may never be read, and one that was not
        announced may be. An error is raised by :meth:`read`, not here. The default does nothing.

        Returns
        -------
        bool or None
            False if there was nothing to do: after several such calls in a row, a loader asks more rarely.
        """
        return False

    @abstractmethod
    def column(self, field: str) -> Array:
        """A small field of all records, ``(len(self),)``, without reading images; read-only, shared.

        Called when the values are first needed, not when a store or a dataset is opened. Where a record has no value,
        an integer column has -1, and a column of floats NaN; :meth:`find_missing` tells these from others.
        """

    def find_missing(self, field: str) -> NDArray[np.int64]:
        """The records that have no value in a field of one number or text, in order.

        Its column has -1, NaN or an empty text there, which may be the values of others: -1 is a class to some.
        """
        found = self._find_empty(field)
        return found[self.lacks_value(field, found)] if len(found) else found

    def _find_empty(self, field: str) -> NDArray[np.int64]:
        """The records whose value in a column is that of a missing one."""
        column = self.column(field)
        if column.ndim != 1:
            raise ArgumentError(f"field {field!r} must hold one number or text a record, got {self.schema[field].kind}")
        empty = "" if column.dtype.kind == "U" else -1
        return np.flatnonzero(np.isnan(column) if column.dtype.kind == "f" else column == empty)

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of some records has no value in a small field; by default, the records are read."""
        flags = np.zeros(len(indices), np.bool_)
        for start in range(0, len(indices), _VALUES_BATCH):
            records = self.read(indices[start : start + _VALUES_BATCH].tolist())
            flags[start : start + len(records)] = [record.fields[field] is None for record in records]
        return flags

    def ragged_column(self, field: str) -> Ragged:
        """Return a field of arrays whose first length varies (``"int64[*]"``, boxes), of all records; new arrays.

        No image is read, where the format allows it. Where a record has no value, its array is empty.

        Raises
        ------
        ArgumentError
            If there is no such field, or it is of another kind.
        StoreError
            As :meth:`read`.
        """
        self._refuse_closed()
        kind = refuse_fixed(field, self.schema[field])
        return join_values(field, kind, self._iter_values(field), self.url)

    def _iter_values(self, field: str) -> Iterator[object]:
        """A small field of each record; a store that need not read whole records overrides it."""
        for start in range(0, len(self), _VALUES_BATCH):
            records = self.read(range(start, min(start + _VALUES_BATCH, len(self))))
            yield from (record.fields[field] for record in records)

    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The names of the records, in order of index."""

    def get_key(self, index: int) -> str | None:
        """The key of a record, for an error: found without reading the record where the format allows it, else None."""
        try:
            return self.keys()[index]
        except (*DAMAGE, OSError, PenstockError):
            return None

    @abstractmethod
    def digest(self) -> str:
        """Return a short text that differs wherever the store's records do; reads no images."""

    def fingerprint(self) -> str:
        """Return a short text that tells these records, in this order, from others: the same for a copy of the store.

        It does not depend on where the records are and when they were written. It works on a closed store.
        """
        return self.digest()

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Return whether what is at ``path`` (it exists) looks like a store of this kind; reads a few bytes at most.

        By default not: a kind may be on a server, or in memory.
        """
        del path
        return False

    @classmethod
    def check(
        cls, location: Location, progress: Callable[[int, int], None] | None = None, **options: object
    ) -> Iterator[Problem]:
        """Everything that is wrong with the store at ``location``; by default whatever reading each record raises.

        Parameters
        ----------
        location : Location
            The store.
        progress : callable, optional
            Called with the number of records checked and of all records, from time to time.
        **options
            Those with which the store is opened.
        """
        try:
            store = cls(location, **options)
        except PenstockError as error:
            yield Problem(error.message)
            return
        with store:
            yield from find_unreadable(store, progress)

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """Entries of the store that are not records, with the reason; nothing is left out silently."""
        return tuple(self._problems)

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """Those of :attr:`problems` that may be records; packing refuses them unless ``on_error="skip"``."""
        return tuple(self._unreadable)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Entries of the source that were left out when the store was written."""
        return tuple(self._skipped)

    def close(self) -> None:
        """Release what the store holds. Reading raises afterwards; closing again does nothing."""
        self._closed = True

    def renew_in_child(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
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

    def _check_indices(self, indices: Indices) -> list[int]:
        """Indices as a list of ints, all of them in the store."""
        numbers = list_indices(indices)
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self):
            for number in numbers:
                self._refuse_outside(number)
        return numbers

    def _refuse_outside(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise RecordIndexError(
                f"index {index} is outside this store of {counted(len(self), 'record')} (0 .. {len(self) - 1})",
                store=self.url,
            )


def _reopen(cls: type[Store], location: Location, options: Mapping[str, object], digest: str) -> Store:
    store = read_mended(lambda: cls(location, **options))
    if store.digest() != digest:
        store.close()
        raise StoreError("this store was changed since it was pickled; open it again by its path", store=store.url)
    return store
