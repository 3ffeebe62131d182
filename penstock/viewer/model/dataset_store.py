"""The samples of a dataset as the records of a store, for pages that show records.

Records of subsets and concatenations are those of their stores. Samples of any other dataset are built with seed 0, and
have the fields image, label, boxes and labels. Made by :func:`penstock.view` where no store is given. It is not
registered: nothing is opened by a path.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Array, Field, Record, Schema, Value
from penstock.sheets.shown_pixels import as_array, to_rgb
from penstock.stores.base import Store
from penstock.stores.indices import Indices
from penstock.stores.location import Location
from penstock.transforms.targets.target_forms import as_boxes
from penstock.viewer.model.source import ModelSource

__all__ = ["DatasetStore", "find_store"]

_MOST_BUILT: Final = 10_000  # samples for a column of a dataset that has no store
_KINDS: Final = {"image": "pixels:uint8[*,*,3]", "label": "label", "boxes": "boxes", "labels": "int64[*]"}


def find_store(source: ModelSource) -> Store:
    """The store whose record ``i`` is sample ``i`` of what is viewed: the dataset's own, if it has all its records."""
    located = source.located
    store = located.parts[0].store if len(located.parts) == 1 else None
    if store is not None and np.array_equal(located.places[:, 1], np.arange(len(store))):
        return store
    return DatasetStore(source)


class DatasetStore(Store):
    """Samples as records; it closes no store."""

    kind: ClassVar[str] = "dataset"

    def __init__(self, source: ModelSource) -> None:
        super().__init__(Location(self.kind, f"/{source.title}"))
        self._source, self._places = source, source.located.places
        stores = [part.store for part in source.located.parts if part.store is not None]
        is_one_kind = len({repr(store.schema) for store in stores}) == 1 and len(stores) == len(source.located.parts)
        self._stores = stores if is_one_kind else []  # empty: samples are built

    @functools.cached_property
    def schema(self) -> Schema:
        """The schema of the stores, if they agree; else of the first sample."""
        if self._stores:
            return self._stores[0].schema
        names = (self._build(0) if len(self) else {}) or {"image": None}
        return Schema({name: Field(_KINDS[name]) for name in names})

    def __len__(self) -> int:
        return self._source.total

    def read(self, indices: Indices) -> list[Record]:
        """Read records as :meth:`penstock.Store.read` does; without a store, each sample is built anew."""
        self._refuse_closed()
        numbers = self._check_indices(indices)
        if not self._stores:
            empty = dict.fromkeys(self.schema.fields)
            return [Record(number, str(number), {**empty, **self._build(number)}) for number in numbers]
        places = zip(numbers, self._places[numbers].tolist(), strict=True)
        found = [(number, self._stores[owner].read([inner])[0]) for number, (owner, inner) in places]
        return [Record(number, record.key, record.fields) for number, record in found]

    def column(self, field: str) -> Array:
        """Read the values of a small field, for all samples."""
        if self.schema[field].is_blob:
            raise ArgumentError(f"a column must be a small field, got {field!r} of kind {self.schema[field].kind}")
        if self._stores:
            columns = [store.column(field) for store in self._stores]
            starts, (owners, records) = np.cumsum([0, *map(len, columns)]), self._places.T
            values: Array = np.concatenate(columns)[starts[owners] + records]
            return values
        if len(self) > _MOST_BUILT:
            raise StoreError(
                f"{field!r} of {len(self):,} samples needs all of them built; view their store", store=self.url
            )
        return np.array([-1 if value is None else value for value in self._iter_values(field)])

    @functools.cached_property
    def _keys(self) -> Sequence[str]:
        if not self._stores:
            return [str(number) for number in range(len(self))]
        keys = [store.keys() for store in self._stores]
        return [keys[owner][record] for owner, record in self._places.tolist()]

    def keys(self) -> Sequence[str]:
        """The keys of the records; else the numbers of the samples."""
        return self._keys

    def digest(self) -> str:
        """The digest of the stores, the name and the length, which is all that is known of other datasets."""
        return "-".join([self._source.title, str(len(self)), *(store.digest() for store in self._stores)])

    def _build(self, index: int) -> dict[str, Value]:
        """The fields of a sample that can be shown."""
        found = self._source.find(index, 0, 0)
        fields: dict[str, Value] = {"label": found.label, "labels": found.numbers}
        if found.image is not None:
            fields["image"] = to_rgb(found.image, self._source.part_of(index)[0].form)[0]
        if found.boxes is not None:
            fields["boxes"] = as_boxes(as_array(found.boxes)).reshape(-1, 4)
        return {name: fields[name] for name in _KINDS if fields.get(name) is not None}
