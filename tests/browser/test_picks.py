"""Picks that outlive the page and its viewer, and their set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

import penstock as ps
from tests.pack.images import make_photos

FindBarriers = Callable[[Page], list[str]]


def test_picks_survive_a_reload_and_a_restart(
    page: Page, viewer_url: Callable[..., str], tmp_path: Path, state_home: Path, find_barriers: FindBarriers
) -> None:
    """By keys: the store of the next viewer has other indices, and lacks one of the picked records."""
    photos = make_photos(tmp_path / "photos", 12)
    with ps.open(photos) as store:
        keys = list(store.keys())
    page.goto(viewer_url(photos))
    counter = page.get_by_role("region", name="Picked records").get_by_role("status")
    expect(counter).to_have_text("0 of 12 records picked")
    page.locator(".grid-cell").first.wait_for()
    assert not state_home.exists()
    for index in (2, 5, 9):
        page.locator(f"#cell-{index}").click(modifiers=["Control"])
    page.reload()
    expect(counter).to_have_text("3 of 12 records picked")
    expect(page.locator("#cell-9")).to_have_attribute("aria-selected", "true")

    for index in (0, 5):
        (photos / keys[index]).unlink()
    page.goto(viewer_url(photos))

    expect(counter).to_have_text("2 of 10 records picked")
    lost = page.get_by_text("1 picked key is not in the store any more.")
    expect(lost).to_be_visible()
    expect(page.locator(".grid-cell[aria-selected=true]")).to_have_count(2)
    expect(page.locator("#cell-1[aria-selected=true], #cell-7[aria-selected=true]")).to_have_count(2)
    assert not find_barriers(page)
    page.keyboard.press("x")
    expect(lost).to_be_hidden()
    page.reload()
    expect(counter).to_have_text("0 of 10 records picked")
    expect(lost).to_be_hidden()


def test_picked_records_are_shown_alone(page: Page, viewer_url: Callable[..., str], tmp_path: Path) -> None:
    """By a button and by a key; what is no longer picked is left out, and a filter keeps a part of them."""
    page.goto(viewer_url(make_photos(tmp_path / "photos", 12)))
    shown, counted = page.locator(".grid-page .found"), page.locator(".find-count")
    alone = page.get_by_role("button", name="Show alone")
    for index in (2, 5, 9):
        page.locator(f"#cell-{index}").click(modifiers=["Control"])

    alone.click()
    expect(alone).to_have_attribute("aria-pressed", "true")
    expect(shown).to_have_text("3 of 12 records")
    expect(page.get_by_role("region", name="Set of records").locator("p")).to_have_text("Only: picked")
    page.locator("#cell-0").click(modifiers=["Control"])
    expect(shown).to_have_text("2 of 12 records")
    expect(counted).to_have_text("2 of 12 records")
    page.reload()
    expect(shown).to_have_text("2 of 12 records")
    page.get_by_role("combobox", name="Filter").fill("index > 7")
    expect(shown).to_have_text("1 of 12 records")
    page.locator(".grid").focus()
    page.keyboard.press("o")
    expect(shown).to_have_text("4 of 12 records")
    expect(alone).to_have_attribute("aria-pressed", "false")


def test_two_pages_do_not_undo_each_others_picks(page: Page, viewer_url: Callable[..., str], tmp_path: Path) -> None:
    """Each sends what it changed."""
    url = viewer_url(make_photos(tmp_path / "photos", 12))
    other = page.context.new_page()
    for each in (page, other):
        each.goto(url)
        each.locator(".grid-cell.ready").first.wait_for()
    for each, index in ((page, 2), (other, 7)):
        with each.expect_response("**/api/picks*"):
            each.locator(f"#cell-{index}").click(modifiers=["Control"])

    page.reload()

    expect(page.get_by_role("region", name="Picked records").get_by_role("status")).to_have_text(
        "2 of 12 records picked"
    )


def test_picks_that_cannot_be_kept_are_said(
    page: Page, viewer_url: Callable[..., str], tmp_path: Path, state_home: Path
) -> None:
    """The page goes on with them."""
    state_home.write_text("no folder")
    page.goto(viewer_url(make_photos(tmp_path / "photos", 12)))
    page.locator("#cell-2").click(modifiers=["Control"])

    expect(page.locator("#status")).to_contain_text("The picks are not kept")
    expect(page.locator(".picks [role=status]")).to_have_text("1 of 12 records picked")
