"""Which source each draw of a mixture takes, and how many it took before: arithmetic in the position.

::

    shares a 0.5, b 0.3, c 0.2                 position     0 1 2 3 4 5 6 7 8 9
                                               source       a b a c b a c a b a
        (a, bc) ── a  0.5                      its number   0 0 1 0 1 2 1 3 2 4
           └─ (c, b) ── c 0.2                  blocks of 64 positions are permuted afterwards
                └──── b 0.3

The sources are the leaves of a binary tree (Huffman's). At each inner node, the lighter side with the part ``s <= 1/2``
gets draw ``p`` of the node if ``floor((p + 1) * s + 1/2)`` is above ``floor(p * s + 1/2)``, as J. Bresenham's line
algorithm divides steps. So the number of draws of each source before any position is known without counting, never
decreases, and differs from its share by less than 2. Products and comparisons of float64 are the same on every machine.

D. Huffman, "A method for the construction of minimum-redundancy codes", Proc. IRE 40, 1952.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.mixture.shares import Stage
from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys

__all__ = ["BLOCK", "MAX_POSITION", "Interleaving", "ShareTree", "permute_blocks"]

BLOCK: Final = 64
"""Positions that are permuted together, so that no number of ranks fits the regular order of sources."""

MAX_POSITION: Final = 1 << 50
"""Least position that is refused: products with a share are exact enough below."""

_STREAM: Final = 0xFFF0  # of Philox; see penstock.samplers.weighted
_AT_ONCE: Final = 2048
"""Positions whose blocks are permuted in one call; limits the temporary memory to some MB."""


class ShareTree:
    """Draws from sources with constant shares; sources of share 0 are not drawn from."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._sources = len(shares)
        heap = [(share, source) for source, share in enumerate(shares) if share]
        heapq.heapify(heap)
        parts, light, heavy = [], [], []
        while len(heap) > 1:  # the number of a node breaks ties, and each node has a larger one than its children
            (less, one), (more, other) = heapq.heappop(heap), heapq.heappop(heap)
            parts.append(less / (less + more))
            light.append(one)
            heavy.append(other)
            heapq.heappush(heap, (less + more, self._sources + len(parts) - 1))
        self._root = heap[0][1]
        self._parts = np.array(parts, np.float64)
        self._light, self._heavy = np.array(light, np.int64), np.array(heavy, np.int64)

    def draw(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The source of each draw, and how many draws the source had before it; positions count from 0."""
        nodes, places = np.full(len(positions), self._root, np.int64), positions.astype(np.int64)
        active = np.flatnonzero(nodes >= self._sources)
        while len(active):
            inner, here = nodes[active] - self._sources, places[active]
            parts = self._parts[inner]
            before, after = _count(here, parts), _count(here + 1, parts)
            is_light = after > before
            places[active] = np.where(is_light, before, here - before)
            nodes[active] = below = np.where(is_light, self._light[inner], self._heavy[inner])
            active = active[below >= self._sources]
        return nodes, places

    def counts(self, position: int) -> NDArray[np.int64]:
        """Draws of each source before ``position``; O(sources)."""
        counts = np.zeros(self._sources + len(self._parts), np.int64)
        counts[self._root] = position
        for number in range(len(self._parts) - 1, -1, -1):
            count = counts[self._sources + number]
            less = _count(count, self._parts[number])
            counts[self._light[number]], counts[self._heavy[number]] = less, count - less
        return counts[: self._sources]


def _count(positions: NDArray[np.int64], parts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draws of the lighter side before each position."""
    counted: NDArray[np.int64] = np.floor(positions * parts + 0.5).astype(np.int64)
    return counted


class Interleaving:
    """The draws of a whole job, stage after stage; their starts, in samples, increase from 0."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)
        if self.stages[-1].start >= MAX_POSITION:
            raise ArgumentError(
                f"the entries of a schedule must begin before {MAX_POSITION} samples, got a later start"
            )
        self.sources = len(self.stages[0].shares)
        self._starts = np.array([stage.start for stage in self.stages], np.int64)
        self._trees = [ShareTree(stage.shares) for stage in self.stages]
        self._before = [np.zeros(self.sources, np.int64)]  # draws of each source before each stage
        for stage in self.stages[1:]:
            self._before.append(self.counts(stage.start))

    def draw(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The source of each draw, and how many draws the source had before it; positions in [0, MAX_POSITION)."""
        sources, numbers = np.empty_like(positions), np.empty_like(positions)
        stages = np.searchsorted(self._starts, positions, side="right") - 1
        for stage in np.unique(stages).tolist():
            own = stages == stage
            sources[own], counted = self._trees[stage].draw(positions[own] - self._starts[stage])
            numbers[own] = counted + self._before[stage][sources[own]]
        return sources, numbers

    def counts(self, position: int) -> NDArray[np.int64]:
        """Draws of each source before ``position``; O(sources)."""
        stage = max(int(np.searchsorted(self._starts, position)) - 1, 0)
        counts: NDArray[np.int64] = self._before[stage] + self._trees[stage].counts(position - self._starts[stage])
        return counts

    def find_length(self, sizes: NDArray[np.int64], until: Literal["first", "all"]) -> int:
        """Draws until the first of sources of these sizes is used up, or until each was used up once; for one stage.

        Raises ArgumentError if these are too many draws.
        """

        def is_over(position: int) -> bool:
            counts = self.counts(position)
            return bool((counts > sizes).any() if until == "first" else (counts >= sizes).all())

        length = bisect.bisect_left(range(MAX_POSITION), True, key=is_over)  # counts never decrease
        if length == MAX_POSITION:
            raise ArgumentError(
                "until must be a number of samples with these weights: a source with a small share would be used up "
                f"only after {MAX_POSITION} samples"
            )
        return length - (until == "first")


def permute_blocks(
    interleaving: Interleaving, positions: NDArray[np.int64], key: tuple[int, int], first: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw as :meth:`Interleaving.draw`, with the sources of each block of 64 positions in random order.

    The draws of each source stay in order, and those of a whole block are the same ones. The last block of an epoch is
    a shorter one. ``positions`` are those in an epoch of ``length`` draws, whose first draw has the position ``first``
    in the job. The order of a block depends on ``key``: seed and epoch.
    """
    sources, numbers = np.empty_like(positions), np.empty_like(positions)
    for begin in range(0, len(positions), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        blocks, rows = np.unique(positions[some] // BLOCK, return_inverse=True)
        table = _permute(interleaving, blocks, key, first, length)
        sources[some], numbers[some] = (drawn[rows, positions[some] % BLOCK] for drawn in table)
    return sources, numbers


def _permute(
    interleaving: Interleaving, blocks: NDArray[np.int64], key: tuple[int, int], first: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sources and numbers at all positions of some blocks, shape (blocks, BLOCK)."""
    places = (blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
    shape = len(blocks), BLOCK
    sources, numbers = (drawn.reshape(shape) for drawn in interleaving.draw(places + first))
    words = uniforms(SampleKeys(*key, places), _STREAM, 1).reshape(shape)
    outside = (places >= length).reshape(shape)
    words[outside], sources[outside] = 2.0, interleaving.sources  # beyond the end: they stay there
    mixed = np.take_along_axis(sources, np.argsort(words, axis=1, kind="stable"), 1)
    found = np.empty(shape, np.int64)
    # By source, in both orders: the draws of each source come in the order of their numbers.
    numbers = np.take_along_axis(numbers, _argsort(sources), 1)
    np.put_along_axis(found, _argsort(mixed), numbers, 1)
    return mixed, found


def _argsort(sources: NDArray[np.int64]) -> NDArray[np.int64]:
    small = sources.astype(np.uint16) if sources.max() < 1 << 16 else sources  # sorted by radix: faster
    return np.argsort(small, axis=1, kind="stable")
