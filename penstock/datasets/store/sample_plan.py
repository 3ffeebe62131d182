"""How a dataset makes samples from the records of a store: fields, kinds and transforms.

::

    record ──Selection──> values by name ──target_transform──> label ──transform──> sample      one by one
    spec, program, columns, arrays, numbers                                                     to fill rows

Made by :mod:`penstock.datasets.store.dataset` for its transforms. A plan has settings and no position; threads share
it. Nothing here reads images of the store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.datasets.store.batch_assembly import BatchAssembly
from penstock.datasets.store.batch_forms import BatchForm
from penstock.datasets.store.form_fields import bind_form, refuse_ragged
from penstock.datasets.store.image_transforms import (
    ImageTransform,
    SampleTransform,
    as_image_transform,
    as_pipeline,
    as_sample_transform,
)
from penstock.datasets.store.ragged_fields import INSTANCES, choose_forms, ragged_spec
from penstock.datasets.store.record_arrays import LazyColumn
from penstock.datasets.store.selection import FOLLOWERS, FieldSelection
from penstock.errors import SampleError
from penstock.nested import image_size
from penstock.ragged import RaggedSpec
from penstock.rng import globals_put_back
from penstock.sample import ArraySpec, Field, Index, Record, Sample, Tree, Value
from penstock.stores.base import Store

if TYPE_CHECKING:
    from penstock.transforms.base import Op
    from penstock.transforms.program.packet_program import PacketProgram
    from penstock.transforms.program.program import Program

__all__ = ["SamplePlan"]

_NUMBERS: Final = {"label": np.dtype(np.int64), "int": np.dtype(np.int64), "float": np.dtype(np.float64)}
"""Kinds whose column is copied to rows, and their dtype, which is that of collation."""

_TARGETS: Final = {int: np.dtype(np.int64), float: np.dtype(np.float64)}
"""Types of a transformed label that rows can hold, and their dtype."""


class SamplePlan:
    """How a record becomes a sample, or a row of a batch.

    Parameters
    ----------
    store : Store
        The store.
    fields, transform, target_transform, kinds, ragged, batch_form
        As for :class:`~penstock.datasets.StoreDataset`.

    Attributes
    ----------
    selection : FieldSelection
        Fields, names and kinds.
    is_turned : bool
        Whether images are turned by their Exif orientation because the store says so.
    spec : tree of ArraySpec or RaggedSpec, or None
        Of one sample; None if samples have no fixed shape, and are built one by one.
    reason : str
        Why there is no spec; empty if there is a spec.
    program : Program, or None
        Fills rows with the image.
    image, image_field : object and str
        The name of the image in the sample, and in the store.
    columns : dict
        By name, numbers of all records, read when first used.
    arrays : dict
        By name, fields of small arrays, which are copied from records, or moved with the image.
    forms : dict
        By name, the form in which a batch holds a field of varying length.
    assembly : BatchAssembly, or None
        How batches get the form that is asked for.
    moved : dict
        By name, kinds of the arrays that follow the image; known if there is a spec.
    boxes : object, or None
        The name of the boxes that ops read, or of whose objects they remove some.
    copied : dict
        By name, programs that copy pixels of fixed shape, which nothing transforms.
    numbers : list
        Names of the index of the record.
    target : object, or None
        The name of the label for ``target_transform``.

    Raises
    ------
    ArgumentError
        As for :class:`~penstock.datasets.StoreDataset`.
    """

    def __init__(
        self,
        store: Store,
        fields: object,
        transform: Callable[[Sample], Sample] | Op | Sequence[object] | None,
        target_transform: Callable[[Sample], Sample] | None,
        kinds: Mapping[str, str | None] | None,
        ragged: str | Mapping[str, str] | None = None,
        batch_form: str | BatchForm | None = None,
    ) -> None:
        self.transform, self.target_transform, self.ragged = transform, target_transform, ragged
        self.selection = FieldSelection(store, fields)
        self._pipeline = as_pipeline(transform)
        self.target: Index = None if self.target_transform is None else self.selection.find_label()
        self._choose_kinds(kinds)
        self._samples: SampleTransform | None = self._convert_samples(kinds or {})
        self._images: ImageTransform | None = self._convert_images(kinds or {})
        follows = self._samples is not None or bool(self._pipeline is not None and self._pipeline.ops)
        self.selection.hold_instances(INSTANCES if follows else None)
        given = self._pipeline
        if given is not None:
            self._pipeline = given.follow(self.selection.upright, self.selection.followers)
        encoded = (
            name not in self.selection.pixels for name, kind in self.selection.kind_of.items() if kind == "image"
        )
        self.is_turned = self._pipeline is not given and any(encoded)
        forms = ragged if batch_form is None else refuse_ragged(ragged)
        self.forms = choose_forms(self.selection.stored, self.selection.names, forms)
        self._kinds = self.selection.kinds
        self.selection.refuse_encoded(() if self._pipeline is None else self._pipeline.ops)
        self.assembly: BatchAssembly | None = None
        if batch_form is not None:
            layout = None if self._samples is None else self._samples.layout
            self.assembly = bind_form(batch_form, self.selection, transform, self._pipeline, layout)
        if self._pipeline is not None and self.selection.pixels:
            self._pipeline = self._pipeline.take_pixels(is_mixed=self.selection.is_mixed)
        if self._pipeline is not None:
            self._pipeline.warn_of_unpaired_points(self._kinds)
        self.spec: Tree | None = None
        self.reason = ""
        self.program: Program | None = None
        self.image: Index = None
        self.image_field = ""
        self.columns: dict[Index, LazyColumn] = {}
        self.arrays: dict[Index, str] = {}
        self.moved: dict[Index, str] = {}
        self.boxes: Index | None = None
        self.copied: dict[Index, Program] = {}
        self.numbers: list[Index] = []
        self._target_type: type | None = None
        self._plan_filling(store)

    @property
    def decodes_images(self) -> bool:
        """Whether a transform gets decoded images."""
        return self._pipeline is not None or self._images is not None or self._samples is not None

    def sample(self, record: Record) -> Sample:
        """The sample of a record, with the key of the current sample."""
        selection = self.selection
        transforms_images = self.decodes_images
        for name in self.forms.keys() - selection.instances:
            selection.get_array(name, record)
        values = selection.get_values(record, views=transforms_images)
        if self.target is not None:
            values[self.target] = self.target_transform(values[self.target])  # type: ignore[misc]  # given with a target
        if self._samples is not None:
            return self._samples(values)
        if self._images is not None:
            for name, kind in selection.kind_of.items():
                if kind == "image":
                    image = values[name]
                    values[name] = self._images(
                        selection.take_pixels(image) if name in selection.pixels else bytes(image)
                    )
        sample = selection.to_tree(values)
        if self._pipeline is not None:
            return self._pipeline(sample, kinds=self._kinds)
        return self.transform(sample) if self._images is None and callable(self.transform) else sample

    @functools.cached_property
    def packets(self) -> PacketProgram | str:
        """What writes packets for a device in place of the image; a string says why there is none."""
        from penstock.transforms.program.packet_program import (  # imported with the pipeline
            PacketProgram,
            why_no_packets,
        )

        if self.program is None:
            return self.reason or "it has no image that is decoded"
        if self.assembly is not None:
            return "batch_form= is not made on a device"
        reason = why_no_packets(self.program)
        if reason:
            return reason
        made = PacketProgram(self.program)
        if self.moved and (mover := made.find_late_mover()) is not None:
            return (
                f"{mover!r} comes after ops that only a device applies, and {', '.join(map(str, self.moved))} follow it"
            )
        return made

    def array(self, name: Index, record: Record) -> Value:
        """A small array of a record, or its instances as they are stored."""
        if name in self.selection.instances:
            return record.fields[self.arrays[name]]
        return self.selection.get_array(name, record)

    def ragged_forms(self) -> Tree | None:
        """The form of each ragged field in the sample's structure, None for other fields; None if there are none."""
        if not self.forms:
            return None
        return self.selection.to_tree({name: self.forms.get(name) for name in self.selection.names})

    def transform_label(self, label: Sample) -> Sample:
        """Return the transformed label for a row, of the type of the first one.

        Raises SampleError if it has another type.
        """
        assert self.target_transform is not None, "called only with a target"
        found = self.target_transform(label)
        if type(found) is not self._target_type:
            raise SampleError(
                f"target_transform must return {getattr(self._target_type, '__name__', None)}, as for the first "
                f"record, got {found!r:.80}; give the loader a collate_fn, and batches are collated from samples"
            )
        return found

    def _choose_kinds(self, given: Mapping[str, str | None] | None) -> None:
        """Determine the kinds for the transform; refuse fields that would not move with the image."""
        selection, pipeline = self.selection, self._pipeline
        if given is not None:
            selection.set_field_kinds(given)
        elif pipeline is not None and pipeline.kinds is not None:
            selection.set_tree_kinds(pipeline.kinds)
        if pipeline is None or "image" not in selection.kind_of.values():
            return
        from penstock.transforms.targets.moved_targets import warn_of_left_sizes  # imported with the pipeline

        warn_of_left_sizes(pipeline.ops, selection.kind_of.values())
        if pipeline.mover is not None and (given is not None or pipeline.kinds is None):
            self._refuse_left_behind(given or {}, pipeline.mover)

    def _convert_samples(self, given: Mapping[str, str | None]) -> SampleTransform | None:
        """The transform of another library for whole samples; its pipeline becomes the plan's."""
        samples = as_sample_transform(self.transform, self.selection) if self._pipeline is None else None
        if samples is not None:
            self._refuse_left_behind(given, self.transform)
            self._pipeline = samples.pipeline
        return samples

    def _convert_images(self, given: Mapping[str, str | None]) -> ImageTransform | None:
        """Return the transform of another library for images alone."""
        is_other = self._pipeline is None and self._samples is None
        images = as_image_transform(self.transform) if is_other else None
        if images is not None and "image" in self.selection.kind_of.values():
            self.selection.refuse_followers(type(self.transform).__name__, given)
        return images

    def _refuse_left_behind(self, given: Mapping[str, str | None], mover: object) -> None:
        from penstock.transforms.targets.field_kinds import unknown_kind_error  # imported with the pipeline

        for called, field, looks in self.selection.unknown_targets(given):
            raise unknown_kind_error((called,), mover, {field: looks}, {field: None})

    def _plan_filling(self, store: Store) -> None:
        """Find the spec, and the source of each value; there is no spec if one value has none."""
        selection = self.selection
        transforms_images = self._pipeline is not None or self._images is not None
        if not transforms_images and self.transform is not None:
            self.reason = f"its transform, {self.transform!r}, is called with whole samples"
            if self._samples is not None:
                self.reason = self._samples.what
            return
        leaves: dict[Index, ArraySpec | RaggedSpec] = {}
        images_first = sorted(selection.names, key=lambda name: selection.kind_of[name] != "image")
        for name in images_first:
            field = selection.names[name]
            spec: ArraySpec | RaggedSpec | None
            if selection.kind_of[name] == "image" and transforms_images:
                spec = self._plan_image(name, field)
            else:
                spec = self._plan_value(store, name, field)
            if spec is None:
                self.reason = (
                    self.reason or f"the field {field!r} is {selection.stored[name]}, which has no fixed shape"
                )
                return
            leaves[name], self.reason = spec, ""
        if transforms_images and self.program is None:
            self.reason = "no field is an image, which its transform works on"  # the pipeline raises for each sample
            return
        if self._pipeline is not None and self._pipeline.object_op is not None and not self._plan_objects():
            return
        self.spec = selection.to_tree({name: leaves[name] for name in selection.names})

    def _plan_objects(self) -> bool:
        """Find the boxes, for ops that need them; returns whether rows can be filled with what such ops leave."""
        from penstock.transforms.targets.objects import is_of_objects  # imported with the pipeline

        assert self._pipeline is not None
        kinds = self.selection.kind_of
        self.boxes = next(name for name, kind in kinds.items() if kind == "boxes")
        for op in self._pipeline.ops:
            if not op.removes_objects:
                continue
            found = {name for name in self.arrays if is_of_objects(name, kinds[name], np.empty(0), op)}
            for name in [*found, *(getattr(op, "labels", None) or ())]:
                if name not in self.forms:
                    self.reason = f"{op!r} removes values of {name!r}, which is not in ragged="
                    return False
        return True

    def _plan_value(self, store: Store, name: Index, field: str) -> ArraySpec | RaggedSpec | None:
        kind = self.selection.stored[name]
        if self.selection.is_number(name):
            self.numbers.append(name)
            return ArraySpec((), _NUMBERS["int"])
        if kind in _NUMBERS:
            self.columns[name] = LazyColumn(store, field)
            return ArraySpec((), _NUMBERS[kind]) if name != self.target else self._plan_target(name)
        if name in self.selection.arrays or name in self.forms or name in self.selection.instances:
            return self._plan_array(name, field)
        pixels = self.selection.pixels.get(name)
        if pixels is not None and pixels.shape is not None:
            from penstock.transforms.program.pixel_program import PixelProgram  # imports the native core

            self.copied[name] = PixelProgram((), ["image"], pixels)
            return self.copied[name].spec()
        if kind == "image":
            self.reason = "it has no transform, and its images stay encoded"
        return None

    def _plan_array(self, name: Index, field: str) -> ArraySpec | RaggedSpec | None:
        self.arrays[name] = field
        kind = self.selection.kind_of[name]
        if kind in FOLLOWERS and self._pipeline is not None and self._pipeline.ops:
            if kind == "mask":
                self.reason = f"the field {field!r} is a mask, which follows the image sample by sample"
                return None
            self.moved[name] = kind
        if name in self.selection.instances:
            return self._plan_instances(name)
        if name in self.forms:
            return ragged_spec(self.selection.stored[name], self.forms[name], moved=name in self.moved)
        spec = self.selection.arrays[name]
        return ArraySpec(spec.shape, np.dtype(np.float32)) if name in self.moved else spec

    def _plan_instances(self, name: Index) -> RaggedSpec | None:
        """Return a mask of the size of the image for each object; its image was planned before."""
        image = None if self.program is None else self.program.spec()
        if image is None or name not in self.forms:
            return None
        assert self._pipeline is not None, "which instances follow"
        size = image_size(image.shape, self._pipeline.layouts[-1])
        return RaggedSpec(size, np.dtype(np.uint8), self.forms[name])

    def _plan_image(self, name: Index, field: str) -> ArraySpec | None:
        self.image, self.image_field = name, field
        kinds = list(self.selection.kind_of.values())
        if self._images is not None:
            if name in self.selection.pixels:
                self.reason = "its transform is not a pipeline, and its images are stored as pixels"
                return None
            self.reason = self._images.what if kinds.count("image") == 1 else "a sample has several images"
            self.program = self._images.program
            return self._images.spec if kinds.count("image") == 1 else None
        from penstock.transforms.base import Lambda  # imported with the pipeline
        from penstock.transforms.program.pixel_program import TakePixels

        assert self._pipeline is not None, "one of the two, where an image is transformed"
        if self.target is not None and any(isinstance(op, Lambda) for op in self._pipeline.ops):
            self.reason = "its target_transform, and a callable of its pipeline, may draw from one generator"
            return None
        self.reason = "its pipeline does not end in images of one shape and dtype"
        if kinds.count("image") > 1:
            self.reason = "its pipeline transforms more than one image of a sample"
        elif "mask" in kinds:
            self.reason = "it has a mask, which follows the image sample by sample"
        pixels = self.selection.pixels.get(name)
        is_decoded = any(isinstance(op, TakePixels) for op in self._pipeline.ops[:1])
        if pixels is not None and pixels.axes[2] is None and not is_decoded:
            self.reason = f"the images {field!r} are gray and colour side by side; T.Decode() as the first op gives RGB"
        self.program = self._pipeline.compile(self._kinds, followers=bool(self.forms), pixels=pixels)
        if self.program.spec() is None and self.program.has_one_shape and kinds.count("image") == 1:
            self.reason = self._explain_followers(self._pipeline.ops) or self.reason
        return self.program.spec()

    def _explain_followers(self, ops: Sequence[Op]) -> str:
        """Why rows are not filled where images have one shape: a field that follows them; empty if there is none."""
        selection = self.selection
        followers = [name for name, kind in selection.kind_of.items() if kind in FOLLOWERS - {"mask"}]
        for name in followers:
            if name not in self.forms:
                array = Field(selection.stored[name]).array
                form = "; ragged= says how batches hold it" if array is None or array.axes[0] is None else ""
                stored = f"the field {selection.names[name]!r} is {selection.stored[name]}"
                return f"{stored}, which follows the image sample by sample{form}"
        return f"{ops[0]!r} decodes at a reduced size, where no field may follow the image" if followers else ""

    def _plan_target(self, name: Index) -> ArraySpec | None:
        """Return the spec of a transformed label, by that of the first record."""
        self.reason = "its target_transform gives neither ints nor floats"
        first = self.columns[name][:1].tolist()
        if not first:
            return None
        assert self.target_transform is not None, "there, with a target"
        try:
            with globals_put_back():  # the call must not change later random numbers
                self._target_type = type(self.target_transform(first[0]))
        except Exception:  # noqa: BLE001  # raised again when the sample is built
            return None
        found = _TARGETS.get(self._target_type)
        return None if found is None else ArraySpec((), found)
