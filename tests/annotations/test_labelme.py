"""LabelMe: every kind of shape, points in groups, and files that people have changed."""

from __future__ import annotations

import base64
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from penstock.annotations import Annotations, read
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.sets import HEIGHT, WIDTH, make_labelme, write_image, write_text
from tests.annotations.test_shapes import decode


def make_shape(label: str, points: list[Any], kind: str | None = "polygon", **others: object) -> dict[str, Any]:
    """A shape as labelme writes it."""
    return {"label": label, "points": points, "group_id": None, "shape_type": kind, "flags": {}} | others


def read_shapes(folder: Path, *shapes: object, on_error: str = "skip", **options: object) -> Annotations:
    """What is read of one image with these shapes."""
    write_image(folder / "a.jpg")
    write_text(folder / "a.json", make_labelme("a.jpg", shapes))
    return read(folder, "labelme", on_error=on_error, **options)  # type: ignore[arg-type]  # options of the format


@pytest.mark.parametrize(
    ("kind", "points", "box"),
    [
        ("polygon", [[1, 2], [10.5, 3], [4, 20]], [1, 2, 10.5, 20]),
        (None, [[1, 2], [10.5, 3], [4, 20]], [1, 2, 10.5, 20]),
        ("rectangle", [[10, 20], [1, 2]], [1, 2, 10, 20]),
        ("rectangle", [[1, 2], [10, 2], [10, 20], [1, 20]], [1, 2, 10, 20]),
        ("circle", [[15, 15], [18, 19]], [10, 10, 20, 20]),
        ("line", [[1, 2], [10, 20]], [1, 2, 10, 20]),
        ("linestrip", [[1, 2], [10, 20], [5, 30]], [1, 2, 10, 30]),
    ],
)
def test_box_bounds_the_shape(tmp_path: Path, kind: str | None, points: list[Any], box: list[float]) -> None:
    """The box of an object is the smallest that holds its shape; a rectangle may begin at any corner."""
    found = read_shapes(tmp_path, make_shape("dog", points, kind), on_error="raise")

    assert found[0]["boxes"].tolist() == [box]
    assert found[0]["shape_type"] == [kind or "polygon"]


def test_polygon_is_kept(tmp_path: Path) -> None:
    """A polygon is a field of its object: x, y, x, y in pixels; an object without one has None."""
    polygon = make_shape("dog", [[1, 2], [10.5, 3], [4, 20]])

    found = read_shapes(tmp_path, polygon, make_shape("dog", [[1, 2], [3, 4]], "rectangle"), on_error="raise")

    assert found[0]["polygon"] == [[1, 2, 10.5, 3, 4, 20], None]


def test_points_are_keypoints_of_the_object_of_their_group(tmp_path: Path) -> None:
    """Points with the group_id of one other shape are its keypoints, in alphabetical order of their labels."""
    found = read_shapes(
        tmp_path,
        make_shape("nose", [[5, 6]], "point", group_id=1),
        make_shape("face", [[1, 2], [10, 20]], "rectangle", group_id=1),
        make_shape("face", [[11, 2], [20, 20]], "rectangle", group_id=2),
        make_shape("eye", [[12, 3]], "point", group_id=2),
        make_shape("nose", [[15, 6]], "point", group_id=2),
        on_error="raise",
    )

    assert found.details["keypoint_names"] == ["eye", "nose"]
    assert found.classes == ("face",)
    assert found[0]["keypoints"].tolist() == [[[0, 0, 0], [5, 6, 2]], [[12, 3, 2], [15, 6, 2]]]
    assert found[0]["group_id"].tolist() == [1, 2]


def test_shapes_of_one_label_and_group_are_one_object(tmp_path: Path) -> None:
    """Its box bounds all parts and its mask is theirs together; another label, or no group, is another object."""
    square = [[1, 1], [5, 1], [5, 5], [1, 5]]
    far = [[x + 10, y + 2] for x, y in square]
    found = read_shapes(
        tmp_path,
        make_shape("cow", square, group_id=1, flags={"hidden": False}),
        make_shape("post", [[7, 0], [8, 20]], "rectangle", group_id=1),
        make_shape("cow", far, group_id=1, flags={"hidden": True}),
        make_shape("cow", [[6, 8], [9, 9]], "rectangle", group_id=1),
        make_shape("cow", [[3, 14], [4, 15]], "mask", group_id=1, mask=make_mask([[1, 1], [1, 1]])),
        make_shape("cow", square),
        make_shape("cow", far),
        make_shape("tail", [[3, 3]], "point", group_id=1),
    )
    record = found[0]

    assert record["boxes"].tolist() == [[1, 1, 15, 16], [7, 0, 8, 20], [1, 1, 5, 5], [11, 3, 15, 7]]
    joined = decode(record["instances"][0])
    expected = np.zeros_like(joined)
    for y, x, height, width in ((1, 1, 4, 4), (3, 11, 4, 4), (8, 6, 1, 3), (14, 3, 2, 2)):
        expected[y : y + height, x : x + width] = 1
    assert (joined == expected).all()
    assert record["polygons"][0] == [[*itertools.chain(*square)], [*itertools.chain(*far)], [6, 8, 9, 8, 9, 9, 6, 9]]
    assert record["hidden"].tolist()[0] == 1
    assert [problem.reason for problem in found.problems] == [
        "the point 'tail' must have one other shape of its group_id 1, got 2"
    ]


