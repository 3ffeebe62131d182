"""The dataset of the records of a store, as transformed samples; most loaders use it.

::

    store.read(indices) ──records──> fields chosen and shaped ──transform──> samples             the general path
           └──────images──> program.fill ──> rows of the batch                                   the fast path:
    store.column("label")[indices] ────────> rows of the batch                                   no sample is built

Errors name store, key and index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.datasets.base import Dataset, add_location
from penstock.datasets.sample_plan import SamplePlan, fill_arrays
from penstock.datasets.seek_tables import MEMORY_NBYTES, SeekTables
from penstock.errors import ArgumentError
from penstock.rng import sample_scope
from penstock.sample import Array, Record, Sample, SampleKeys, Tree
from penstock.stores.base import Indices, Store, check_index
from penstock.trace import stage

if TYPE_CHECKING:
    from penstock.transforms.base import Op
    from penstock.transforms.moved_targets import Step
    from penstock.transforms.program import Failure

__all__ = ["StoreDataset"]


class StoreDataset(Dataset[Sample]):
    """Samples from the fields of a store.

    Parameters
    ----------
    store : Store, str or path
        A store of :func:`penstock.open`, or its argument.
    fields : str, tuple, list or mapping, optional
        The structure of a sample: one name gives the value itself, a tuple or list of names gives tuples, a mapping
        {name: field} gives dicts, None gives dicts of all fields. In addition to the fields of the store, each record
        has ``index``, its number in the store, and ``key``, its name.
    transform : Pipeline, list of ops, or callable, optional
        A pipeline takes the kind of each field from the schema; if all images end in one shape, it fills batches. A
        transform of torchvision is called with the image only, and compiled as in
        :class:`penstock.torch.ImageFolder`. Another callable is called with the whole sample, with encoded images.
        Default: images remain encoded ``bytes``.
    target_transform : callable, optional
        Called with the label; batches are filled if it returns ints or floats. The constructor calls it once to find
        out.
    index : {"auto", "rows", "tiles"} or path, optional
        Decode indices: with them, decoding of a crop begins inside the JPEG. They change no pixel, and are used where
        batches are filled. "auto": those beside the store (``penstock index``), if they exist; missing ones are made
        while images are decoded, and kept in memory. "rows", "tiles": the same, of this kind (tiles take eight times
        the memory, and also skip the pixels left of a crop). A path: a cache file, which each run extends. None: none.
    index_memory : int
        Limit of the memory for decode indices, in bytes, in each process.
    kinds : mapping of str to str, optional
        Kinds of fields for the pipeline, if they differ from the schema: ``{"bbox": "boxes"}`` moves an array with the
        image, ``{"bbox": None}`` leaves it unchanged. Default: those of the pipeline, else those of the schema.
    ragged : {"list", "padded", "flat"} or mapping of str to str, optional
        What a batch holds of arrays whose first length varies (``boxes``, ``"float32[*,4]"``, ``"int64[*]"``), or
        of some of them, by the store's names. "list": a list of arrays; "padded": a :class:`penstock.Padded`, one array
        padded with zeros, and their lengths; "flat": a :class:`penstock.Ragged`, all rows in one array, and the offset
        of each sample. Default: they are stacked, as in torch, and must have equal lengths.

    Raises
    ------
    ArgumentError
        If a field does not exist, or looks like a target (``bbox``, ``masks``) that would not move with the image; if
        ``ragged`` is unknown, or names a field of fixed shape.
    StoreError
        If a path cannot be opened.

    Notes
    -----
    ``dataset[i]`` is a sample, ``dataset[i:j]`` a list of samples; negative numbers count from the end. A new
    ``transform`` or ``target_transform`` of the dataset is used from the next sample and the next epoch on.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        transform: Callable[[Sample], Sample] | Op | Sequence[Any] | None = None,
        target_transform: Callable[[Sample], Sample] | None = None,
        *,
        index: str | os.PathLike[str] | None = "auto",
        index_memory: int = MEMORY_NBYTES,
        kinds: Mapping[str, str | None] | None = None,
        ragged: str | Mapping[str, str] | None = None,
    ) -> None:
        self.store = store if isinstance(store, Store) else stores.open(store)
        self.fields = fields
        self.transform, self.target_transform = transform, target_transform
        self.index, self.index_memory = index, index_memory
        self._kinds, self._ragged = kinds, ragged
        self._plan = self._new_plan()
        self._seek_tables = self._open_seek_tables()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: SupportsIndex | slice) -> Sample:
        """A sample; a slice gives a list of samples."""
        if isinstance(index, slice):
            return [self._sample(record) for record in self._read(range(*index.indices(len(self))))]
        return self._sample(self._read([check_index(index, "a StoreDataset")])[0])

    def load_samples(self, indices: Sequence[int], keys: SampleKeys) -> Iterator[Sample]:
        """Samples ``indices``, read at once; each is transformed under its own key when it is asked for."""
        for record, drawn in zip(self._read(indices), keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, drawn):
                sample = self._sample(record)
            yield sample

    @property
    def prefetches(self) -> bool:
        """Whether :meth:`prefetch` does something: whether the store looks ahead."""
        return type(self.store).prefetch is not Store.prefetch

    def prefetch(self, indices: Indices) -> None:
        """Begin to read the records of samples that are asked for soon; see :meth:`penstock.Store.prefetch`."""
        self.store.prefetch(indices)

    def why_not_filled(self) -> str:
        """Why samples are built one by one; empty if rows of batches are filled."""
        return self._current_plan().reason

    def fingerprint(self) -> str:
        """That of the store; fields and transform may change between runs."""
        return self.store.fingerprint()

    def spec(self) -> Tree | None:
        """Shapes and dtypes of a sample; None where one of its fields has no fixed shape, and is not ragged."""
        return self._current_plan().spec

    def ragged_forms(self) -> Tree | None:
        """What batches hold of fields whose length varies: the argument ``ragged``, in the structure of a sample."""
        return self._current_plan().ragged_forms()

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Decode and augment straight into ``out``; see :class:`~penstock.datasets.base.Filler`."""
        plan = self._current_plan()
        if plan.spec is None:
            raise ArgumentError(
                "fill needs a spec, and samples of this dataset have no fixed shape; see why_not_filled()"
            )
        if rows is None:
            rows = np.arange(len(indices), dtype=np.int64)
        if (indices < 0).any():
            indices = np.where(indices < 0, indices + len(self), indices)
        parts = plan.selection.from_tree(out)
        if plan.program is not None or plan.arrays:
            self._fill_from_records(plan, indices, parts, keys, rows)
        for name, column in plan.columns.items():
            values = column[indices]
            parts[name][rows] = values if name != plan.target else self._targets(plan, values, indices, keys)
        for name in plan.numbers:
            parts[name][rows] = indices

    def _fill_from_records(
        self,
        plan: SamplePlan,
        indices: NDArray[np.int64],
        parts: Mapping[Any, Any],
        keys: SampleKeys,
        rows: NDArray[np.int64],
    ) -> None:
        failures: list[Failure] = []
        steps: list[list[Step]] = [[] for _ in range(len(indices))] if plan.moved else []
        records: list[Record] = []
        with stage("read", len(indices)):
            if plan.arrays:
                records = self.store.read(indices)
                images = [record.fields[plan.image_field] for record in records] if plan.program else []
            else:
                images = self.store.blobs(plan.image_field, indices)
        if plan.program is not None:
            tables = None if self._seek_tables is None else self._seek_tables.get(indices)
            plan.program.fill(
                images, parts[plan.image], keys, rows, failures=failures, seek_tables=tables, steps=steps or None
            )
            if tables is not None and tables.found:
                assert self._seek_tables is not None, "which gave it"
                self._seek_tables.keep(indices, tables)
        for name in plan.arrays:
            fill_arrays(plan, name, parts[name], records, rows, steps, failures)
        if failures:
            first = min(failures, key=lambda failure: failure.position)
            raise self._locate(first.error, *self._read([int(indices[first.position])]))

    def _targets(self, plan: SamplePlan, labels: Array, indices: NDArray[np.int64], keys: SampleKeys) -> list[Sample]:
        """The transformed labels, each with the key of its sample."""
        targets = []
        for label, index, drawn in zip(labels.tolist(), indices.tolist(), keys.indices.tolist(), strict=True):
            try:
                with sample_scope(keys.seed, keys.epoch, drawn):
                    targets.append(plan.transform_label(label))
            except BaseException as error:  # noqa: BLE001  # raised again, with its place
                raise self._locate(error, *self._read([index]))  # noqa: B904  # the same object, or one that is chained
        return targets

    def _read(self, indices: Sequence[int]) -> list[Record]:
        count = len(self)
        with stage("read", len(indices)):
            return self.store.read([index + count if -count <= index < 0 else index for index in indices])

    def _sample(self, record: Record) -> Sample:
        try:
            return self._current_plan().sample(record)
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            raise self._locate(error, record)  # noqa: B904  # the same object, or one that is chained

    def _new_plan(self) -> SamplePlan:
        return SamplePlan(self.store, self.fields, self.transform, self.target_transform, self._kinds, self._ragged)

    def _current_plan(self) -> SamplePlan:
        """The plan for the current transforms, which may have been replaced."""
        plan = self._plan
        if plan.transform is not self.transform or plan.target_transform is not self.target_transform:
            plan = self._new_plan()
            tables, self._seek_tables = self._seek_tables, None
            self._plan = plan
            self._seek_tables = tables or self._open_seek_tables()
        return plan

    def _locate(self, error: BaseException, record: Record) -> BaseException:
        return add_location(error, store=self.store.url, key=record.key, index=record.index)

    def _open_seek_tables(self) -> SeekTables | None:
        plan = self._plan
        if self.index is None or plan.spec is None or plan.program is None or not plan.program.fused:
            return None
        return SeekTables(self.store, plan.image_field, self.index, self.index_memory)

    def __repr__(self) -> str:
        settings = {"fields": self.fields, "transform": self.transform, "target_transform": self.target_transform}
        said = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return f"StoreDataset({', '.join([repr(self.store), *said])})"
