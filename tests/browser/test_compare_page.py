"""The page that compares two stores, by mouse and by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import wait_until_sharp
from tests.viewer.test_compare import make


def test_two_stores_side_by_side(
    page: Page,
    viewer_url: Callable[..., str],
    tmp_path: Path,
    screenshot: Callable[[str], None],
    find_barriers: Callable[[Page], list[str]],
) -> None:
    """Kinds are counted and listed; a pair is shown with what differs; keys move; a kind is shown in the grid."""
    box = [2.0, 3.0, 12.0, 14.0]
    before = {f"r{at}<b>.jpg": (at, at % 2, [box]) for at in range(8)} | {"gone.jpg": (20, 0, [])}
    after = {
        key: (seed + 50 * (seed == 1), label if seed < 5 else 1 - label, boxes)
        for key, (seed, label, boxes) in before.items()
        if key != "gone.jpg"
    } | {"new.jpg": (30, 1, [])}
    page.goto(viewer_url(make(tmp_path / "a.lmdb", before), compare=make(tmp_path / "b.lmdb", after)))

    page.locator(".grid-cell").first.wait_for()
    page.keyboard.press("c")
    kinds = page.get_by_role("group", name="Kinds of records")
    expect(kinds.get_by_role("button")).to_have_text(
        ["1 Changed", "3 Relabelled", "1 Only before", "1 Only after", "0 Unreadable", "4 Unchanged"]
    )
    pair = page.get_by_role("region", name="One record before and after")
    expect(pair.get_by_role("heading")).to_contain_text("r1<b>.jpg")
    expect(pair.get_by_role("row", name="image")).to_contain_text("pixels")
    wait_until_sharp(page, ".compare-shot img")

    kinds.get_by_role("button", name="Relabelled").click()
    expect(pair.get_by_role("row").nth(1)).to_have_text("labeldogcatdiffers")
    assert not find_barriers(page)
    screenshot("compare")
    page.keyboard.press("ArrowDown")
    expect(pair.get_by_role("heading")).to_contain_text("r6<b>.jpg")
    page.keyboard.press("End")
    expect(pair.get_by_role("heading")).to_contain_text("r7<b>.jpg")
    page.get_by_role("searchbox", name="Show keys that contain").fill("r6")
    expect(page.locator(".compare-list li")).to_have_count(1)

    kinds.get_by_role("button", name="Only after").click()
    page.get_by_role("searchbox", name="Show keys that contain").fill("")
    expect(pair.get_by_text("not there")).to_be_visible()
    kinds.get_by_role("button", name="Relabelled").click()
    page.get_by_role("button", name="All in the grid").click()
    expect(page.locator(".grid-cell:not(.outside)")).to_have_count(3)
