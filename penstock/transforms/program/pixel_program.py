"""A compiled pipeline for images that are stored as their pixels: one native call per chunk, and nothing is decoded.

::

    PixelRows (buffer, offsets) ──> _native.fill_stored ──┐
    arrays of any sizes ─────────> _native.fill_arrays ───┴──> rows of the batch          fused ops, no Python per image
                                       └ rows padded with other values than 0 ──> the general path, row by row

What is fused depends on the pixels: crops, flips, Normalize and ToLayout for every dtype and number of channels,
resizing for uint8 of one or three channels. Other ops follow one by one, as in :mod:`.program.program`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock import _native, trace
from penstock.bfloat16 import as_words
from penstock.errors import ArgumentError, CorruptRecordError
from penstock.pixel_rows import PixelRows, to_rgb
from penstock.sample import Array, ArrayKind, Value
from penstock.transforms.base import Fusion, ImageLike, ImageSpec, Op, Params
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.ops.crop import CenterCrop, RandomCrop
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.program.image_chunk import Chunk, Failure, Plan
from penstock.transforms.program.program import Program

__all__ = ["PixelProgram", "TakePixels"]


class PixelProgram(Program):
    """The compiled form of a pipeline for pixels.

    Parameters
    ----------
    ops : sequence of Op
        The pipeline's.
    kinds : sequence of str
        Kinds of all fields of the dataset's sample.
    pixels : ArrayKind
        Dtype and shapes of the images.
    followers : bool
        As for :class:`~penstock.transforms.program.program.Program`.
    """

    def __init__(self, ops: Sequence[Op], kinds: Sequence[str], pixels: ArrayKind, *, followers: bool = False) -> None:
        height, width, channels = (None if lengths is None else lengths[0] for lengths in pixels.axes)
        self._pixels = pixels
        self._converts = bool(ops) and isinstance(ops[0], TakePixels) and ops[0].converts
        is_known = channels is not None or self._converts  # else nothing is fused, and there is no spec
        dtype = pixels.dtype.name
        source = ImageSpec(width, height, dtype, channels=channels)
        fusion = Fusion(source=dtype, channels=3 if self._converts else channels or 0, stored=is_known, dtype=dtype)
        super().__init__(ops, kinds, followers=followers, source=source, fusion=fusion)
        self._pads = _pads_with_zeros([op for _, op in self._moving])

    def _make_plan(self, chunk: Chunk) -> Plan:
        images = chunk.images
        if isinstance(images, PixelRows):
            sizes = np.empty((len(images), 2), np.int32)
            sizes[:] = images.shape[1::-1]
        else:
            sizes = np.array([_get_size(image) for image in images], np.int32).reshape(-1, 2)
        chunk.sizes = sizes
        plan = self._draw_natively(chunk, sizes) or self.plan(chunk.keys, sizes, chunk.boxes)
        return replace(plan, general=None) if self._pads else plan

    def _fill_planned(
        self, chunk: Chunk, plan: Plan, out: Array, rows: NDArray[np.int64], failed: list[Failure]
    ) -> None:
        """Fill the rows that the plan expresses by one native call; then the others, one by one."""
        images = chunk.images if isinstance(chunk.images, PixelRows) else self._check(chunk.images, failed)
        lost = {failure.position for failure in failed}
        general = [] if plan.general is None else np.flatnonzero(plan.general).tolist()
        places = np.setdiff1d(np.arange(len(images)), [*general, *lost]) if general or lost else None
        with trace.stage("augment", len(images)):
            self._fill_natively(images, plan, places, out, rows)
            for i in general:
                try:
                    if i not in lost:
                        self._apply_prefix(chunk.one(i), out[rows[i] : rows[i] + 1])
                except Exception as error:  # noqa: BLE001  # recorded, and raised or handed over by the caller
                    failed.append(Failure(i, error))

    def _fill_natively(
        self,
        images: Sequence[Array],
        plan: Plan,
        places: NDArray[np.int64] | None,
        out: Array,
        rows: NDArray[np.int64],
    ) -> None:
        fusion, out = self.fusion, as_words(out)
        geometry = plan.geometry if self._moving else None  # whole images need none
        if places is not None:
            images = images.take(places) if isinstance(images, PixelRows) else [images[i] for i in places.tolist()]
            geometry, rows = None if geometry is None else geometry[places], rows[places]
        arguments: dict[str, Value] = {
            "layout": fusion.layout,
            "filter": fusion.filter,
            "geometry": geometry,
            "scale": fusion.scale,
            "offset": fusion.offset,
            "mean": fusion.mean,
            "std": fusion.std,
            "beside": fusion.beside,
            "pad": self._pads,
        }
        if isinstance(images, PixelRows):
            shape: Value = images.shape
            _native.fill_stored(images.buffer, images.offsets, shape, images.dtype.name, out, rows, **arguments)
        elif len(images):
            arrays = map(to_rgb, images) if self._converts else images
            _native.fill_arrays([np.ascontiguousarray(each) for each in arrays], fusion.source, out, rows, **arguments)

    def _check(self, images: Sequence[Array], failed: list[Failure]) -> Sequence[Array]:
        """Note images that are not of the kind of the field: a store returned what its schema does not say."""
        for i, image in enumerate(images):
            is_array = isinstance(image, np.ndarray)
            if not is_array or image.dtype != self._pixels.dtype or not self._pixels.allows(image.shape):
                found = f"{image.dtype} of shape {image.shape}" if is_array else f"{image!r:.80}"
                error = CorruptRecordError(
                    f"its image must be pixels ({self._pixels}), as the schema of the store says, got {found}"
                )
                failed.append(Failure(i, error))
        return images


class TakePixels(Op):
    """Keeps images that are stored as their pixels, in the place of Decode; encoded images are decoded.

    ``decode``: the op that it replaces. ``is_mixed``: whether gray and colour pictures are side by side: then all
    become RGB, unless the mode is "unchanged". Raises ArgumentError if it converts images to another mode, which pixels
    that are stored do not have.
    """

    takes_pixels: ClassVar[bool] = False
    leaves_pixels: ClassVar[bool] = True

    def __init__(self, decode: Decode, *, is_mixed: bool = False) -> None:
        if decode.mode not in {"RGB", "unchanged"} or decode.frame or decode.to_srgb:
            raise ArgumentError(
                f"{decode!r} cannot convert images that are stored as their pixels; leave out mode, frame and to_srgb"
            )
        self.decode = decode
        self.converts = is_mixed and decode.mode == "RGB"

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Three channels, where images are converted."""
        return replace(spec, channels=3) if self.converts else spec

    def image(self, image: ImageLike, params: Params) -> Array:
        """Return the image itself, if it is an array of pixels, or in three channels."""
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            return self.decode.image(image, params)
        return to_rgb(image) if self.converts else image

    def mask(self, mask: ImageLike, params: Params) -> Array:
        """Decode the mask as :meth:`Decode.mask` does."""
        return self.decode.mask(mask, params)

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse where images are stored as their pixels: nothing happens to them."""
        return fusion.stored


def _pads_with_zeros(ops: Sequence[Op]) -> bool:
    """Whether ops move images by one crop that pads with zeros, and flips: then a plan holds padded windows too."""
    crops = [op for op in ops if isinstance(op, CenterCrop | RandomCrop)]
    flips = [op for op in ops if isinstance(op, HorizontalFlip | VerticalFlip)]
    return len(crops) == 1 and len(ops) == 1 + len(flips) and crops[0].pads_with_zeros


def _get_size(image: object) -> tuple[int, int]:
    """Return the width and height; (1, 1) for what is no image, which is refused later."""
    if not isinstance(image, np.ndarray) or image.ndim != 3 or not image.size:
        return 1, 1
    return image.shape[1], image.shape[0]
