"""The fields of a store as filters see them: columns, numbers of objects, counts, texts, paths in JSON.

Called by :mod:`.finder`. No picture is read, where the kind of store has its small fields apart from them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.ragged import Ragged
from penstock.sample import Array, Field
from penstock.stores.fields.columns import join_values, make_column, refuse_fixed
from penstock.transforms.targets.field_kinds import guess_kind
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.columns import FilterColumn, FilterNumbers, FilterTexts, Mask

__all__ = ["BoxFacts", "FieldColumns"]

_NUMBERS: Final = frozenset({"label", "int", "float"})
_FEW: Final = 50_000
"""Records whose lists are read without being asked for: of more, that takes seconds."""

_KEPT_NBYTES: Final = 48_000_000
"""Texts of a field are kept up to this size, else read again for each filter."""


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """What is kept of the boxes of all records.

    Parameters
    ----------
    offsets : ndarray, shape (n + 1,), int64
        Those of record ``i`` are ``offsets[i]`` to ``offsets[i + 1]``.
    areas : ndarray, shape (total,), float32
        In pixels; 0 where a box is degenerate.
    extents : ndarray, shape (n, 4), float32
        The smallest x0 and y0, and the largest x1 and y1; NaN without boxes.
    degenerate : ndarray, shape (n,), bool
        Records with a box whose width or height is not above 0, or whose numbers are not finite.
    """

    offsets: NDArray[np.int64]
    areas: NDArray[np.float32]
    extents: NDArray[np.float32]
    degenerate: Mask

    @classmethod
    def of(cls, ragged: Ragged) -> BoxFacts:
        """Those of boxes (total, 4), x0, y0, x1, y1."""
        boxes = ragged.values.reshape(-1, 4).astype(np.float32, copy=False)
        offsets = np.asarray(ragged.offsets, np.int64)
        sides = boxes[:, 2:] - boxes[:, :2]
        is_wrong = ~(np.isfinite(boxes).all(1) & (sides > 0).all(1))
        extents = np.full((len(offsets) - 1, 4), np.nan, np.float32)
        has_any = offsets[1:] > offsets[:-1]
        begins = offsets[:-1][has_any]
        degenerate = np.zeros(len(has_any), np.bool_)
        if len(begins):
            extents[has_any, :2] = np.minimum.reduceat(boxes[:, :2], begins)
            extents[has_any, 2:] = np.maximum.reduceat(boxes[:, 2:], begins)
            degenerate[has_any] = np.logical_or.reduceat(is_wrong, begins)
        areas = np.where(is_wrong, np.float32(0), sides[:, 0] * sides[:, 1])
        return cls(offsets, areas, extents, degenerate)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Boxes of each record, (n,)."""
        return np.diff(self.offsets)


