"""Written Parquet files: what goes in comes out, by penstock, pyarrow and datasets."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError, PackError, StoreError
from penstock.sample import Field, Schema
from penstock.stores.arrow import parquet_writer as parquet_write
from penstock.stores.arrow.parquet import ParquetStore
from penstock.stores.arrow.parquet_writer import ParquetWriter
from penstock.stores.common import file_writer
from penstock.stores.location import Location
from penstock.stores.writing import Skipped
from tests.stores.arrow.columns import make_contents

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

KINDS = {
    "image": "image",
    "other": "image",
    "mask": "mask",
    "audio": "bytes",
    "label": "label",
    "count": "int",
    "score": "float",
    "caption": "text",
    "more": "json",
    "boxes": "boxes",
    "classes": "int64[*]",
    "keypoints": "keypoints",
    "vector": "float16[3]",
    "grid": "uint8[*,2,*]",
    "flags": "bool[*]",
    "patch": "pixels:uint8[4,5,3]",
    "depth": "pixels:float32[*,*,1]",
}
SCHEMA = Schema({name: Field(kind, ("cat", "dog") if name == "label" else ()) for name, kind in KINDS.items()})


def make_record(number: int) -> dict[str, Any]:
    """Values of each kind."""
    rng = np.random.default_rng(number)
    content = make_contents(2, seed=number)
    return {
        "image": content[0],
        "other": memoryview(content[1]),
        "mask": b"\x89PNG\r\n\x1a\nmask",
        "audio": b"RIFF" * number,
        "label": number % 2,
        "count": -number * 2**40,
        "score": number / 3,
        "caption": "ä" * number,
        "more": {"tags": ["a"] * number, "n": None},
        "boxes": rng.uniform(0, 9, (number % 3, 4)).astype(np.float32),
        "classes": rng.integers(0, 9, number % 3),
        "keypoints": rng.uniform(0, 9, (number % 4, 3)).astype(np.float32),
        "vector": rng.normal(size=3).astype(np.float16),
        "grid": rng.integers(0, 9, (number % 3, 2, number % 4), np.uint8),
        "flags": rng.integers(0, 2, number % 5).astype(np.bool_),
        "patch": rng.integers(0, 256, (4, 5, 3), np.uint8),
        "depth": rng.normal(size=(1 + number, 2, 1)).astype(np.float32),
    }


def write(path: Path, schema: Schema, records: list[dict[str, Any]], **options: Any) -> Path:
    """Write records with keys r0, r1, ..."""
    writer = ParquetStore.writer(Location.from_path("parquet", path), schema, "origin", **options)
    for number in range(writer.committed.consumed, len(records)):
        writer.append(writer.prepare(f"r{number}", records[number]))
    writer.finish()
    writer.close()
    return path


def assert_equal(got: Any, expected: Any) -> None:
    """Compare two values of a field."""
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
        assert got.shape == expected.shape
    elif isinstance(expected, bytes | memoryview):
        assert bytes(got) == bytes(expected)
    else:
        assert got == expected


def test_every_kind_is_read_back(tmp_path: Path) -> None:
    """Each kind of field is read back as it was written: values, dtypes, shapes of empty arrays, keys, schema."""
    records = [make_record(number) for number in range(9)]

    path = write(tmp_path / "x.parquet", SCHEMA, records)

    with ps.open(path) as store:
        assert store.schema == SCHEMA
        assert list(store.keys()) == [f"r{number}" for number in range(9)]
        for record, expected in zip(store, records, strict=True):
            for name, value in expected.items():
                if isinstance(value, np.ndarray) and not value.size:  # an empty list has lost its other lengths
                    assert record.fields[name].dtype == value.dtype
                    assert record.fields[name].shape[0] == value.shape[0]
                else:
                    assert_equal(record.fields[name], value)


def test_missing_values_are_read_back(tmp_path: Path) -> None:
    """None is null, for each kind."""
    path = write(tmp_path / "x.parquet", SCHEMA, [dict.fromkeys(KINDS), make_record(1), dict.fromkeys(KINDS)])

    with ps.open(path) as store:
        assert dict(store[0].fields) == dict.fromkeys(KINDS)
        assert_equal(store[1].fields["depth"], make_record(1)["depth"])
        assert store.column("label").tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    ("name", "value"), [("label", "x"), ("boxes", np.zeros((2, 3), np.float32)),
                        ("patch", np.zeros((4, 5, 1), np.uint8)), ("caption", "\ud800")],
)  # fmt: skip
def test_wrong_values_are_refused(tmp_path: Path, name: str, value: object) -> None:
    """A value that is not of its kind is refused with the name of the field before anything is written."""
    location = Location.from_path("parquet", tmp_path / "x.parquet")
    writer = ParquetStore.writer(location, SCHEMA, "origin")

    with pytest.raises(PackError, match=name):
        writer.prepare("a", make_record(1) | {name: value})
    with pytest.raises(PackError, match="key"):
        writer.prepare("\udcff", make_record(1))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_datasets_reads_images_and_classes(tmp_path: Path) -> None:
    """datasets opens the file with Image and ClassLabel features, and finds the pictures, names and numbers."""
    datasets = pytest.importorskip("datasets")
    contents = []
    for number in range(3):
        file = io.BytesIO()
        Image.new("RGB", (5 + number, 4), (number, 0, 0)).save(file, "PNG")
        contents.append(file.getvalue())
    records = [make_record(number) | {"image": contents[number], "mask": None, "other": None} for number in range(3)]
    path = write(tmp_path / "x.parquet", SCHEMA, records)

    dataset = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))

    assert isinstance(dataset.features["image"], datasets.Image)
    assert dataset.features["label"].names == ["cat", "dog"]
    assert [row["image"].size for row in dataset] == [(5, 4), (6, 4), (7, 4)]
    assert dataset["label"][:] == [0, 1, 0]
    np.testing.assert_array_equal(np.array(dataset[2]["boxes"], np.float32), records[2]["boxes"])
    undecoded = dataset.cast_column("image", datasets.Image(decode=False))
    assert undecoded[1]["image"] == {"bytes": contents[1], "path": "r1"}
    assert dataset[1]["patch"] == records[1]["patch"].tobytes()


def test_records_without_images_have_a_column_of_keys(tmp_path: Path) -> None:
    """Where no image has a path, the keys are a column of their own."""
    path = write(tmp_path / "x.parquet", Schema({"patch": SCHEMA["patch"], "key": Field("text")}), [
        {"patch": make_record(n)["patch"], "key": f"text {n}"} for n in range(4)
    ])  # fmt: skip

    with ps.open(path) as store:
        assert list(store.keys()) == ["r0", "r1", "r2", "r3"]
        assert store[2].fields["key"] == "text 2"
        assert store.schema["patch"].is_image
    assert pq.read_table(path).column_names == ["__key__", "patch", "key"]


def test_row_groups_have_some_hundred_records(tmp_path: Path) -> None:
    """A row group has 100 records where images are large, more where they are small, and 64 MiB at most."""
    schema = Schema({"image": Field("image")})
    large = [{"image": bytes(20_000)} for _ in range(230)]
    small = [{"image": bytes(10)} for _ in range(10_300)]

    groups = {}
    for name, records in (("large", large), ("small", small)):
        metadata = pq.read_metadata(write(tmp_path / f"{name}.parquet", schema, records))
        groups[name] = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    assert groups == {"large": [100, 100, 30], "small": [10_000, 300]}


def test_packing_again_uses_the_file(tmp_path: Path) -> None:
    """A finished file of the same source is used as it is; another one is refused, or replaced with overwrite=True."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / "photos" / "a" / f"{number}.png")

    first = ps.pack(tmp_path / "photos", tmp_path / "x.parquet")
    again = ps.pack(tmp_path / "photos", tmp_path / "x.parquet")
    Image.new("RGB", (9, 9)).save(tmp_path / "photos" / "a" / "9.png")

    assert (first.reused, again.reused) == (False, True)
    assert (again.records, again.nbytes) == (first.records, first.nbytes)
    with pytest.raises(ArgumentError, match="overwrite=True"):
        ps.pack(tmp_path / "photos", tmp_path / "x.parquet")
    assert ps.pack(tmp_path / "photos", tmp_path / "x.parquet", overwrite=True).records == 4


