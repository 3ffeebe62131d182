"""CVAT for images: every kind of shape, the labels of tasks, and damaged elements."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.annotations import Annotations, read
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.sets import HEIGHT, WIDTH, make_cvat, write_image, write_text
from tests.annotations.test_shapes import decode

CUBOID: Final = (
    '<cuboid label="dog" xtl1="1" ytl1="2" xbl1="1" ybl1="9" xtr1="8" ytr1="2" xbr1="8" ybr1="9" xtl2="11" ytl2="3" '
    'xbl2="11" ybl2="10" xtr2="18" ytr2="3" xbr2="18" ybr2="10"/>'
)


def read_shapes(folder: Path, shapes: str, more: str = "", on_error: str = "skip") -> Annotations:
    """What is read of one image with these elements."""
    write_image(folder / "images" / "a.jpg")
    image = f'<image id="7" name="a.jpg" width="{WIDTH}" height="{HEIGHT}">{shapes}</image>'
    write_text(folder / "annotations.xml", make_cvat(image, more=more))
    return read(folder, "cvat", on_error=on_error)


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        ('<box label="dog" xtl="1.5" ytl="2" xbr="10" ybr="20"/>', [1.5, 2, 10, 20]),
        ('<box label="dog" xtl="10" ytl="18" xbr="30" ybr="22" rotation="90"/>', [18, 10, 22, 30]),
        ('<polygon label="dog" points="1,2;10.5,3;4,20"/>', [1, 2, 10.5, 20]),
        ('<polyline label="dog" points="1,2;10.5,3;"/>', [1, 2, 10.5, 3]),
        ('<points label="dog" points="1,2;10.5,3;4,20"/>', [1, 2, 10.5, 20]),
        ('<ellipse label="dog" cx="15" cy="16" rx="10" ry="5"/>', [5, 11, 25, 21]),
        ('<ellipse label="dog" cx="15" cy="16" rx="10" ry="5" rotation="90"/>', [10, 6, 20, 26]),
        (CUBOID, [1, 2, 18, 10]),
        ('<mask label="dog" rle="1, 2, 2, 1" left="4" top="5" width="3" height="2"/>', [4, 5, 7, 7]),
    ],
)
def test_box_bounds_the_shape(tmp_path: Path, shape: str, box: list[float]) -> None:
    """The box of an object is the smallest that holds its shape."""
    found = read_shapes(tmp_path, shape, on_error="raise")

    np.testing.assert_allclose(found[0]["boxes"], [box], atol=1e-5)
    assert found.classes == ("dog", "cat")
    assert found[0]["labels"].tolist() == [0]
    assert found[0]["id"] == 7


def test_attributes_are_fields(tmp_path: Path) -> None:
    """Attributes of people are fields, numbers where they are; so are CVAT's own; names of records are not taken."""
    found = read_shapes(
        tmp_path,
        '<box label="dog" occluded="1" z_order="-3" group_id="4" xtl="1" ytl="2" xbr="3" ybr="4">'
        '<attribute name="age">12</attribute><attribute name="colour">red</attribute>'
        '<attribute name="boxes">x</attribute><attribute name="label">y</attribute></box>'
        '<polygon label="cat" points="1,2;3,4;1,4"/>',
        on_error="raise",
    )

    record = found[0]
    assert record["occluded"].tolist() == [1, 0]
    assert record["z_order"].tolist() == [-3, 0]
    assert record["group_id"].tolist() == [4, 0]
    assert record["age"].tolist() == [12, 0]
    assert (record["colour"], record["boxes_"], record["label"]) == (["red", ""], ["x", ""], ["y", ""])
    assert record["polygon"] == [None, [1, 2, 3, 4, 1, 4]]
    assert record["shape_type"] == ["box", "polygon"]
    assert record["boxes"].shape == (2, 4)


def test_mask_becomes_runs(tmp_path: Path) -> None:
    """CVAT counts along the rows of the mask's own box; runs of records go down the columns of the image."""
    found = read_shapes(tmp_path, '<mask label="dog" rle="1, 4, 1" left="4" top="5" width="3" height="2"/>')

    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[5:7, 4:7] = [[0, 1, 1], [1, 1, 0]]
    np.testing.assert_array_equal(decode(found[0]["instances"][0]), expected)


def test_keypoints_have_a_bound(tmp_path: Path) -> None:
    """One object with very many points would give all others as many rows: that is refused before it is allocated."""
    points = ";".join(f"{number % 30},{number % 20}" for number in range(100_000))
    boxes = '<box label="cat" xtl="1" ytl="2" xbr="3" ybr="4"/>' * 3000

    with pytest.raises(AnnotationError, match=r"got 3,001 objects with up to 100,000"):
        read_shapes(tmp_path, f'<points label="dog" points="{points}"/>{boxes}')


