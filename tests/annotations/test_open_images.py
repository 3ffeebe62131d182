"""Open Images: rows of CSV in any order of columns, classes by their codes, images by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations import read
from penstock.annotations.open_images import OpenImagesFormat, split_row
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.damage import (
    HOSTILE,
    Damage,
    apply_damage,
    check_expected,
    check_token_damage,
    damage,
    find_set,
    put,
    put_image,
    read_damaged,
    read_expected,
)

HEADER = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
ROWS = (
    "b,xclick,/m/1,1,0.25,0.5,0.1,0.9,1,0,0,0,-1\n"
    "a,activemil,/m/2,0.5,0,1,0,1,0,0,1,0,0\n"
    "b,xclick,/m/2,1,0.5,1,0.5,1,0,1,0,0,0\n"
)
CLASSES = '/m/2,"Tap, faucet"\n/m/1,Cat\n'


def make_set(folder: Path, rows: str = ROWS, header: str = HEADER, classes: str = CLASSES) -> Path:
    """Two images, and one that no row names."""
    for name in ("a", "b", "c"):
        put_image(folder / "train" / f"{name}.jpg")
    put(folder / "train-annotations-bbox.csv", f"{header}\n{rows}")
    put(folder / "class-descriptions-boxable.csv", classes)
    return folder


@pytest.mark.parametrize("is_mapping", [False, True])
def test_the_real_set_is_what_its_writer_says(data_dir: Path, is_mapping: bool) -> None:
    """Boxes, classes and groups of all records, in order, given the folder or its parts."""
    folder = find_set(data_dir, "open-images")
    expected = read_expected(folder)
    parts = {name: folder / path for name, path in expected["container"].items()}

    found = read(parts if is_mapping else folder, "open_images")

    check_expected(found, expected)
    assert found.classes == tuple(expected["class_names"])
    for record, entry in zip(found, expected["records"], strict=True):
        assert record["crowd"].tolist() == [int(each) for each in entry["is_group_of"]]


def test_rows_of_one_image_are_one_record(tmp_path: Path) -> None:
    """Wherever they stand; attributes are fields, groups are crowds, images keep the order of the file."""
    found = read(make_set(tmp_path), "open_images")

    assert [record["id"] for record in found] == ["b", "a"]
    assert [record["image"] for record in found] == ["train/b.jpg", "train/a.jpg"]
    assert found.classes == ("Tap, faucet", "Cat")
    np.testing.assert_allclose(found[0]["boxes"], [[10, 2, 20, 18], [20, 10, 40, 20]])
    assert found[0]["labels"].tolist() == [1, 0]
    assert [record["crowd"].tolist() for record in found] == [[0, 0], [1]]
    assert found[0]["inside"].tolist() == [-1, 0]
    assert found[0]["occluded"].tolist() == [1, 0]
    assert found[1]["confidence"].tolist() == [0.5]
    assert found[1]["source"] == ["activemil"]
    assert found[0]["split"] == "train"


def test_columns_may_be_in_any_order_and_more(tmp_path: Path) -> None:
    """Only those of ids, classes and corners are needed; unknown ones are fields of their own names."""
    rows = "0.9,0.1,/m/1,,0.5,b,0.25\n"
    make_set(tmp_path, rows, "YMax,YMin,LabelName,area,XMax,ImageID,XMin", classes="LabelName,DisplayName\n/m/1,Cat\n")

    (record,) = found = read(tmp_path, "open_images")

    np.testing.assert_allclose(record["boxes"], [[10, 2, 20, 18]])
    assert found.classes == ("Cat",)
    assert "crowd" not in record


def test_without_descriptions_classes_are_codes(tmp_path: Path) -> None:
    """In alphabetical order."""
    make_set(tmp_path)
    (tmp_path / "class-descriptions-boxable.csv").unlink()

    assert read(tmp_path, "open_images").classes == ("/m/1", "/m/2")


def test_files_of_several_splits_are_read_together_or_alone(tmp_path: Path) -> None:
    """An id in both is the image in the folder of the split."""
    make_set(tmp_path)
    put_image(tmp_path / "validation" / "b.jpg")
    put(tmp_path / "validation-annotations-bbox.csv", f"{HEADER}\n{ROWS.splitlines()[0]}\n")

    found, part = read(tmp_path, "open_images"), read(tmp_path, "open_images", split="validation")

    assert [record["image"] for record in found] == ["train/b.jpg", "train/a.jpg", "validation/b.jpg"]
    assert [record["image"] for record in part] == ["validation/b.jpg"]
    with pytest.raises(ArgumentError, match="split must be one of train, validation"):
        read(tmp_path, "open_images", split="x")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b,xclick,/m/1,1,0.25", "its row must have 13 values, got 5"),
        ("b,x,/m/9,1,0.25,0.5,0.1,0.9,1,0,0,0,0", "its class '/m/9' is not one of the classes"),
        ("b,x,/m/1,1,0.5,0.5,0.1,0.9,1,0,0,0,0", "which is empty"),
        ("b,x,/m/1,1,x,0.5,0.1,0.9,1,0,0,0,0", "its XMin must be a number, got 'x'"),
        ("b,x,/m/1,1,0.1,0.5,0.1,0.9,1,0,x,0,0", "its IsGroupOf must be a number, got 'x'"),
        ('b,"' + "x" * 200_000, "it is no row of a CSV file"),
    ],
)
def test_a_wrong_row_is_noted_and_left_out(tmp_path: Path, row: str, reason: str) -> None:
    """With its line; the others are read."""
    make_set(tmp_path, ROWS + row)

    found = read(tmp_path, "open_images", on_error="skip")

    (problem,) = found.problems
    assert (problem.file, problem.line) == ("train-annotations-bbox.csv", 5)
    assert problem.effect == "object left out"
    assert reason in problem.reason
    assert [len(record["labels"]) for record in found] == [2, 1]


def test_a_missing_image_is_noted_once(tmp_path: Path) -> None:
    """Whatever the number of its rows; an id leads to no file elsewhere."""
    put_image(tmp_path / "other.jpg")
    make_set(tmp_path / "set", ROWS.replace("b,", "../other,"))

    found = read(tmp_path / "set", "open_images", on_error="skip")

    assert [(problem.line, problem.effect) for problem in found.problems] == [(2, "image left out")]
    assert len(found) == 1


@pytest.mark.parametrize("header", ["", "ImageID,LabelName", HEADER + ",XMin"])
def test_a_file_without_its_columns_is_an_error(tmp_path: Path, header: str) -> None:
    """It names them."""
    make_set(tmp_path, header=header)

    with pytest.raises(AnnotationError, match="ImageID, LabelName, XMin"):
        read(tmp_path, "open_images")


def test_wrong_descriptions_are_noted(tmp_path: Path) -> None:
    """A row without a name, and a code with two names."""
    make_set(tmp_path, classes=CLASSES + "/m/3\n/m/1,Dog\n")

    found = read(tmp_path, "open_images", on_error="skip")

    assert [(problem.line, problem.effect) for problem in found.problems] == [
        (3, "class left out"),
        (4, "class left out"),
    ]
    assert found.classes == ("Tap, faucet", "Cat")


def test_recognition_is_by_the_columns(tmp_path: Path) -> None:
    """In any file of a folder; with a mark, CRLF and quotes."""
    put(tmp_path / "a" / "other.csv", "a,b\n1,2\n")
    make_set(tmp_path / "b")
    header = ",".join(f'"{each}"' for each in HEADER.split(","))
    put(tmp_path / "c" / "x.csv", b"\xef\xbb\xbf" + f"{header}\r\n{ROWS}".encode())
    put_image(tmp_path / "c" / "b.jpg")
    put_image(tmp_path / "c" / "a.jpg")

    assert [OpenImagesFormat.recognises(AnnotationSource.open(tmp_path / each, None)) for each in "abc"] == [
        False,
        True,
        True,
    ]
    assert [len(record["labels"]) for record in read(tmp_path / "c", "open_images")] == [2, 1]


def test_a_row_is_split_as_csv() -> None:
    """Quotes hold commas; one that is not closed ends with the line."""
    assert split_row('a, "b" ,"c,d",') == ["a", "b", "c,d", ""]
    assert split_row('a,"b,c') == ["a", "b,c"]
    assert split_row("a\tb", "\t") == ["a", "b"]


@pytest.fixture(scope="module")
def damaged_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose files are damaged and mended."""
    return make_set(tmp_path_factory.mktemp("open_images"))


@given(name=st.sampled_from(["train-annotations-bbox.csv", "class-descriptions-boxable.csv"]), changes=damage())
def test_damage_is_an_error_or_a_problem(damaged_set: Path, name: str, changes: list[Damage]) -> None:
    """No other exception leaves `read`, and records keep the contract."""
    make_set(damaged_set)
    put(damaged_set / name, apply_damage((damaged_set / name).read_bytes(), changes))

    read_damaged(damaged_set, "open_images")


@given(row=st.integers(1, 3), column=st.integers(0, 30), text=st.sampled_from(HOSTILE))
def test_an_object_that_is_missing_is_counted(damaged_set: Path, row: int, column: int, text: bytes) -> None:
    """A word of a row becomes another: the object is read, or a problem names what was left out."""
    make_set(damaged_set)

    path = damaged_set / "train-annotations-bbox.csv"
    check_token_damage(damaged_set, "open_images", path, 3, (row, column, text))
