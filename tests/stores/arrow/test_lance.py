"""Lance datasets: rows by position, versions, deleted rows, blobs, processes, damaged files."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptRecordError, PenstockError, StoreError, StoreFormatError
from tests.stores.arrow.columns import CLASSES, make_contents, make_table

pa = pytest.importorskip("pyarrow")
lance = pytest.importorskip("lance")


def write(path: Path, table: Any, **options: Any) -> Path:
    """Write a dataset."""
    lance.write_dataset(table, str(path), **options)
    return path


def test_rows_are_read_in_any_order(tmp_path: Path) -> None:
    """Rows of several fragments and repeated ones are read with one request, with labels, classes and keys."""
    contents = make_contents(50)
    path = write(tmp_path / "x.lance", make_table([*contents]), max_rows_per_file=20)
    order = [49, 3, 3, 20, 0, 19]

    with ps.open(path) as store:
        records = store.read(np.array(order))
        blobs = store.blobs("image", order)
        labels = store.column("label")

    assert [bytes(record.fields["image"]) for record in records] == [contents[row] for row in order]
    assert [bytes(blob) for blob in blobs] == [contents[row] for row in order]
    assert [record.key for record in records] == [f"{row}.jpg" for row in order]
    assert labels.tolist() == [row % len(CLASSES) for row in range(50)]
    assert store.schema["label"].classes == tuple(CLASSES)
    assert "50 rows of version 1" in store.description


def test_a_store_keeps_its_version(tmp_path: Path) -> None:
    """Rows that were appended or deleted later are in the newest version; version= opens an older one."""
    contents = make_contents(8)
    path = write(tmp_path / "x.lance", make_table([*contents]))
    with ps.open(path) as first:
        dataset = lance.dataset(str(path))
        dataset.delete("label = 0")
        pickled = pickle.dumps(first)
        assert len(first) == 8
        assert bytes(first[7].fields["image"]) == contents[7]

    kept = [row for row in range(8) if row % len(CLASSES)]
    with ps.open(path) as newest:
        assert [bytes(record.fields["image"]) for record in newest] == [contents[row] for row in kept]
        assert newest.column("label").tolist() == [row % len(CLASSES) for row in kept]
        assert list(newest.keys()) == [f"{row}.jpg" for row in kept]
        assert newest.digest() != first.digest()
    with ps.open(path, version=1) as old:
        assert len(old) == 8
    with pickle.loads(pickled) as again:
        assert len(again) == 8
    with pytest.raises(StoreFormatError, match="cannot be opened"):
        ps.open(path, version=99)


def test_columns_of_blobs_are_read(tmp_path: Path) -> None:
    """Columns in Lance's encoding for large values are read as bytes."""
    contents: list[bytes | None] = [*make_contents(6), None]
    field = pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table({"image": contents, "label": list(range(7))}, pa.schema([field, ("label", pa.int64())]))
    path = write(tmp_path / "x.lance", table)

    with ps.open(path) as store:
        assert store.schema["image"].kind == "image"
        assert [bytes(record.fields["image"]) for record in store.read([5, 0, 3])] == [
            contents[row] for row in (5, 0, 3)
        ]
        assert [record.fields["image"] for record in store.read([6, 1])] == [None, contents[1]]
        assert [bytes(blob) for blob in store.blobs("image", [2, 2])] == [contents[2]] * 2


def read_in_process(pickled: bytes, index: int) -> bytes:
    """An image, read by the store that a worker process unpickles."""
    with pickle.loads(pickled) as store:
        return bytes(store.blobs("image", [index])[0])


def test_spawned_processes_read(tmp_path: Path) -> None:
    """A process that is spawned opens the dataset by itself."""
    contents = make_contents(5)
    with ps.open(write(tmp_path / "x.lance", make_table([*contents]))) as store:
        store.read([0])
        pickled = pickle.dumps(store)

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(read_in_process, (pickled, 3))

    assert found == contents[3]


class Images(ps.Dataset[int]):
    """The sizes of the images in a store, which worker processes read."""

    def __init__(self, store: ps.Store) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> int:
        return len(self.store.read([index])[0].fields["image"])


def test_loaders_start_workers_that_can_read(tmp_path: Path) -> None:
    """Workers that a loader starts as it likes read; those that it must fork say why they cannot."""
    contents = make_contents(8)
    store = ps.open(write(tmp_path / "x.lance", make_table([*contents])))
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "workers": "processes"}

    sizes = [size for batch in ps.DataLoader(Images(store), **options) for size in batch]

    assert sizes == [len(content) for content in contents]
    with pytest.raises(StoreError, match="does not support fork"):
        list(ps.DataLoader(Images(store), **options, multiprocessing_context="fork"))


def test_missing_and_damaged_files_are_errors(tmp_path: Path) -> None:
    """A file that is cut, damaged or missing is an error of penstock, while reading or opening; never a crash."""
    rng = random.Random(2)
    path = write(tmp_path / "x.lance", make_table([*make_contents(12)]))
    files = [file for file in path.rglob("*") if file.suffix in {".lance", ".manifest"}]
    assert len(files) == 2

    for file in files:
        whole = file.read_bytes()
        for number in range(30):
            if number % 2:
                file.write_bytes(whole[: rng.randrange(len(whole))])
            else:
                damaged = bytearray(whole)
                damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
                file.write_bytes(damaged)
            with contextlib.suppress(PenstockError), ps.open(path) as store:
                for index in range(min(len(store), 12)):
                    with contextlib.suppress(PenstockError):
                        store.read([index])
                with contextlib.suppress(PenstockError):
                    store.column("label")
        file.write_bytes(whole)
    with ps.open(path) as store:
        next(file for file in files if file.suffix == ".lance").unlink()
        with pytest.raises(StoreError, match="replaced or changed"):
            store.read([0])


def test_errors_name_the_record(tmp_path: Path) -> None:
    """Pixels of another shape than the stated one are an error that names the record."""
    table = pa.table({"image": [bytes(12), bytes(11)], "label": [0, 1]})
    path = write(tmp_path / "x.lance", table)

    with ps.open(path, image="image", shape=(2, 2, 3), channels="BGR") as store:
        assert store.read([0])[0].fields["image"].shape == (2, 2, 3)
        with pytest.raises(CorruptRecordError) as caught:
            store.read([0, 1])
    assert caught.value.where["index"] == 1
