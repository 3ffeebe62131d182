"""Annotations of photographs that are stored turned: which picture each is of, and what records are of."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock.annotations import read, rle
from penstock.annotations.summary import AnnotationSummary
from penstock.errors import AnnotationError, ArgumentError
from penstock.orientation import PictureHeader, orient_pixels
from tests.turned_pictures import (
    BOX,
    SIZE,
    find_box,
    photograph,
    stored_pixels,
    write_coco,
    write_labelme,
    write_masks,
    write_voc,
    write_yolo,
)

ORIENTATIONS = range(1, 9)
WIDE = (140, 90)


def draw_ellipse(
    size: tuple[int, ...], *, cx: float, cy: float, rx: float, ry: float, rotation: float
) -> NDArray[np.bool_]:
    """The pixels whose centres lie in an ellipse."""
    y, x = np.mgrid[: size[1], : size[0]] + 0.5
    turn = np.radians(rotation)
    along = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
    across = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
    inside: NDArray[np.bool_] = (along / rx) ** 2 + (across / ry) ** 2 <= 1
    return inside


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_formats_that_say_no_size_or_the_upright_one_are_of_the_upright_picture(
    tmp_path: Path, orientation: int
) -> None:
    """Fractions and pixels are those of the picture that tools of annotation show."""
    sources = {
        "yolo": write_yolo(tmp_path / "yolo", orientation),
        "labelme": write_labelme(tmp_path / "labelme", orientation),
        "voc": write_voc(tmp_path / "voc", orientation),
    }

    for form, source in sources.items():
        found = read(source, form)

        np.testing.assert_allclose(found[0]["boxes"], [BOX], atol=1e-4)
        assert (found[0]["width"], found[0]["height"]) == SIZE
        assert bool(found.turned) == (orientation != 1)


def test_annotations_of_both_pictures_in_one_set_become_those_of_upright_ones(tmp_path: Path) -> None:
    """Each annotation is of the picture whose size it has; boxes, masks and points of stored pictures are turned."""
    kinds = {1: True, 2: True, 3: True, 4: True, 5: False, 6: False, 7: True, 8: False}
    found = read(write_coco(tmp_path / "set", kinds), "coco")

    for record in found:
        np.testing.assert_allclose(record["boxes"], [BOX])
        assert record["instances"][0]["size"] == [SIZE[1], SIZE[0]]
        assert find_box(rle.decode(record["instances"][0]) * np.uint8(255)) == BOX
        assert (record["width"], record["height"]) == SIZE
        assert {*record["keypoints"][0, 0, :2]} <= {*map(float, BOX)}
        assert not record["keypoints"][0, 1].any()
    assert found.turned == {f"{n}.jpeg": n if n in {5, 6, 8} else 1 for n in range(2, 9)}


@pytest.mark.parametrize(("size", "orientation"), [(SIZE, 2), (SIZE, 3), (SIZE, 4), ((60, 60), 6), ((60, 60), 5)])
def test_a_size_of_both_pictures_is_of_the_upright_one_unless_it_is_said(
    tmp_path: Path, size: tuple[int, int], orientation: int
) -> None:
    """upright=False reads what a program wrote that does not know Exif."""
    upright = write_coco(tmp_path / "upright", {orientation: True}, size)
    stored = write_coco(tmp_path / "stored", {orientation: False}, size)

    np.testing.assert_allclose(read(upright, "coco")[0]["boxes"], [BOX])
    np.testing.assert_allclose(read(stored, "coco", upright=False)[0]["boxes"], [BOX])
    assert not np.allclose(read(stored, "coco")[0]["boxes"], [BOX])


@pytest.mark.parametrize(("said", "size"), [(True, "48 x 80"), (False, "80 x 48"), (None, "48 x 80 or 80 x 48")])
def test_a_size_of_neither_picture_is_refused_with_both(tmp_path: Path, *, said: bool | None, size: str) -> None:
    """The message has the sizes that are allowed, and the orientation."""
    folder = write_labelme(tmp_path / "set", 6)
    content = json.loads((folder / "a.json").read_text()) | {"imageWidth": 50}
    (folder / "a.json").write_text(json.dumps(content))

    with pytest.raises(AnnotationError, match=f"of 50 x 80, the image has {size}, as its Exif orientation is 6"):
        read(folder, "labelme", upright=said)


def test_what_is_said_must_fit_the_size(tmp_path: Path) -> None:
    """upright=True refuses an annotation that has the size of the stored picture alone; other values are refused."""
    folder = write_coco(tmp_path / "set", {6: False})

    with pytest.raises(AnnotationError, match="of 80 x 48, the image has 48 x 80"):
        read(folder, "coco", upright=True)
    with pytest.raises(ArgumentError, match="upright must be True, False or None, got 'yes'"):
        read(folder, "coco", upright="yes")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("is_upright", [True, False])
def test_masks_say_by_their_size_which_picture_they_are_of(tmp_path: Path, *, is_upright: bool) -> None:
    """The orientation that turns a mask is kept, since a record has the path of its file."""
    found = read(write_masks(tmp_path / "set", 6, is_upright=is_upright), "mask_folders")

    assert (found[0]["width"], found[0]["height"]) == SIZE
    assert found.turned == {"images/a.jpg": 1 if is_upright else 6}


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_headers_say_both_sizes_in_each_format(form: str, orientation: int) -> None:
    """Also that of a TIFF, whose size Pillow gives as it is turned."""
    with Image.open(io.BytesIO(photograph(orientation, form))) as image:
        picture = PictureHeader.of(image)

    assert picture.upright_size == SIZE
    assert picture.size == (SIZE if orientation < 5 else SIZE[::-1])


def test_a_heic_is_opened_by_its_package(tmp_path: Path) -> None:
    """Its header turns it; the size that tools write is that of the upright picture."""
    heif = pytest.importorskip("pillow_heif")
    folder = write_labelme(tmp_path / "set", 6)
    made, exif = heif.from_pillow(Image.fromarray(stored_pixels(6))), Image.Exif()
    exif[0x0112] = 6
    made.info["exif"] = exif.tobytes()
    made.save(folder / "a.heic")
    (folder / "a.jpg").unlink()
    content = json.loads((folder / "a.json").read_text()) | {"imagePath": "a.heic"}
    (folder / "a.json").write_text(json.dumps(content))

    found = read(folder, "labelme")

    np.testing.assert_allclose(found[0]["boxes"], [BOX])
    assert (found[0]["width"], found[0]["height"]) == SIZE


def test_the_summary_counts_turned_images(tmp_path: Path) -> None:
    """``verify --annotations`` prints it; it is no problem."""
    summary = AnnotationSummary.of(read(write_coco(tmp_path / "set", {1: True, 3: True, 6: False}), "coco"))

    assert summary.ok
    assert summary.to_json()["turned"] == 2
    assert "  turned     2 by an Exif orientation: boxes are those of upright pictures" in list(summary.lines())


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_shapes_of_cvat_turn_with_the_stored_picture(tmp_path: Path, orientation: int) -> None:
    """An ellipse covers the pixels that it covered; rotation, cuboid and polygon are those of the upright picture."""
    upright_size = orient_pixels(np.zeros((WIDE[1], WIDE[0]), np.uint8), orientation).shape[::-1]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "images").mkdir()
    Image.new("RGB", WIDE).save(tmp_path / "images" / "a.jpg", exif=exif)
    corners = [(40, 30), (60, 30), (40, 50), (60, 50), (45, 35), (65, 35), (45, 55), (65, 55)]
    names = [name + end for end in "12" for name in ("tl", "tr", "bl", "br")]
    cuboid = " ".join(f'x{name}="{x}" y{name}="{y}"' for name, (x, y) in zip(names, corners, strict=True))
    (tmp_path / "annotations.xml").write_text(
        f'<annotations><image id="0" name="a.jpg" width="{WIDE[0]}" height="{WIDE[1]}">'
        '<ellipse label="dog" cx="70" cy="40" rx="30" ry="12" rotation="25"/>'
        '<box label="dog" xtl="20" ytl="30" xbr="60" ybr="40" rotation="25"/>'
        f'<cuboid label="dog" {cuboid}><attribute name="polygon">rough</attribute></cuboid>'
        "</image></annotations>"
    )

    record = read(tmp_path, "cvat", upright=False)[0]

    shown = {name: float(record[name][0]) for name in ("cx", "cy", "rx", "ry", "rotation")}
    drawn = draw_ellipse(WIDE, cx=70, cy=40, rx=30, ry=12, rotation=25)
    turned = orient_pixels(drawn.astype(np.uint8), orientation) != 0
    np.testing.assert_array_equal(draw_ellipse(upright_size, **shown), turned)
    assert shown["rotation"] == (335 if orientation in {2, 4, 5, 7} else 25)
    side = np.diff(np.reshape(record["polygon"][1], (-1, 2))[:2], axis=0)[0]
    angle = np.degrees(np.arctan2(side[1], side[0]))
    off = (record["rotation"][1] - angle + 45) % 90 - 45  # a quarter turn changes the sides of the box
    assert off == pytest.approx(0, abs=1e-3)
    points = np.reshape(record["cuboid"][2], (-1, 2))
    box = (*points.min(axis=0), *points.max(axis=0))
    np.testing.assert_allclose(record["boxes"][2], box)