def test_what_was_left_out_is_kept(tmp_path: Path) -> None:
    """The file knows what the source had that is not in it."""
    location = Location.from_path("parquet", tmp_path / "x.parquet")
    schema = Schema({"image": Field("image")})
    writer = ParquetStore.writer(location, schema, "origin")
    writer.append(writer.prepare("a", {"image": b"abc"}))
    writer.skip(Skipped("b", "no image"))
    writer.finish()

    done = ParquetStore.finished(location, schema, "origin")

    assert done is not None
    assert (done.records, done.nbytes, done.skipped) == (1, 3, (Skipped("b", "no image"),))
    assert ParquetStore.finished(location, schema, "another") is None
    assert ParquetStore.finished(location, Schema({"image": Field("bytes")}), "origin") is None


def test_an_unfinished_file_of_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is continued by the same source and options only, and is no store until then."""
    monkeypatch.setattr(file_writer, "_COMMIT_RECORDS", 2)
    location = Location.from_path("parquet", tmp_path / "x.parquet")
    schema = Schema({"image": Field("image")})
    writer = ParquetStore.writer(location, schema, "origin")
    for number in range(3):
        writer.append(writer.prepare(str(number), {"image": b"abc"}))
    writer.close()

    assert not location.exists()
    again = ParquetStore.writer(location, schema, "origin")
    assert again.committed.records == 2
    again.close()
    with pytest.raises(StoreError, match="or is another one"):
        ParquetStore.writer(location, schema, "another")
    with pytest.raises(StoreError, match=r"with the options .*'row_group_records': 100.*, not .*: 7"):
        ParquetStore.writer(location, schema, "origin", row_group_records=7)
    ParquetStore.writer(location, schema, "another", overwrite=True).discard()
    assert list(tmp_path.iterdir()) == []


def test_many_parts_are_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of many commits are row groups of one file; pyarrow reads them, their indexes and checksums."""
    monkeypatch.setattr(file_writer, "_COMMIT_RECORDS", 5)
    records = [make_record(number) for number in range(42)]
    path = write(tmp_path / "x.parquet", SCHEMA, records, row_group_records=3)

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
        metadata = file.metadata

    assert metadata.num_row_groups == 9  # a commit at each fifth record ends a part
    assert metadata.row_group(8).column(0).has_offset_index
    assert [row["bytes"] for row in table.column("image").to_pylist()] == [record["image"] for record in records]
    entry = json.loads(table.schema.metadata[b"penstock"])
    assert (entry["written"]["records"], entry["key"]) == (42, ["image", "path"])
    with ps.open(path) as store:
        assert bytes(store[41].fields["image"]) == records[41]["image"]


