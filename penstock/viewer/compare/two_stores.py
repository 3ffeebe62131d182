"""Two stores, or two versions of one, record by record: what is added, removed, changed, relabelled, unchanged.

::

    keys ──> pairs, added, removed          at once, by sorted hashes
    columns of labels and numbers           some of those that are relabelled
    records, in order, in one thread        bytes of images: changed; other fields: relabelled; errors: unreadable

A pair may be changed and relabelled. ``width`` and ``height`` belong to the image. Called by :mod:`.routes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import PenstockError, check_choice
from penstock.pack.conversion.comparison import Unreadable, choose_step, hash_value, read_each
from penstock.sample import Array, Field, Record, Value
from penstock.stores.common.keys import make_keys
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.matching import count_earlier
from penstock.viewer.session import Background

__all__ = ["KINDS_OF_PAIRS", "FieldPair", "TwoStores", "pair_keys"]

KINDS_OF_PAIRS: Final = ("changed", "relabelled", "removed", "added", "unreadable", "unchanged")
"""What a record, or a pair of them, may be."""
_FLAGS: Final = {"relabelled": 1, "changed": 2, "unreadable": 4}
_OF_IMAGE: Final = frozenset({"width", "height"})
_MAX_TASK_RECORDS: Final = 256
_COLUMNS: Final = frozenset({"label", "int", "float"})
_NO_CLASS: Final = -2
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """Which records of two stores have the same key."""

    before: Indices  # of the pairs in the first store, whose order they have
    after: Indices  # of the pairs in the second store
    removed: Indices  # of the records that only the first store has
    added: Indices  # of those that only the second one has
    repeated: tuple[int, int]  # numbers of records that have the key of an earlier one of their store


def pair_keys(before: Sequence[str], after: Sequence[str]) -> Pairing:
    """Pair the keys of two stores; two keys are taken for equal if their 64-bit hashes (xxh3) are.

    Several records with one key are paired in order: the first with the first, and so on.
    """
    one, other = (_hash_keys(keys) for keys in (before, after))
    ranks, ranks_after = count_earlier(one), count_earlier(other)
    repeated = int(np.count_nonzero(ranks)), int(np.count_nonzero(ranks_after))
    one += ranks.astype(np.uint64) * _ODD
    other += ranks_after.astype(np.uint64) * _ODD
    places, places_after = np.intersect1d(one, other, assume_unique=True, return_indices=True)[1:]
    order = np.argsort(places)
    removed = np.setdiff1d(np.arange(len(one)), places, assume_unique=True)
    added = np.setdiff1d(np.arange(len(other)), places_after, assume_unique=True)
    return Pairing(places[order], places_after[order], removed, added, repeated)


def _hash_keys(keys: Sequence[str]) -> NDArray[np.uint64]:
    return np.fromiter(
        (xxhash.xxh3_64_intdigest(key.encode(errors="surrogatepass")) for key in keys), np.uint64, len(keys)
    )


class FieldPair:
    """A field that both stores have: compares its values, classes by name."""

    def __init__(self, name: str, before: Field, after: Field) -> None:
        self.name, self.before, self.after = name, before, after
        self.flag = _FLAGS["changed" if before.is_blob or after.is_blob or name in _OF_IMAGE else "relabelled"]
        self._numbers: NDArray[np.int64] | None = None
        if before.classes and after.classes and before.classes != after.classes:
            known = {each: number for number, each in enumerate(before.classes)}
            self._numbers = np.array([known.get(each, _NO_CLASS - at) for at, each in enumerate(after.classes)])

    def renumber(self, values: Array) -> Array:
        """Classes of the second store, with the numbers of the first; a class that it lacks gets one below -1."""
        if self._numbers is None:
            return values
        is_class = (values >= 0) & (values < len(self._numbers))
        return np.where(is_class, self._numbers[np.where(is_class, values, 0)], values)

    def is_equal(self, before: Value, after: Value) -> bool:
        """Return whether two values mean the same."""
        if self._numbers is not None and after is not None:
            after = self.renumber(np.asarray(after))
            before = None if before is None else np.asarray(before)
        if isinstance(before, int | str) and type(before) is type(after):
            return bool(before == after)  # as below, and many times faster
        return hash_value(before) == hash_value(after)


class TwoStores(Background):
    """A comparison of two stores, of which the first belongs to the viewer; it is ready when the keys are paired."""

    def __init__(self, before: Collection, after: Collection) -> None:
        super().__init__()
        self.before, self.after = before, after
        one, other = before.store.schema.fields, after.store.schema.fields
        self.fields = [FieldPair(name, one[name], other[name]) for name in one if name in other]
        self.pairing: Pairing | None = None
        self.keys: tuple[Sequence[str], Sequence[str]] = ((), ())
        self.done = 0
        """Number of pairs whose records are compared."""
        self._flags: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def find(self, kind: str) -> tuple[Indices, Indices]:
        """The indices of the records of a kind in either store, -1 where it has none."""
        check_choice("kind", kind, KINDS_OF_PAIRS)
        if self.pairing is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if kind == "removed":
            return self.pairing.removed, np.full(len(self.pairing.removed), -1)
        if kind == "added":
            return np.full(len(self.pairing.added), -1), self.pairing.added
        is_found = self._flags[: self.done] == 0 if kind == "unchanged" else (self._flags & _FLAGS[kind]) > 0
        found = np.flatnonzero(is_found)
        return self.pairing.before[found], self.pairing.after[found]

    def close(self) -> None:
        """End the thread, and close the second store, if it was opened for this."""
        super().close()
        self.after.close()

    def work(self) -> None:
        """Pair the keys, and compare the records."""
        self.keys = make_keys(self.before.store.keys()), make_keys(self.after.store.keys())
        pairing = pair_keys(*self.keys)
        self._flags = np.zeros(len(pairing.before), np.uint8)
        self.pairing = pairing
        self.is_ready.set()
        self._compare_columns(pairing)
        sides = (self.before.store, pairing.before), (self.after.store, pairing.after)
        step = min(choose_step(store, rows[:1].tolist(), _MAX_TASK_RECORDS) for store, rows in sides)
        for first in range(0, len(pairing.before), step):
            if self.stops.is_set():
                return
            some = [read_each(store, rows[first : first + step].tolist()) for store, rows in sides]
            for at, pair in enumerate(zip(*some, strict=True), first):
                self._flags[at] |= self._compare(*pair)
                self.done = at + 1

    def _compare_columns(self, pairing: Pairing) -> None:
        """Compare the numbers of all records at once, without reading them."""
        for field in self.fields:
            if field.flag == _FLAGS["relabelled"] and {field.before.kind, field.after.kind} <= _COLUMNS:
                try:
                    before = self.before.store.column(field.name)[pairing.before]
                    after = field.renumber(self.after.store.column(field.name)[pairing.after])
                except PenstockError:
                    continue  # the records say which of them cannot be read
                self._flags[(before != after) & ~(np.isnan(before) & np.isnan(after))] |= np.uint8(field.flag)

    def _compare(self, before: Record | Unreadable, after: Record | Unreadable) -> int:
        if isinstance(before, Unreadable) or isinstance(after, Unreadable):
            return _FLAGS["unreadable"]
        flags = 0
        for field in self.fields:
            if not flags & field.flag and not field.is_equal(before.fields[field.name], after.fields[field.name]):
                flags |= field.flag
        return flags
