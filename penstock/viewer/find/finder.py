"""What filters and orders are evaluated with: every name of a collection, and the records that fit.

::

    "label = dog and brightness < 40" ──parse──> tree: the scan is started, if a fact of it is needed
                                                   └──evaluate──> columns ──> mask, (n,) ──> indices, sorted

A field of the store wins over a measured name; with a dot before it (``.width``), a name is the measured one. Of fields
there are columns, numbers of objects, counts, texts and paths in JSON (:class:`FieldColumns`); no picture is read for
them where the kind of store has its small fields apart. Called by the requests of this folder, and by :mod:`.order`.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.fields.names import guess_kind
from penstock.ragged import Ragged
from penstock.sample import Array, Field
from penstock.stores.fields.columns import join_values, make_column, refuse_fixed
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.columns import FilterColumn, FilterNumbers, FilterTexts, Mask, find_near, match_text
from penstock.viewer.find.language import Combination, Condition, FieldTest, QueryError, QueryToken, parse_query
from penstock.viewer.find.problems import PROBLEMS, find_areas, find_duplicates, find_outliers, find_problems
from penstock.viewer.find.scanning import FORMATS, Scan
from penstock.viewer.session import Session

__all__ = ["MEASURED", "Finder", "MeasuredName", "finder_of"]

_NUMBERS: Final = frozenset({"label", "int", "float"})
_FEW: Final = 50_000
"""Records whose lists are read without being asked for: of more, that takes seconds."""

_KEPT_LENGTH: Final = 64_000_000
"""Texts of a field are kept up to this length, with 60 for each, else read again for each filter."""


class MeasuredName(NamedTuple):
    """A name that is not of the store: its kind, whether it needs the scan, and what it is."""

    kind: str
    scans: bool
    about: str


MEASURED: Final[dict[str, MeasuredName]] = {
    "width": MeasuredName("number", True, "width of the picture as it is stored, in pixels"),
    "height": MeasuredName("number", True, "height of the picture as it is stored, in pixels"),
    "pixels": MeasuredName("number", True, "width times height"),
    "aspect": MeasuredName("number", True, "width divided by height"),
    "nbytes": MeasuredName("number", True, "bytes of the picture"),
    "format": MeasuredName("class", True, "JPEG, PNG, ...; pixels where these are stored"),
    "boxes": MeasuredName("number", False, "number of boxes"),
    "class": MeasuredName("class", False, "the label of the record, or the classes of its objects"),
    "area": MeasuredName("number", False, "area of any box, in pixels"),
    "score": MeasuredName("number", False, "score of the record, or of any object"),
    "problem": MeasuredName("class", True, "what may be wrong: unreadable, tiny, ..."),
    "brightness": MeasuredName("number", True, "mean gray value, 0 to 255"),
    "contrast": MeasuredName("number", True, "standard deviation of gray values"),
    "sharpness": MeasuredName("number", True, "variance of the Laplacian, at 256 pixels a side"),
    "outlier": MeasuredName("number", True, "distance from the others in size, brightness, contrast and sharpness"),
    "duplicate": MeasuredName("number", True, "number of the first record of a group of near-duplicates"),
    "copy": MeasuredName("number", True, "as duplicate, of all but the first record of each group"),
    "index": MeasuredName("number", False, "number of the record in the store"),
}


def finder_of(session: Session) -> Finder:
    """Return the finder of a viewer, made at the first call."""
    finder: Finder = session.part("find", lambda: Finder(session.collection))
    return finder


class Finder:
    """Evaluates filters over a collection; several threads may call every method at once.

    ``kept``: results of :mod:`.order`, used under ``lock``.
    """

    def __init__(self, collection: Collection) -> None:
        self.scan, self.fields, self.total = Scan(collection), FieldColumns(collection), collection.total
        self.lock = threading.RLock()
        self.kept: OrderedDict[tuple[str, str, int], NDArray[np.int64]] = OrderedDict()
        self._duplicates: tuple[int, NDArray[np.int64]] = (0, np.full(self.total, -1))
        self._outliers: tuple[int, tuple[NDArray[np.float32], NDArray[np.uint8]]] | None = None
        self._schema = schema = collection.schema
        # The classes of a label that a store calls otherwise are found as `label`, too.
        self._measured = {**MEASURED, "label": MEASURED["class"]} if "label" not in schema else MEASURED
        fields = self.fields
        self._fields_of = {
            "class": fields.classes, "label": fields.classes, "score": fields.scores, "boxes": fields.boxes,
            "area": fields.boxes,
        }  # fmt: skip

    def close(self) -> None:
        """End the scan of the records."""
        self.scan.close()

    def names(self) -> dict[str, MeasuredName]:
        """Every name that can be compared, fields first."""
        kinds = {name: self.fields.kind(name) for name in ("key", *self._schema.fields)}
        fields = {name: MeasuredName(kind, False, "a field") for name, kind in kinds.items() if kind is not None}
        return {**fields, **{name: each for name, each in self._measured.items() if name not in fields}}

    def classes(self, name: str) -> tuple[str, ...]:
        """Names of the values of a name, if it has any."""
        if self.fields.kind(name) is None:
            word = name.removeprefix(".")
            if word in {"format", "problem"}:
                return FORMATS[1:] if word == "format" else tuple(PROBLEMS)
            name = self._fields_of.get(word, "")
        return self._schema[name].classes if name in self._schema else ()

    def parse(self, query: str) -> tuple[Condition | None, bool]:
        """Return the tree of a filter, and whether it needs the scan; QueryError if it cannot be read."""
        node = parse_query(query)
        return node, node is not None and self._check(node)

    def _check(self, node: Condition) -> bool:
        """Return whether a condition needs the scan. Errors of names and values are found before anything is read."""
        if isinstance(node, Combination):
            return max(map(self._check, node.nodes))
        if self.is_search(node):
            return False
        scans, is_text = self.needs_scan(node.name), self.fields.kind(node.name.text) == "text"
        column = FilterTexts(tuple, 0) if is_text else FilterNumbers(np.zeros(0), classes=self.classes(node.name.text))
        for each in node.values:
            column.test(node.operator, each)
        return scans

    def needs_scan(self, name: QueryToken) -> bool:
        """Return whether a name needs the scan; QueryError if there is no such name."""
        if self.fields.kind(name.text) is not None:
            return False
        if name.text in self._schema:
            raise QueryError(f"values of {name.text!r:.100} cannot be compared", name.at)
        word = name.text.removeprefix(".")
        if word not in self._measured:
            raise QueryError(f"no field is named {name.text!r:.100}{find_near(name.text, [*self.names()])}", name.at)
        return self._measured[word].scans

    def evaluate(self, node: Condition) -> Mask:
        """The records for which a condition is true, by what is known now; it starts no scan."""
        if isinstance(node, Combination):
            join = {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}[node.join]
            masks = [self.evaluate(each) for each in node.nodes]
            return join(masks[0]) if node.join == "not" else functools.reduce(join, masks)
        if self.is_search(node):
            return self._search(node.name)
        column = self.column(node.name)
        if node.operator == "is missing":
            return column.missing()
        found = [column.test(node.operator, each) for each in node.values] or [column.present()]
        return functools.reduce(np.logical_or, found)

    def is_search(self, node: FieldTest) -> bool:
        """Return whether a test is a word to search for."""
        name = node.name.text
        is_known = self.fields.kind(name) is not None or name.removeprefix(".") in self._measured
        return not node.operator and (node.name.kind == "quoted" or not is_known)

    def _search(self, word: QueryToken) -> Mask:
        """Records whose key, class or text has a word."""
        columns = [self.fields.column(name) for name in ("key", *self.fields.texts)]
        if any(map(match_text(word), self.classes("class"))):
            columns.append(self.fields.column(self.fields.classes))
        return functools.reduce(np.logical_or, [column.test("~", word) for column in columns])

    def column(self, name: QueryToken) -> FilterColumn:
        """The values of a name, by what is known now; QueryError if there is no such name."""
        if self.fields.kind(name.text) is not None:
            return self.fields.column(name.text)
        self.needs_scan(name)
        word, facts = name.text.removeprefix("."), self.scan.facts
        if word in self._fields_of and word != "area":
            field = self._fields_of[word]
            return self.fields.column(field) if field else FilterNumbers(np.full(self.total, np.nan))
        width, height = facts["width"].astype(np.int64), facts["height"]
        has_size = np.asarray(height > 0)
        special: dict[str, Callable[[], FilterColumn]] = {
            "pixels": lambda: FilterNumbers(width * height, valid=has_size),
            "aspect": lambda: FilterNumbers(width / np.maximum(height, 1), valid=has_size),
            "problem": self.problems,
            "area": lambda: find_areas(self.fields.read_boxes()),
            "index": lambda: FilterNumbers(np.arange(self.total), is_class=True),
            "format": lambda: FilterNumbers(facts["format"], classes=FORMATS, valid=facts["format"] > 0, is_class=True),
            "duplicate": lambda: FilterNumbers(self.duplicates(), valid=self.duplicates() >= 0, is_class=True),
            "copy": lambda: FilterNumbers(self.duplicates(), valid=self.copies(), is_class=True),
            "outlier": lambda: FilterNumbers(self.outliers()[0]),
        }  # fmt: skip
        if word in special:
            return special[word]()
        return FilterNumbers(facts[word], valid=None if facts[word].dtype.kind == "f" else np.asarray(facts[word] > 0))

    def problems(self, *, reads_boxes: bool = True) -> FilterNumbers:
        """The problems of all records, with or without those of boxes."""
        boxes = self.fields.read_boxes(is_wanted=reads_boxes)
        empty = np.full(self.total, bool(self.fields.boxes) and reads_boxes) & (np.diff(boxes.offsets) == 0)
        if self.fields.classes and self._schema[self.fields.classes].kind == "label":
            empty = empty | self.fields.column(self.fields.classes).missing()
        return find_problems(self.scan.facts, boxes, empty=empty, upright=self.fields.upright)

    def is_quick(self, name: str) -> bool:
        """Return whether the values of a name are there at once, as far as they are known, or the scan was started."""
        name = name if self.fields.kind(name) is not None else self._fields_of.get(name, "")
        return self.fields.is_quick(name) or self.scan.generation > 0

    def outliers(self) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return what :func:`.problems.find_outliers` gives for what is known now."""
        with self.lock:
            generation = self.scan.generation
            if self._outliers is None or self._outliers[0] != generation:
                self._outliers = (generation, find_outliers(self.scan.facts))
            return self._outliers[1]

    def copies(self) -> Mask:
        """Return the near-duplicates that are not the first record of their group, (n,)."""
        found = self.duplicates()
        return np.asarray((found >= 0) & (found != np.arange(self.total)))

    def duplicates(self) -> NDArray[np.int64]:
        """The first record of the near-duplicates of each record, (n,); -1: it is alone, or was not measured."""
        with self.lock:
            facts = self.scan.facts
            places = np.flatnonzero(~np.isnan(facts["brightness"]))
            known, found = self._duplicates
            if len(places) > known * (1.25 if self.scan.is_running else 1):
                groups = find_duplicates(facts["hash"][places])
                found = np.full(self.total, -1)
                found[places] = np.where(groups < 0, -1, places[groups])
                self._duplicates = (len(places), found)
            return found


