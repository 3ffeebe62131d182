"""COCO is read as pycocotools and the format's own description have it; whatever is left out is counted."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.annotations import Annotations, read, rle
from penstock.annotations.coco.format import CocoFormat
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError

WIDTH: Final = 40
HEIGHT: Final = 32
SQUARE: Final = [4, 4, 12, 4, 12, 10, 4, 10]
RLE: Final = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT, 8, WIDTH * HEIGHT - HEIGHT - 8]}
EFFECTS: Final = frozenset(
    {"object left out", "image left out", "box clipped", "category left out", "categories joined", "skeleton left out"}
)


def make_content() -> dict[str, Any]:
    """A small file: three images in descending order of id, four objects, categories with gaps."""
    return {
        "info": {"description": 'a "quoted" {name} [1'},
        "licenses": [{"id": 1, "images": []}],
        "images": [
            {"id": 30, "file_name": "c.png", "width": WIDTH, "height": HEIGHT},
            {"id": 20, "file_name": "b.png", "width": WIDTH, "height": HEIGHT},
            {"id": 10, "file_name": "a.png", "width": WIDTH, "height": HEIGHT},
        ],
        "annotations": [
            {"id": 1, "image_id": 30, "category_id": 90, "bbox": [4, 4, 8, 6], "area": 48.0, "iscrowd": 0,
             "segmentation": [SQUARE]},
            {"id": 2, "image_id": 10, "category_id": 3, "bbox": [1.5, 2.25, 10, 10.5], "area": 105, "iscrowd": 0,
             "segmentation": []},
            {"id": 3, "image_id": 30, "category_id": 3, "bbox": [1, 0, 1, 8], "area": 8, "iscrowd": 1,
             "segmentation": RLE},
            {"id": 4, "image_id": 30, "category_id": 3, "bbox": [0, 0, 5, 5], "area": 25, "iscrowd": 0,
             "segmentation": [SQUARE, [20, 20, 24, 20, 24, 24]], "score": 0.5, "line": 7, "boxes": "x"},
        ],
        "categories": [{"id": 90, "name": "dog", "supercategory": "animal"}, {"id": 3, "name": "cat"}],
    }  # fmt: skip


def write_image(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    """A picture of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 120, 60)).save(path)


def write(path: Path, content: Any) -> Path:
    """A JSON file, or one of the bytes given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the images of `make_content` beside where its file is written."""
    for name in "abc":
        write_image(tmp_path / f"{name}.png")
    return tmp_path


def read_content(folder: Path, content: Any, **options: Any) -> Annotations:
    """What is read from a file of some content."""
    return read(write(folder / "set.json", content), "coco", on_error="skip", **options)


def read_changed(folder: Path, change: Callable[[dict[str, Any]], object], **options: Any) -> Annotations:
    """What is read when something of the small file is changed."""
    content = make_content()
    change(content)
    return read_content(folder, content, **options)


def test_every_image_of_a_real_set_is_what_its_list_says(data_dir: Path) -> None:
    """Images, order, boxes, classes and ids of a file that was written elsewhere."""
    source = data_dir / "foreign" / "annotations-coco"
    if not source.is_dir():
        pytest.skip("the collections lack annotations-coco/")
    expected = json.loads((source / "expected.json").read_text())
    container = {name: source / path for name, path in expected["container"].items()}

    for found in (read(source), read(container), read(source, split="train")):
        assert found.format == "coco"
        assert len(found) == expected["count"]
        assert dict(zip(found.classes, found.details["category_ids"], strict=True)) == expected["categories"]
        for record, entry in zip(found, expected["records"], strict=True):
            assert (found.root / record["image"]).samefile(source / entry["image"])
            assert (record["width"], record["height"], record["id"]) == (entry["width"], entry["height"], entry["id"])
            assert [found.classes[label] for label in record["labels"]] == entry["classes"]
            np.testing.assert_allclose(record["boxes"], np.array(entry["boxes"]), atol=1e-3)
            assert record["boxes"].dtype == np.float32