def test_boxes_of_one_group_are_one_box(tmp_path: Path) -> None:
    """It has no mask, as other boxes have none, and the points of the group are its keypoints."""
    boxes = [make_shape("cow", [[x, 1], [x + 4, 9]], "rectangle", group_id=3) for x in (1, 11)]

    found = read_shapes(tmp_path, *boxes, make_shape("tail", [[3, 3]], "point", group_id=3), on_error="raise")

    assert found[0]["boxes"].tolist() == [[1, 1, 15, 9]]
    assert "instances" not in found[0]
    assert found[0]["keypoints"].tolist() == [[[3, 3, 2]]]


@pytest.mark.parametrize("corner", [1e9, 2.0**24])
def test_a_part_far_away_is_a_problem_of_its_object(tmp_path: Path, corner: float) -> None:
    """A joined object whose parts end far outside is noted as one shape is."""
    parts: list[list[Any]] = [[[1, 1], [5, 1], [5, 5]], [[1, 1], [corner, 1], [corner, corner]]]

    found = read_shapes(tmp_path, *(make_shape("cow", points, group_id=1) for points in parts))

    assert len(found.problems) == 1


def test_order_of_keypoints_may_be_given(tmp_path: Path) -> None:
    """``keypoints=`` has the order; other points are listed and left out, and a second one of a name."""
    found = read_shapes(
        tmp_path,
        make_shape("face", [[1, 2], [10, 20]], "rectangle", group_id=1),
        make_shape("nose", [[5, 6]], "point", group_id=1),
        make_shape("nose", [[6, 6]], "point", group_id=1),
        make_shape("chin", [[5, 9]], "point", group_id=1),
        keypoints=("nose", "eye"),
    )

    assert found[0]["keypoints"].tolist() == [[[5, 6, 2], [0, 0, 0]]]
    assert [(problem.effect, problem.reason) for problem in found.problems] == [
        ("point left out", "the group has the point 'nose' twice"),
        ("point left out", "the point 'chin' is not one of the keypoints"),
    ]


def test_points_alone_are_listed_or_objects(tmp_path: Path) -> None:
    """Points without another shape of their group are left out and counted, or objects of a class that is given."""
    points = [make_shape(name, [[x, 2 * x]], "point") for name, x in (("eye", 4), ("nose", 6), ("chin", 9))]

    without, alone = read_shapes(tmp_path, *points), read_shapes(tmp_path, *points, points_class="face")

    assert len(without.problems) == 3
    assert 'points_class="..." makes objects' in without.problems[0].reason
    assert alone.problems == ()
    assert alone.classes == ("face",)
    assert alone[0]["boxes"].tolist() == [[4, 8, 9, 18]]
    assert alone[0]["keypoints"].tolist() == [[[9, 18, 2], [4, 8, 2], [6, 12, 2]]]


def test_points_of_a_group_with_two_shapes_are_listed(tmp_path: Path) -> None:
    """Which of two objects a point belongs to is not guessed."""
    shapes = [make_shape(label, [[1, 2], [10, 20]], "rectangle", group_id=1) for label in ("face", "head")]

    found = read_shapes(tmp_path, *shapes, make_shape("nose", [[3, 3]], "point", group_id=1))

    assert [problem.reason for problem in found.problems] == [
        "the point 'nose' must have one other shape of its group_id 1, got 2"
    ]
    assert len(found[0]["boxes"]) == 2


def make_mask(mask: Any) -> str:
    """A mask as labelme writes it."""
    stream = io.BytesIO()
    Image.fromarray(np.asarray(mask, np.uint8) * 255).convert("1").save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def test_mask_becomes_runs(tmp_path: Path) -> None:
    """A mask of a part of the image is encoded for the whole image; its last point is its last pixel."""
    mask = np.array([[0, 1, 1], [1, 1, 0]], bool)

    found = read_shapes(tmp_path, make_shape("dog", [[4, 5], [6, 6]], "mask", mask=make_mask(mask)), on_error="raise")

    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[5:7, 4:7] = mask
    assert found[0]["boxes"].tolist() == [[4, 5, 7, 7]]
    np.testing.assert_array_equal(decode(found[0]["instances"][0]), expected)


