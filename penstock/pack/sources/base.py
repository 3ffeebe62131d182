"""What ``pack`` reads: records in order, as something cheap to name (an item) and something to load in a worker.

::

    Source.items(start) ──(key, token)──> this thread, in order
                              └──> thread or process: source.load(token) ──> fields ──check──> writer

A token is what a worker needs to make the record: an index of a store, a row of a table, a sample of an iterator. A
source has no position: :meth:`Source.items` begins anywhere, and a resumed run begins behind what is committed.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Final, NamedTuple, Self

from penstock.errors import ArgumentError
from penstock.sample import DatasetLike, Field, Index, Schema, Value
from penstock.stores.location import Location
from penstock.stores.writing import Skipped

__all__ = ["KEY", "Source", "SourceItem", "SourceOptions"]

KEY: Final = "__key__"
"""The value that names a record, as in WebDataset: in what :meth:`Source.load` gives, and in samples. No field."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a caller of :func:`penstock.pack` says about the source; None where nothing was said."""

    schema: Schema | Mapping[str, str | Field | None] | None = None  # kinds of fields
    classes: Sequence[str] | None = None  # names of the classes of ``label``
    names: str | Sequence[str] | None = None  # names of the values of a sample that is a tuple, or one value
    key: str | None = None  # the value that names a record; ``"index"`` for its number
    images: str | None = None  # how pictures are stored
    source_id: str | None = None  # tells the source from others
    root: str | os.PathLike[str] | None = None  # the folder of relative paths
    columns: Mapping[str, str] | None = None  # fields of a table, and the column of each

    def refuse_others(self, allowed: Sequence[str], what: str) -> None:
        """Raise ArgumentError if an option is given that a kind of source does not have."""
        for each in fields(self):
            if getattr(self, each.name) is not None and each.name not in allowed:
                has = ", ".join(allowed) or "none"
                raise ArgumentError(f"{each.name} is no option of {what}; its options are: {has}")


class SourceItem(NamedTuple):
    """One record before it is loaded: its key (or its number, if the key is known only then), and its token."""

    key: str
    token: Index


class Source(ABC):
    """Records to pack, in order.

    Attributes
    ----------
    url : str
        Names the source in messages.
    schema : Schema
        Fields of the records.
    total : int, optional
        Number of items; None if it is not known before they are read.
    keys : sequence of str, optional
        The keys of all items, if they are known without reading them; they are compared before anything is read.
    problems : tuple of Skipped
        Entries that are not items, with the reason.
    unreadable : tuple of Skipped
        Those of ``problems`` that may be records; packing refuses them unless ``on_error="skip"``.
    location : Location, optional
        Where it is, if it is a file or folder; the pack must lie outside of it.
    is_exact : bool
        Whether :meth:`digest` differs wherever a record does. Only then a finished pack is used again; else, before an
        unfinished one is resumed, its last record is compared with that of the source.
    has_random_access : bool
        Whether :meth:`items` can begin anywhere, and more than once.
    numbers_records : bool
        Whether the key of each record is its number, which needs no comparison with other keys.
    has_jobs : bool
        Whether worker processes may call :meth:`load`: the source and its tokens can be pickled.
    """

    url: str
    schema: Schema
    total: int | None = None
    keys: Sequence[str] | None = None
    problems: tuple[Skipped, ...] = ()
    unreadable: tuple[Skipped, ...] = ()
    location: Location | None = None
    is_exact: bool = True
    has_jobs: ClassVar[bool] = True
    has_random_access: ClassVar[bool] = True
    numbers_records: bool = False

    @classmethod
    def recognises(cls, src: object) -> bool:  # noqa: ARG003  # the interface
        """Return whether ``src``, an argument of :func:`penstock.pack`, is a source of this kind; reads few bytes."""
        return False

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Open a source.

        Raises
        ------
        ArgumentError
            If an option is invalid, or this kind does not have it.
        PackError
            If its records have no schema.
        """
        raise NotImplementedError(f"{cls.__name__} must define open")

    def items(self, start: int) -> Iterator[SourceItem]:
        """The items from number ``start`` on, in order. By default the key of each, or else its number, and its number.

        If it is not in :attr:`keys`, the key is known when the item is loaded.
        """
        assert self.total is not None, "a source that is read by number"
        keys = map(str, range(self.total)) if self.keys is None else self.keys
        return (SourceItem(key, number) for number, key in enumerate(itertools.islice(keys, start, None), start))

    @abstractmethod
    def load(self, token: Index) -> Mapping[str, Value]:
        """The fields of an item, as :attr:`schema` says; under :data:`KEY` its key, if the item has none. Thread-safe.

        Raises
        ------
        PackError, DecodeError, StoreError
            If the record cannot be packed; others are packed.
        """

    def describe_item(self, token: Index) -> str:
        """Return where an item is, beside its key: the beginning of what is said of it, such as ``"line 7: "``."""
        del token
        return ""

    def load_records(self, tokens: Sequence[Value]) -> Sequence[Mapping[str, Value]] | None:
        """Return what :meth:`load` gives for each of several items, read at once; thread-safe.

        None where a source cannot do so; then :meth:`load` is called for each, as where this raises an error.
        """
        del tokens
        return None

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value] | None:
        """The fields of several items at once, by name: an array or a sequence with a value for each; thread-safe.

        None where a source cannot do so; then :meth:`load` is called for each, as where this raises an error. It is
        called only where records have no images to check.
        """
        del tokens
        return None

    @abstractmethod
    def digest(self) -> str | None:
        """Return a short text that tells this source from another one.

        It is None if it cannot be known, and nothing is resumed.
        """

    def close(self) -> None:  # noqa: B027  # optional: most sources hold nothing open
        """Release what the source holds."""