def test_all_values_become_fields(folder: Path) -> None:
    """Images by id, objects in the order of the file, labels by category id, masks as run lengths."""
    found = read_content(folder, make_content())

    assert not found.problems
    assert found.classes == ("cat", "dog")
    assert found.details["category_ids"] == (3, 90)
    assert [record["image"] for record in found] == ["a.png", "b.png", "c.png"]
    assert [record["id"] for record in found] == [10, 20, 30]
    first, empty, last = found
    np.testing.assert_array_equal(first["boxes"], np.array([[1.5, 2.25, 11.5, 12.75]], np.float32))
    assert empty["boxes"].shape == (0, 4)
    assert empty["instances"] == []
    assert last["labels"].tolist() == [1, 0, 0]
    assert last["crowd"].tolist() == [0, 1, 0]
    assert last["area"].tolist() == [48, 8, 25]
    assert last["annotation_id"].tolist() == [1, 3, 4]
    np.testing.assert_array_equal(last["score"], [math.nan, math.nan, 0.5])
    assert last["line"].tolist() == [0, 0, 7]
    assert last["boxes_"] == ["", "", "x"]
    square = np.zeros((HEIGHT, WIDTH), np.uint8)
    square[4:10, 4:12] = 1
    np.testing.assert_array_equal(rle.decode(last["instances"][0]), square)
    assert rle.area(last["instances"][1]) == 8
    assert rle.box(last["instances"][1]) == (1, 0, 2, 8)
    assert rle.area(last["instances"][2]) > 48
    assert first["instances"] == [None]


def test_run_lengths_as_text_are_those_of_the_list(folder: Path) -> None:
    """Compressed and uncompressed counts become the same text."""
    text = rle.encode(rle.decode(RLE))

    def change(content: dict[str, Any]) -> None:
        content["annotations"][2]["segmentation"] = text

    assert read_changed(folder, change)[2]["instances"][1] == text
    assert read_content(folder, make_content())[2]["instances"][1] == text


def test_keypoints_have_names_and_a_skeleton(folder: Path) -> None:
    """Keypoints are rows of x, y, flag; names and pairs, from 0, are details; objects without any have zeros."""

    def change(content: dict[str, Any]) -> None:
        content["categories"][1].update(keypoints=["nose", "tail"], skeleton=[[1, 2]])
        content["annotations"][1].update(keypoints=[3, 4.5, 2, 0, 0, 0], num_keypoints=1)

    found = read_changed(folder, change)

    assert not found.problems
    assert found.details["keypoint_names"] == ("nose", "tail")
    assert found.details["skeleton"] == ((0, 1),)
    np.testing.assert_array_equal(found[0]["keypoints"], np.array([[[3, 4.5, 2], [0, 0, 0]]], np.float32))
    assert found[2]["keypoints"].shape == (3, 2, 3)


def test_keypoints_of_several_classes_are_named_by_class(folder: Path) -> None:
    """Categories with different keypoints have their own names."""

    def change(content: dict[str, Any]) -> None:
        content["categories"][0].update(keypoints=["ear"])
        content["categories"][1].update(keypoints=["nose", "tail"], skeleton=[[2, 1]])

    found = read_changed(folder, change)

    assert found.details["keypoint_names"] == {"cat": ("nose", "tail"), "dog": ("ear",)}
    assert found.details["skeleton"] == {"cat": ((1, 0),), "dog": ()}


def make_panoptic(folder: Path) -> dict[str, Any]:
    """A panoptic file's content, with its masks."""
    content = make_content()
    content["images"] = content["images"][2:]
    content["annotations"] = [
        {"image_id": 10, "file_name": "a.png", "segments_info": [
            {"id": 300, "category_id": 90, "bbox": [0, 0, 4, 4], "area": 16, "iscrowd": 0},
            {"id": 7, "category_id": 3, "bbox": [4, 0, 4, 4], "area": 15, "iscrowd": 1},
        ]}
    ]  # fmt: skip
    content["categories"][0]["isthing"] = 0
    content["categories"][1]["isthing"] = 1
    write_image(folder / "annotations" / "panoptic_val2017" / "a.png")
    write_image(folder / "val2017" / "a.png")
    return content


