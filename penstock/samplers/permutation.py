"""A random permutation of [0, n) that is computed and not stored: constant memory, O(1) seek, any n.

Above :data:`SMALL` elements it is a Feistel network over the next power of two with cycle walking (format-preserving
encryption of the position; J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), vectorised
over chunks of positions. Up to :data:`SMALL` elements a Feistel network has too few bits to mix well; there the
whole permutation is sorted from random words once, which is constant memory too. Both depend on (seed, epoch, lap)
alone, and on no NumPy stream that may change between versions: only ``SeedSequence`` and raw Philox words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SMALL", "permute"]

SMALL: Final = 1 << 16
"""Largest size that is permuted by sorting."""

_ROUNDS: Final = 8  # four make a pseudo-random permutation for wide halves (Luby, Rackoff 1988); ours may be 8 bits
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64's finaliser


def permute(positions: NDArray[np.int64], n: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the elements at ``positions`` of the permutation of [0, n) for ``key``.

    ``positions``: each in [0, n). ``n``: at most 2**62. ``key``: non-negative, of any size: (seed, epoch, lap). Returns
    a new array of the same shape.
    """
    if n <= SMALL:
        return _permute_by_sorting(n, key)[positions].astype(np.int64)
    keys = _round_keys(key)
    bits = (n - 1).bit_length()
    found = _feistel(positions.astype(np.uint64), bits, keys)
    while len(outside := np.flatnonzero(found >= n)):  # fewer than half: few rounds
        found[outside] = _feistel(found[outside], bits, keys)
    return found.astype(np.int64)


@lru_cache(maxsize=128)  # of 128 KiB at most: the sources of a mixture take turns
def _permute_by_sorting(n: int, key: tuple[int, ...]) -> NDArray[np.uint16]:
    words = np.random.Philox(np.random.SeedSequence(key)).random_raw(n)
    order = np.argsort(words, kind="stable").astype(np.uint16)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=8)
def _round_keys(key: tuple[int, ...]) -> NDArray[np.uint64]:
    return np.random.SeedSequence(key).generate_state(_ROUNDS, np.uint64).astype(np.uint64)


def _feistel(x: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one pass over [0, 2**bits).

    With an odd width, the halves differ by a bit and are swapped in each round.
    """
    low, high = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    left, right = x >> low, x & ((np.uint64(1) << low) - np.uint64(1))
    left_bits, right_bits = high, low
    for key in keys:
        mixed = right ^ key
        mixed ^= mixed >> np.uint64(30)
        mixed *= _MIX_1
        mixed ^= mixed >> np.uint64(27)
        mixed *= _MIX_2
        mixed >>= np.uint64(64) - left_bits  # the best-mixed bits are the high ones
        left, right = right, left ^ mixed
        left_bits, right_bits = right_bits, left_bits
    return left << right_bits | right
