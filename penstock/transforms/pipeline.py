"""A pipeline: ops in order, applied to one sample, or compiled to fill rows of a batch.

This module is the general path, for any op, any structure of samples and any kind of field.
:mod:`penstock.transforms.program.program` is the fast path; its results are equal, bit for bit.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.nested import measure_image
from penstock.rng import next_keys, sample_scope
from penstock.sample import ArrayKind, Sample, SampleKeys, Tree, tree_leaves
from penstock.transforms.apply import draw_one, note_ops, spec_after
from penstock.transforms.base import ImageSpec, Lambda, Op
from penstock.transforms.decoding.decode import Decode, as_bytes
from penstock.transforms.inputs import as_mask, as_pixels, find_layouts, refuse_layout
from penstock.transforms.program.pixel_program import PixelProgram, TakePixels
from penstock.transforms.program.program import Program
from penstock.transforms.targets.field_kinds import Held, check_kinds, collect_values, infer_kinds, map_values
from penstock.transforms.targets.moved_targets import FOLLOWERS, Step, leaves_targets, warn_of_left_targets
from penstock.transforms.targets.object_masks import ObjectMasks
from penstock.transforms.targets.objects import Objects, find_boxes, remove_objects
from penstock.transforms.targets.target_forms import as_boxes, as_collatable, as_keypoints, refuse_other_size

__all__ = ["Pipeline"]


class Pipeline:
    """Ops in order.

    Parameters
    ----------
    ops : sequence of Op, callable or Pipeline
        A callable is called with each image (see :class:`~penstock.transforms.Lambda`). A pipeline counts as its
        ops.
    kinds : tree of str, optional
        The kind of each value of a sample, in the structure of the sample: ``"image"``, ``("image", "label")``,
        ``{"photo": "image", "target": "boxes"}``, ``("image", {"boxes": "boxes"})``. Values without a kind, or
        of kind None, are left unchanged. Default: a single value, or the first of a tuple, is the image; values of a
        mapping have the kinds of their names (image, boxes, keypoints, mask, instances). A field whose name looks like
        a target (``bbox``, ``masks``, ``landmarks``) is then refused if an op moves the image.

    Attributes
    ----------
    mover : Op or None
        The first op that moves pixels, and so targets.
    object_op : Op or None
        The first op that needs the boxes of a sample: it reads them, or removes objects.
    layouts : tuple of str or None
        Layouts of images before each op and after the last, where they are known.

    Raises
    ------
    ArgumentError
        If ``ops`` are no ops, a kind is unknown, or Decode is not the first op.

    Notes
    -----
    An op's random numbers are keyed by (seed, epoch, index) of the sample and the op's position in the pipeline. Every
    image of a sample gets the same numbers; boxes, keypoints and masks follow the first image. A second call for the
    same sample draws other numbers than the first: two calls for one picture are two views of it. Thread-safe where
    the callables are; pickles where they do.

    Examples
    --------
    >>> import numpy as np
    >>> from penstock import transforms as T
    >>> augment = T.Pipeline([T.CenterCrop(2), T.ToLayout("CHW", "uint8")])
    >>> augment((np.zeros((4, 6, 3), np.uint8), 7))[0].shape
    (3, 2, 2)
    """

    def __init__(self, ops: Sequence[Op | Callable[[Sample], Sample]], kinds: Tree = None) -> None:
        self.ops: tuple[Op, ...] = _as_ops(ops)
        check_kinds(kinds)
        self.kinds = self._checked_kinds = kinds
        self._scaled: tuple[tuple[Tree, ...], Program] | None = None
        for position, op in enumerate(self.ops):
            if isinstance(op, Decode) and position > 0:
                raise ArgumentError(
                    f"Decode must be the first op of a pipeline, got it at position {position} of {self!r}"
                )
        self.mover: Op | None = next((op for op in self.ops if _moves(op)), None)
        self.object_op: Op | None = next((op for op in self.ops if op.reads_boxes or op.removes_objects), None)
        self._first = next((place for place, op in enumerate(self.ops) if op.takes_pixels), None)
        unpaired = (op for op in self.ops if getattr(op, "keypoint_pairs", ()) is None and getattr(op, "p", True))
        self._unpaired = next(unpaired, None)
        self._leave_targets = tuple(leaves_targets(op) for op in self.ops)
        self._compares = tuple(i == self._first or _moves(op) for i, op in enumerate(self.ops))
        self._last = max((i for i, op in enumerate(self.ops) if not _is_on_sample(op)), default=-1)
        self.spec(ImageSpec(channels=None))
        self.layouts = find_layouts(self.ops)

    def __call__(self, sample: Sample, *, keys: SampleKeys | None = None, kinds: Tree = None) -> Sample:
        """Apply every op to one sample.

        Parameters
        ----------
        sample : object
            A bare image, or a tuple, list or mapping of values. It is not changed. Images are encoded bytes where the
            pipeline begins with Decode, else HWC (or HW) arrays or PIL images.
        keys : SampleKeys of length 1, optional
            The sample's key. Default: that of the sample being built (inside a penstock loader, or
            ``penstock.rng.sample_scope``), another one at each call for it; outside of any, fresh randomness at each
            call.
        kinds : tree of str, optional
            Instead of the pipeline's own.

        Returns
        -------
        object
            A sample of the same structure. Images and masks are C-contiguous arrays, boxes and keypoints float32,
            instances uint8, (n, H, W), 1 where the object is.

        Raises
        ------
        ArgumentError
            If a target has another shape than its kind, a mask another size than its image, or a field that looks
            like a target no kind.
        """
        if kinds is not None and kinds is not self._checked_kinds:
            check_kinds(kinds)
            self._checked_kinds = kinds
        kinds = kinds if kinds is not None else self.kinds
        if kinds is None:
            kinds = infer_kinds(sample, self.mover)
        self.warn_of_unpaired_points(kinds)
        if keys is None:
            if (inside := next_keys()) is not None:
                return self._apply(sample, kinds, inside)
            keys = SampleKeys(secrets.randbits(63), 0, np.zeros(1, np.int64))
        if len(keys) != 1:
            raise ArgumentError(f"keys must have length 1 for one sample, got {len(keys)}")
        with sample_scope(keys.seed, keys.epoch, int(keys.indices[0])):
            return self._apply(sample, kinds, keys)

    def take_pixels(self, *, is_mixed: bool = False) -> Pipeline:
        """Return the ops for images of which some are stored as their pixels: these are not decoded.

        Parameters
        ----------
        is_mixed : bool
            Whether gray and colour pictures are side by side; see
            :class:`~penstock.transforms.program.pixel_program.TakePixels`.
        """
        if not self.ops or not isinstance(self.ops[0], Decode):
            return self
        return Pipeline([TakePixels(self.ops[0], is_mixed=is_mixed), *self.ops[1:]], self.kinds)

    def warn_of_unpaired_points(self, kinds: Tree) -> None:
        """Warn, once, of a flip that does not know which keypoints change their names, where ``kinds`` have some."""
        flip = self._unpaired
        if flip is None or "keypoints" not in tree_leaves(kinds):
            return
        self._unpaired = None
        what = f"{flip!r} mirrors keypoints, and each keeps its row: the left one is then on the right"
        give = (
            "give keypoint_pairs=[(0, 1), ...], the points that change their names, or keypoint_pairs=[] if none does"
        )
        warnings.warn(f"{what}; {give}", stacklevel=3)

    def follow(self, upright: bool | None, followers: Sequence[str]) -> Pipeline:
        """Return the ops for the records of a store; see :meth:`Decode.follow`."""
        if not self.ops or not isinstance(self.ops[0], Decode):
            return self
        decode = self.ops[0].follow(upright, followers)
        return self if decode is self.ops[0] else Pipeline([decode, *self.ops[1:]], self.kinds)

    def compile(self, kinds: Tree, *, followers: bool = False, pixels: ArrayKind | None = None) -> Program:
        """Return the program that fills rows of a batch with this pipeline's image.

        Parameters
        ----------
        kinds : tree of str
            Of the dataset's sample: a mapping of field names to kinds, or any tree of kinds.
        followers : bool
            Whether the caller moves boxes, keypoints and masks itself, by the ``steps`` of
            :meth:`~penstock.transforms.program.program.Program.fill`.
        pixels : ArrayKind, optional
            Dtype and shapes of the images, if they are stored as their pixels; see :meth:`take_pixels`.
        """
        leaves = tuple(tree_leaves(kinds))
        if pixels is not None:
            return PixelProgram(self.ops, leaves, pixels, followers=followers)
        return Program(self.ops, leaves, followers=followers)

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the image after the last op, for a spec before the first."""
        return spec_after(self.ops, spec)

    def _scaling(self, kinds: Tree) -> Program | None:
        """The program, if images are decoded at a reduced size, which depends on the ops after Decode; else None."""
        if not self.ops or not isinstance(self.ops[0], Decode) or self.ops[0].scale == "full":
            return None
        leaves = tuple(tree_leaves(kinds))
        if self._scaled is None or self._scaled[0] != leaves:
            self._scaled = leaves, self.compile(kinds)
        program = self._scaled[1]
        return program if program.scales else None

    def __repr__(self) -> str:
        return f"Pipeline([{', '.join(map(repr, self.ops))}])"

    def _apply(self, sample: Sample, kinds: Tree, keys: SampleKeys) -> Sample:
        if (program := self._scaling(kinds)) is not None:
            collect_values(kinds, sample)
            sample = map_values(
                kinds, sample, lambda kind, value: program.run_one(as_bytes(value), keys) if kind == "image" else value
            )
            note_ops(self.ops, 0, len(self.ops), None, kinds, sample)
            return sample
        objects: Objects | None = None
        for stream, op in enumerate(self.ops):
            if isinstance(op, Lambda) and op.on == "sample":
                sample, objects = op.fn(map_values(kinds, sample, _as_dense)), None
                note_ops(self.ops, stream, stream + 1, None, kinds, sample)
                continue
            if objects is None and self.object_op:
                objects = Objects.start(find_boxes(kinds, sample, self.object_op))
            if op.removes_objects:
                assert objects is not None
                sample = self._remove_objects(op, stream, sample, kinds, objects)
                note_ops(self.ops, stream, stream + 1, None, kinds, sample)
            else:
                sample = self._apply_op(op, stream, sample, kinds, keys, objects)
        return self._finish(sample, kinds) if "instances" in tree_leaves(kinds) else sample

    def _finish(self, sample: Sample, kinds: Tree) -> Sample:
        """The sample with the masks of its objects as arrays, also where no op took pixels."""
        if self._first is None:
            size = _size(collect_values(kinds, sample), sample, kinds, self.layouts[-1])
            return map_values(
                kinds,
                sample,
                lambda kind, value: ObjectMasks.of(value, size).dense() if kind == "instances" else value,
            )
        return map_values(kinds, sample, _as_dense)

    def _remove_objects(self, op: Op, stream: int, sample: Sample, kinds: Tree, objects: Objects) -> Sample:
        held = collect_values(kinds, sample)
        if not _are_arrays(held):
            sample = map_values(kinds, sample, lambda kind, value: _as_array(kind, value, op))
            held = collect_values(kinds, sample)
        sample = map_values(kinds, sample, _as_target)
        size = self._find_size(stream, held, sample, kinds)
        sample = remove_objects(kinds, _open_instances(kinds, sample, held, size), op, objects.remove(op, size))
        return map_values(kinds, sample, lambda _, value: as_collatable(value)) if stream == self._last else sample

    def _find_size(self, stream: int, held: list[Held], sample: Sample, kinds: Tree) -> tuple[int, int]:
        """Return the width and height of the first image before an op; images of an unknown layout are checked."""
        if self.layouts[stream] is None and self.ops[stream].takes_pixels:
            for kind, value in held:
                if kind == "image":
                    refuse_layout(value, self.ops[stream])
        return _size(held, sample, kinds, self.layouts[stream])

    def _apply_op(
        self, op: Op, stream: int, sample: Sample, kinds: Tree, keys: SampleKeys, objects: Objects | None
    ) -> Sample:
        held = collect_values(kinds, sample)
        if op.takes_pixels and not _are_arrays(held):
            sample = map_values(kinds, sample, lambda kind, value: _as_array(kind, value, op))
            held = collect_values(kinds, sample)
        size = self._find_size(stream, held, sample, kinds)
        if self._compares[stream]:
            _compare_sizes(held, size)
        if op.takes_pixels:
            sample = _open_instances(kinds, sample, held, size)
        boxes = None if objects is None else objects.boxes
        params = draw_one(op, keys, size, stream, boxes)
        if objects is not None:
            objects.move(op, params, size)
        step, last = Step(op, params, size), stream == self._last

        def apply(kind: str | None, value: Sample) -> Sample:
            if kind == "image":
                own = measure_image(value, self.layouts[stream])
                result = op.native(value, params if own == size else draw_one(op, keys, own, stream, boxes))
            elif kind not in FOLLOWERS or (kind == "instances" and not isinstance(value, ObjectMasks)):
                return value
            else:
                result = step.move(kind, value)
            return as_collatable(result) if last else result

        sample = map_values(kinds, sample, apply)
        after = collect_values(kinds, sample) if self._leave_targets[stream] or isinstance(op, Decode) else []
        if self._leave_targets[stream] and not _have_one_size(held, after, self.layouts[stream : stream + 2]):
            warn_of_left_targets(op, (kind for kind, _ in held))
        if isinstance(op, Decode):
            _compare_sizes(after, _size(after, sample, kinds, "HWC"))
        note_ops(self.ops, stream, stream + 1, step, kinds, sample)
        return sample