def test_panoptic_images_have_masks_and_segments(tmp_path: Path) -> None:
    """The mask is the PNG of the folder that is named as the file; objects are its segments."""
    content = make_panoptic(tmp_path)
    write(tmp_path / "annotations" / "panoptic_val2017.json", content)

    found = read(tmp_path)

    (record,) = found
    assert record["image"] == "val2017/a.png"
    assert record["mask"] == "annotations/panoptic_val2017/a.png"
    assert record["split"] == "val2017"
    assert record["segments"].tolist() == [300, 7]
    assert record["boxes"].tolist() == [[0, 0, 4, 4], [4, 0, 8, 4]]
    assert record["labels"].tolist() == [1, 0]
    assert record["crowd"].tolist() == [0, 1]
    assert found.details["is_thing"] == (True, False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda held: held.update(file_name="x.png"), "no mask"),
        (lambda held: held.update(file_name=5), "no mask"),
        (lambda held: held.update(file_name="../../a.jpg"), "no mask"),
        (lambda held: held.update(segments_info={}), "segments_info"),
        (lambda held: held.update(image_id=11), "one annotation, got 0"),
    ],
)
def test_panoptic_images_without_masks_are_left_out(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """A mask that is missing, or segments that are no list, leave out the image."""
    content = make_panoptic(tmp_path)
    change(content["annotations"][0])
    write(tmp_path / "annotations" / "panoptic_val2017.json", content)

    found = read(tmp_path, on_error="skip")

    assert not len(found)
    assert any(reason in problem.reason and problem.effect == "image left out" for problem in found.problems)


def test_a_panoptic_mask_must_have_the_size_of_its_image(tmp_path: Path) -> None:
    """A mask of another size leaves out the image, whether or not the file says the size."""
    content = make_panoptic(tmp_path)
    write_image(tmp_path / "annotations" / "panoptic_val2017" / "a.png", (HEIGHT, WIDTH))
    for given_size in ({}, {"width": 0, "height": 0}):
        content["images"][0].update(given_size)
        write(tmp_path / "annotations" / "panoptic_val2017.json", content)

        found = read(tmp_path, on_error="skip")

        assert not len(found)
        assert "32 x 40" in found.problems[0].reason


@pytest.mark.parametrize(
    ("file", "images", "split"),
    [
        ("annotations/instances_train2017.json", "train2017", "train2017"),
        ("annotations/instances_train2017.json", "images/train2017", "train2017"),
        ("annotations/instances_train2017.json", "train", "train2017"),
        ("annotations/instances_val.json", "images", "val"),
        ("annotations/instances_val.json", "", "val"),
        ("annotations/train.json", "images/train", "train"),
        ("train/_annotations.coco.json", "train", "train"),
        ("instances_default.json", "images", "default"),
        ("labels.json", "", None),
        ("labels.json", "deep/er", None),
        ("a/b/labels.json", "a/images", None),
    ],
)
def test_images_are_found_where_people_have_them(tmp_path: Path, file: str, images: str, split: str | None) -> None:
    """The folder, and its file alone, are recognised, with images of the split's name beside, above or in images/."""
    write(tmp_path / file, make_content())
    write(tmp_path / "results.json", [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}])
    write(tmp_path / "README.json", {"about": ["images"]})
    for name in "abc":
        write_image(tmp_path / images / f"{name}.png")

    found = read(tmp_path)

    assert [record["image"] for record in found] == [(Path(images) / f"{name}.png").as_posix() for name in "abc"]
    assert [record.get("split") for record in found] == [split] * 3
    given_images = read({"annotations": tmp_path / file, "images": tmp_path / images})
    assert [(given_images.root / record["image"]).resolve() for record in given_images] == [
        (tmp_path / images / f"{name}.png").resolve() for name in "abc"
    ]
    if "deep" not in images:
        assert [record["boxes"].tolist() for record in read(tmp_path / file)] == [
            record["boxes"].tolist() for record in found
        ]


