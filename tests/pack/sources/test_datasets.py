"""Packing datasets that are read by index: torch's, Hugging Face's, arrays and columns; in threads and processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

import penstock as ps
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.workers.processes.start import Launcher
from tests.pack.images import make_photos, picture
from tests.pack.sources.test_iterables import commit_often, kinds, stop


class Squares(torch.utils.data.Dataset[Any]):
    """A map-style dataset of torch's; some samples fail."""

    classes = ("even", "odd")

    def __init__(self, length: int = 40, broken: tuple[int, ...] = (), scale: int = 1) -> None:
        self.length, self.broken, self.scale = length, broken, scale
        self.process = os.getpid()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        if index in self.broken:
            raise RuntimeError(f"sample {index} is broken")
        return picture(index * self.scale), index % 2


def assert_squares(path: Path, count: int = 40) -> None:
    """A pack has the samples of :class:`Squares`."""
    with ps.open(path) as store:
        assert store.schema["label"] == ps.Field("label", ("even", "odd"))
        assert list(store.keys()) == [str(index) for index in range(count)]
        for record in store:
            assert bytes(record.fields["image"]) == picture(record.index)
            assert record.fields["label"] == record.index % 2


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_map_style_dataset_is_packed_by_index(jobs: int, tmp_path: Path) -> None:
    """In threads or processes, in its order, with its classes."""
    report = ps.pack(Squares(), tmp_path / "p.lmdb", jobs=jobs)

    assert report.records == 40
    assert_squares(tmp_path / "p.lmdb")


def test_processes_and_threads_write_the_same_bytes(tmp_path: Path) -> None:
    """A folder too may be read and checked in processes."""
    photos = make_photos(tmp_path / "photos", 40)

    ps.pack(photos, tmp_path / "a.lmdb", check="decode", jobs=2)
    ps.pack(photos, tmp_path / "b.lmdb", check="decode")

    assert (tmp_path / "a.lmdb/data.mdb").read_bytes() == (tmp_path / "b.lmdb/data.mdb").read_bytes()


@pytest.mark.parametrize("jobs", [0, 2])
def test_samples_that_raise_are_listed(jobs: int, tmp_path: Path) -> None:
    """With their index and the error; they may be left out."""
    dataset = Squares(broken=(0, 33))

    with pytest.raises(ps.PackError, match=r"(?s)0: dataset\[0\] raised RuntimeError: sample 0 is broken.*33: "):
        ps.pack(dataset, tmp_path / "p.lmdb", jobs=jobs)
    report = ps.pack(dataset, tmp_path / "p.lmdb", jobs=jobs, on_error="skip")

    assert [entry.key for entry in report.skipped] == ["0", "33"]
    assert report.records == 38


class Killer(Squares):
    """Ends the process that builds sample 30, unless it is the one that made the dataset."""

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        if index == 31 and os.getpid() != self.process:
            os._exit(1)
        return super().__getitem__(index)


