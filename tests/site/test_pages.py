"""The built site, as a reader opens it: from files, without a network, on a desk and on a phone."""

from __future__ import annotations

import html.parser
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect

from tests.chromium import PATIENCE_S, open_chromium

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "site"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}

if not (SITE / "index.html").exists():
    pytest.skip("there is no site/; `make site` builds it", allow_module_level=True)

PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def url(path: str | Path) -> str:
    """The address of a page as a file."""
    return (SITE / path).as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page on a desk; at the end, there was no error, and nothing was asked of a network."""
    context = browser.new_context(viewport=DESK)
    opened = context.new_page()
    seen = Seen()
    seen.watch(opened)
    yield opened
    context.close()
    assert not seen.errors
    assert not seen.requests


@dataclass
class Seen:
    """What a page did that it should not: errors, and requests that leave this machine's files."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Collect from now on."""
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self.note_message)
        page.on("pageerror", self.note_error)
        page.on("request", self.note_request)

    def note_message(self, message: ConsoleMessage) -> None:
        """Note what the console shows as an error."""
        if message.type == "error":
            self.errors.append(message.text)

    def note_error(self, error: Error) -> None:
        """Note an exception of a script."""
        self.errors.append(str(error))

    def note_request(self, request: Request) -> None:
        """Note what is asked of anything but a file."""
        if not request.url.startswith(("file:", "data:")):
            self.requests.append(request.url)


def test_no_page_is_wider_than_a_phone(browser: Browser) -> None:
    """Nothing has to be moved sideways. Scripts do not run, so that hundreds of pages take seconds."""
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = context.new_page()
    seen = Seen()
    seen.watch(page)
    wide = {}
    for path in PAGES:
        if path == SITE / "index.html":
            continue  # it leads on at once
        page.goto(path.as_uri(), wait_until="load")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide[str(path.relative_to(SITE))] = width
    context.close()

    assert not wide
    assert not seen.errors
    assert not seen.requests


@pytest.mark.parametrize(
    "name", ["docs/benchmarks", "docs/stores", "docs/reference/api/penstock.DataLoader", "genindex"]
)
def test_a_page_of_each_kind_runs_its_scripts(page: Page, name: str) -> None:
    """Without errors, and without a request that leaves the site; on a phone too."""
    page.set_viewport_size(PHONE)
    page.goto(url(f"{name}.html"), wait_until="load")

    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