def test_splits_are_read_together_or_alone(tmp_path: Path) -> None:
    """Files of one kind are read in the order of their names; a split may be given without its year."""
    for split in ("train2017", "val2017"):
        write(tmp_path / "annotations" / f"instances_{split}.json", make_content())
        write(tmp_path / "annotations" / f"captions_{split}.json", make_content())
        write(tmp_path / "annotations" / f"person_keypoints_{split}.json", {**make_content(), "annotations": []})
        for name in "abc":
            write_image(tmp_path / split / f"{name}.png")

    assert [record["split"] for record in read(tmp_path)] == ["train2017"] * 3 + ["val2017"] * 3
    for split in ("val", "val2017"):
        assert [record["image"] for record in read(tmp_path, split=split)] == [f"val2017/{name}.png" for name in "abc"]
    assert not any(len(record["labels"]) for record in read(tmp_path, task="keypoints"))
    with pytest.raises(ArgumentError, match="train2017, val2017"):
        read(tmp_path, split="test")
    with pytest.raises(ArgumentError, match="panoptic"):
        read(tmp_path, task="panoptic")
    with pytest.raises(ArgumentError, match="task must be one of"):
        read(tmp_path, "coco", task="boxes")


def test_files_must_agree_on_categories(tmp_path: Path) -> None:
    """One category id with two names is an error; categories of one file alone are added."""
    for split in ("train", "val"):
        for name in "abc":
            write_image(tmp_path / split / f"{name}.png")
    write(tmp_path / "instances_train.json", make_content())
    other = make_content()
    other["categories"].append({"id": 5, "name": "cow"})
    write(tmp_path / "instances_val.json", other)

    assert read(tmp_path).classes == ("cat", "cow", "dog")
    other["categories"][0]["name"] = "wolf"
    write(tmp_path / "instances_val.json", other)
    with pytest.raises(AnnotationError, match=r"split="):
        read(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["a.png", "/data/x/a.png", "C:\\x\\a.png", "..\\a.png", "../../a.png", "./a.png", "x/a.png", "./x//a.png"],
)
def test_paths_of_other_systems_are_found(folder: Path, name: str) -> None:
    """Absolute and Windows paths are found by their last parts, below the source."""

    def change(content: dict[str, Any]) -> None:
        content["images"][2]["file_name"] = name

    assert [record["image"] for record in read_changed(folder, change)] == ["a.png", "b.png", "c.png"]


