"""What is done with records before they are written: classes keep their names where a store numbers them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.pack.pipeline.record_checks import RecordChecks
from penstock.sample import Field, Schema
from tests.pack.images import picture


@pytest.mark.parametrize(("label", "expected"), [(0, 2), (1, 0), (2, 1), (7, 7), (-1, -1), (None, None)])
def test_labels_keep_their_class_where_a_store_numbers_classes_anew(label: int | None, expected: int | None) -> None:
    """A store that numbers classes by name gets the numbers of the same names; numbers of no class stay."""
    held = Schema({"label": Field("label", ("z", "a", "k")), "tags": Field("int64[*]", ("z", "a", "k"))})
    stored = Schema({"label": Field("label", ("a", "k", "z")), "tags": Field("int64[*]", ("a", "k", "z"))})
    checks = RecordChecks.for_schema(held, stored, "header", "none")

    fields: Any = checks.apply({"label": label, "tags": np.array([0, 0, 2])}).fields

    assert fields["label"] == expected
    assert fields["tags"].tolist() == [2, 2, 1]


@pytest.mark.parametrize("has_place", [True, False])
def test_the_size_is_added_where_the_store_has_a_place(has_place: bool) -> None:
    """Width and height are fields of the record only if they are stored."""
    held = Schema({"image": Field("image")})
    stored = Schema({**held.fields, "width": Field("int"), "height": Field("int")}) if has_place else held

    fields = RecordChecks.for_schema(held, stored, "header", "none").apply({"image": picture(0)}).fields

    assert set(fields) == set(stored.fields)


def test_records_without_an_image_are_listed_and_left_out(tmp_path: Path) -> None:
    """A container may have no image in a record: packing and indexing name the record, and go on without it."""
    rows = [{"image": {"bytes": picture(number), "path": f"{number}.jpg"}} for number in range(3)]
    pq.write_table(pa.Table.from_pylist([*rows, {"image": None}]), tmp_path / "p.parquet")

    with pytest.raises(ps.PackError, match="3: field 'image' must hold encoded bytes, and this record has none"):
        ps.pack(tmp_path / "p.parquet", tmp_path / "p.lmdb")
    report = ps.pack(tmp_path / "p.parquet", tmp_path / "p.lmdb", on_error="skip")
    indexed = ps.index(tmp_path / "p.parquet")

    assert (report.records, [entry.key for entry in report.skipped]) == (3, ["3"])
    assert indexed.indexed == 3


def test_classes_for_a_store_of_numbers_are_given_in_a_schema(tmp_path: Path) -> None:
    """Its kind takes none: the error says how, and what it says is right."""
    src, classes = tmp_path / "p.parquet", ("cat", "dog")
    pq.write_table(pa.Table.from_pylist([{"image": picture(number), "label": number} for number in range(2)]), src)

    with pytest.raises(ps.ArgumentError, match=r"in a schema: penstock\.pack\(\(record\.fields for record in"):
        ps.pack(src, tmp_path / "p.lmdb", classes=classes)
    schema = {"label": ps.Field("label", classes)}
    ps.pack((record.fields for record in ps.open(src)), tmp_path / "p.lmdb", schema=schema)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema["label"].classes == ("cat", "dog")
        assert store.column("label").tolist() == [0, 1]
