"""What may be wrong with a record, by name: found from sizes, boxes and what the scan measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.viewer.find.columns import Mask
from penstock.viewer.find.fields import BoxFacts
from penstock.viewer.find.measuring import REPAIRED, UNREADABLE

__all__ = ["PROBLEMS", "find_outliers", "find_problems"]

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
"""Names in the order of their bits, and what they mean."""

_TINY: Final = 32
_ASPECT: Final = 4
_MARGIN: Final = 1.0
_MAD: Final = 1.4826  # of the median absolute deviation: the standard deviation of a normal distribution


def find_problems(facts: Array, sizes: NDArray[np.int64], boxes: BoxFacts, *, empty: Mask) -> NDArray[np.uint16]:
    """The problems of each record as bits, (n,).

    Parameters
    ----------
    facts : ndarray, shape (n,), FACTS
        Of the scan.
    sizes : ndarray, shape (n, 2), int64
        Width and height; 0 where they are not known.
    boxes : BoxFacts
        Of the records.
    empty : ndarray, shape (n,), bool
        Records without annotations.
    """
    broken, (width, height) = facts["broken"], sizes.T
    is_known = (width > 0) & (height > 0)
    shorter, longer = np.minimum(width, height), np.maximum(width, height)
    x0, y0, x1, y1 = boxes.extents.T
    # Boxes may be those of the file or of the turned picture: outside is what is outside of both.
    is_turned = facts["orientation"] >= 5
    leaves = (x1 > width + _MARGIN) | (y1 > height + _MARGIN)
    leaves &= ~is_turned | (x1 > height + _MARGIN) | (y1 > width + _MARGIN)
    found = {
        "unreadable": (broken & UNREADABLE) != 0,
        "repaired": (broken & REPAIRED) != 0,
        "exif-turned": facts["orientation"] > 1,
        "tiny": is_known & (shorter < _TINY),
        "extreme-aspect": is_known & (longer > _ASPECT * shorter),
        "empty-annotation": empty,
        "box-outside": (is_known & leaves) | (x0 < -_MARGIN) | (y0 < -_MARGIN),
        "box-degenerate": boxes.degenerate,
    }
    bits = np.zeros(len(facts), np.uint16)
    for place, name in enumerate(PROBLEMS):
        bits |= found[name].astype(np.uint16) << np.uint16(place)
    return bits


def find_outliers(facts: Array, sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """How far each record is from the others, (n,), in standard deviations; NaN where its pixels were not measured.

    The largest of |x - median| / (1.4826 MAD) over the logarithms of size, aspect and sharpness, and over brightness
    and contrast. (B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers, 1993.)
    """
    is_known = ~np.isnan(facts["brightness"]) & (sizes > 0).all(1)
    found = np.full(len(facts), np.nan, np.float32)
    if not is_known.any():
        return found
    width, height = sizes[is_known].T.astype(np.float64)
    rows = facts[is_known]
    measures = (
        np.log(width * height), np.log(width / height), rows["brightness"].astype(np.float64),
        rows["contrast"].astype(np.float64), np.log1p(np.nan_to_num(rows["sharpness"].astype(np.float64))),
    )  # fmt: skip
    farthest = np.zeros(len(rows))
    for measure in measures:
        deviation = np.abs(measure - np.median(measure))
        spread = _MAD * float(np.median(deviation))
        if spread > 1e-9:  # of records that are mostly equal, none is far from the others in this
            np.maximum(farthest, deviation / spread, out=farthest)
    found[is_known] = farthest
    return found
