"""Divides items into parts of given sizes such that each part has its share of each label. Arrays in, arrays out.

::

    one label an item     by rounding cumulative quotas: each part has its share of each label, to one item
    several, or counts    greedily, items of the rarest label first
    groups                greedily, the largest first: no group is in two parts

The order is that of iterative stratification (K. Sechidis, G. Tsoumakas, I. Vlahavas, "On the stratification of
multi-label data", ECML PKDD 2011). There, the part that lacks most of the rarest label gets the item; here it is
the part where the squared differences of all of the item's labels grow least: with exact sizes and many labels an item,
the former leaves the frequent labels as unbalanced as a random split does. All random choices come from
:func:`~penstock.samplers.permutation.permute`: the same on every machine. Called by :mod:`.splits.splits`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.samplers.permutation import permute

__all__ = ["LabelCounts", "assign_groups", "assign_randomly", "stratify"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How often each item has each label, as pairs sorted by item."""

    items: Indices
    labels: Indices
    counts: Indices
    """``items``, ``labels`` and ``counts``: (pairs,) int64: item ``items[i]`` has label ``labels[i]`` ``counts[i]``
    times, at least once; a pair occurs once."""
    num_items: int  # number of items
    num_labels: int  # number of labels

    @classmethod
    def from_pairs(cls, items: Indices, labels: Indices, num_items: int, num_labels: int) -> LabelCounts:
        """Count pairs of item and label, which may occur several times and in any order."""
        return cls(items, labels, np.ones_like(items), num_items, num_labels).merge(np.arange(num_items), num_items)

    @property
    def begins(self) -> Indices:
        """Where the pairs of each item begin; one more than there are items."""
        return np.searchsorted(self.items, np.arange(self.num_items + 1))

    def tally(self, parts: Indices, num_parts: int) -> Indices:
        """Return how often each label occurs in each part, shape (num_labels, num_parts)."""
        found = np.zeros((self.num_labels, num_parts), np.int64)
        np.add.at(found, (self.labels, parts[self.items]), self.counts)
        return found

    def merge(self, groups: Indices, num_groups: int) -> LabelCounts:
        """The counts of groups of items: item ``i`` is in group ``groups[i]``."""
        keys = groups[self.items] * max(self.num_labels, 1) + self.labels
        unique, places = np.unique(keys, return_inverse=True)
        counts = np.zeros(len(unique), np.int64)
        np.add.at(counts, places, self.counts)
        found, values = np.divmod(unique, max(self.num_labels, 1))
        return LabelCounts(found, values, counts, num_groups, self.num_labels)


def assign_randomly(num_items: int, sizes: Indices, seed: int) -> Indices:
    """Return the part of each item: a random one, so that part ``k`` has ``sizes[k]`` items."""
    parts = np.empty(num_items, np.int64)
    parts[_shuffle(num_items, seed)] = np.repeat(np.arange(len(sizes)), sizes)
    return parts


def stratify(labels: LabelCounts, sizes: Indices, seed: int) -> Indices:
    """Return the part of each item, so that part ``k`` has ``sizes[k]`` items and about its share of each label."""
    is_single = len(labels.items) == labels.num_items and bool((np.diff(labels.items) > 0).all())
    if is_single and bool((labels.counts == 1).all()):
        return _assign_single(labels.labels, sizes, seed)
    return _assign_iteratively(labels, sizes, seed)


