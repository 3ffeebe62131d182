"""A compiled pipeline: one native call per chunk for the ops that fuse, ordinary ops for the rest.

::

    images ──sizes──> draw, compose ──plan──> _native.fill ──> rows of the batch      fused ops, no Python per image
                                     │              └ unsupported, corrupt ──> Pillow ──> _native.fill_pixels
                                     └ padded rows ──> the general path, row by row
                                                                   then, if any, the ops that did not fuse,
                                                                   the last of them again in one native call:

    uint8 HWC ──Normalize──> ──RandomErasing──> ──ToLayout──> row          op by op: a new array each
    uint8 HWC ────────────_native.fill_pixels────────────> row, then the rectangle          here
Each row equals the result of the general path, bit for bit. The one difference: only the general path finds damage in
the middle of a JPEG or PNG below the part that is used. Called by datasets, from several threads at once; has no state.
Ops decide whether they fuse (:meth:`Op.fuse`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native, bfloat16, trace
from penstock.bfloat16 import array_dtype, as_words
from penstock.errors import ArgumentError, DecodeError, PenstockError
from penstock.nested import measure_image
from penstock.orientation import raw_regions
from penstock.repairs import set_position
from penstock.sample import Array, ArraySpec, SampleKeys
from penstock.transforms.apply import apply_to_image, draw_one, spec_after
from penstock.transforms.base import Fusion, ImageLike, ImageSpec, Lambda, Op, Params, Sizes
from penstock.transforms.decoding.decode import Decode, as_bytes, refuse_broken
from penstock.transforms.inputs import find_layouts
from penstock.transforms.ops.erase import RandomErasing
from penstock.transforms.ops.layout import ToLayout
from penstock.transforms.ops.normalize import Normalize
from penstock.transforms.pixel_arithmetic import is_colour, write_row
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.program.image_chunk import Chunk, ChunkSeekTables, Failure, Plan, raise_first
from penstock.transforms.program.row_filling import draw_geometry, fill_rows, fuse_first, pack_steps, raise_refused
from penstock.transforms.targets.moved_targets import FOLLOWERS, ChunkSteps, Step, append_steps
from penstock.transforms.targets.objects import Objects
from penstock.transforms.targets.target_forms import as_collatable

__all__ = ["Closing", "Failure", "Plan", "Program"]

_GENERAL: Final = frozenset({"general", "truncated"})
"""Kinds of failures for the general path: padded rows, and truncated files, of which a part may be whole."""


class Program:
    """The compiled form of a pipeline, from :meth:`penstock.transforms.Pipeline.compile`.

    Parameters
    ----------
    ops : sequence of Op
        The pipeline's.
    kinds : sequence of str
        Kinds of all fields of the dataset's sample.
    followers : bool
        Whether boxes, keypoints and masks are moved by the caller, by the ``steps`` of :meth:`fill`. False: a sample
        that has any is not filled.
    source, fusion : ImageSpec and Fusion, optional
        Images before the first op, and what is known of them; by default encoded images.

    Attributes
    ----------
    fusion : Fusion
        What the native call is given of the fused ops; not to be changed.
    fused : int
        Number of ops, from the first on, that are one native call.
    reads_boxes : bool
        Whether :meth:`fill` needs the boxes of each image.
    has_one_shape : bool
        Whether all images have one shape and dtype; what else a sample has may keep rows from being filled.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        kinds: Sequence[str],
        *,
        followers: bool = False,
        source: ImageSpec | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        self.ops = tuple(ops)
        self._layouts = find_layouts(self.ops)
        alone = kinds.count("image") == 1
        if not FOLLOWERS.isdisjoint(kinds):
            # the general path decodes at full size where anything follows the image
            alone = alone and followers and not any(isinstance(op, Decode) and op.scale != "full" for op in ops)
        self.reads_boxes = any(op.reads_boxes for op in self.ops)
        if self.reads_boxes or any(op.removes_objects for op in self.ops):
            alone = alone and followers and kinds.count("boxes") == 1
        self._source = source or ImageSpec()
        self._rowwise = alone and not any(isinstance(op, Lambda) and op.on == "sample" for op in self.ops)
        self.fusion = fusion or Fusion()
        # An op that erases after Normalize is applied to the row itself: then Normalize is not fused either.
        closing = Closing(self.ops, 0)
        most = closing.first if closing.erases else len(self.ops)
        self.fused = fuse_first(self.ops[:most], self.fusion) if self._rowwise else 0
        self._closing = Closing(self.ops, self.fused)
        self._moving = [(i, op) for i, op in enumerate(self.ops[: self.fused]) if type(op).compose is not Op.compose]
        self._prefix = spec_after(self.ops[: self.fused], self._source) or ImageSpec()
        self._steps = None if self._prefix.shape is None else pack_steps(self._moving)
        last = spec_after(self.ops, self._source)
        self.has_one_shape = last is not None and last.shape is not None and last.dtype is not None
        self._spec: ArraySpec | None = None
        if last is not None and last.shape is not None and last.dtype is not None and self._rowwise:
            self._spec = ArraySpec(last.shape, array_dtype(last.dtype))

    def spec(self) -> ArraySpec | None:
        """Return shape and dtype of one row; None if samples differ, or other values than the image are transformed."""
        return self._spec

    @property
    def is_copying(self) -> bool:
        """Whether rows are only converted and moved: nothing is decoded, and no op runs in Python."""
        return self.fusion.stored and self.fused == len(self.ops)

    def plan(self, keys: SampleKeys, sizes: Sizes, boxes: Sequence[object] | None = None) -> Plan:
        """Draw the parameters of a chunk and compose the fused ops.

        Parameters
        ----------
        keys : SampleKeys
            The samples'.
        sizes : ndarray, (n, 2)
            Width and height of each image.
        boxes : sequence of array_like, optional
            Boxes of each image, if an op reads them.

        Raises
        ------
        ArgumentError
            If an image has a size that an op cannot take; ``position`` is its position in the chunk.
        """
        geometry = Geometry(sizes)
        objects = [] if boxes is None else [Objects.start(own) for own in boxes]
        drawn: list[tuple[Op, Params, Sizes]] = []
        for stream, op in self._moving:
            size = geometry.size
            if op.reads_boxes:
                params = op.draw_by_boxes(keys, size, stream, [each.boxes for each in objects])
            else:
                params = op.draw(keys, size, stream)
            for i, each in enumerate(objects):
                each.apply(op, params[i], (int(size[i, 0]), int(size[i, 1])))
            drawn.append((op, params, size))
            op.compose(geometry, params)
        return Plan(geometry.plan, geometry.size, geometry.padded, drawn)

    def fill(
        self,
        images: Sequence[ImageLike],
        out: Array,
        keys: SampleKeys,
        rows: NDArray[np.int64] | None = None,
        sizes: NDArray[np.int32] | None = None,
        failures: list[Failure] | None = None,
        seek_tables: ChunkSeekTables | None = None,
        steps: Sequence[list[Step]] | None = None,
        boxes: Sequence[object] | None = None,
    ) -> None:
        """Write each image's result to its row of a batch.

        Parameters
        ----------
        images : sequence of bytes-like
            Encoded images (arrays, if the pipeline does not begin with Decode).
        out : ndarray, shape (N, ...), C-contiguous
            The batch; other rows are left as they are.
        keys : SampleKeys
            The samples', in the same order.
        rows : ndarray, int64, optional
            ``images[i]`` goes to ``out[rows[i]]``; default: to ``out[i]``.
        sizes : ndarray, shape (n, 2), int32, optional
            Widths and heights, if they are known; (0, 0) where one is not.
        failures : list of Failure, optional
            If given, rows that fail are appended; else the first failure is raised after all other rows have been
            filled. The content of a failed row is undefined.
        seek_tables : ChunkSeekTables, optional
            Seek tables of the images, which do not change rows. New ones are appended to it.
        steps : sequence of list of Step, optional
            An empty list for each image, to which the ops that move it are appended, with what they drew: see
            :func:`penstock.transforms.targets.moved_targets.move`. That of a row that fails is incomplete.
        boxes : sequence of array_like, optional
            Boxes of each image, (n, 4): needed, together with ``steps``, if the program :attr:`reads_boxes`.

        Raises
        ------
        PenstockError
            The error of the sample, with its ``position`` in the chunk. Any other exception of a callable is the
            cause of a SampleError.
        """
        if self._spec is None:
            raise ArgumentError(
                f"{self!r} cannot fill rows, because its images differ in shape; apply the pipeline sample by sample"
            )
        self._check_out(out)
        rows = np.arange(len(images)) if rows is None else np.ascontiguousarray(rows, np.int64)
        failed: list[Failure] = []
        if self.reads_boxes and (boxes is None or steps is None):
            raise ArgumentError(f"{self!r} needs the boxes of each image, and steps, got none")
        chunk = Chunk(images, keys, sizes, seek_tables, steps, boxes if self.reads_boxes else None)
        if self.fused == len(self.ops):
            self._fill_fused(chunk, out, rows, failed)
        else:
            self._run(chunk, failed, [out[row : row + 1] for row in rows.tolist()])
        if failures is not None:
            failures += failed
        elif failed:
            raise_first(failed)

    def _check_out(self, out: Array) -> None:
        """Refuse a batch whose rows are not of the spec."""
        spec = self._spec
        if spec is not None and (out.shape[1:] != spec.shape or out.dtype != spec.dtype):
            raise ArgumentError(
                f"out must have rows of shape {spec.shape} and dtype {spec.dtype}, got {out.shape[1:]} and {out.dtype}"
            )

    def run(self, images: Sequence[ImageLike], keys: SampleKeys, sizes: NDArray[np.int32] | None = None) -> list[Array]:
        """Return the result of each image as a new array of any shape; arguments and errors as for :meth:`fill`."""
        if not self._rowwise:
            raise ArgumentError(
                f"{self!r} cannot run on images alone, because it transforms more; apply the pipeline sample by sample"
            )
        failed: list[Failure] = []
        results = self._run(Chunk(images, keys, sizes), failed)
        if failed:
            raise_first(failed)
        return results

    @property
    def _decode(self) -> Decode:
        assert isinstance(self.fusion.decode, Decode), "the first op that fuses"
        return self.fusion.decode

    @property
    def scales(self) -> bool:
        """Whether images may be decoded at a reduced size; then only the fused ops give the right pixels."""
        return self.fusion.decode is not None and self.fusion.decode.scale == "auto" and self.fusion.resized

    def run_one(self, image: ImageLike, keys: SampleKeys) -> ImageLike:
        """Return the result of one image; errors are raised unchanged."""
        failed: list[Failure] = []
        results = self._run(Chunk([image], keys, None), failed)
        if failed:
            raise failed[0].error
        return results[0]

    def __repr__(self) -> str:
        names = [type(op).__name__ for op in self.ops]
        return f"Program(fused=[{', '.join(names[: self.fused])}], rest=[{', '.join(names[self.fused :])}])"

    def _fill_fused(self, chunk: Chunk, out: Array, rows: NDArray[np.int64], failed: list[Failure]) -> None:
        try:
            plan = self._make_plan(chunk)
        except PenstockError as error:
            if len(chunk.images) == 1:
                error.where.pop("position", None)  # within this chunk of one
                failed.append(Failure(0, error))
                return
        else:
            self._fill_by_plan(chunk, plan, out, rows, failed)
            return
        for i in range(len(chunk.images)):  # one image prevents the plan of all: plan each alone
            alone: list[Failure] = []
            self._fill_fused(chunk.one(i), out, rows[i : i + 1], alone)
            failed += [Failure(i, failure.error) for failure in alone]

    def _make_plan(self, chunk: Chunk) -> Plan:
        """The plan of the chunk, for which missing sizes and, if asked for, orientations are read."""
        decode = self._decode
        drawn = None if decode.orient else self._draw_natively(chunk, chunk.find_sizes())
        if drawn is not None:
            return drawn
        try:
            chunk.read_sizes(decode.max_pixels)
            if decode.orient:
                chunk.read_orientations(decode.max_pixels)
        except DecodeError as error:
            raise refuse_broken(error, decode.on_truncated)  # noqa: B904  # the same object, or one that is chained
        plan = self.plan(chunk.keys, chunk.known_sizes, chunk.boxes)
        if chunk.orientations is not None:
            geometry = plan.geometry.copy()
            geometry[:, :4] = raw_regions(geometry[:, :4], chunk.orientations, chunk.stored_sizes)
            plan = replace(plan, geometry=geometry)
        return plan

    def _draw_natively(self, chunk: Chunk, sizes: Sizes) -> Plan | None:
        """The plan of a chunk by one native call, if that is possible, and nothing asks for what ops have drawn."""
        if self._steps is None or chunk.steps is not None:
            return None
        geometry = draw_geometry(self._steps, chunk.keys, sizes)
        return None if geometry is None else Plan(geometry, None, None, [])

    def _fill_by_plan(
        self, chunk: Chunk, plan: Plan, out: Array, rows: NDArray[np.int64], failed: list[Failure]
    ) -> None:
        """Note what the plan's ops do with the images, and fill the rows."""
        first = None if self.fusion.stored else self._decode
        if isinstance(chunk.steps, ChunkSteps):
            chunk.steps.note(first, plan.drawn)
        elif chunk.steps is not None:
            append_steps(chunk.steps, first, plan.drawn)
        self._fill_planned(chunk, plan, out, rows, failed)

    def _fill_planned(
        self, chunk: Chunk, plan: Plan, out: Array, rows: NDArray[np.int64], failed: list[Failure]
    ) -> None:
        """Fill the rows that the plan expresses by one native call; then the refused ones and the rest, one by one."""
        fusion, decode, geometry = self.fusion, self._decode, plan.geometry
        fused = None if plan.general is None else np.flatnonzero(~plan.general)
        left, decode_ns, resize_ns = fill_rows(fusion, decode, chunk, geometry, out, rows, fused)
        if plan.general is not None:
            left += [(i, "general", "") for i in np.flatnonzero(plan.general).tolist()]
        filled = len(rows) - len(left)
        trace.add("decode", decode_ns, filled)
        trace.add("augment", resize_ns, filled)
        for i, kind, message in left:
            try:
                self._fill_fallback_row(chunk.one(i), out[rows[i] : rows[i] + 1], geometry[i], kind, message)
            except Exception as error:  # noqa: BLE001  # recorded, and raised or handed over by the caller
                failed.append(Failure(i, error))

    def _fill_fallback_row(self, one: Chunk, out: Array, geometry: NDArray[np.int32], kind: str, message: str) -> None:
        """Fill one row, ``out[0]``, that the native decoder refused: through Pillow, or by the general path."""
        raise_refused(kind, message)
        set_position(one.first)
        fusion, decode, image = self.fusion, self._decode, one.images[0]
        if kind not in _GENERAL and decode.mode == "RGB":
            with trace.stage("decode"):
                pixels = decode.image_refused(as_bytes(image), message)
            if (pixels.shape[1], pixels.shape[0]) == tuple(one.stored_sizes[0]):
                with trace.stage("augment"):
                    _native.fill_pixels(
                        pixels, geometry, as_words(out), 0, layout=fusion.layout, filter=fusion.filter,
                        scale=fusion.scale, offset=fusion.offset, orientation=one.orientation_of(0),
                        beside=fusion.beside,
                    )  # fmt: skip
                return
        with trace.stage("augment"):  # decoding is not timed separately on this path
            self._apply_prefix(one, out)

    def _apply_prefix(self, one: Chunk, out: Array) -> None:
        """Fill one row, ``out[0]``, by the general path."""
        steps = one.steps_of(0)
        if steps is not None:
            steps.clear()  # the image may have another size than its header says, and so other numbers
        ops, boxes = self.ops[: self.fused], one.boxes_of(0)
        out[0] = apply_to_image(ops, self._layouts, one.images[0], one.keys, 0, steps, boxes)

    def _run(self, chunk: Chunk, failed: list[Failure], rows: Sequence[Array] | None = None) -> list[Array]:
        """Return the results of all images that do not fail, in order; or each result written to ``rows[i][0]``."""
        results: list[Array] = []
        for i, value in enumerate(self._run_fused(chunk, failed)):
            if value is None:
                continue
            keys = chunk.keys[i : i + 1]
            set_position(chunk.first + i)
            try:
                with trace.stage("augment"):
                    ops = self.ops if rows is None else self.ops[: self._closing.first]
                    steps, boxes = chunk.steps_of(i), chunk.boxes_of(i)
                    image = apply_to_image(ops, self._layouts, value, keys, self.fused, steps, boxes)
                    if rows is None:
                        results.append(as_collatable(image))
                    else:
                        self._closing.write(image, rows[i], keys)
            except Exception as error:  # noqa: BLE001  # recorded, and raised or handed over by the caller
                failed.append(Failure(i, error))
        return results

    def _run_fused(self, chunk: Chunk, failed: list[Failure]) -> list[ImageLike]:
        if self.fused == 0:
            return list(chunk.images)
        if self._prefix.shape is not None:
            out = np.empty((len(chunk.images), *self._prefix.shape), array_dtype(self.fusion.dtype))
            own: list[Failure] = []
            self._fill_fused(chunk, out, np.arange(len(out)), own)
            failed += own
            lost = {failure.position for failure in own}
            return [None if i in lost else out[i] for i in range(len(out))]
        results: list[ImageLike] = []
        for i in range(len(chunk.images)):
            try:
                results.append(self._fill_own_size(chunk.one(i)))
            except Exception as error:  # noqa: BLE001  # as above
                failed.append(Failure(i, error))
                results.append(None)
        return results

    def _fill_own_size(self, one: Chunk) -> Array:
        plan = self._make_plan(one)
        assert plan.size is not None, "images differ in size"
        width, height = (int(side) for side in plan.size[0])
        shape = replace(self._prefix, width=width, height=height).shape
        assert shape is not None
        out = np.empty((1, *shape), array_dtype(self.fusion.dtype))
        failed: list[Failure] = []
        self._fill_by_plan(one, plan, out, np.zeros(1, np.int64), failed)
        if failed:
            raise failed[0].error
        row: Array = out[0]
        return row


