"""YOLO: every layout of files and of lines, and what is wrong in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations import read
from penstock.annotations.source import AnnotationSource
from penstock.annotations.yolo.format import YoloFormat
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

DETECTIONS = "0 0.5 0.5 0.2 0.4\n1 0.25 0.5 0.5 0.5\n"
BOXES = [[16, 6, 24, 14], [0, 5, 20, 15]]
YAML = "path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames:\n  0: cat\n  1: dog\n"


def make_set(folder: Path) -> Path:
    """Two images of train, one of val, one of them without labels."""
    put(folder / "data.yaml", YAML)
    for name in ("train/b", "train/a", "val/c"):
        put_image(folder / "images" / f"{name}.jpg")
    put(folder / "labels" / "train" / "b.txt", DETECTIONS)
    put(folder / "labels" / "val" / "c.txt", "1 0.5 0.5 1 1")
    return folder


def make_one(folder: Path, labels: str | bytes, yaml: str = "names: [cat, dog]\n") -> Path:
    """One image with labels."""
    put(folder / "data.yaml", yaml)
    put_image(folder / "images" / "a.jpg")
    put(folder / "labels" / "a.txt", labels)
    return folder


def reasons(folder: Path, **options: Any) -> list[str]:
    """What is wrong in a set."""
    return [str(problem) for problem in read(folder, "yolo", on_error="skip", **options).problems]


@pytest.mark.parametrize("container", ["", "data.yaml"])
def test_the_real_set_is_what_its_writer_says(data_dir: Path, container: str) -> None:
    """Images, sizes, boxes and classes of all records, in order, given the folder or its data.yaml."""
    folder = find_set(data_dir, "yolo")
    expected = read_expected(folder)

    found = read(folder / container, "yolo")

    check_expected(found, expected)
    assert found.classes == tuple(expected["class_names"])


def test_images_are_in_byte_order_with_their_splits(tmp_path: Path) -> None:
    """All splits are one sequence by path; an image without labels has no objects."""
    found = read(make_set(tmp_path), "yolo")

    assert [record["image"] for record in found] == ["images/train/a.jpg", "images/train/b.jpg", "images/val/c.jpg"]
    assert [record["split"] for record in found] == ["train", "train", "val"]
    assert [len(record["labels"]) for record in found] == [0, 2, 1]
    assert found[1]["boxes"].tolist() == BOXES
    assert found[1]["labels"].tolist() == [0, 1]
    assert found.details == {"task": "detect"}


def test_a_split_is_read_alone(tmp_path: Path) -> None:
    """Only its images; labels of the others are not called unpaired; an unknown name is an argument's error."""
    make_set(tmp_path)

    found = read(tmp_path, "yolo", split="val")

    assert [record["image"] for record in found] == ["images/val/c.jpg"]
    with pytest.raises(ArgumentError, match="split must be one of train, val, got 'x'"):
        read(tmp_path, "yolo", split="x")


def test_a_split_may_be_a_list_of_folders_or_a_text_of_paths(tmp_path: Path) -> None:
    """Both lead to the images that the folder would; paths of the text may begin with "./" or be absolute."""
    make_set(tmp_path)
    lines = f"./images/train/b.jpg\r\nimages/val/c.jpg\r\n{tmp_path}/images/train/a.jpg\r\nC:\\x\\images\\none.jpg\r\n"
    put(tmp_path / "list.txt", lines)
    put(tmp_path / "data.yaml", "names: [cat, dog]\ntrain: [images/train, images/val]\nval: list.txt\n")

    both = read(tmp_path, "yolo", split="train")
    listed = read(tmp_path, "yolo", split="val", on_error="skip")

    assert [record["image"] for record in both] == [record["image"] for record in listed]
    assert len(both) == 3
    (problem,) = listed.problems
    assert (problem.file, problem.line, problem.effect) == ("list.txt", 4, "image left out")


