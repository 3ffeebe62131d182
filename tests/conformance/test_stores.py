"""What every registered store promises; a new one inherits these tests by its registration and a maker below."""

from __future__ import annotations

import gc
import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError, RecordIndexError, StoreError, StoreNotFoundError
from penstock.stores import STORES
from penstock.stores import open as open_store
from penstock.stores.base import Store

KEYS = ["cats/2.jpg", "cats/10.jpg", "dogs/1.jpg", "dogs/2.jpg", "dogs/3.png"]
LABELS = [0, 0, 1, 1, 1]


def write_images(folder: Path) -> dict[str, bytes]:
    """Write the five pictures, each another one; gives their bytes by key."""
    rng = np.random.default_rng(7)
    contents = {}
    for number, key in enumerate(KEYS):
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (8 + number, 9 + 3 * number, 3), np.uint8)
        Image.fromarray(pixels).save(file, "PNG" if key.endswith("png") else "JPEG")
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(file.getvalue())
        contents[key] = file.getvalue()
    return contents


def make_files(folder: Path) -> str:
    """The pictures as they are."""
    return str(folder / "photos")


def make_lmdb(folder: Path) -> str:
    """The pictures, packed."""
    ps.pack(folder / "photos", folder / "photos.lmdb")
    return str(folder / "photos.lmdb")


MAKERS: dict[str, Callable[[Path], str]] = {"files": make_files, "lmdb": make_lmdb}


@pytest.fixture
def contents(tmp_path: Path) -> dict[str, bytes]:
    """The bytes that the store under test must give, by key."""
    return write_images(tmp_path / "photos")


@pytest.fixture(params=list(STORES))
def path(request: pytest.FixtureRequest, tmp_path: Path, contents: dict[str, bytes]) -> str:
    """A store of each registered kind, on disk, with the same five records."""
    return MAKERS[request.param](tmp_path)


@pytest.fixture
def store(path: str) -> Iterator[Store]:
    """The same, open."""
    with open_store(path) as opened:
        yield opened


def test_every_registered_store_is_made_here() -> None:
    """A store that is registered is held to this suite."""
    assert set(MAKERS) == set(STORES)


def test_length_is_the_number_of_records(store: Store) -> None:
    """len() counts the records."""
    assert len(store) == len(KEYS)


def test_records_come_as_asked(store: Store, contents: dict[str, bytes]) -> None:
    """read() gives the records at the indices, in their order, repeated where repeated, with key, bytes and label."""
    wanted = [3, 0, 4, 3, 1, 2]

    records = store.read(wanted)

    assert [record.index for record in records] == wanted
    assert [record.key for record in records] == [KEYS[index] for index in wanted]
    assert [bytes(record.fields["image"]) for record in records] == [contents[KEYS[index]] for index in wanted]
    assert [record.fields["label"] for record in records] == [LABELS[index] for index in wanted]


def test_indices_may_be_an_array(store: Store) -> None:
    """read() takes NumPy's integers, as samplers give them."""
    records = store.read(np.array([2, 0], np.int64))

    assert [record.index for record in records] == [2, 0]


def test_a_store_is_indexed_and_iterated(store: Store, contents: dict[str, bytes]) -> None:
    """Ints from either end and slices give what reading gives; iterating, all of it in order."""
    assert store[1].key == store[-4].key == KEYS[1]
    assert bytes(store[np.int64(3)].fields["image"]) == contents[KEYS[3]]
    assert [record.key for record in store[::-2]] == KEYS[::-2]
    assert [(record.index, record.key) for record in store] == list(enumerate(KEYS))
    for outside in (5, -6):
        with pytest.raises(RecordIndexError, match=f"index {outside} is outside"):
            store[outside]
    with pytest.raises(ArgumentError, match="an int or a slice, got str"):
        store["cats/2.jpg"]  # type: ignore[call-overload]  # the mistake under test


def test_blobs_are_those_of_the_records(store: Store, contents: dict[str, bytes]) -> None:
    """blobs() gives one encoded field of the records at the indices, as read() does, and refuses other fields."""
    blobs = store.blobs("image", np.array([3, 0, 3]))

    assert [bytes(blob) for blob in blobs] == [contents[KEYS[index]] for index in (3, 0, 3)]
    with pytest.raises(RecordIndexError):
        store.blobs("image", [len(KEYS)])
    with pytest.raises(ArgumentError):
        store.blobs("label", [0])


