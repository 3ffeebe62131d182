"""What a store is: records by number, thread-safe, per process, pickled as its URL.

::

    path or URL ──find──> Store ──read([3, 1])──> [Record(3, "cats/4.jpg", {"image": view, "label": 0}), ...]
                            └────column("label")─> int64 array, no image touched

    Store.writer(path) ──prepare (any thread)──> append (one thread, in order) ──> finish

Datasets, packing and the views call this; a store calls none of them. A store knows bytes and small fields: it
decodes no image.
"""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError, RecordIndexError, StoreError
from penstock.plurals import counted

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.sample import Record, Schema

__all__ = ["Problem", "Progress", "Skipped", "Store", "Writer", "checked_index"]


def checked_index(index: Any, what: str) -> int:
    """``index`` as an int, for ``what`` is indexed by it."""
    try:
        return operator.index(index)
    except TypeError as error:
        raise ArgumentError(
            f"{what} is indexed by an int or a slice, got {type(index).__name__} {index!r:.80}"
        ) from error


class Skipped(NamedTuple):
    """Something of a source that is not a record of the pack: its name there, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a store, as found by :meth:`Store.check`.

    Parameters
    ----------
    reason : str
        What does not hold.
    key, index : str and int, optional
        The record it concerns.
    page : int, optional
        The page of the store's file it was seen in.
    """

    reason: str
    key: str | None = None
    index: int | None = None
    page: int | None = None

    def __str__(self) -> str:
        where = (("record ", self.index), ("", None if self.key is None else repr(self.key)), ("page ", self.page))
        named = ", ".join(f"{what}{value}" for what, value in where if value is not None)
        return f"{named}: {self.reason}" if named else self.reason


@dataclass(frozen=True, slots=True)
class Progress:
    """What a writer has committed: records, bytes of their blobs, and what was skipped among them."""

    records: int = 0
    nbytes: int = 0
    skipped: tuple[Skipped, ...] = ()

    @property
    def consumed(self) -> int:
        """Records of the source that are dealt with: the next one to read."""
        return self.records + len(self.skipped)


class Store(ABC):
    """A container of records.

    Parameters
    ----------
    path : str or path
        Where it lies.
    **options
        The kind's own; kept, so that a pickled store reopens alike.

    Notes
    -----
    Every method may be called by several threads at once. A store is pickled as its URL, options and digest, and
    opened anew by whoever unpickles it; what was changed in between is refused there. A store without checksums may
    instead carry what it listed, and refuse each record that changed (:class:`~penstock.stores.files.FilesStore`). A
    store that a fork carried into another process reopens what it must at its next use.
    """

    kind: ClassVar[str]
    """The name it is registered under, which is its URL's scheme."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of a path that choose this kind for a store that is to be written."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._path = Path(os.fsdecode(path)).absolute()
        self._options = options
        self._closed = False

    @property
    def url(self) -> str:
        """The kind and the absolute path, as :func:`penstock.open` takes them."""
        return f"{self.kind}://{self._path}"

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of the records, in order."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[Record]:
        """The records at ``indices``, in that order; an index may come twice.

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
        at = checked_index(index, "a store")
        count = len(self)
        if not -count <= at < count:
            self._refuse_outside(at)
        return self.read([at % count])[0]

    def __iter__(self) -> Iterator[Record]:
        """Every record in order, read when its turn comes."""
        for index in range(len(self)):
            yield self.read([index])[0]

    def blobs(self, field: str, indices: Iterable[int] | NDArray[np.int64]) -> list[Any]:
        """One encoded field of the records at ``indices``: what :meth:`read` gives under its name, and as safely.

        For those who need nothing else of a record (filling batches); a store may spare itself the rest.
        """
        self.schema.refuse_small(field)
        return [record.fields[field] for record in self.read(indices)]

    @abstractmethod
    def column(self, field: str) -> NDArray[Any]:
        """A small field of all records, ``(len(self),)``, without touching images; read-only, shared."""

    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The records' names, in order of index."""

    @abstractmethod
    def digest(self) -> str:
        """A short text that differs wherever the store's records do; costs no reading of images."""

    def fingerprint(self) -> str:
        """A short text that tells these records, in this order, from others: the same for a copy of the store.

        Where they came from and when they were written is no part of it. It can be asked for when the store is closed.
        """
        return self.digest()

    @classmethod
    @abstractmethod
    def recognises(cls, path: str) -> bool:
        """Whether what lies at ``path`` (it exists) looks like a store of this kind; reads a few bytes at most."""

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
        """Everything that is wrong with the store at ``path``; by default whatever reading each record raises.

        Parameters
        ----------
        path : str
            The store.
        progress : callable, optional
            Called with records done and records in all, now and then.
        """
        try:
            store = cls(path)
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
    def writer(cls, path: str, schema: Schema, source: str, *, overwrite: bool = False) -> Writer:
        """Begin or resume a pack at ``path``; ``source`` tells what it is made from. See :class:`Writer`."""
        del schema, source, overwrite
        raise ArgumentError(f"stores of kind {cls.kind!r} are read, never written; {path!r} cannot be packed to")

    @classmethod
    def finished(cls, path: str, schema: Schema, source: str) -> Progress | None:
        """What the finished store at ``path`` holds, if it was written with this schema and source; else None.

        None also where nothing is, or something that cannot be opened: :meth:`writer` says what to do.
        """
        del path, schema, source
        return None

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """What lies in the store and is no record, with the reason; nothing is left out silently."""
        return ()

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """Those of :attr:`problems` that may be records: packing refuses them, unless it is told to leave them out."""
        return ()

    def close(self) -> None:
        """Let go of what the store holds; reading raises afterwards, closing again does nothing."""
        self._closed = True

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._refuse_closed()
        return _reopen, (type(self), str(self._path), self._options, self.digest())

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


def _reopen(cls: type[Store], path: str, options: Mapping[str, Any], digest: str) -> Store:
    store = cls(path, **options)
    if store.digest() != digest:
        store.close()
        raise StoreError("this store was changed since it was pickled; open it again by its path", store=store.url)
    return store


class Writer(ABC):
    """Writes one pack, in order, so that a killed one resumes.

    ``prepare`` does the expensive part (serialising, hashing) in any thread; ``append`` and ``skip`` are called by
    one thread in the source's order; ``finish`` makes it a store. Whatever ends before ``finish`` leaves something
    that is not opened, and that a new writer for the same source continues (:attr:`committed`).
    """

    @property
    @abstractmethod
    def committed(self) -> Progress:
        """What is safely on disk; a new pack begins at ``committed.consumed``."""

    @abstractmethod
    def prepare(self, key: str, fields: Mapping[str, Any]) -> Any:
        """Turn a record into what :meth:`append` takes; thread-safe. A record that cannot be stored: PackError."""

    @abstractmethod
    def append(self, prepared: Any) -> None:
        """Add the next record."""

    @abstractmethod
    def skip(self, skipped: Skipped) -> None:
        """Note that the source's next record is left out."""

    @abstractmethod
    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Commit what is left, with what the source holds beside records, and make it a store."""

    @abstractmethod
    def close(self) -> None:
        """Stop: what was committed stays and can be resumed. After ``finish``: nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Stop and remove everything that was written."""
