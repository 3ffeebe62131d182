"""Annotations as vectors over pictures: boxes with tracks, key points and masks, each of which can be turned off."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.browser.conftest import find_box


def encode(pixels: np.ndarray[Any, Any], form: str) -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pictures with every kind of annotation."""
    path = tmp_path_factory.mktemp("annotated") / "annotated.lmdb"
    schema = Schema({
        "image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", "dog")),
        "track_ids": Field("int64[*]"), "keypoints": Field("float32[*,2,3]"),
        "mask": Field("mask", ("", "road", "sky")),
    })  # fmt: skip
    writer = LmdbWriter(path, schema, "tests")
    mask = np.zeros((120, 200), np.uint8)
    mask[:30], mask[90:] = 2, 1
    picture = np.broadcast_to(np.linspace(60, 200, 200, dtype=np.uint8)[None, :, None], (120, 200, 3))
    for number in range(4):
        points = [[[30, 60, 2], [60, 60, 0]], [[150, 50, 2], [170, 70, 1]]]
        fields = {
            "image": encode(np.ascontiguousarray(picture), "JPEG"), "mask": encode(mask, "PNG"),
            "boxes": np.array([[20, 40, 80, 80], [120, 35, 180, 85]], np.float32), "labels": np.array([0, 1]),
            "track_ids": np.array([7, 9]) + number, "keypoints": np.array(points, np.float32),
        }  # fmt: skip
        writer.append(writer.prepare(f"{number}.jpg", fields))
    writer.finish()
    writer.close()
    return path


def drawn(place: Locator) -> dict[str, int]:
    """Numbers of colours in which masks, boxes and points are drawn, and of texts."""
    forms = {"masks": "path.mask", "boxes": "path.edge:not(.halo)", "points": "path.dots:not(.halo)", "texts": "text"}
    return {name: place.locator(form).count() for name, form in forms.items()}


def find_outline(path: Locator) -> list[float]:
    """Where the points of a vector lie in the window, without the width of its line: x, y, width."""
    found: list[float] = path.evaluate(
        """path => {
          const box = path.getBBox(), to = path.getScreenCTM();
          return [box.x * to.a + to.e, box.y * to.d + to.f, box.width * to.a];
        }"""
    )
    return found


def test_each_kind_is_drawn_and_turned_off(
    page: Page, viewer_url: Callable[..., str], annotated: Path, screenshot: Callable[[str], None]
) -> None:
    """In the grid, where texts need room, and over the record; a key for each kind."""
    page.goto(f"{viewer_url(annotated)}#size=256")
    cell, stage = page.locator("#cell-0"), page.locator(".stage")
    expect(cell.locator("text")).to_have_count(2)
    assert drawn(cell) == {"masks": 2, "boxes": 2, "points": 2, "texts": 2}
    expect(cell.locator("text").first).to_have_text("cat #7")
    screenshot("grid-layers")
    page.keyboard.press("Enter")
    expect(stage.locator("text")).to_have_count(2)
    assert drawn(stage) == {"masks": 2, "boxes": 2, "points": 2, "texts": 2}
    for key, kind in (("s", "masks"), ("t", "boxes"), ("k", "points")):
        page.keyboard.press(key)

        assert drawn(stage)[kind] == 0
        assert drawn(cell)[kind] == 0
    page.keyboard.press("k")
    assert drawn(stage) == {"masks": 0, "boxes": 0, "points": 2, "texts": 2}


def test_vectors_lie_where_the_annotations_say(page: Page, viewer_url: Callable[..., str], annotated: Path) -> None:
    """To a pixel of the screen, at the size of a thumbnail and at any zoom."""
    page.goto(f"{viewer_url(annotated)}#size=256&hide=names")
    cell = page.locator("#cell-1")
    expect(cell.locator("path.mask")).to_have_count(2)
    shot = find_box(cell.locator(".shot"))
    scale = shot["width"] / 200
    top = shot["y"] + (shot["height"] - 120 * scale) / 2
    outline = find_outline(cell.locator("path.edge:not(.halo)").first)

    assert outline == pytest.approx([shot["x"] + 20 * scale, top + 40 * scale, 60 * scale], abs=0.5)

    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".stage path.mask")).to_have_count(2)
    expect(page.locator(".stage img").first).to_be_visible()
    page.keyboard.press("1")
    picture = find_box(page.locator(".stage img").first)
    outline = find_outline(page.locator(".stage path.edge:not(.halo)").first)
    sky = find_outline(page.locator(".stage path.mask").last)

    assert picture["width"] == 200
    assert outline == pytest.approx([picture["x"] + 20, picture["y"] + 40, 60], abs=0.5)
    assert sky == pytest.approx([picture["x"], picture["y"], 200], abs=0.5)