def test_names_in_unicode_and_addresses_are_found(folder: Path) -> None:
    """A name may have any letters; images without a file name are found by their address, as LVIS has it."""
    write_image(folder / "Zürich 猫.PNG")
    write_image(folder / "val2017" / "7.png")

    def change(content: dict[str, Any]) -> None:
        content["images"][1]["file_name"] = "Zürich 猫.PNG"
        del content["images"][0]["file_name"]
        content["images"][0]["coco_url"] = "http://images.example.org/val2017/7.png"

    assert [each["image"] for each in read_changed(folder, change)] == ["a.png", "Zürich 猫.PNG", "val2017/7.png"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_other_encodings_and_line_ends_are_read(folder: Path, encoding: str) -> None:
    """A mark, UTF-16 and CRLF do not matter; the suffix may be in capitals."""
    text = json.dumps(make_content(), indent=2).replace("\n", "\r\n")
    path = write(folder / "SET.JSON", text.encode(encoding))

    assert read(path).format == "coco"
    assert read(folder).classes == ("cat", "dog")


def test_classes_of_the_caller_win(folder: Path) -> None:
    """Labels follow the classes given; objects of others are left out, and counted."""
    found = read_content(folder, make_content(), classes=["bird", "dog"])

    assert found.classes == ("bird", "dog")
    assert found.details["category_ids"] == (None, 90)
    assert [record["labels"].tolist() for record in found] == [[], [], [1]]
    assert [problem.effect for problem in found.problems] == ["object left out"] * 3
    assert found.problems[0].reason.startswith("annotation ")


def set_object(**values: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the first annotation."""
    return lambda content: content["annotations"][0].update(values)


DEEP: Final = json.loads("[" * 400 + "]" * 400)


@pytest.mark.parametrize(
    "change",
    [
        set_object(bbox=None),
        set_object(bbox=[]),
        set_object(bbox=[1, 2, 3]),
        set_object(bbox=[1, 2, 3, "x"]),
        set_object(bbox=[1, 2, 3, None]),
        set_object(bbox=[1, 2, 3, math.nan]),
        set_object(bbox=[1, 2, 3, math.inf]),
        set_object(bbox=[1, 2, 3, 10**400]),
        set_object(bbox=[1, 2, 0, 4]),
        set_object(bbox=[5, 5, -2, 4]),
        set_object(bbox=[500, 5, 2, 4]),
        set_object(bbox=DEEP),
        set_object(category_id=4),
        set_object(category_id=None),
        set_object(category_id=[]),
        set_object(category_id=True),
        set_object(category_id=10**30),
        set_object(image_id=99),
        set_object(image_id={}),
        set_object(image_id=math.nan),
        set_object(id=3),
        set_object(id=[3]),
        set_object(iscrowd=2),
        set_object(iscrowd="no"),
        set_object(area=-1),
        set_object(area="large"),
        set_object(area=1e300),
        set_object(area=math.nan),
        set_object(keypoints=[1, 2]),
        set_object(keypoints=[1, 2, "2"]),
        set_object(keypoints=[1, 2, 1e300]),
        set_object(keypoints={"x": 1}),
        set_object(segmentation="x"),
        set_object(segmentation=[1, 2, 3, 4, 5, 6]),
        set_object(segmentation=[[1, 2, 3, 4]]),
        set_object(segmentation=[[1, 2, 3, 4, 5, 6, 7]]),
        set_object(segmentation=[[1, 2, 3, 4, 5, None]]),
        set_object(segmentation=[[1, 2, 3, 4, 5, math.nan]]),
        set_object(segmentation=[[1, 2, 3, 4, 5, 10**400]]),
        set_object(segmentation=[[1, 2, 3, 4, 5, 1e9]]),
        set_object(segmentation=[DEEP]),
        set_object(segmentation={}),
        set_object(segmentation={**RLE, "size": [10**9, 10**9]}),
        set_object(segmentation={**RLE, "size": [WIDTH, HEIGHT]}),
        set_object(segmentation={**RLE, "counts": [10**9]}),
        set_object(segmentation={**RLE, "counts": [10**40]}),
        set_object(segmentation={**RLE, "counts": [-1, WIDTH * HEIGHT + 1]}),
        set_object(segmentation={**RLE, "counts": "xyz"}),
        set_object(segmentation={**RLE, "counts": "\ud800"}),
        set_object(segmentation={**RLE, "counts": None}),
        set_object(segmentation={**RLE, "counts": []}),
        lambda content: content["annotations"].__setitem__(0, None),
        lambda content: content["annotations"].__setitem__(0, 5),
        lambda content: content["annotations"].__setitem__(0, []),
    ],
)
def test_one_wrong_object_is_left_out(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Whatever is wrong with an object, the others stay, and it is counted once; by default it is an error."""
    found = read_changed(folder, change)

    (problem,) = found.problems
    assert problem.effect == "object left out"
    assert problem.file == "set.json"
    assert problem.reason.startswith(("annotation 1: ", "annotations[0]: ", "annotation [3]: ", "annotation 3: "))
    assert sum(len(record["labels"]) for record in found) == 3
    with pytest.raises(AnnotationError, match="1 problems"):
        read(folder / "set.json")


def set_image(**values: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the last image, which has one object."""
    return lambda content: content["images"][2].update(values)


@pytest.mark.parametrize(
    "change",
    [
        set_image(file_name="missing.png"),
        set_image(file_name=None),
        set_image(file_name=""),
        set_image(file_name=7),
        set_image(file_name="a\0.png"),
        set_image(file_name="\ud800.png"),
        set_image(file_name="x" * 5000),
        set_image(file_name="b.png"),
        set_image(file_name="set.json"),
        set_image(width=HEIGHT, height=WIDTH),
        set_image(width="wide"),
        set_image(width=[1]),
        set_image(height=math.inf),
        set_image(height=-HEIGHT),
    ],
)
def test_one_wrong_image_is_left_out(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Whatever is wrong with an image, it is left out with its objects, and counted."""
    found = read_changed(folder, change)

    (problem,) = found.problems
    assert problem.effect == "image left out"
    assert len(found) == 2


@pytest.mark.parametrize("number", [20, None, [], True, 1.5, 10**30])
def test_an_image_without_an_id_of_its_own_is_left_out(folder: Path, number: Any) -> None:
    """Its objects have no image, and are counted too."""
    found = read_changed(folder, set_image(id=number))

    assert [problem.effect for problem in found.problems] == ["image left out", "object left out"]


@pytest.mark.parametrize("changed", ["image", "category"])
@pytest.mark.parametrize("lists", [0, 1], ids=["named", "naming"])
def test_an_id_that_is_a_text_in_one_list_and_a_number_in_the_other_is_said(
    folder: Path, changed: str, lists: int
) -> None:
    """Else the error denies what everybody sees in the file."""
    content = make_content()
    rows = content["annotations"] if lists else content["images" if changed == "image" else "categories"]
    name = f"{changed}_id" if lists else "id"
    for row in rows:
        row[name] = str(row[name])

    reasons = [each.reason for each in read_content(folder, content).problems]

    number, text = (30, "'30'") if changed == "image" else (3, "'3'")
    of, to = (f"{text}, a text", f"{number}, a number") if lists else (f"{number}, a number", f"{text}, a text")
    assert f"{changed}_id {of}, but of {to}; write both as numbers" in reasons[0]
    assert len(reasons) == 4


def test_boxes_outside_their_image_are_clipped_and_counted(folder: Path) -> None:
    """A box that ends outside by more than a pixel is clipped."""
    found = read_changed(folder, set_object(bbox=[-5, 4, 100, 6]))

    assert found[2]["boxes"][0].tolist() == [0, 4, WIDTH, 10]
    assert [problem.effect for problem in found.problems] == ["box clipped"]


def test_categories_that_cannot_be_told_apart_are_counted(folder: Path) -> None:
    """An id that is used twice, names that are none, and a name that is used twice."""

    def change(content: dict[str, Any]) -> None:
        content["categories"] += [
            {"id": 3, "name": "lion"},
            {"id": 4, "name": None},
            {"id": None, "name": "x"},
            "cow",
            {"id": 91, "name": "dog"},
            {"id": 92, "name": "fox", "keypoints": ["a"], "skeleton": [[0, 1]]},
        ]
        content["annotations"][0]["category_id"] = 91

    found = read_changed(folder, change)

    assert found.classes == ("cat", "dog", "fox")
    assert [problem.effect for problem in found.problems] == [
        *["category left out"] * 4,
        "categories joined",
        "skeleton left out",
    ]
    assert found[2]["labels"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        b'{"annotations": []}',
        b'{"images": {}}',
        b'{"images": [], "annotations": 5}',
        b'{"images": [], "categories": "x"}',
        b'{"images": [], "annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]}',
        b'{"images": ' + b"[" * 100_000,
        b'{"images": [' + b"9" * 5000 + b"]}",
        b"\xff\xfe{",
        b"\x80",
        bytes(100),
    ],
)
def test_a_file_that_is_no_coco_is_an_error(folder: Path, content: bytes) -> None:
    """What everything depends on cannot be left out."""
    path = write(folder / "set.json", content)

    for on_error in ("raise", "skip"):
        with pytest.raises(AnnotationError):
            read(path, "coco", on_error=on_error)


def test_captions_are_refused(folder: Path) -> None:
    """Captions are no objects."""
    content = {**make_content(), "annotations": [{"id": 1, "image_id": 10, "caption": "a cat"}], "categories": []}

    with pytest.raises(AnnotationError, match="captions"):
        read_content(folder, content)


def test_a_folder_of_other_json_files_is_not_coco(folder: Path) -> None:
    """LabelMe's and other files are not taken for COCO's, and a missing file is named."""
    write(folder / "a.json", {"shapes": [], "imagePath": "a.png", "images": 3, "flags": {"annotations": []}})
    write(folder / "b.json", [{"images": []}])

    for source in (folder, folder / "a.json", folder / "b.json"):
        assert not CocoFormat.recognises(AnnotationSource.open(source, None))
    with pytest.raises(AnnotationError, match="no JSON file"):
        read(folder, "coco")
    with pytest.raises(AnnotationError, match="nothing at"):
        read(folder / "c.json")


def test_extra_values_of_any_kind_are_kept(folder: Path) -> None:
    """Whole numbers above 64 bits, nested values and texts beside numbers are objects."""

    def change(content: dict[str, Any]) -> None:
        content["annotations"][0].update(big=10**30, deep=DEEP, mixed="x", image="y", split=3, where=1, self=2)
        content["annotations"][2].update(big=1, mixed=5)

    last = read_changed(folder, change)[2]

    assert last["big"] == [10**30, 1, None]
    assert last["mixed"] == ["x", 5, None]
    assert last["image"] == "c.png"
    assert last["image_"] == ["y", "", ""]


def test_many_objects_are_read_in_parts(folder: Path) -> None:
    """Objects of one image stay in order when their masks are made in several parts."""

    def change(content: dict[str, Any]) -> None:
        content["annotations"] = [
            {"id": row, "image_id": 30 - 10 * (row % 2), "category_id": 3, "bbox": [row % 20, 1, 5, 5],
             "segmentation": [[row % 20, 1, row % 20 + 5, 1, row % 20 + 5, 6, row % 20, 6]] if row % 3 else RLE}
            for row in range(7000)
        ]  # fmt: skip

    found = read_changed(folder, change)

    assert found[1]["annotation_id"].tolist() == list(range(1, 7000, 2))
    assert found[2]["annotation_id"].tolist() == list(range(0, 7000, 2))
    for number, instance in zip(found[2]["annotation_id"].tolist(), found[2]["instances"], strict=True):
        assert rle.area(instance) == (25 if number % 3 else 8)


VALUES: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10, 30, 90, 10**30, 10**400, 1e308, math.inf, math.nan, DEEP, [[]], {}, "", "a.png", RLE]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.floats() | st.integers(), max_size=9),
    st.lists(st.lists(st.floats(-50, 50), max_size=9), max_size=3),
    st.dictionaries(st.sampled_from(["size", "counts", "id", "x"]), st.integers() | st.text(max_size=4), max_size=3),
)
_REMOVE: Final = object()


