"""Masks of the objects of an image, eight in one array, moved with the pixels.

::

    [run lengths, None, ...] or (n, H, W) ──of──> planes (H, W), a bit an object ──move──> planes ──dense──> (n, H, W)

Ops take the nearest pixel of a mask and mix no values, so that one call moves eight objects. What lies beside the
image belongs to no object, whatever ``mask_fill`` says. Called by :mod:`.pipeline`, :mod:`.targets.moved_targets`, and
by datasets that mix samples.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.run_lengths import parse_counts
from penstock.sample import Array, Value
from penstock.transforms.base import Op, Params

__all__ = ["ObjectMasks"]

_BITS: Final = 8
_GIVE: Final = (
    "instances must be a list of run-length encodings {'size': [height, width], 'counts': text} or None, one for each "
    "object, or an array (n, height, width); kinds={...: None} leaves the field as it is"
)

Plane = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectMasks:
    """The masks of the objects of one image."""

    planes: tuple[Plane, ...]
    """tuple of ndarray, uint8, (height, width): at least one; bit ``b`` of plane ``p`` belongs to the object whose row
    has ``8 p + b`` in ``bits``."""
    bits: NDArray[np.int64]  # (n,): where the mask of each object is

    @classmethod
    def of(cls, value: object, size: tuple[int, int]) -> ObjectMasks:
        """The masks of a field of a sample, for an image of ``size`` (width, height).

        Raises
        ------
        ArgumentError
            If they are no masks, or have another size.
        """
        if isinstance(value, ObjectMasks):
            found = value
        elif value is None or (isinstance(value, Sequence) and all(_is_encoded(each) for each in value)):
            found = _decode(list(value or ()), size)
        else:
            found = _pack(value)
        if found.size != size:
            raise ArgumentError(
                f"instances must have the size of their image, {size[0]} x {size[1]} pixels, got {found.size[0]} x "
                f"{found.size[1]}"
            )
        return found

    @classmethod
    def join(cls, parts: Sequence[ObjectMasks]) -> ObjectMasks:
        """Return the objects of several, which have one size, one after another."""
        begins = np.cumsum([0, *(len(part.planes) for part in parts)]) * _BITS
        bits = np.concatenate([part.bits + begin for part, begin in zip(parts, begins, strict=False)])
        return cls(tuple(plane for part in parts for plane in part.planes), bits)

    @property
    def size(self) -> tuple[int, int]:
        """The width and height of the masks."""
        height, width = self.planes[0].shape
        return width, height

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, kept: NDArray[np.bool_]) -> ObjectMasks:
        """Return the objects of some rows."""
        bits = self.bits[kept]
        used = np.unique(bits // _BITS)
        planes = tuple(self.planes[place] for place in used.tolist()) or self.planes[:1]
        return ObjectMasks(planes, np.searchsorted(used, bits // _BITS) * _BITS + bits % _BITS)

    def move(self, op: Op, params: Params) -> ObjectMasks:
        """Return the masks after an op."""
        if type(op).mask is Op.mask or not op.takes_pixels:
            return self
        if getattr(op, "mask_fill", 0):
            op = copy.copy(op)
            op.mask_fill = 0  # type: ignore[attr-defined]  # it has one
        return ObjectMasks(tuple(op.mask(plane, params) for plane in self.planes), self.bits)

    def cut(self, where: NDArray[np.bool_]) -> ObjectMasks:
        """Return the masks without some pixels."""
        inside = np.where(where, np.uint8(0), np.uint8(255))
        return ObjectMasks(tuple(plane & inside for plane in self.planes), self.bits)

    def union(self) -> NDArray[np.bool_]:
        """Return whether each pixel belongs to an object."""
        inside = np.zeros(self.planes[0].shape, np.bool_)
        for plane, bits in zip(self.planes, self._used(), strict=True):
            inside |= (plane & bits) != 0
        return inside

    def has_pixels(self) -> NDArray[np.bool_]:
        """Return whether each object has a pixel."""
        seen = np.array([np.bitwise_or.reduce(plane, axis=None) for plane in self.planes], np.uint8)
        found: NDArray[np.bool_] = (seen[self.bits // _BITS] >> (self.bits % _BITS)) & 1 != 0
        return found

    def dense(self) -> NDArray[np.uint8]:
        """Return the masks as one array, (n, height, width), 1 where the object is, owned by the caller."""
        width, height = self.size
        masks = np.empty((len(self), height, width), np.uint8)
        for row, bit in enumerate(self.bits.tolist()):
            np.right_shift(self.planes[bit // _BITS], bit % _BITS, out=masks[row])
        masks &= 1
        return masks

    def _used(self) -> NDArray[np.uint8]:
        """Return the bits of each plane that belong to objects."""
        used = np.zeros(len(self.planes), np.uint8)
        np.bitwise_or.at(used, self.bits // _BITS, (1 << (self.bits % _BITS)).astype(np.uint8))
        return used


def _is_encoded(value: object) -> bool:
    return value is None or isinstance(value, Mapping)


def _decode(given: Sequence[Mapping[str, Value] | None], size: tuple[int, int]) -> ObjectMasks:
    width, height = size
    present = [row for row, each in enumerate(given) if each is not None]
    held = [each for each in given if each is not None]
    for each in held:
        found = each.get("size")
        if not isinstance(found, list | tuple) or list(found) != [height, width]:
            raise ArgumentError(
                f"an instance must have the size of its image, [{height}, {width}], height and width, got {each!r:.200}"
            )
    runs, wrong = parse_counts([each.get("counts") for each in held], np.full(len(held), height * width, np.int64))
    if wrong:
        row, reason = next(iter(wrong.items()))
        raise ArgumentError(f"the counts of an instance {reason}, got {held[row]!r:.200}")
    changes = np.zeros((max(-(-len(given) // _BITS), 1), height * width + 1), np.uint8)
    starts, ends = (_find_places(positions, height, width) for positions in (runs.starts, runs.ends))
    for row, begin, stop in zip(present, runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True):
        plane, bit = changes[row // _BITS], np.uint8(1 << row % _BITS)
        plane[starts[begin:stop]] ^= bit  # the runs of one mask do not touch: each place is there once
        plane[ends[begin:stop]] ^= bit
    planes = tuple(_fill_runs(plane[:-1].reshape(height, width)) for plane in changes)
    return ObjectMasks(planes, np.arange(len(given)))


def _find_places(positions: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """Return places in rows of positions down the columns; the end of the image is behind the last one."""
    column, row = np.divmod(positions, max(height, 1))
    places: NDArray[np.int64] = np.where(column < width, row * width + column, height * width)
    return places


def _fill_runs(changes: Plane) -> Plane:
    """Masks from the pixels at which they change, down the columns, one after another."""
    if not changes.size:
        return changes
    filled, spare, step = changes.copy(), np.empty_like(changes), 1
    while step < len(filled):  # sums of 2, 4, 8, ... rows: twice as fast as `accumulate`, which takes pixel by pixel
        spare[:step] = filled[:step]
        np.bitwise_xor(filled[step:], filled[:-step], out=spare[step:])
        filled, spare, step = spare, filled, 2 * step
    before = np.bitwise_xor.accumulate(filled[-1, :-1])  # a run goes on at the top of the next column
    filled[:, 1:] ^= before
    return filled


def _pack(value: object) -> ObjectMasks:
    try:
        masks: Array = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"{_GIVE}, got {type(value).__name__}") from error
    if masks.ndim != 3 or masks.dtype.kind not in "biuf":
        raise ArgumentError(f"{_GIVE}, got {type(value).__name__} of {masks.dtype} and shape {masks.shape}")
    planes = tuple(
        np.packbits(masks[begin : begin + _BITS] != 0, axis=0, bitorder="little")[0]
        for begin in range(0, len(masks), _BITS)
    )
    return ObjectMasks(planes or (np.zeros(masks.shape[1:], np.uint8),), np.arange(len(masks)))
