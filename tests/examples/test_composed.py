"""Masks and points of composed pictures are exact, and the files are the same each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.examples.example_scripts import import_example

pytest.importorskip("skimage")
composed: Any = import_example("composed")


def _list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["segmentation", "landmarks"])
def test_files_are_the_same_each_time(tmp_path: Path, name: str) -> None:
    """The same counts give the same bytes; another count replaces what is there."""
    write = getattr(composed, f"write_{name}")
    for folder in ("one", "other"):
        write(tmp_path / folder, {"train": 2, "val": 1})
    write(tmp_path / "other", {"train": 3, "val": 1})

    one, other = _list_files(tmp_path / "one"), _list_files(tmp_path / "other")

    assert len([path for path in one if path.endswith(".jpg")]) == 3
    assert len([path for path in other if path.endswith(".jpg")]) == 4
    pictures = [path for path in one if path.endswith((".jpg", ".png"))]
    assert {path: one[path] for path in pictures} == {path: other[path] for path in pictures}


def test_write_is_complete_or_nothing(tmp_path: Path) -> None:
    """What an interrupted run left is made again, and what is complete is left as it is."""
    stale = tmp_path / "set.partial" / "images"
    stale.mkdir(parents=True)
    (stale / "half.jpg").write_bytes(b"half")

    composed.write_segmentation(tmp_path / "set", {"val": 1})
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*")}
    composed.write_segmentation(tmp_path / "set", {"val": 1})

    assert not (tmp_path / "set.partial").exists()
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*")}
    assert not list((tmp_path / "set").rglob("half.jpg"))


def test_splits_share_no_pixels(tmp_path: Path) -> None:
    """The parts of photographs of "train" begin where those of "val" end."""
    assert composed.SPANS["val"][0] == 0
    assert composed.SPANS["val"][1] == composed.SPANS["train"][0]
    assert composed.SPANS["train"][1] == 1
    train, val = (composed.Photographs(split) for split in ("train", "val"))
    for one, other in zip(train.parts.values(), val.parts.values(), strict=True):
        assert one.height == other.height
        assert one.width > 2 * other.width


def test_splits_have_textures_of_one_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random numbers, pieces of "train" and "val" have the same size: no split is coarser."""
    cropped = Image.Image.crop
    sides: list[tuple[float, float]] = []

    def crop(image: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
        sides.append((box[2] - box[0], box[3] - box[1]))
        return cropped(image, box)

    cuts = {}
    for split in ("train", "val"):
        photographs = composed.Photographs(split)
        sides.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Image.Image, "crop", crop)
            for seed in range(20):
                photographs.cut(np.random.default_rng(seed), (200, 180), list(photographs.parts))
        cuts[split] = np.array(sides)

    assert len(cuts["val"]) == 20
    np.testing.assert_allclose(cuts["train"], cuts["val"], atol=2, rtol=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_map_and_inverse_agree(seed: int) -> None:
    """The plane's point at the centre of each pixel is mapped back to that centre."""
    draw = np.random.default_rng(seed)
    at = composed.Placement.draw(draw, np.array([30.0, 25.0]), 12.0, np.pi)

    x, y = at.unplace((60, 50))
    inside = np.hypot(x, y) < 1.5
    back = at.place(np.stack([x[inside], y[inside]], 1))

    rows, columns = np.nonzero(inside)
    assert inside.sum() > 200
    np.testing.assert_allclose(back, np.stack([columns + 0.5, rows + 0.5], 1), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "area"), [("ellipse", np.pi), ("triangle", 3 * np.sqrt(3) / 4), ("cross", 0.66 * 2 * 2 - 0.66**2)]
)
def test_areas_of_shapes(shape: str, area: float) -> None:
    """A shape has the area of its formula."""
    x, y = np.meshgrid(*[(np.arange(2000) + 0.5) / 1000 - 1] * 2)

    assert composed.SHAPES[shape](x, y).mean() * 4 == pytest.approx(area, rel=1e-3)


def test_star_is_a_polygon() -> None:
    """The star is the polygon of its ten corners."""
    from PIL import ImageDraw

    turns = np.arange(10) * np.pi / 5
    radii = np.where(np.arange(10) % 2 == 0, 1, 0.42)
    corners = np.stack([np.sin(turns), -np.cos(turns)], 1) * radii[:, None]
    drawn = Image.new("1", (1000, 1000))
    ImageDraw.Draw(drawn).polygon([tuple(each) for each in (corners * 500 + 499.5).tolist()], fill=1)
    x, y = np.meshgrid(*[(np.arange(1000) + 0.5) / 500 - 1] * 2)

    different = composed.SHAPES["star"](x, y) != np.asarray(drawn)

    assert different.mean() < 0.004  # the pixels of the edge, which Pillow draws wider
    assert composed.SHAPES["star"](x, y).mean() > 0.2


def test_points_lie_in_the_box_of_the_face(tmp_path: Path) -> None:
    """All points are labelled, inside the box and the picture; the left ones of upright faces are on the left."""
    composed.write_landmarks(tmp_path / "set", {"val": 20})
    content = json.loads((tmp_path / "set" / "annotations" / "person_keypoints_val.json").read_text())

    for image, one in zip(content["images"], content["annotations"], strict=True):
        x0, y0, width, height = one["bbox"]
        points = np.reshape(one["keypoints"], (5, 3))
        assert (points[:, 2] == 2).all()
        assert ((points[:, :2] > [x0, y0]) & (points[:, :2] < [x0 + width, y0 + height])).all()
        assert x0 >= 0
        assert y0 >= 0
        assert x0 + width <= image["width"]
        assert y0 + height <= image["height"]
        assert points[0, 0] < points[1, 0]
        assert points[3, 0] < points[4, 0]


def test_masks_are_where_figures_are(tmp_path: Path) -> None:
    """Where a mask is 0 the picture is the photograph; elsewhere its colours differ from it."""
    photographs = composed.Photographs("val")
    draw = np.random.default_rng(4)
    picture, mask = composed.draw_background(photographs, draw, ["cat"])
    before = picture.copy()

    inside = composed.draw_figure(photographs, draw, picture, "star", (0.2, 0.3), ["grass"], tint=0.3)

    assert not mask.any()
    assert inside.any()
    assert (picture[~inside] == before[~inside]).all()
    assert (picture[inside] != before[inside]).any(1).mean() > 0.95
