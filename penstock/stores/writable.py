"""What a kind of store says about writing: which fields it has a place for, under which keys, and by which writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.errors import ArgumentError
from penstock.sample import Schema
from penstock.stores.location import Location
from penstock.stores.writing import CommittedRecords, Writer
from penstock.wording import NotebookView

__all__ = ["WritableKind"]


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
        """The key that a record has when it is read back from a store of this kind; by default the same.

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
        """Where the store is that :meth:`writer` wrote at ``location`` with these options; by default there.

        A kind that writes shards under names of their own overrides it.
        """
        del options
        return location

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """What the finished store at ``location`` holds, if it was written with this schema and source; else None.

        None also where nothing is, or something that cannot be opened; :meth:`writer` then raises the error.
        """
        del location, schema, source
        return None
