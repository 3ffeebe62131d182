"""Packing tables of paths: formats, columns, files that are missing, and rows that are wrong."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock.pack.sources.base import SourceOptions
from penstock.pack.sources.manifest import ManifestSource, PackedTable
from tests.pack.images import picture
from tests.pack.sources.test_iterables import commit_often, kinds, stop

ROWS: list[dict[str, Any]] = [
    {
        "file_name": f"images/{number}.jpg", "mask_path": f"masks/{number}.png", "label": ("dog", "cat")[number % 2],
        "age": number, "score": number / 8, "caption": f'a "picture", {number}',
    }
    for number in range(30)
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty images and masks."""
    for name in ("images", "masks"):
        (tmp_path / "set" / name).mkdir(parents=True)
    for number in range(30):
        (tmp_path / f"set/images/{number}.jpg").write_bytes(picture(number))
        Image.fromarray(np.full((4, 5), number, np.uint8)).save(tmp_path / f"set/masks/{number}.png")
    return tmp_path / "set"


def write(folder: Path, form: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    """A table of rows; ``form`` is its ending, with ``;`` for a delimiter and ``bom`` for a mark of byte order."""
    path = folder / f"table.{form.partition(' ')[0]}"
    encoding = "utf-8-sig" if "bom" in form else "utf-8"
    if path.suffix in {".csv", ".tsv"}:
        with path.open("w", newline="", encoding=encoding) as file:
            delimiter = ";" if ";" in form else "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding=encoding)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding=encoding)
    return path


FORMS = ["csv", "csv bom", "csv ;", "tsv", "json", "json bom", "jsonl", "ndjson", "parquet"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_table_gives_the_same_records(form: str, folder: Path, tmp_path: Path) -> None:
    """Files become images and masks, texts in a column of labels classes, numbers numbers."""
    ps.pack(write(folder, form), tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store) == {
            "image": "image", "mask": "mask", "label": "label", "age": "int", "score": "float", "caption": "text",
            "width": "int", "height": "int",
        }  # fmt: skip
        assert store.schema["label"].classes == ("cat", "dog")
        assert list(store.keys()) == [row["file_name"] for row in ROWS]
        for record, row in zip(store, ROWS, strict=True):
            fields = record.fields
            assert bytes(fields["image"]) == (folder / row["file_name"]).read_bytes()
            assert bytes(fields["mask"]) == (folder / row["mask_path"]).read_bytes()
            assert ("cat", "dog")[fields["label"]] == row["label"]
            assert (fields["age"], fields["score"], fields["caption"]) == (row["age"], row["score"], row["caption"])


@pytest.mark.parametrize(
    ("cells", "schema", "kind", "values"),
    [
        (["1", "2"], {}, "int", [1, 2]),
        (["1", ""], {}, "int", [1, None]),
        (["1", "2.5"], {}, "float", [1.0, 2.5]),
        (["007", "010"], {}, "text", ["007", "010"]),
        (["1", "x"], {}, "text", ["1", "x"]),
        (["[1, 2]", "[3]"], {}, "int64[*]", [[1, 2], [3]]),
        (["[1, 2]", ""], {}, "int64[2]", [[1, 2], None]),
        (['{"a": 1}', "[]"], {}, "json", [{"a": 1}, []]),
        (['["a", "b"]', '["c"]'], {}, "json", [["a", "b"], ["c"]]),
        (["[1", "[2"], {}, "text", ["[1", "[2"]),
        (["0;2", "1"], {"x": "int64[*]"}, "int64[*]", [[0, 2], [1]]),
        (["b|a", ""], {"x": "int64[*]"}, "int64[*]", [[1, 0], None]),
        (['["b", "a"]', "[]"], {"x": "int64[*]"}, "int64[*]", [[1, 0], []]),
        (["0.5 1", "2 3"], {"x": "float32[2]"}, "float32[2]", [[0.5, 1], [2, 3]]),
        (["[[0, 0, 9, 9]]", "[]"], {"x": "boxes"}, "boxes", [[[0, 0, 9, 9]], []]),
        (["5", "6"], {"x": "text"}, "text", ["5", "6"]),
        (["-3", "9223372036854775807"], {}, "int", [-3, 2**63 - 1]),
        (["9223372036854775808", "18446744073709551617"], {}, "text", ["9223372036854775808", "18446744073709551617"]),
        (["9007199254740993", "0.5"], {}, "text", ["9007199254740993", "0.5"]),
        (["9007199254740991", "0.5", "1e20"], {}, "float", [9007199254740991.0, 0.5, 1e20]),
        (["1e999", "2"], {}, "text", ["1e999", "2"]),
        (["1.0", "2.0", ""], {"x": "label"}, "label", [1, 2, None]),
    ],
)  # fmt: skip
def test_cells_of_text_get_the_kind_of_their_column(
    cells: list[str], schema: dict[str, Any], kind: str, values: list[Any], tmp_path: Path
) -> None:
    """Numbers, JSON, lists with separators; empty cells have no value."""
    table = write(tmp_path, "csv", [{"x": cell, "n": number} for number, cell in enumerate(cells)])

    ps.pack(table, tmp_path / "p.lmdb", schema=schema)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store)["x"] == kind
        for record, value in zip(store, values, strict=True):
            found = record.fields["x"]
            found = found.tolist() if isinstance(found, np.ndarray) else found
            assert found == value
        if schema.get("x") == "int64[*]" and "b" in cells[0]:
            assert store.schema["x"].classes == ("a", "b")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("column", "cells", "kind", "values"),
    [
        ("label", ["1.0", "2.0", ""], "label", [1, 2, None]),
        ("label", ["1.0", "2.0"], "float", [1.0, 2.0]),
        ("label", ["0.5", "2.0", ""], "float", [0.5, 2.0, None]),
        ("label", ["7", "10"], "label", [7, 10]),
        ("label", ["007", "7"], "label", [0, 1]),
        ("label", ["1.0", "9007199254740993", ""], "label", [0, 1, None]),
        ("caption", ["12", "13"], "text", ["12", "13"]),
        ("alt_text", ["[1, 2]", "[3]"], "text", ["[1, 2]", "[3]"]),
        ("pet_name", ["1e5", "-3"], "text", ["1e5", "-3"]),
    ],
)
def test_numbers_and_texts_stay_what_they_are(
    form: str, column: str, cells: list[str], kind: str, values: list[Any], tmp_path: Path
) -> None:
    """Texts that are numbers are no names of classes, whole ones beside gaps are integers, and captions are texts."""
    rows = [{column: cell if cell or form == "csv" else None, "n": number} for number, cell in enumerate(cells)]

    ps.pack(write(tmp_path, form, rows), tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store)[column] == kind
        assert [record.fields[column] for record in store] == values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2**53 + 1, 0.5], None),
        ([2**64], None),
        ([[2**53 + 1, 0.5]], ("json", [[2**53 + 1, 0.5]])),
        ([[2**53 + 1], [0.5]], None),
        ([[2.0**60, 0.5]], ("float64[2]", [[2.0**60, 0.5]])),
        ([2**53, 0.5], ("float", [2.0**53, 0.5])),
    ],
)
@pytest.mark.parametrize("is_table", [False, True])
def test_integers_that_float64_rounds_are_kept_or_refused(
    values: list[Any], expected: tuple[str, list[Any]] | None, is_table: bool, tmp_path: Path
) -> None:
    """Of values that have a type, such as those of JSON and of samples in memory."""
    rows = [{"x": value} for value in values]
    source: Any = write(tmp_path, "jsonl", rows) if is_table else rows

    if expected is None:
        with pytest.raises(ps.PackError, match="'x' must be"):
            ps.pack(source, tmp_path / "p.lmdb")
        return
    ps.pack(source, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store)["x"] == expected[0]
        found = [record.fields["x"] for record in store]
        assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found] == expected[1]


