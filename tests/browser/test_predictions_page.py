"""The page of predictions, and the panel of picked records, by mouse and by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.pack.images import make_photos
from tests.viewer.test_predictions import RESULTS, detected, write

__all__ = ["detected"]


def test_predictions_beside_annotations(
    page: Page,
    viewer_url: Callable[..., str],
    detected: Path,
    tmp_path: Path,
    screenshot: Callable[[str], None],
    find_barriers: Callable[[Page], list[str]],
) -> None:
    """Sets are counted, most confident first; a cell shows its records; the score changes all of it."""
    page.goto(viewer_url(detected, predictions=write(tmp_path / "r.json", RESULTS)))

    page.locator(".grid-cell").first.wait_for()
    page.keyboard.press("p")
    sets = page.get_by_role("group", name="Sets of records")
    expect(sets.get_by_role("button")).to_have_text(
        ["3 False positives", "1 Wrong class", "1 Duplicates", "1 Nothing there", "1 Missed", "1 Correct"]
    )
    records = page.get_by_role("region", name="Records").get_by_role("listitem")
    expect(records).to_contain_text(["0.95 dog, not there", "0.80 cat, again"])
    assert not find_barriers(page)
    screenshot("predictions")

    cell = page.get_by_role("button", name="dog taken for owl: 1")
    cell.click()
    expect(records).to_contain_text(["0.70 owl, is dog"])
    cell.press("ArrowLeft")
    expect(page.get_by_role("button", name="dog taken for owl: 1")).to_be_focused()  # nothing is to its left
    page.get_by_role("slider", name="Score").fill("0.1")
    expect(sets.get_by_role("button", name="Missed")).to_have_text("0 Missed")

    sets.get_by_role("button", name="False positives").click()
    page.get_by_role("button", name="All in the grid").click()
    expect(page.locator(".grid-cell:not(.outside)")).to_have_count(2)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".grid-cell:not(.outside)")).to_have_count(3)


def test_a_record_shows_what_is_wrong_with_it(
    page: Page, viewer_url: Callable[..., str], detected: Path, tmp_path: Path
) -> None:
    """The box that puts it into the set is marked, and said; so is a class of the whole picture."""
    page.goto(f"{viewer_url(detected, predictions=write(tmp_path / 'r.json', RESULTS))}#view=predictions")
    page.get_by_role("button", name="dog taken for owl: 1").click()
    page.get_by_text("0.70 owl, is dog").click()
    texts = page.locator("dialog.record .stage text")
    expect(texts).to_have_text(["cat", "dog", "cat 0.90", "cat 0.80, again", "owl 0.70, is dog"])
    expect(page.locator("dialog.record .stage path.wrong")).to_have_attribute("d", "M1 0H11V10H1ZM20 20H30V30H20Z")

    (tmp_path / "p.csv").write_text("key,label,score\ncats/0.jpg,cats,0.9\ndogs/1.jpg,cats,0.93\n")
    photos = make_photos(tmp_path / "photos", 2)
    page.goto(f"{viewer_url(photos, predictions=tmp_path / 'p.csv')}#view=predictions")
    page.get_by_text("0.93 cats, is dogs").click()
    expect(page.locator("dialog.record h2")).to_have_text("dogs/1.jpg")
    expect(page.locator("dialog.record .facts .bad")).to_have_text("0.93 cats, is dogs")


def test_the_panel_counts_the_set_that_is_shown(
    page: Page, viewer_url: Callable[..., str], detected: Path, tmp_path: Path
) -> None:
    """As the grid does; its classes are those of the set."""
    page.goto(f"{viewer_url(detected, predictions=write(tmp_path / 'r.json', RESULTS))}#view=predictions")
    page.get_by_role("button", name="All in the grid").click()
    expect(page.locator(".grid-page .found")).to_have_text("2 of 3 records")
    expect(page.locator(".find-count")).to_have_text("2 of 3 records")
    panel = page.get_by_role("region", name="Set of records")
    expect(panel.locator("p")).to_have_text("Only: False positives (IoU from 0.5, score from 0.3)")
    assert "set:" not in page.inner_text("body")
    expect(page.get_by_label("Sort by").locator("option:checked")).to_have_text("as in the set")
    expect(page.locator(".find-direction")).to_be_hidden()
    expect(page.get_by_role("button", name="class owl: 0 of 1 object")).to_be_visible()
    page.goto(page.url.split("#")[0] + "#sort=set:confused:1>2@0.5,0.3")
    expect(panel.locator("p")).to_have_text("Only: dog taken for owl (IoU from 0.5, score from 0.3)")
    expect(page.locator(".grid-page .found")).to_have_text("1 of 3 records")


def test_picked_records_are_exported(
    page: Page, viewer_url: Callable[..., str], tmp_path: Path, find_barriers: Callable[[Page], list[str]]
) -> None:
    """By keys and by buttons; they are still picked when the page is opened again."""
    page.goto(viewer_url(make_photos(tmp_path / "photos", 12)))
    panel = page.get_by_role("region", name="Picked records")
    page.locator(".grid-cell").first.wait_for()

    page.keyboard.press("a")
    expect(panel.get_by_role("status")).to_have_text("12 of 12 records picked")
    page.keyboard.press("x")
    expect(panel.get_by_role("status")).to_have_text("0 of 12 records picked")
    page.locator(".grid-cell").nth(2).click(modifiers=["Control"])
    page.keyboard.press("i")
    expect(panel.get_by_role("status")).to_have_text("11 of 12 records picked")
    assert not find_barriers(page)
    with page.expect_download() as download:
        page.keyboard.press("e")
    keys = Path(download.value.path()).read_text().splitlines()
    assert (download.value.suggested_filename, len(keys), "cats/4.jpg" in keys) == ("keys.txt", 11, False)
    with page.expect_download() as download:
        panel.get_by_role("button", name="Quarantine list").click()
    assert Path(download.value.path()).read_text().count("\n") == 11

    panel.get_by_role("button", name="Python").click()
    expect(panel.locator("pre")).to_contain_text("ps.Subset(dataset, [0, 1, 3,")
    page.reload()
    expect(panel.get_by_role("status")).to_have_text("11 of 12 records picked")
    panel.get_by_role("button", name="Clear").click()
    expect(panel.get_by_role("button", name="keys.txt")).to_be_hidden()
