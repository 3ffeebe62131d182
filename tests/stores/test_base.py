"""What the base class gives to every store: one reader at a time where a library asks for it, look-ahead, columns."""

from __future__ import annotations

import io
import os
import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.datasets.store.record_arrays import LazyColumn
from penstock.errors import ArgumentError, RecordKeyError, StoreError
from penstock.sample import Array, Field, Record, Schema
from penstock.stores import STORES
from penstock.stores.base import Indices, Store
from penstock.stores.fields.columns import make_column
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
    assert Store.prefetch(store, [5]) is False
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


def test_the_key_of_a_record_is_found_or_unknown(tmp_path: Path) -> None:
    """What names a record in an error raises none of its own."""
    store = NumberStore(tmp_path)

    assert store.get_key(3) == "3"
    assert store.get_key(COUNT) is None


def test_a_column_of_long_texts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text of a column takes the memory of the longest: the records are read instead."""
    monkeypatch.setattr("penstock.stores.fields.columns._MAX_TEXT_NBYTES", 100)

    assert make_column("caption", ["a" * 12, None], Field("text"), "s").tolist() == ["a" * 12, ""]
    with pytest.raises(StoreError, match="needs more than 100 bytes; read field 'caption'"):
        make_column("caption", ["a" * 13, None], Field("text"), "s")


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


class ServerStore(NumberStore):
    """Photographs of a server, which lets in who has the password."""

    kind: ClassVar[str] = "pets"
    is_remote: ClassVar[bool] = True

    def __init__(self, path: str | os.PathLike[str] | Location) -> None:
        Store.__init__(self, path)
        self.connection = self.location.to_url()
        if ":secret@" not in self.connection:
            raise StoreError("the server refuses this user", store=self.url)
        rng = np.random.default_rng(5)
        self._images = [encode_jpeg(rng) for _ in range(3)]

    @property
    def schema(self) -> Schema:
        """One field."""
        return Schema({"image": Field("image")})

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Indices) -> list[Record]:
        """As many images as are asked for."""
        return [Record(int(index), str(index), {"image": self._images[index]}) for index in indices]

    def keys(self) -> Sequence[str]:
        """The numbers."""
        return [str(index) for index in range(len(self))]


def encode_jpeg(rng: np.random.Generator) -> bytes:
    """A photograph of noise."""
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (40, 48, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


URL = "pets://ann:secret@db:27017/photos?batch=5"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kind of store whose URLs name a server; gives the user's cache folder."""
    monkeypatch.setitem(STORES._entries, "pets", "tests.stores.test_base:ServerStore")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("server")
def test_a_store_of_a_server_is_opened_by_its_url() -> None:
    """The store gets host, query and password; texts, errors and pickles show no password."""
    with ps.open(URL) as store, pickle.loads(pickle.dumps(store)) as copy:
        assert store.location.host == "db:27017"
        assert copy.connection == store.connection == URL  # type: ignore[attr-defined]  # of the class above
        assert store.url == "pets://db:27017/photos?batch=5"
        assert "secret" not in repr(store) + repr(pickle.dumps(store))
    with pytest.raises(StoreError, match="refuses") as caught:
        ps.open(URL.replace(":secret", ":secre7"))
    assert "secre7" not in str(caught.value)


def test_decode_indices_of_a_server_are_kept_in_the_cache_folder(server: Path) -> None:
    """They are made there, found by a dataset and verified, and the store is packed as a folder is."""
    report = ps.index(URL)

    with ps.open(URL) as store:
        dataset = ps.StoreDataset(store, "image", [T.Decode(), T.RandomResizedCrop(16), T.ToLayout("CHW", "uint8")])
        batch = next(iter(ps.DataLoader(dataset, 3)))
        verified = ps.verify(store)
    packed = ps.pack(URL, server / "p.lmdb")

    assert report.indexed == 3
    assert Path(report.path).is_relative_to(server / "penstock")
    assert dataset._seek_tables is not None
    assert len(dataset._seek_tables) == 3
    assert batch.shape == (3, 3, 16, 16)
    assert verified.ok
    assert packed.records == 3


def test_records_are_found_by_key(tmp_path: Path) -> None:
    """The first record of a key; a key that is not there names the store."""
    ps.pack([{"value": number} for number in range(3)], tmp_path / "rows.lmdb")
    with ps.open(tmp_path / "rows.lmdb") as store:
        assert store[store.keys()[2]].index == 2
        with pytest.raises(RecordKeyError, match=r"no record has the key 'absent' \[store=.*rows.lmdb"):
            store["absent"]