def test_skeletons_have_the_order_of_their_label(tmp_path: Path) -> None:
    """Keypoints are in the order of the task's label; points outside are zeros, occluded ones have the flag 1."""
    more = "<label><name>hand</name></label>" + "".join(
        f"<label><name>{name}</name><parent>hand</parent></label>" for name in ("thumb", "ring", "index")
    )
    found = read_shapes(
        tmp_path,
        '<skeleton label="hand"><points label="index" occluded="1" outside="0" points="9,8"/>'
        '<points label="thumb" occluded="0" outside="0" points="1,2"/>'
        '<points label="ring" occluded="0" outside="1" points="30,30"/></skeleton>',
        more,
        on_error="raise",
    )

    assert found.classes == ("dog", "cat", "hand")
    assert found.details["keypoint_names"] == {"hand": ["thumb", "ring", "index"]}
    assert found[0]["keypoints"].tolist() == [[[1, 2, 2], [0, 0, 0], [9, 8, 1]]]
    assert found[0]["boxes"].tolist() == [[1, 2, 9, 8]]


def test_tags_are_a_list_of_the_image(tmp_path: Path) -> None:
    """Tags belong to the image, and are no objects."""
    found = read_shapes(tmp_path, '<tag label="cat" source="manual"/><tag label="dog"/>', on_error="raise")

    assert found[0]["tags"] == ["cat", "dog"]
    assert found[0]["boxes"].shape == (0, 4)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("<star/>", "its shape must be one of"),
        ('<box xtl="1" ytl="2" xbr="3" ybr="4"/>', "it has no label"),
        ('<box label="cow" xtl="1" ytl="2" xbr="3" ybr="4"/>', "not one of the classes"),
        ('<box label="dog" ytl="2" xbr="3" ybr="4"/>', "it has no xtl"),
        ('<box label="dog" xtl="x" ytl="2" xbr="3" ybr="4"/>', "xtl must be a number"),
        ('<box label="dog" xtl="nan" ytl="2" xbr="3" ybr="4"/>', "xtl must be a finite number"),
        ('<box label="dog" xtl="3" ytl="2" xbr="1" ybr="4"/>', "which is inverted"),
        ('<box label="dog" xtl="1" ytl="2" xbr="3" ybr="4" rotation="1e300"/>', "rotation must be in"),
        ('<box label="dog" xtl="1" ytl="2" xbr="3" ybr="4" occluded="x"/>', "occluded must be a number"),
        ('<polygon label="dog" points=""/>', "it has no points"),
        ('<polygon label="dog" points="1;2"/>', "pairs of x and y"),
        ('<points label="dog" points="1,2"/>', "which is empty"),
        ('<ellipse label="dog" cx="15" cy="16" rx="-1" ry="5"/>', "radii must be positive"),
        ('<mask label="dog" rle="1, 4" left="4" top="5" width="3" height="2"/>', "sum to 6, got 5"),
        ('<mask label="dog" rle="1, -4, 9" left="4" top="5" width="3" height="2"/>', "must be positive"),
        ('<mask label="dog" rle="" left="4" top="5" width="3" height="2"/>', "rle must be a number"),
        ('<mask label="dog" rle="6" left="39" top="5" width="3" height="2"/>', "must lie in the image"),
        ('<mask label="dog" rle="1000000000000" left="0" top="0" width="1000000" height="1000000"/>', "must lie in"),
        ('<skeleton label="dog"/>', "none of its points"),
    ],
)
def test_damaged_shape_is_listed(tmp_path: Path, shape: str, reason: str) -> None:
    """Each shape that is left out is one problem with its line; the others of the image stay."""
    found = read_shapes(tmp_path, f'\n{shape}\n<box label="cat" xtl="1" ytl="2" xbr="3" ybr="4"/>')

    assert len(found.problems) == 1
    assert reason in found.problems[0].reason
    assert found.problems[0].line == 6
    assert found.problems[0].image == "images/a.jpg"
    assert found[0]["boxes"].tolist() == [[1, 2, 3, 4]]


def test_subsets_are_splits(tmp_path: Path) -> None:
    """The attribute `subset` is the split; images lie in a folder of its name, or in `images` itself."""
    images = ""
    for name, subset in (("a", "train"), ("b", "val"), ("c", "train")):
        write_image(tmp_path / "images" / subset / f"{name}.jpg")
        images += f'<image id="1" name="{name}.jpg" subset="{subset}" width="{WIDTH}" height="{HEIGHT}"/>'
    write_text(tmp_path / "annotations.xml", make_cvat(images))

    everything, train = read(tmp_path, "cvat"), read(tmp_path, "cvat", split="train")

    assert [record["split"] for record in everything] == ["train", "val", "train"]
    assert [record["image"] for record in train] == ["images/train/a.jpg", "images/train/c.jpg"]
    with pytest.raises(ArgumentError, match="split must be one of train, val, got 'test'"):
        read(tmp_path, "cvat", split="test")


