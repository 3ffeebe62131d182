"""What the base class gives to every store: one reader at a time where a library asks for it, look-ahead, columns."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import Indices, LazyColumn, Store
from penstock.stores.location import Location
from tests.faulty import run_forked

COUNT = 8


class NumberStore(Store):
    """Numbers, of which ``delay_s`` passes while one is read; counts its readers and its columns."""

    kind: ClassVar[str] = "numbers"

    def __init__(self, path: str | os.PathLike[str] | Location, delay_s: float = 0.0) -> None:
        super().__init__(path, delay_s=delay_s)
        self._delay_s = delay_s
        self.readers = self.most_readers = self.columns = 0
        self.announced: list[int] = []

    @property
    def schema(self) -> Schema:
        """One field."""
        return Schema({"value": Field("int")})

    def __len__(self) -> int:
        return COUNT

    def read(self, indices: Indices) -> list[Record]:
        """Count the threads that are inside."""
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        time.sleep(self._delay_s)
        records = [Record(int(index), str(index), {"value": int(index)}) for index in indices]
        self.readers -= 1
        return records

    def prefetch(self, indices: Indices) -> None:
        """Keep what is announced."""
        self.announced += map(int, indices)

    def column(self, field: str) -> Array:
        """Count the calls."""
        self.columns += 1
        return np.arange(COUNT)

    def keys(self) -> Sequence[str]:
        """Read each record for its key."""
        return [self[index].key for index in range(COUNT)]  # while it has the lock

    def digest(self) -> str:
        """The same for every store."""
        return "numbers"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Nothing."""
        return False


class OneReaderStore(NumberStore):
    """The same, of a library that must be called by one thread at a time."""

    reads_concurrently: ClassVar[bool] = False


class DerivedStore(OneReaderStore):
    """A subclass that redefines reading is locked, too."""

    def read(self, indices: Indices) -> list[Record]:
        """As the class above."""
        return super().read(indices)


def read_in_threads(store: NumberStore) -> int:
    """Read by several threads at once; gives the largest number of threads that were inside."""
    threads = [threading.Thread(target=store.read, args=([index],)) for index in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return store.most_readers


def read_one(store: Store) -> None:
    """Read a record."""
    store.read([1])


@pytest.mark.parametrize("kind", [OneReaderStore, DerivedStore])
def test_a_store_that_says_so_is_read_by_one_thread_at_a_time(kind: type[NumberStore], tmp_path: Path) -> None:
    """With reads_concurrently = False, threads wait for one another, in inherited methods as well."""
    assert read_in_threads(kind(tmp_path, 0.01)) == 1


def test_a_locked_store_may_call_itself(tmp_path: Path) -> None:
    """A method that reads, called by the thread that reads, does not wait for itself."""
    assert OneReaderStore(tmp_path).keys() == [str(index) for index in range(COUNT)]


def test_a_fork_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A child that is forked while a thread of the parent reads can read."""
    store = OneReaderStore(tmp_path, 0.2)
    thread = threading.Thread(target=store.read, args=([0],))
    thread.start()
    while store.readers == 0:
        time.sleep(0.001)

    run_forked(read_one, store)

    thread.join()


def test_a_pickled_store_has_a_lock(tmp_path: Path) -> None:
    """The lock is not pickled: the copy has one of its own."""
    copy = pickle.loads(pickle.dumps(OneReaderStore(tmp_path, 0.01)))

    assert read_in_threads(copy) == 1


def test_prefetch_reaches_the_store(tmp_path: Path) -> None:
    """A dataset tells its store which records come next; a store without look-ahead does nothing."""
    store = NumberStore(tmp_path)
    dataset = ps.StoreDataset(store, "value")

    dataset.prefetch(np.array([3, 1]))

    assert store.announced == [3, 1]
    assert Store.prefetch(store, [5]) is None  # type: ignore[func-returns-value]  # that it returns nothing
    assert store.announced == [3, 1]


def test_columns_are_read_when_they_are_needed(tmp_path: Path) -> None:
    """A dataset reads no column when it is made, one when it first fills a batch, and none again."""
    store = NumberStore(tmp_path)
    loader = ps.DataLoader(ps.StoreDataset(store, "value"), 4)
    before = store.columns

    batches = [batch.tolist() for _ in range(2) for batch in loader]

    assert before == 0
    assert store.columns == 1
    assert batches == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_column_is_pickled_without_its_values(tmp_path: Path) -> None:
    """A worker process reads a column from its own store."""
    column = LazyColumn(NumberStore(tmp_path), "value")
    column[np.arange(3)]

    copy = pickle.loads(pickle.dumps(column))

    assert copy._values is None
    assert copy[np.array([7, 0])].tolist() == [7, 0]


def test_a_store_is_read_only_unless_it_says_otherwise(tmp_path: Path) -> None:
    """The writer of a kind that has none is an error that names the kind and the destination."""
    with pytest.raises(ArgumentError, match="kind 'numbers' cannot be written, got destination 'numbers://"):
        NumberStore.writer(NumberStore.locate(tmp_path), NumberStore(tmp_path).schema, "source")
