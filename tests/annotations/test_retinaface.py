"""RetinaFace's lists of faces, and WIDER FACE's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations import read
from penstock.annotations.retinaface import RetinaFaceFormat
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

POINTS = "4 5 0 6 5 1 5 6 0 4 7 0 6 7 0"
LABELS = f"# 0--A/a.jpg\n2 3 8 9 {POINTS} 0.5\n1 1 4 4\n# 0--A/b b.jpg\n0 0 40 20 {' -1' * 15} 0\n# c.JPG\n"
WIDER = (
    "0--A/a.jpg\n2\n2 3 8 9 1 0 1 0 2 1\n1 1 4 4 0 0 0 1 0 0 \n"
    "0--A/b b.jpg\n0\n0 0 0 0 0 0 0 0 0 0\nc.JPG\n1\n0 0 40 20 0 0 0 0 0 0\n"
)


def make_images(folder: Path) -> Path:
    """The images of both lists."""
    for name in ("0--A/a.jpg", "0--A/b b.jpg", "c.JPG"):
        put_image(folder / name)
    return folder


def make_set(folder: Path, labels: str | bytes = LABELS) -> Path:
    """A list beside its images."""
    make_images(folder / "images")
    put(folder / "label.txt", labels)
    return folder


@pytest.mark.parametrize("container", ["", "label.txt"])
def test_the_real_set_is_what_its_writer_says(data_dir: Path, container: str) -> None:
    """Boxes and landmarks of all records, in order; -1 where a row has no landmarks."""
    folder = find_set(data_dir, "retinaface")
    expected = read_expected(folder)

    found = read(folder / container, "retinaface")

    check_expected(found, expected)
    for record, entry in zip(found, expected["records"], strict=True):
        points = [np.full((5, 3), -1.0) if each is None else each for each in entry["landmarks"]]
        np.testing.assert_allclose(record["keypoints"], points, atol=1e-3)
    assert RetinaFaceFormat.recognises(AnnotationSource.open(folder / container, None))


def test_landmarks_and_blur_are_read(tmp_path: Path) -> None:
    """A row that ends after its box has -1 in all landmarks and no blur; images keep the order of the file."""
    found = read(make_set(tmp_path), "retinaface")

    assert [record["image"] for record in found] == ["images/0--A/a.jpg", "images/0--A/b b.jpg", "images/c.JPG"]
    assert found[0]["boxes"].tolist() == [[2, 3, 10, 12], [1, 1, 5, 5]]
    assert found[0]["keypoints"][0].tolist() == [[4, 5, 0], [6, 5, 1], [5, 6, 0], [4, 7, 0], [6, 7, 0]]
    assert (found[0]["keypoints"][1] == -1).all()
    assert (found[1]["keypoints"] == -1).all()
    np.testing.assert_array_equal(found[0]["blur"], [0.5, np.nan])
    assert found[2]["boxes"].shape == (0, 4)
    assert found[2]["keypoints"].shape == (0, 5, 3)
    assert found.classes == ("face",)


@pytest.mark.parametrize("encode", ["utf-8-sig", "utf-16"])
def test_marks_line_ends_and_windows_paths_change_nothing(tmp_path: Path, encode: str) -> None:
    """A byte-order mark, CRLF and backslashes."""
    text = LABELS.replace("\n", "\r\n").replace("0--A/", "D:\\faces\\0--A\\")

    found = read(make_set(tmp_path, text.encode(encode)), "retinaface")

    assert [len(record["labels"]) for record in found] == [2, 1, 0]


def test_folders_of_several_lists_are_splits(tmp_path: Path) -> None:
    """Each with the images beside it."""
    make_set(tmp_path / "train")
    make_set(tmp_path / "val")

    found, part = read(tmp_path, "retinaface"), read(tmp_path, "retinaface", split="val")

    assert [record["split"] for record in found] == ["train"] * 3 + ["val"] * 3
    assert [record["image"] for record in part] == [record["image"] for record in found][3:]
    with pytest.raises(ArgumentError, match="split must be one of train, val"):
        read(tmp_path, "retinaface", split="test")


def test_wider_has_attributes(tmp_path: Path) -> None:
    """Six of each face; the row of zeros of an image without faces is none."""
    make_images(tmp_path / "WIDER_train" / "images")
    put(tmp_path / "wider_face_split" / "wider_face_train_bbx_gt.txt", WIDER)
    put(tmp_path / "wider_face_split" / "readme.txt", "a text")

    found = read(tmp_path, "retinaface")

    assert [len(record["labels"]) for record in found] == [2, 0, 1]
    assert found[0]["boxes"].tolist() == [[2, 3, 10, 12], [1, 1, 5, 5]]
    names = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")
    assert [found[0][name].tolist() for name in names] == [[1, 0], [0, 0], [1, 0], [0, 1], [2, 0], [1, 0]]
    assert found[0]["split"] == "train"
    assert "keypoints" not in found[0]
    assert RetinaFaceFormat.recognises(AnnotationSource.open(tmp_path, None))


def test_a_count_that_disagrees_is_noted(tmp_path: Path) -> None:
    """All rows are read."""
    make_images(tmp_path)
    put(tmp_path / "list.txt", WIDER.replace("a.jpg\n2", "a.jpg\n3"))

    found = read(tmp_path / "list.txt", "retinaface", on_error="skip")

    assert [len(record["labels"]) for record in found] == [2, 0, 1]
    assert [problem.effect for problem in found.problems] == ["count ignored"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1 1 4", "its row must have 4, 19, 20 numbers, got 3"),
        ("1 1 4 x", "its row must be a number, got 'x'"),
        ("1 1 0 4", "which is empty"),
        ("1 1 -1 4", "which is inverted"),
        ("50 1 4 4", "its box must lie in the image"),
        (f"1 1 4 4 {POINTS} 0.5 1", "got 21"),
        (f"1 1 4 4 {POINTS.replace('7', 'inf')}", "its keypoints must be finite numbers"),
    ],
)
def test_a_wrong_row_is_noted_and_left_out(tmp_path: Path, row: str, reason: str) -> None:
    """With its line; the other rows of its image are read."""
    make_set(tmp_path, LABELS.replace("1 1 4 4\n", f"{row}\n"))

    found = read(tmp_path, "retinaface", on_error="skip")

    (problem,) = found.problems
    assert (problem.file, problem.line, problem.effect) == ("label.txt", 3, "object left out")
    assert reason in problem.reason
    assert [len(record["labels"]) for record in found] == [1, 1, 0]


def test_a_damaged_path_takes_no_rows_of_another_image(tmp_path: Path) -> None:
    """Its rows are not added to the image before it; an image that is missing or named twice is noted once."""
    text = LABELS.replace("# 0--A/b b.jpg", "; b b.jpq") + "# c.JPG\n1 1 4 4\n# none.jpg\n1 1 4 4\n"

    found = read(make_set(tmp_path, text), "retinaface", on_error="skip")

    assert [len(record["labels"]) for record in found] == [2, 0]
    assert [(problem.line, problem.effect) for problem in found.problems] == [
        (4, "image left out"),
        (7, "image left out"),
        (9, "image left out"),
    ]


def test_rows_before_any_image_are_noted(tmp_path: Path) -> None:
    """Each of them."""
    found = read(make_set(tmp_path, "1 1 4 4\n1 1 5 5\n" + LABELS), "retinaface", on_error="skip")

    assert [problem.reason for problem in found.problems] == ["the row belongs to no image"] * 2


def test_a_folder_without_a_list_is_an_error(tmp_path: Path) -> None:
    """It names the files that are looked for; other texts are not recognised."""
    put(tmp_path / "a.txt", "a.jpg 3")

    with pytest.raises(AnnotationError, match=r"label\.txt"):
        read(tmp_path, "retinaface")
    assert not RetinaFaceFormat.recognises(AnnotationSource.open(tmp_path / "a.txt", None))


@pytest.fixture(scope="module")
def damaged_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose list is damaged and mended."""
    return make_set(tmp_path_factory.mktemp("retinaface"))


@given(changes=damage(), text=st.sampled_from([LABELS, WIDER]))
def test_damage_is_an_error_or_a_problem(damaged_set: Path, changes: list[Damage], text: str) -> None:
    """No other exception leaves `read`, and records keep the contract."""
    put(damaged_set / "label.txt", apply_damage(text.encode(), changes))

    read_damaged(damaged_set, "retinaface")


@given(row=st.sampled_from([0, 1, 2, 3, 4]), column=st.integers(0, 20), text=st.sampled_from(HOSTILE))
def test_an_object_that_is_missing_is_counted(damaged_set: Path, row: int, column: int, text: bytes) -> None:
    """A word of a line becomes another: the object is read, or a problem names what was left out."""
    put(damaged_set / "label.txt", LABELS)

    check_token_damage(damaged_set, "retinaface", damaged_set / "label.txt", 3, (row, column, text))