def test_images_may_be_elsewhere(tmp_path: Path) -> None:
    """A single file with ``images=``; names have folders of their own."""
    write_image(tmp_path / "pictures" / "x" / "a.jpg")
    path = write_text(tmp_path / "job.xml", make_cvat(f'<image name="x/a.jpg" width="{WIDTH}" height="{HEIGHT}"/>'))

    found = read(path, images=tmp_path / "pictures", format="cvat")

    assert [record["image"] for record in found] == ["pictures/x/a.jpg"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no XML"),
        (b"<annotations>", "no XML"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><annotations>&b;</annotations>', "must not declare entities"),
        (
            b'<!DOCTYPE a SYSTEM "http://localhost/a.dtd"><annotations>&b;</annotations>',
            "must not refer to other documents",
        ),
        (b"<!DOCTYPE a [ %c; ]><annotations>&b;</annotations>", "must not declare"),
        (b"<annotations>" + b"<a>" * 100, "nested at most"),
        (b'<?xml version="1.0" encoding="no-such"?><annotations/>', "no XML"),
    ],
)
def test_damaged_document_is_an_error(tmp_path: Path, content: bytes, reason: str) -> None:
    """Everything depends on the document: it is refused under either policy."""
    write_text(tmp_path / "annotations.xml", content)

    with pytest.raises(AnnotationError, match=reason):
        read(tmp_path, "cvat", on_error="skip")


def test_other_xml_files_are_listed(tmp_path: Path) -> None:
    """A document with another root is left out, and counted; images of several documents are joined."""
    write_text(tmp_path / "a" / "other.xml", "<annotation/>")
    for name in "ab":
        write_image(tmp_path / name / "images" / f"{name}.jpg")
        image = f'<image name="{name}.jpg" width="{WIDTH}" height="{HEIGHT}"/>'
        write_text(tmp_path / name / "annotations.xml", make_cvat(image, (name,)))

    found = read(tmp_path, "cvat", on_error="skip")

    assert [record["image"] for record in found] == ["a/images/a.jpg", "b/images/b.jpg"]
    assert found.classes == ("a", "b")
    assert [(problem.file, problem.effect) for problem in found.problems] == [("a/other.xml", "file left out")]


def test_images_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    """Wrong sizes, images named twice, images that are not there, numbers that are none: one problem each."""
    write_image(tmp_path / "a.jpg")
    images = "".join(
        f'<image name="{name}" width="{width}" height="32"/>'
        for name, width in (("a.jpg", 41), ("a.jpg", 40), ("a.jpg", 40), ("b.jpg", 40), ("a.jpg", "x"), ("", 40))
    )
    write_text(tmp_path / "annotations.xml", make_cvat(images))

    found = read(tmp_path, "cvat", on_error="skip")

    assert len(found) == 1
    assert [problem.reason.split(",")[0] for problem in found.problems] == [
        "the annotation is of an image of 41 x 32",
        "the image 'a.jpg' is annotated already",
        "there is no image 'b.jpg'",
        "its width must be a number",
        "there is no image ''",
    ]


NAMES: Final = (
    *("label", "xtl", "ytl", "xbr", "ybr", "points", "rle", "left", "top", "width", "height", "cx", "cy", "rx", "ry"),
    *("rotation", "occluded", "z_order", "group_id"),
)
numbers = st.one_of(
    st.integers().map(str), st.floats().map(str), st.sampled_from(["", "x", "1e999", "9" * 5000, "0x10", "1_0", "٣"])
)
attributes = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(numbers, st.lists(numbers, max_size=6).map(",".join), st.just("1,2;3,4;5,9"), st.just("dog")),
)
tags = st.sampled_from(["box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton", "other"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tags, attributes)
@example("mask", {"label": "dog", "rle": "9" * 5000, "left": "0", "top": "0", "width": "1", "height": "1"})
@example("box", {"label": "dog", "xtl": "0", "ytl": "0", "xbr": "inf", "ybr": "9", "rotation": "45"})
def test_any_attributes_are_read_or_listed(tmp_path: Path, tag: str, given_attributes: dict[str, str]) -> None:
    """Whatever an element holds: it is an object, or it is one problem."""
    text = " ".join(f'{name}="{value}"' for name, value in given_attributes.items())

    found = read_shapes(tmp_path, f"<{tag} {text}/>")

    left_out = sum(problem.effect != "box clipped" for problem in found.problems)
    assert len(found[0]["boxes"]) + left_out == 1