QUESTIONS = {
    "class imbalance": "docs/howto/class-imbalance",
    "corrupt jpeg": "docs/howto/broken-images",
    "lmdb": "docs/stores",
    "dataloader slow": "docs/doctor",
    "out of memory": "docs/howto/memory-growth",
    "memory leak": "docs/howto/memory-growth",
    "too many open files": "docs/howto/too-many-open-files",
    "bus error docker": "docs/howto/shared-memory",
    "reproducible": "docs/howto/determinism",
    "why are my augmentations the same in every epoch": "docs/howto/determinism",
    "resume training": "docs/from-torch",
    "multi gpu": "docs/distributed",
    "ddp": "docs/distributed",
    "hdf5": "docs/stores",
    "webdataset": "docs/streams",
    "csv": "docs/tutorials/table",
    "s3": "docs/stores",
    "how to install": "docs/start",
    "gpu idle": "docs/doctor",
    "custom transform": "docs/howto/own-op",
    "custom dataset": "docs/howto/own-store",
    "weighted sampler": "docs/samplers",
    "cross validation": "docs/howto/validation",
    "stack expects each tensor to be equal size": "docs/howto/images-of-different-sizes",
    "can't pickle lambda": "penstock/explain/pages/not-picklable",
    "hang": "docs/howto/workers-hang",
    "first epoch slow": "docs/howto/slow-first-epoch",
    "duplicates": "docs/howto/find-records",
    "bounding boxes": "docs/detection",
    "lightning": "docs/tutorials/with_lightning",
    "ffcv vs dali": "docs/compare",
    "WeightedRandomSampler": "docs/reference/api/penstock.WeightedRandomSampler",
    "pin_memory": "docs/gpu",
}
"""What people ask, in their words, and the page that answers."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_search_finds_the_page_that_answers(page: Page, question: str) -> None:
    """It is among the first three results, with a sentence of it, and works from files."""
    page.goto(f"{url('search.html')}?q={urllib.parse.quote(question)}")

    expect(page.locator("#search-results .search-summary")).to_contain_text("result")
    links = page.locator("#search-results li").evaluate_all(
        "rows => rows.slice(0, 3).map(row => row.querySelector('a').getAttribute('href').split('.html')[0])"
    )
    assert QUESTIONS[question] in links
    assert page.locator("#search-results li .context").first.inner_text()


def test_a_search_without_an_answer_says_so(page: Page) -> None:
    """And where to look instead."""
    page.goto(f"{url('search.html')}?q=xyzzyplugh")

    expect(page.locator("#search-results .search-summary")).to_contain_text("No page has these words")


def test_text_of_a_question_is_shown_as_text(page: Page) -> None:
    """Nothing that a question contains becomes an element."""
    page.goto(f"{url('search.html')}?q={urllib.parse.quote('<img src=x onerror=alert(1)> lmdb')}")

    expect(page.locator("#search-results .search-summary")).to_contain_text("result")
    assert page.locator("#search-results img").count() == 0


def test_code_can_be_copied(page: Page) -> None:
    """Each block of code has a button."""
    page.goto(url("docs/index.html"))

    assert page.locator("div.highlight button.copybtn").count() == page.locator("div.highlight pre").count() > 1


def test_the_search_field_leads_to_results(page: Page) -> None:
    """As a reader uses it: click the field, write, press enter."""
    page.goto(url("docs/index.html"))

    page.locator("button.search-button__button:visible").first.click()
    page.locator("input[name=q]:visible").first.fill("DataLoader")
    page.keyboard.press("Enter")

    page.wait_for_selector("#search-results ul.search li a")
    assert "search.html" in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(page: Page, theme: str) -> None:
    """The contrast of text, links and code with their background is at least 4.5 (WCAG 2.2, level AA)."""
    page.emulate_media(color_scheme=theme)
    page.goto(url("docs/guide.html"))
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")

    for selector in ("article p", "article p a", "article code", "article h2", "article pre"):
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector


def test_the_theme_can_be_changed(page: Page) -> None:
    """The menu has light, dark and what the system has."""
    page.goto(url("docs/index.html"))

    page.locator("button.theme-switch-button:visible").first.click()
    page.locator("button.theme-change-button[data-mode=dark]:visible").first.click()

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_navigation_opens_on_a_phone(page: Page) -> None:
    """The button shows the sections, and a click on one leads there."""
    page.set_viewport_size(PHONE)
    page.goto(url("docs/guide.html"))

    page.locator("button.primary-toggle:visible").first.click()
    page.locator("a:visible", has_text="Reference").first.click()

    page.wait_for_url("**/reference/index.html")


def test_the_first_page_leads_to_the_documentation(page: Page) -> None:
    """`site/index.html` is what one opens."""
    page.goto(url("index.html"))

    page.wait_for_url("**/docs/index.html")


CONTRAST = """
selector => {
  const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => {
    const part = x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const element = document.querySelector(selector);
  let ground = element, colour;
  do {
    colour = parse(getComputedStyle(ground).backgroundColor);
    ground = ground.parentElement;
  } while (ground && colour.length === 4 && colour[3] === 0);
  const [a, b] = [light(parse(getComputedStyle(element).color)), light(colour)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
"""


# ------------------------------------------------------------------------------------------------ links


class Links(html.parser.HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ``href``, ``src``, ``id`` and ``name``."""
        for name, value in attrs:
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)
            elif value and name in {"href", "src"}:
                self.links.append(value)


def test_every_link_leads_to_something() -> None:
    """Pages, files and headings that a page names exist; addresses of the network are not asked."""
    parsed = {path: Links(path.read_text()) for path in PAGES}
    dead = []
    for path, found in parsed.items():
        for link in found.links:
            target = urllib.parse.urlsplit(link)
            if target.scheme or target.netloc:
                continue
            file = (path.parent / urllib.parse.unquote(target.path)).resolve() if target.path else path
            # From a source to its documentation: a page has one name, and its top will do.
            anchor = "" if "_modules" in path.parts else urllib.parse.unquote(target.fragment)
            if not file.is_file() or (anchor and file in parsed and anchor not in parsed[file].anchors):
                dead.append(f"{path.relative_to(SITE)}: {link}")

    assert not dead


def test_every_page_of_the_documentation_is_on_the_site() -> None:
    """A page that is written is read: each Markdown file of docs/, and of errors and findings, has become a page."""
    hidden = ("docs/_", "docs/reference/examples", "docs/problems")
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "penstock" / "explain").rglob("*.md")]
    pages = [file.relative_to(ROOT).with_suffix(".html") for file in files]
    missing = [str(page) for page in pages if not str(page).startswith(hidden) and not (SITE / page).exists()]

    assert not missing
