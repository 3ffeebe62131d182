"""The panel that finds records: typed, clicked, by keys, from a link."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

import penstock as ps
from penstock.viewer.find.scanning import Facts
from tests.browser.many import ManyStore
from tests.viewer.test_find_facts import pack_classes

HOSTILE = "<img src=x onerror=alert(1)>\u202e&\"'"


@pytest.fixture
def url(tmp_path: Path, viewer_url: Callable[..., str]) -> str:
    """The viewer of twelve pictures of three classes, one of them hostile; two are alike, one is tiny."""
    records = []
    for number in range(12):
        file = io.BytesIO()
        size = (20, 40) if number == 5 else (100 + 10 * number, 100)
        cells = np.random.default_rng(number if number != 7 else 6).integers(0, 256, (6, 8), np.uint8)
        Image.fromarray(cells).resize(size, Image.Resampling.BICUBIC).save(file, "JPEG")
        records.append({"key": f"2019/{number:02}", "image": file.getvalue(), "label": number % 3, "count": number})
    ps.pack(
        records, tmp_path / "p.lmdb", schema={"image": "image", "label": "label", "count": "int"},
        classes=["cat", "a dog", HOSTILE],
    )  # fmt: skip
    return viewer_url(tmp_path / "p.lmdb")


def test_a_filter_is_typed_clicked_and_shared(page: Page, url: str) -> None:
    """What is typed is in the address; a bar adds to it, and back takes it away; a link shows the same."""
    page.goto(url)
    count, field = page.locator(".find-count"), page.get_by_role("combobox", name="Filter")
    expect(count).to_have_text("12 records")

    page.keyboard.press("f")
    expect(field).to_be_focused()
    page.keyboard.type("lab")
    expect(page.locator("#find-suggestions li").first).to_contain_text("label")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("= dog")
    expect(page.locator("#find-suggestions li")).to_have_text(["a dog"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(field).to_have_value('label = "a dog" ')
    expect(count).to_have_text("4 of 12 records")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(field).not_to_be_focused()

    page.get_by_role("button", name="format JPEG").click()
    expect(field).to_have_value('label = "a dog" and format = JPEG')
    page.get_by_role("button", name="class cat:").click()
    expect(count).to_have_text("0 of 12 records")
    page.go_back()
    expect(count).to_have_text("4 of 12 records")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(field).to_have_value('label = "a dog" and format = JPEG')
    expect(count).to_have_text("4 of 12 records")
    page.get_by_role("button", name="format JPEG").click()
    expect(field).to_have_value('label = "a dog"')


def test_a_viewer_opens_with_a_filter(page: Page, viewer_url: Callable[..., str]) -> None:
    """As if it was typed: it is in the field, and can be cleared."""
    store = ManyStore(20, keys=[f"2019/{number:02}.jpg" for number in range(20)])
    page.goto(viewer_url(store, filter='label = "class 3" and key ~ "2019/*"'))

    expect(page.get_by_role("combobox", name="Filter")).to_have_value('label = "class 3" and key ~ "2019/*"')
    expect(page.locator(".find-count")).to_have_text("2 of 20 records")
    expect(page.locator(".grid-cell:not(.outside).ready")).to_have_count(2)
    page.get_by_role("combobox", name="Filter").fill("")
    expect(page.locator(".find-count")).to_have_text("20 records")


def test_an_error_says_where_it_is(page: Page, url: str) -> None:
    """A filter that cannot be read is not applied; the wrong place is marked, and what is near is said."""
    page.goto(url)
    field = page.get_by_role("combobox", name="Filter")
    field.fill("label = cut and count > 1")
    field.press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("did you mean cat?")
    expect(page.locator(".find-error mark")).to_have_text("c")
    expect(page.locator(".find-count")).to_have_text("12 records")
    assert "q=" not in page.url
    field.fill("label = cat and count > 1")
    expect(page.locator(".find-error")).to_be_empty()
    expect(page.locator(".find-count")).to_have_text("3 of 12 records")


def test_problems_duplicates_and_orders(page: Page, url: str) -> None:
    """Chips appear with the scan; bars are walked by keys; the order is in the address."""
    page.goto(url)
    tiny = page.get_by_role("button", name="problem tiny: 1 record", exact=True)
    tiny.press("Enter")
    expect(page.locator(".find-count")).to_have_text("1 of 12 records")
    expect(tiny).to_have_attribute("aria-pressed", "true")
    tiny.press("Enter")
    expect(page.get_by_role("button", name="problem near-duplicate: 2 records")).to_be_visible()
    field = page.get_by_role("combobox", name="Filter")
    field.fill("duplicate")
    field.press("Enter")
    expect(page.locator(".find-count")).to_have_text("2 of 12 records")
    expect(page.locator(".grid-page .found")).to_have_text("2 of 12 records")
    field.fill("")
    field.press("Enter")
    expect(page.locator(".find-count")).to_have_text("12 records")

    page.locator("[data-name=width] button").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(field).to_have_value("width >= 200 and width < 220")
    page.get_by_label("Sort by").select_option("brightness")
    page.get_by_role("button", name="Smallest first").click()
    page.wait_for_url("**sort=-brightness**")
    page.get_by_label("Sort by").select_option("random")
    page.get_by_role("button", name="Another random order").click()
    page.wait_for_url("**sort=random%3A2**")


def test_hostile_names_are_text(page: Page, url: str) -> None:
    """A class whose name is HTML is shown as it is written, and its button gives a filter that fits it."""
    page.goto(url)
    page.locator(".find-class", has_text="onerror").click()

    expect(page.locator(".find-count")).to_have_text("4 of 12 records")
    assert page.locator(".find img").count() == 0


def test_the_panel_looks_right(page: Page, url: str, screenshot: Callable[[str], None]) -> None:
    """Pictures of the panel, with a filter and with an error; nothing is wider than a phone."""
    page.goto(f"{url}#q=count+%3E+2")
    expect(page.locator(".find-count")).to_have_text("9 of 12 records")
    expect(page.get_by_role("button", name="problem tiny")).to_be_visible()
    screenshot("find")
    page.get_by_role("combobox", name="Filter").fill("label = cut")
    expect(page.get_by_role("alert")).to_contain_text("did you mean")
    screenshot("find-error")
    page.set_viewport_size({"width": 400, "height": 800})
    page.get_by_role("button", name="Filters").click()
    page.get_by_role("combobox", name="Filter").fill("label = ")
    expect(page.locator("#find-suggestions li").first).to_be_visible()
    screenshot("find-narrow")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rows_follow_the_scan(page: Page, tmp_path: Path, viewer_url: Callable[..., str]) -> None:
    """A filter of pixels, opened by a link, shows its records when they are measured, without a reload."""
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    Image.new("L", (8, 8), 200).save(tmp_path / "light.png")
    for number in range(2099):  # with the last one more than what is scanned without being asked for
        (folder / "a" / f"{number:04}.png").hardlink_to(tmp_path / "light.png")
    Image.new("L", (8, 8), 9).save(folder / "a" / "2099.png")
    page.goto(f"{viewer_url(folder)}#q=brightness+%3C+10")

    expect(page.locator(".find-count")).to_have_text("1 of 2,100 records")
    expect(page.locator(".grid-page .found")).to_have_text("1 of 2,100 records")


def test_a_scan_of_a_million_is_stopped(page: Page, viewer_url: Callable[..., str]) -> None:
    """A large store is scanned when it is asked for; it stops at once, and the filter says of how many it is."""
    page.goto(viewer_url(ManyStore(1_000_000)))
    expect(page.get_by_role("button", name="class class 3: 100,000 records")).to_be_visible()
    page.get_by_role("button", name="Scan 1,000,000 records").press("Enter")

    expect(page.get_by_role("progressbar", name="Scan of all records")).to_be_visible()
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_role("button", name="Scan the other")).to_be_visible()
    page.get_by_role("button", name="class class 3: 100,000 records").click()
    expect(page.locator(".find-count")).to_have_text("100,000 of 1,000,000 records")
    page.get_by_role("combobox", name="Filter").fill("brightness > 1")
    expect(page.locator(".find-count")).to_contain_text("scanned")


def test_several_classes_of_a_label_are_joined_by_or(page: Page, url: str) -> None:
    """A record has one of them; with shift a class or a bar is added, and taken out again."""
    page.goto(url)
    count, field = page.locator(".find-count"), page.get_by_role("combobox", name="Filter")
    cat, dog = (page.get_by_role("button", name=f"class {name}:") for name in ("cat", "a dog"))
    widths = page.locator("[data-name=width] button")
    expect(widths.first).to_be_visible()
    cat.click()
    expect(count).to_have_text("4 of 12 records")
    dog.click(modifiers=["Shift"])
    expect(field).to_have_value('(class = cat or class = "a dog")')
    expect(count).to_have_text("8 of 12 records")
    expect(cat).to_have_attribute("aria-pressed", "true")
    expect(dog).to_have_attribute("aria-pressed", "true")
    page.locator(".find-class", has_text="onerror").click(modifiers=["Shift"])
    expect(count).to_have_text("12 of 12 records")
    cat.click()
    expect(count).to_have_text("8 of 12 records")
    page.locator(".find-class", has_text="onerror").click()
    expect(field).to_have_value('class = "a dog"')
    widths.nth(-1).click()
    widths.nth(-2).click(modifiers=["Shift"])
    expect(field).to_have_value(re.compile(r'^class = "a dog" and \(width >= .* and width < .* or width >= .*\)$'))
    expect(page.locator("[data-name=width] button[aria-pressed=true]")).to_have_count(2)
    widths.nth(-1).click()
    widths.nth(-2).click()
    expect(field).to_have_value('class = "a dog"')


def test_a_class_that_fits_is_listed_and_every_class_can_be_reached(
    page: Page, tmp_path: Path, viewer_url: Callable[..., str]
) -> None:
    """Of fifty classes those of the filter are first; the others follow, when they are asked for."""
    page.goto(f"{viewer_url(pack_classes(tmp_path / 'p.lmdb', 50))}#q=label+%3D+%22class+3%22")
    rows = page.locator(".find-class")
    expect(rows).to_have_count(8)
    expect(rows.first).to_have_attribute("aria-label", "class class 3: 3 records")
    page.get_by_role("button", name="Show 42 more").click()
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="class class 0:").click(modifiers=["Shift"])
    expect(page.locator(".find-count")).to_have_text("0 of 1,226 records")
    page.get_by_role("combobox", name="Filter").fill("")
    expect(page.locator(".find-count")).to_have_text("1,226 records")
    page.get_by_role("button", name="class class 1:").click()
    page.get_by_role("button", name="class class 0:").click(modifiers=["Shift"])
    expect(page.locator(".find-count")).to_have_text("2 of 1,226 records")
    page.get_by_role("button", name="Show fewer").click()
    expect(rows).to_have_count(8)


def test_a_scan_shows_how_far_it_is_while_counts_are_made(
    page: Page, viewer_url: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bar moves also where the counts do not come."""
    allowed, stalled = threading.Semaphore(0), threading.Event()
    monkeypatch.setattr("penstock.viewer.find.scanning.measure", lambda _: allowed.acquire() and Facts())
    page.goto(viewer_url(ManyStore(2500)))
    page.get_by_role("button", name="class class 3: 250 records").wait_for()
    monkeypatch.setattr("penstock.viewer.find.routes.make_histograms", lambda *_: stalled.wait() and [])
    page.get_by_role("button", name="Scan 2,500 records").click()
    try:
        for share in (0, 20, 40):
            expect(page.locator(".find-scan span")).to_have_text(f"{share} % scanned")
            allowed.release(500)
    finally:
        stalled.set()
        allowed.release(2500)
    expect(page.locator(".find-scan")).to_be_empty()


