"""The fields of a store as filters see them: columns, numbers of objects, counts, texts, paths in JSON.

Called by :mod:`.finder`. No picture is read, where the kind of store has its small fields apart from them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from penstock.ragged import Ragged
from penstock.sample import Array, Field
from penstock.stores.fields.columns import join_values, make_column, refuse_fixed
from penstock.transforms.targets.field_kinds import guess_kind
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.columns import FilterColumn, FilterNumbers, FilterTexts

__all__ = ["FieldColumns"]

_NUMBERS: Final = frozenset({"label", "int", "float"})
_FEW: Final = 50_000
"""Records whose lists are read without being asked for: of more, that takes seconds."""

_KEPT_LENGTH: Final = 64_000_000
"""Texts of a field are kept up to this length, with 60 for each, else read again for each filter."""


class FieldColumns:
    """Columns of the fields of a collection, by name, read when they are first asked for; numbers are kept.

    ``boxes``, ``classes`` and ``scores`` are the field with the boxes, the class of records or objects, and the scores;
    empty without one. In the fields of ``texts``, words are searched.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection, self._store, self._schema = collection, collection.store, collection.schema
        self.boxes = self._find(_is_boxes)
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
        """What a field is for filters: "number", "class" or "text"; None if it cannot be compared."""
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
        """The values of a field for which :meth:`kind` is not None; StoreError if they cannot be read."""
        path = self._split_path(name)
        if path is not None:
            return FilterTexts(lambda: self._iter_path(*path), len(self._store))
        if name not in self._schema:
            return FilterTexts(self._store.keys, len(self._store))
        if self._schema[name].kind in {"text", "json"}:
            return FilterTexts(lambda: self._iter_texts(name), len(self._store))
        return self.numbers(name)

    def numbers(self, name: str) -> FilterNumbers:
        """The values of a field of numbers, or of lists of them; of other arrays their number."""
        field, column = self._schema[name], self._read(name)
        if not isinstance(column, Ragged):
            is_class = field.kind == "label"
            return FilterNumbers(column, None, field.classes, np.asarray(column != -1) if is_class else None, is_class)
        if not _is_list(field):
            return FilterNumbers(np.diff(column.offsets))
        values = column.values.astype(np.uint8) if column.values.dtype.kind == "b" else column.values
        return FilterNumbers(values, column.offsets, field.classes)

    def read_boxes(self, *, is_wanted: bool = True) -> Ragged:
        """Boxes (total, 4), x0, y0, x1, y1; none without such a field, or if they are not wanted."""
        found = self._read(self.boxes) if self.boxes and is_wanted else None
        return (
            found if isinstance(found, Ragged) else Ragged(np.zeros((0, 4)), np.zeros(len(self._store) + 1, np.int64))
        )

    def is_quick(self, name: str) -> bool:
        """Whether the numbers of a field are there at once: they are no lists, were read before, or are few."""
        field = self._schema.fields.get(name)
        if field is None or name in self._columns or len(self._store) <= _FEW:
            return True
        return field.array is None and self._collection.column(name) is not None

    def _read(self, name: str) -> Array | Ragged:
        """The column of a field of numbers or arrays; kept."""
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
        """The values of a small field, without pictures where the store can avoid them; nothing is kept."""
        if name in self._store.schema:
            return self._store._iter_values(name)  # noqa: SLF001  # a column would be kept, with the longest text's width
        return (each[name] for each in self._collection.iter_beside())

    def _iter_texts(self, name: str) -> Iterable[object]:
        """The values of a field of text or JSON; texts are kept, if they are short enough."""
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
    """Whether a value is a list of any number of numbers."""
    return field.array is not None and field.array.axes == (None,)


def _is_boxes(name: str, field: Field) -> bool:
    array = field.array
    is_shaped = array is not None and array.axes == (None, (4,)) and array.dtype.kind in "if"
    return is_shaped and "boxes" in {field.kind, guess_kind(name)}