def test_no_indices_give_no_records(store: Store) -> None:
    """Reading nothing gives nothing."""
    assert store.read([]) == []


def test_records_have_the_schema_s_fields(store: Store) -> None:
    """Every record has exactly the fields of the schema, blobs as bytes-like."""
    record = store.read([0])[0]

    assert set(record.fields) == set(store.schema.fields)
    assert all(memoryview(record.fields[name]).format == "B" for name in store.schema.blobs)


def test_blobs_cannot_be_written_to(store: Store) -> None:
    """A blob is read-only: nobody can damage a store through what it reads."""
    blob = memoryview(store.read([0])[0].fields["image"])

    assert blob.readonly


@pytest.mark.parametrize("index", [-1, len(KEYS), 2**40, -(2**70)])
def test_index_outside_is_refused(store: Store, index: int) -> None:
    """An index outside the store is an IndexError that names the store and what it holds."""
    with pytest.raises(RecordIndexError, match="5 records") as caught:
        store.read([0, index])

    assert caught.value.where["store"] == store.url


def test_labels_are_a_column(store: Store) -> None:
    """column("label") gives every label in order, int64 and read-only."""
    column = store.column("label")

    assert column.dtype == np.int64
    assert column.tolist() == LABELS
    assert not column.flags.writeable


def test_columns_agree_with_records(store: Store) -> None:
    """A small field's column holds what the records hold."""
    records = store.read(range(len(store)))

    for name in store.schema.small:
        assert store.column(name).tolist() == [record.fields[name] for record in records]


@pytest.mark.parametrize("field", ["image", "nothing"])
def test_column_of_no_column_is_refused(store: Store, field: str) -> None:
    """Images, and fields that are not there, have no column; the message says so."""
    with pytest.raises(ArgumentError, match=field):
        store.column(field)


def test_keys_are_in_order_of_index(store: Store) -> None:
    """keys() is a sequence of the records' names: by index, by negative index, by slice, iterated, searched."""
    keys = store.keys()

    assert len(keys) == len(KEYS)
    assert [keys[index] for index in range(len(KEYS))] == KEYS
    assert keys[-1] == KEYS[-1]
    assert list(keys[1:3]) == KEYS[1:3]
    assert list(keys) == KEYS
    assert keys.index("dogs/1.jpg") == 2
    assert "no/such.jpg" not in keys


def test_classes_are_named(store: Store) -> None:
    """The label field names its classes."""
    assert store.schema["label"].classes == ("cats", "dogs")


def test_url_opens_the_same_store(store: Store) -> None:
    """The URL is understood by open()."""
    with open_store(store.url) as again:
        assert again.url == store.url
        assert list(again.keys()) == KEYS


def test_pickled_store_reads_the_same(store: Store, contents: dict[str, bytes]) -> None:
    """A store survives pickling, as its URL."""
    with pickle.loads(pickle.dumps(store)) as again:
        assert bytes(again.read([2])[0].fields["image"]) == contents[KEYS[2]]


def read_all(store: Store, contents: dict[str, bytes]) -> None:
    """Read every record from the last to the first; each is the one of its key."""
    for index in reversed(range(len(KEYS))):
        assert bytes(store.read([index])[0].fields["image"]) == contents[KEYS[index]]


def test_pickled_store_does_not_become_another(path: str, tmp_path: Path, contents: dict[str, bytes]) -> None:
    """A store that changed since it was pickled is refused, or the record that changed is: no index gives another."""
    with open_store(path) as store:
        pickled = pickle.dumps(store)
    gc.collect()
    (tmp_path / "photos" / "cats" / "2.jpg").unlink()
    if not path.endswith("photos"):
        ps.pack(tmp_path / "photos", path, overwrite=True)

    with pytest.raises(StoreError) as caught:
        read_all(pickle.loads(pickled), contents)
    assert "changed since it was pickled" in caught.value.message or caught.value.where["key"] == KEYS[0]