class Closing:
    """The last ops of a pipeline that ends with ToLayout, as one step.

    Parameters
    ----------
    ops : sequence of Op
        All ops.
    first : int
        Position of the first op that may be included.

    Attributes
    ----------
    first : int
        Position of the first op that is included; the number of ops if none is.
    """

    def __init__(self, ops: Sequence[Op], first: int) -> None:
        self._ops = tuple(ops)
        self._erasing: int | None = None
        self._fusion = Fusion()
        self.first = len(ops)
        places = range(first, len(ops))
        if not places or not isinstance(ops[-1], ToLayout):
            return
        self.first = len(ops) - 1
        kinds = [type(ops[place]) for place in places]
        if kinds[-2:-1] == [Normalize]:
            self.first -= 1
        elif kinds[-3:-1] == [Normalize, RandomErasing] and ops[-1].dtype != bfloat16.NAME:
            # Without Normalize, the op erases uint8 values itself; it does not write bfloat16.
            self.first, self._erasing = self.first - 2, self.first - 1
        for place in range(self.first, len(ops)):
            if place != self._erasing and not ops[place].fuse(self._fusion):  # such as for four channels
                self.first, self._erasing = len(ops), None
                return

    @property
    def erases(self) -> bool:
        """Whether RandomErasing is included, which does not fuse."""
        return self._erasing is not None

    def write(self, image: ImageLike, out: Array, keys: SampleKeys) -> None:
        """Write the result for ``image``, which went through all ops before ``first``, to ``out[0]``."""
        if self.first == len(self._ops):
            out[0] = image
            return
        fusion = self._fusion
        size = out.shape[1:3] if fusion.layout == "HWC" else out.shape[2:4]
        if not is_colour(image) or image.shape[:2] != size:
            out[0] = apply_to_image(self._ops, find_layouts(self._ops), image, keys, self.first)
            return
        write_row(image, out, fusion.layout, fusion.scale, fusion.offset)
        if self._erasing is not None:
            op = self._ops[self._erasing]
            assert isinstance(op, RandomErasing)
            params = draw_one(op, keys, measure_image(image, "HWC"), self._erasing)
            op.erase(out[0] if fusion.layout == "HWC" else out[0].transpose(1, 2, 0), params, np.dtype(np.float32))
