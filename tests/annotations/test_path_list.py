"""Lists of paths with a class, several classes, or boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations import read
from penstock.annotations.path_list import PathListFormat
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.damage import HOSTILE, Damage, apply_damage, damage, put, put_image, read_damaged

NAMES = ("x/a.jpg", "x/b 1.PNG", "c.jpg")
NUMBERS = "x/a.jpg 3\nx/b 1.PNG 0\nc.jpg 3\n"
BOXES = "x/a.jpg 1 2 10 12 dog 0 0 40 20 cat\nx/b 1.PNG\nc.jpg 5 5 9 9 dog\n"


def make_set(folder: Path, text: str | bytes, name: str = "list.txt") -> Path:
    """Three images and their list."""
    for each in NAMES:
        put_image(folder / each)
    return put(folder / name, text)


@pytest.mark.parametrize("delimiter", [" ", "\t", ",", ", ", ";", "  "])
def test_a_number_is_the_label_of_the_image(tmp_path: Path, delimiter: str) -> None:
    """Whatever stands between; paths may have spaces, and labels keep their numbers."""
    rows = [line.rsplit(" ", 1) for line in NUMBERS.splitlines()]

    found = read(make_set(tmp_path, "\r\n".join(delimiter.join(row) for row in rows)), "path_list")

    assert [record["image"] for record in found] == list(NAMES)
    assert [record["label"] for record in found] == [3, 0, 3]
    assert [len(record["boxes"]) for record in found] == [0, 0, 0]
    assert found.classes == ("0", "1", "2", "3")
    assert found.details == {"layout": "label"}


def test_names_become_numbers_in_alphabetical_order(tmp_path: Path) -> None:
    """A header is none of the images; with commas, a name may have spaces."""
    path = make_set(tmp_path, 'image,label\nx/a.jpg,hot dog\n"x/b 1.PNG",cat\nc.jpg,hot dog\n', "list.csv")

    found = read(path, "path_list")

    assert found.classes == ("cat", "hot dog")
    assert [record["label"] for record in found] == [1, 0, 1]


def test_classes_that_are_given_have_their_order(tmp_path: Path) -> None:
    """As a sequence or a file; numbers and names that are not among them are noted."""
    named = make_set(tmp_path, "x/a.jpg dog\nc.jpg cat\nx/b 1.PNG cow\n")
    numbered = put(tmp_path / "numbers.txt", "x/a.jpg 1\nc.jpg 2\n")
    classes = put(tmp_path / "names", "dog\ncat\n")

    one = read(named, "path_list", on_error="skip", classes=["dog", "cat"])
    two = read({"annotations": numbered, "classes": classes}, "path_list", on_error="skip")

    assert [record["label"] for record in one] == [0, 1]
    assert [problem.line for problem in one.problems] == [3]
    assert [record["label"] for record in two] == [1]
    assert two.classes == ("dog", "cat")
    assert [problem.reason for problem in two.problems] == ["its class '2' is not one of the classes"]


def test_several_labels_are_an_array(tmp_path: Path) -> None:
    """Of each image, one label included; said to be one, they are one name with spaces."""
    path = make_set(tmp_path, "x/a.jpg dog cat\nc.jpg cat\n")

    several, single = read(path, "path_list", layout="labels"), read(path, "path_list", layout="label")

    assert [record["label"].tolist() for record in several] == [[1, 0], [0]]
    assert single.classes == ("cat", "dog cat")
    with pytest.raises(ArgumentError, match="give layout="):
        read(path, "path_list")


@pytest.mark.parametrize(
    "text",
    [
        BOXES,
        "x/a.jpg 1,2,10,12,dog 0,0,40,20,cat\nx/b 1.PNG\nc.jpg 5,5,9,9,dog",
        "path,x1,y1,x2,y2,name\nx/a.jpg,1,2,10,12,dog\nx/a.jpg,0,0,40,20,cat\nx/b 1.PNG,,,,,\nc.jpg,5,5,9,9,dog\n",
    ],
)
def test_boxes_follow_their_image(tmp_path: Path, text: str) -> None:
    """On one line, in groups with commas, or on lines of their own."""
    found = read(make_set(tmp_path, text), "path_list")

    assert [record["image"] for record in found] == list(NAMES)
    assert found[0]["boxes"].tolist() == [[1, 2, 10, 12], [0, 0, 40, 20]]
    assert [record["labels"].tolist() for record in found] == [[1, 0], [], [1]]
    assert found.classes == ("cat", "dog")
    assert found.details == {"layout": "boxes"}


def test_numbers_of_boxes_are_their_classes(tmp_path: Path) -> None:
    """Without names, all numbers up to the largest are classes."""
    path = make_set(tmp_path, "x/a.jpg 1,2,10,12,2\nc.jpg 5,5,9,9,0\n")

    found, named = read(path, "path_list"), read(path, "path_list", classes=["a", "b", "c"])

    assert found.classes == ("0", "1", "2")
    assert named.classes == ("a", "b", "c")
    assert [record["labels"].tolist() for record in found] == [[2], [0]]
    assert [record["labels"].tolist() for record in named] == [[2], [0]]


@pytest.mark.parametrize("text", ["x/a.jpg 0 1 0 1 1\n", "x/a.jpg 1 0\n", "x/a.jpg\nc.jpg\n"])
def test_what_can_be_read_in_more_than_one_way_is_refused(tmp_path: Path, text: str) -> None:
    """Five values that are no box, several labels, or none."""
    with pytest.raises(ArgumentError, match="give layout=, one of label, labels, boxes"):
        read(make_set(tmp_path, text), "path_list")


@pytest.mark.parametrize(
    ("layout", "row", "reason"),
    [
        ("label", "c.jpg", "its line must have a class after the path"),
        ("label", "none.jpg 3", "there is no image 'none.jpg'"),
        ("label", "x/a.jpg 3", "the image 'x/a.jpg' is annotated already"),
        ("label", "cat 3", "its line must begin with the path of an image"),
        ("boxes", "c.jpg 1 2 3 4", "got 4 values"),
        ("boxes", "c.jpg 1 2 x 4 dog", "its box must be a number, got 'x'"),
        ("boxes", "c.jpg 9 9 3 4 dog", "which is inverted"),
    ],
)
def test_a_wrong_line_is_noted_and_left_out(tmp_path: Path, layout: str, row: str, reason: str) -> None:
    """With its number; the other lines are read."""
    first = "x/a.jpg 3" if layout == "label" else "x/a.jpg 1 2 10 12 dog"

    found = read(make_set(tmp_path, f"{first}\n{row}\n"), "path_list", layout=layout, on_error="skip")

    (problem,) = found.problems
    assert (problem.file, problem.line) == ("list.txt", 2)
    assert problem.effect.endswith("left out")
    assert reason in problem.reason
    assert found[0]["image"] == "x/a.jpg"


def test_a_first_line_that_is_damaged_is_no_header(tmp_path: Path) -> None:
    """It is noted."""
    found = read(make_set(tmp_path, NUMBERS.replace("a.jpg", "a.jpq")), "path_list", on_error="skip")

    assert [problem.line for problem in found.problems] == [1]
    assert len(found) == 2


def test_several_lists_are_splits(tmp_path: Path) -> None:
    """By their names, with absolute paths and those of other systems; other texts are no lists."""
    put(tmp_path / "train.txt", f"{tmp_path}/x/a.jpg 1\nC:\\pictures\\c.jpg 0\n")
    put(tmp_path / "README.txt", "Pictures of dogs")
    make_set(tmp_path, "x/b 1.PNG 1\n", "val.txt")

    found, part = read(tmp_path, "path_list"), read(tmp_path, "path_list", split="val")

    assert [(record["image"], record["split"]) for record in found] == [
        ("x/a.jpg", "train"),
        ("c.jpg", "train"),
        ("x/b 1.PNG", "val"),
    ]
    assert len(part) == 1
    with pytest.raises(ArgumentError, match="split must be one of train, val"):
        read(tmp_path, "path_list", split="test")


def test_an_image_of_two_lists_is_noted(tmp_path: Path) -> None:
    """It stays in the first; its boxes of the other are not added to it."""
    make_set(tmp_path, "c.jpg 1 2 10 12 dog\n", "train.txt")
    put(tmp_path / "val.txt", "c.jpg 1 2 10 13 dog\n")

    found = read(tmp_path, "path_list", on_error="skip")

    assert [(record["split"], record["boxes"].tolist()) for record in found] == [("train", [[1, 2, 10, 12]])]
    assert [(problem.file, problem.effect) for problem in found.problems] == [("val.txt", "image left out")]


def test_recognition_is_by_paths_of_images_with_values(tmp_path: Path) -> None:
    """Paths alone are no list, and a folder without one is an error."""
    make_set(tmp_path / "a", NUMBERS)
    make_set(tmp_path / "b", "x/a.jpg\nc.jpg\n")

    assert PathListFormat.recognises(AnnotationSource.open(tmp_path / "a", None))
    assert not PathListFormat.recognises(AnnotationSource.open(tmp_path / "b", None))
    with pytest.raises(AnnotationError, match="there must be a list"):
        read(tmp_path / "b", "path_list")
    with pytest.raises(ArgumentError, match="layout must be one of"):
        read(tmp_path / "a", "path_list", layout="x")


@pytest.fixture(scope="module")
def damaged_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The list of a set, which is damaged and mended."""
    return make_set(tmp_path_factory.mktemp("path_list"), NUMBERS)