class FieldColumns:
    """Columns of the fields of a collection, by name, read when they are first asked for; numbers are kept.

    ``boxes``, ``classes`` and ``scores`` are the field with the boxes, the class of records or objects, and the scores;
    empty without one. In the fields of ``texts``, words are searched.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection, self._store, self._schema = collection, collection.store, collection.schema
        self.boxes = self._find(_is_boxes)
        self.upright = self._schema.upright
        # The only class of a folder without sub-folders says nothing.
        self.classes = (
            self._find(lambda _, each: each.kind == "label" and len(each.classes) != 1)
            or self._find(lambda _, each: bool(each.classes) and _is_list(each))
            or self._find(lambda _, each: each.kind == "label")
        )
        self.scores = self._find(
            lambda name, each: "score" in name.lower() and "float" in each.kind and (not each.array or _is_list(each))
        )
        self.texts = [name for name, each in self._schema.fields.items() if each.kind == "text"]
        self._lock = threading.RLock()
        self._columns: dict[str, Array | Ragged] = {}
        self._kept: dict[str, list[object]] = {}

    def _find(self, suits: Callable[[str, Field], bool]) -> str:
        return next((name for name, each in self._schema.fields.items() if suits(name, each)), "")

    def kind(self, name: str) -> str | None:
        """Return what a field is for filters: "number", "class" or "text"; None if it cannot be compared."""
        field = self._schema.fields.get(name)
        if field is None:
            return "text" if name == "key" or self._split_path(name) else None
        if field.classes or field.kind == "label":
            return "class"
        if field.kind in {"text", "json"}:
            return "text"
        axes = None if field.array is None else field.array.axes
        is_number = field.kind in _NUMBERS if axes is None else axes[0] is None and None not in axes[1:]
        return "number" if is_number else None

    def column(self, name: str) -> FilterColumn:
        """Return the values of a field for which :meth:`kind` is not None; StoreError if they cannot be read."""
        path = self._split_path(name)
        if path is not None:
            return FilterTexts(lambda: self._iter_path(*path), len(self._store))
        if name not in self._schema:
            return FilterTexts(self._store.keys, len(self._store))
        if self._schema[name].kind in {"text", "json"}:
            return FilterTexts(lambda: self._iter_texts(name), len(self._store))
        return self.numbers(name)

    def numbers(self, name: str) -> FilterNumbers:
        """Return the values of a field of numbers, or of lists of them; of other arrays their number."""
        field, column = self._schema[name], self._read(name)
        if not isinstance(column, Ragged):
            is_class = field.kind == "label"
            valid = np.asarray(column != -1)
            if is_class and name in self._store.schema and not valid.all():  # -1 may be a class
                valid = np.isin(np.arange(len(column)), self._store.find_missing(name), invert=True)
            return FilterNumbers(column, None, field.classes, valid if is_class else None, is_class)
        if not _is_list(field):
            return FilterNumbers(np.diff(column.offsets))
        values = column.values.astype(np.uint8) if column.values.dtype.kind == "b" else column.values
        return FilterNumbers(values, column.offsets, field.classes)

    def read_boxes(self, *, is_wanted: bool = True) -> Ragged:
        """Return boxes (total, 4), x0, y0, x1, y1; none without such a field, or if they are not wanted."""
        found = self._read(self.boxes) if self.boxes and is_wanted else None
        return (
            found if isinstance(found, Ragged) else Ragged(np.zeros((0, 4)), np.zeros(len(self._store) + 1, np.int64))
        )

    def is_quick(self, name: str) -> bool:
        """Return whether the numbers of a field are there at once: they are no lists, were read before, or are few."""
        field = self._schema.fields.get(name)
        if field is None or name in self._columns or len(self._store) <= _FEW:
            return True
        return field.array is None and self._collection.column(name) is not None

    def _read(self, name: str) -> Array | Ragged:
        """Return the column of a field of numbers or arrays; kept."""
        with self._lock:
            if name not in self._columns:
                field, is_stored, values = self._schema[name], name in self._store.schema, self._iter_values(name)
                if field.array is None:
                    column = self._store.column(name) if is_stored else make_column(name, [*values], field, "")
                    self._columns[name] = column
                else:
                    kind = refuse_fixed(name, field)
                    lists = self._store.ragged_column(name) if is_stored else join_values(name, kind, values, "")
                    self._columns[name] = lists
            return self._columns[name]

    def _iter_values(self, name: str) -> Iterator[object]:
        """Return the values of a small field, without pictures where the store can avoid them; nothing is kept."""
        if name in self._store.schema:
            return self._store._iter_values(name)  # noqa: SLF001  # a column would be kept, with the longest text's width
        return (each[name] for each in self._collection.iter_beside())

    def _iter_texts(self, name: str) -> Iterable[object]:
        """Return the values of a field of text or JSON; texts are kept, if they are short enough."""
        if name in self._kept or self._schema[name].kind == "json":
            yield from self._kept.get(name) or self._iter_values(name)
            return
        kept, length = [], 0
        for value in self._iter_values(name):
            yield value
            length += 60 + len(str(value))
            if length <= _KEPT_LENGTH:
                kept.append(value)
        if length <= _KEPT_LENGTH:
            self._kept[name] = kept

    def _split_path(self, name: str) -> tuple[str, list[str]] | None:
        """The field of JSON and the names inside it that a name with dots means."""
        words = name.split(".")
        for place in range(1, 0 if name in self._schema else min(len(words), 100)):
            field = ".".join(words[:place])
            if field in self._schema and self._schema[field].kind == "json":
                return field, words[place:]
        return None

    def _iter_path(self, field: str, path: list[str]) -> Iterator[object]:
        for each in self._iter_values(field):
            value: object = each
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            yield value


def _is_list(field: Field) -> bool:
    """Return whether a value is a list of any number of numbers."""
    return field.array is not None and field.array.axes == (None,)


def _is_boxes(name: str, field: Field) -> bool:
    array = field.array
    is_shaped = array is not None and array.axes == (None, (4,)) and array.dtype.kind in "if"
    return is_shaped and "boxes" in {field.kind, guess_kind(name)}
