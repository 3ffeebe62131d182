"""Which fields of a store a sample has, by which name or position, in which structure.

Used by :mod:`penstock.datasets.store`; nothing here reads a record or transforms anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ArgumentError
from penstock.sample import Record, Tree
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
        kinds = {name: store.schema[field] for name, field in self.names.items()}
        self.kinds: Tree = self.shaped({name: field.kind for name, field in kinds.items()})
        self._blobs = {name: field.kind for name, field in kinds.items() if field.is_blob}

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
        return self.shaped(values)
