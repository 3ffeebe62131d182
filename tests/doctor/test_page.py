"""The page in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from penstock.doctor.judge.diagnosis import Diagnosis
from penstock.doctor.reports.html_report import write_html
from penstock.doctor.reports.page_events import draw_timeline
from tests.doctor.chromium import Chromium, find_chromium
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy

LANES = "[...document.querySelectorAll('.lane')].map(lane => [lane.dataset.lane, lane.querySelectorAll('rect').length])"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests of this file."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    chromium = Chromium(program, tmp_path_factory.mktemp("chromium"))
    try:
        opened = chromium.__enter__()
    except (ConnectionError, TimeoutError) as error:
        pytest.skip(f"{program} cannot be started here: {error}")
    with contextlib.closing(opened):
        yield opened


def page_of(diagnosis: Diagnosis, folder: Path, *, thumbnails: bool = False) -> Path:
    """The page as a file."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 60, 30)).save(buffer, "JPEG")
    pictures = {sample.index: buffer.getvalue() for sample in diagnosis.samples[:5]} if thumbnails else None
    path = folder / "report.html"
    write_html(diagnosis, path, pictures)
    return path


def test_the_page_opens_without_an_error(browser: Chromium, tmp_path: Path) -> None:
    """The console is empty, nothing is requested from elsewhere, and each lane has its events."""
    diagnosis = make_diagnosis()
    timeline = draw_timeline(diagnosis.recording)

    browser.open(page_of(diagnosis, tmp_path, thumbnails=True))

    assert browser.complaints() == []
    assert browser.evaluate("document.querySelector('#verdict').textContent").startswith("decode Decoding limits")
    lanes = [[name, timeline["events"]["lane"].count(lane)] for lane, name in enumerate(timeline["lanes"])]
    assert browser.evaluate(LANES) == lanes
    assert all(count for _, count in lanes)
    widths = "[...document.querySelectorAll('.lane rect.step')].map(each => each.getBoundingClientRect().width)"
    assert min(browser.evaluate(widths)) > 5
    assert browser.evaluate("document.body.textContent.includes('[object')") is False


def test_thumbnails_are_shown(browser: Chromium, tmp_path: Path) -> None:
    """Pictures are decoded within the page's policy; a sample without one says so."""
    browser.open(page_of(make_diagnosis(), tmp_path, thumbnails=True))

    browser.evaluate("document.querySelector('#samples').scrollIntoView()")
    sizes = browser.evaluate(
        "Promise.all([...document.querySelectorAll('#samples img')]"
        ".map(each => each.decode().then(() => each.naturalWidth)))"
    )

    assert sizes == [64] * 5
    assert browser.evaluate("document.querySelectorAll('#samples .blank').length") == 1
    assert browser.evaluate("document.querySelector('#samples .key').textContent") == "photos/train/n0144/0017.jpg"
    assert browser.complaints() == []


def test_a_click_on_advice_shows_its_code(browser: Chromium, tmp_path: Path) -> None:
    """Reason and code of a change appear when its row is chosen, and go when it is chosen again."""
    browser.open(page_of(make_diagnosis(), tmp_path))
    shown = "document.querySelector('#advice details .code').checkVisibility()"
    before = browser.evaluate(shown)

    browser.click("#advice summary")
    after = browser.evaluate(shown)
    browser.click("#advice summary")

    assert (before, after, browser.evaluate(shown)) == (False, True, False)
    assert browser.evaluate("document.querySelector('#advice .code').textContent") == "DataLoader(..., num_workers=8)"


def test_advice_is_reached_by_keys(browser: Chromium, tmp_path: Path) -> None:
    """Tab goes to the button of colours and then to the first change; Enter opens it."""
    browser.open(page_of(make_diagnosis(), tmp_path))

    for key in ("Tab", "Tab", "Enter"):
        browser.press(key)

    assert browser.evaluate("document.querySelector('#advice details').open") is True


@pytest.mark.parametrize("dark", [False, True])
def test_colours_follow_the_system_until_the_button(browser: Chromium, tmp_path: Path, dark: bool) -> None:
    """The button goes from the system's colours to light, to dark, and back; the background changes."""
    browser.open(page_of(make_diagnosis(), tmp_path), dark=dark)
    browser.evaluate("localStorage.clear()")
    browser.open(page_of(make_diagnosis(), tmp_path), dark=dark)
    background = "getComputedStyle(document.body).backgroundColor"
    light_page, dark_page = "rgb(244, 245, 247)", "rgb(18, 22, 27)"
    seen = [browser.evaluate(background)]

    for _ in range(3):
        browser.click("#theme")
        seen.append(browser.evaluate(background))

    own = dark_page if dark else light_page
    assert seen == [own, light_page, dark_page, own]


