"""The dataset of the records of a store, as transformed samples; most loaders use it.

::

    store.read(indices) ──records──> fields chosen and shaped ──transform──> samples             the general path
           └──────images──> program.fill ──> rows of the batch                                   the fast path:
    store.column("label")[indices] ────────> rows of the batch                                   no sample is built

Errors name store, key and index.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.datasets.base import ROWS_PER_FILL, Dataset, choose_rows_per_fill
from penstock.datasets.error_location import add_location
from penstock.datasets.store.batch_assembly import BatchAssembly
from penstock.datasets.store.batch_forms import BatchForm
from penstock.datasets.store.form_fields import warn_of_objects
from penstock.datasets.store.moved_arrays import ChunkTargets
from penstock.datasets.store.sample_plan import SamplePlan
from penstock.datasets.store.seek_tables import MEMORY_NBYTES, SeekTables
from penstock.errors import ArgumentError
from penstock.pixel_rows import EncodedRows
from penstock.ragged import RaggedRows
from penstock.repairs import Repaired, RepairScope, check_on_truncated
from penstock.rng import sample_scope
from penstock.sample import Array, Blob, Index, Record, Sample, SampleKeys, Tree, Value
from penstock.stores.base import Store
from penstock.stores.fields.image_signatures import refuse_array
from penstock.stores.indices import Indices, check_index, check_indices
from penstock.trace import stage

if TYPE_CHECKING:
    from penstock.transforms.base import Op
    from penstock.transforms.program.program import Failure

__all__ = ["StoreDataset"]

_MAX_REPAIRED: Final = 10_000


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
        :class:`penstock.torch.ImageFolder`; one of v2, beside boxes, keypoints or masks, with all of them as
        ``tv_tensors``, and compiled if all of it is recognised. One of albumentations is compiled if it is recognised,
        and else called with the decoded fields by name. Another callable is called with the whole sample, with encoded
        images. Default: images remain encoded ``bytes``, and pixels arrays. Where a store has pixels, a pipeline takes
        them as they are, and leaves out Decode, if it begins with it.
    target_transform : callable, optional
        Called with the label; batches are filled if it returns ints or floats. The constructor calls it once to find
        out.
    index : {"auto", "rows", "tiles"} or path, optional
        Decode indices: with them, decoding of a crop begins inside the JPEG. They change no pixel, and are used where
        batches are filled. "auto": those beside the store (``penstock index``), if they exist; missing ones are made
        while images are decoded (rows, if there are none), and kept in memory. "rows", "tiles": the same, of this kind
        (tiles take eight times the memory, and also skip the pixels left of a crop). A path: a cache file, which each
        run extends. None: none.
    index_memory : int
        Limit of the memory for decode indices, in bytes, in each process.
    kinds : mapping of str to str, optional
        Kinds of fields for the pipeline, if they differ from the schema: ``{"bbox": "boxes"}`` moves an array with the
        image, ``{"bbox": None}`` leaves it unchanged. Default: those of the pipeline, else those of the schema; a field
        ``instances`` of kind json has run-length encodings, which become masks (n, H, W) under a pipeline.
    ragged : {"list", "padded", "flat"} or mapping of str to str, optional
        What a batch holds of arrays whose first length varies (``boxes``, ``"float32[*,4]"``, ``"int64[*]"``), or
        of some of them, by the store's names. "list": a list of arrays; "padded": a :class:`penstock.Padded`, one array
        padded with zeros, and their lengths; "flat": a :class:`penstock.Ragged`, all rows in one array, and the offset
        of each sample. Default: they are stacked, as in torch, and must have equal lengths.
    batch_form : {"torchvision", "rows", "ultralytics", "nested"} or BatchForm, optional
        In place of ``ragged``, the batches of a model of detection. "torchvision": a list of images and a list of
        dicts with the other fields, by their names in the sample. "rows": stacked images and a list of float32
        arrays of shape (n, 5), which are box and label (and further columns, if there are more ragged fields, in
        their order), followed by each field with one value for a sample. "ultralytics": a dict with ``img``,
        ``bboxes``, ``cls`` and ``batch_idx``. "nested": a :class:`penstock.NestedTensor` of padded images, and
        dicts. Options: :class:`penstock.BatchForm`. Loaders that collate by default make these batches.
    on_truncated : {"raise", "repair", "skip"}
        What to do with images that are truncated or damaged; "repair" and "skip" as in :func:`penstock.decode`, unless
        the op that decodes says otherwise. "repair": decode what is there; :attr:`repaired`, and the loader's
        ``repaired`` and ``stats()``, list such images; a broken mask raises. "skip": loaders leave the sample out, as
        with ``on_error="skip"``, whatever their ``on_error`` is; ``dataset[i]`` raises a :class:`BrokenImageError`.

    Raises
    ------
    ArgumentError
        If a field does not exist, or looks like a target (``bbox``, ``masks``) that would not move with the image; if
        ``ragged`` is unknown, or names a field of fixed shape; if samples lack what ``batch_form`` needs.
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
        transform: Callable[[Sample], Sample] | Op | Sequence[object] | None = None,
        target_transform: Callable[[Sample], Sample] | None = None,
        *,
        index: str | os.PathLike[str] | None = "auto",
        index_memory: int = MEMORY_NBYTES,
        kinds: Mapping[str, str | None] | None = None,
        ragged: str | Mapping[str, str] | None = None,
        batch_form: str | BatchForm | None = None,
        on_truncated: str = "raise",
    ) -> None:
        check_on_truncated(on_truncated)
        self.store = store if isinstance(store, Store) else stores.open(store)
        self.fields, self.on_truncated = fields, on_truncated
        self.transform, self.target_transform = transform, target_transform
        self.index, self.index_memory = index, index_memory
        self._kinds, self._ragged, self._batch_form = kinds, ragged, batch_form
        self._repaired: deque[Repaired] = deque(maxlen=_MAX_REPAIRED)
        self._plan = self._new_plan()
        warn_of_objects(self._plan.assembly, self._plan.selection, self.store.schema)
        if self._plan.is_turned:
            warnings.warn(
                f"{', '.join(self._plan.selection.followers) or 'the annotations'} of {self.store.url} are of upright "
                "pictures, and some are stored turned: Decode() turns these by their Exif orientation; "
                "Decode(orient=True) says that you know",
                stacklevel=2,
            )
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
        return self.store.prefetches

    @property
    def look_ahead(self) -> int:
        """How many samples a loader announces before it plans their batches; see :attr:`penstock.Store.look_ahead`."""
        return self.store.look_ahead

    def prefetch(self, indices: Indices) -> bool | None:
        """Begin to read the records of samples that are asked for soon; see :meth:`penstock.Store.prefetch`."""
        return self.store.prefetch(indices)

    @property
    def kinds(self) -> Tree:
        """The kind of each value for transforms, in the structure of a sample."""
        return self._current_plan().selection.kinds

    @property
    def upright(self) -> bool | None:
        """Which picture boxes, keypoints, masks and instances are of; see :class:`penstock.Field`."""
        return self.store.schema.upright

    @property
    def repaired(self) -> list[Repaired]:
        """Images that were repaired in this process: the newest 10,000, oldest first; a copy.

        The loader's ``repaired`` has those of its worker processes, too.
        """
        return list(self._repaired)

    @property
    def classes(self) -> list[str]:
        """Names of the classes of the first field that has such names, in the order of their numbers; a copy."""
        return next((list(field.classes) for field in self.store.schema.fields.values() if field.classes), [])

    def why_not_filled(self) -> str:
        """Why samples are built one by one; empty if rows of batches are filled."""
        return self._current_plan().reason

    def fingerprint(self) -> str:
        """Return that of the store; fields and transform may change between runs."""
        return self.store.fingerprint()

    def spec(self) -> Tree | None:
        """Shapes and dtypes of a sample; None where one of its fields has no fixed shape, and is not ragged."""
        return self._current_plan().spec

    def packet_spec(self) -> tuple[Tree | None, str]:
        """The spec with packets for a device in place of the image, or why there is none; ``fill`` then writes them."""
        plan = self._current_plan()
        if plan.spec is None or isinstance(plan.packets, str):
            return None, plan.reason or str(plan.packets)
        leaves = {**plan.selection.from_tree(plan.spec), plan.image: plan.packets.packet_spec()}
        return plan.selection.to_tree(leaves), ""

    @property
    def rows_per_fill(self) -> int:
        """Most rows of a call of :meth:`fill`: many where nothing is decoded, and rows are small."""
        plan = self._current_plan()
        is_cheap = not plan.moved and not plan.forms and (plan.program is None or plan.program.is_copying)
        return choose_rows_per_fill(plan.spec) if is_cheap else ROWS_PER_FILL

    def ragged_forms(self) -> Tree | None:
        """Return what batches hold of fields of varying length: ``ragged``, in the structure of a sample."""
        return self._current_plan().ragged_forms()

    def batch_assembly(self) -> BatchAssembly | None:
        """Return how a loader gives batches their form; None without ``batch_form``."""
        return self._current_plan().assembly

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Decode and augment straight into ``out``; see :class:`~penstock.datasets.base.Filler`."""
        plan = self._current_plan()
        if plan.spec is None:
            raise ArgumentError(
                "fill needs a spec, and samples of this dataset have no fixed shape; see why_not_filled()"
            )
        rows = np.arange(len(indices), dtype=np.int64) if rows is None else rows
        indices = check_indices(indices, "a StoreDataset")
        if min(indices.tolist(), default=0) < 0:  # faster than NumPy, whose code is not in the caches for a chunk
            indices = np.where(indices < 0, indices + len(self), indices)
        parts = plan.selection.from_tree(out)
        if plan.program is not None or plan.arrays:
            self._fill_from_records(plan, indices, parts, keys, rows)
        for name, program in plan.copied.items():
            with stage("read", len(indices)):
                images = self.store.pixels(plan.selection.names[name], indices)
            failures: list[Failure] = []
            program.fill(images, parts[name], keys, rows, failures=failures)
            if failures:
                raise self._first_error(failures, indices)
        for name, column in plan.columns.items():
            values = column[indices]
            parts[name][rows] = values if name != plan.target else self._targets(plan, values, indices, keys)
        for name in plan.numbers:
            parts[name][rows] = indices

    def _fill_from_records(
        self,
        plan: SamplePlan,
        indices: NDArray[np.int64],
        parts: Mapping[Index, Value],
        keys: SampleKeys,
        rows: NDArray[np.int64],
    ) -> None:
        failures: list[Failure] = []
        scope = RepairScope(self._policy())
        records: list[Record] = []
        with stage("read", len(indices)):
            arrays = self._fill_arrays_at_once(plan, indices, parts, rows) if plan.arrays else []
            if arrays:
                records = self.store.read_stored(indices)
            images = self._read_images(plan, indices, records) if plan.program is not None else []
        targets = ChunkTargets(plan, records, failures)
        if plan.program is not None:
            steps, boxes = targets.steps, targets.boxes if plan.program.reads_boxes else None
            tables = None if self._seek_tables is None else self._seek_tables.get(indices)
            with scope:
                program: Any = plan.packets if isinstance(parts[plan.image], RaggedRows) else plan.program
                program.fill(images, parts[plan.image], keys, rows, None, failures, tables, steps=steps, boxes=boxes)
            if tables is not None:
                assert self._seek_tables is not None, "which gave it"
                self._seek_tables.keep(indices, tables)
        if arrays and not failures:
            arrays = targets.columns(arrays, parts, rows)
        if arrays:
            targets.arrays(arrays, parts, rows)
        if failures:
            raise self._first_error(failures, indices)
        if scope.notes:
            self._record_repairs(scope, [int(indices[note.index or 0]) for note in scope.notes])

    def _fill_arrays_at_once(
        self, plan: SamplePlan, indices: NDArray[np.int64], parts: Mapping[Index, Value], rows: NDArray[np.int64]
    ) -> list[Index]:
        """Fill the small arrays that the store gives for many records; returns the names of the others."""
        left = []
        for name, field in plan.arrays.items():
            fixed = name not in plan.moved and name not in plan.forms
            values = self.store.rows(field, indices) if fixed else None
            if values is None:
                left.append(name)
            else:
                parts[name][rows] = values
        return left

    def _read_images(self, plan: SamplePlan, indices: NDArray[np.int64], records: list[Record]) -> Sequence[Blob]:
        field = plan.image_field
        if plan.image in plan.selection.pixels:
            return [record.fields[field] for record in records] or self.store.pixels(field, indices)
        images = [record.fields[field] for record in records] if records else self.store.blobs(field, indices)
        if not isinstance(images, EncodedRows):
            for image in images:
                refuse_array(field, image)
        return images

    def _first_error(self, failures: list[Failure], indices: NDArray[np.int64]) -> BaseException:
        """Return the error of the first row that failed, with the place of its record."""
        first = min(failures, key=lambda failure: failure.position)
        return self._locate(first.error, int(indices[first.position]))

    def _targets(self, plan: SamplePlan, labels: Array, indices: NDArray[np.int64], keys: SampleKeys) -> list[Sample]:
        """Return the transformed labels, each with the key of its sample."""
        targets = []
        for label, index, drawn in zip(labels.tolist(), indices.tolist(), keys.indices.tolist(), strict=True):
            try:
                with sample_scope(keys.seed, keys.epoch, drawn):
                    targets.append(plan.transform_label(label))
            except BaseException as error:  # noqa: BLE001  # raised again, with its place
                raise self._locate(error, index)  # noqa: B904  # the same object, or one that is chained
        return targets

    def _read(self, indices: Sequence[int]) -> list[Record]:
        count = len(self)
        with stage("read", len(indices)):
            read = self.store.read_stored if self._current_plan().decodes_images else self.store.read
            return read([index + count if -count <= index < 0 else index for index in indices])

    def _record_repairs(self, scope: RepairScope, indices: Sequence[int]) -> None:
        """Name the images that were repaired, by the record of each."""
        url, keys = self.store.url, self.store.keys()
        records = [replace(n, store=url, key=keys[i], index=i) for n, i in zip(scope.notes, indices, strict=True)]
        self._repaired.extend(records)
        scope.hand_on(records)

    def _sample(self, record: Record) -> Sample:
        with RepairScope(self._policy()) as scope:
            sample = self._build_sample(record)
        if scope.notes:
            self._record_repairs(scope, [record.index] * len(scope.notes))
        return sample

    def _policy(self) -> str | None:
        """Return what is done with broken images; None: what holds outside, as a rule "raise"."""
        return None if self.on_truncated == "raise" else self.on_truncated

    def _build_sample(self, record: Record) -> Sample:
        try:
            return self._current_plan().sample(record)
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            raise self._locate(error, record.index, record.key)  # noqa: B904  # the same object, or one that is chained

    def _detach(self) -> Self:
        """A dataset of the same samples that notes repairs for itself, and neither uses nor makes decode indices."""
        made = copy.copy(self)
        made.index, made._repaired, made._seek_tables = None, deque(maxlen=_MAX_REPAIRED), None  # noqa: SLF001  # own
        return made

    def _new_plan(self) -> SamplePlan:
        fields = self.store, self.fields, self.transform, self.target_transform
        return SamplePlan(*fields, self._kinds, self._ragged, self._batch_form)

    def _current_plan(self) -> SamplePlan:
        """The plan for the current transforms, which may have been replaced."""
        plan = self._plan
        if plan.transform is not self.transform or plan.target_transform is not self.target_transform:
            plan = self._new_plan()
            tables, self._seek_tables = self._seek_tables, None
            self._plan = plan
            self._seek_tables = tables or self._open_seek_tables()
        return plan

    def _locate(self, error: BaseException, index: int, key: str | None = None) -> BaseException:
        """The error with the place of its record, which is not read."""
        key = self.store.keys()[index] if key is None else key
        return add_location(error, store=self.store.url, key=key, index=index)

    def _open_seek_tables(self) -> SeekTables | None:
        plan = self._plan
        if self.index is None or plan.spec is None or plan.program is None or not plan.program.fused:
            return None
        if plan.image in plan.selection.pixels:  # nothing is decoded
            return None
        return SeekTables(self.store, plan.image_field, self.index, self.index_memory)

    def __repr__(self) -> str:
        settings = {"fields": self.fields, "transform": self.transform, "target_transform": self.target_transform}
        said = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return f"StoreDataset({', '.join([repr(self.store), *said])})"
