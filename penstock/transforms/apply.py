"""Application of ops to one image, for the general path and for ops of a program that do not fuse.

What a pipeline does with a sample can be observed while it is done: :func:`observing_ops`. Results do not depend on it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.nested import measure_image
from penstock.rng import sample_scope
from penstock.sample import Sample, SampleKeys, Tree
from penstock.transforms.base import ImageLike, ImageSpec, Op, Params
from penstock.transforms.inputs import as_pixels, refuse_layout
from penstock.transforms.targets.moved_targets import Step
from penstock.transforms.targets.objects import Objects

__all__ = ["AppliedOps", "apply_to_image", "draw_one", "note_ops", "observing_ops", "spec_after"]


@dataclass(frozen=True, slots=True)
class AppliedOps:
    """What a pipeline has done with a sample."""

    ops: tuple[Op, ...]  # all ops of the pipeline
    start: int
    stop: int
    """``start`` and ``stop``: which of them were applied: one, or all where they are not applied one by one."""
    step: Step | None
    """What the op drew, and the size of the image before it; None for a callable on the whole sample, for an op that
    removes objects, and for several ops."""
    kinds: Tree  # of the values of the sample
    sample: Sample  # the sample after them. Later ops do not change it; callables of the user may


_observer: Final[contextvars.ContextVar[Callable[[AppliedOps], None] | None]] = contextvars.ContextVar(
    "penstock-op-observer", default=None
)


@contextmanager
def observing_ops(observer: Callable[[AppliedOps], None]) -> Iterator[None]:
    """Call ``observer`` after each op that a pipeline applies in this thread while the body runs.

    Rows of batches that a program fills are not observed.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def note_ops(ops: tuple[Op, ...], start: int, stop: int, step: Step | None, kinds: Tree, sample: Sample) -> None:
    """Tell the observer, if there is one, what was applied; called by pipelines."""
    observer = _observer.get()
    if observer is not None:
        observer(AppliedOps(ops, start, stop, step, kinds, sample))


def apply_to_image(
    ops: Sequence[Op],
    layouts: Sequence[str | None],
    image: ImageLike,
    keys: SampleKeys,
    first: int = 0,
    steps: list[Step] | None = None,
    boxes: object = None,
) -> ImageLike:
    """Apply ``ops[first:]`` to one image, each with its position as its stream; append them to ``steps``, if given.

    ``layouts``: those that :func:`.inputs.find_layouts` finds. ``boxes``: those of the sample, if ops read them; then
    ``steps`` has what was applied before ``first``.
    """
    objects = None if boxes is None else Objects.start(boxes)
    if objects is not None:
        for step in steps or ():
            objects.apply(step.op, step.params, step.size)
    with sample_scope(keys.seed, keys.epoch, int(keys.indices[0])):
        for stream in range(first, len(ops)):
            op, layout = ops[stream], layouts[stream]
            if op.takes_pixels and type(image) is not np.ndarray:
                image = as_pixels(image, op)
            if layout is None and op.takes_pixels:
                refuse_layout(image, op)
            size = measure_image(image, layout)
            params = draw_one(op, keys, size, stream, None if objects is None else objects.boxes)
            image = op.native(image, params)
            if objects is not None:
                objects.apply(op, params, size)
            if steps is not None:
                steps.append(Step(op, params, size))
    return image


def draw_one(
    op: Op, keys: SampleKeys, size: tuple[int, int], stream: int, boxes: NDArray[np.float32] | None = None
) -> Params:
    """The op's parameters for a chunk of one sample; ``boxes``: those of the sample, if the op reads them."""
    sizes = np.array([size], np.int32)
    if op.reads_boxes and boxes is not None:
        params: Params = op.draw_by_boxes(keys, sizes, stream, [boxes])[0]
    else:
        params = op.draw(keys, sizes, stream)[0]
    return params


def spec_after(ops: Sequence[Op], spec: ImageSpec | None) -> ImageSpec | None:
    """Return the spec of an image of ``spec`` after the ops; None if it is unknown."""
    for op in ops:
        spec = op.spec(spec) if spec is not None else None
    return spec
