"""Masks of many polygons at once: the pixels that pycocotools' ``frPyObjects`` and ``merge`` give.

Its rule: corners are rounded to fifths of a pixel, edges are lines of such points, and a column of pixels changes where
an edge passes its middle, at the upper of the two points there. Only those two points of each column are computed::

    edge ──> columns whose middle it passes ──> row of the change in each ──> Runs of each ring ──> united by object

Points are computed in the order of operations of the original, so that they are rounded alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.run_lengths import Runs, flatten_ranges, format_counts
from penstock.sample import Array

__all__ = ["MAX_COORDINATE", "MAX_PASSES", "Polygons"]

MAX_COORDINATE: Final = float(1 << 24)
MAX_PASSES: Final = 1 << 20
"""Middles of columns that the edges of one object may pass: a limit on memory."""
_SCALE: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """Edges from their left end, or their upper end if they are steep, in fifths of pixels; the columns they pass."""

    x: Array
    y: Array
    slope: Array
    """Of y, or of x if the edge is steep."""
    length: Array
    is_steep: Array
    first: Array
    count: Array
    ring: Array

    @classmethod
    def of(cls, corners: Array, offsets: Array, widths: Array) -> _Edges:
        lengths = np.diff(offsets)
        here = np.trunc(_SCALE * corners + 0.5).astype(np.int64)
        follower = np.arange(len(corners)) + 1
        follower[offsets[1:] - 1] = offsets[:-1]
        there = here[follower]
        reach = np.abs(there - here)
        is_steep = reach[:, 0] < reach[:, 1]
        is_backward = np.where(is_steep, here[:, 1] > there[:, 1], here[:, 0] > there[:, 0])[:, None]
        start, end = np.where(is_backward, there, here), np.where(is_backward, here, there)
        length = np.maximum(reach.max(axis=1), 1)
        slope = np.where(is_steep, end[:, 0] - start[:, 0], end[:, 1] - start[:, 1]) / length
        left, right = np.minimum(start[:, 0], end[:, 0]), np.maximum(start[:, 0], end[:, 0])
        ring = np.repeat(np.arange(len(lengths)), lengths)
        # The middle of column c lies between the points 5 c + 2 and 5 c + 3.
        first = np.maximum(-((2 - left) // _SCALE), 0)
        last = np.minimum((right - 3) // _SCALE, widths[ring] - 1)
        return cls(start[:, 0], start[:, 1], slope, length, is_steep, first, np.maximum(last - first + 1, 0), ring)

    def find_passes(self, begin: int, stop: int) -> tuple[Array, Array, Array]:
        """Return ring, column and row (not yet within the image) of each passed middle of some of the edges."""
        count = self.count[begin:stop]
        edge = np.repeat(np.arange(begin, stop), count)
        column = self.first[edge] + flatten_ranges(count)
        before = _SCALE * column + 2
        x, y, slope, is_steep = self.x[edge], self.y[edge], self.slope[edge], self.is_steep[edge]
        step = before - x
        upper = np.minimum(_round(y, slope, step), _round(y, slope, step + 1))
        if is_steep.any():
            upper[is_steep] = (_find_steps(x, slope, before + 1, self.length[edge], is_steep) - 1) + y[is_steep]
        return self.ring[edge], column, -((2 - upper) // _SCALE)


@dataclass(frozen=True, slots=True, eq=False)
class Polygons:
    """Polygons of objects, each of one or more rings."""

    rings: Sequence[Array]
    """sequence of ndarray, float64, (2 k,): x, y of the corners of each ring, k >= 1, at most
    :data:`MAX_COORDINATE`."""
    owners: Array  # the object of each ring, in ascending order
    heights: Array
    widths: Array
    """``heights`` and ``widths``: (n,) int64: size of the image of each object."""

    def encode(self) -> list[str | None]:
        """The counts of each object in COCO's run-length encoding; None where its edges are too long for memory."""
        if not self.rings:
            nothing = np.zeros(0, np.int64)
            return list(format_counts(Runs.of_changes(nothing, nothing, self.heights * self.widths)))
        offsets = np.concatenate([[0], np.cumsum([len(each) // 2 for each in self.rings])])
        edges = _Edges.of(np.concatenate(self.rings).reshape(-1, 2), offsets, self.widths[self.owners])
        objects = self.owners[edges.ring]
        passes = np.bincount(objects, edges.count, len(self.heights)).astype(np.int64)
        is_long = passes > MAX_PASSES
        edges.count[is_long[objects]] = 0
        done = np.cumsum(np.where(is_long, 0, passes))
        texts: list[str | None] = []
        while (begin := len(texts)) < len(is_long):
            limit = (done[begin - 1] if begin else 0) + MAX_PASSES
            stop = int(np.searchsorted(done, limit, "right"))
            texts += format_counts(self._rasterise(edges, begin, stop))
        return [None if skipped else text for text, skipped in zip(texts, is_long.tolist(), strict=True)]

    def _rasterise(self, edges: _Edges, begin: int, stop: int) -> Runs:
        """Return the masks of some of the objects."""
        first, last = np.searchsorted(self.owners, [begin, stop]).tolist()
        ring, column, row = edges.find_passes(*np.searchsorted(edges.ring, [first, last]).tolist())
        heights = self.heights[self.owners[ring]]
        sizes = self.heights * self.widths
        positions = column * heights + np.clip(row, 0, heights)
        runs = Runs.of_changes(ring - first, positions, sizes[self.owners[first:last]])
        return runs.unite(self.owners[first:last] - begin, sizes[begin:stop])


def _round(origin: Array, slope: Array, step: Array) -> Array:
    """A coordinate of an edge after some steps, as the original rounds it; below 0 it does not matter how."""
    rounded: Array = np.trunc(origin + slope * step + 0.5).astype(np.int64)
    return rounded


def _find_steps(x: Array, slope: Array, right: Array, length: Array, is_steep: Array) -> Array:
    """Steps down a steep edge to the first point that is on the other side of the middle of a column."""
    x, slope, right, length = x[is_steep], slope[is_steep], right[is_steep], length[is_steep]
    is_rising = slope > 0

    def has_passed(step: Array) -> Array:
        passed: Array = (x + slope * step + 0.5 >= right) == is_rising
        return passed

    step: Array = np.clip(np.rint((right - 0.5 - x) / slope).astype(np.int64), 1, length)
    step -= has_passed(step - 1)  # the quotient is rounded: it may be wrong by one
    step += ~has_passed(step)
    return step
