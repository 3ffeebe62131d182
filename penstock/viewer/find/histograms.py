"""Counts of what the records are: classes, sizes, boxes, look, problems; of those that fit a filter beside all.

Each bar has the condition that means it, so that a page adds it to the filter. Called by :mod:`.routes`. It starts no
scan: what is not known is not counted, and what nothing is known of is left out. So are lists of very many records,
until a filter or the scan has needed them.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.viewer.find.columns import FilterNumbers, Mask
from penstock.viewer.find.finder import Finder
from penstock.viewer.find.language import QueryToken, quote

__all__ = ["Bar", "BarChart", "count_numbers", "make_histograms"]

_SHOWN: Final = (
    "problem", "class", "boxes", "area", "score", "width", "height", "aspect", "nbytes", "format", "brightness",
    "contrast", "sharpness",
)  # fmt: skip
_BY_RATIO: Final = frozenset({"area", "nbytes", "pixels", "sharpness", "aspect"})
"""Whose bars have edges of equal ratios."""

_BARS: Final = 16
_CLASS_BARS: Final = 40
_ALL_CLASS_BARS: Final = 20_000
"""Of a name of which all classes are asked for."""
_MOST_FIELDS: Final = 12
_FAR: Final = 3.5
"""Standard deviations, as Iglewicz and Hoaglin propose."""
_LARGEST_CLASS: Final = 100_000
_ORDERS: Final = {"problem = tiny": "pixels", "problem = extreme-aspect": "aspect"}
"""Of problems: by what their records are sorted."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its text, how many records (or objects) it has, how many of those that fit, and its condition."""

    label: str
    count: int
    matched: int
    query: str
    number: int | None = None
    """Of a class."""
    sort: str = ""
    """The order in which its records are shown, if no other is chosen."""


@dataclass(slots=True)
class BarChart:
    """The bars of one name; ``more``: how many classes are left out; ``counts``: "records" or "objects"."""

    name: str
    kind: str = "number"
    counts: str = "records"
    bars: list[Bar] = field(default_factory=list)
    more: int = 0


def make_histograms(finder: Finder, mask: Mask, whole: AbstractSet[str] = frozenset()) -> list[BarChart]:
    """The histograms of a collection; ``mask``, (n,): the records that fit the filter; ``whole``: those of all bars."""
    names, own = finder.names(), finder.fields
    counted = [name for name, each in names.items() if each.kind != "text"]
    fields = [name for name in counted if names[name].about == "a field"
              and name not in {*_SHOWN, own.classes, own.boxes, own.scores}]  # fmt: skip
    shown = [*(name for name in _SHOWN if name in counted), *fields[:_MOST_FIELDS]]
    most = dict.fromkeys(whole, _ALL_CLASS_BARS)
    charts = [_make(finder, name, mask, most.get(name, _CLASS_BARS)) for name in shown if finder.is_quick(name)]
    return [each for each in charts if each.bars]


def _make(finder: Finder, name: str, mask: Mask, most: int) -> BarChart:
    is_problem = name == "problem"
    column = finder.problems(reads_boxes=finder.is_quick("boxes")) if is_problem else finder.column(QueryToken(name))
    assert isinstance(column, FilterNumbers), "texts are not counted"
    chart = BarChart(name)
    if column.offsets is None:
        has_value = ~column.missing()
        values, fits = column.values[has_value], mask[has_value]
    else:
        values, fits = column.values, np.repeat(mask, np.diff(column.offsets))
        chart.counts = "records" if is_problem else "objects"
    if not (column.classes or column.is_class):
        count_numbers(chart, values, fits)
        return chart
    chart.kind = "flags" if is_problem else "class"
    _count_classes(chart, column.classes, values, fits, most)
    if is_problem and not finder.scan.is_running:  # or groups would be made again and again
        sets = {
            "near-duplicate": ("duplicate", "duplicate", finder.duplicates() >= 0),
            "all but the first of each group": ("copy", "duplicate", finder.copies()),
            "outlier": (f"outlier > {_FAR}", "-outlier", finder.outliers()[0] > _FAR),
        }
        more = [
            Bar(label, int(has.sum()), int((has & mask).sum()), query, sort=sort)
            for label, (query, sort, has) in sets.items()
        ]
        chart.bars += [each for each in more if each.count]
    return chart