def test_several_images_a_record_and_sounds(folder: Path, tmp_path: Path) -> None:
    """Each column of files is a field; a column named by ``columns`` has the name that it is given."""
    (folder / "a.wav").write_bytes(b"RIFF....")
    rows = [{"left": "images/0.jpg", "right_path": "images/1.jpg", "sound": "a.wav", "note": "n"}]
    table = write(folder, "csv", rows)

    ps.pack(table, tmp_path / "p.lmdb")
    ps.pack(table, tmp_path / "q.lmdb", columns={"image": "left"}, schema={"note": None})

    with ps.open(tmp_path / "p.lmdb") as p, ps.open(tmp_path / "q.lmdb") as q:
        assert kinds(p) == {"left": "image", "right": "image", "sound": "bytes", "note": "text"}
        assert list(q.schema.fields) == ["image", "right", "sound", "width", "height"]
        assert bytes(q[0].fields["image"]) == picture(0)
        assert bytes(p[0].fields["sound"]) == b"RIFF...."


def test_a_table_without_files_is_packed(tmp_path: Path) -> None:
    """Texts and tokens too are records; they are named by their numbers, or by a column."""
    table = write(
        tmp_path, "jsonl", [{"tokens": list(range(n)), "text": "a" * n, "__key__": f"k{n}"} for n in range(4)]
    )

    ps.pack(table, tmp_path / "p.lmdb")
    ps.pack(table, tmp_path / "q.lmdb", key="text", schema={"text": "text"}, on_error="skip")

    with ps.open(tmp_path / "p.lmdb") as store, ps.open(tmp_path / "q.lmdb") as other:
        assert (kinds(store), list(store.keys())) == ({"tokens": "int64[*]", "text": "text"}, ["k0", "k1", "k2", "k3"])
        assert list(other.keys()) == ["a", "aa", "aaa"]
        assert [entry.reason for entry in other.skipped] == ["line 1: it has no key"]