def _assign_single(labels: Indices, sizes: Indices, seed: int) -> Indices:
    """Assign items of one label: part after part takes its share of what is left, by rounding cumulative quotas."""
    order = _shuffle(len(labels), seed)
    left = order[np.argsort(labels[order], kind="stable")]
    parts = np.empty(len(labels), np.int64)
    for part, size in enumerate(sizes.tolist()):
        totals = np.bincount(labels[left])
        ends = np.cumsum(totals)
        taken = np.diff((ends * size + len(left) // 2) // max(len(left), 1), prepend=0)  # of each label, of size in all
        is_taken = np.arange(len(left)) - np.repeat(ends - totals, totals) < np.repeat(taken, totals)
        parts[left[is_taken]] = part
        left = left[~is_taken]
    return parts


def _assign_iteratively(labels: LabelCounts, sizes: Indices, seed: int) -> Indices:
    """Assign the rarest label first: each item goes to the part with room where squared differences grow least."""
    totals = np.bincount(labels.labels, labels.counts, labels.num_labels)
    shares = sizes / max(int(sizes.sum()), 1)
    lacking = (totals[:, None] * shares).tolist()  # of each label, in each part
    room = sizes.tolist()
    scales = (1 / np.maximum(shares, np.finfo(float).tiny)).tolist()
    weights = (1 / np.maximum(totals, 1)).tolist()
    weight = 1 / max(labels.num_items, 1)
    ranks = np.empty(labels.num_items, np.int64)
    ranks[_shuffle(labels.num_items, seed)] = np.arange(labels.num_items)
    by_label = np.lexsort((ranks[labels.items], labels.labels))
    ends = np.searchsorted(labels.labels[by_label], np.arange(labels.num_labels + 1))
    remaining = np.bincount(labels.labels, minlength=labels.num_labels)
    begins = labels.begins.tolist()
    pairs = list(zip(labels.labels.tolist(), labels.counts.tolist(), strict=True))
    parts = np.full(labels.num_items, -1, np.int64)
    while remaining.any():
        rarest = int(np.argmin(np.where(remaining > 0, remaining, np.iinfo(np.int64).max)))
        for item in labels.items[by_label[ends[rarest] : ends[rarest + 1]]].tolist():
            if parts[item] >= 0:
                continue
            own = pairs[begins[item] : begins[item + 1]]
            part, best = -1, -math.inf
            for k, left in enumerate(room):
                if left > 0:
                    gain = (2 * left - 1) * weight
                    for label, count in own:
                        gain += (2 * lacking[label][k] - count) * count * weights[label]
                    if gain * scales[k] > best:
                        part, best = k, gain * scales[k]
            parts[item] = part
            room[part] -= 1
            for label, count in own:
                lacking[label][part] -= count
                remaining[label] -= 1
    without = np.flatnonzero(parts < 0)
    parts[without] = assign_randomly(len(without), np.array(room, np.int64), seed)
    return parts


def assign_groups(labels: LabelCounts, group_sizes: Indices, shares: NDArray[np.float64], seed: int) -> Indices:
    """The part of each group, so that parts have about their shares of the items and of each label.

    Parameters
    ----------
    labels : LabelCounts
        Of the groups.
    group_sizes : ndarray of int64
        Number of items of each group.
    shares : ndarray of float64
        Of each part; their sum is 1.
    seed : int
        Of the order of groups of one size.

    Notes
    -----
    Groups are assigned in order of size, each to the part where the squared differences from the shares grow least:
    that of the number of items, and the mean of those of the labels.
    """
    order = _shuffle(labels.num_items, seed)
    order = order[np.argsort(-group_sizes[order], kind="stable")]
    totals = np.bincount(labels.labels, labels.counts, labels.num_labels)
    found = np.zeros((labels.num_labels, len(shares)))  # the share of each label that each part has
    filled = np.zeros(len(shares))
    begins = labels.begins
    parts = np.empty(labels.num_items, np.int64)
    for group in order.tolist():
        added = group_sizes[group] / group_sizes.sum()
        growth = added * (2 * (filled - shares) + added)  # of (filled - shares) ** 2
        some = slice(begins[group], begins[group + 1])
        names = labels.labels[some]
        if len(names):
            more = (labels.counts[some] / totals[names])[:, None]
            growth += (more * (2 * (found[names] - shares) + more)).sum(axis=0) / labels.num_labels
        part = int(np.argmin(growth))
        parts[group] = part
        filled[part] += added
        if len(names):
            found[names, part] += labels.counts[some] / totals[names]
    return parts


def _shuffle(count: int, seed: int) -> Indices:
    return permute(np.arange(count, dtype=np.int64), count, (seed,)) if count else np.empty(0, np.int64)
