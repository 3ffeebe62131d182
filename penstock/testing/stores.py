"""What every store promises, as tests: a class that the test of a kind of stores inherits.

::

    class TestCifar(StoreTests):
        maker = StoreMaker(write_cifar, keys=None, classes=(), decoded=crop)

pytest runs it. The tests of the package itself run this class for every registered kind (``tests/conformance``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from penstock import stores
from penstock.errors import (
    ArgumentError,
    PenstockError,
    RecordIndexError,
    RecordKeyError,
    StoreError,
    StoreNotFoundError,
)
from penstock.stores import STORES
from penstock.stores.base import Store
from penstock.testing.child_processes import check_damages, files_of, in_child
from penstock.testing.made_stores import KEYS, LABELS, MadeStore, StoreMaker

__all__ = ["StoreTests"]

MANY = 10_000


def read_all(get_store: Callable[[], Store], made: MadeStore) -> None:
    """Read every record from the last to the first; each is the one of its index."""
    store = get_store()
    for index in reversed(range(len(KEYS))):
        assert made.is_picture(store.read([index])[0].fields["image"], index)


def block(path: Path) -> None:
    """A FIFO, which waits for a writer."""
    os.mkfifo(path)


def circle(path: Path) -> None:
    """A link to itself, which cannot be opened."""
    path.symlink_to(path.name)


def leave_out(path: Path) -> None:
    """Nothing."""


def uses_of(store: Store) -> list[Callable[[], object]]:
    """What may be asked of an open store."""
    last = [len(store) - 1]
    columns = [name for name, field in store.schema.fields.items() if field.kind in {"label", "int", "text"}]
    return [
        store.fingerprint,
        store.digest,
        *(lambda name=name: store.column(name) for name in columns),
        lambda: store.blobs("image", last) if store.schema.fields["image"].is_blob else None,
        lambda: list(store.keys()),
        lambda: store.read(last),
        lambda: pickle.loads(pickle.dumps(store)).close(),
    ]


def store_error(use: Callable[[], object]) -> PenstockError | None:
    """The error of ours that a use of a store raises; another one ends the test."""
    try:
        use()
    except PenstockError as error:
        return error
    return None


class StoreTests:
    """The tests of a kind of stores; a subclass states :attr:`maker`."""

    maker: ClassVar[StoreMaker]
    """How a store of the kind is made."""
    flips: ClassVar[int] = 48
    """How many bits of each file are flipped, one at a time."""

    @pytest.fixture(scope="class")
    @classmethod
    def store_maker(cls) -> StoreMaker:
        """How the store of each test is made; a subclass of several kinds overrides it with parameters."""
        return cls.maker

    @pytest.fixture
    def made(self, store_maker: StoreMaker, tmp_path: Path) -> MadeStore:
        """A store of five records, for one test, which may change it."""
        return MadeStore.make(store_maker, tmp_path)

    @pytest.fixture
    def opened(self, made: MadeStore) -> Iterator[Store]:
        """The same, open; a test may close it."""
        with made.open() as store:
            yield store

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, store_maker: StoreMaker, tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
        """A store for all tests that only read it."""
        return MadeStore.make(store_maker, tmp_path_factory.mktemp("kept"))

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, kept: MadeStore) -> Iterator[Store]:
        """The same, open."""
        with kept.open() as opened:
            yield opened

    def test_no_kind_is_excluded_that_recognises_a_store(self, made: MadeStore) -> None:
        """What excludes a kind without importing it agrees with the kind itself, for the stores of every kind."""
        paths = made.list_paths()
        if not paths:
            pytest.skip("it is not at a path")
        path = str(paths[0])

        recognised = {name for name in STORES if STORES.get(name).recognises(path)}

        assert recognised <= {name for name in STORES if STORES.row(name).may_be_at(path)}

    def test_length_is_the_number_of_records(self, store: Store) -> None:
        """len() counts the records."""
        assert len(store) == len(KEYS)

    def test_records_come_as_asked(self, store: Store, kept: MadeStore) -> None:
        """read() gives the records at the indices, in their order, some repeatedly, with key, image and label."""
        wanted = [3, 0, 4, 3, 1, 2]

        records = store.read(wanted)

        assert [record.index for record in records] == wanted
        assert [record.key for record in records] == [kept.keys[index] for index in wanted]
        assert all(kept.is_picture(r.fields["image"], i) for r, i in zip(records, wanted, strict=True))
        assert [record.fields["label"] for record in records] == [LABELS[index] for index in wanted]

    def test_indices_may_be_an_array(self, store: Store) -> None:
        """read() takes NumPy's integers, as samplers give them."""
        records = store.read(np.array([2, 0], np.int64))

        assert [record.index for record in records] == [2, 0]

    def test_a_mask_is_no_list_of_indices(self, store: Store) -> None:
        """It would be the records 0 and 1, again and again."""
        mask = [True, False, True]
        for given in (mask, np.array(mask)):
            with pytest.raises(ArgumentError, match=r"got bools; of a mask, give numpy\.flatnonzero\(mask\)"):
                store.read(given)
            with pytest.raises(ArgumentError, match="got bools"):
                store.blobs("image", given)

    def test_a_store_is_indexed_and_iterated(self, store: Store, kept: MadeStore) -> None:
        """Ints from either end and slices give what reading gives; iterating, all of it in order."""
        assert store[1].key == store[-4].key == kept.keys[1]
        assert kept.is_picture(store[np.int64(3)].fields["image"], 3)
        assert [record.key for record in store[::-2]] == kept.keys[::-2]
        assert [(record.index, record.key) for record in store] == list(enumerate(kept.keys))
        for outside in (5, -6):
            with pytest.raises(RecordIndexError, match=f"index {outside} is outside"):
                store[outside]
        assert store[kept.keys[2]].index == 2
        with pytest.raises(RecordKeyError, match="no record has the key 'absent'"):
            store["absent"]

    def test_blobs_are_those_of_the_records(self, store: Store) -> None:
        """blobs() gives one large field of the records at the indices, as read_stored(), and refuses other fields."""
        blobs = store.blobs("image", np.array([3, 0, 3]))

        stored = [record.fields["image"] for record in store.read_stored([3, 0, 3])]
        assert [memoryview(blob) == memoryview(value) for blob, value in zip(blobs, stored, strict=True)] == [True] * 3
        with pytest.raises(RecordIndexError):
            store.blobs("image", [len(KEYS)])
        with pytest.raises(ArgumentError):
            store.blobs("label", [0])

    def test_no_indices_give_no_records(self, store: Store) -> None:
        """Reading nothing gives nothing."""
        assert store.read([]) == []

    def test_records_have_the_schema_s_fields(self, store: Store) -> None:
        """Every record has the fields of the schema, encoded ones as bytes-like, pixels as arrays of their kind."""
        record = store.read([0])[0]

        assert set(record.fields) == set(store.schema.fields)
        for name in store.schema.blobs:
            pixels = store.schema[name].pixels
            value = record.fields[name]
            if pixels is None:
                assert memoryview(value).format == "B"
            else:
                assert isinstance(value, np.ndarray)
                assert value.dtype == pixels.dtype
                assert pixels.allows(value.shape)

    def test_blobs_cannot_be_written_to(self, store: Store) -> None:
        """A blob is read-only: nobody can damage a store through what it reads."""
        blob = memoryview(store.read([0])[0].fields["image"])

        assert blob.readonly

    @pytest.mark.parametrize("index", [-1, len(KEYS), 2**40, -(2**70)])
    def test_index_outside_is_refused(self, store: Store, index: int) -> None:
        """An index outside the store is an IndexError that names the store and what it holds."""
        with pytest.raises(RecordIndexError, match="5 records") as caught:
            store.read([0, index])

        assert caught.value.where["store"] == store.url

    def test_labels_are_a_column(self, store: Store) -> None:
        """column("label") gives every label in order, int64 and read-only."""
        column = store.column("label")

        assert column.dtype == np.int64
        assert column.tolist() == list(LABELS)
        assert not column.flags.writeable

    def test_columns_agree_with_records(self, store: Store) -> None:
        """A small field's column holds what the records hold; one whose size varies has none, and says so."""
        records = store.read(range(len(store)))

        for name in store.schema.small:
            array = store.schema[name].array
            if store.schema[name].kind == "json" or (array is not None and array.shape is None):
                with pytest.raises(ArgumentError, match=name):
                    store.column(name)
            else:
                assert store.column(name).tolist() == [np.asarray(record.fields[name]).tolist() for record in records]

    @pytest.mark.parametrize("field", ["image", "nothing"])
    def test_column_of_no_column_is_refused(self, store: Store, field: str) -> None:
        """Images, and fields that are not there, have no column; the message says so."""
        with pytest.raises(ArgumentError, match=field):
            store.column(field)

    def test_keys_are_in_order_of_index(self, store: Store, kept: MadeStore) -> None:
        """keys() is a sequence of the records' names: by index, by negative index, by slice, iterated, searched."""
        keys = store.keys()

        assert len(keys) == len(KEYS)
        assert [keys[index] for index in range(len(KEYS))] == kept.keys
        assert keys[-1] == kept.keys[-1]
        assert list(keys[1:3]) == kept.keys[1:3]
        assert list(keys) == kept.keys
        assert keys.index(kept.keys[2]) == 2
        assert "no/such.jpg" not in keys

    def test_classes_are_named(self, store: Store, kept: MadeStore) -> None:
        """The label field names its classes, where the kind stores them."""
        assert store.schema["label"].classes == kept.maker.classes

    def test_url_opens_the_same_store(self, store: Store, kept: MadeStore) -> None:
        """The URL is understood by open(), with the same options."""
        with stores.open(store.url, **kept.maker.options) as again:
            assert again.url == store.url
            assert list(again.keys()) == kept.keys

    def test_pickled_store_reads_the_same(self, store: Store, kept: MadeStore) -> None:
        """A store survives pickling, as its URL."""
        with pickle.loads(pickle.dumps(store)) as again:
            assert kept.is_picture(again.read([2])[0].fields["image"], 2)

    def test_pickled_store_reads_the_same_in_a_spawned_process(self, made: MadeStore) -> None:
        """A process that shares nothing with this one opens the store that it is given."""
        with made.open() as store:
            path = made.folder / "pickled"
            path.write_bytes(pickle.dumps(store))
            expected = [memoryview(record.fields["image"]).nbytes for record in store.read(range(len(KEYS)))]
        program = (
            "import pickle, pathlib\n"
            f"store = pickle.loads(pathlib.Path({str(path)!r}).read_bytes())\n"
            "print([memoryview(record.fields['image']).nbytes for record in store.read(range(len(store)))])\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

        assert done.stdout.strip() == str(expected)

    def test_pickled_store_does_not_become_another(self, made: MadeStore) -> None:
        """A store that changed since it was pickled is refused, or the record is: no index gives another."""
        with made.open() as store:
            pickled = pickle.dumps(store)
        (made.folder / "photos" / "cats" / "2.jpg").unlink()
        made.remake()

        with pytest.raises(StoreError) as caught:
            read_all(lambda: pickle.loads(pickled), made)
        assert "changed since it was pickled" in caught.value.message or caught.value.where["key"] == made.keys[0]

    def test_a_store_that_is_replaced_while_open_is_refused(self, made: MadeStore) -> None:
        """No index gives the record of another store: after the files were replaced, reading raises soon."""
        store = made.open()
        store.read([0])
        (made.folder / "photos" / "cats" / "2.jpg").unlink()
        made.remake()

        with pytest.raises(StoreError):
            read_all(lambda: store, made)

    def test_closed_store_refuses(self, opened: Store) -> None:
        """A closed store says that it is closed, whatever it is asked."""
        opened.close()

        questions: list[Callable[[], object]] = [
            lambda: opened.read([0]), opened.keys, lambda: opened.column("label"), lambda: pickle.dumps(opened)
        ]  # fmt: skip
        for question in questions:
            with pytest.raises(StoreError, match="closed"):
                question()

    def test_closing_twice_is_harmless(self, opened: Store) -> None:
        """close() may be called again."""
        opened.close()
        opened.close()

    def test_views_outlive_the_store(self, opened: Store, made: MadeStore) -> None:
        """A blob that someone still holds stays readable after the store is closed: a mistake must not crash."""
        blob = opened.read([1])[0].fields["image"]

        opened.close()
        gc.collect()

        assert made.is_picture(blob, 1)

    def test_same_store_opens_twice(self, made: MadeStore) -> None:
        """Two stores on one path work side by side, and closing one leaves the other."""
        first, second = made.open(), made.open()

        first.close()

        assert made.is_picture(second.read([0])[0].fields["image"], 0)
        second.close()

    def test_threads_read_at_once(self, store: Store, kept: MadeStore) -> None:
        """Many threads reading one store each get the right bytes."""
        failures: list[str] = []

        def read(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(50):
                indices = rng.integers(0, len(KEYS), 4)
                for index, record in zip(indices, store.read(indices), strict=True):
                    if not kept.is_picture(record.fields["image"], index):
                        failures.append(record.key)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []

    def test_threads_open_and_close_at_once(self, made: MadeStore) -> None:
        """Opening and closing one path from many threads never fails."""
        failures: list[BaseException] = []

        def visit() -> None:
            try:
                for _ in range(made.rounds):
                    with made.open() as store:
                        assert made.is_picture(store.read([1])[0].fields["image"], 1)
            except BaseException as error:  # noqa: BLE001  # whatever it is, the test reports it
                failures.append(error)

        threads = [threading.Thread(target=visit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []

    def test_store_works_across_a_fork(self, opened: Store, made: MadeStore) -> None:
        """A store opened before a fork reads right in the child, or says that it cannot; and in the parent later."""
        opened.read([0])

        answer = in_child(lambda: made.is_picture(opened.read([4])[0].fields["image"], 4))

        if made.maker.survives_fork:
            assert answer == b"True"
        else:
            assert answer.startswith(b"StoreError(")
            assert b"does not support fork" in answer
        assert made.is_picture(opened.read([3])[0].fields["image"], 3)

    def test_views_work_across_a_fork(self, opened: Store, made: MadeStore) -> None:
        """A blob read before a fork stays readable in the child, also after the child has read by itself."""
        blob = opened.read([0])[0].fields["image"]

        def look() -> bool:
            with contextlib.suppress(*([] if made.maker.survives_fork else [StoreError])):
                opened.read([1])
            gc.collect()
            return made.is_picture(blob, 0)

        assert in_child(look) == b"True"

    def test_opening_leaks_no_descriptors(self, made: MadeStore) -> None:
        """Opening, reading and closing twenty times leaves as many descriptors open as before."""
        made.open().close()
        gc.collect()
        before = len(list(Path("/proc/self/fd").iterdir()))

        for _ in range(20):
            with made.open() as store:
                store.read([0])

        gc.collect()
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_asking_leaves_the_folder_as_it_is(self, made: MadeStore) -> None:
        """len(), repr(), schema, keys and pickling change no file of the store."""

        def look() -> dict[str, bytes]:
            return {str(path): path.read_bytes() for path in sorted(made.folder.rglob("*")) if path.is_file()}

        with made.open() as store:
            before = look()
            len(store), repr(store), store.schema, list(store.keys()), pickle.dumps(store), store.fingerprint()

            assert look() == before

    def test_repr_says_what_it_is(self, opened: Store) -> None:
        """repr() names the store and its fields, and that it is closed once it is."""
        before = repr(opened)
        opened.close()

        assert opened.url in before
        assert "5 records" in before
        assert "closed" in repr(opened)

    def test_missing_store_is_not_found(self, kept: MadeStore, store: Store, tmp_path: Path) -> None:
        """Where nothing is, opening says so."""
        maker = kept.maker
        url = f"{store.location.scheme}://{tmp_path / 'nothing'}" if maker.missing is None else maker.missing(tmp_path)

        with pytest.raises(StoreNotFoundError):
            stores.open(url, **maker.options)

    def test_digest_is_that_of_the_records(self, made: MadeStore) -> None:
        """The digest is stable, and another one as soon as a record differs."""
        with made.open() as store:
            before = store.digest()
            assert store.digest() == before
        file = made.folder / "photos" / "dogs" / "1.jpg"
        with Image.open(file) as image:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(file)
        made.remake()

        with made.open() as store:
            assert store.digest() != before

    def test_fingerprint_is_that_of_a_copy(self, made: MadeStore) -> None:
        """The fingerprint does not depend on when the store was written: written again, it is the same."""
        with made.open() as store:
            before = store.fingerprint()
            made.remake()

        with made.open() as store:
            assert store.fingerprint() == before

    def test_truncated_files_raise_errors_of_ours(self, made: MadeStore) -> None:
        """Each file cut off at some place: an error that can be caught, or the whole records; never a crash."""
        damages = []
        for path in files_of(made):
            whole = path.read_bytes()
            damages += [
                (path, f"{share} of it", whole[: int(share * len(whole))]) for share in (0, 0.1, 0.5, 0.9, 0.999)
            ]

        check_damages(made, damages)

    def test_flipped_bits_raise_errors_of_ours(self, made: MadeStore) -> None:
        """A bit flipped anywhere: an error that can be caught, or records; with checksums, the right ones."""
        rng = np.random.default_rng(0)
        damages = []
        for path in files_of(made):
            whole = path.read_bytes()
            for at in rng.integers(0, len(whole), self.flips).tolist():
                damaged = bytearray(whole)
                damaged[at] ^= 1 << int(rng.integers(8))
                damages.append((path, f"byte {at}", bytes(damaged)))

        check_damages(made, damages)

    @pytest.mark.parametrize("put", [block, circle, Path.mkdir, leave_out])
    def test_what_the_system_refuses_is_an_error_of_ours(self, made: MadeStore, put: Callable[[Path], object]) -> None:
        """Whatever lies in place of a file, before or after the store was opened, an error names the store."""
        paths = made.list_paths()
        if not paths:
            pytest.skip("it is not at a path")
        path = paths[-1]
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        largest = max(files, key=lambda each: (each.stat().st_size, each))

        with made.open() as store:
            assert [store_error(use) for use in uses_of(store)] == [None] * len(uses_of(store))
        with made.open() as store:
            largest.unlink()
            put(largest)
            errors = [store_error(use) for use in uses_of(store)]
        with contextlib.suppress(PenstockError), made.open() as store:  # perhaps of another kind now
            for use in uses_of(store):
                store_error(use)

        assert all(error.where["store"] for error in errors if error is not None)

    def test_many_records_are_read_in_any_order(self, store_maker: StoreMaker, tmp_path: Path) -> None:
        """Opening and random reads of many records work, and give each index its own record."""
        if store_maker.many is None:
            pytest.skip("this kind is not made in numbers here")
        url = store_maker.many(tmp_path, MANY)
        order = np.random.default_rng(1).permutation(MANY)

        with stores.open(url, **store_maker.options) as store:
            assert len(store) == MANY
            labels = store.column("label")
            assert np.bincount(labels).tolist() == [MANY // 1000] * 1000
            for first in range(0, 2048, 64):
                chosen = order[first : first + 64]
                records = store.read(chosen)
                assert [record.fields["label"] for record in records] == labels[chosen].tolist()
                if store_maker.decoded is None:
                    numbers = [int(re.sub(rb"\D", b"", bytes(record.fields["image"]))) for record in records]
                    assert [number % 1000 for number in numbers] == labels[chosen].tolist()
            assert store.read([MANY - 1])[0].index == MANY - 1