def test_missing_files_and_equal_keys_are_named_by_line(folder: Path, tmp_path: Path) -> None:
    """All at once, before anything is written; they may be left out."""
    rows = [dict(row) for row in ROWS[:6]]
    rows[1]["file_name"] = "images/none.jpg"
    rows[2]["mask_path"] = ""
    rows[4]["file_name"] = rows[0]["file_name"]
    rows[5]["file_name"] = "https://host/5.jpg"
    table = write(folder, "csv", rows)

    with pytest.raises(ps.PackError) as caught:
        ps.pack(table, tmp_path / "p.lmdb")
    report = ps.pack(table, tmp_path / "p.lmdb", on_error="skip")

    assert not (tmp_path / "x").exists()
    for line in (
        f"images/none.jpg: line 3: there is no file {folder / 'images/none.jpg'}",
        "images/2.jpg: line 4: it has no path in column 'mask_path'",
        'images/0.jpg: line 6: line 2 has the same file_name; key="index"',
        "https://host/5.jpg: line 7: https://host/5.jpg is an address",
    ):
        assert line in str(caught.value)
    assert report.records == 2
    assert ps.pack(table, tmp_path / "q.lmdb", on_error="skip", key="index").records == 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", "", "must begin with a line of column names"),
        ("t.csv", "a,a\n1,2\n", "must have different names"),
        ("t.csv", "a,b\n1,2\n3\n", "line 3 of t.csv has 1 values, and the header has 2 columns"),
        ("t.csv", 'a,b\n1,"2\n', "cannot be parsed"),
        ("t.csv", "a,b\n", "has no rows"),
        ("t.csv", b"a,b\n1,\xff\n", "must be UTF-8: .* which Excel calls 'CSV UTF-8'"),
        ("t.csv", "sep=;\na;b\n1;2\n3\n", "line 4 of t.csv has 1 values, and the header has 2 columns"),
        ("t.csv", "a,b\n1,\n", "column 'b' has no value"),
        ("t.jsonl", '{"a": 1}\n[1]\n', "line 2 of t.jsonl must be a JSON object, got list"),
        ("t.jsonl", '{"a": 1}\n{"a":\n', "line 2 of t.jsonl must be a JSON object"),
        ("t.jsonl", '{"a": 1}\n{"a": "x"}\n', "line 2: column 'a' is text, and was int before"),
        ("t.json", '{"a": 1}', "must be a JSON array"),
        ("t.json", '[{"a": 1}, {"a": 2}', "does not end"),
        ("t.json", '[{"a": 1} {"a": 2}]', "there must be a comma behind row 0"),
        ("t.json", '[{"a": 1}, {"a": 2', "row 1 of t.json must be a JSON object"),
        ("t.json", "[" * 100_000, "nested too deeply|must be a JSON"),
        ("t.parquet", b"PAR1 no table PAR1", "."),
    ],
)
def test_tables_that_are_wrong_are_refused(name: str, content: str | bytes, reason: str, tmp_path: Path) -> None:
    """With the line; nothing is written."""
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ps.PenstockError, match=reason):
        ps.pack(tmp_path / name, tmp_path / "p.lmdb")
    assert not (tmp_path / "p.lmdb").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"columns": {"image": "nothing"}}, "columns names 'nothing', and the columns of table.csv are: file_name"),
        ({"schema": {"nothing": "int"}}, "schema names 'nothing', and the fields of table.csv are: image"),
        ({"key": "nothing"}, "key must be one of the columns"),
        ({"schema": {"label": "int"}}, "line 2: column 'label' must be int, got 'dog'"),
        ({"schema": {"caption": "float"}}, "must be float, got 'a \"picture\", 0'; numbers have a decimal point"),
        ({"classes": ["dog"]}, r"line 3: field 'label' must be one of its 1 classes \(dog ...\), got 'cat'"),
        ({"source_id": "x"}, "source_id is no option of a table"),
    ],
)
def test_options_that_do_not_fit_the_table_are_refused(
    arguments: dict[str, Any], reason: str, folder: Path, tmp_path: Path
) -> None:
    """With what the table has."""
    with pytest.raises((ps.ArgumentError, ps.PackError), match=reason):
        ps.pack(write(folder, "csv"), tmp_path / "p.lmdb", **arguments)