@pytest.mark.parametrize(
    ("points", "mask", "reason"),
    [
        ([[4, 5], [6, 6]], "no base64!", "must be in base64"),
        ([[4, 5], [6, 6]], None, "must be a text in base64"),
        ([[4, 5], [6, 6]], base64.b64encode(b"no PNG").decode(), "must be a PNG"),
        ([[4, 5], [7, 6]], make_mask([[1, 1, 1], [1, 1, 1]]), "must have 4 x 2 pixels"),
        ([[4.5, 5], [6, 6]], make_mask([[1, 1, 1], [1, 1, 1]]), "must lie on whole pixels"),
        ([[38, 5], [40, 6]], make_mask([[1, 1, 1], [1, 1, 1]]), "must lie in the image"),
        ([[-1, 5], [1, 6]], make_mask([[1, 1, 1], [1, 1, 1]]), "must lie on whole pixels"),
        ([[4, 5], [10**9, 10**9]], make_mask([[1]]), "must lie on whole pixels"),
    ],
)
def test_damaged_mask_is_listed(tmp_path: Path, points: list[Any], mask: str | None, reason: str) -> None:
    """A mask that does not fit is left out; nothing of a size that the file declares is allocated."""
    found = read_shapes(tmp_path, make_shape("dog", points, "mask", mask=mask))

    assert len(found.problems) == 1
    assert reason in found.problems[0].reason
    assert len(found[0]["boxes"]) == 0


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("no shape", "must be an object"),
        (make_shape("", [[1, 2], [3, 4]], "rectangle"), "label must be a text"),
        (make_shape(["dog"], [[1, 2], [3, 4]], "rectangle"), "label must be a text"),  # type: ignore[arg-type]
        (make_shape("dog", [[1, 2], [3, 4]], "star"), "shape_type must be one of"),
        (make_shape("dog", [[1, 2], [3, 4]], "polygon"), "at least 3 points, got 2"),
        (make_shape("dog", [[1, 2]], "circle"), "at least 2 points, got 1"),
        (make_shape("dog", []), "at least 3 points, got 0"),
        (make_shape("dog", [[1, 2, 3], [3, 4, 5]], "rectangle"), "pairs of x and y"),
        (make_shape("dog", [[1, "x"], [3, 4]], "rectangle"), "must be a number"),
        (make_shape("dog", [[1, float("nan")], [3, 4]], "rectangle"), "finite"),
        (make_shape("dog", [[3, 4], [0, float("inf")], [1, 1]]), "finite"),
        (make_shape("dog", [[1, 2], [1, 9]], "rectangle"), "which is empty"),
        (make_shape("dog", [[1, 2], [9, 2]], "line"), "which is empty"),
        (make_shape("dog", [[100, 2], [110, 20]], "rectangle"), "must lie in the image"),
        (make_shape("dog", [[1, 2], [3, 4]], "rectangle", group_id="one"), "group_id must be a number"),
    ],
)
def test_damaged_shape_is_listed(tmp_path: Path, shape: object, reason: str) -> None:
    """Each shape that is left out is one problem; the others of the image stay."""
    found = read_shapes(tmp_path, shape, make_shape("cat", [[1, 2], [3, 4]], "rectangle"))

    assert len(found.problems) == 1
    assert reason in found.problems[0].reason
    assert found.problems[0].image == "a.jpg"
    assert found[0]["boxes"].tolist() == [[1, 2, 3, 4]]


def test_box_beyond_the_image_is_clipped_and_listed(tmp_path: Path) -> None:
    """Clipping is counted."""
    found = read_shapes(tmp_path, make_shape("dog", [[30, 20], [90, 90]], "rectangle"))

    assert found[0]["boxes"].tolist() == [[30, 20, WIDTH, HEIGHT]]
    assert [problem.effect for problem in found.problems] == ["box clipped"]


def test_image_only_inside_the_json_is_listed(tmp_path: Path) -> None:
    """An image that is no file is left out, and the reason says where it is."""
    write_text(tmp_path / "a.json", make_labelme("a.jpg", [], imageData="aGVsbG8="))

    found = read(tmp_path, "labelme", on_error="skip")

    assert found.records == []
    assert "only a copy inside the JSON file (imageData); write it to a file" in found.problems[0].reason


@pytest.mark.parametrize(
    "path", ["..\\old\\a.jpg", "C:\\Users\\me\\a.jpg", "/home/me/a.jpg", "renamed.jpg", "", "./a.jpg"]
)
def test_image_is_found_beside_its_json(tmp_path: Path, path: str) -> None:
    """Paths of other systems and old names are met: the last part of the path, else the image named as the JSON."""
    write_image(tmp_path / "x" / "a.jpg")
    write_text(tmp_path / "x" / "a.json", make_labelme(path, []))

    found = read(tmp_path, "labelme")

    assert [record["image"] for record in found] == ["x/a.jpg"]