def _as_ops(ops: object) -> tuple[Op, ...]:
    """Return ops, callables as ops, and the ops of pipelines in place of these."""
    if isinstance(ops, Op) or not isinstance(ops, Iterable):
        raise ArgumentError(f"ops must be a list of ops, such as T.Pipeline([T.Decode(), ...]), got {ops!r:.200}")
    found: list[Op] = []
    for op in ops:
        if isinstance(op, Pipeline):
            if op.kinds is not None:
                raise ArgumentError("kinds must be given to the outer pipeline, got them on a pipeline within it")
            found += op.ops
        elif isinstance(op, Op):
            found.append(op)
        else:
            if found and not isinstance(found[-1], Lambda):
                _refuse_array_ignorers(op)
            found.append(Lambda(op))
    return tuple(found)


_TAKE_ARRAYS: Final = frozenset({"Lambda", "ToImage", "ToPILImage", "ToTensor"})
"""torchvision's transforms that take arrays."""


def _refuse_array_ignorers(transform: Tree) -> None:
    """Refuse transforms of torchvision after an op: given arrays, those of v2 do nothing and raise nothing."""
    kind = type(transform)
    if not kind.__module__.startswith("torchvision.transforms"):
        return
    if kind.__name__ == "Compose" and transform.transforms:
        _refuse_array_ignorers(transform.transforms[0])
    elif kind.__name__ not in _TAKE_ARRAYS:
        raise ArgumentError(
            f"torchvision's {kind.__name__} needs PIL images or tensors, got the NumPy arrays of ops; use penstock's "
            "op, put v2.ToImage() before it, or give the whole torchvision Compose to StoreDataset(transform=...)"
        )


