"""A store's records as samples, transformed; the dataset that most loaders run on.

::

    store.read(indices) ──records──> fields chosen and shaped ──transform──> samples             the general path
           └──────images──> program.fill ──> rows of the batch                                   the fast path:
    store.column("label")[indices] ────────> rows of the batch                                   no sample is built

Knows no worker; errors name store, key and index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, located
from penstock.datasets.indexing import MEMORY_NBYTES, DecodeIndices
from penstock.errors import ArgumentError
from penstock.rng import sample_scope
from penstock.sample import ArraySpec, Record, SampleKeys, Tree
from penstock.stores.base import Store
from penstock.trace import stage

if TYPE_CHECKING:
    from penstock.transforms.pipeline import Pipeline

__all__ = ["StoreDataset"]

_NUMBERS: Final = {"label": np.dtype(np.int64), "int": np.dtype(np.int64), "float": np.dtype(np.float64)}
"""Kinds whose column is copied row by row, and the dtype that collation would give them."""

_FIXED_ARRAY: Final = re.compile(r"^(\w+)\[(\d+(?:,\d+)*)\]$")


class StoreDataset(Dataset[Any]):
    """Samples made of a store's fields.

    Parameters
    ----------
    store : Store
        As :func:`penstock.open` gives it.
    fields : str, tuple, list or mapping, optional
        Shapes the sample: one name gives the bare value, a tuple or list of names gives tuples, a mapping
        {name: field} gives dicts, None gives dicts of every field.
    transform : Pipeline or callable, optional
        Applied to the whole sample. A pipeline knows each field's kind from the schema; one whose images all end in one
        shape fills batches directly. Without one, images stay encoded ``bytes``.
    index : {"auto", "rows", "tiles"} or path, optional
        Decode indices, which let a crop begin inside a JPEG; they change no pixel, and are used where batches are
        filled. "auto": those beside the store (``penstock index``), if it has them; what is missing is learned while
        images are decoded, in memory. "rows", "tiles": the same of this kind (tiles take eight times the memory, and
        spare what lies beside a crop, too). A path: a cache file that is made, and added to by each run. None: none.
    index_memory : int
        Most bytes that indices learned in memory take, in each process.
    """

    def __init__(
        self,
        store: Store,
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        index: str | os.PathLike[str] | None = "auto",
        index_memory: int = MEMORY_NBYTES,
    ) -> None:
        self.store = store
        self.fields = fields
        self.transform = transform
        self.index, self.index_memory = index, index_memory
        self._selection = _Selection(store, fields)
        self._pipeline = _as_pipeline(transform)
        self._filling = self._plan_filling()
        self._indices = self._open_indices()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        record = self._read([index])[0]
        return self._transformed(record)

    def load_samples(self, indices: Sequence[int], keys: SampleKeys) -> Iterator[Any]:
        """Samples ``indices``, read at once; each is transformed under its own key when it is asked for."""
        for record, drawn in zip(self._read(indices), keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, drawn):
                sample = self._transformed(record)
            yield sample

    def fingerprint(self) -> str:
        """The store's: fields and transform may change from run to run."""
        return self.store.fingerprint()

    def spec(self) -> Tree | None:
        """Shapes and dtypes of a sample; None where one of its fields has no fixed shape."""
        return None if self._filling is None else self._filling.spec

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Decode and augment straight into ``out``; see :class:`~penstock.datasets.base.Filler`."""
        filling = self._filling
        if filling is None:
            raise ArgumentError("samples of this dataset have no fixed shape: there are no rows to fill")
        if rows is None:
            rows = np.arange(len(indices), dtype=np.int64)
        if (indices < 0).any():
            indices = np.where(indices < 0, indices + len(self), indices)
        parts = self._selection.parts(out)
        if filling.program is not None or filling.arrays:
            self._fill_from_records(filling, indices, parts, keys, rows)
        for name, column in filling.columns.items():
            parts[name][rows] = column[indices]

    def _fill_from_records(
        self,
        filling: _Filling,
        indices: NDArray[np.int64],
        parts: Mapping[Any, Any],
        keys: SampleKeys,
        rows: NDArray[np.int64],
    ) -> None:
        images: list[Any]
        if filling.arrays:
            with stage("read", len(indices)):
                records = self.store.read(indices)
            for name, field in filling.arrays.items():
                target = parts[name]
                for record, row in zip(records, rows.tolist(), strict=True):
                    target[row] = record.fields[field]
            images = [record.fields[filling.image_field] for record in records] if filling.program else []
        else:
            with stage("read", len(indices)):
                images = self.store.blobs(filling.image_field, indices)
        if filling.program is not None:
            failures: list[Any] = []
            indexed = None if self._indices is None else self._indices.of(indices)
            filling.program.fill(images, parts[filling.image], keys, rows, failures=failures, indexed=indexed)
            if indexed is not None and indexed.found:
                assert self._indices is not None, "they gave it"
                self._indices.keep(indices, indexed)
            if failures:
                first = min(failures, key=lambda failure: failure.position)
                raise self._placed(first.error, *self._read([int(indices[first.position])]))

    def _read(self, indices: Sequence[int]) -> list[Record]:
        count = len(self)
        with stage("read", len(indices)):
            return self.store.read([index + count if -count <= index < 0 else index for index in indices])

    def _transformed(self, record: Record) -> Any:
        sample = self._selection.sample(record, views=self._pipeline is not None)
        if self.transform is None:
            return sample
        try:
            if self._pipeline is not None:
                return self._pipeline(sample, kinds=self._selection.kinds)
            return self.transform(sample)
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            raise self._placed(error, record)  # noqa: B904  # the same object, or one that is chained

    def _placed(self, error: BaseException, record: Record) -> BaseException:
        return located(error, store=self.store.url, key=record.key, index=record.index)

    def _open_indices(self) -> DecodeIndices | None:
        filling = self._filling
        if self.index is None or filling is None or filling.program is None or not filling.program.fused:
            return None
        return DecodeIndices(self.store, filling.image_field, self.index, self.index_memory)

    def _plan_filling(self) -> _Filling | None:
        selection, pipeline = self._selection, self._pipeline
        if pipeline is None and self.transform is not None:
            return None
        filling = _Filling()
        leaves: dict[Any, ArraySpec] = {}
        for name, field in selection.names.items():
            kind = self.store.schema[field].kind
            spec = None
            if kind == "image" and pipeline is not None:
                filling.program = pipeline.compile(selection.kinds)
                filling.image, filling.image_field = name, field
                spec = filling.program.spec()
            elif kind in _NUMBERS:
                spec = ArraySpec((), _NUMBERS[kind])
                filling.columns[name] = self.store.column(field)
            elif match := _FIXED_ARRAY.match(kind):
                spec = ArraySpec(tuple(map(int, match[2].split(","))), np.dtype(match[1]))
                filling.arrays[name] = field
            if spec is None:
                return None
            leaves[name] = spec
        if pipeline is not None and filling.program is None:
            return None  # nothing for the pipeline to transform: it says so itself, sample by sample
        filling.spec = selection.shaped(leaves)
        return filling


class _Filling:
    """How a dataset fills: the image by a program, numbers from columns, small arrays from records."""

    def __init__(self) -> None:
        self.spec: Tree = None
        self.program: Any = None
        self.image: Any = None
        self.image_field = ""
        self.columns: dict[Any, NDArray[Any]] = {}
        self.arrays: dict[Any, str] = {}


class _Selection:
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


def _as_pipeline(transform: Any) -> Pipeline | None:
    if transform is None:
        return None
    from penstock.transforms.pipeline import Pipeline  # with it comes the native core; plain stores need none

    return transform if isinstance(transform, Pipeline) else None
