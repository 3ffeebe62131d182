"""Groups of pictures whose hashes differ by few bits.

::

    64 bits = 4 parts of 16 bits. Hashes that differ by at most 3 bits have at least one equal part:
    for each part: sort by it, compare those with an equal part, join what is near

(Multi-index hashing: M. Norouzi, A. Punjani and D. Fleet, Fast search in Hamming space, 2012.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_DISTANCE", "group_duplicates"]

MAX_DISTANCE: Final = 3
"""Bits by which the hashes of near-duplicates differ at most."""

_PARTS: Final = 4
_MOST_COMPARED: Final = 1 << 27
"""Pairs that are compared in one part: some seconds; more are left out, which needs very many similar hashes."""


def group_duplicates(hashes: NDArray[np.uint64], distance: int = MAX_DISTANCE) -> NDArray[np.int32]:
    """The group of each hash, (n,): numbered from 1 in the order of their first members; 0: alone.

    A group holds what is joined by a chain of hashes that differ by at most ``distance`` bits, 0 to 3.
    """
    unique, places = np.unique(hashes, return_inverse=True)
    parents = np.arange(len(unique))
    for part in range(_PARTS if distance else 0):
        shift = np.uint64(16 * part)
        keys = (unique >> shift) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        for first, second in _iter_near(unique[order], keys[order], distance):
            _join(parents, order[first], order[second])
    roots = _find_roots(parents)[places.reshape(-1)]
    is_in_group = np.bincount(roots, minlength=len(unique))[roots] > 1
    groups = np.zeros(len(hashes), np.int32)
    chosen = roots[is_in_group]
    _, first, inverse = np.unique(chosen, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int32)
    ranks[np.argsort(first)] = np.arange(1, len(first) + 1)
    groups[is_in_group] = ranks[inverse.reshape(-1)]
    return groups


def _iter_near(
    hashes: NDArray[np.uint64], keys: NDArray[np.uint64], distance: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Positions of pairs with equal keys, which are sorted, that differ by at most ``distance`` bits."""
    found = []
    active = np.arange(len(hashes))
    compared = 0
    for step in range(1, len(hashes)):
        active = active[active + step < len(hashes)]
        active = active[keys[active] == keys[active + step]]
        compared += len(active)
        if not len(active) or compared > _MOST_COMPARED:
            break
        near = active[_count_bits(hashes[active] ^ hashes[active + step]) <= distance]
        if len(near):
            found.append((near, near + step))
    return found


def _count_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Ones of each number (``numpy.bitwise_count`` of NumPy 2, for NumPy 1 as well)."""
    count = np.zeros(len(numbers), np.uint8)
    for byte in numbers.view(np.uint8).reshape(-1, 8).T:
        count += _ONES[byte]
    return count


_ONES: Final = np.array([number.bit_count() for number in range(256)], np.uint8)


def _join(parents: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Give pairs one root, the smaller one; ``parents`` changes in place."""
    while len(first):
        roots = _find_roots(parents)
        one, other = roots[first], roots[second]
        differs = one != other
        first, second = first[differs], second[differs]
        np.minimum.at(parents, np.maximum(one, other)[differs], np.minimum(one, other)[differs])


def _find_roots(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The root of each number; ``parents`` points to it afterwards."""
    while True:
        above = parents[parents]
        if (above == parents).all():
            return parents
        parents[:] = above
