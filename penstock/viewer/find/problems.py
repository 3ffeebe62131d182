"""What may be wrong with a record: found from sizes, boxes and what the scan measured; outliers; near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.orientation import FIRST_TRANSPOSED
from penstock.ragged import Ragged
from penstock.sample import Array
from penstock.viewer.find.columns import FilterNumbers, Mask, has_any
from penstock.viewer.find.scanning import REPAIRED, UNREADABLE

__all__ = ["OUTLIER_NAMES", "PROBLEMS", "find_areas", "find_duplicates", "find_outliers", "find_problems"]

PROBLEMS: Final[Mapping[str, str]] = {
    "unreadable": "the picture cannot be read or decoded; also one that is too large or not supported",
    "repaired": "the picture is truncated or damaged, and is decoded as far as possible",
    "exif-turned": "the Exif orientation of the picture is not 1",
    "tiny": "a side is below 32 pixels",
    "extreme-aspect": "one side is more than 4 times the other",
    "empty-annotation": "the store has boxes, and this record has none; or its label is missing",
    "box-outside": "a box is outside the picture by more than a pixel",
    "box-degenerate": "a box has no area, or is not finite",
}
OUTLIER_NAMES: Final = ("pixels", "aspect", "brightness", "contrast", "sharpness")
"""What :func:`find_outliers` compares."""

_TINY: Final = 32
_ASPECT: Final = 4
_MARGIN: Final = 1.0
_MAD: Final = 1.4826  # of the median absolute deviation: the standard deviation of a normal distribution
_DISTANCE: Final = 3
_MOST_COMPARED: Final = 1 << 27
"""Pairs of hashes that are compared in one part: some seconds; more, of very many similar ones, are left out."""

_ONES: Final = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)


def find_problems(facts: Array, boxes: Ragged, *, empty: Mask, upright: bool | None = None) -> FilterNumbers:
    """The problems of each record, as numbers of :data:`PROBLEMS`.

    ``facts``, (n,): of the scan; ``boxes``: (total, 4) values, of the picture that ``upright`` says, as in
    :class:`penstock.Field`; ``empty``, (n,): records without annotations.
    """
    broken, width, height = facts["broken"], facts["width"], facts["height"]
    is_known, shorter = np.asarray(height > 0), np.minimum(width, height)
    sizes = np.stack([width, height], 1)
    of_box = np.repeat(np.arange(len(facts)), np.diff(boxes.offsets))
    corner, far = boxes.values[:, :2], boxes.values[:, 2:]
    leaves = (far > sizes[of_box] + _MARGIN).any(1)
    if upright is not False:  # where it is not known of which picture they are, outside is what is outside of both
        leaves_upright = (far > sizes[of_box, ::-1] + _MARGIN).any(1)
        is_transposed = facts["orientation"][of_box] >= FIRST_TRANSPOSED
        leaves = np.where(is_transposed, leaves_upright if upright else leaves & leaves_upright, leaves)
    leaves = (is_known[of_box] & leaves) | (corner < -_MARGIN).any(1)
    found = {
        "unreadable": broken == UNREADABLE,
        "repaired": broken == REPAIRED,
        "exif-turned": facts["orientation"] > 1,
        "tiny": is_known & (shorter < _TINY),
        "extreme-aspect": is_known & (np.maximum(width, height) > _ASPECT * shorter),
        "empty-annotation": empty,
        "box-outside": has_any(leaves, boxes.offsets),
        "box-degenerate": has_any(find_areas(boxes).values == 0, boxes.offsets),
    }
    has = np.stack([found[name] for name in PROBLEMS])
    offsets = np.append(0, np.cumsum(has.sum(0)))
    return FilterNumbers(np.nonzero(has.T)[1].astype(np.uint8), offsets, tuple(PROBLEMS))


def find_areas(boxes: Ragged) -> FilterNumbers:
    """Return the area of each box; 0 where its width or height is not above 0, or a number of it is not finite."""
    sides = boxes.values[:, 2:] - boxes.values[:, :2]
    is_right = np.isfinite(boxes.values).all(1) & (sides > 0).all(1)
    return FilterNumbers(np.where(is_right, sides.prod(1), np.float32(0)), boxes.offsets)


def find_outliers(facts: Array) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return how far each record is from the others, (n,), in standard deviations.

    It is NaN where its pixels were not measured.

    And in what, (n,): the number of a name of :data:`OUTLIER_NAMES`. The distance is the largest of
    |x - median| / (1.4826 MAD) over the logarithms of size, aspect and sharpness, and over brightness and contrast.
    (B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers, 1993.)
    """
    is_known = ~np.isnan(facts["brightness"])
    found, kinds = np.full(len(facts), np.nan, np.float32), np.zeros(len(facts), np.uint8)
    if not is_known.any():
        return found, kinds
    names = ("width", "height", "brightness", "contrast", "sharpness")
    width, height, brightness, contrast, sharpness = (facts[name][is_known].astype(np.float64) for name in names)
    sharpness = np.log1p(np.nan_to_num(sharpness))
    measures = (np.log(width * height), np.log(width / height), brightness, contrast, sharpness)
    distances = np.zeros((len(measures), len(width)))
    for distance, measure in zip(distances, measures, strict=True):
        deviation = np.abs(measure - np.median(measure))
        spread = _MAD * float(np.median(deviation))
        if spread > 1e-9:  # of records that are mostly equal, none is far from the others in this
            np.divide(deviation, spread, out=distance)
    found[is_known], kinds[is_known] = distances.max(0), distances.argmax(0)
    return found, kinds


def find_duplicates(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The first of the hashes that are near to each one, (n,); -1: it is alone.

    A group holds what is joined by a chain of hashes that differ by at most 3 bits. Of the 4 parts of 16 bits of two
    such hashes, at least one is equal: for each part, those with an equal part are compared. (Multi-index hashing:
    M. Norouzi, A. Punjani and D. Fleet, Fast search in Hamming space, 2012.)
    """
    unique, places = np.unique(hashes, return_inverse=True)
    roots = np.arange(len(unique))
    for part in range(4):
        keys = (unique >> np.uint64(16 * part)) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        ordered, keys = unique[order], keys[order]
        active, compared = np.arange(len(unique)), 0
        for step in range(1, len(unique)):
            active = active[active + step < len(unique)]
            active = active[keys[active] == keys[active + step]]
            compared += len(active)
            if not len(active) or compared > _MOST_COMPARED:
                break
            differing = (ordered[active] ^ ordered[active + step]).view(np.uint16).reshape(-1, 4)
            near = active[_ONES[differing].sum(1) <= _DISTANCE]
            roots = _join(roots, order[near], order[near + step])
    roots = roots[places.reshape(-1)]
    first = np.full(len(unique), len(hashes))
    np.minimum.at(first, roots, np.arange(len(hashes)))
    return np.where(np.bincount(roots, minlength=len(unique))[roots] > 1, first[roots], -1)


def _join(roots: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Roots, of which those of each pair are the same."""
    while (differs := roots[first] != roots[second]).any():
        one, other = roots[first[differs]], roots[second[differs]]
        np.minimum.at(roots, np.maximum(one, other), np.minimum(one, other))
        while (roots[roots] != roots).any():
            roots = roots[roots]
    return roots