def test_folders_beside_each_split_are_found(tmp_path: Path) -> None:
    """`train/images` with `train/labels`, named "../train/images" from elsewhere, as some exports have it."""
    put_image(tmp_path / "train" / "images" / "a.jpg")
    put(tmp_path / "train" / "labels" / "a.txt", DETECTIONS)
    put(
        tmp_path / "data.yaml", "train: ../train/images\nval: /content/set/train/images\nnames: ['cat', 'dog']\nnc: 2\n"
    )

    found = read(tmp_path, "yolo")

    assert found[0]["boxes"].tolist() == BOXES


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("images", "../valid/images"),
        ("/home/ann/set/train/images", "/home/ann/set/val/images"),
        ("images", "C:\\set\\val\\images"),
        ("/d/set1/images", "/d/set2/images"),
        ("train.txt", "/home/ann/val/images"),
        ("train.txt", "val.txt"),
    ],
)
def test_a_split_is_not_found_in_another_one(tmp_path: Path, train: str, val: str) -> None:
    """A path is found by its end only where the end has what tells it from other splits."""
    make_one(tmp_path, DETECTIONS, f"train: {train}\nval: {val}\nnames: [cat, dog]\n")
    put(tmp_path / "train.txt", "images/a.jpg\n")
    put(tmp_path / "val.txt", "/home/ann/val/images/b.jpg\n")

    if val != "val.txt":
        with pytest.raises(AnnotationError, match="there is nothing at"):
            read(tmp_path, "yolo", split="val", on_error="skip")
        return
    found = read(tmp_path, "yolo", split="val", on_error="skip")

    assert not found.records
    assert found.problems[0].file == "val.txt"


def test_no_path_leads_out_of_the_source(tmp_path: Path) -> None:
    """A split elsewhere is an error that names `images`; with it, the set is read."""
    make_set(tmp_path / "set")
    put(tmp_path / "other" / "data.yaml", f"names: [cat, dog]\ntrain: {tmp_path}/set/images/train\n")

    with pytest.raises(AnnotationError, match="give images="):
        read(tmp_path / "other" / "data.yaml", "yolo")
    assert len(read(tmp_path / "other" / "data.yaml", "yolo", images=tmp_path / "set" / "images")) == 2


def test_a_split_that_leads_nowhere_is_noted(tmp_path: Path) -> None:
    """Others are read; without any it is an error."""
    make_set(tmp_path)
    put(tmp_path / "data.yaml", YAML + "test: images/test\n")

    assert reasons(tmp_path) == ["data.yaml: there is nothing at 'images/test', its test (split left out)"]
    with pytest.raises(AnnotationError, match="images/test"):
        read(tmp_path, "yolo", split="test")


@pytest.mark.parametrize("names", ["[cat, dog]", "{0: cat, 1: dog}", "\n- cat\n- dog", "\n  1: dog\n  0: cat"])
def test_names_are_a_list_or_a_mapping(tmp_path: Path, names: str) -> None:
    """The order of classes is that of their numbers."""
    assert read(make_one(tmp_path, DETECTIONS, f"names: {names}\n"), "yolo").classes == ("cat", "dog")


def test_names_stay_texts(tmp_path: Path) -> None:
    """`no` and `1.0` are names, not values of YAML."""
    assert read(make_one(tmp_path, DETECTIONS, "names: [no, 1.0, yes]\n"), "yolo").classes == ("no", "1.0", "yes")


def test_numbers_of_classes_may_have_gaps(tmp_path: Path) -> None:
    """Labels are positions in the names; `class_numbers` has the file's own; a number in a gap is noted."""
    make_one(tmp_path, DETECTIONS + "7 0.5 0.5 1 1\n", "names: {0: cat, 7: dog}\n")

    found = read(tmp_path, "yolo", on_error="skip")

    assert found[0]["labels"].tolist() == [0, 1]
    assert found.details["class_numbers"] == (0, 7)
    assert [str(each) for each in found.problems] == [
        "labels/a.txt:2: its class 1 is not one of the 2 classes (object left out)"
    ]


def test_a_count_that_disagrees_with_the_names_is_noted(tmp_path: Path) -> None:
    """The names win; without names, classes are numbered."""
    assert reasons(make_one(tmp_path / "a", "", "names: [cat]\nnc: 3\n")) == [
        "data.yaml: nc must be the number of names, 1, got 3 (nc ignored)"
    ]
    assert read(make_one(tmp_path / "b", "", "nc: 2\n"), "yolo").classes == ("class_0", "class_1")