def list_places(content: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys or positions."""
    places: list[tuple[Any, Any]] = []
    for key, value in list(content.items() if isinstance(content, dict) else enumerate(content)):
        places.append((content, key))
        if isinstance(value, dict | list):
            places += list_places(value)
    return places


def check_counted(content: dict[str, Any], found: Annotations) -> None:
    """Every object of the file is in a record, in a problem, or in an image that is in a problem."""
    assert {problem.effect for problem in found.problems} <= EFFECTS
    objects = sum(len(record["labels"]) for record in found)
    noted = sum(problem.effect == "object left out" for problem in found.problems)
    images = sum(problem.effect == "image left out" for problem in found.problems)
    total = len(content["annotations"])
    assert objects + noted <= total
    assert objects + noted == total or images
    assert len(found) + images == len(content["images"])


@given(data=st.data())
def test_any_value_in_any_place_is_an_error_or_counted(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values removed, or replaced by others of any type: no exception of another kind, and all losses are counted."""
    folder = tmp_path_factory.getbasetemp() / "coco-values"
    for name in "abc":
        if not (folder / f"{name}.png").exists():
            write_image(folder / f"{name}.png")
    content = copy.deepcopy(make_content())
    for _ in range(data.draw(st.integers(1, 4))):
        places = list_places(content)
        parent, key = places[data.draw(st.integers(0, len(places) - 1))]
        value = data.draw(st.just(_REMOVE) | VALUES)
        if value is _REMOVE:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(value)

    try:
        found = read_content(folder, content)
    except AnnotationError:
        return
    check_counted({"annotations": [], "images": [], **content}, found)


@given(data=st.data())
def test_any_bytes_are_an_error_or_counted(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes flipped, cut and inserted: no exception of another kind."""
    folder = tmp_path_factory.getbasetemp() / "coco-bytes"
    for name in "abc":
        if not (folder / f"{name}.png").exists():
            write_image(folder / f"{name}.png")
    held = bytearray(json.dumps(make_content()).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(held) - 1, 0)))
        held[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"9" * 30, b"-", b"1e", b"null", b"[", b"]", b"{", b'"', b","])
        )
    if data.draw(st.booleans()) and data.draw(st.booleans()):
        del held[data.draw(st.integers(0, len(held))) :]
    path = write(folder / "set.json", bytes(held))

    assert CocoFormat.recognises(AnnotationSource.open(path, None)) in (True, False)
    try:
        found = read(path, "coco", on_error="skip")
    except AnnotationError:
        return
    check_counted({"annotations": [], "images": [], **json.loads(held)}, found)


def test_objects_are_those_of_pycocotools(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Order of images, boxes, classes, crowds and masks are those that its reader gives."""
    reference = pytest.importorskip("pycocotools.coco").COCO
    found = read_content(folder, make_content())
    coco = reference(str(folder / "set.json"))
    capsys.readouterr()  # it prints how long it takes

    assert [record["id"] for record in found] == sorted(coco.getImgIds())
    for record in found:
        annotations = coco.loadAnns(coco.getAnnIds(imgIds=[record["id"]]))
        names = [each["name"] for each in coco.loadCats([each["category_id"] for each in annotations])]
        boxes = np.array([each["bbox"] for each in annotations], np.float32).reshape(-1, 4)
        masks = [coco.annToRLE(each)["counts"].decode() if each["segmentation"] else None for each in annotations]

        assert record["annotation_id"].tolist() == [each["id"] for each in annotations]
        assert [found.classes[label] for label in record["labels"]] == names
        np.testing.assert_array_equal(record["boxes"], np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]))
        assert record["crowd"].tolist() == [each["iscrowd"] for each in annotations]
        assert [each and each["counts"] for each in record["instances"]] == masks


