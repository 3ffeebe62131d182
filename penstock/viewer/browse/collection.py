"""The records of a viewer: a store, its roles, and the annotations of a record."""

from __future__ import annotations

from typing import Final

from penstock.datasets.store.dataset import StoreDataset
from penstock.sample import Record
from penstock.stores.base import Store
from penstock.view.annotated import Annotated, find_annotations, make_roles

__all__ = ["Collection"]

_NO_IMAGE: Final = ""


class Collection:
    """A store as the viewer asks it; every method may be called by several threads.

    Parameters
    ----------
    store : Store
        Read, never written.
    owns_store : bool
        Whether :meth:`close` closes it.
    """

    def __init__(self, store: Store, *, owns_store: bool = False) -> None:
        self.store, self._owns_store = store, owns_store
        self.total = len(store)
        self.name = store.url.rpartition("/")[2] or store.url
        self.image_field = next((name for name, each in store.schema.fields.items() if each.is_image), _NO_IMAGE)
        fields = {name: name for name in store.schema.fields}
        self._roles = make_roles(store.schema, fields, StoreDataset(store, fields=fields).kinds)

    def record(self, index: int) -> Record:
        """A record with all fields."""
        return self.store.read([index])[0]

    def annotated(self, index: int) -> Annotated:
        """The image and the annotations of a record."""
        return find_annotations(dict(self.record(index).fields), self._roles)

    def close(self) -> None:
        """Close the store, if it was opened for this."""
        if self._owns_store:
            self.store.close()
