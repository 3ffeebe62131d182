"""What filters and orders are evaluated with: every name of a collection, and the records that fit.

::

    "label = dog and brightness < 40" ──parse──> tree ──level──> the scan is started, if a fact of it is needed
                                                   └──evaluate──> columns ──> mask, (n,) ──> indices, sorted

A field of the store wins over a measured name; with a dot before it (``.width``), a name is the measured one. Results
are kept until there are new facts. Called by the requests of this folder, and by :func:`.order.find_order`.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.viewer.browse.collection import Collection
from penstock.viewer.find import language
from penstock.viewer.find.columns import (
    FilterColumn,
    FilterFlags,
    FilterNumbers,
    FilterTexts,
    Mask,
    find_near,
    match_text,
)
from penstock.viewer.find.duplicates import group_duplicates
from penstock.viewer.find.fields import FieldColumns
from penstock.viewer.find.language import Condition, FieldTest, IsMissing, Operand, QueryError, parse_query
from penstock.viewer.find.measuring import FORMATS, HEADER, MODES, PIXELS
from penstock.viewer.find.problems import PROBLEMS, find_outliers, find_problems
from penstock.viewer.find.scanning import Scan
from penstock.viewer.session import Session

__all__ = ["MEASURED", "Finder", "MeasuredName", "finder_of"]

_SIZES: Final = -1
"""The level of what needs sizes: none if the store has columns of them, else HEADER."""


class MeasuredName(NamedTuple):
    """A name that is not of the store: its kind, the level of the scan that it needs, and what it is."""

    kind: str
    level: int
    about: str


MEASURED: Final[dict[str, MeasuredName]] = {
    "width": MeasuredName("number", HEADER, "width of the picture as it is stored, in pixels"),
    "height": MeasuredName("number", HEADER, "height of the picture as it is stored, in pixels"),
    "pixels": MeasuredName("number", _SIZES, "width times height"),
    "aspect": MeasuredName("number", _SIZES, "width divided by height"),
    "nbytes": MeasuredName("number", HEADER, "bytes of the picture; 1kB is 1,000"),
    "format": MeasuredName("class", HEADER, "JPEG, PNG, ...; pixels where these are stored"),
    "mode": MeasuredName("class", HEADER, "L, RGB, CMYK, ..."),
    "bit_depth": MeasuredName("number", HEADER, "bits of a channel"),
    "exif_turned": MeasuredName("count", HEADER, "the Exif orientation, where it is not 1"),
    "masks": MeasuredName("count", HEADER, "number of masks"),
    "boxes": MeasuredName("count", 0, "number of boxes"),
    "keypoints": MeasuredName("count", 0, "number of keypoints, or of objects with keypoints"),
    "class": MeasuredName("class", 0, "the label of the record, or the classes of its objects"),
    "area": MeasuredName("number", 0, "area of any box, in pixels"),
    "score": MeasuredName("number", 0, "score of the record, or of any object"),
    "problem": MeasuredName("flags", PIXELS, "what may be wrong: unreadable, tiny, ..."),
    "brightness": MeasuredName("number", PIXELS, "mean gray value, 0 to 255"),
    "contrast": MeasuredName("number", PIXELS, "standard deviation of gray values"),
    "sharpness": MeasuredName("number", PIXELS, "variance of the Laplacian, at 256 pixels a side"),
    "outlier": MeasuredName("number", PIXELS, "distance from the others in size, brightness, contrast and sharpness"),
    "duplicate": MeasuredName("count", PIXELS, "number of the group of near-duplicates"),
    "index": MeasuredName("number", 0, "number of the record in the store"),
}

_PROBLEM_LEVELS: Final = {
    "unreadable": PIXELS, "repaired": PIXELS, "exif-turned": HEADER, "tiny": _SIZES, "extreme-aspect": _SIZES,
    "box-outside": _SIZES, "empty-annotation": 0, "box-degenerate": 0,
}  # fmt: skip


def finder_of(session: Session) -> Finder:
    """The finder of a viewer, made at the first call."""
    finder: Finder = session.part("find", lambda: Finder(session.collection))
    return finder


class Finder:
    """Evaluates filters over a collection; several threads may call every method at once.

    Parameters
    ----------
    collection : Collection
        The records.

    Attributes
    ----------
    scan : Scan
        What is measured in the background.
    kept : OrderedDict
        Results of :mod:`.order`, used under ``lock``.
    """

    def __init__(self, collection: Collection) -> None:
        self.scan = Scan(collection)
        self.fields = FieldColumns(collection)
        self.total = collection.total
        self.lock = threading.RLock()
        self.kept: OrderedDict[tuple[str, str, int], NDArray[np.int64]] = OrderedDict()
        self._groups: tuple[int, NDArray[np.int32]] = (0, np.zeros(self.total, np.int32))
        self._schema = schema = collection.schema
        self._has_sizes = all(name in schema and schema[name].kind == "int" for name in ("width", "height"))
        # The classes of a label that a store calls otherwise are found as `label`, too.
        self._measured = {**MEASURED, "label": MEASURED["class"]} if "label" not in schema else MEASURED

    def close(self) -> None:
        """End the scan."""
        self.scan.close()

    def names(self) -> dict[str, MeasuredName]:
        """Every name that can be compared, fields first."""
        kinds = {name: self.fields.kind(name) for name in ("key", *self._schema.fields)}
        fields = {name: MeasuredName(kind, 0, "a field") for name, kind in kinds.items() if kind is not None}
        return {**fields, **{name: each for name, each in self._measured.items() if name not in fields}}

    def parse(self, query: str) -> tuple[Condition | None, int]:
        """The tree of a filter, and the level of the scan that it needs; 0: none.

        Raises
        ------
        QueryError
            If it cannot be read, or a name is not known.
        """
        node = parse_query(query)
        return node, 0 if node is None else self._level(node)

    def classes(self, name: str) -> tuple[str, ...]:
        """Names of the values of a name, if it has any."""
        if self.fields.kind(name) is None and name in {"class", "label"}:
            name = self.fields.classes
        if name in self._schema:
            return self._schema[name].classes
        return {"format": FORMATS[1:], "mode": MODES[1:], "problem": (*PROBLEMS,)}.get(name, ())

    def evaluate(self, node: Condition) -> Mask:
        """The records for which a condition is true, by what is known now; it starts no scan."""
        if isinstance(node, language.AllOf | language.AnyOf):
            join = np.logical_and if isinstance(node, language.AllOf) else np.logical_or
            mask: Mask = functools.reduce(join, map(self.evaluate, node.nodes))
            return mask
        if isinstance(node, language.Negation):
            return ~self.evaluate(node.node)
        if isinstance(node, IsMissing):
            return self.column(node.name).missing()
        if node.operator is None:
            return self._search(node.name) if self._is_search(node) else self.column(node.name).present()
        column, sign = self.column(node.name), node.operator
        found = column.test(sign, node.values[0])
        for each in node.values[1:]:
            found |= column.test(sign, each)
        return found

    def _is_search(self, node: FieldTest) -> bool:
        return node.is_quoted or (
            self.fields.kind(node.name.text) is None and node.name.text.removeprefix(".") not in self._measured
        )

    def _search(self, word: Operand) -> Mask:
        """Records whose key, class or text has a word."""
        found = self.fields.column("key").test("~", word)
        for name in self.fields.texts:
            found |= self.fields.column(name).test("~", word)
        if self.fields.classes:
            column = self.fields.column(self.fields.classes)
            assert isinstance(column, FilterNumbers), "of numbers"
            if any(map(match_text(word), column.classes)):
                found |= column.test("~", word)
        return found

    def _level(self, node: Condition) -> int:
        if isinstance(node, language.AllOf | language.AnyOf):
            return max(map(self._level, node.nodes))
        if isinstance(node, language.Negation):
            return self._level(node.node)
        if isinstance(node, IsMissing):
            return self.level_of(node.name)
        if node.operator is None:
            return 0 if self._is_search(node) else self.level_of(node.name)
        level = self.level_of(node.name)
        column = self._empty_column(node.name.text)
        for each in node.values:
            column.test(node.operator, each)  # an error of a value is found before anything is read
        if node.name.text == "problem" and level == PIXELS and node.operator in {"=", "!="}:
            return max(self._with_sizes(_PROBLEM_LEVELS[each.text]) for each in node.values)
        return level

    def _empty_column(self, name: str) -> FilterColumn:
        """The column of a name, of no record."""
        kind = self.fields.kind(name) or self._measured[name.removeprefix(".")].kind
        if kind == "text":
            return FilterTexts(tuple, 0)
        if kind == "flags":
            return FilterFlags(np.zeros(0, np.uint16), [*PROBLEMS])
        return FilterNumbers(np.zeros(0), classes=self.classes(name))

    def level_of(self, name: Operand) -> int:
        """The level of the scan that a name needs; QueryError if there is no such name."""
        if self.fields.kind(name.text) is not None:
            return 0
        measured = self._measured.get(name.text.removeprefix("."))
        if measured is None:
            known = self.names()
            if name.text in self._schema:
                raise QueryError(f"values of {name.text!r:.100} cannot be compared", name.at)
            raise QueryError(f"no field is named {name.text!r:.100}{find_near(name.text, [*known])}", name.at)
        return self._with_sizes(measured.level)

    def _with_sizes(self, level: int) -> int:
        return (0 if self._has_sizes else HEADER) if level == _SIZES else level

    def column(self, name: Operand) -> FilterColumn:
        """The values of a name, by what is known now.

        Raises
        ------
        QueryError
            If there is no such name.
        """
        if self.fields.kind(name.text) is not None:
            return self.fields.column(name.text)
        self.level_of(name)
        return self.measured(name.text.removeprefix("."))

    def measured(self, name: str) -> FilterColumn:
        """The values of a name of :data:`MEASURED`."""
        facts = self.scan.facts
        special: dict[str, Callable[[], FilterColumn]] = {
            "pixels": self._pixels, "aspect": self._aspect, "problem": self.problems,
            "boxes": lambda: FilterNumbers(self.fields.box_facts().counts),
            "area": lambda: FilterNumbers(self.fields.box_facts().areas, self.fields.box_facts().offsets),
            "keypoints": lambda: self._of_field(self.fields.keypoints, 0),
            "class": lambda: self._of_field(self.fields.classes, -1), "label": lambda: self.measured("class"),
            "score": lambda: self._of_field(self.fields.scores, np.nan),
            "index": lambda: FilterNumbers(np.arange(self.total), is_class=True),
            "format": lambda: FilterNumbers(facts["format"], classes=FORMATS, valid=facts["format"] > 0, is_class=True),
            "mode": lambda: FilterNumbers(facts["mode"], classes=MODES, valid=facts["mode"] > 0, is_class=True),
            "exif_turned": lambda: FilterNumbers(np.where(facts["orientation"] > 1, facts["orientation"], 0)),
            "masks": lambda: FilterNumbers(facts["masks"], valid=facts["level"] > 0),
            "duplicate": lambda: FilterNumbers(self.duplicates(), valid=facts["level"] == PIXELS),
            "outlier": lambda: FilterNumbers(find_outliers(facts, self.sizes())),
        }  # fmt: skip
        if name in special:
            return special[name]()
        values, is_known = facts[name], facts["level"] > 0
        return FilterNumbers(values, valid=is_known & ~np.isnan(values) if values.dtype.kind == "f" else values > 0)

    def _of_field(self, name: str, otherwise: float) -> FilterColumn:
        return self.fields.column(name) if name else FilterNumbers(np.full(self.total, otherwise))

    def sizes(self) -> NDArray[np.int64]:
        """Width and height of each picture, (n, 2); 0 where they are not known."""
        if self._has_sizes:
            columns = [self.fields.numbers(name).values for name in ("width", "height")]
        else:
            columns = [self.scan.facts[name] for name in ("width", "height")]
        return np.stack(columns, 1).astype(np.int64)

    def _pixels(self) -> FilterColumn:
        pixels = self.sizes().prod(1)
        return FilterNumbers(pixels, valid=pixels > 0)

    def _aspect(self) -> FilterColumn:
        width, height = self.sizes().T
        return FilterNumbers(np.where(height > 0, width / np.maximum(height, 1), np.nan))

    def problems(self, *, if_quick: bool = False) -> FilterFlags:
        """The problems of all records; with ``if_quick`` without those of boxes, where reading these takes long."""
        boxes = self.fields.box_facts(if_quick=if_quick)
        empty = np.zeros(self.total, np.bool_)
        if self.fields.boxes and (not if_quick or self.fields.is_quick(self.fields.boxes)):
            empty = boxes.counts == 0
        if self.fields.classes and self._schema[self.fields.classes].kind == "label":
            empty = empty | self.fields.column(self.fields.classes).missing()
        return FilterFlags(find_problems(self.scan.facts, self.sizes(), boxes, empty=empty), [*PROBLEMS])

    def is_quick(self, name: str) -> bool:
        """Whether the values of a name are there at once, as far as they are known."""
        fields = self.fields
        of = {"class": fields.classes, "label": fields.classes, "score": fields.scores, "keypoints": fields.keypoints}
        of |= {"area": fields.boxes, "boxes": fields.boxes}
        return fields.is_quick(name if fields.kind(name) is not None else of.get(name, ""))

    def duplicates(self) -> NDArray[np.int32]:
        """The group of near-duplicates of each record, (n,); 0: it is alone, or was not measured."""
        with self.lock:
            places = self._hashed()
            known, groups = self._groups
            if len(places) > known * (1.25 if self.scan.progress()["running"] else 1):
                groups = np.zeros(self.total, np.int32)
                groups[places] = group_duplicates(self.scan.facts["hash"][places])
                self._groups = (len(places), groups)
            return groups

    def duplicate_groups(self, distance: int) -> list[list[int]]:
        """Indices of the records of each group; ``distance``: bits by which hashes differ at most, 0 to 3."""
        places = self._hashed()
        groups = group_duplicates(self.scan.facts["hash"][places], distance)
        order = np.argsort(groups, kind="stable")
        begins = np.searchsorted(groups[order], np.arange(1, groups.max(initial=0) + 1))
        return [each.tolist() for each in np.split(places[order], begins)[1:]]

    def _hashed(self) -> NDArray[np.int64]:
        """Records whose pixels were measured."""
        facts = self.scan.facts
        return np.flatnonzero(~np.isnan(facts["brightness"]) & (facts["level"] == PIXELS))