def test_closed_store_refuses(store: Store) -> None:
    """A closed store says that it is closed, whatever it is asked."""
    store.close()

    for question in (lambda: store.read([0]), store.keys, lambda: store.column("label"), lambda: pickle.dumps(store)):
        with pytest.raises(StoreError, match="closed"):
            question()


def test_closing_twice_is_harmless(store: Store) -> None:
    """close() may be called again."""
    store.close()
    store.close()


def test_views_outlive_the_store(store: Store, contents: dict[str, bytes]) -> None:
    """A blob that someone still holds stays readable after the store is closed: a mistake must not crash."""
    blob = store.read([1])[0].fields["image"]

    store.close()
    gc.collect()

    assert bytes(blob) == contents[KEYS[1]]


def test_same_store_opens_twice(path: str, contents: dict[str, bytes]) -> None:
    """Two stores on one path work side by side, and closing one leaves the other."""
    first, second = open_store(path), open_store(path)

    first.close()

    assert bytes(second.read([0])[0].fields["image"]) == contents[KEYS[0]]
    second.close()


def test_threads_read_at_once(store: Store, contents: dict[str, bytes]) -> None:
    """Many threads reading one store each get the right bytes."""
    failures: list[str] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            indices = rng.integers(0, len(KEYS), 4)
            for index, record in zip(indices, store.read(indices), strict=True):
                if bytes(record.fields["image"]) != contents[KEYS[index]]:
                    failures.append(record.key)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_threads_open_and_close_at_once(path: str, contents: dict[str, bytes]) -> None:
    """Opening and closing one path from many threads never fails."""
    failures: list[BaseException] = []

    def visit() -> None:
        try:
            for _ in range(50):
                with open_store(path) as store:
                    assert bytes(store.read([1])[0].fields["image"]) == contents[KEYS[1]]
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test reports it
            failures.append(error)

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def in_child(work: Callable[[], bytes]) -> bytes:
    """Run ``work`` in a forked child; gives what it returned, or the text of what it raised."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001  # the parent compares and shows it
            answer = repr(error).encode()
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_store_works_across_a_fork(store: Store, contents: dict[str, bytes]) -> None:
    """A store opened before a fork reads right in the child, and in the parent afterwards."""
    store.read([0])

    answer = in_child(lambda: bytes(store.read([4])[0].fields["image"]))

    assert answer == contents[KEYS[4]]
    assert bytes(store.read([3])[0].fields["image"]) == contents[KEYS[3]]


def test_views_work_across_a_fork(store: Store, contents: dict[str, bytes]) -> None:
    """A blob read before a fork stays readable in the child, also after the child has read by itself."""
    blob = store.read([0])[0].fields["image"]

    def look() -> bytes:
        store.read([1])
        gc.collect()
        return bytes(blob)

    assert in_child(look) == contents[KEYS[0]]


def test_opening_leaks_no_descriptors(path: str) -> None:
    """Opening, reading and closing a hundred times leaves as many descriptors open as before."""
    open_store(path).close()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(100):
        with open_store(path) as store:
            store.read([0])

    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_repr_says_what_it_is(store: Store) -> None:
    """repr() names the store and its fields, and that it is closed once it is."""
    opened = repr(store)
    store.close()

    assert store.url in opened
    assert "5 records" in opened
    assert "closed" in repr(store)


@pytest.mark.parametrize("name", list(STORES))
def test_missing_store_is_not_found(name: str, tmp_path: Path) -> None:
    """Where nothing is, opening says so."""
    with pytest.raises(StoreNotFoundError):
        open_store(f"{name}://{tmp_path / 'nothing'}")


def test_digest_is_that_of_the_records(path: str, tmp_path: Path) -> None:
    """The digest is stable, and another one as soon as a record differs."""
    with open_store(path) as store:
        before = store.digest()
        assert store.digest() == before
    gc.collect()
    file = tmp_path / "photos" / "dogs" / "1.jpg"
    file.write_bytes(file.read_bytes() + b"\0")
    if not path.endswith("photos"):
        ps.pack(tmp_path / "photos", path, overwrite=True)

    with open_store(path) as store:
        assert store.digest() != before
