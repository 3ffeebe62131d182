"""Manifests: what their columns are, and whatever may be wrong with a file."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.table_files import MISSING_WORDS
from penstock.stores.mongo.joined_manifest import JoinedManifest, read_manifest


def write(folder: Path, name: str, text: str | bytes) -> Path:
    """A file."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(manifest: JoinedManifest) -> list[dict[str, Any]]:
    """The columns, row by row."""
    return [{name: column.get(row) for name, column in manifest.columns.items()} for row in range(len(manifest.names))]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_columns_have_kinds(tmp_path: Path, separator: str) -> None:
    """Columns of a table are integers, floats or texts by all their values; an empty number is None."""
    lines = ["n,label,count,ratio,code,text,mixed,none", "a,1,-5,0.5,007,x,1,", "b,,6,1e-3,1,1,y,", "c,2,7,,2,,2,"]
    path = write(tmp_path, "t.tsv" if separator == "\t" else "t.csv", "\n".join(lines).replace(",", separator) + "\n")

    manifest = read_manifest(path, "n")

    assert manifest.names == ["a", "b", "c"]
    assert {name: column.field.kind for name, column in manifest.columns.items()} == {
        "label": "label",
        "count": "int",
        "ratio": "float",
        "code": "text",
        "text": "text",
        "mixed": "text",
        "none": "text",
    }
    assert rows(manifest)[1] == {
        "label": None,
        "count": 6,
        "ratio": 0.001,
        "code": "1",
        "text": "1",
        "mixed": "y",
        "none": "",
    }
    assert manifest.columns["ratio"].select([2, 0]).get(0) is None
    assert manifest.columns["count"].select([2, 0]).get(1) == -5


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_objects_are_rows(tmp_path: Path, suffix: str) -> None:
    """Objects of a list, or of lines, are rows; lists are JSON, labels that are texts are classes."""
    objects = [{"n": 3, "label": "dog", "box": [1, 2]}, {"n": "b", "label": "ant"}, {"n": "c", "x": 1.5, "label": None}]
    text = json.dumps(objects) if suffix == "json" else "\n\n".join(map(json.dumps, objects))

    manifest = read_manifest(write(tmp_path, f"t.{suffix}", text), "n")

    assert manifest.names == ["3", "b", "c"]
    assert manifest.columns["label"].field.classes == ("ant", "dog")
    assert rows(manifest) == [
        {"label": 1, "box": [1, 2], "x": None},
        {"label": 0, "box": None, "x": None},
        {"label": None, "box": None, "x": 1.5},
    ]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("t.txt", "", ArgumentError, "manifest must be a file .csv"),
        ("t.csv", "", StoreFormatError, "must begin with a line of column names"),
        ("t.csv", "m,x\n1,2\n", ArgumentError, "join must be a column of the manifest, got 'n'; it has: 'm', 'x'"),
        ("t.csv", "n,x\n1\n", StoreFormatError, "line 2 of t.csv has 1 values, and the header has 2 columns"),
        ("t.csv", "n,x\n1,2\n1,2,3\n", StoreFormatError, "line 3 of t.csv has 3 values"),
        ("t.csv", "n,x\n,2\n", StoreFormatError, "row 0 of the manifest has no 'n'"),
        ("t.csv", b"n,x\n\xff,2\n", StoreFormatError, "must be UTF-8"),
        ("t.csv", 'n,x\n"a,2\n', StoreFormatError, "the row that begins at line 2: a quote is not closed"),
        ("t.json", "[1]", StoreFormatError, "row 0 of t.json must be a JSON object"),
        ("t.json", '{"a": 1}', StoreFormatError, "must be a JSON array of objects"),
        ("t.json", '[{"n": 1}', StoreFormatError, "the array does not end"),
        ("t.json", "[" * 100_000, StoreFormatError, "row 0 of t.json must be a JSON object"),
        ("t.jsonl", '{"n": 1}\n{', StoreFormatError, "line 2 of t.jsonl must be a JSON object"),
        ("t.jsonl", '{"n": 1}\n{"m": 1}\n', StoreFormatError, "row 1 of the manifest has no 'n'"),
    ],
)
def test_damaged_manifests_are_refused(
    tmp_path: Path, name: str, content: str | bytes, kind: type[Exception], message: str
) -> None:
    """Whatever is wrong, the error says where."""
    with pytest.raises(kind, match=message):
        read_manifest(write(tmp_path, name, content), "n")


def test_an_absent_manifest_is_not_found(tmp_path: Path) -> None:
    """A path without a file is not found."""
    with pytest.raises(StoreNotFoundError, match=r"there is no table t\.csv"):
        read_manifest(tmp_path / "t.csv", "n")


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(values=st.lists(st.tuples(TEXTS.filter(bool), TEXTS, st.integers(-(10**20), 10**20), st.floats()), min_size=1))
def test_what_csv_writes_is_read(
    values: list[tuple[str, str, int, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What Python's csv module writes comes back: texts, numbers of any size, floats; words for gaps may be gaps."""
    file = io.StringIO()
    csv.writer(file).writerows([("n", "text", "int", "float"), *values])
    path = write(tmp_path_factory.mktemp("t"), "t.csv", file.getvalue())

    manifest = read_manifest(path, "n")

    assert manifest.names == [name for name, *_ in values]
    for row, (_, text, number, ratio) in zip(rows(manifest), values, strict=True):
        is_gap = text.strip() in {"", *MISSING_WORDS}
        assert is_gap or str(row["text"]) == text or float(row["text"] or "nan") == float(text)
        assert row["int"] == number or row["int"] == float(number) or row["int"] == str(number)
        is_missing = row["float"] in {None, "nan"}  # a column of gaps alone is of texts
        assert row["float"] == ratio or (math.isnan(ratio) and (is_missing or math.isnan(row["float"])))


@given(content=st.binary(max_size=60) | TEXTS.map(str.encode), name=st.sampled_from(["t.csv", "t.json", "t.jsonl"]))
def test_any_bytes_are_read_or_refused(content: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any file is a manifest, or an error of penstock."""
    path = write(tmp_path_factory.mktemp("t"), name, content)
    with contextlib.suppress(PenstockError):
        read_manifest(path, "n")


def test_rows_may_lack_columns(tmp_path: Path) -> None:
    """A column that begins later, or ends before the last row, has no value in the other rows."""
    text = '{"n": "a", "x": 1}\n{"n": "b", "y": "p"}\n{"z": 2.5, "n": "c"}\n{"n": "d"}\n'

    manifest = read_manifest(write(tmp_path, "t.jsonl", text), "n")

    assert manifest.names == ["a", "b", "c", "d"]
    assert [list(each.values()) for each in rows(manifest)] == [
        [1, None, None],
        [None, "p", None],
        [None, None, 2.5],
        [None, None, None],
    ]
