"""The page of running loaders, as a reader uses it while they run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import wait_until, wait_until_sharp
from tests.pack.images import make_photos
from tests.viewer.running import start_training

_IS_DRAWN = "title => document.querySelector(`.live svg[aria-label^='${title}'] path`).getAttribute('d')?.length > 9"


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[subprocess.Popen[str]]]]:
    """A folder of pictures, and two ranks that train on it."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "live"))
    photos = make_photos(tmp_path / "photos", 40)
    (photos / "cats" / "<b>broken.jpg").write_bytes(b"no picture")
    started = [start_training(photos, tmp_path / "live", "threads", rank) for rank in (0, 1)]
    yield photos, started
    for each in started:
        with each:
            each.kill()


def test_two_ranks_on_one_page(
    page: Page,
    viewer_url: Callable[..., str],
    training: Any,
    screenshot: Callable[[str], None],
    find_barriers: Callable[[Page], list[str]],
) -> None:
    """By keys: the page, a pause, the tables. Charts and numbers change while they run; the end of one is said."""
    photos, ranks = training
    page.goto(viewer_url(str(photos), attach="all"))
    page.get_by_role("link", name="Live").wait_for()
    page.keyboard.press("l")

    cards = page.locator(".live-card")
    expect(cards).to_have_count(2)
    expect(cards.nth(0).get_by_role("heading", level=2)).to_have_text("Rank 0 · StoreDataset")
    expect(cards.nth(1).get_by_role("heading", level=2)).to_have_text("Rank 1 · StoreDataset")
    expect(page.locator(".live-summary")).to_contain_text("2 loaders run")
    for title in ("Speed", "Step", "Work for a sample", "Batches"):
        chart = cards.nth(0).get_by_role("img", name=title)
        chart.wait_for()
        wait_until(page, _IS_DRAWN, title)
    expect(cards.nth(0).locator(".live-errors")).to_contain_text("cats/<b>broken.jpg")
    picture = cards.nth(0).locator(".live-slow img").first
    wait_until(page, "() => document.querySelector('.live-slow img')?.naturalWidth > 0")
    assert picture.get_attribute("alt")
    screenshot("live")

    page.keyboard.press("r")  # pause
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("d")
    table = cards.nth(0).get_by_role("table")
    expect(table.get_by_role("columnheader", name="samples/s")).to_be_visible()
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    assert not find_barriers(page)
    page.keyboard.press("d")
    expect(table).to_be_hidden()
    assert not [url for url in asked if "live/loaders" in url]

    ranks[1].kill()
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("Its process was killed")).to_be_visible()
    expect(page.locator(".live-summary")).to_contain_text("1 loader runs")


def test_a_slow_sample_leads_to_its_record(page: Page, viewer_url: Callable[..., str], training: Any) -> None:
    """Where the viewer shows the store that the loader reads."""
    page.goto(viewer_url(attach="all"))  # without a store it is the first page

    # At once: another sample may be the slowest a moment later.
    link = page.locator(".live-slow a").first
    address = link.evaluate("link => { link.click(); return link.getAttribute('href'); }")

    page.wait_for_url(f"**/{address}*")


def test_small_pictures_of_slow_samples_are_squares_of_pixels(
    page: Page, viewer_url: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a whole multiple of their size, as in a record; a sample without a picture says so."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "live"))
    for number in range(24):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((np.indices((9, 11)).sum(0) % 2 * 255).astype(np.uint8)).save(path)
    with start_training(tmp_path / "photos", tmp_path / "live") as training:
        page.goto(viewer_url(attach="all"))

        wait_until_sharp(page, ".live-shot img")
        page.route("**/live/thumb/**", lambda route: route.fulfill(status=422, json={"error": "It is damaged."}))
        page.reload()
        expect(page.locator(".live-slow li").first).to_contain_text("no picture")
        expect(page.locator(".live-shot")).to_have_count(0)
        training.kill()


def test_without_loaders_the_page_says_how(
    page: Page, viewer_url: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error: a loader may begin at any time."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path))

    page.goto(viewer_url(attach="all") + "#view=live")

    expect(page.locator(".live-summary")).to_contain_text("view=True")
