"""Which fields of a store a sample has, by which name or position, in which structure, and of which kinds.

Used by :mod:`penstock.datasets.store`; nothing here reads a record or transforms anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import KINDS, Field, Record, Tree
from penstock.stores.base import Store

__all__ = ["Selection"]


class Selection:
    """Which fields a sample has, by which name or position, in which structure."""

    def __init__(self, store: Store, fields: Any) -> None:
        self._shape: type = dict
        if fields is None:
            self.names: dict[Any, str] = {name: name for name in store.schema.fields}
        elif isinstance(fields, str):
            self._shape, self.names = str, {0: fields}
        elif isinstance(fields, Mapping):
            self.names = dict(fields)
        else:
            self._shape, self.names = tuple, dict(enumerate(fields))
        if not self.names:
            raise ArgumentError(f"fields={fields!r}: a sample needs at least one field")
        stored = {name: store.schema[field] for name, field in self.names.items()}
        self.kind_of: dict[Any, str | None] = {name: field.kind for name, field in stored.items()}
        self._blobs = {name: field.kind for name, field in stored.items() if field.is_blob}
        self._arrays = [
            name for name, kind in self.kind_of.items() if kind in {"boxes", "keypoints"} or kind not in KINDS
        ]

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

    def sample(self, record: Record, *, views: bool) -> Any:
        """The record's fields; encoded images as views of the store if ``views``, all other blobs as bytes."""
        values = {name: record.fields[field] for name, field in self.names.items()}
        for name, kind in self._blobs.items():
            if not (views and kind in {"image", "mask"}):
                values[name] = bytes(values[name])
        for name in self._arrays:
            values[name] = np.array(values[name])  # a store's is a view of the record, which nobody may write to
        return self.shaped(values)
