"""Application of ops to one image, for the general path and for ops of a program that do not fuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.rng import sample_scope
from penstock.sample import SampleKeys
from penstock.transforms.base import ImageLike, Op, Params
from penstock.transforms.inputs import as_pixels, first_on_pixels, refuse_layout
from penstock.transforms.moved_targets import Step

__all__ = ["apply_to_image", "draw_one", "image_size"]


def apply_to_image(
    ops: Sequence[Op], image: ImageLike, keys: SampleKeys, first: int = 0, steps: list[Step] | None = None
) -> ImageLike:
    """Apply ``ops[first:]`` to one image, each with its position as its stream; append them to ``steps``, if given."""
    entry = first_on_pixels(ops) if first == 0 else None
    with sample_scope(keys.seed, keys.epoch, int(keys.indices[0])):
        for stream in range(first, len(ops)):
            op = ops[stream]
            if op.takes_pixels and type(image) is not np.ndarray:
                image = as_pixels(image, op)
            if stream == entry:
                refuse_layout(image, op)
            size = image_size(image)
            params = draw_one(op, keys, size, stream)
            image = op.native(image, params)
            if steps is not None:
                steps.append(Step(op, params, size))
    return image


def draw_one(op: Op, keys: SampleKeys, size: tuple[int, int], stream: int) -> Params:
    """The op's parameters for a chunk of one sample."""
    params: Params = op.draw(keys, np.array([size], np.int32), stream)[0]
    return params


def image_size(image: ImageLike) -> tuple[int, int]:
    """Width and height of an HWC or HW array; (0, 0) for encoded bytes."""
    shape: tuple[int, ...] = getattr(image, "shape", ())
    return (int(shape[1]), int(shape[0])) if len(shape) >= 2 else (0, 0)
