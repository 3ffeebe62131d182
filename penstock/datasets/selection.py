"""Which fields of a store a sample has, by which name or position, in which structure, and of which kinds.

Used by :mod:`penstock.datasets.sample_plan`; nothing here reads a record or transforms anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from penstock.datasets.record_arrays import array_spec, record_array
from penstock.errors import ArgumentError
from penstock.sample import KINDS, Field, Record, Tree
from penstock.stores.base import Store

__all__ = ["Selection"]

_EVERY: Final = {"index": "int", "key": "text"}
"""What every record has besides its fields, by the names of :class:`~penstock.sample.Record`, and its kind."""


class Selection:
    """Which fields a sample has, by which name or position, in which structure.

    Attributes
    ----------
    names : dict
        The store's field for each name, or position, in the sample.
    stored, kind_of : dict
        The kind of each value in the store, and to transforms.
    arrays : dict
        Shape and dtype of the small arrays whose shape is fixed, by name.
    """

    def __init__(self, store: Store, fields: Any) -> None:
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
            self.names = {0: fields}
        if not self.names:
            raise ArgumentError(f"fields={fields!r}: a sample needs at least one field")
        if not all(isinstance(field, str) for field in self.names.values()):
            raise ArgumentError(
                f"fields must be names of the store's fields, got {fields!r:.200}; transforms are transform="
            )
        stored = {name: _field(store, field) for name, field in self.names.items()}
        self.stored: dict[Any, str] = {name: field.kind for name, field in stored.items()}
        self.kind_of: dict[Any, str | None] = dict(self.stored)
        self._own = {name: field for name, field in self.names.items() if field not in store.schema}
        self._blobs = [name for name, field in stored.items() if field.is_blob]
        self._small = [
            name for name, kind in self.stored.items() if kind in {"boxes", "keypoints"} or kind not in KINDS
        ]
        specs = {name: array_spec(field) for name, field in stored.items()}
        self.arrays = {name: spec for name, spec in specs.items() if spec is not None}
        self._url = store.url

    def is_number(self, name: Any) -> bool:
        """Whether the value is the record's own number."""
        return self._own.get(name) == "index"

    @property
    def kinds(self) -> Tree:
        """What each value is, in the sample's structure."""
        return self.shaped(self.kind_of)

    def give_kinds(self, kinds: Mapping[str, str | None]) -> None:
        """Say what fields are, by the store's names, instead of the schema."""
        for field, kind in kinds.items():
            if kind is not None:
                Field(kind)
            names = [name for name, own in self.names.items() if own == field]
            if not names:
                raise ArgumentError(f"kinds name the field {field!r}; the sample has {', '.join(self.names.values())}")
            self.kind_of.update(dict.fromkeys(names, kind))

    def take_kinds(self, kinds: Tree) -> None:
        """Say what values are, in the sample's structure, as a pipeline does; what is not named has no kind."""
        fits = isinstance(kinds, Mapping) if self._shape is dict else not isinstance(kinds, Mapping)
        if self._shape is tuple:
            fits = isinstance(kinds, tuple | list) and len(kinds) == len(self.names)
        given = self.parts(kinds) if fits else {}
        if not given or not given.keys() <= self.names.keys():
            raise ArgumentError(
                f"the pipeline's kinds {kinds!r} do not fit the sample's fields {self.shaped(self.names)!r}"
            )
        self.kind_of = {name: given.get(name) for name in self.names}

    def shaped(self, values: dict[Any, Any]) -> Any:
        """Values by name or position, in the sample's structure."""
        if self._shape is str:
            return values[0]
        return tuple(values.values()) if self._shape is tuple else values

    def parts(self, tree: Tree) -> Mapping[Any, Any]:
        """The inverse of :meth:`shaped`."""
        if self._shape is str:
            return {0: tree}
        return dict(enumerate(tree)) if self._shape is tuple else tree

    def values(self, record: Record, *, views: bool) -> dict[Any, Any]:
        """The record's fields by name; images and masks to be transformed as views of the store if ``views``.

        All other blobs are bytes.
        """
        values: dict[Any, Any] = {
            name: getattr(record, field) if name in self._own else record.fields[field]
            for name, field in self.names.items()
        }
        for name in self._blobs:
            if not (views and self.kind_of[name] in {"image", "mask"}):
                values[name] = bytes(values[name])
        for name in self._small:
            if name in self.arrays:
                values[name] = record_array(record, self.names[name], self.arrays[name], self._url)
            values[name] = np.array(values[name])  # a store's is a view of the record, which nobody may write to
        return values


def _field(store: Store, name: str) -> Field:
    """A field of the store, or one that every record has besides."""
    if name in store.schema:
        return store.schema[name]
    try:
        return Field(_EVERY[name])
    except KeyError:
        raise ArgumentError(
            f"no field {name!r}; this store has: {', '.join(store.schema.fields)}; every record has index and key"
        ) from None
