"""Runs of foreground pixels of many masks at once, and their texts in COCO's run-length encoding.

Called by ``rle`` (one mask), ``polygons`` and ``coco`` (thousands of masks, without Python code for each number)::

    column-major pixels   0 0 1 1 1 0 1        starts [2, 6]   ends [5, 7]
    counts                [2, 3, 1, 1]         lengths of runs: background first, foreground, background, ...
    text                  "2311"               each count, from the fourth on less the count two before it, in
                                               characters of 6 bits: 5 of the number, lowest first, and "more follow"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from penstock.sample import Array

__all__ = ["Runs", "flatten_ranges", "format_counts", "parse_counts"]

_MAX_CHARACTERS: Final = 7
"""Of a number: 35 bits, as a difference of two counts below 2**32 needs."""
_NUMBERS: Final = re.compile(rb"(?:[P-o]{0,6}[0-O])*")
"""Numbers of at most seven characters: those of any but the last have the bit that says "more follow"."""
_BITS: Final = 5
_FIRST: Final = 48
"""The character of 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of foreground pixels of n masks: sorted, none empty, none touching the next."""

    starts: Array
    ends: Array
    """``starts`` and ``ends``: (m,) int64: first pixel of each run, and the one after its last, counted down the
    columns of its own mask."""
    offsets: Array  # (n + 1,) int64: where the runs of each mask begin
    sizes: Array  # (n,) int64: number of pixels of each mask

    @classmethod
    def of_changes(cls, masks: Array, positions: Array, sizes: Array) -> Runs:
        """Runs of masks whose pixels change at positions: the mask of each change, and its pixel, in any order.

        Two changes at one pixel cancel. A change at the end of a mask has no effect.
        """
        bases = _make_bases(sizes)
        inside = positions < sizes[masks]
        # "stable" is fast for what is nearly sorted: counts are, and the changes along an edge.
        keys = np.sort(bases[masks[inside]] + positions[inside], kind="stable")
        is_first = np.diff(keys, prepend=-1) != 0
        first = np.flatnonzero(is_first)
        keys = keys[first[np.diff(first, append=len(keys)) % 2 == 1]]
        owners = np.searchsorted(bases, keys, "right") - 1
        is_open = np.bincount(owners, minlength=len(sizes)) % 2 == 1  # foreground up to the last pixel
        if is_open.any():
            keys = np.sort(np.concatenate([keys, (bases + sizes)[is_open]]), kind="stable")
        return cls._of_keys(keys[0::2], keys[1::2], bases, sizes)

    @classmethod
    def _of_keys(cls, starts: Array, ends: Array, bases: Array, sizes: Array) -> Runs:
        owners = np.searchsorted(bases, starts, "right") - 1
        offsets = np.searchsorted(owners, np.arange(len(sizes) + 1))
        return cls(starts - bases[owners], ends - bases[owners], offsets, sizes)

    @property
    def owners(self) -> Array:
        """The mask of each run."""
        return np.repeat(np.arange(len(self.sizes)), np.diff(self.offsets))

    def unite(self, groups: Array, sizes: Array) -> Runs:
        """Masks of the pixels that any mask of a group has.

        ``groups``: (n,) int64: the new mask that each mask becomes a part of. ``sizes``: number of pixels of each new
        mask.
        """
        if len(groups) == len(sizes) and (groups == np.arange(len(sizes))).all():
            return self
        bases = _make_bases(sizes)
        shifts = bases[groups[self.owners]]
        # A run that starts where another one ends comes first, so that they become one run.
        events = np.concatenate([2 * (self.starts + shifts), 2 * (self.ends + shifts) + 1])
        events.sort(kind="stable")
        steps = 1 - 2 * (events % 2)
        depth = np.cumsum(steps)
        keys = events // 2
        return Runs._of_keys(keys[(depth == 1) & (steps == 1)], keys[depth == 0], bases, sizes)

    def area(self) -> Array:
        """Return the number of foreground pixels of each mask: int64, (n,)."""
        return _sum_parts(self.ends - self.starts, self.offsets)


def format_counts(runs: Runs) -> list[str]:
    """Return the text of each mask, as COCO's own code writes it."""
    counts, offsets = _make_counts(runs)
    local = flatten_ranges(np.diff(offsets))
    differences = counts.copy()
    later = np.flatnonzero(local > 2)
    differences[later] -= counts[later - 2]
    lengths = np.ones(len(counts), np.int64)
    for held in range(1, _MAX_CHARACTERS):
        limit = 1 << (_BITS * held - 1)
        lengths += (differences >= limit) | (differences < -limit)
    place = flatten_ranges(lengths)
    last = np.repeat(lengths - 1, lengths)
    codes = (np.repeat(differences, lengths) >> (_BITS * place)) & 31
    codes += _FIRST + 32 * (place < last)
    text = codes.astype(np.uint8).tobytes().decode("ascii")
    ends = np.concatenate([[0], np.cumsum(lengths)])[offsets].tolist()
    return [text[start:end] for start, end in pairwise(ends)]


