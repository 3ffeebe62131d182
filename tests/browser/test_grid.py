"""The grid: what is on the screen follows the scroll bar, the mouse and the keys."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import draw_frame, find_box, wait_until
from tests.browser.many import ManyStore, make_picture

MILLION = 1_000_000
ViewerUrl = Callable[..., str]

SEEN = """() => {
  const box = document.querySelector(".grid").getBoundingClientRect();
  return [...document.querySelectorAll(".grid-cell:not(.outside)")].filter((cell) => {
    const own = cell.getBoundingClientRect();
    return own.bottom > box.top + 1 && own.top < box.bottom - 1;
  }).map((cell) => cell.position).sort((one, other) => one - other);
}"""

PLACE = "document.querySelector('.grid').scrollTop"
SCROLL = """share => new Promise((seen) => {
  const grid = document.querySelector(".grid");
  grid.addEventListener("scroll", seen, { once: true });
  grid.scrollTop = share * grid.scrollHeight;
})"""
"""Ends when the page has seen the new place: it shows its bubble until the bar rests."""


def open_grid(page: Page, url: str, state: str = "") -> None:
    """Show the grid and wait for its first picture."""
    page.goto(f"{url}#{state}")
    page.wait_for_selector(".grid-cell.ready")


def seen(page: Page) -> list[int]:
    """Positions of the cells that are on the screen."""
    found: list[int] = page.evaluate(SEEN)
    return found


def drag_bar(page: Page, share: float) -> None:
    """Set the scroll bar, as a drag does, and wait until the pictures there are shown."""
    page.evaluate(SCROLL, share)
    wait_until(page, "document.querySelector('.grid-bubble').hidden")
    page.wait_for_selector(".grid-cell.ready")


def test_what_is_seen_follows_the_scroll_bar(page: Page, viewer_url: ViewerUrl) -> None:
    """Through a million records with some hundred elements, without a hole, to the very last one."""
    open_grid(page, viewer_url(ManyStore(MILLION)))
    for share in (0.25, 0.5, 0.75):
        drag_bar(page, share)
        positions = seen(page)

        assert abs(positions[0] / MILLION - share) < 0.02
        assert positions == list(range(positions[0], positions[-1] + 1))
        assert page.locator(".grid-cell").count() < 200
    expect(page.locator(f"#cell-{seen(page)[10]} .key")).to_have_text(f"{seen(page)[10]:07}.jpg")
    drag_bar(page, 1)
    assert seen(page)[-1] == MILLION - 1
    drag_bar(page, 0)
    assert seen(page)[0] == 0


def test_a_turn_of_the_wheel_moves_as_far_as_it_says(page: Page, viewer_url: ViewerUrl) -> None:
    """Also where one pixel of the scroll bar stands for many rows, and after the bar has come to rest."""
    open_grid(page, viewer_url(ManyStore(MILLION)), "size=256")
    drag_bar(page, 0.5)
    position = seen(page)[len(seen(page)) // 2]
    top = "position => document.getElementById(`cell-${position}`).getBoundingClientRect().top"
    for _ in range(3):
        before, place = page.evaluate(top, position), page.evaluate(PLACE)
        page.mouse.move(600, 400)
        page.mouse.wheel(0, 40)
        wait_until(page, f"([position, before]) => ({top})(position) < before - 30", [position, before])
        wait_until(page, f"place => {PLACE} < place + 20", place)  # where it rests: of so many rows, few pixels

        assert page.evaluate(top, position) == pytest.approx(before - 40, abs=2)


def test_pictures_are_asked_in_the_order_of_the_screen_and_given_up(page: Page, viewer_url: ViewerUrl) -> None:
    """Some at once; those that are scrolled past are no longer waited for, and the others come."""
    asked: list[int] = []
    failed: list[int] = []
    held: list[Route] = []

    def hold(route: Route) -> None:
        asked.append(read_index(route.request.url))
        if asked[-1] < 1000:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/thumb/**", hold)
    page.on("requestfailed", lambda request: failed.extend(map(int, re.findall(r"/thumb/(\d+)", request.url))))
    page.goto(viewer_url(ManyStore(MILLION)))
    page.wait_for_selector("#cell-12 .key:has-text('0000012')")
    for _ in range(3):  # with the next one, it would ask for more
        draw_frame(page)
    expect(page.locator(".grid-cell img[src]")).to_have_count(8)
    page.keyboard.press("End")
    page.wait_for_selector(f"#cell-{MILLION - 1}.ready")

    assert asked[:8] == list(range(8))
    assert min(asked[8:]) > MILLION - 300
    assert sorted(failed) == list(range(8))


def read_index(url: str) -> int:
    """The record of a request for a thumbnail."""
    found = re.search(r"/thumb/(\d+)", url)
    assert found
    return int(found[1])


def test_keys_move_pick_and_open(page: Page, viewer_url: ViewerUrl) -> None:
    """Arrows, Home and End, a screen at once; Space picks, with Shift a range; Enter opens and Escape goes back."""
    open_grid(page, viewer_url(ManyStore(5000)))
    columns = int(page.locator(".grid").get_attribute("aria-colcount") or 0)
    active = page.locator(".grid-cell.active")
    for key, position in [
        ("ArrowRight", 1),
        ("ArrowDown", columns + 1),
        ("ArrowLeft", columns),
        ("ArrowUp", 0),
        ("End", 4999),
    ]:
        page.keyboard.press(key)
        expect(active).to_have_id(f"cell-{position}")
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    assert seen(page)[0] > 0
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".grid-cell[aria-selected=true]")).to_have_count(3)
    page.keyboard.press("Space")
    expect(page.locator(".grid-cell[aria-selected=true]")).to_have_count(2)
    page.keyboard.press("Enter")
    expect(page.locator("dialog.record h2")).to_have_text("0000002.jpg")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.record")).to_have_count(0)
    expect(page.locator(".grid")).to_be_focused()


def test_the_mouse_picks_and_opens(page: Page, viewer_url: ViewerUrl) -> None:
    """A click on the mark, Shift and a click, a frame around records, and a double click."""
    open_grid(page, viewer_url(ManyStore(500)))
    chosen = page.locator(".grid-cell[aria-selected=true]")
    page.locator("#cell-2").hover()
    page.locator("#cell-2 .pick").click()
    expect(chosen).to_have_count(1)
    page.locator("#cell-5").click(modifiers=["Shift"])
    expect(chosen).to_have_count(4)
    columns = int(page.locator(".grid").get_attribute("aria-colcount") or 0)
    first, last = (find_box(page.locator(f"#cell-{each}")) for each in (2 * columns, 3 * columns + 2))
    page.mouse.move(first["x"] + 4, first["y"] + 4)
    page.mouse.down()
    page.mouse.move(last["x"] + 20, last["y"] + 20, steps=4)
    page.mouse.up()
    expect(chosen).to_have_count(4 + 6)
    page.locator("#cell-9 .shot").dblclick()
    expect(page.locator("dialog.record h2")).to_have_text("0000009.jpg")


def test_the_address_says_what_is_shown(page: Page, viewer_url: ViewerUrl) -> None:
    """Size, place and record are kept by a reload; back closes the record."""
    url = viewer_url(ManyStore(MILLION))
    open_grid(page, url, "size=240")
    drag_bar(page, 0.5)
    wait_until(page, "location.hash.includes('at=')")
    first = seen(page)[0]
    page.reload()
    page.wait_for_selector(".grid-cell.ready")
    assert abs(seen(page)[0] - first) < 10
    page.locator(".grid-cell.active").press("Enter")
    expect(page.locator("dialog.record")).to_be_visible()
    page.reload()
    expect(page.locator("dialog.record")).to_be_visible()
    page.go_back()
    expect(page.locator("dialog.record")).to_have_count(0)
    page.keyboard.press("+")
    wait_until(page, "location.hash.includes('size=304')")
    expect(page.locator(".grid-bar input")).to_have_value("304")


def test_what_cannot_be_decoded_is_said_in_its_cell(page: Page, viewer_url: ViewerUrl, screenshot: Any) -> None:
    """A sentence instead of the picture; the others are shown. Keys are text, whatever they hold."""
    keys = ["<img src=x onerror=alert(1)>", "a\x00\n\tb", "\u202egnp.exe", "k" * 100_000, "&lt;b&gt;", "plain.jpg"]
    store = ManyStore(len(keys), keys=keys, pictures=[make_picture(1)[:200], b"", b"<svg/onload=alert(1)>"])
    open_grid(page, viewer_url(store))
    for position in range(3):
        expect(page.locator(f"#cell-{position}.failed .note")).not_to_be_empty()
    expect(page.locator("#cell-5.ready")).to_be_visible()
    expect(page.locator("#cell-0 .key")).to_contain_text("onerror=")
    expect(page.locator("#cell-1 .key")).to_have_text("a␀␊␉b")
    expect(page.locator("#cell-2 .key")).to_have_text("\ufffdgnp.exe")
    screenshot("grid-unreadable")
    page.keyboard.press("Enter")
    expect(page.locator("dialog.record h2")).to_have_text(keys[0])
    expect(page.locator(".stage .note")).not_to_be_empty()

    assert page.locator("img[src=x]").count() == 0


def test_a_long_error_is_shown_from_its_beginning(page: Page, viewer_url: ViewerUrl) -> None:
    """In a cell that is too small for it."""
    page.goto(f"{viewer_url(ManyStore(3, keys=['a', 'b', 'c'], pictures=[b'', b'x' * 9]))}#size=64")
    page.wait_for_selector("#cell-1.failed")
    page.evaluate("document.querySelector('#cell-1 .note').textContent = 'A long sentence. '.repeat(40)")
    top, text = page.evaluate("""() => {
      const note = document.querySelector("#cell-1 .note"), range = document.createRange();
      range.selectNodeContents(note);
      return [note, range].map((each) => each.getBoundingClientRect().top);
    }""")

    assert text >= top


def list_runs(line: Any) -> list[int]:
    """Lengths of the runs of equal values that are not at an end."""
    edges = np.flatnonzero(np.diff(line.astype(int)))
    lengths: list[int] = np.diff(edges).tolist()
    return lengths


@pytest.mark.parametrize("size", [112, 144, 320])
def test_small_pictures_are_shown_at_whole_multiples(page: Page, viewer_url: ViewerUrl, size: int) -> None:
    """In the grid, also after its cells were resized, and in a record: each pixel is a square of one colour."""
    pixels = (np.indices((9, 12)).sum(0) % 2 * 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    open_grid(page, viewer_url(ManyStore(3, pictures=[file.getvalue()] * 3)), "hide=names")
    page.get_by_label("Size").fill(str(size))
    wait_until(page, f"() => location.hash.includes('size={size}')")
    page.wait_for_selector("#cell-2.ready img.sharp")

    def shoot(place: str) -> None:
        page.mouse.move(1, 1)
        shown = Image.open(io.BytesIO(page.locator(place).screenshot())).convert("L")
        box = page.evaluate("place => { const [box, one] = [document.querySelector(place), document.querySelector("
                            "`${place} img`)].map((each) => each.getBoundingClientRect()); return [one.x - box.x + "
                            "one.width / 2, one.y - box.y + one.height / 2, one.width]; }", place)  # fmt: skip
        x, y, width = box
        scale = round(width / 12)
        assert scale >= 2
        part = np.asarray(shown)[int(y - 4 * scale) : int(y + 4 * scale), int(x - 5 * scale) : int(x + 5 * scale)]
        assert set(np.unique(part).tolist()) == {0, 255}
        for line in (part[len(part) // 2 + 1], part[:, part.shape[1] // 2 + 1]):
            assert set(list_runs(line)) == {scale}

    shoot("#cell-2 .shot")
    page.locator("#cell-2").dblclick()
    page.wait_for_selector(".stage .part:not([hidden])")
    shoot(".stage")


def test_an_empty_result_says_how_to_go_on(page: Page, viewer_url: ViewerUrl) -> None:
    """A filter that matches nothing, and one that is refused, are sentences with a button."""
    url = viewer_url(ManyStore(20))
    page.route("**/api/rows?q=none**", lambda route: route.fulfill(json={"total": 0, "start": 0, "rows": []}))
    page.route("**/api/rows?q=wrong**", lambda route: route.fulfill(status=400, json={"error": "q has no field 'x'."}))
    page.goto(f"{url}#q=none")
    expect(page.locator(".empty")).to_contain_text("No record matches the filter.")
    page.goto(f"{url}#q=wrong")
    expect(page.locator(".empty")).to_contain_text("q has no field 'x'.")
    page.get_by_role("button", name="Clear the filter").click()
    expect(page.locator(".grid-cell.ready")).to_have_count(20)


def test_a_phone_shows_the_grid(page: Page, viewer_url: ViewerUrl, screenshot: Any) -> None:
    """At 400 pixels nothing has to be moved sideways."""
    open_grid(page, viewer_url(ManyStore(MILLION)))
    screenshot("grid")
    page.set_viewport_size({"width": 400, "height": 800})
    wait_until(page, "document.querySelector('.grid').getAttribute('aria-colcount') === '3'")

    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("document.querySelector('.grid').scrollWidth") <= 400
