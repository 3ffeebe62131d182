"""Pipelines that begin with an affine map, CenterCrop and flips, on a canvas of which only the seen part is drawn.

::

    canvas, never drawn        result of the map
    ┌──────────────┐           ┌──────────────┐
    │      ┌─────┐ │           │   ┌──────┐   │
    │      │ seen│ │ <──map─── │   │window│   │
    │      └─────┘ │           │   └──────┘   │
    └──────────────┘           └──────────────┘

The result equals that of the pipeline on the whole canvas, but for the rounding of positions and weights: of a million
values about fifty differ, by one level. RandomHSV and ToLayout to uint8 that follow are a part of the same native call.
Called by datasets that draw canvases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock import _native, trace
from penstock.sample import Sample, SampleKeys
from penstock.transforms.apply import apply_to_image, draw_one
from penstock.transforms.base import Lambda, Op
from penstock.transforms.ops.crop import CenterCrop
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.ops.hsv import RandomHSV
from penstock.transforms.ops.layout import ToLayout
from penstock.transforms.ops.sanitize import ClampBoundingBoxes, SanitizeBoundingBoxes
from penstock.transforms.ops.warp import Matrix, RandomAffine, RandomRotation
from penstock.transforms.pipeline import Pipeline
from penstock.transforms.pixel_arithmetic import Pixels
from penstock.transforms.program.placed_pictures import Area
from penstock.transforms.targets.moved_targets import Moves, Step
from penstock.transforms.targets.objects import find_boxes
from penstock.transforms.targets.target_forms import as_collatable

__all__ = ["SeenWindow"]

_MARGIN: Final = 2
"""Pixels around the mapped window: interpolation reaches one beyond it."""
_OF_BOXES: Final = frozenset({ClampBoundingBoxes, SanitizeBoundingBoxes})
"""Ops that leave the image as it is."""


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """What one sample's pipeline shows of a canvas."""

    pipeline: Pipeline  # its first ops are applied together
    steps: tuple[Step, ...]  # these ops, with what they drew: the map, the crop, and flips and ops on boxes that follow
    matrix: Matrix  # the map from the window to the part that is seen
    size: tuple[int, int]  # width and height of the window
    seen: Area  # the part of the canvas that must be drawn and given to :meth:`apply`

    @classmethod
    def find(cls, transform: object, keys: SampleKeys, size: tuple[int, int]) -> SeenWindow | None:
        """Return what ``transform`` shows of a canvas of ``size``, with these keys.

        It is None if it must be drawn as a whole.
        """
        if not isinstance(transform, Pipeline) or transform.kinds is not None or len(transform.ops) < 2:
            return None
        warp, crop = transform.ops[:2]
        if type(warp) not in {RandomAffine, RandomRotation} or type(crop) is not CenterCrop:
            return None
        assert isinstance(warp, RandomAffine | RandomRotation)
        if warp.filter != "bilinear" or any(isinstance(op, Lambda) and op.on == "sample" for op in transform.ops):
            return None
        drawn, window = draw_one(warp, keys, size, 0), draw_one(crop, keys, size, 1)
        matrix = warp.matrix(drawn, size)
        left, top, width, height = window.tolist()
        if matrix is None or left < 0 or top < 0 or left + width > size[0] or top + height > size[1]:
            return None
        seen = _find_seen(matrix, (left, top, left + width, top + height), size)
        if seen is None:
            return None
        a, b, c, d, e, f = matrix
        moved: Matrix = (a, b, a * left + b * top + c - seen[0], d, e, d * left + e * top + f - seen[1])
        moved, flips = _flip(moved, transform, keys, (width, height))
        steps = Step(warp, drawn, size), Step(crop, window, size), *flips
        return cls(transform, steps, moved, (width, height), seen)

    def apply(self, part: Pixels, keys: SampleKeys, fields: Sample, kinds: Mapping[str, str]) -> dict[str, Sample]:
        """Return the results of the whole pipeline.

        Parameters
        ----------
        part : ndarray, uint8, HWC
            The canvas within :attr:`seen`.
        keys : SampleKeys of length 1
            Those of :meth:`find`.
        fields : mapping
            All fields of the sample; boxes and keypoints on the canvas.
        kinds : mapping of str to str
            The name of the image, and of those fields that follow it.
        """
        self.pipeline.warn_of_unpaired_points(dict(kinds))
        steps = list(self.steps)
        op = self.pipeline.object_op
        boxes = None if op is None else find_boxes(dict(kinds), fields, op)
        with trace.stage("augment"):
            image = self._draw(part, keys, steps, boxes)
        moves = Moves(steps, boxes)
        known = {"image": image}
        if boxes is not None:
            known["boxes"] = as_collatable(moves.boxes)
        moved = {}
        for name in kinds if boxes is None else fields:
            kind = kinds.get(name)
            moved[name] = known[kind] if kind in known else moves.move(name, kind, fields[name])
        return moved

    def _draw(self, part: Pixels, keys: SampleKeys, steps: list[Step], boxes: Sample) -> Sample:
        """Return the image after all ops; those after the window are appended to ``steps``."""
        ops, first = self.pipeline.ops, len(steps)
        warp = steps[0].op
        assert isinstance(warp, RandomAffine | RandomRotation)
        if _are_drawn_natively(ops[first:]):
            rest = enumerate(ops[first:], first)
            steps += [Step(op, draw_one(op, keys, self.size, stream), self.size) for stream, op in rest]
            shift = next((tuple(step.params.tolist()) for step in steps if type(step.op) is RandomHSV), None)
            layout = ops[-1].layout if isinstance(ops[-1], ToLayout) else "HWC"
            return _native.warp_window(part, self.matrix, self.size, warp.fill, layout, shift)
        image = _native.warp_window(part, self.matrix, self.size, warp.fill)
        read = boxes if any(op.reads_boxes for op in ops) else None
        return as_collatable(apply_to_image(ops, self.pipeline.layouts, image, keys, first, steps, read))