def test_counts_that_take_long_are_made_after_a_filter_needed_them(
    page: Page, tmp_path: Path, viewer_url: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no counts of boxes at first; there are after a filter of boxes."""
    monkeypatch.setattr("penstock.viewer.find.finder._FEW", 0)
    monkeypatch.setattr("penstock.viewer.find.routes._SMALL", 0)
    boxes = [np.full((number, 4), (0, 0, 9, 9), np.float32) for number in range(3)]
    rows = ({"count": number, "boxes": each} for number, each in enumerate(boxes))
    ps.pack(rows, tmp_path / "p.lmdb", schema={"count": "int", "boxes": "boxes"})
    page.goto(viewer_url(tmp_path / "p.lmdb"))
    field = page.get_by_role("combobox", name="Filter")
    expect(page.locator(".find-count")).to_have_text("3 records")
    expect(page.locator("[data-name=boxes]")).to_have_count(0)

    field.fill("boxes > 0")
    field.press("Enter")
    page.get_by_role("button", name="boxes 2: 1 record").press("Enter")
    expect(field).to_have_value("boxes > 0 and boxes = 2")
    expect(page.locator(".find-count")).to_have_text("1 of 3 records")


def test_sets_show_the_value_of_each_record_in_its_order(
    page: Page, tmp_path: Path, viewer_url: Callable[..., str]
) -> None:
    """An outlier says how far it is, and in what; the order of its button goes with it; another order stays."""
    records = []
    for number in range(20):
        rng = np.random.default_rng(number)
        pixels = rng.integers(100 + number, 140 + number, (100 + number, 100), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels * (number != 3)).save(file, "PNG")
        records.append({"key": f"{number:02}", "image": file.getvalue()})
    ps.pack(records, tmp_path / "p.lmdb", schema={"image": "image"})
    page.goto(viewer_url(tmp_path / "p.lmdb"))
    page.get_by_role("button", name=re.compile(r"problem outlier: \d+ record")).click()

    page.wait_for_url("**sort=-outlier**")
    expect(page.get_by_role("combobox", name="Filter")).to_have_value("outlier > 3.5")
    expect(page.locator("#cell-0 .key")).to_have_text("3")
    expect(page.locator("#cell-0 .value")).to_have_text(
        re.compile(r"^(brightness 0|contrast 0|sharpness 0), outlier \d")
    )
    expect(page.locator("#cell-0")).to_have_attribute("aria-label", re.compile("^3, .*outlier"))
    page.get_by_role("button", name=re.compile("problem outlier")).click()
    expect(page.locator(".find-count")).to_have_text("20 records")
    expect(page.locator("#cell-0 .value")).to_be_hidden()
    assert "sort" not in page.url

    page.get_by_label("Sort by").select_option("height")
    page.wait_for_url("**sort=height**")
    page.goto(f"{page.url}&q=brightness+%3E+100")
    expect(page.locator("#cell-0 .value")).to_have_text(re.compile(r"^brightness 1[12]\d(\.\d+)?, height 100$"))


def test_near_duplicates_are_shown_by_group_and_all_but_the_first_are_picked(
    page: Page, tmp_path: Path, viewer_url: Callable[..., str]
) -> None:
    """Groups that are mixed in the store lie side by side; all but the first of each are picked as any records."""
    records = []
    for number, seed in enumerate([0, 1, 2, 1, 0, 3, 1, 4]):
        file = io.BytesIO()
        cells = np.random.default_rng(seed).integers(0, 256, (6, 8), np.uint8)
        Image.fromarray(cells).resize((160, 120), Image.Resampling.BICUBIC).save(file, "JPEG")
        records.append({"key": str(number), "image": file.getvalue()})
    ps.pack(records, tmp_path / "p.lmdb", schema={"image": "image"})
    page.goto(viewer_url(tmp_path / "p.lmdb"))
    keys, values = (page.locator(f".grid-cell:not(.outside) {each}") for each in (".key", ".value"))
    page.get_by_role("button", name="problem near-duplicate: 5 records").click()

    expect(keys).to_have_text(["0", "4", "1", "3", "6"])
    expect(values).to_have_text([f"duplicate {first}" for first in (0, 0, 1, 1, 1)])
    colors = page.locator(".grid-cell.grouped").evaluate_all(
        "all => all.map(one => one.style.getPropertyValue('--group'))"
    )
    assert [len(set(colors[:2])), len(set(colors[2:])), len(set(colors))] == [1, 1, 2]
    page.get_by_role("button", name="problem near-duplicate").click()
    page.get_by_role("button", name="problem all but the first of each group: 3 records").click()
    expect(keys).to_have_text(["4", "3", "6"])
    expect(values).to_have_text(["duplicate 0", "duplicate 1", "duplicate 1"])
    page.locator(".grid").press("a")
    expect(page.locator(".grid-cell[aria-selected=true]")).to_have_count(3)
