"""One record: its picture at any zoom, what is known of it, and its neighbours."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from penstock.errors import StoreError
from penstock.sample import Field, Record, Schema
from penstock.stores.base import Indices
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.browser.conftest import draw_frame, find_box, wait_until
from tests.browser.many import ManyStore

ViewerUrl = Callable[..., str]
WIDTH, HEIGHT = 3000, 2000


def write_large(path: Path) -> Path:
    """Three large pictures with boxes of two classes, key points and a long text."""
    file = io.BytesIO()
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    pixels = np.stack([columns % 256, rows % 256, (rows // 8 + columns // 8) % 2 * 255], axis=-1).astype(np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Maker of cameras"
    Image.fromarray(pixels).save(file, "JPEG", quality=90, exif=exif)
    schema = Schema({
        "image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", "dog")),
        "caption": Field("text"),
    })  # fmt: skip
    writer = LmdbWriter(path, schema, "tests", overwrite=True)
    for number in range(3):
        boxes = np.array([[100, 100, 900, 700], [1500, 800, 2900, 1900]], np.float32)
        fields = {"image": file.getvalue(), "boxes": boxes, "labels": np.array([0, 1]), "caption": f"{number} " * 500}
        writer.append(writer.prepare(f"large/{number}.jpg", fields))
    writer.finish()
    writer.close()
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written once."""
    return write_large(tmp_path_factory.mktemp("large") / "large.lmdb")


def open_record(page: Page, url: str, index: int = 0) -> None:
    """Show a record and wait for its picture and its facts."""
    page.goto(f"{url}#index={index}")
    page.wait_for_selector("dialog.record .facts")
    wait_until(page, "() => !document.querySelector('.stage img').hidden")


def watch_pictures(page: Page) -> list[dict[str, list[str]]]:
    """Queries of the pictures that are asked from now on."""
    queries: list[dict[str, list[str]]] = []

    def note(request: Any) -> None:
        address = urlsplit(request.url)
        if "/api/picture/" in address.path:
            queries.append(parse_qs(address.query))

    page.on("request", note)
    return queries


def test_what_is_zoomed_is_asked_at_the_resolution_of_the_screen(
    page: Page, viewer_url: ViewerUrl, large: Path
) -> None:
    """The part that is seen, never more pixels than the screen has; at 100 % without loss, with values of pixels."""
    open_record(page, viewer_url(large))
    asked = watch_pictures(page)
    stage = find_box(page.locator(".stage"))
    page.mouse.move(stage["x"] + 300, stage["y"] + 300)
    for _ in range(4):
        page.mouse.wheel(0, -200)
    page.wait_for_selector(".stage .part:not([hidden])")
    page.keyboard.press("1")
    expect(page.locator(".pixel")).to_contain_text("100 %")
    page.wait_for_selector(".stage .part[src*=exact]:not([hidden])")
    expect(page.locator(".pixel")).to_contain_text("(")

    with_region = [each for each in asked if "region" in each]
    assert with_region
    for query in with_region:
        x0, y0, x1, y1 = map(int, query["region"][0].split(","))
        assert 0 <= x0 < x1 <= WIDTH
        assert 0 <= y0 < y1 <= HEIGHT
        assert int(query["side"][0]) <= math.ceil(max(stage["width"], stage["height"])) + 2
    page.keyboard.press("0")
    expect(page.locator(".stage .part")).to_be_hidden()


def test_a_drag_moves_the_picture_and_its_boxes(page: Page, viewer_url: ViewerUrl, large: Path) -> None:
    """By as far as the pointer moves."""
    open_record(page, viewer_url(large))
    page.keyboard.press("1")
    page.wait_for_selector(".stage path.edge:not(.halo)")
    before, boxes = (find_box(page.locator(each).first) for each in (".stage img", ".stage path.edge:not(.halo)"))
    page.mouse.move(400, 400)
    page.mouse.down()
    page.mouse.move(500, 350, steps=3)
    page.mouse.up()
    after, moved = (find_box(page.locator(each).first) for each in (".stage img", ".stage path.edge:not(.halo)"))

    assert (after["x"] - before["x"], after["y"] - before["y"]) == (100, -50)
    assert moved["x"] - boxes["x"] == pytest.approx(100, abs=1)
    assert after["width"] == WIDTH