@pytest.mark.parametrize("schema", [{}, {"image": "bytes"}])
def test_a_table_of_windows_is_read(schema: dict[str, str], folder: Path, tmp_path: Path) -> None:
    """Backslashes between folders, a first line that tells Excel the delimiter, and ends of lines as on Windows."""
    lines = ["sep=;", "image;note", "images\\3.jpg;C:\\a", "images\\1.jpg;b/c"]
    (folder / "t.csv").write_bytes("\r\n".join(lines).encode("utf-8-sig"))

    ps.pack(folder / "t.csv", tmp_path / "p.lmdb", schema=schema)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema["image"].kind == schema.get("image", "image")
        assert bytes(store[0].fields["image"]) == (folder / "images/3.jpg").read_bytes()
        assert store[0].fields["note"] == "C:\\a"
        assert schema or list(store.keys()) == ["images/3.jpg", "images/1.jpg"]


def test_a_finished_pack_of_an_unchanged_table_is_used(folder: Path, tmp_path: Path) -> None:
    """The table's values, and sizes and times of the files, tell whether it is unchanged."""
    table = write(folder, "csv")
    ps.pack(table, tmp_path / "p.lmdb")

    assert ps.pack(table, tmp_path / "p.lmdb").reused
    (folder / "images/3.jpg").write_bytes(picture(99))
    with pytest.raises(ps.ArgumentError, match="source was changed"):
        ps.pack(table, tmp_path / "p.lmdb")


@pytest.mark.parametrize("jobs", [0, 2])
def test_an_interrupted_table_is_resumed(
    jobs: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bytes, also where rows are left out."""
    commit_often(monkeypatch)
    (folder / "images/2.jpg").unlink()
    table = write(folder, "csv")
    with pytest.raises(KeyboardInterrupt):
        ps.pack(table, tmp_path / "p.lmdb", progress=stop, on_error="skip", jobs=jobs)

    report = ps.pack(table, tmp_path / "p.lmdb", on_error="skip", jobs=jobs)
    ps.pack(table, tmp_path / "whole.lmdb", on_error="skip")

    assert 0 < report.resumed < 29
    assert (tmp_path / "p.lmdb/data.mdb").read_bytes() == (tmp_path / "whole.lmdb/data.mdb").read_bytes()


def test_paths_are_below_the_root_that_is_given(folder: Path, tmp_path: Path) -> None:
    """By default below the folder of the table."""
    table = write(tmp_path, "csv")

    with pytest.raises(ps.PackError, match="there is no file"):
        ps.pack(table, tmp_path / "p.lmdb")
    assert ps.pack(table, tmp_path / "p.lmdb", root=folder).records == 30


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=settings().max_examples // 2)
@given(rows=st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=4), cut=st.integers(0, 60))
def test_any_json_is_read_as_json_reads_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], cut: int
) -> None:
    """The array is decoded object by object, with the result of decoding it whole; a truncated one is refused."""
    path = tmp_path_factory.mktemp("tables") / "t.json"
    text = json.dumps(rows)
    path.write_text(text)
    expected = json.loads(text)

    assert repr([row.values for row in PackedTable(path).rows()]) == repr(expected)
    path.write_text(text[: min(cut, len(text) - 1)])
    with pytest.raises(ps.PackError):
        list(PackedTable(path).rows())


@settings(max_examples=settings().max_examples // 2)
@given(content=st.binary(max_size=80), suffix=st.sampled_from(["csv", "tsv", "json", "jsonl", "parquet"]))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str) -> None:
    """No other error than penstock's leaves a table."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / f"t.{suffix}").write_bytes(content)

    with contextlib.suppress(ps.PenstockError):
        ps.pack(folder / f"t.{suffix}", folder / "p.lmdb")


def test_files_of_a_table_cost_no_request_each(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a million rows name is looked at once, and for missing ones their folder is listed once."""
    names = ["images/0.jpg"] * 100 + [f"images/m{number}.jpg" for number in range(100)]
    path = write(folder, "csv", [{"file": name, "label": 1} for name in names])
    asked: list[str] = []
    for name in ("stat", "scandir"):
        ask: Callable[..., object] = getattr(os, name)

        def count_and_ask(place: object, *args: object, ask: Callable[..., object] = ask, **options: object) -> object:
            asked.append(str(place))
            return ask(place, *args, **options)

        monkeypatch.setattr(os, name, count_and_ask)

    source = ManifestSource(PackedTable(path), SourceOptions(key="index"), folder)

    assert len(source.keys) == len(source.problems) == 100
    assert asked.count(str(folder / "images/0.jpg")) == 1
    assert asked.count(str(folder / "images")) == 1
    assert [place for place in asked if "/m7" in place.lower()] == [
        str(folder / f"images/m{n}.jpg") for n in (7, *range(70, 80))
    ]