def _are_drawn_natively(ops: Sequence[Op]) -> bool:
    """Return whether these ops change colours at most once, and bring uint8 images to a layout at most at the end."""
    names = [type(op) for op in ops if type(op) not in _OF_BOXES]
    if names and isinstance(ops[-1], ToLayout) and ops[-1].dtype == "uint8":
        names.pop()
    return names in ([], [RandomHSV])


def _flip(matrix: Matrix, pipeline: Pipeline, keys: SampleKeys, size: tuple[int, int]) -> tuple[Matrix, list[Step]]:
    """The map from the window after the flips that follow the crop, and these, with ops on boxes between them."""
    steps = []
    a, b, c, d, e, f = matrix
    for stream, op in enumerate(pipeline.ops[2:], 2):
        if type(op) not in {HorizontalFlip, VerticalFlip, *_OF_BOXES}:
            break
        drawn = draw_one(op, keys, size, stream)
        steps.append(Step(op, drawn, size))
        if type(op) in _OF_BOXES:
            continue
        if drawn and type(op) is HorizontalFlip:
            a, c, d, f = -a, c + a * size[0], -d, f + d * size[0]
        elif drawn:
            b, c, e, f = -b, c + b * size[1], -e, f + e * size[1]
    return (a, b, c, d, e, f), steps


def _find_seen(matrix: Matrix, window: Area, size: tuple[int, int]) -> Area | None:
    """Return the pixels of the canvas that the window shows.

    It is None if it shows none, or is no affine map of finite numbers.
    """
    if len(matrix) != 6:
        return None
    x0, y0, x1, y1 = window
    corners = np.array([(x0, y0, 1), (x1, y0, 1), (x1, y1, 1), (x0, y1, 1)]) @ np.array(matrix).reshape(2, 3).T
    least = np.maximum(np.floor(corners.min(axis=0)) - _MARGIN, 0)
    most = np.minimum(np.ceil(corners.max(axis=0)) + _MARGIN, size)
    if not (least < most).all():
        return None
    return int(least[0]), int(least[1]), int(most[0]), int(most[1])