def test_two_classes_of_one_name_are_joined_and_noted(tmp_path: Path) -> None:
    """Labels have one number for a name."""
    make_one(tmp_path, DETECTIONS, "names: [cat, cat]\n")

    found = read(tmp_path, "yolo", on_error="skip")

    assert found[0]["labels"].tolist() == [0, 0]
    assert [each.effect for each in found.problems] == ["classes joined"]


def test_classes_that_the_caller_gives_win(tmp_path: Path) -> None:
    """Labels are positions in them; a class that is not among them is noted. Without names, numbers are theirs."""
    make_one(tmp_path / "a", DETECTIONS)
    make_one(tmp_path / "b", DETECTIONS, "train: images\n")

    named = read(tmp_path / "a", "yolo", on_error="skip", classes=["dog"])
    numbered = read(tmp_path / "b", "yolo", classes=["x", "y"])

    assert named[0]["labels"].tolist() == [0]
    assert len(named.problems) == 1
    assert numbered[0]["labels"].tolist() == [0, 1]
    assert numbered.classes == ("x", "y")


def test_polygons_become_boxes(tmp_path: Path) -> None:
    """A line of points has the box around them and the points in pixels; a line of five numbers is a box beside it."""
    found = read(make_one(tmp_path, "0 0.1 0.1 0.9 0.1 0.5 0.8\n1 0.5 0.5 1 1\n"), "yolo")

    np.testing.assert_allclose(found[0]["boxes"], [[4, 2, 36, 16], [0, 0, 40, 20]], rtol=1e-6)
    np.testing.assert_allclose(found[0]["polygon"][0], [4, 2, 36, 2, 20, 16])
    assert found[0]["polygon"][1] is None
    assert found.details["task"] == "segment"


def test_oriented_boxes_have_corners(tmp_path: Path) -> None:
    """Where each longer line has nine numbers; said to be segments, they are polygons."""
    make_one(tmp_path, "0 0.1 0.1 0.9 0.1 0.9 0.8 0.1 0.8\n")

    oriented, polygons = read(tmp_path, "yolo"), read(tmp_path, "yolo", task="segment")

    np.testing.assert_allclose(oriented[0]["boxes"], [[4, 2, 36, 16]], rtol=1e-6)
    np.testing.assert_allclose(oriented[0]["corners"][0], [4, 2, 36, 2, 36, 16, 4, 16])
    assert oriented.details["task"] == "obb"
    assert polygons[0]["polygon"] == oriented[0]["corners"]


@pytest.mark.parametrize(("width", "points"), [(3, "0.5 0.5 1 0.25 0.1 0"), (2, "0.5 0.5 -1 0.1")])
def test_poses_have_keypoints(tmp_path: Path, width: int, points: str) -> None:
    """`kpt_shape` says how many; without flags, 2 is a visible point and 0 one with a negative coordinate."""
    yaml = f"names: [cat]\nkpt_shape: [2, {width}]\nflip_idx: [1, 0]\n"
    found = read(make_one(tmp_path, f"0 0.5 0.5 0.2 0.4 {points}\n", yaml), "yolo")

    expected: list[list[float]] = [[20, 10, 1], [10, 2, 0]] if width == 3 else [[20, 10, 2], [-40, 2, 0]]
    np.testing.assert_allclose(found[0]["keypoints"][0], expected, rtol=1e-6)
    assert found[0]["boxes"].tolist() == BOXES[:1]
    assert found.details == {"task": "pose", "kpt_shape": (2, width), "flip_idx": (1, 0)}


def test_a_pose_without_data_yaml_needs_its_shape(tmp_path: Path) -> None:
    """`kpt_shape` is an option; `task="pose"` without it is an argument's error, as are wrong values."""
    put_image(tmp_path / "a.jpg")
    put(tmp_path / "a.txt", "0 0.5 0.5 0.2 0.4 0.5 0.5\n")

    assert read(tmp_path, "yolo", kpt_shape=(1, 2))[0]["keypoints"].tolist() == [[[20, 10, 2]]]
    with pytest.raises(ArgumentError, match="kpt_shape="):
        read(tmp_path, "yolo", task="pose")
    with pytest.raises(ArgumentError, match="task must be one of"):
        read(tmp_path, "yolo", task="x")
    with pytest.raises(ArgumentError, match="kpt_shape must be"):
        read(tmp_path, "yolo", kpt_shape=(1, 4))


