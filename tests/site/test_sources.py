"""What the site adds to the pages: charts of all measurements, the order of pages, links that lead to pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext.benchmarks import TOPICS, find_losses, make_page, make_summary, read_charts, write_pages
from docs._ext.search import ASKED, find_kind
from docs._ext.structure import CHILDREN, add_toctree, expand_children, mend_links

RESULTS = Path(__file__).resolve().parent.parent.parent / "benches" / "results"

MACHINE = """# A machine, 2 cores

Measured 2026-01-02 by `make bench`.

## pack

100 files; A machine, 2 cores; Python 3.11.7.

| candidate | median MB/s | spread | ratio (lowest - highest) |
|---|---|---|---|
| plain script | 312.1 | ±8% | 1.00 (1.00 - 1.00) |
| penstock.pack | 156.0 | ±6% | 0.50 (0.45 - 0.55) |

## stores

| container | random | cold |
|---|---|---|
| lmdb | 1.34 (1.32 - 1.36) | 0.80 (0.70 - 0.90) |
| tar | - | 2.00 (1.90 - 2.10) |
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results as `make bench` writes them, beside the scripts."""
    for script in ("pack", "stores"):
        (tmp_path / f"{script}.py").write_text('"""Claim: as fast as a script."""\n')
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "machine.md").write_text(MACHINE)
    return tmp_path / "results"


def test_what_is_slower_is_listed(results: Path) -> None:
    """A candidate of penstock below its rival, and a row below 1, are losses, the largest first."""
    losses = find_losses(results)

    assert [(loss.script, loss.name, loss.rival, loss.ratio) for loss in losses] == [
        ("pack", "penstock.pack", "plain script", 0.5),
        ("stores", "lmdb", "a plain script", 0.8),
    ]


def test_a_chart_says_where_its_numbers_come_from(results: Path) -> None:
    """Rate, spread, machine, date, script and table."""
    page = make_page(results, "pack")

    assert "156.0 MB/s, ±6%" in page
    assert "0.50 <small>(0.45 to 0.55)" in page
    assert "Measured 2026-01-02. 100 files; A machine, 2 cores; Python 3.11.7." in page
    assert "[pack.py](../../benches/pack.py), [table](../../benches/results/machine.md)" in page


def test_benchmarks_begin_with_a_row_for_each_script(results: Path) -> None:
    """What is compared, with what, and the range of penstock's speeds; losses are counted, and have their page."""
    summary = make_summary(results)

    assert "| [Packing](benchmarks/pack.md): pack | plain script | 0.50 | A machine |" in summary
    assert "| [Containers](benchmarks/stores.md): random | a plain script | 1.34 | A machine |" in summary
    assert "[Where penstock is slower](benchmarks/slower.md): 2 rows." in summary


def test_pages_of_benchmarks_are_written_anew(results: Path, tmp_path: Path) -> None:
    """A page for each script that has charts, and one for losses; that of a script that is gone is removed."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "gone.md").touch()

    write_pages(results, tmp_path / "pages")

    assert {file.stem for file in (tmp_path / "pages").iterdir()} == {"pack", "stores", "slower"}
    assert {chart.script for chart in read_charts(RESULTS)} <= set(TOPICS)


def test_pages_that_are_asked_for_exist() -> None:
    """A page for which the search has words is there; a how-to counts more than a decision."""
    root = RESULTS.parent.parent
    missing = [page for page in ASKED if not (root / f"{page}.md").exists()]

    assert not missing
    assert find_kind("docs/howto/determinism") == ("How-to", 1.5)
    assert find_kind("docs/decisions/0001-fill-takes-rows")[1] < find_kind("docs/stores")[1] < 1.5


def test_each_measured_ratio_is_drawn() -> None:
    """No table of the results is left out: gains and losses alike."""
    text = "\n".join(path.read_text() for path in RESULTS.glob("*.md"))
    cells = re.findall(r"\| ([\d.,]+ \([\d.,]+ - [\d.,]+\)) (?=\|)", text)
    own = re.findall(r"^\| \d+ \| penstock \|", text, re.MULTILINE)  # others are compared with it

    drawn = [bar for chart in read_charts(RESULTS) for bar in chart.bars]

    assert len(drawn) == len(cells) - len(own)


def test_pages_that_are_not_there_are_left_out() -> None:
    """A toctree names pages that exist, in the order of the tree; a pattern takes the others of its folder."""
    found = ["docs/guide", "docs/start", "docs/decisions/README", "docs/decisions/0002-b", "docs/decisions/0001-a"]

    assert expand_children("docs/start", found) == ["docs/guide"]
    assert expand_children("docs/decisions/README", found) == ["docs/decisions/0001-a", "docs/decisions/0002-b"]
    assert add_toctree("docs/guide", "# Guide\n", found) == "# Guide\n"
    assert "/docs/guide\n" in add_toctree("docs/start", "# Start\n", found)


def test_no_page_has_two_places() -> None:
    """A page that were below two others would have two places in the navigation."""
    named = [child for children in CHILDREN.values() for child in children if "*" not in child]

    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("page", "link", "target"),
    [
        ("CONTRIBUTING", "docs/decisions", "/docs/decisions/README.md"),
        ("docs/performance", "../benches/results", "/docs/benchmarks.md"),
        ("docs/howto/memory", "../../README.md#install", "/docs/start.md#install"),
        ("penstock/explain/pages/limit-copy", "../gpu.md", "/docs/gpu.md"),
        ("penstock/explain/pages/limit-copy", "blocking-copy.md", "blocking-copy.md"),
        ("docs/guide", "stores.md#limits", "stores.md#limits"),
        ("docs/guide", "#limits", "#limits"),
    ],
)
def test_links_lead_to_pages(page: str, link: str, target: str) -> None:
    """A link to a folder leads to its page; any other is left as it is on GitHub."""
    assert mend_links(page, f"see [it]({link}).") == f"see [it]({target})."