def _are_arrays(held: list[Held]) -> bool:
    """Return whether images and masks are NumPy's own arrays."""
    return all(type(value) is np.ndarray or kind not in {"image", "mask"} for kind, value in held)


def _as_array(kind: str | None, value: Sample, op: Op) -> Sample:
    if kind == "image":
        return as_pixels(value, op)
    return as_mask(value, op) if kind == "mask" else value


def _as_target(kind: str | None, value: Sample) -> Sample:
    if kind == "boxes":
        return as_boxes(value)
    return as_keypoints(value) if kind == "keypoints" else value


def _as_dense(_kind: str | None, value: Sample) -> Sample:
    return value.dense() if isinstance(value, ObjectMasks) else value


def _open_instances(kinds: Tree, sample: Sample, held: list[Held], size: tuple[int, int]) -> Sample:
    """The sample with the masks of its objects as planes."""
    if all(kind != "instances" for kind, _ in held):
        return sample
    return map_values(kinds, sample, lambda kind, value: ObjectMasks.of(value, size) if kind == "instances" else value)


def _size(held: list[Held], sample: Sample, kinds: Tree, layout: str | None) -> tuple[int, int]:
    """Width and height of the first image, which targets follow."""
    for kind, value in held:
        if kind == "image":
            return measure_image(value, layout)
    if isinstance(sample, Mapping) and sample:
        raise ArgumentError(
            f"a sample must have an image, got the fields {', '.join(map(str, sample))}; say which one is the image, "
            f"such as kinds={{{next(iter(sample))!r}: 'image'}}"
        )
    raise ArgumentError(
        f"a sample must have an image, got the kinds {kinds!r}; images are encoded, or pixels of uint8, uint16 or "
        "float32 (convert arrays of other dtypes before they are stored)"
    )


def _compare_sizes(held: list[Held], size: tuple[int, int]) -> None:
    """Refuse masks of another size than their image's."""
    for kind, value in held:
        if kind == "mask":
            refuse_other_size(value, size)


def _have_one_size(before: list[Held], after: list[Held], layouts: Sequence[str | None]) -> bool:
    """Return whether the first image has the same width and height, or is no image as an array, now or before."""
    for (kind, old), (_, new) in zip(before, after, strict=True):
        if kind == "image":
            are_arrays = all(isinstance(image, np.ndarray) and image.ndim in {2, 3} for image in (old, new))
            sizes = {measure_image(image, layout) for image, layout in zip((old, new), layouts, strict=True)}
            return not are_arrays or old.shape == new.shape or len(sizes) == 1
    return True


def _is_on_sample(op: Op) -> bool:
    return isinstance(op, Lambda) and op.on == "sample"


def _moves(op: Op) -> bool:
    """Return whether an op moves pixels."""
    cls = type(op)
    return not isinstance(op, Decode) and any(
        getattr(cls, name) is not getattr(Op, name) for name in ("boxes", "keypoints", "mask")
    )