def parse_counts(given: Sequence[object], sizes: Array) -> tuple[Runs, dict[int, str]]:
    """Runs of masks from their texts or lists of counts.

    ``given``: the counts of each mask. ``sizes``: (n,) int64: number of pixels of each mask. Returns the runs; and, by
    position, what is wrong with counts, whose mask is empty.
    """
    texts = {row: each for row, each in enumerate(given) if isinstance(each, str | bytes)}
    parsed: dict[int, Array | None] = dict(zip(texts, _parse_texts(list(texts.values())), strict=True))
    wrong: dict[int, str] = {}
    arrays = []
    for row, each in enumerate(given):
        counts = parsed[row] if row in parsed else _read_list(each)
        if counts is None:
            wrong[row] = "must be a text of COCO's run-length encoding or a list of whole numbers of at least 0"
        elif counts.min(initial=0) < 0 or counts.max(initial=0) > sizes[row] or counts.sum() != sizes[row]:
            wrong[row] = f"must cover the {sizes[row]} pixels of its size"
        arrays.append(np.zeros(0, np.int64) if counts is None or row in wrong else counts)
    lengths = np.array([len(each) for each in arrays], np.int64)
    flat = np.concatenate([np.zeros(0, np.int64), *arrays])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    masks = np.repeat(np.arange(len(arrays)), lengths)
    return Runs.of_changes(masks, _sum_up(flat, offsets), sizes), wrong


def _read_list(given: object) -> Array | None:
    if not isinstance(given, list | tuple) or not set(map(type, given)) <= {int}:
        return None
    try:
        return np.array(given, np.int64)
    except OverflowError:
        return None


def _parse_texts(texts: list[str | bytes]) -> list[Array | None]:
    """The counts of each text; None for what is none."""
    contents = [each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass") for each in texts]
    is_valid = [_NUMBERS.fullmatch(each) is not None for each in contents]
    contents = [each if valid else b"" for each, valid in zip(contents, is_valid, strict=True)]
    codes = np.frombuffer(b"".join(contents), np.uint8).astype(np.int64) - _FIRST
    ends = np.flatnonzero((codes & 32) == 0)  # the last characters of numbers
    lengths = np.diff(ends, prepend=-1)
    starts = ends + 1 - lengths
    parts = (codes & 31) << (_BITS * flatten_ranges(lengths))
    values = np.add.reduceat(parts, starts) if len(starts) else parts
    values -= np.where(codes[ends] & 16, np.int64(1) << (_BITS * lengths), 0)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in contents], dtype=np.int64)])
    numbers = np.searchsorted(ends, offsets)  # where the numbers of each text begin
    counts = _undo_differences(values, numbers)
    return [counts[numbers[row] : numbers[row + 1]] if valid else None for row, valid in enumerate(is_valid)]


def _undo_differences(values: Array, offsets: Array) -> Array:
    """Counts from the numbers of texts: from the fourth on, each is added to the count two before it."""
    lengths = np.diff(offsets)
    local = flatten_ranges(lengths)
    chain = np.where(local == 0, 0, 1 + (local % 2 == 0))  # the first; the odd ones; the other even ones
    chain += 3 * np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(chain, kind="stable")
    sums = _sum_up(values[order], np.searchsorted(chain[order], np.arange(3 * len(lengths) + 1)))
    counts = np.empty_like(values)
    counts[order] = sums
    return counts


def _make_counts(runs: Runs) -> tuple[Array, Array]:
    """The counts of all masks, and where those of each mask begin."""
    held = np.diff(runs.offsets)
    filled = np.zeros(len(runs.sizes), np.int64)  # up to the end of the last run
    filled[held > 0] = runs.ends[runs.offsets[1:][held > 0] - 1]
    has_rest = (filled < runs.sizes) | (held == 0)
    lengths = 2 * held + has_rest
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    counts = np.zeros(offsets[-1], np.int64)
    at = np.repeat(offsets[:-1], held) + 2 * flatten_ranges(held)
    before = np.concatenate([[0], runs.ends[:-1]])[: len(runs.ends)]
    before[runs.offsets[:-1][held > 0]] = 0
    counts[at] = runs.starts - before
    counts[at + 1] = runs.ends - runs.starts
    counts[offsets[1:][has_rest] - 1] = (runs.sizes - filled)[has_rest]
    return counts, offsets


def _make_bases(sizes: Array) -> Array:
    """Return where each mask begins on one line of all pixels, with a gap of one between masks."""
    return np.concatenate([[0], np.cumsum(sizes + 1)[:-1]])[: len(sizes)]


def flatten_ranges(lengths: Array) -> Array:
    """Return 0, 1, ... for each length, one after another."""
    ends = np.cumsum(lengths)
    places: Array = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return places


def _sum_up(values: Array, offsets: Array) -> Array:
    """Return the cumulative sums of each part."""
    total = np.concatenate([[0], np.cumsum(values)])
    sums: Array = total[1:] - np.repeat(total[offsets[:-1]], np.diff(offsets))
    return sums


def _sum_parts(values: Array, offsets: Array) -> Array:
    total = np.concatenate([[0], np.cumsum(values)])
    sums: Array = total[offsets[1:]] - total[offsets[:-1]]
    return sums
