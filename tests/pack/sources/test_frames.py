"""Packing dataframes of pandas, polars and others, and lists of dicts with paths of images."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # ships no types
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

import penstock as ps
from tests.pack.images import picture
from tests.pack.sources.test_iterables import commit_often, kinds, stop

ROWS: list[dict[str, Any]] = [
    {
        "file_name": f"{number}.jpg", "label": ("dog", "cat")[number % 2], "target": None if number == 2 else number,
        "score": float("nan") if number == 1 else number / 8, "day": dt.date(2024, 1, 1 + number),
        "tags": ["x"] * number,
    }
    for number in range(6)
]  # fmt: skip


class Interchanged:
    """A dataframe that has the interchange protocol and nothing else of pandas or Arrow."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._table = pa.Table.from_pylist([{**row, "tags": str(row["tags"])} for row in rows])
        self.columns = self._table.column_names

    def __dataframe__(self, **options: bool) -> object:
        return self._table.__dataframe__(**options)


FRAMES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas index": lambda rows: pd.DataFrame(rows).set_index("file_name"),
    "polars": pl.DataFrame,
    "arrow": pa.Table.from_pylist,
    "list": list,
    "to_dict": lambda rows: pd.DataFrame(rows).to_dict("records"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images."""
    (tmp_path / "set").mkdir()
    for number in range(6):
        (tmp_path / f"set/{number}.jpg").write_bytes(picture(number))
    return tmp_path / "set"


@pytest.mark.parametrize("kind", FRAMES)
def test_every_table_in_memory_gives_the_same_records(kind: str, folder: Path, tmp_path: Path) -> None:
    """Paths become images and keys, names classes, NaN no value; integers beside gaps are integers."""
    ps.pack(FRAMES[kind](ROWS), tmp_path / "p.lmdb", root=folder)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store) == {
            "image": "image", "label": "label", "target": "label", "score": "float", "day": "text", "tags": "json",
            "width": "int", "height": "int",
        }  # fmt: skip
        assert store.schema["label"].classes == ("cat", "dog")
        assert list(store.keys()) == [row["file_name"] for row in ROWS]
        for number, record in enumerate(store):
            fields = record.fields
            assert bytes(fields["image"]) == picture(number)
            assert fields["target"] == (None if number == 2 else number)
            assert fields["score"] == (None if number == 1 else number / 8)
            assert (fields["day"], fields["tags"]) == (f"2024-01-0{1 + number}", ["x"] * number)


def test_dataframes_of_other_libraries_are_read_by_the_interchange_protocol(folder: Path, tmp_path: Path) -> None:
    """Nothing of the library is known but the protocol."""
    rows = [{"path": row["file_name"], "tags": row["tags"], "n": number} for number, row in enumerate(ROWS)]

    ps.pack(Interchanged(rows), tmp_path / "p.lmdb", root=folder)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert bytes(store[3].fields["image"]) == picture(3)
        assert store.column("n").tolist() == list(range(6))


def test_paths_and_gaps_of_pandas_are_those_of_a_file(folder: Path, tmp_path: Path) -> None:
    """Objects of ``Path``, columns of categories, and pandas' own types of missing values."""
    frame = pd.DataFrame(
        {
            "path": [folder / "0.jpg", folder / "1.jpg"],
            "label": pd.Categorical(["b", "a"]),
            "count": pd.array([7, None], "Int64"),
            "when": pd.to_datetime(["2024-05-06 07:08:09", None]),
            "vector": [np.arange(3.0), np.ones(3)],
        }
    )

    ps.pack(frame, tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        first, second = (record.fields for record in store)
        assert (first["label"], first["count"], first["when"]) == (1, 7, "2024-05-06T07:08:09")
        assert (second["label"], second["count"], second["when"]) == (0, None, None)
        assert second["vector"].tolist() == [1, 1, 1]


def test_missing_files_are_named_by_row(folder: Path, tmp_path: Path) -> None:
    """Before anything is written, with the argument that names the folder."""
    with pytest.raises(ps.PackError, match=r"4\.jpg: row 4: there is no file .*root="):
        ps.pack(pd.DataFrame(ROWS), tmp_path / "p.lmdb", root=tmp_path)


@pytest.mark.parametrize(
    ("frame", "options", "reason"),
    [
        (pd.DataFrame({1: ["a"]}), {}, "must have different names, which are texts"),
        (pd.DataFrame([["a", "b"]], columns=["x", "x"]), {}, "must have different names"),
        (pd.DataFrame({"x": []}), {}, "the table DataFrame has no rows"),
        (pd.DataFrame({"x": [1]}), {"source_id": "a"}, "source_id is no option of a dataframe"),
        (pd.DataFrame({"x": [Image.new("L", (2, 2))]}), {}, "has pictures of Pillow; give an iterator"),
        ([*[{"path": "a.jpg"}] * 100, 7], {}, "row 100 must be a dict"),
    ],
)
def test_tables_in_memory_that_are_wrong_are_refused(
    frame: object, options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """With what to do; nothing is written."""
    with pytest.raises((ps.ArgumentError, ps.PackError), match=reason):
        ps.pack(frame, tmp_path / "p.lmdb", **options)
    assert not (tmp_path / "p.lmdb").exists()


def test_samples_with_images_are_no_tables(folder: Path, tmp_path: Path) -> None:
    """A text that is the name of an image stays text beside the image itself, and where the schema says so."""
    samples = [{"image": folder / f"{number}.jpg", "file_name": f"{number}.jpg"} for number in range(3)]
    names = [{"file_name": f"{number}.jpg", "n": number} for number in range(3)]

    ps.pack(samples, tmp_path / "p.lmdb")
    ps.pack(names, tmp_path / "q.lmdb", schema={"file_name": "text"})

    with ps.open(tmp_path / "p.lmdb") as p, ps.open(tmp_path / "q.lmdb") as q:
        assert (kinds(p)["image"], kinds(p)["file_name"], list(p.keys())) == ("image", "text", ["0", "1", "2"])
        assert kinds(q) == {"file_name": "text", "n": "int"}


@pytest.mark.parametrize("jobs", [0, 2])
def test_an_interrupted_dataframe_is_resumed(
    jobs: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished pack is used again if every value is the same, those of long arrays too."""
    frame = pd.DataFrame({"path": [row["file_name"] for row in ROWS] * 5, "vector": [np.zeros(2000)] * 30})
    changed = frame.assign(vector=[*frame["vector"][:29], np.eye(1, 2000, 1000)[0]])
    options: dict[str, Any] = {"root": folder, "key": "index"}
    with monkeypatch.context() as context:
        commit_often(context)
        with pytest.raises(KeyboardInterrupt):
            ps.pack(frame, tmp_path / "p.lmdb", progress=stop, jobs=jobs, **options)

    report = ps.pack(frame, tmp_path / "p.lmdb", jobs=jobs, **options)

    assert report.resumed > 0
    assert ps.pack(frame, tmp_path / "p.lmdb", **options).reused
    with pytest.raises(ps.ArgumentError, match="source was changed"):
        ps.pack(changed, tmp_path / "p.lmdb", **options)


SIZES = ("small", "medium", "large", "huge")
_values = ["large", "small", None, "medium"]
CATEGORICAL: dict[str, Callable[[list[str]], Any]] = {
    "pandas": lambda names: pd.DataFrame({"path": names, "label": pd.Categorical(_values, SIZES)}),
    "pandas ordered": lambda names: pd.DataFrame(
        {"path": names, "label": pd.Categorical(_values, SIZES, ordered=True)}
    ),
    "polars": lambda names: pl.DataFrame({"path": names, "label": pl.Series(_values, dtype=pl.Enum(SIZES))}),
    "arrow": lambda names: pa.Table.from_pandas(
        pd.DataFrame({"path": names, "label": pd.Categorical(_values, SIZES, ordered=True)})
    ),
}


@pytest.mark.parametrize("kind", CATEGORICAL)
def test_classes_have_the_order_of_categories(kind: str, folder: Path, tmp_path: Path) -> None:
    """Those that do not occur keep their number; a gap has no class."""
    frame = CATEGORICAL[kind]([f"{number}.jpg" for number in range(4)])

    ps.pack(frame, tmp_path / "p.lmdb", root=folder)

    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema["label"].classes == SIZES
        assert [record.fields["label"] for record in store] == [2, 0, None, 1]


def test_categories_of_a_column_that_is_made_a_label_keep_their_order(folder: Path, tmp_path: Path) -> None:
    """As those of a column that is called one; classes that are given come first."""
    frame = pd.DataFrame({"path": ["0.jpg", "1.jpg"], "size": pd.Categorical(["large", "small"], SIZES)})

    report = ps.pack(frame, tmp_path / "p.lmdb", root=folder, schema={"size": "label"})
    given = ps.pack(
        frame.rename(columns={"size": "label"}), tmp_path / "q.lmdb", root=folder, classes=["large", "small"]
    )

    assert report.schema is not None
    assert given.schema is not None
    assert report.schema["size"].classes == SIZES
    assert given.schema["label"].classes == ("large", "small")


MASKED = np.ma.masked_array([1.5, 2.5, 3.5], [False, True, False])


def test_masked_numbers_of_a_column_are_missing(folder: Path, tmp_path: Path) -> None:
    """Not the number under the mask."""
    rows = [{"file": f"{number}.jpg", "x": MASKED[number]} for number in range(3)]

    ps.pack({"x": MASKED, "n": np.arange(3)}, tmp_path / "p.lmdb")
    ps.pack(rows, tmp_path / "q.lmdb", root=folder)

    for name in ("p.lmdb", "q.lmdb"):
        with ps.open(tmp_path / name) as store:
            assert [record.fields["x"] for record in store] == [1.5, None, 3.5]


@pytest.mark.parametrize(
    "source",
    [
        MASKED,
        {"x": np.ma.masked_array(np.eye(3), np.eye(3, dtype=np.bool_)), "n": np.arange(3)},
        [{"x": MASKED}],
        [{"file": "0.jpg", "x": MASKED}],
        [{"x": {"inner": MASKED}}],
        ((MASKED, number) for number in range(3)),
    ],
)
def test_arrays_with_masked_values_are_refused(source: Any, folder: Path, tmp_path: Path) -> None:
    """A record has no place for a mask; an array whose mask is empty is an array."""
    with pytest.raises(ps.PackError, match=r"masked array of shape .* has .* for which a record has no place"):
        ps.pack(source, tmp_path / "p.lmdb")

    ps.pack([{"x": np.ma.masked_array([1, 2])}], tmp_path / "q.lmdb")


def test_a_value_of_another_shape_is_refused_with_the_kind_to_give(tmp_path: Path) -> None:
    """The kind that holds the values before and this one, which can be copied; three dots are no kind."""
    rows = [{"keypoints": np.zeros((68, 2)), "points": np.zeros((68, 2)), "n": 1} for _ in range(150)]
    rows[120]["points"] = np.zeros((5, 2))
    rows[121]["keypoints"] = np.zeros((1, 68, 3))

    with pytest.raises(ps.PackError) as caught:
        ps.pack(iter(rows), tmp_path / "p.lmdb", schema={"keypoints": "keypoints"})

    assert "schema={'points': 'float64[*,2]'}" in str(caught.value)
    assert "schema={'keypoints': kind}" in str(caught.value)
    assert "..." not in str(caught.value)