def _count_classes(chart: BarChart, classes: tuple[str, ...], values: NDArray[np.int64], fits: Mask, most: int) -> None:
    """Add bars of at most ``most`` classes, those with most that fit first."""
    is_class = (values >= 0) & (values <= _LARGEST_CLASS)
    counts, matched = _count(values[is_class], fits[is_class], 0)
    order = np.lexsort((-counts, -matched))
    order = order[counts[order] > 0]
    chart.more = max(0, len(order) - most)
    for number in order[:most].tolist():
        text = classes[number] if number < len(classes) else str(number)
        query = f"{quote(chart.name)} = {quote(text)}"
        chart.bars.append(
            Bar(text[:200], int(counts[number]), int(matched[number]), query, number, _ORDERS.get(query, ""))
        )


def _count(places: NDArray[np.int64], fits: Mask, bars: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many values each bar has, and how many of them fit."""
    counts = np.bincount(places, minlength=bars)
    return counts, np.bincount(places[fits], minlength=len(counts))


def count_numbers(chart: BarChart, values: Array, fits: Mask) -> None:
    """Add the bars of some numbers to a chart, of which those of ``fits`` fit the filter."""
    is_finite = np.isfinite(values)
    values, fits = values[is_finite], fits[is_finite]
    if not len(values):
        return
    edges = _choose_edges(values, by_ratio=chart.name in _BY_RATIO)
    # Bar i holds values from edges[i], included, to edges[i + 1], excluded, as the condition says.
    counts = _count(np.searchsorted(edges, values, side="right") - 1, fits, len(edges) - 1)
    is_whole, name = values.dtype.kind in "iu", quote(chart.name)
    for low, high, count, fit in zip(edges[:-1], edges[1:], *(each.tolist() for each in counts), strict=True):
        begin, end = _write(low), _write(high)
        if low == -math.inf:
            label, query = f"below {end}", f"{name} < {end}"
        elif high == math.inf:
            label, query = f"{begin} and more", f"{name} >= {begin}"
        elif is_whole and high - low == 1:
            label, query = begin, f"{name} = {begin}"
        else:
            label, query = f"{begin} to {end}", f"{name} >= {begin} and {name} < {end}"
        chart.bars.append(Bar(label, count, fit, query))


def _choose_edges(values: Array, *, by_ratio: bool) -> Array:
    """Round edges of some 16 bars: the first is not above any value, the last above all.

    Where few values are far from the others, the first or the last bar has all of them: its edge is infinite.
    """
    least, most = float(values.min()), float(values.max())
    low, high = np.quantile(values, (0.01, 0.99)).tolist()
    if not most - least > 3 * (high - low) > 0:
        low, high = least, most
    if by_ratio and low > 0 and high / low > 8:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = np.array([base * 10.0**power for power in powers for base in (1, 2, 5)])
        first, last = np.searchsorted(steps, (low, high), side="right").tolist()
        chosen = steps[max(0, first - 1) : last + 1]
        chosen = chosen[:: -(-len(chosen) // _BARS)]
    else:
        step = _round_up((high - low) / _BARS) if high > low else 1.0
        if values.dtype.kind in "iu":
            step = max(1.0, math.ceil(step))
        chosen = step * np.arange(math.floor(low / step), math.floor(high / step) + 2)
    edges = np.unique([float(_write(each)) for each in chosen.tolist()])  # as the conditions have them
    edges = edges.astype(values.dtype) if values.dtype.kind == "f" else edges
    before, after = [-math.inf] if least < edges[0] else [], [math.inf] if most >= edges[-1] else []
    return np.concatenate([before, edges, after])


def _round_up(step: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(base * power for base in (1, 2, 5, 10) if base * power >= step)


def _write(number: float) -> str:
    """Return a number as it is read back."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:.6g}"
