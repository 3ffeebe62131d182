"""The last ops of a pipeline in one native call: Normalize, RandomErasing and ToLayout, written to a row of a batch.

::

    uint8 HWC ──Normalize──> ──RandomErasing──> ──ToLayout──> row          op by op: a new array each
    uint8 HWC ────────────_native.fill_pixels────────────> row, then the rectangle          here

Called by :mod:`penstock.transforms.program.program` after ops that do not fuse. The result equals that of the ops one
by one, bit for bit; they are applied one by one to an image that the native call does not take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock import bfloat16
from penstock.sample import Array, SampleKeys
from penstock.transforms.apply import apply_to_image, draw_one, image_size
from penstock.transforms.base import Fusion, ImageLike, Op
from penstock.transforms.ops.erase import RandomErasing
from penstock.transforms.ops.layout import ToLayout
from penstock.transforms.ops.normalize import Normalize
from penstock.transforms.pixel_arithmetic import is_colour, write_row

__all__ = ["Closing"]


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
            out[0] = apply_to_image(self._ops, image, keys, self.first)
            return
        write_row(image, out, fusion.layout, fusion.scale, fusion.offset)
        if self._erasing is not None:
            op = self._ops[self._erasing]
            assert isinstance(op, RandomErasing)
            params = draw_one(op, keys, image_size(image), self._erasing)
            op.erase(out[0] if fusion.layout == "HWC" else out[0].transpose(1, 2, 0), params, np.dtype(np.float32))