ROOT: Final = {"id": 0, "name": "cells", "supercategory": "none"}


def write_root(folder: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> Path:
    """A set whose first category is the parent of the others, as Roboflow writes it."""
    content = make_content()
    content["categories"] = [ROOT, *({**each, "supercategory": "cells"} for each in content["categories"])]
    change(content)
    for each in content["images"]:
        write_image(folder / each["file_name"])
    write(folder / "_annotations.coco.json", content)
    return folder


def test_a_category_that_is_only_the_parent_of_others_is_said(tmp_path: Path) -> None:
    """It is a class, since the file lists it; the option leaves it out, or says that it is meant."""
    write_root(tmp_path)

    with pytest.warns(UserWarning, match="'cells' has no object, and all others name it .* drop_empty_parents") as said:
        kept = read(tmp_path, "coco")
    dropped = read(tmp_path, "coco", drop_empty_parents=True)

    assert [each.filename for each in said] == [__file__]
    assert kept.classes == read(tmp_path, "coco", drop_empty_parents=False).classes == ("cells", "cat", "dog")
    assert dropped.classes == ("cat", "dog")
    assert dropped.details["category_ids"] == (3, 90)
    assert [(one["labels"] + 1).tolist() for one in dropped] == [one["labels"].tolist() for one in kept]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["annotations"][0].update(category_id=0),
        lambda content: content["categories"][1].update(supercategory="animal"),
        lambda content: content.update(categories=content["categories"][1:]),
    ],
)
def test_a_category_with_objects_or_other_parents_is_a_class(tmp_path: Path, change: Callable[..., object]) -> None:
    """Nothing is said, and nothing left out; of one category alone there is no other that names it."""
    classes = read(write_root(tmp_path, change), "coco", drop_empty_parents=True).classes

    assert read(tmp_path, "coco").classes == classes
    assert ("cells" in classes) == (len(classes) == 3)


def test_a_set_of_crowds_alone_is_said(folder: Path) -> None:
    """CVAT marks each mask as a crowd, and batches leave crowds out; one crowd among others is none."""
    read_content(folder, make_content())

    with pytest.warns(UserWarning, match=r"all objects \(4\) have iscrowd=1, .*keep_crowds=True"):
        found = read_changed(folder, lambda content: [each.update(iscrowd=1) for each in content["annotations"]])

    assert sum(len(each["boxes"]) for each in found) == 4