def test_keys_and_buttons_go_to_neighbours(page: Page, viewer_url: ViewerUrl, large: Path) -> None:
    """In the order of the filter, and no further than its ends."""
    open_record(page, viewer_url(large))
    title = page.locator("dialog.record h2")
    expect(title).to_have_text("large/0.jpg")
    expect(page.get_by_role("button", name="The record before")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("large/1.jpg")
    expect(page.get_by_text("2 of 3")).to_be_visible()
    page.get_by_role("button", name="The record after").click()
    expect(title).to_have_text("large/2.jpg")
    expect(page.get_by_role("button", name="The record after")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("dialog.record").get_by_role("button", name="Picked")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")

    expect(page.locator("#cell-2[aria-selected=true].active")).to_be_visible()


class DamagedStore(ManyStore):
    """Record 1 cannot be read."""

    def read(self, indices: Indices) -> list[Record]:
        """Refuse it."""
        if 1 in indices:
            raise StoreError("record 1 is damaged")
        return super().read(indices)


def test_the_copied_key_is_the_one_that_is_shown(page: Page, viewer_url: ViewerUrl) -> None:
    """Also of a record that cannot be read, reached by a key or by a link; of it nothing else of another is shown."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    url = viewer_url(DamagedStore(3))
    title, copy = page.locator("dialog.record h2"), page.get_by_role("button", name="Copy key")

    def copy_key() -> str:
        copy.click()
        expect(page.locator("#status")).to_have_text("The key is copied.")
        text: str = page.evaluate("navigator.clipboard.readText()")
        page.evaluate("document.getElementById('status').textContent = ''")
        return text

    page.goto(f"{url}#index=0")
    expect(title).to_have_text("0000000.jpg")
    expect(page.locator(".record-facts")).to_contain_text("class 0")
    assert copy_key() == "0000000.jpg"
    page.keyboard.press("ArrowRight")
    expect(page.locator(".record-facts")).to_have_text("record 1 is damaged")
    expect(title).to_have_text("0000001.jpg")
    expect(page.locator(".stage")).to_have_attribute("aria-label", "Picture of 0000001.jpg")
    assert copy_key() == "0000001.jpg"
    page.keyboard.press("ArrowRight")
    expect(page.locator(".record-facts")).to_contain_text("class 2")
    assert copy_key() == "0000002.jpg"
    page.goto("about:blank")
    page.goto(f"{url}#index=1")
    expect(page.locator(".record-facts")).to_have_text("record 1 is damaged")
    assert copy_key() == "0000001.jpg"


def test_no_key_is_copied_before_it_is_known(page: Page, viewer_url: ViewerUrl) -> None:
    """The button is off while the record is loaded."""
    held: list[Route] = []
    page.route(re.compile(r"/api/(record|near)/1"), lambda route: held.append(route))  # noqa: PLW0108  # it gets an attribute
    page.goto(f"{viewer_url(ManyStore(3))}#index=0")
    copy = page.get_by_role("button", name="Copy key")
    expect(page.locator("dialog.record h2")).to_have_text("0000000.jpg")
    expect(copy).to_be_enabled()
    page.keyboard.press("ArrowRight")
    expect(page.locator("dialog.record h2")).to_have_text("record 1")
    expect(copy).to_be_disabled()
    while len(held) < 2:
        draw_frame(page)
    for route in held:
        route.continue_()

    expect(page.locator("dialog.record h2")).to_have_text("0000001.jpg")
    expect(copy).to_be_enabled()


def test_layers_are_drawn_and_turned_off(page: Page, viewer_url: ViewerUrl, large: Path, screenshot: Any) -> None:
    """By key and by button, in the grid and over the record; the address keeps it."""
    open_record(page, viewer_url(large))
    expect(page.locator(".stage path.edge:not(.halo)")).to_have_count(2)
    expect(page.locator(".stage text")).to_have_text(["cat", "dog"])
    screenshot("record")
    page.keyboard.press("n")
    expect(page.locator(".stage text")).to_have_count(0)
    page.locator("dialog.record").get_by_role("button", name="boxes").click()
    expect(page.locator(".stage path")).to_have_count(0)
    page.keyboard.press("b")
    expect(page.locator(".stage path.edge:not(.halo)")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator("#cell-0 path.edge:not(.halo)")).to_have_count(2)
    page.keyboard.press("b")
    expect(page.locator("#cell-0 path.edge:not(.halo)")).to_have_count(0)

    assert "hide=names%2Cboxes" in page.url


def test_everything_that_is_known_is_listed(page: Page, viewer_url: ViewerUrl, large: Path) -> None:
    """Fields with the names of classes, a long text folded, Exif, the structure of the JPEG."""
    open_record(page, viewer_url(large), 1)
    facts = page.locator(".record-facts")
    for text in ("1 cat, 1 dog", "3,000 \u00d7 2,000", "Maker of cameras", "sequential", "90"):
        expect(facts).to_contain_text(text)
    long = facts.locator("details", has_text="1 1 1 1").first
    expect(long.locator(".long")).to_be_hidden()
    long.locator("summary").click()

    expect(long.locator(".long")).to_contain_text("1 1 1 1 " * 100)


def test_pixels_of_sixteen_bits_are_shown_in_a_window(page: Page, viewer_url: ViewerUrl, tmp_path: Path) -> None:
    """Sliders set the values that are black and white; reset shows them as they are stored."""
    path = tmp_path / "deep.lmdb"
    writer = LmdbWriter(path, Schema({"image": Field("pixels:uint16[*,*,1]")}), "tests", overwrite=True)
    writer.append(writer.prepare("deep", {"image": np.arange(1000, 41000, 10, dtype=np.uint16).reshape(50, 80, 1)}))
    writer.finish()
    writer.close()
    open_record(page, viewer_url(path))
    asked = watch_pictures(page)
    page.keyboard.press("w")
    expect(page.locator(".window")).to_be_visible()
    expect(page.locator(".window output").first).to_have_text("20995")
    page.get_by_label("Window", exact=False).locator("input").last.fill("2000")
    wait_until(page, "() => document.querySelector('.stage img').src.includes('low=')")
    page.get_by_role("button", name="Reset").click()
    wait_until(page, "() => !document.querySelector('.stage img').src.includes('low=')")

    window = next(each for each in asked if "high" in each)
    assert float(window["high"][0]) - float(window["low"][0]) == pytest.approx(2000, abs=50)


def test_one_channel_is_shown(page: Page, viewer_url: ViewerUrl, large: Path) -> None:
    """As gray, until all are chosen."""
    open_record(page, viewer_url(large))
    page.keyboard.press("w")
    page.get_by_label("Channel").select_option("2")
    wait_until(page, "() => document.querySelector('.stage img').src.includes('channel=2')")
    page.get_by_label("Channel").select_option("all")
    wait_until(page, "() => !document.querySelector('.stage img').src.includes('channel')")


def test_a_phone_shows_a_record(page: Page, viewer_url: ViewerUrl, large: Path) -> None:
    """The picture above what is known of it, and nothing to the side."""
    page.set_viewport_size({"width": 400, "height": 800})
    open_record(page, viewer_url(large))
    page.wait_for_selector(".stage path.edge:not(.halo)")
    stage, facts = (find_box(page.locator(each)) for each in (".stage", ".record-facts"))

    assert page.evaluate("document.querySelector('dialog.record').scrollWidth") <= 400
    assert facts["y"] >= stage["y"] + stage["height"]


HOSTILE = "<img src=x onerror=alert(1)>"


def write_objects(path: Path, boxes: Sequence[Sequence[float]], numbers: list[int], scores: list[float]) -> Path:
    """One picture of 400 x 200 pixels with boxes; the second class has a hostile name."""
    file = io.BytesIO()
    Image.new("RGB", (400, 200), "gray").save(file, "PNG")
    schema = Schema({
        "image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", HOSTILE)),
        "scores": Field("float32[*]"),
    })  # fmt: skip
    writer = LmdbWriter(path, schema, "tests")
    writer.append(writer.prepare("one", {
        "image": file.getvalue(), "boxes": np.array(boxes, np.float32), "labels": np.array(numbers),
        "scores": np.array(scores, np.float32),
    }))  # fmt: skip
    writer.finish()
    writer.close()
    return path


def test_rows_of_objects_and_their_boxes_mark_each_other(page: Page, viewer_url: ViewerUrl, tmp_path: Path) -> None:
    """By the pointer in both directions, of boxes that lie in each other the inner one, and by keys."""
    boxes = [[10, 10, 390, 190], [20, 20, 60, 40], [300, 100, 380, 180]]
    open_record(page, viewer_url(write_objects(tmp_path / "p.lmdb", boxes, [0, 1, 0], [0.5, 0.25, 1])))
    rows, mark = page.locator(".objects tbody tr"), page.locator(".stage path.marked")
    expect(rows).to_have_count(3)
    expect(rows.nth(1).locator("td")).to_have_text([f" {HOSTILE}", "boxes", "20, 20, 60, 40", "800", "0.250"])
    assert page.locator(".objects img").count() == 0
    expect(mark).to_have_count(0)
    rows.nth(2).hover()
    expect(mark).to_have_attribute("d", "M300 100H380V180H300Z")
    expect(page.locator(".objects tr.marked td").nth(3)).to_have_text("6,400")

    image = find_box(page.locator(".stage img").first)
    scale = image["width"] / 400
    page.mouse.move(image["x"] + 30 * scale, image["y"] + 30 * scale)
    expect(page.locator(".objects tr.marked td").nth(3)).to_have_text("800")
    page.mouse.move(image["x"] + 150 * scale, image["y"] + 100 * scale)
    expect(page.locator(".objects tr.marked td").nth(3)).to_have_text("68,400")
    page.mouse.move(image["x"] + 2 * scale, image["y"] + 2 * scale)
    expect(page.locator(".objects tr.marked")).to_have_count(0)

    page.get_by_role("button", name="score").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".objects td:last-child")).to_have_text(["0.250", "0.500", "1.000"])
    expect(page.locator(".objects th[aria-sort=ascending]")).to_contain_text("score")
    page.keyboard.press("Enter")
    expect(page.locator(".objects td:last-child")).to_have_text(["1.000", "0.500", "0.250"])
    expect(page.get_by_role("button", name="score")).to_be_focused()
    page.keyboard.press("Tab")
    expect(rows.first).to_be_focused()
    expect(mark).to_have_attribute("d", "M300 100H380V180H300Z")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_be_focused()
    expect(mark).to_have_attribute("d", "M20 20H60V40H20Z")
    expect(page.locator("dialog.record h2")).to_have_text("one")


def test_ten_thousand_objects_are_counted_and_the_first_are_listed(
    page: Page, viewer_url: ViewerUrl, tmp_path: Path
) -> None:
    """The table has 1,000 rows, says how many boxes it has not, and is sorted."""
    boxes = [[at % 100, at // 100, at % 100 + 1 + at % 7, at // 100 + 1] for at in range(10_000)]
    open_record(page, viewer_url(write_objects(tmp_path / "p.lmdb", boxes, [0] * 10_000, [0.5] * 10_000)))
    objects = page.locator(".objects")

    expect(objects.locator("tbody tr")).to_have_count(1000)
    expect(objects).to_contain_text("9,000 of 10,000 boxes are not drawn")
    objects.get_by_role("button", name="area").click()
    objects.get_by_role("button", name="area").click()
    expect(objects.locator("tbody tr").first.locator("td").nth(3)).to_have_text("7")
    expect(objects.locator("tbody tr").last.locator("td").nth(3)).to_have_text("1")
