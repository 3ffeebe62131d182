"""What stands beside the code: citation, security, stability, forms for issues, first issues."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from penstock.annotations import FORMATS as ANNOTATION_FORMATS
from penstock.doctor.checks.checking import RULES, SCRIPT_RULES
from penstock.stores import STORES
from penstock.testing import StoreTests
from penstock.transforms import ops

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version() -> None:
    """Who cites penstock cites the version that is built."""
    built = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]

    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [built]


def test_the_citation_is_complete() -> None:
    """It has what the format requires, and the licence of the project."""
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]


def test_all_fuzz_targets_are_named() -> None:
    """SECURITY.md says which parsers are fuzzed: all targets that there are."""
    targets = {each["name"] for each in tomllib.loads((ROOT / "native/fuzz/Cargo.toml").read_text())["bin"]}

    text = (ROOT / "SECURITY.md").read_text()

    assert {target for target in targets if f"`{target}`" not in text} == set()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "SECURITY.md", "STABILITY.md", "docs/good-first-issues.md"])
def test_files_that_are_named_exist(page: str) -> None:
    """A path or a link on these pages leads somewhere; new files of a first issue are the exception."""
    text = (ROOT / page).read_text()
    to_make = {"tests/stores/zip/", "tests/stores/npz/"}

    paths = set(re.findall(r"`((?:penstock|tests|native|scripts)/[\w/.*]+)", text)) - to_make
    links = {link for link in re.findall(r"\]\(([^)#:]+)", text) if link}

    assert paths
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_map_names_files_by_the_ends_of_their_paths() -> None:
    """A file in a diagram of ARCHITECTURE.md, such as `loader/plan.py`, is one of the package."""
    text = (ROOT / "ARCHITECTURE.md").read_text().replace("`penstock/", "`")
    files = [str(path) for path in (ROOT / "penstock").rglob("*.py")]

    named = set(re.findall(r"(?<![\w/])((?:\w+/)*\w+\.py)\b", text))

    assert len(named) > 30
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_places_that_docstrings_name_exist() -> None:
    """Each path below "Where to find what" leads somewhere, from the package's folder or the root of the repository."""
    files = [*(ROOT / "penstock").rglob("__init__.py"), *(ROOT / "native" / "core" / "src").rglob("*.rs")]

    named = [(file, place) for file in files for place in _find_places(file.read_text())]

    assert len(named) > 250
    assert [
        f"{file.relative_to(ROOT)}: {place}"
        for file, place in named
        if not any(list(folder.glob(place.rstrip("/"))) for folder in (file.parent, ROOT))
    ] == []


def _find_places(text: str) -> list[str]:
    """The paths in a list below "Where to find what": folders end in a slash, files in a suffix or ``-*``."""
    rows = re.split(r'"""|\n\n', text.partition("Where to find what:\n")[2].lstrip())[0]
    return re.findall(r"`([\w/.*-]+(?:/|\.(?:pyi?|rs|md|js|h|sh)|-\*))`", rows)


def test_first_issues_are_still_open() -> None:
    """What exists is no first issue any more: the change that adds it takes it from the page."""
    text = (ROOT / "docs" / "good-first-issues.md").read_text()
    suggested = set(re.findall(r"^\| `(\w[\w-]*)`", text, re.MULTILINE))

    assert len(suggested) >= 8
    assert suggested & {*STORES, *ops, *RULES, *SCRIPT_RULES, *ANNOTATION_FORMATS} == set()


def test_forms_of_issues_are_valid() -> None:
    """Each form has a name, a description and fields; a report of a fault asks for the environment and the doctor."""
    yaml = pytest.importorskip("yaml")
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yml") if path.stem != "config"}

    assert forms.keys() == {"bug", "feature", "question"}
    for form in forms.values():
        assert form["name"]
        assert form["description"]
        for part in form["body"]:
            assert part["type"] in {"markdown", "textarea", "input"}
            assert part["attributes"].get("label") or part["type"] == "markdown"
    labels = [part["attributes"].get("label", "") for part in forms["bug"]["body"]]
    assert [name for name in ("penstock env", "penstock doctor") if not any(name in label for label in labels)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "PYPI.md"])
def test_the_first_figures_are_measured(page: str) -> None:
    """What a stranger reads first are the results of its script: images per second for training and for evaluation."""
    results = next((ROOT / "benches" / "results").glob("amd-epyc-*.md")).read_text()
    section = results.partition("\n## torchvision_script\n")[2].partition("\n## train_input\n")[0]
    rates = [
        f"{float(rate.replace(',', '')):,.0f}"
        for rate in re.findall(r"^\| (?:torch\.utils\.data.*?|penstock\.torch) \| ([\d,.]+) \|", section, re.MULTILINE)
    ]
    gains = [f"{float(gain):.1f} times" for gain in re.findall(r"input ([\d.]+) \(", section)]
    text = " ".join((ROOT / page).read_text().partition("\n```\n")[2].split())

    assert len(rates) == 4
    assert re.findall(r"\(([\d,]+) instead of ([\d,]+)\)", text) == [(rates[1], rates[0]), (rates[3], rates[2])]
    assert re.findall(r"\*\*(?:and )?([\d.]+ times)", text) == gains


def test_the_page_on_the_index_stands_alone() -> None:
    """It is shown without the repository: a relative link leads nowhere, and a picture is not shown."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / project["readme"]).read_text()

    assert re.findall(r"\]\((?!https://)|<img", text) == []
    assert set(re.findall(r"penstock-data\[([\w-]+)\]", text)) <= project["optional-dependencies"].keys()


def test_what_uploads_is_pinned_and_alone_may_upload() -> None:
    """Actions of the release are named by commits, and only the job that uploads has the index's trust."""
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    actions = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]

    assert len(actions) == 4
    assert [action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert [step for step in jobs["publish"]["steps"] if "run" in step] == []
    assert jobs["publish"]["if"] == "github.event_name == 'push'"


def test_code_of_pages_fits_the_site() -> None:
    """No line of Python on a page is longer than 88 columns: the site would cut it."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "penstock" / "explain").rglob("*.md")]
    generated = (ROOT / "docs" / "reference" / "api", ROOT / "docs" / "problems")

    long = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages
        if not any(page.is_relative_to(folder) for folder in generated)
        for block in re.findall(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if len(line) > 88
    ]

    assert long == []


def test_the_page_on_own_stores_explains_each_test_of_the_suite() -> None:
    """Who writes a store finds a sentence for each test that it must pass, and none for a test that is gone."""
    page = (ROOT / "docs/howto/own-store.md").read_text()

    explained = re.findall(r"^\| `(\w+)` \| [A-Z`].*\.", page.partition("### What each test wants")[2], re.MULTILINE)

    assert sorted(f"test_{name}" for name in explained) == sorted(n for n in dir(StoreTests) if n.startswith("test_"))
