"""A pipeline: ops in order, applied to whole samples one at a time, or compiled to fill rows of a batch.

The general path lives here: any op, any structure of sample, any kind of field. :mod:`penstock.transforms.program`
holds the fast one, whose results equal this one's bit for bit. Neither knows a store or a loader.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.rng import next_keys, sample_scope
from penstock.sample import SampleKeys, Tree, tree_leaves
from penstock.transforms.apply import draw_one, image_size
from penstock.transforms.base import ImageSpec, Lambda, Op
from penstock.transforms.decode import Decode, as_bytes
from penstock.transforms.program import Program

__all__ = ["Pipeline"]

_MOVED: Final = ("image", "boxes", "keypoints", "mask")
"""Kinds that ops act on; every other kind passes through."""


class Pipeline:
    """Ops in order.

    Parameters
    ----------
    ops : sequence of Op or callable
        A bare callable is called with each image (:class:`~penstock.transforms.Lambda` says more).
    kinds : tree of str, optional
        What each value of a sample is, in the sample's structure: ``"image"``, ``("image", "label")``,
        ``{"photo": "image", "target": "boxes"}``. Default: a bare value, or the first of a tuple, is the image; a
        mapping's values are what their names say (image, boxes, keypoints, mask).

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

    def __init__(self, ops: Sequence[Op | Callable[[Any], Any]], kinds: Tree = None) -> None:
        self.ops: tuple[Op, ...] = tuple(op if isinstance(op, Op) else Lambda(op) for op in ops)
        self.kinds = kinds
        self._scaled: tuple[Any, Program] | None = None
        for position, op in enumerate(self.ops):
            if isinstance(op, Decode) and position > 0:
                raise ArgumentError(f"Decode stands first in a pipeline, not at position {position} of {self!r}")
        self.spec(ImageSpec())

    def __call__(self, sample: Any, *, keys: SampleKeys | None = None, kinds: Tree = None) -> Any:
        """Apply every op to one sample.

        Parameters
        ----------
        sample : object
            A bare image, or a tuple, list or mapping of values. It is not changed.
        keys : SampleKeys of length 1, optional
            The sample's key. Default: that of the sample being built (inside a penstock loader, or
            ``penstock.rng.sample_scope``), another one at each call for it; outside of any, fresh randomness at each
            call.
        kinds : tree of str, optional
            Instead of the pipeline's own.

        Returns
        -------
        object
            A sample of the same structure.
        """
        kinds = kinds if kinds is not None else self.kinds
        if kinds is None:
            kinds = _kinds_by_place(sample)
        if keys is None:
            if (inside := next_keys()) is not None:
                return self._apply(sample, kinds, inside)
            keys = SampleKeys(secrets.randbits(63), 0, np.zeros(1, np.int64))
        if len(keys) != 1:
            raise ArgumentError(f"one sample has one key, not {len(keys)}")
        with sample_scope(keys.seed, keys.epoch, int(keys.indices[0])):
            return self._apply(sample, kinds, keys)

    def compile(self, kinds: Tree) -> Program:
        """The program that fills rows of a batch with this pipeline's image.

        Parameters
        ----------
        kinds : tree of str
            Of the dataset's sample: a mapping of field names to kinds, or any tree of kinds.
        """
        return Program(self.ops, tuple(tree_leaves(kinds)))

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """What is known of the image behind the last op, given what is known before the first."""
        known: ImageSpec | None = spec
        for op in self.ops:
            known = op.spec(known) if known is not None else None
        return known

    def _scaling(self, kinds: Tree) -> Program | None:
        """The program, where it alone gives the pixels: what it decodes depends on the crop and the resize behind."""
        if not self.ops or not isinstance(self.ops[0], Decode) or self.ops[0].scale == "full":
            return None
        leaves = tuple(tree_leaves(kinds))
        if self._scaled is None or self._scaled[0] != leaves:
            self._scaled = leaves, self.compile(kinds)
        program = self._scaled[1]
        return program if program.scales else None

    def __repr__(self) -> str:
        return f"Pipeline([{', '.join(map(repr, self.ops))}])"

    def _apply(self, sample: Any, kinds: Tree, keys: SampleKeys) -> Any:
        if (program := self._scaling(kinds)) is not None:
            return _walk(
                kinds, sample, lambda kind, value: program.run_one(as_bytes(value), keys) if kind == "image" else value
            )
        for stream, op in enumerate(self.ops):
            if isinstance(op, Lambda) and op.on == "sample":
                sample = op.fn(sample)
            else:
                sample = _apply_to_sample(op, stream, sample, kinds, keys)
        return sample


def _apply_to_sample(op: Op, stream: int, sample: Any, kinds: Tree, keys: SampleKeys) -> Any:
    images: list[Any] = []
    _walk(kinds, sample, lambda kind, value: images.append(value) if kind == "image" else None)
    if not images:
        raise ArgumentError(f"no image in a sample of kinds {kinds!r}; a pipeline needs one to follow")
    size = image_size(images[0])
    params = draw_one(op, keys, size, stream)

    def moved(kind: Any, value: Any) -> Any:
        if kind == "image":
            own = image_size(value)
            return op.native(value, params if own == size else draw_one(op, keys, own, stream))
        if kind == "mask":
            return op.mask(value, params)
        if kind == "boxes":
            return op.boxes(np.asarray(value, np.float32), params, size)
        if kind == "keypoints":
            return op.keypoints(np.asarray(value, np.float32), params, size)
        return value

    return _walk(kinds, sample, moved)


def _walk(kinds: Tree, sample: Any, visit: Callable[[Any, Any], Any]) -> Any:
    """Rebuild ``sample`` with ``visit(kind, value)`` in place of each value that ``kinds`` names."""
    if isinstance(kinds, Mapping):
        return {**sample, **{name: _walk(kind, sample[name], visit) for name, kind in kinds.items()}}
    if isinstance(kinds, tuple | list):
        if len(kinds) != len(sample):
            raise ArgumentError(f"a sample of {len(sample)} values does not fit the kinds {kinds!r}")
        values = [_walk(kind, value, visit) for kind, value in zip(kinds, sample, strict=True)]
        return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)
    return visit(kinds, sample)


def _kinds_by_place(sample: Any) -> Tree:
    if isinstance(sample, Mapping):
        return {name: name for name in sample if name in _MOVED}
    if isinstance(sample, tuple | list):
        return ("image", *(None for _ in sample[1:]))
    return "image"