LAYOUTS = [("label", NUMBERS), ("labels", NUMBERS), ("boxes", BOXES), ("boxes", BOXES.replace(" ", ","))]


@given(changes=damage(), form=st.sampled_from(LAYOUTS))
def test_damage_is_an_error_or_a_problem(damaged_set: Path, changes: list[Damage], form: tuple[str, str]) -> None:
    """No other exception leaves `read`, and records keep the contract."""
    layout, text = form
    put(damaged_set, apply_damage(text.encode(), changes))

    found = read_damaged(damaged_set, "path_list", layout=layout)

    for record in found or ():
        label = record.get("label", 0)
        assert isinstance(label, int) if layout == "label" else isinstance(label, int | np.ndarray)


@given(row=st.integers(0, 2), text=st.sampled_from(HOSTILE))
def test_an_image_that_is_missing_is_counted(damaged_set: Path, row: int, text: bytes) -> None:
    """The path of a line becomes another: the image is read, or a problem names it."""
    lines = NUMBERS.encode().splitlines()
    lines[row] = text + lines[row][1:]
    put(damaged_set, b"\n".join(lines))

    found = read_damaged(damaged_set, "path_list", layout="label")

    assert found is None or len(found) + len(found.problems) >= 3 or text.startswith(b"\xff")