class FieldColumns:
    """Columns of the fields of a collection, by name; numbers are kept.

    Parameters
    ----------
    collection : Collection
        Read when a column is first asked for.

    Attributes
    ----------
    boxes, keypoints, classes, scores : str
        The field with the boxes, the keypoints, the class of records or objects, and the scores; empty without one.
    texts : tuple of str
        Fields in which words are searched.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection, self._store = collection, collection.store
        self._schema = collection.schema
        fields = self._schema.fields
        self.boxes = _first(name for name, each in fields.items() if _is_rows(each, 4) and _suits(name, each, "boxes"))
        self.keypoints = _first(
            name for name, each in fields.items()
            if name != self.boxes and _is_rows(each) and _suits(name, each, "keypoints")
        )  # fmt: skip
        labels = [name for name, each in fields.items() if each.kind == "label"]
        lists = (name for name, each in fields.items() if each.classes and _is_list(each))
        # The only class of a folder without sub-folders says nothing.
        self.classes = _first(name for name in labels if len(fields[name].classes) != 1) or next(
            lists, _first(iter(labels))
        )
        self.scores = _first(
            name for name, each in fields.items()
            if "score" in name.lower() and (each.kind == "float" or (_is_list(each) and "float" in each.kind))
        )  # fmt: skip
        self.texts = tuple(name for name, each in fields.items() if each.kind == "text")
        self._lock = threading.RLock()
        self._made: dict[str, FilterNumbers] = {}
        self._boxes: BoxFacts | None = None
        self._kept: dict[str, tuple[bytes, NDArray[np.int64]]] = {}

    def kind(self, name: str) -> str | None:
        """What a field is for filters: "number", "class", "count", "text"; None if it cannot be compared."""
        if name == "key":
            return "text"
        field = self._schema.fields.get(name)
        if field is None:
            return "text" if self._split_path(name) is not None else None
        if field.classes or field.kind == "label":
            return "class"
        if field.kind in {"text", "json"}:
            return "text"
        if field.array is not None and not _is_list(field):
            return "count" if field.array.axes[0] is None and _is_rows(field) else None
        return "number" if field.array is not None or field.kind in _NUMBERS else None

    def column(self, name: str) -> FilterColumn:
        """The values of a field for which :meth:`kind` is not None.

        Raises
        ------
        StoreError
            If they cannot be read.
        """
        count = len(self._store)
        if name == "key" and name not in self._schema:
            return FilterTexts(self._store.keys, count)
        path = self._split_path(name)
        if path is not None:
            return FilterTexts(lambda: self._iter_path(*path), count)
        if self._schema[name].kind in {"text", "json"}:
            return FilterTexts(lambda: self._iter_texts(name), count)
        return self.numbers(name)

    def numbers(self, name: str) -> FilterNumbers:
        """The values of a field of numbers, or of lists of them; kept."""
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make_numbers(name)
            return self._made[name]

    def is_quick(self, name: str) -> bool:
        """Whether the numbers of a field are there at once: they are no lists, were read before, or are few."""
        if name == self.boxes and self._boxes is not None:
            return True
        field = self._schema.fields.get(name)
        if field is None or name in self._made or len(self._store) <= _FEW:
            return True
        return field.array is None and self._collection.column(name) is not None

    def _make_numbers(self, name: str) -> FilterNumbers:
        field = self._schema[name]
        if field.array is None:
            is_stored = name in self._store.schema
            values = self._store.column(name) if is_stored else make_column(name, [*self._iter_values(name)], field, "")
            is_class = field.kind == "label"
            valid = np.asarray(values != -1) if is_class else None
            return FilterNumbers(values, classes=field.classes, valid=valid, is_class=is_class)
        if name == self.boxes:
            return FilterNumbers(self.box_facts().counts)
        if field.array.axes[0] is not None:
            column = self._store.column(name)
            offsets = np.arange(len(column) + 1, dtype=np.int64) * column[:1].size
            return FilterNumbers(_as_number(column.reshape(-1)), offsets, field.classes)
        ragged = self._read_lists(name)
        if _is_list(field):
            return FilterNumbers(_as_number(ragged.values), ragged.offsets, field.classes)
        return FilterNumbers(np.diff(ragged.offsets))

    def box_facts(self, *, if_quick: bool = False) -> BoxFacts:
        """Those of :attr:`boxes`; of no boxes without such a field, and with ``if_quick`` where they take long."""
        if not self.boxes or (if_quick and not self.is_quick(self.boxes)):
            return BoxFacts.of(Ragged(np.zeros((0, 4), np.float32), np.zeros(len(self._store) + 1, np.int64)))
        with self._lock:
            if self._boxes is None:
                self._boxes = BoxFacts.of(self._read_lists(self.boxes))
            return self._boxes

    def _read_lists(self, name: str) -> Ragged:
        if name in self._store.schema:
            return self._store.ragged_column(name)
        return join_values(name, refuse_fixed(name, self._schema[name]), self._iter_values(name), self._store.url)

    def _iter_values(self, name: str) -> Iterator[object]:
        """The values of a small field, without pictures where the store can avoid them; nothing is kept."""
        if name in self._store.schema:
            return self._store._iter_values(name)  # noqa: SLF001  # a column would be kept, with the longest text's width
        return (each[name] for each in self._collection.iter_beside())

    def _iter_texts(self, name: str) -> Iterable[object]:
        """The values of a field of text or JSON; texts are kept, if they are few enough."""
        values = self._iter_values(name)
        if self._schema[name].kind == "json":
            return values
        return self._iter_kept(*self._kept[name]) if name in self._kept else self._keep(name, values)

    def _keep(self, name: str, values: Iterable[object]) -> Iterator[object]:
        nbytes, parts, ends = 0, [], [0]
        for value in values:
            yield value
            if nbytes <= _KEPT_NBYTES:
                parts.append(b"\xff" if value is None else str(value).encode("utf-8", "surrogatepass"))
                nbytes += len(parts[-1])
                ends.append(nbytes)
        if nbytes <= _KEPT_NBYTES:
            self._kept[name] = (b"".join(parts), np.array(ends))

    def _iter_kept(self, joined: bytes, ends: NDArray[np.int64]) -> Iterator[object]:
        begin = 0
        for end in ends[1:].tolist():
            part, begin = joined[begin:end], end
            yield None if part == b"\xff" else part.decode("utf-8", "surrogatepass")

    def _split_path(self, name: str) -> tuple[str, list[str]] | None:
        """The field of JSON and the names inside it that a name with dots means."""
        field, _, rest = name.partition(".")
        while rest and name not in self._schema:
            if field in self._schema and self._schema[field].kind == "json":
                return field, rest.split(".")
            step, _, rest = rest.partition(".")
            field = f"{field}.{step}"
        return None

    def _iter_path(self, field: str, path: list[str]) -> Iterator[object]:
        for each in self._iter_values(field):
            value: object = each
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            yield value


def _first(names: Iterator[str]) -> str:
    return next(names, "")


def _is_list(field: Field) -> bool:
    """Whether a value is a list of numbers: of any length, or of one."""
    return field.array is not None and len(field.array.axes) == 1


def _is_rows(field: Field, width: int | None = None) -> bool:
    """Whether a value is an array of rows of one shape, of any number."""
    array = field.array
    if array is None or len(array.axes) < 2 or array.axes[0] is not None or None in array.axes[1:]:
        return False
    return width is None or (array.axes[1:] == ((width,),) and array.dtype.kind in "if")


def _suits(name: str, field: Field, kind: str) -> bool:
    return field.kind == kind or guess_kind(name) == kind


def _as_number(values: Array) -> Array:
    """Numbers that compare with Python's: booleans as 0 and 1."""
    return values.astype(np.uint8) if values.dtype.kind == "b" else values