def test_paths_do_not_leave_the_source(tmp_path: Path) -> None:
    """An image outside the source is not read."""
    write_image(tmp_path / "outside.jpg")
    write_text(tmp_path / "set" / "a.json", make_labelme("../outside.jpg", []))

    found = read(tmp_path / "set", "labelme", on_error="skip")

    assert found.records == []
    assert len(found.problems) == 1


def test_other_size_is_listed(tmp_path: Path) -> None:
    """The size in the file is that of the image, else the image is left out."""
    write_image(tmp_path / "a.jpg", (20, 20))
    write_text(tmp_path / "a.json", make_labelme("a.jpg", []))

    found = read(tmp_path, "labelme", on_error="skip")

    assert "the annotation is of an image of 40 x 32, the image has 20 x 20" in found.problems[0].reason


def test_classes_of_a_list_keep_its_order(tmp_path: Path) -> None:
    """labels.txt lists the classes; `__ignore__` is none of them, and other classes are problems."""
    write_text(tmp_path / "labels.txt", "__ignore__\r\n_background_\r\ndog\r\ncat\r\n")
    shapes = [make_shape(name, [[1, 2], [3, 4]], "rectangle") for name in ("cat", "dog", "cow")]

    found = read_shapes(tmp_path, *shapes)

    assert found.classes == ("_background_", "dog", "cat")
    assert found[0]["labels"].tolist() == [2, 1]
    assert "'cow' is not one of the classes" in found.problems[0].reason


def test_flags_are_fields(tmp_path: Path) -> None:
    """Flags of shapes are numbers by name, also of names that records have; those of images are a list."""
    shape = make_shape("dog", [[1, 2], [3, 4]], "rectangle", flags={"occluded": True, "area": True, "line": False})
    write_image(tmp_path / "a.jpg")
    write_text(tmp_path / "a.json", make_labelme("a.jpg", [shape], flags={"night": True, "rain": False}))

    found = read(tmp_path, "labelme")

    assert found[0]["flags"] == ["night"]
    assert found[0]["occluded"].tolist() == [1]
    assert found[0]["area_"].tolist() == [1]
    assert found[0]["line"].tolist() == [0]


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"shapes": 3}', "[" * 100_000, "1" * 5000, "\ufeff"])
def test_other_json_is_listed(tmp_path: Path, content: str) -> None:
    """A JSON file that is none of labelme's is a problem of its own; the others are read."""
    write_text(tmp_path / "b.json", content)

    found = read_shapes(tmp_path, make_shape("dog", [[1, 2], [3, 4]], "rectangle"))

    assert len(found) == 1
    assert [problem.file for problem in found.problems] == ["b.json"]


def test_too_many_labels_of_points_are_refused(tmp_path: Path) -> None:
    """Each label of a point is a row of every object: memory has a bound, whatever a file holds."""
    shapes = [make_shape(f"point {number}", [[1, 2]], "point", group_id=1) for number in range(1001)]

    with pytest.raises(AnnotationError, match=r"at most 1,000 different labels.*got 1,001; give keypoints="):
        read_shapes(tmp_path, *shapes)
    assert len(read_shapes(tmp_path, *shapes, keypoints=("point 0",)).problems) == 1001


def test_options_and_splits_are_checked(tmp_path: Path) -> None:
    """Keypoints are different names; there are no splits."""
    with pytest.raises(ArgumentError, match="keypoints must be"):
        read_shapes(tmp_path, keypoints=("a", "a"))
    with pytest.raises(ArgumentError, match="no splits"):
        read_shapes(tmp_path, split="train")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["label", "points", "group_id", "shape_type", "flags", "mask"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(names, values, max_size=3), st.lists(names, max_size=2))
def test_fields_of_other_types_are_listed(tmp_path: Path, changed: dict[str, Any], missing: list[str]) -> None:
    """Whatever a shape holds: it is read, or it is one problem."""
    shape = make_shape("dog", [[1, 2], [30, 4], [3, 20]]) | changed
    for name in missing:
        shape.pop(name, None)

    try:
        found = read_shapes(tmp_path, shape)
    except AnnotationError:
        return

    kept = sum(len(record["boxes"]) for record in found)
    left_out = sum(problem.effect != "box clipped" for problem in found.problems)
    assert kept + left_out == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["imagePath", "imageWidth", "imageHeight", "imageData", "flags"]), values))
def test_files_of_other_types_are_listed(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whatever a file says of its image: the image is read, or it is one problem."""
    write_image(tmp_path / "a.jpg")
    content = json.loads(make_labelme("a.jpg", [])) | changed
    write_text(tmp_path / "a.json", json.dumps(content))

    found = read(tmp_path, "labelme", on_error="skip")

    assert len(found) + len(found.problems) == 1
