"""Polygons become the same instances in every format that has them: those of COCO, pycocotools' pixels."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.annotations import Annotations, polygons, read, records, rle
from penstock.errors import AnnotationError
from tests.annotations.sets import HEIGHT, WIDTH, make_cvat, make_labelme, write_image, write_text
from tests.annotations.test_polygons import draw

Polygon = Sequence[tuple[float, float]]

POLYGONS: Final[Sequence[Polygon]] = (
    ((2, 4), (12, 4), (12, 20), (2, 20)),
    ((10.25, 6.5), (30.75, 7), (21, 22.125)),
    ((0, 0), (40, 0), (40, 32), (0, 32), (20, 16)),
    ((5, 5), (35, 25), (35, 5), (5, 25)),  # its edges cross
)


def _join(polygon: Polygon, between: str, after: str) -> str:
    return after.join(f"{x}{between}{y}" for x, y in polygon)


def _write_coco(folder: Path, found: Sequence[Polygon]) -> None:
    objects = []
    for number, polygon in enumerate(found):
        xs, ys = zip(*polygon, strict=True)
        box = [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]
        ring = [value for point in polygon for value in point]
        objects.append({"id": number, "image_id": 1, "category_id": 1, "bbox": box, "segmentation": [ring]})
    images = [{"id": 1, "file_name": "a.jpg", "width": WIDTH, "height": HEIGHT}]
    content = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "dog"}]}
    write_image(folder / "train/a.jpg")
    write_text(folder / "annotations/instances_train.json", json.dumps(content))


def _write_yolo(folder: Path, found: Sequence[Polygon]) -> None:
    rows = [" ".join(f"{x / WIDTH!r} {y / HEIGHT!r}" for x, y in polygon) for polygon in found]
    write_image(folder / "images/a.jpg")
    write_text(folder / "data.yaml", "path: .\ntrain: images\nnames: [dog]\n")
    write_text(folder / "labels/a.txt", "".join(f"0 {row}\n" for row in rows))


def _write_labelme(folder: Path, found: Sequence[Polygon]) -> None:
    shapes = [{"label": "dog", "points": [list(point) for point in polygon]} for polygon in found]
    write_image(folder / "a.jpg")
    write_text(folder / "a.json", make_labelme("a.jpg", shapes))


def _write_cvat(folder: Path, found: Sequence[Polygon]) -> None:
    shapes = "".join(f'<polygon label="dog" points="{_join(polygon, ",", ";")}"/>' for polygon in found)
    write_image(folder / "images/a.jpg")
    image = f'<image id="1" name="a.jpg" width="{WIDTH}" height="{HEIGHT}">{shapes}</image>'
    write_text(folder / "annotations.xml", make_cvat(image))


def _write_voc(folder: Path, found: Sequence[Polygon], style: str = "pt") -> None:
    objects = ""
    for polygon in found:
        if style == "pt":  # as the first LabelMe has it
            points = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in polygon)
        elif style == "numbered":  # as Roboflow has it
            points = "".join(f"<x{row}>{x}</x{row}><y{row}>{y}</y{row}>" for row, (x, y) in enumerate(polygon, 1))
        else:
            points = _join(polygon, ",", " ")
        objects += f"<object><name>dog</name><polygon>{points}</polygon></object>"
    write_image(folder / "JPEGImages/a.jpg")
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
    write_text(folder / "Annotations/a.xml", f"<annotation><filename>a.jpg</filename>{size}{objects}</annotation>")


WRITERS: Final[dict[str, Callable[[Path, Sequence[Polygon]], None]]] = {
    "coco": _write_coco,
    "cvat": _write_cvat,
    "labelme": _write_labelme,
    "voc": _write_voc,
    "yolo": _write_yolo,
}
OPTIONS: Final[dict[str, dict[str, Any]]] = {"yolo": {"task": "segment"}}
"""Lines of four corners alone would be oriented boxes."""


def read_polygons(folder: Path, name: str, found: Sequence[Polygon], **options: Any) -> Annotations:
    """What is read of one image with these polygons."""
    WRITERS[name](folder, found)
    return read(folder, name, **(OPTIONS.get(name, {}) | options))


@pytest.mark.parametrize("name", WRITERS)
def test_polygons_have_the_pixels_of_the_rule(tmp_path: Path, name: str) -> None:
    """Each polygon, also one whose edges cross, has the mask that its rule draws, and its box bounds it."""
    found = read_polygons(tmp_path, name, POLYGONS)

    assert len(found[0]["instances"]) == len(POLYGONS)
    for instance, polygon in zip(found[0]["instances"], POLYGONS, strict=True):
        expected = draw([[float(value) for point in polygon for value in point]], HEIGHT, WIDTH)
        np.testing.assert_array_equal(rle.decode(instance), expected)
    corners = [[*np.min(polygon, axis=0), *np.max(polygon, axis=0)] for polygon in POLYGONS]
    np.testing.assert_allclose(found[0]["boxes"], corners, rtol=1e-6)


@settings(max_examples=settings().max_examples // 8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, WIDTH * 8), st.integers(0, HEIGHT * 8)), min_size=3, max_size=8),
        min_size=1,
        max_size=4,
        unique_by=tuple,
    )
)
def test_every_format_gives_the_instances_of_coco(tmp_path: Path, drawn: list[list[tuple[int, int]]]) -> None:
    """The same polygons in each format: the same instances, boxes and labels."""
    made = [[(x / 8, y / 8) for x, y in polygon] for polygon in drawn]
    expected = read_polygons(tmp_path / "coco", "coco", made, on_error="skip")

    for name in WRITERS:
        found = read_polygons(tmp_path / name, name, made, on_error="skip")
        assert found[0]["instances"] == expected[0]["instances"], name
        np.testing.assert_allclose(found[0]["boxes"], expected[0]["boxes"], atol=1e-4)
        assert len(found.problems) == len(expected.problems)


@pytest.mark.parametrize("style", ["pt", "numbered", "text"])
def test_polygons_of_voc_may_be_written_in_three_ways(tmp_path: Path, style: str) -> None:
    """Elements of points, numbered coordinates, or text; the corners are a field of their object."""
    _write_voc(tmp_path, POLYGONS[:2], style)

    found = read(tmp_path, "voc")

    assert found[0]["polygon"] == [[value for point in polygon for value in point] for polygon in POLYGONS[:2]]
    assert found[0]["boxes"].tolist() == [[2, 4, 12, 20], [10.25, 6.5, 30.75, 22.125]]
    assert rle.area(found[0]["instances"][0]) == 160


def test_box_of_voc_stands_beside_its_polygon(tmp_path: Path) -> None:
    """Where both are written, the box is the written one, and the mask that of the polygon; without one it is None."""
    _write_voc(tmp_path, POLYGONS[:1])
    path = tmp_path / "Annotations/a.xml"
    box = "<bndbox><xmin>1</xmin><ymin>3</ymin><xmax>13</xmax><ymax>21</ymax></bndbox>"
    path.write_text(
        path.read_text()
        .replace("<name>dog</name>", f"<name>dog</name>{box}")
        .replace("</annotation>", f"<object><name>cat</name>{box}<polygon/></object></annotation>")
    )

    found = read(tmp_path, "voc")

    assert found[0]["boxes"].tolist() == [[1, 3, 13, 21]] * 2
    assert found[0]["instances"][1] is None
    assert rle.area(found[0]["instances"][0]) == 160


@pytest.mark.parametrize("corners", ["1,2 3,4", "1,2 3,4 5", "1,2 3,4 x,6", "1,2 3,4 nan,6", "1,2 3,4 1e9,6"])
def test_damaged_polygon_of_voc_is_listed(tmp_path: Path, corners: str) -> None:
    """Fewer than three corners, half of one, or no coordinate: the object is left out."""
    _write_voc(tmp_path, POLYGONS[:1])
    path = tmp_path / "Annotations/a.xml"
    wrong = f"<object><name>cat</name><polygon>{corners}</polygon></object></annotation>"
    path.write_text(path.read_text().replace("</annotation>", wrong))

    found = read(tmp_path, "voc", on_error="skip")

    assert len(found[0]["labels"]) == 1
    assert [problem.effect for problem in found.problems] == ["object left out"]


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"coco"}))
def test_polygons_too_long_for_memory_are_listed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object whose edges pass too many columns is left out; those beside it stay, with their masks."""
    monkeypatch.setattr(polygons, "MAX_PASSES", 200)
    zigzag = [(float(row % 2 * WIDTH), float(row)) for row in range(12)]

    found = read_polygons(tmp_path, name, [POLYGONS[0], zigzag, POLYGONS[1]], on_error="skip")

    assert len(found[0]["labels"]) == len(found[0]["instances"]) == 2
    assert None not in found[0]["instances"]
    assert [problem.reason for problem in found.problems] == ["its polygon has too many and too long edges"]
    with pytest.raises(AnnotationError, match="too long edges"):
        read_polygons(tmp_path, name, [POLYGONS[0], zigzag])


def test_many_polygons_are_drawn_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, all have their masks."""
    expected = read_polygons(tmp_path, "labelme", POLYGONS)[0]["instances"]
    for count in (1, 2, 3):
        monkeypatch.setattr(records, "_MAX_WAITING", count)
        assert read(tmp_path, "labelme")[0]["instances"] == expected


@pytest.mark.parametrize("name", WRITERS)
def test_instances_are_packed_and_written_as_coco(tmp_path: Path, name: str) -> None:
    """From any of the formats through a store to COCO: the instances are the same."""
    before = read_polygons(tmp_path / "set", name, POLYGONS)
    options = OPTIONS.get(name)
    ps.pack(None, tmp_path / "packed.lmdb", annotations=tmp_path / "set", format=name, annotation_options=options)

    assert ps.convert(tmp_path / "packed.lmdb", tmp_path / "written", to_layout="coco").ok
    assert read(tmp_path / "written", "coco")[0]["instances"] == before[0]["instances"]