def test_shards_are_a_folder(tmp_path: Path) -> None:
    """With shard_records=, a folder of files with that many records is written, in the names of Hugging Face."""
    records = [make_record(number) for number in range(11)]
    path = write(tmp_path / "set", SCHEMA, records, shard_records=4)
    location = Location.from_path("parquet", path)

    names = sorted(entry.name for entry in path.iterdir() if entry.suffix == ".parquet")
    done = ParquetStore.finished(location, SCHEMA, "origin")

    assert names == [f"train-{number:05d}-of-00003.parquet" for number in range(3)]
    assert done is not None
    assert done.records == 11
    assert ParquetStore.finished(location, SCHEMA, "another") is None
    with ps.open(path) as store:
        assert list(store.keys()) == [f"r{number}" for number in range(11)]
        assert_equal(store[9].fields["depth"], records[9]["depth"])
    with pytest.raises(ArgumentError, match="overwrite=True"):
        write(path, SCHEMA, records, shard_records=4)
    write(path, SCHEMA, records[:3], shard_records=2, overwrite=True)
    with ps.open(path) as store:
        assert len(store) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["set"]
    (path / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"has also 'notes\.txt'"):
        write(path, SCHEMA, records, shard_records=4, overwrite=True)


def test_unfinished_shards_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of shards that ended anywhere is continued, and gives the same files; other sizes are refused."""
    monkeypatch.setattr(file_writer, "_COMMIT_RECORDS", 2)
    records = [make_record(number) for number in range(11)]
    whole = write(tmp_path / "whole", SCHEMA, records, shard_records=5)
    location = Location.from_path("parquet", tmp_path / "set")

    for stop in (4, 8, 10):
        writer = ParquetStore.writer(location, SCHEMA, "origin", shard_records=5)
        for number in range(writer.committed.consumed, stop):
            writer.append(writer.prepare(f"r{number}", records[number]))
        writer.close()
        assert stop - 2 <= writer.committed.records <= stop
    with pytest.raises(StoreError, match="another size"):
        ParquetStore.writer(location, SCHEMA, "origin", shard_records=6)
    partial = tmp_path / "set.partial"
    (partial / "00000.parquet").rename(partial / "train-00000-of-00003.parquet")  # killed while it gave names
    path = write(tmp_path / "set", SCHEMA, records, shard_records=5)

    for file in whole.glob("*.parquet"):
        assert (path / file.name).read_bytes() == file.read_bytes()
    writer = ParquetStore.writer(Location.from_path("parquet", tmp_path / "x"), SCHEMA, "origin", shard_records=5)
    writer.append(writer.prepare("a", records[0]))
    writer.discard()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["set", "whole"]
    with pytest.raises(ArgumentError, match="shard_records must be at least 1"):
        ParquetStore.writer(location, SCHEMA, "origin", shard_records=0)


def test_no_records_are_a_file(tmp_path: Path) -> None:
    """A store without records can be written and read."""
    path = write(tmp_path / "x.parquet", SCHEMA, [])

    with ps.open(path) as store:
        assert len(store) == 0
        assert store.schema == SCHEMA
        assert store.column("label").tolist() == []


def test_damaged_schemas_are_refused(tmp_path: Path) -> None:
    """The schema of records in the metadata must be one, and its columns must be there."""
    for entry in (
        "[",
        '{"schema": {}, "key": []}',
        '{"schema": {"image": {"kind": "image"}}, "key": ["image", "path"]}',
        '{"schema": {"label": {"kind": "label"}}, "key": ["__key__"]}',
    ):
        table = pa.table({"label": [1]}, metadata={"penstock": entry})
        pq.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(StoreError, match=r"metadata .penstock|with the keys is missing"):
            ps.open(tmp_path / "x.parquet")


def test_large_records_end_their_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is written before it would be larger than its limit."""
    monkeypatch.setattr(parquet_write, "_MAX_GROUP_NBYTES", 1000)
    path = write(tmp_path / "x.parquet", Schema({"image": Field("image")}), [{"image": bytes(400)} for _ in range(5)])

    metadata = pq.read_metadata(path)

    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [2, 2, 1]
    assert issubclass(ParquetWriter, file_writer.FileWriter)