def test_a_process_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed stays, and the pack is resumed."""
    commit_often(monkeypatch)
    with pytest.raises(ps.WorkerError, match="a process that loads records died"):
        ps.pack(Killer(), tmp_path / "p.lmdb", jobs=2)

    assert ps.pack(Killer(), tmp_path / "p.lmdb").records == 40
    assert_squares(tmp_path / "p.lmdb")


class Variable(Squares):
    """The label is an environment variable."""

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return picture(index), int(os.environ["PENSTOCK_TEST_LABEL"])


def test_processes_have_the_environment_of_their_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a fork server too, whatever it was when that was started."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(Launcher, "choose", lambda *_: Launcher(context, needs_main=False))
    for label in (0, 1):
        monkeypatch.setenv("PENSTOCK_TEST_LABEL", str(label))
        ps.pack(Variable(), tmp_path / f"{label}.lmdb", jobs=2)
        with ps.open(tmp_path / f"{label}.lmdb") as store:
            assert {record.fields["label"] for record in store} == {label}


@pytest.mark.parametrize("jobs", [0, 2])
def test_an_interrupted_pack_of_a_dataset_is_resumed(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class, length and some samples tell it; a finished pack is not used again, since others may differ."""
    commit_often(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(Squares(), tmp_path / "p.lmdb", progress=stop, jobs=jobs)
    with pytest.raises(ps.StoreError, match="source was changed"):
        ps.pack(Squares(scale=2), tmp_path / "p.lmdb")

    report = ps.pack(Squares(), tmp_path / "p.lmdb", jobs=jobs)

    assert 0 < report.resumed < 40
    assert_squares(tmp_path / "p.lmdb")
    with pytest.raises(ps.ArgumentError, match=r"is a finished pack of 40 records; overwrite=True"):
        ps.pack(Squares(), tmp_path / "p.lmdb")


def test_a_source_id_makes_a_finished_pack_usable_again(tmp_path: Path) -> None:
    """The caller promises that the samples are the same."""
    ps.pack(Squares(), tmp_path / "p.lmdb", source_id="squares 1")

    assert ps.pack(Squares(), tmp_path / "p.lmdb", source_id="squares 1").reused
    with pytest.raises(ps.ArgumentError, match="finished pack"):
        ps.pack(Squares(), tmp_path / "p.lmdb", source_id="squares 2")


def test_keys_of_samples_are_compared(tmp_path: Path) -> None:
    """They are known when a sample is built; one that occurs twice is listed."""
    rows = [{"id": name, "x": 1} for name in ("a", "b", "A")]

    with pytest.raises(ps.PackError, match=r"A: its name equals that of an earlier record"):
        ps.pack(rows, tmp_path / "p.lmdb", key="id")
    ps.pack(rows[:2], tmp_path / "p.lmdb", key="id")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert list(store.keys()) == ["a", "b"]


@pytest.mark.parametrize("kind", ["arrays", "tensors", "dataset"])
def test_columns_of_arrays_are_records(kind: str, tmp_path: Path) -> None:
    """A mapping of columns, an ArrayDataset: row i is record i. Arrays are hashed: a finished pack is used again."""
    columns: dict[str, Any] = {"x": np.arange(20.0).reshape(5, 4), "label": np.arange(5)}
    source: Any = columns
    if kind == "tensors":
        source = {name: torch.from_numpy(column) for name, column in columns.items()}
    if kind == "dataset":
        source = ps.ArrayDataset(**columns)

    ps.pack(source, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store) == {"x": "float64[4]", "label": "label"}
        assert np.array_equal([record.fields["x"] for record in store], columns["x"])
    if kind != "dataset":
        assert ps.pack(source, tmp_path / "p.lmdb").reused
        columns["x"][3, 2] = 9
        with pytest.raises(ps.ArgumentError, match="source was changed"):
            ps.pack(source, tmp_path / "p.lmdb")


def test_an_array_is_a_record_for_each_row(tmp_path: Path) -> None:
    """Of a name that may be given."""
    ps.pack(np.arange(6).reshape(3, 2), tmp_path / "p.lmdb", names="tokens")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert [record.fields["tokens"].tolist() for record in store] == [[0, 1], [2, 3], [4, 5]]


def make_rows() -> datasets.Dataset:
    """Rows of a dataset of Hugging Face, with many kinds of features."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "caption": datasets.Value("string"),
            "tags": datasets.List(datasets.ClassLabel(names=["a", "b", "c"])),
            "scores": datasets.List(datasets.Value("float32")),
            "count": datasets.Value("int16"),
            "weight": datasets.Value("float32"),
            "objects": {"name": datasets.Value("string"), "area": datasets.List(datasets.Value("int64"))},
        }
    )
    columns = {
        "image": [{"bytes": picture(number), "path": None} for number in range(6)],
        "label": [0, 1, 0, 1, 0, 1],
        "caption": [f"picture {number}" for number in range(6)],
        "tags": [[], [0], [1, 2], [0], [0], [0]],
        "scores": [[0.5] * number for number in range(6)],
        "count": list(range(6)),
        "weight": [None, 0.5, 0.5, 0.5, 0.5, 0.5],
        "objects": [{"name": "x", "area": [number]} for number in range(6)],
    }
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.mark.parametrize("form", ["dataset", "torch", "iterable"])
def test_rows_of_hugging_face_keep_their_encoded_images(form: str, tmp_path: Path) -> None:
    """No picture is decoded; kinds and classes are those of the features."""
    rows: Any = make_rows()
    source = {"dataset": rows, "torch": rows.with_format("torch"), "iterable": rows.to_iterable_dataset()}[form]

    ps.pack(source, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        fields = dict(store.schema.fields)
        assert fields["label"] == ps.Field("label", ("cat", "dog"))
        assert fields["tags"] == ps.Field("int64[*]", ("a", "b", "c"))
        assert {name: field.kind for name, field in fields.items()} == {
            "image": "image", "label": "label", "caption": "text", "tags": "int64[*]", "scores": "float32[*]",
            "count": "int", "weight": "float", "objects": "json", "width": "int", "height": "int",
        }  # fmt: skip
        for record, row in zip(store, make_rows().cast_column("image", datasets.Image(decode=False)), strict=True):
            assert bytes(record.fields["image"]) == row["image"]["bytes"]
            assert record.fields["tags"].tolist() == row["tags"]
            assert record.fields["scores"].tolist() == row["scores"]
            for name in ("label", "caption", "count", "weight", "objects"):
                assert record.fields[name] == row[name]


def test_a_finished_pack_of_hugging_face_is_used_again(tmp_path: Path) -> None:
    """The library's fingerprint tells the dataset from others. Splits are packed one by one."""
    rows = make_rows()
    ps.pack(rows, tmp_path / "p.lmdb", jobs=1)

    assert ps.pack(rows, tmp_path / "p.lmdb").reused
    with pytest.raises(ps.ArgumentError, match="one split, got splits 'train'"):
        ps.pack(datasets.DatasetDict(train=rows), tmp_path / "q.lmdb")


def test_batches_are_the_records_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that need no conversion are written without an object for each record, to the same bytes."""
    columns: dict[str, Any] = {
        "x": np.random.default_rng(0).random((1300, 3), np.float32), "label": np.arange(1300, dtype=np.int32),
        "weight": np.arange(1300, dtype=np.float32) / 8,
    }  # fmt: skip
    batches: list[int] = []
    real = LmdbWriter.append_batch

    def append_batch(writer: LmdbWriter, batch: Any) -> None:
        batches.append(len(list(batch)))
        real(writer, batch)

    monkeypatch.setattr(LmdbWriter, "append_batch", append_batch)

    ps.pack(columns, tmp_path / "batches.lmdb")
    ps.pack([{name: column[n] for name, column in columns.items()} for n in range(1300)], tmp_path / "single.lmdb")
    ps.pack(tmp_path / "batches.lmdb", tmp_path / "again.lmdb")

    assert sum(size > 1 for size in batches) == 6  # three of the columns, three of the pack
    one, other, again = ((tmp_path / f"{name}.lmdb/data.mdb").read_bytes() for name in ("batches", "single", "again"))
    assert one == other == again


@pytest.mark.parametrize("name", ["a.lmdb", "a.tar"])
def test_a_key_that_is_no_unicode_is_refused_with_its_number(tmp_path: Path, name: str) -> None:
    """A lone surrogate cannot be stored: the error has the sample and the key, and `on_error="skip"` leaves it out."""
    rows = [{"__key__": "ok", "x": 1}, {"__key__": "a\ud800", "x": 2}]

    with pytest.raises(ps.PackError, match=r"(?s)a\\ud800: sample 1: a key.* must be valid U"):
        ps.pack(rows, tmp_path / name)
    ps.pack(rows, tmp_path / name, on_error="skip")
    with ps.open(tmp_path / name) as store:
        assert list(store.keys()) == ["ok"]
