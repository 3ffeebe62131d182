"""The fields of a sample of a store: their names or positions, structure and kinds.

Used by :mod:`penstock.datasets.sample_plan`; nothing here reads a record or transforms anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NoReturn

import numpy as np

from penstock.datasets.record_arrays import get_array, get_array_spec
from penstock.errors import ArgumentError
from penstock.sample import KINDS, Field, Record, Tree
from penstock.stores.base import Store

__all__ = ["FieldSelection"]

_RECORD_FIELDS: Final = {"index": "int", "key": "text"}
"""Attributes of every :class:`~penstock.sample.Record` besides its fields, and their kinds."""


class FieldSelection:
    """The fields of a sample, by name or position, and the structure of the sample.

    Attributes
    ----------
    names : dict
        The field of the store for each name or position in the sample.
    stored, kind_of : dict
        The kind of each value in the store, and for transforms.
    arrays : dict
        Shape and dtype of the small arrays of fixed shape, by name.

    Raises
    ------
    ArgumentError
        If there is no field, or a field is not in the store.
    """

    def __init__(self, store: Store, fields: object) -> None:
        self._shape: type = dict
        if fields is None:
            self.names: dict[Any, str] = {name: name for name in store.schema.fields}
        elif isinstance(fields, str):
            self._shape, self.names = str, {0: fields}
        elif isinstance(fields, Mapping):
            self.names = dict(fields)
        elif isinstance(fields, Iterable):
            self._shape, self.names = tuple, dict(enumerate(fields))
        else:
            self._refuse_names(fields)  # refused below
        if not self.names:
            raise ArgumentError(f"fields must name at least one field, got {fields!r}")
        if not all(isinstance(field, str) for field in self.names.values()):
            self._refuse_names(fields)
        stored = {name: _get_field(store, field) for name, field in self.names.items()}
        self.stored: dict[Any, str] = {name: field.kind for name, field in stored.items()}
        self.kind_of: dict[Any, str | None] = dict(self.stored)
        self._own = {name: field for name, field in self.names.items() if field not in store.schema}
        self._blobs = [name for name, field in stored.items() if field.is_blob]
        self._small = [
            name for name, kind in self.stored.items() if kind in {"boxes", "keypoints"} or kind not in KINDS
        ]
        specs = {name: get_array_spec(field) for name, field in stored.items()}
        self.arrays = {name: spec for name, spec in specs.items() if spec is not None}
        self._url = store.url

    def _refuse_names(self, fields: object) -> NoReturn:
        raise ArgumentError(
            f"fields must be names of fields of the store, got {fields!r:.200}; give transforms as transform="
        )

    def is_number(self, name: Hashable) -> bool:
        """Whether the value is the index of the record."""
        return self._own.get(name) == "index"

    @property
    def kinds(self) -> Tree:
        """The kind of each value, in the structure of the sample."""
        return self.to_tree(self.kind_of)

    def set_field_kinds(self, kinds: Mapping[str, str | None]) -> None:
        """Replace the kinds of the schema, by the names of the fields in the store."""
        for field, kind in kinds.items():
            if kind is not None:
                Field(kind)
            names = [name for name, own in self.names.items() if own == field]
            if not names:
                raise ArgumentError(
                    f"kinds must name fields of the sample ({', '.join(self.names.values())}), got {field!r}"
                )
            self.kind_of.update(dict.fromkeys(names, kind))

    def set_tree_kinds(self, kinds: Tree) -> None:
        """Replace all kinds, given in the structure of the sample; a value that is not named has no kind."""
        fits = isinstance(kinds, Mapping) if self._shape is dict else not isinstance(kinds, Mapping)
        if self._shape is tuple:
            fits = isinstance(kinds, tuple | list) and len(kinds) == len(self.names)
        given = self.from_tree(kinds) if fits else {}
        if not given or not given.keys() <= self.names.keys():
            raise ArgumentError(
                f"the kinds of the pipeline must have the structure of the fields {self.to_tree(self.names)!r}, "
                f"got {kinds!r}"
            )
        self.kind_of = {name: given.get(name) for name in self.names}

    def to_tree(self, values: Mapping[Hashable, Any]) -> Tree:
        """Convert values by name or position to the structure of the sample."""
        if self._shape is str:
            return values[0]
        return tuple(values.values()) if self._shape is tuple else values

    def from_tree(self, tree: Tree) -> Mapping[Hashable, Any]:
        """The inverse of :meth:`to_tree`."""
        if self._shape is str:
            return {0: tree}
        return dict(enumerate(tree)) if self._shape is tuple else tree

    def get_values(self, record: Record, *, views: bool) -> dict[Hashable, Any]:
        """The fields of a record by name. Blobs are bytes; images and masks are views of the store if ``views``."""
        values: dict[Hashable, Any] = {
            name: getattr(record, field) if name in self._own else record.fields[field]
            for name, field in self.names.items()
        }
        for name in self._blobs:
            if not (views and self.kind_of[name] in {"image", "mask"}):
                values[name] = bytes(values[name])
        for name in self._small:
            if name in self.arrays:
                values[name] = get_array(record, self.names[name], self.arrays[name], self._url)
            values[name] = np.array(values[name])  # a copy: the array of a store is a read-only view
        return values


def _get_field(store: Store, name: str) -> Field:
    """A field of the store, or an attribute of every record."""
    if name in store.schema:
        return store.schema[name]
    try:
        return Field(_RECORD_FIELDS[name])
    except KeyError:
        raise ArgumentError(
            f"no field {name!r}; this store has: {', '.join(store.schema.fields)}; every record has index and key"
        ) from None
