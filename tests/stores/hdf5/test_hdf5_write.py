"""HDF5 files that penstock writes: every kind of field there and back, and the same bytes each time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, PackError, StoreFormatError
from penstock.sample import Field, Schema
from penstock.stores.hdf5.format import LAYOUT
from penstock.stores.hdf5.store import Hdf5Store
from penstock.stores.location import Location

h5py = pytest.importorskip("h5py")

SCHEMA = Schema(
    {
        "image": Field("image"),
        "label": Field("label", ("cat", "dog")),
        "crop": Field("pixels:uint8[4,5,3]"),
        "deep": Field("pixels:uint16[*,*,1]"),
        "mask": Field("mask"),
        "number": Field("int"),
        "score": Field("float"),
        "caption": Field("text"),
        "extra": Field("json"),
        "boxes": Field("boxes"),
        "keypoints": Field("keypoints"),
        "flags": Field("bool[3]"),
        "bits": Field("bool[*]"),
        "tokens": Field("int64[*]"),
        "small": Field("uint8[*]"),
        "table": Field("uint8[*,2]"),
        "matrix": Field("float32[2,3]"),
        "grid": Field("int16[*,*]"),
        "key": Field("text"),
        LAYOUT: Field("int"),
    }
)


def make_record(row: int) -> dict[str, Any]:
    """The fields of a record; every third has no values."""
    rng = np.random.default_rng(row)
    if row % 3 == 2:
        return dict.fromkeys(SCHEMA.fields)
    return {
        "image": rng.bytes(50 + row),
        "label": row % 2,
        "crop": rng.integers(0, 256, (4, 5, 3)).astype(np.uint8),
        "deep": rng.integers(0, 1 << 16, (1 + row % 4, 3, 1)).astype(np.uint16),
        "mask": rng.bytes(7),
        "number": -row,
        "score": row / 7,
        "caption": f"a ☂ {row}\n",
        "extra": {"row": row, "list": [1, None, "x"]},
        "boxes": rng.random((row % 4, 4)).astype(np.float32),
        "keypoints": rng.random((row % 4, 2 + row % 2)).astype(np.float32),
        "flags": rng.integers(0, 2, 3).astype(bool),
        "bits": rng.integers(0, 2, row % 5).astype(bool),
        "tokens": rng.integers(-9, 9, row % 5),
        "small": rng.integers(0, 9, row % 5).astype(np.uint8),
        "table": rng.integers(0, 9, (row % 5, 2)).astype(np.uint8),
        "matrix": rng.random((2, 3)).astype(np.float32),
        "grid": rng.integers(0, 9, (row % 3, 2)).astype(np.int16),
        "key": "no",
        LAYOUT: row,
    }


def write(path: Path, count: int, **options: Any) -> None:
    """Write some records."""
    writer = Hdf5Store.writer(Location.from_path("hdf5", path), SCHEMA, "source", **options)
    for row in range(count):
        writer.append(writer.prepare(f"r/{row}", make_record(row)))
    writer.finish()
    writer.close()


def equal(found: Any, expected: Any) -> bool:
    """Whether two values are the same, arrays by dtype, shape and elements."""
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and found.shape == expected.shape and bool((found == expected).all())
    return bool((bytes(found) if isinstance(expected, bytes) else found) == expected)


def test_values_of_equal_lengths_stay_values(tmp_path: Path) -> None:
    """Boxes and images that happen to be of one length are written one by one."""
    schema = Schema({"image": Field("image"), "boxes": Field("boxes")})
    writer = Hdf5Store.writer(Location.from_path("hdf5", tmp_path / "set.h5"), schema, "source")
    for row in range(5):
        fields = {"image": bytes([row] * 9), "boxes": np.full((3, 4), row, np.float32)}
        writer.append(writer.prepare(str(row), fields))
    writer.finish()

    with ps.open(tmp_path / "set.h5") as store:
        assert [bytes(record.fields["image"]) for record in store] == [bytes([row] * 9) for row in range(5)]
        assert [record.fields["boxes"].tolist() for record in store] == [[[row] * 4] * 3 for row in range(5)]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_kind_of_field_is_read_back(tmp_path: Path, compression: str) -> None:
    """Values, missing values, keys, classes and kinds are those that were written."""
    path = tmp_path / "set.h5"
    write(path, 25, compression=compression)

    with ps.open(path) as store:
        assert store.schema == SCHEMA
        assert store.description == "hdf5, written by penstock: 25 records"
        for row, record in enumerate(store):
            assert record.key == f"r/{row}"
            for name, expected in make_record(row).items():
                assert equal(record.fields[name], expected), (row, name)
        assert store.column("label").tolist() == [-1 if row % 3 == 2 else row % 2 for row in range(25)]
        assert np.isnan(store.column("score")[[2, 5]]).all()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["set.h5", "set.h5.source"]


def test_other_programs_find_the_datasets_by_name(tmp_path: Path) -> None:
    """h5py reads plain datasets, with the order of channels and the classes as attributes."""
    write(tmp_path / "set.h5", 5)

    with h5py.File(tmp_path / "set.h5") as file:
        assert file["image"][1].tobytes() == make_record(1)["image"]
        np.testing.assert_array_equal(file["crop"][1], make_record(1)["crop"])
        assert file["crop"].attrs["channels"] == "RGB"
        assert list(file["label"].attrs["classes"]) == ["cat", "dog"]
        assert file["label"][:].tolist() == [0, 1, -1, 1, 0]
        assert file["key_"][4] == b"r/4"


def test_the_same_records_are_the_same_bytes(tmp_path: Path) -> None:
    """Nothing in the file depends on when it was written."""
    write(tmp_path / "a.h5", 7)
    write(tmp_path / "b.h5", 7)

    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_a_writer_without_space_for_the_file_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are kept until the HDF5 file is in its place."""
    monkeypatch.setattr("penstock.stores.common.file_writer._COMMIT_RECORDS", 10)
    location = Location.from_path("hdf5", tmp_path / "set.h5")
    writer = Hdf5Store.writer(location, SCHEMA, "source")
    for row in range(10):
        writer.append(writer.prepare(f"r/{row}", make_record(row)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            writer.finish()
    writer.close()

    again = Hdf5Store.writer(location, SCHEMA, "source")
    assert again.committed.consumed == 10
    again.finish()

    write(tmp_path / "whole.h5", 10)
    assert (tmp_path / "set.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_finished_file_is_used_again(tmp_path: Path) -> None:
    """Packing the same source again writes nothing; discarding leaves no file."""
    write(tmp_path / "set.h5", 4)
    location = Location.from_path("hdf5", tmp_path / "set.h5")

    done = Hdf5Store.finished(location, SCHEMA, "source")
    assert done is not None
    assert done.records == 4
    assert done.nbytes == sum(
        len(fields["image"]) + fields["crop"].nbytes + fields["deep"].nbytes + len(fields["mask"])
        for fields in map(make_record, (0, 1, 3))
    )
    assert Hdf5Store.finished(location, SCHEMA, "another") is None
    with pytest.raises(ArgumentError, match="overwrite=True"):
        Hdf5Store.writer(location, SCHEMA, "source")
    other = Hdf5Store.writer(Location.from_path("hdf5", tmp_path / "other.h5"), SCHEMA, "source")
    other.discard()
    assert not list(tmp_path.glob("other*"))


@pytest.mark.parametrize(
    ("key", "changed", "message"),
    [
        ("a\0b", {}, "a key must not contain"),
        ("", {}, "at least one character"),
        ("a", {"caption": "x\0"}, "field 'caption' must not contain"),
        ("a", {"label": "cat"}, "field 'label' must be of kind label"),
        ("a", {"crop": np.zeros((4, 5, 4), np.uint8)}, "field 'crop' must be pixels"),
        ("a", {"crop": np.full((4, 5, 3), 300)}, "field 'crop' must be pixels"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path: Path, key: str, changed: dict[str, Any], message: str) -> None:
    """A value that HDF5 or the schema has no place for is an error of its record, before it is written."""
    writer = Hdf5Store.writer(Location.from_path("hdf5", tmp_path / "set.h5"), SCHEMA, "source")

    with pytest.raises(PackError, match=message):
        writer.prepare(key, make_record(0) | changed)
    with pytest.raises(PackError, match="no field 'image'"):
        writer.prepare("a", {})
    writer.discard()


def test_a_layout_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """The layout is text from a file: what it says is compared with the datasets."""
    path = tmp_path / "set.h5"
    for text in (
        "{",
        "[]",
        '{"version": 9}',
        '{"version": 1, "schema": {}, "nbytes": 0, "skipped": [], "missing": []}',
    ):
        write(path, 3, overwrite=True)
        with h5py.File(path, "r+") as file:
            file[LAYOUT][()] = text
        with pytest.raises(StoreFormatError, match="layout"):
            ps.open(path)
    write(path, 3, overwrite=True)
    with h5py.File(path, "r+") as file:
        del file["label"]
        file["label"] = np.zeros(2)
    with pytest.raises(StoreFormatError, match="dataset 'label' must be array int64"):
        ps.open(path)
    with pytest.raises(ArgumentError, match="compression must be one of none, gzip, got 'zip'"):
        write(path, 3, overwrite=True, compression="zip")
