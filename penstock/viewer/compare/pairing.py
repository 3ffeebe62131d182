"""Pairs the records of two stores by their keys: sorted arrays of hashes, no dict of a million texts.

Called by :mod:`.two_stores`. Several records with one key are paired in order: the first with the first, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = ["Pairing", "pair_keys"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """Which records of two stores have the same key."""

    before: Indices  # of the pairs in the first store, whose order they have
    after: Indices  # of the pairs in the second store
    removed: Indices  # of the records that only the first store has
    added: Indices  # of those that only the second one has
    repeated: tuple[int, int]  # numbers of records that have the key of an earlier one of their store


def pair_keys(before: Sequence[str], after: Sequence[str]) -> Pairing:
    """Pair the keys of two stores; two keys are taken for equal if their 64-bit hashes (xxh3) are."""
    sides = [_Side.of(keys, len(keys)) for keys in (before, after)]
    merged = np.concatenate([side.names for side in sides])
    owner = np.repeat(np.array([0, 1], np.int8), [len(side.names) for side in sides])
    place = np.concatenate([side.indices for side in sides])
    order = np.lexsort((owner, merged["rank"], merged["hash"]))
    merged, owner, place = merged[order], owner[order], place[order]
    is_first = np.zeros(len(merged), bool)
    is_first[:-1] = merged[:-1] == merged[1:]  # a name occurs once in each store: equal neighbours are a pair
    firsts = np.flatnonzero(is_first)
    is_single = ~is_first
    is_single[firsts + 1] = False
    pairs = np.argsort(place[firsts], kind="stable")
    return Pairing(
        place[firsts][pairs],
        place[firsts + 1][pairs],
        np.sort(place[is_single & (owner == 0)]),
        np.sort(place[is_single & (owner == 1)]),
        (sides[0].repeated, sides[1].repeated),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    names: NDArray[np.void]
    """Hash of the key, and how many earlier records of the store have it."""
    indices: Indices
    repeated: int

    @classmethod
    def of(cls, keys: Iterable[str], count: int) -> _Side:
        hashes = np.fromiter(
            (xxhash.xxh3_64_intdigest(key.encode(errors="surrogatepass")) for key in keys), np.uint64, count
        )
        indices = np.argsort(hashes, kind="stable")
        ordered = hashes[indices]
        begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] + np.uint64(1)) != 0)
        lengths = np.diff(begins, append=count)
        names = np.empty(count, [("hash", np.uint64), ("rank", np.int64)])
        names["hash"] = ordered
        names["rank"] = np.arange(count) - np.repeat(begins, lengths)
        return cls(names, indices, count - len(begins))
