"""A dataset of Hugging Face in memory: its rows, in its order, with its features."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, RecordIndexError, StoreError
from penstock.stores.arrow.hugging_face import HuggingFaceStore
from tests.stores.arrow.columns import CLASSES, make_contents, make_table

datasets = pytest.importorskip("datasets")

COUNT = 30


@pytest.fixture
def dataset() -> Any:
    """A dataset of pictures with class names."""
    return datasets.Dataset(make_table([*make_contents(COUNT)]))


def check(store: Any, rows: list[int]) -> None:
    """Compare a store with rows of the dataset: records, blobs, column, keys, length."""
    contents = make_contents(COUNT)
    assert len(store) == len(rows)
    assert [bytes(record.fields["image"]) for record in store] == [contents[row] for row in rows]
    assert [bytes(blob) for blob in store.blobs("image", range(len(rows)))] == [contents[row] for row in rows]
    assert store.column("label").tolist() == [row % len(CLASSES) for row in rows]
    assert list(store.keys()) == [f"{row}.jpg" for row in rows]
    assert store.keys()[-1] == f"{rows[-1]}.jpg"


def test_rows_are_those_of_the_dataset(dataset: Any) -> None:
    """select and shuffle give the order; the store reads the same rows without copying the table."""
    shuffled = dataset.shuffle(seed=3)

    check(ps.open(dataset), list(range(COUNT)))
    check(ps.open(dataset.select([7, 3, 20])), [7, 3, 20])
    check(ps.open(dataset.select(range(5, 9))), [5, 6, 7, 8])
    check(ps.open(shuffled), [int(image["path"].removesuffix(".jpg")) for image in
                              shuffled.cast_column("image", datasets.Image(decode=False))["image"]])  # fmt: skip
    assert ps.open(dataset).schema["label"].classes == tuple(CLASSES)


def test_features_of_the_dataset_count(dataset: Any) -> None:
    """Columns that were renamed, cast or removed are as the dataset has them now."""
    changed = dataset.rename_column("image", "photo").cast_column("label", datasets.ClassLabel(names=["x", "y", "z"]))

    store = ps.open(changed)

    assert store.schema["label"].classes == ("x", "y", "z")
    assert store.schema["image"].kind == "image"
    assert set(ps.open(dataset.remove_columns("label")).schema.fields) == {"image"}


def test_a_dataset_on_disk_is_read(dataset: Any, tmp_path: Path) -> None:
    """A dataset that was loaded from disk, with indices, is pickled with its files and read again."""
    dataset.save_to_disk(tmp_path / "set", num_shards=2)
    loaded = datasets.load_from_disk(str(tmp_path / "set")).select([9, 4])

    with ps.open(loaded) as store:
        pickled = pickle.dumps(store)
    with pickle.loads(pickled) as again:
        check(again, [9, 4])
    with pytest.raises(StoreError, match="closed"):
        store.read([0])


def test_datasets_train(dataset: Any) -> None:
    """A StoreDataset takes the store; digest and fingerprint tell datasets apart."""
    with ps.open(dataset) as store, ps.open(dataset.select([1, 0])) as other:
        assert ps.StoreDataset(store)[1] is not None
        assert store.digest() != other.digest()
        assert store.fingerprint() != other.fingerprint()
        assert store.fingerprint() == ps.open(dataset).fingerprint()
        with pytest.raises(RecordIndexError):
            store.read([COUNT])
        assert "30 rows of a dataset in memory" in store.description
        assert "30 records" in repr(store)


def test_lists_of_the_dataset_are_read(dataset: Any) -> None:
    """Columns that the dataset made by itself are read: chunks, lists, floats, in the order of its indices."""
    vectors = [[float(row), 1.0] for row in range(COUNT)]
    wide = datasets.concatenate_datasets([dataset.add_column("vector", vectors)] * 2).select([31, 2])

    with ps.open(wide) as store:
        assert [record.fields["vector"].tolist() for record in store] == [[1.0, 1.0], [2.0, 1.0]]
        assert np.asarray(store.column("label")).tolist() == [1, 2]
        assert not store.column("label").flags.writeable


def test_splits_must_be_chosen(dataset: Any) -> None:
    """A mapping of splits is refused with their names; an unknown option, and other objects, as for a path."""
    with pytest.raises(ArgumentError, match="train, test"):
        ps.open(datasets.DatasetDict({"train": dataset, "test": dataset}))
    with pytest.raises(ArgumentError, match="no option 'split'"):
        ps.open(dataset, split="train")
    with pytest.raises(ArgumentError, match="must be a path or a URL, got object"):
        ps.open(object())
    assert not HuggingFaceStore.recognises("photos")


def test_other_objects_do_not_import_datasets() -> None:
    """Whether an object is a dataset is known by its type: datasets is not imported to ask."""
    code = (
        "import sys, penstock as ps\n"
        "try:\n    ps.open(3.5)\n"
        "except ps.ArgumentError:\n    print('datasets' in sys.modules or 'pyarrow' in sys.modules)\n"
    )

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "False\n"
