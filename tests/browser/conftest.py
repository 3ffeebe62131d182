"""The pages of a viewer in headless Chromium (`make test-browser`): by mouse and by keys, as a reader uses them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request

import penstock as ps
from penstock.viewer.server.serving import Viewer
from tests.chromium import PATIENCE_S, open_chromium

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DESK: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 400, "height": 800}
SCREENSHOTS: Final = Path(os.environ.get("PENSTOCK_SCREENSHOTS") or ROOT / "target" / "screenshots")
"""Where `screenshot` writes: kept as artefacts of a run, ignored by git."""


def wait_until(page: Page, condition: str, argument: object = None) -> None:
    """Wait until JavaScript is true.

    The policy of a viewer's pages refuses ``page.wait_for_function`` where the condition is not true at once.
    """
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition, argument):
        assert time.monotonic() < end, f"{condition} is not true after {PATIENCE_S} s"
        draw_frame(page)


def draw_frame(page: Page) -> None:
    """Wait until a page that has something to draw has drawn it."""
    page.evaluate("() => new Promise(requestAnimationFrame)")


def find_box(place: Locator) -> dict[str, float]:
    """Where an element lies: x, y, width, height in pixels of the window."""
    box: dict[str, float] | None = place.bounding_box()
    assert box is not None, f"{place} is not shown"
    return box


def wait_until_sharp(page: Page, place: str) -> None:
    """Wait until the first picture at a place is drawn at a whole multiple of its size, each pixel as a square."""
    condition = """place => {
      const img = document.querySelector(place), box = img?.getBoundingClientRect();
      if (!img?.naturalWidth || getComputedStyle(img).imageRendering !== "pixelated") return false;
      const multiple = Math.min(box.width / img.naturalWidth, box.height / img.naturalHeight);  // the rest is margin
      return multiple >= 2 && Math.abs(multiple - Math.round(multiple)) < 1e-3;
    }"""
    wait_until(page, condition, place)


@dataclass
class Seen:
    """What pages did that they should not: errors, and requests that leave their viewers.

    A request that is answered with 400 or 422 is not an error: the page says in a sentence what the answer says.
    """

    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    servers: set[str] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        """Collect from now on."""
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self.note_message)
        page.on("pageerror", self.note_error)
        page.on("request", self.note_request)

    def note_message(self, message: ConsoleMessage) -> None:
        """Note what the console shows as an error."""
        if message.type == "error" and not ("status of 4" in message.text and "/api/" in message.location["url"]):
            self.errors.append(f"{message.text} ({message.location['url']})")

    def note_error(self, error: Error) -> None:
        """Note an exception of a script."""
        self.errors.append(str(error))

    def note_request(self, request: Request) -> None:
        """Note what is asked of anything but a viewer of this test."""
        if not request.url.startswith(("data:", "blob:")) and urlsplit(request.url).netloc not in self.servers:
            self.strangers.append(request.url)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def seen() -> Seen:
    """What the pages of a test did."""
    return Seen()


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, in which picks are kept: an own one for each test, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def viewer_url(seen: Seen) -> Iterator[Callable[..., str]]:
    """Starts a viewer: ``viewer_url(store, ...)`` with the arguments of ``ps.view`` gives its address."""
    started: list[Viewer] = []

    def start(*args: Any, **kwargs: Any) -> str:
        started.append(ps.view(*args, **kwargs))
        seen.servers.add(urlsplit(started[-1].url).netloc)
        return started[-1].page_url

    yield start
    for viewer in started:
        viewer.close()


@pytest.fixture
def page(browser: Browser, seen: Seen, viewer_url: Callable[..., str]) -> Iterator[Page]:
    """An empty page on a desk, for ``page.goto(viewer_url(store))``.

    At the end there was no error, and nothing was asked of anything but a viewer.
    """
    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    opened = context.new_page()
    seen.watch(opened)
    yield opened
    context.close()
    assert not seen.errors
    assert not seen.strangers


@pytest.fixture
def screenshot(page: Page) -> Callable[[str], None]:
    """Writes ``NAME-light.png``, ``NAME-dark.png`` and ``NAME-phone.png`` of the page: ``screenshot(name)``."""
    cells = "document.querySelectorAll('.grid-cell:not(.outside)')"
    shown = f"() => [...{cells}].every(each => each.matches('.ready, .failed'))"

    def write(name: str) -> None:
        wait_until(page, shown)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        size = page.viewport_size or DESK
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png")
        page.set_viewport_size(PHONE)
        wait_until(page, shown)
        page.screenshot(path=SCREENSHOTS / f"{name}-phone.png")
        page.set_viewport_size(size)
        wait_until(page, shown)

    return write


@pytest.fixture
def find_barriers() -> Callable[[Page], list[str]]:
    """What keeps people from using a page, as axe-core finds it: ``find_barriers(page)``; in light and in dark."""

    def find(page: Page) -> list[str]:
        found = []
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            for each in Axe().run(page).response["violations"]:
                if each["impact"] in {"serious", "critical"}:
                    places = "; ".join(node["html"][:160] for node in each["nodes"][:3])
                    found.append(f"{scheme}: {each['id']}: {each['help']}: {places}")
        return found

    return find
