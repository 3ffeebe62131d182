"""Counts of what the records are: classes, sizes, boxes, look, problems; of those that fit a filter beside all.

Each bar has the condition that means it, so that a page adds it to the filter. Called by :mod:`.routes`. It starts no
scan: what is not known is not counted, and what nothing is known of is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.viewer.find.columns import FilterFlags, FilterNumbers, Mask
from penstock.viewer.find.finder import Finder
from penstock.viewer.find.language import Operand, quote

__all__ = ["Bar", "BarChart", "count_numbers", "make_histograms"]

_SHOWN: Final = (
    "problem", "class", "boxes", "area", "score", "width", "height", "aspect", "nbytes", "format", "mode", "brightness",
    "contrast", "sharpness",
)  # fmt: skip
_BY_RATIO: Final = frozenset({"area", "nbytes", "pixels", "sharpness", "aspect"})
"""Whose bars have edges of equal ratios."""

_BARS: Final = 16
_CLASS_BARS: Final = 40
_MOST_FIELDS: Final = 12
_LARGEST_CLASS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its text, how many records (or objects) it has, how many of those that fit, and its condition."""

    label: str
    count: int
    matched: int
    query: str
    number: int | None = None
    """Of a class."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """The bars of one name; ``more``: how many classes are left out; ``counts``: "records" or "objects"."""

    name: str
    kind: str
    counts: str
    bars: list[Bar] = field(default_factory=list)
    more: int = 0
    is_deferred: bool = False
    """Whether it is made only when it is asked for, since its values take long to read."""


def make_histograms(finder: Finder, mask: Mask | None, asked: Collection[str] = ()) -> list[BarChart]:
    """The histograms of a collection.

    Parameters
    ----------
    finder : Finder
        Of the collection.
    mask : ndarray, shape (n,), bool, optional
        The records that fit the filter; None: all.
    asked : collection of str
        Names whose histograms are made even if reading their values takes long.
    """
    names = finder.names()
    fields = [name for name, each in names.items() if each.about == "a field" and each.kind != "text"]
    absent = {"boxes", "area"} if not finder.fields.boxes else set()
    shown: list[str] = [name for name in _SHOWN if name in names and name not in absent]
    shown += [name for name in fields if name not in {*shown, finder.fields.classes, finder.fields.boxes,
                                                      finder.fields.scores}][:_MOST_FIELDS]  # fmt: skip
    made = [
        _make(finder, name, mask) if name in asked or finder.is_quick(name)
        else BarChart(name, names[name].kind, "objects", is_deferred=True)
        for name in shown
    ]  # fmt: skip
    return [each for each in made if each is not None and (each.bars or each.is_deferred)]


def _make(finder: Finder, name: str, mask: Mask | None) -> BarChart | None:
    column = finder.problems(if_quick=True) if name == "problem" else finder.column(Operand(name))
    if isinstance(column, FilterFlags):
        histogram = _count_flags(name, column, mask)
        if not finder.scan.progress()["running"]:  # or groups would be made again and again
            histogram.bars.extend(_count_duplicates(finder.duplicates() > 0, mask))
        return histogram
    if not isinstance(column, FilterNumbers):
        return None
    values, fits = column.values, mask
    if column.offsets is not None:
        fits = None if mask is None else np.repeat(mask, np.diff(column.offsets))
    else:
        has_value = ~column.missing()
        values, fits = values[has_value], None if mask is None else mask[has_value]
    counts = "records" if column.offsets is None else "objects"
    if not len(values):
        return None
    if column.classes or column.is_class:
        return _count_classes(BarChart(name, "class", counts), column, values, fits)
    return count_numbers(BarChart(name, "number", counts), values, fits)


def _count_flags(name: str, column: FilterFlags, mask: Mask | None) -> BarChart:
    histogram = BarChart(name, "flags", "records")
    for place, each in enumerate(column.names):
        has = (column.bits & np.uint16(1 << place)) != 0
        count = int(np.count_nonzero(has))
        if count:
            matched = count if mask is None else int(np.count_nonzero(has & mask))
            histogram.bars.append(Bar(each, count, matched, f"{name} = {each}"))
    return histogram


def _count_duplicates(is_duplicate: Mask, mask: Mask | None) -> list[Bar]:
    count = int(np.count_nonzero(is_duplicate))
    matched = count if mask is None else int(np.count_nonzero(is_duplicate & mask))
    return [Bar("near-duplicate", count, matched, "duplicate")] if count else []


def _count_classes(
    histogram: BarChart, column: FilterNumbers, values: NDArray[np.int64], fits: Mask | None
) -> BarChart:
    is_class = (values >= 0) & (values <= _LARGEST_CLASS)
    values, fits = values[is_class], None if fits is None else fits[is_class]
    counts = np.bincount(values)
    matched = counts if fits is None else np.bincount(values[fits], minlength=len(counts))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    histogram = BarChart(histogram.name, histogram.kind, histogram.counts, more=max(0, len(order) - _CLASS_BARS))
    for number in order[:_CLASS_BARS].tolist():
        is_named = 0 <= number < len(column.classes)
        text = column.classes[number] if is_named else str(number)
        query = f"{quote(histogram.name)} = {quote(text)}"
        histogram.bars.append(Bar(text[:200], int(counts[number]), int(matched[number]), query, number))
    return histogram


def count_numbers(histogram: BarChart, values: Array, fits: Mask | None) -> BarChart | None:
    """Add the bars of some numbers, of which those of ``fits`` fit the filter; None if none of them is finite."""
    is_finite = np.isfinite(values)
    values, fits = values[is_finite], None if fits is None else fits[is_finite]
    if not len(values):
        return None
    chosen = _choose_edges(values, by_ratio=histogram.name in _BY_RATIO)
    edges = np.unique([float(_write(edge)) for edge in chosen.tolist()])  # as the conditions have them
    edges = edges.astype(values.dtype) if values.dtype.kind == "f" else edges
    # Bar i holds values from edges[i], included, to edges[i + 1], excluded, as the condition says.
    places = np.searchsorted(edges, values, side="right") - 1
    counts = np.bincount(places, minlength=len(edges) - 1)
    matched = counts if fits is None else np.bincount(places[fits], minlength=len(edges) - 1)
    is_whole = values.dtype.kind in "iu"
    name = quote(histogram.name)
    for low, high, count, fit in zip(edges[:-1], edges[1:], counts.tolist(), matched.tolist(), strict=True):
        begin, end = _write(low), _write(high)
        if low == -math.inf:
            label, query = f"below {end}", f"{name} < {end}"
        elif high == math.inf:
            label, query = f"{begin} and more", f"{name} >= {begin}"
        elif is_whole and high - low == 1:
            label, query = begin, f"{name} = {begin}"
        else:
            label, query = f"{begin} to {end}", f"{name} >= {begin} and {name} < {end}"
        histogram.bars.append(Bar(label, count, fit, query))
    return histogram


def _choose_edges(values: Array, *, by_ratio: bool) -> NDArray[np.float64]:
    """Round edges of some 16 bars: the first is not above any value, the last above all.

    Where few values are far from the others, the first or the last bar has all of them: its edge is infinite.
    """
    low, high = float(values.min()), float(values.max())
    if by_ratio and low > 0 and high / low > 8:
        steps = [base * 10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
                 for base in (1, 2, 5)]  # fmt: skip
        inner = [each for each in steps if low < each <= high]
        first = max((each for each in steps if each <= low), default=low)
        if len(inner) >= _BARS:
            inner = inner[:: -(-len(inner) // (_BARS - 1))]
        last = next((each for each in steps if each > high), high * 2)
        return np.array([first, *inner, last])
    inner_low, inner_high = np.quantile(values, (0.01, 0.99)).tolist()
    if high - low > 3 * (inner_high - inner_low) > 0:
        edges = _choose_edges(values[(values >= inner_low) & (values <= inner_high)], by_ratio=False)
        before, after = [-math.inf] * (low < edges[0]), [math.inf] * (high >= edges[-1])
        return np.array([*before, *edges, *after])
    span = max(high - low, 0.0)
    step = _round_up(span / _BARS) if span else 1.0
    if values.dtype.kind in "iu":
        step = max(1.0, math.ceil(step))
    first = math.floor(low / step)
    count = math.floor(high / step) - first + 2
    return (first + np.arange(count, dtype=np.float64)) * step


def _round_up(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(base * power for base in (1, 2, 5, 10) if base * power >= step)


def _write(number: float) -> str:
    """A number as it is read back."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:.6g}"
