"""The samples of a dataset as the records of a store, for pages that show records.

::

    Subset, ConcatDataset of StoreDatasets ──located──> records of their stores, numbered as the samples
    any other dataset ──dataset[index]──> fields image, label, boxes, labels of the sample, as it is built with seed 0

Made by :func:`penstock.view` where no store is given. It is not registered: nothing is opened by a path.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Array, Field, Record, Schema, Value
from penstock.stores.base import Store
from penstock.stores.indices import Indices
from penstock.stores.location import Location
from penstock.transforms.targets.target_forms import as_boxes
from penstock.view.annotated import Annotated, find_annotations
from penstock.view.shown_pixels import as_array, to_rgb
from penstock.viewer.model.source import ModelSource

__all__ = ["DatasetStore", "find_store"]

_MOST_BUILT: Final = 10_000
"""Samples that are built at most for a column of a dataset that has no store."""
_KINDS: Final = {"image": "pixels:uint8[*,*,3]", "label": "label", "boxes": "boxes", "labels": "int64[*]"}


def find_store(source: ModelSource) -> Store:
    """The store whose record ``i`` is sample ``i`` of what is viewed: the dataset's own, if it has all its records."""
    located = source.located
    if located is not None and len(located.datasets) == 1:
        store = located.datasets[0].store
        if np.array_equal(located.records, np.arange(len(store))):
            return store
    return DatasetStore(source)


class DatasetStore(Store):
    """Samples as records; it closes no store."""

    kind: ClassVar[str] = "dataset"

    def __init__(self, source: ModelSource) -> None:
        super().__init__(Location(self.kind, f"/{source.title}"))
        self._source, self._located = source, source.located
        datasets = () if self._located is None else self._located.datasets
        self._stores = [dataset.store for dataset in datasets]
        if len({repr(store.schema) for store in self._stores}) > 1:
            self._located = None

    @functools.cached_property
    def schema(self) -> Schema:
        """That of the stores, if they agree; else of the first sample."""
        if self._located is not None:
            return self._stores[0].schema
        found = self._find(0) if len(self) else Annotated()
        classes = {"label": found.label_classes, "labels": found.object_classes}
        names = self._describe(0, found) or ["image"]
        return Schema({name: Field(_KINDS[name], classes.get(name, ())) for name in names})

    def __len__(self) -> int:
        return self._source.total

    def read(self, indices: Indices) -> list[Record]:
        """See :meth:`penstock.Store.read`; without a store, each sample is built anew."""
        self._refuse_closed()
        numbers, located, records = self._check_indices(indices), self._located, []
        for number in numbers:
            if located is None:
                fields = {**dict.fromkeys(self.schema.fields), **self._describe(number, self._find(number))}
                records.append(Record(number, str(number), fields))
            else:
                dataset, inner = located.get(number)
                [found] = dataset.store.read([inner])
                records.append(Record(number, found.key, found.fields))
        return records

    def column(self, field: str) -> Array:
        """See :meth:`penstock.Store.column`."""
        if self.schema[field].is_blob:
            raise ArgumentError(f"a column must be a small field, got {field!r} of kind {self.schema[field].kind}")
        if self._located is not None:
            columns = [store.column(field) for store in self._stores]
            starts = np.cumsum([0, *map(len, columns)])
            return np.concatenate(columns)[starts[self._located.owners] + self._located.records]
        if len(self) > _MOST_BUILT:
            raise StoreError(
                f"the field {field!r} of {len(self):,} samples is known only when they are built; view their store",
                store=self.url,
            )
        return np.array([-1 if value is None else value for value in self._iter_values(field)])

    def keys(self) -> Sequence[str]:
        """Those of the records; else the numbers of the samples."""
        if self._located is None:
            return [str(number) for number in range(len(self))]
        keys = [store.keys() for store in self._stores]
        places = zip(self._located.owners.tolist(), self._located.records.tolist(), strict=True)
        return [keys[owner][record] for owner, record in places]

    def get_key(self, index: int) -> str | None:
        """See :meth:`penstock.Store.get_key`."""
        if self._located is None:
            return str(index)
        dataset, inner = self._located.get(index)
        return dataset.store.get_key(inner)

    def digest(self) -> str:
        """Of the stores, the name and the length, which is all that is known of a dataset without a store."""
        return "-".join([self._source.title, str(len(self)), *(store.digest() for store in self._stores)])

    def close(self) -> None:
        """Refuse to be read from now on."""
        self._closed = True

    def _find(self, index: int) -> Annotated:
        return find_annotations(self._source.build(index, 0, 0), self._source.roles_of(index))

    def _describe(self, index: int, found: Annotated) -> dict[str, Value]:
        """The fields of a sample that can be shown."""
        fields: dict[str, Value] = {"label": found.label, "labels": found.numbers}
        if found.image is not None:
            fields["image"] = to_rgb(found.image, self._source.form_of(index))[0]
        if found.boxes is not None:
            fields["boxes"] = as_boxes(as_array(found.boxes)).reshape(-1, 4)
        return {name: fields[name] for name in _KINDS if fields.get(name) is not None}