@pytest.mark.parametrize("name", ["waits", "healthy", "hostile"])
@pytest.mark.parametrize("width", [360, 768])
def test_nothing_is_wider_than_the_window(browser: Chromium, tmp_path: Path, name: str, width: int) -> None:
    """On a phone the page does not scroll sideways, also with long keys and all changes open."""
    diagnosis = {
        "waits": make_diagnosis(),
        "healthy": make_healthy(),
        "hostile": make_diagnosis(keys=["x" * 300, *HOSTILE], notes=["n" * 300]),
    }[name]
    diagnosis.ranks = [{"rank": rank, "waiting": 0.1, "samples_per_s": 1.5, "host": "h" * 80} for rank in range(2)]
    browser.open(page_of(diagnosis, tmp_path), width)

    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")

    assert browser.evaluate("document.documentElement.scrollWidth") == width
    beyond = (
        "[...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll, .lanes, .code, svg') && "
        f"each.getBoundingClientRect().right > {width}).map(each => each.outerHTML.slice(0, 200))"
    )
    assert browser.evaluate(beyond) == []
    stages = "document.querySelector('#stages .scroll')"
    assert browser.evaluate(f"{stages}.scrollWidth <= {stages}.clientWidth") is True


def test_hostile_keys_are_text(browser: Chromium, tmp_path: Path) -> None:
    """Markup in keys, notes, findings and the verdict is shown, and does nothing."""
    diagnosis = make_diagnosis(keys=HOSTILE, notes=HOSTILE)
    diagnosis.verdict = replace(diagnosis.verdict, text=HOSTILE[1])
    diagnosis.findings = [replace(diagnosis.findings[0], where=HOSTILE[0], what=HOSTILE[1], advice=HOSTILE[4])]
    diagnosis.recording.machine = {HOSTILE[0]: {HOSTILE[1]: HOSTILE[4]}}
    diagnosis.recording.command = HOSTILE

    browser.open(page_of(diagnosis, tmp_path))

    assert browser.evaluate("window.broken === undefined") is True
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert browser.evaluate("document.querySelector('#samples .key').textContent") == HOSTILE[0]
    assert browser.complaints() == []


def test_a_stage_is_hidden_and_shown(browser: Chromium, tmp_path: Path) -> None:
    """The buttons of the timeline switch stages."""
    browser.open(page_of(make_diagnosis(), tmp_path))
    shown = "[...document.querySelectorAll('.lane rect.decode')].filter(each => each.checkVisibility()).length"
    before = browser.evaluate(shown)

    browser.click("[data-stage=decode]")
    hidden = browser.evaluate(shown)
    browser.click("[data-stage=decode]")

    assert before > 10
    assert (hidden, browser.evaluate(shown)) == (0, before)


def test_the_timeline_is_enlarged(browser: Chromium, tmp_path: Path) -> None:
    """Each press of the button doubles the width of the lanes; the page stays as wide as it is."""
    browser.open(page_of(make_diagnosis(), tmp_path))
    width = "document.querySelector('.lane').getBoundingClientRect().width"
    before = browser.evaluate(width)

    browser.click("#closer")
    browser.click("#closer")
    enlarged = browser.evaluate(width)
    browser.click("#farther")

    assert [enlarged / before, browser.evaluate(width) / before] == pytest.approx([4, 2])
    assert browser.evaluate("document.documentElement.scrollWidth") == 1200


def test_an_event_is_read_with_mouse_and_keys(browser: Chromium, tmp_path: Path) -> None:
    """A click on an event says what it is; an arrow key goes to the next one of its row."""
    browser.open(page_of(make_diagnosis(), tmp_path))
    readout = "document.querySelector('#timeline .readout').textContent"

    browser.click("[data-lane='worker 1'] rect:nth-child(5 of .sample)")
    first = browser.evaluate(readout)
    browser.evaluate("document.querySelector('.lanes').focus()")
    browser.press("ArrowRight")
    second = browser.evaluate(readout)
    browser.press("ArrowDown")

    assert first.startswith("worker 1 · batch ")
    assert "whole sample" in first
    assert second.startswith("worker 1 · batch ")
    assert second != first
    assert browser.evaluate(readout) not in {first, second}
    assert browser.evaluate("document.querySelectorAll('#timeline .chosen').length") == 1


def test_the_slowest_batch_is_chosen(browser: Chromium, tmp_path: Path) -> None:
    """The switch draws the other batch."""
    browser.open(page_of(make_diagnosis(), tmp_path))
    text = "document.querySelector('#batch > div:last-child p').textContent"
    before = browser.evaluate(text)

    browser.click("[data-batch='1']")

    assert browser.evaluate(text) != before
    assert browser.evaluate("document.querySelector('[data-batch=\"1\"]').getAttribute('aria-pressed')") == "true"
    assert browser.evaluate("document.querySelectorAll('#batch rect').length") == 35


def test_a_healthy_script_has_a_page_without_advice(browser: Chromium, tmp_path: Path) -> None:
    """Nothing to gain is said, and no row is there to choose."""
    browser.open(page_of(make_healthy(), tmp_path))

    assert browser.complaints() == []
    assert browser.evaluate("document.querySelector('#stage').textContent") == "nothing to gain"
    assert browser.evaluate("document.querySelectorAll('#advice details').length") == 0