@pytest.mark.parametrize(
    "text",
    [
        "names: 5",
        "names: [[a]]",
        "names: {x: a}",
        "names: {-1: a}",
        'names: ["\\ud800"]',
        "names: [a]\nkpt_shape: 5",
        "names: [a]\nkpt_shape: [2, 7]",
        "names: [a]\nkpt_shape: [2, 2]\nflip_idx: [0, 0]",
        "names: [a]\nkpt_shape: [2, 2]\nflip_idx: x",
        "names: [a]\npath: [b]",
        "names: [a]\ntrain: {b: c}",
        "names: [a]\nnc: x",
        "names: [a",
        "- names: a",
        "names: &a [*a]",
    ],
)
def test_a_description_without_meaning_is_an_error(tmp_path: Path, text: str) -> None:
    """The error names the file."""
    make_one(tmp_path, DETECTIONS, text)

    with pytest.raises(AnnotationError, match=r"data\.yaml"):
        read(tmp_path / "data.yaml", "yolo")


@pytest.mark.parametrize("tail", ["0.5 0.5 0.5 0.6 0.6 0.5", "0.5 0.5 2 0.5 0.6 1 0 0 0"])
def test_poses_without_their_shape_are_not_taken_for_polygons(tmp_path: Path, tail: str) -> None:
    """Lines of one length whose points lie in their boxes need `kpt_shape`, or a task."""
    make_one(tmp_path, "".join(f"0 0.5 0.5 0.{side} 0.4 {tail}\n" for side in range(5, 10)))

    with pytest.raises(ArgumentError, match="kpt_shape="):
        read(tmp_path, "yolo")
    assert len(read(tmp_path, "yolo", kpt_shape=(3, len(tail.split()) // 3))[0]["keypoints"]) == 5


@pytest.mark.parametrize("suffix", ["txt", "TXT"])
def test_labels_may_lie_beside_the_images(tmp_path: Path, suffix: str) -> None:
    """With the classes of classes.txt, and a README that is none of them; suffixes of any case."""
    put_image(tmp_path / "x" / "a.JPG")
    put(tmp_path / "x" / f"a.{suffix}", b"\xef\xbb\xbf" + DETECTIONS.replace("\n", "\r\n").encode())
    put(tmp_path / "x" / "classes.txt", "cat\ndog\n")
    put(tmp_path / "x" / "README.txt", "2 or more")

    found = read(tmp_path, "yolo")

    assert found.classes == ("cat", "dog")
    assert found[0]["boxes"].tolist() == BOXES


def test_darknet_has_its_own_description(tmp_path: Path) -> None:
    """obj.data names the list of classes and those of the images, by paths from elsewhere."""
    put_image(tmp_path / "obj_train_data" / "a.png")
    put(tmp_path / "obj_train_data" / "a.txt", DETECTIONS)
    put(tmp_path / "train.txt", "data/obj_train_data/a.png\n")
    put(tmp_path / "obj.names", "cat\ndog\n")
    put(tmp_path / "obj.data", "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n")

    found = read(tmp_path, "yolo")

    assert found.classes == ("cat", "dog")
    assert [(record["image"], record["split"]) for record in found] == [("obj_train_data/a.png", "train")]
    assert YoloFormat.recognises(AnnotationSource.open(tmp_path, None))


def test_without_names_classes_are_their_numbers(tmp_path: Path) -> None:
    """In the order of numbers, without gaps, so that a label is the number in the file."""
    put_image(tmp_path / "images" / "val" / "a.jpg")
    put(tmp_path / "labels" / "val" / "a.txt", "10 0.5 0.5 1 1\n99999999 0.5 0.5 1 1\n")

    found = read(tmp_path, "yolo", on_error="skip")

    assert found.classes == tuple(map(str, range(11)))
    assert found[0]["labels"].tolist() == [10]
    assert found[0]["split"] == "val"
    assert len(found.problems) == 1


def test_folders_may_be_given_apart(tmp_path: Path) -> None:
    """Labels, images and classes as a mapping; names of any script, with a space and two points."""
    put_image(tmp_path / "p" / "x" / "ü 猫.b.jpg")
    put(tmp_path / "l" / "x" / "ü 猫.b.txt", DETECTIONS)
    put(tmp_path / "c.txt", "cat\n\nbird\n")

    source = {"annotations": tmp_path / "l", "images": tmp_path / "p", "classes": tmp_path / "c.txt"}
    found = read(source, "yolo", on_error="skip")

    assert found.classes == ("cat", "bird")
    assert found[0]["image"] == "p/x/ü 猫.b.jpg"
    assert [each.line for each in found.problems] == [2]
    assert found.details["class_numbers"] == (0, 2)


def test_labels_without_an_image_are_noted(tmp_path: Path) -> None:
    """In folders of labels and beside images; a text of words is none."""
    make_set(tmp_path)
    put(tmp_path / "labels" / "train" / "none.txt", DETECTIONS)
    put(tmp_path / "images" / "train" / "other.txt", DETECTIONS)
    put(tmp_path / "images" / "train" / "credits.txt", "by several people")

    assert reasons(tmp_path) == [
        "images/train/other.txt: there is no image 'other' (image left out)",
        "labels/train/none.txt: there is no image 'none' (image left out)",
    ]


def test_images_without_any_labels_are_refused(tmp_path: Path) -> None:
    """Labels that lie elsewhere must not become images without objects."""
    put_image(tmp_path / "images" / "a.jpg")

    with pytest.raises(AnnotationError, match="none of the 1 images has a label file"):
        read(tmp_path, "yolo")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x 0.5 0.5 1 1", "its line must have numbers only, got 'x 0.5 0.5 1 1'"),
        ("0.5 0.5 0.5 1 1", "its class must be a whole number, got 0.5"),
        ("2 0.5 0.5 1 1", "its class 2 is not one of the 2 classes"),
        ("-1 0.5 0.5 1 1", "its class -1 is not one of the 2 classes"),
        ("0 0.5 0.5 1", "its line must have 5 numbers, as a detection, got 4"),
        ("0 0.5 0.5 0 1", "its box must have x0 < x1 and y0 < y1, got [20, 0, 20, 20], which is empty"),
        ("0 0.5 0.5 -1 1", "which is inverted"),
        ("0 nan 0.5 1 1", "its box must have finite numbers"),
        ("0 3 0.5 1 1", "its box must lie in the image of 40 x 20"),
        ("0 0.5 0.5 0.2 0.4", "its line is that of line 1 again"),
    ],
)
def test_a_wrong_line_is_noted_and_left_out(tmp_path: Path, row: str, reason: str) -> None:
    """With the file, its line and the reason; the other objects are read."""
    make_one(tmp_path, DETECTIONS + row)

    found = read(tmp_path, "yolo", on_error="skip")

    (problem,) = found.problems
    assert (problem.file, problem.line, problem.image) == ("labels/a.txt", 3, "images/a.jpg")
    assert problem.effect == "object left out"
    assert reason in problem.reason
    assert found[0]["boxes"].tolist() == BOXES
    with pytest.raises(AnnotationError, match="1 problems in the annotations"):
        read(tmp_path, "yolo")


@pytest.mark.parametrize(
    "row", ["0 0.5 0.5 0.9 0.1", "0 0.1 0.1 0.9 0.1 0.5", "0 0.1 0.1 0.9 0.1 0.5 inf", "0 .1 .1 .9 .1 .5 .8 .9"]
)
def test_a_wrong_polygon_is_noted(tmp_path: Path, row: str) -> None:
    """Fewer than three points, half a point, or a number that is not finite; five numbers are a box."""
    found = read(make_one(tmp_path, "0 0.2 0.1 0.9 0.1 0.5 0.8\n" + row), "yolo", task="segment", on_error="skip")

    is_box = len(row.split()) == 5
    assert len(found[0]["labels"]) == 1 + is_box
    assert len(found.problems) == 1 - is_box


def test_a_box_far_outside_is_clipped_and_noted(tmp_path: Path) -> None:
    """Within a pixel it stays as it is."""
    make_one(tmp_path, "0 0.5 0.5 1.02 1.02\n0 0.5 0.5 2 1\n")

    found = read(tmp_path, "yolo", on_error="skip")

    np.testing.assert_allclose(found[0]["boxes"], [[-0.4, -0.2, 40.4, 20.2], [0.0, 0.0, 40.0, 20.0]], rtol=1e-5)
    assert [problem.effect for problem in found.problems] == ["box clipped"]


@pytest.mark.parametrize("content", [b"", b"\r\n\r\n", b"\xef\xbb\xbf"])
def test_an_empty_label_file_is_an_image_without_objects(tmp_path: Path, content: bytes) -> None:
    """Its boxes have the shape (0, 4)."""
    assert read(make_one(tmp_path, content), "yolo")[0]["boxes"].shape == (0, 4)


def test_labels_and_images_that_cannot_be_read_are_noted(tmp_path: Path) -> None:
    """A label file of other bytes, a folder in its place, and a damaged image are one problem each."""
    make_set(tmp_path)
    put(tmp_path / "labels" / "train" / "b.txt", b"\xff\x00\x80")
    (tmp_path / "labels" / "train" / "a.txt").mkdir()
    put(tmp_path / "images" / "val" / "c.jpg", b"no image")

    found = read(tmp_path, "yolo", on_error="skip")

    assert len(found) == 0
    assert [problem.effect for problem in found.problems] == ["image left out"] * 3


def test_several_descriptions_are_refused(tmp_path: Path) -> None:
    """Unless one is data.yaml; a YAML file of something else does not count."""
    make_set(tmp_path)
    put(tmp_path / "x.yaml", "names: [a]")
    put(tmp_path / "settings.yaml", "learning_rate: 1")
    assert len(read(tmp_path, "yolo")) == 3
    shutil.move(tmp_path / "data.yaml", tmp_path / "y.yaml")

    with pytest.raises(ArgumentError, match=r"x\.yaml, y\.yaml"):
        read(tmp_path, "yolo")


def test_recognition_is_by_rows_of_numbers_beside_images(tmp_path: Path) -> None:
    """A set with or without data.yaml is recognised; pictures with texts of words are not."""
    make_set(tmp_path / "a")
    make_set(tmp_path / "b")
    (tmp_path / "b" / "data.yaml").unlink()
    put_image(tmp_path / "c" / "a.jpg")
    put(tmp_path / "c" / "a.txt", "a picture of a cat")
    put(tmp_path / "c" / "classes.txt", "cat")

    assert [YoloFormat.recognises(AnnotationSource.open(tmp_path / name, None)) for name in "abc"] == [
        True,
        True,
        False,
    ]
    assert YoloFormat.recognises(AnnotationSource.open(tmp_path / "a" / "data.yaml", None))
    assert not YoloFormat.recognises(AnnotationSource.open(tmp_path / "c" / "a.txt", None))


FILES = ("data.yaml", "labels/train/b.txt", "labels/val/c.txt")


@pytest.fixture(scope="module")
def damaged_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose files are damaged one at a time, and mended."""
    return make_set(tmp_path_factory.mktemp("yolo"))


@given(name=st.sampled_from(FILES), changes=damage(), layout=st.sampled_from(["", "kpt_shape: [2, 2]\n"]))
def test_damage_is_an_error_or_a_problem(damaged_set: Path, name: str, changes: list[Damage], layout: str) -> None:
    """Whatever happens to a file, no other exception leaves `read`, and records keep the contract."""
    make_set(damaged_set)
    put(damaged_set / "data.yaml", YAML + layout)
    path = damaged_set / name
    path.write_bytes(apply_damage(path.read_bytes(), changes))

    read_damaged(damaged_set / "data.yaml", "yolo")


@given(row=st.integers(0, 1), column=st.integers(0, 4), text=st.sampled_from(HOSTILE))
def test_an_object_that_is_missing_is_counted(damaged_set: Path, row: int, column: int, text: bytes) -> None:
    """A word of a line becomes another: the object is read, or a problem names what was left out."""
    make_set(damaged_set)

    check_token_damage(damaged_set, "yolo", damaged_set / "labels/train/b.txt", 3, (row, column, text))
