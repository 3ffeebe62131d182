"""Two stores, or two versions of one, record by record: what is added, removed, changed, relabelled, unchanged.

::

    keys ──> pairs, added, removed          at once
    columns of labels and numbers           some of those that are relabelled
    records, in order, in one thread        bytes of images: changed; other fields: relabelled; errors: unreadable

A pair may be changed and relabelled. ``width`` and ``height`` belong to the image. Called by :mod:`.routes`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError
from penstock.pack.conversion.comparison import Unreadable, choose_step, hash_value, read_each
from penstock.sample import Array, Field, Record, Value
from penstock.stores.common.keys import make_keys
from penstock.stores.pack.sharded import ShardedPack
from penstock.stores.pack.store import LmdbStore
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.pairing import Pairing, pair_keys

__all__ = ["KINDS_OF_PAIRS", "FieldPair", "TwoStores"]

KINDS_OF_PAIRS: Final = ("changed", "relabelled", "removed", "added", "unreadable", "unchanged")
"""What a record, or a pair of them, may be."""
_RELABELLED: Final = 1
_CHANGED: Final = 2
_UNREADABLE: Final = 4
_OF_IMAGE: Final = frozenset({"width", "height"})
_MAX_TASK_RECORDS: Final = 256
_COLUMNS: Final = frozenset({"label", "int", "float"})
_NO_CLASS: Final = -2
_LOGGER: Final = logging.getLogger(__name__)
Indices = NDArray[np.int64]


class FieldPair:
    """A field that both stores have: compares its values, classes by name."""

    def __init__(self, name: str, before: Field, after: Field) -> None:
        self.name, self.before, self.after = name, before, after
        self.flag = _CHANGED if before.is_blob or after.is_blob or name in _OF_IMAGE else _RELABELLED
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
        """Whether two values mean the same."""
        if self._numbers is not None and after is not None:
            after = self.renumber(np.asarray(after))
            before = None if before is None else np.asarray(before)
        if isinstance(before, int | str) and type(before) is type(after):
            return bool(before == after)  # as below, and many times faster
        return hash_value(before) == hash_value(after)


class TwoStores:
    """A comparison of two stores, which a thread makes.

    Parameters
    ----------
    before, after : Collection
        The stores; the first belongs to the viewer.
    """

    def __init__(self, before: Collection, after: Collection) -> None:
        self.before, self.after = before, after
        names = [name for name in before.store.schema.fields if name in after.store.schema]
        self.fields = [FieldPair(name, before.store.schema[name], after.store.schema[name]) for name in names]
        self.only_before = [name for name in before.store.schema.fields if name not in names]
        self.only_after = [name for name in after.store.schema.fields if name not in names]
        self.pairing: Pairing | None = None
        self.keys: tuple[Sequence[str], Sequence[str]] = ((), ())
        """Those of either store, once they are read."""
        self.done = 0
        """Number of pairs whose records are compared."""
        self.error = ""
        self._flags: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stops = threading.Event()
        self._paired = threading.Event()

    def start(self) -> None:
        """Begin to compare, if it was not begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-view-compare", daemon=True)
                self._thread.start()

    def wait_for_keys(self, timeout_s: float) -> bool:
        """Wait until the keys are paired; whether they are."""
        return self._paired.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def count(self) -> dict[str, int]:
        """The number of records of each kind; those that are not compared yet are of no kind."""
        return {kind: len(self.find(kind)[0]) for kind in KINDS_OF_PAIRS}

    def find(self, kind: str) -> tuple[Indices, Indices]:
        """The indices of the records of a kind in either store, -1 where it has none.

        Raises
        ------
        ArgumentError
            If there is no such kind.
        """
        if kind not in KINDS_OF_PAIRS:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS_OF_PAIRS)}, got {kind!r:.100}")
        none = np.zeros(0, np.int64)
        if self.pairing is None:
            return none, none
        if kind == "removed":
            return self.pairing.removed, np.full(len(self.pairing.removed), -1)
        if kind == "added":
            return np.full(len(self.pairing.added), -1), self.pairing.added
        flags, done = self._flags, self.done
        if kind == "unchanged":
            found = np.flatnonzero(flags[:done] == 0)
        else:
            flag = {"changed": _CHANGED, "relabelled": _RELABELLED, "unreadable": _UNREADABLE}[kind]
            found = np.flatnonzero(flags & flag)
        return self.pairing.before[found], self.pairing.after[found]

    def close(self) -> None:
        """End the thread, and close the second store, if it was opened for this."""
        self._stops.set()
        if self._thread is not None:
            self._thread.join()
        self.after.close()

    def _run(self) -> None:
        try:
            self.keys = make_keys(self.before.store.keys()), make_keys(self.after.store.keys())
            pairing = pair_keys(*self.keys)
            self._flags = np.zeros(len(pairing.before), np.uint8)
            self.pairing = pairing
            self._paired.set()
            if self._has_equal_records():
                self.done = len(pairing.before)
                return
            self._compare_columns(pairing)
            for first, flags in self._compare_records(pairing):
                self._flags[first : first + len(flags)] |= flags
                self.done = first + len(flags)
        except Exception as error:
            _LOGGER.exception("comparing %s with %s failed", self.before.store.url, self.after.store.url)
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._paired.set()

    def _has_equal_records(self) -> bool:
        one, other = self.before.store, self.after.store
        if not isinstance(one, LmdbStore | ShardedPack) or not isinstance(other, LmdbStore | ShardedPack):
            return False  # fingerprints of other kinds may be of names and labels alone
        return one.schema == other.schema and one.fingerprint() == other.fingerprint()

    def _compare_columns(self, pairing: Pairing) -> None:
        """Compare the numbers of all records at once, without reading them."""
        for field in self.fields:
            if (
                self._stops.is_set()
                or field.flag != _RELABELLED
                or not {field.before.kind, field.after.kind} <= _COLUMNS
            ):
                continue
            try:
                before = self.before.store.column(field.name)[pairing.before]
                after = field.renumber(self.after.store.column(field.name)[pairing.after])
            except PenstockError:
                continue  # the records say which of them cannot be read
            is_other = (before != after) & ~(np.isnan(before) & np.isnan(after))
            self._flags[is_other] |= np.uint8(_RELABELLED)

    def _compare_records(self, pairing: Pairing) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        count = len(pairing.before)
        step = min(
            choose_step(side, rows[:1].tolist(), _MAX_TASK_RECORDS)
            for side, rows in ((self.before.store, pairing.before), (self.after.store, pairing.after))
        )
        for first in range(0, count, step):
            if self._stops.is_set():
                return
            rows = slice(first, min(first + step, count))
            yield first, self._compare_some(pairing.before[rows].tolist(), pairing.after[rows].tolist())

    def _compare_some(self, before: Sequence[int], after: Sequence[int]) -> NDArray[np.uint8]:
        found = zip(read_each(self.before.store, before), read_each(self.after.store, after), strict=True)
        return np.array([self._compare(*pair) for pair in found], np.uint8)

    def _compare(self, before: Record | Unreadable, after: Record | Unreadable) -> int:
        if isinstance(before, Unreadable) or isinstance(after, Unreadable):
            return _UNREADABLE
        flags = 0
        for field in self.fields:
            if not flags & field.flag and not field.is_equal(before.fields[field.name], after.fields[field.name]):
                flags |= field.flag
        return flags
