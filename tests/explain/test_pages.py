"""Every error, finding and verdict has a page, and names it where people see it."""

from __future__ import annotations

import copy
import pickle
import re
import traceback
from pathlib import Path
from typing import get_args

import pytest

import penstock as ps
from penstock import errors, explain
from penstock.doctor.checks.checking import RULES, SCRIPT_RULES
from penstock.doctor.judge.advice import CANDIDATES
from penstock.doctor.judge.diagnosis import VerdictStage
from penstock.workers.processes.captured_errors import CapturedError

PAGES = Path(explain.__file__).parent / "pages"
CLASSES = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]


def test_every_error_finding_and_verdict_has_a_page_and_nothing_else_has() -> None:
    """The files, the rows of the index, and the names that errors, rules and verdicts have are the same."""
    expected = {errors.name_page(kind) for kind in CLASSES} | {*RULES, *SCRIPT_RULES}
    expected |= {f"limit-{stage}" for stage in get_args(VerdictStage)}

    listed = [name for pages in explain.list_pages().values() for name in pages]

    assert len(listed) == len(set(listed))
    assert set(listed) == expected
    assert {path.stem for path in PAGES.glob("*.md")} == {*expected, "index"}


def test_every_page_says_how_it_shows_and_how_to_mend_it() -> None:
    """Pages of errors name their class; no page is longer than two screens, and its links lead to pages."""
    kinds = {errors.name_page(kind): kind.__name__ for kind in CLASSES}
    for path in sorted(PAGES.glob("*.md")):
        if path.stem == "index":
            continue
        text = path.read_text()
        assert text.startswith(f"# {path.stem}\n"), path.stem
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert [each for each in headings if each != "Why"] == ["How it shows", "How to mend it"], path.stem
        assert f"`{kinds.get(path.stem, '')}`" in text or path.stem not in kinds, path.stem
        assert 10 < len(text.splitlines()) < 90, path.stem
        for link in re.findall(r"\]\(([^)]+)\)", text):
            assert (PAGES / link).is_file(), f"{path.stem}: {link}"


def test_every_advice_of_the_doctor_is_told_of_by_a_page() -> None:
    """What is advised belongs to the stage that limits."""
    texts = "".join(path.read_text() for path in PAGES.glob("limit-*.md"))

    assert [rule for rule in CANDIDATES if f"`{rule}`" not in texts] == []


def test_the_documentation_shows_the_same_files() -> None:
    """docs/problems is the folder of the pages."""
    assert (PAGES.parents[2] / "docs" / "problems").resolve() == PAGES


@pytest.mark.parametrize(
    "name", ["CorruptRecordError", "penstock.CorruptRecordError", "corrupt-record", "Corrupt_record"]
)
def test_a_page_is_found_by_its_name_and_by_its_class(name: str) -> None:
    """Small letters or not, with the module or without it."""
    assert explain.find_page(name) == "corrupt-record"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("corupt-record", "did you mean corrupt-record"),
        ("persistent_workers", "these pages tell of it: limit-workers"),
        ("no layout fits it", "these pages have its words: store-format"),
        ("finished pack", "these pages have its words: argument"),
        ("zzz", "`penstock explain` lists all pages"),
        ("../explain/__init__", "`penstock explain` lists all pages"),
    ],
)
def test_an_unknown_page_is_refused_with_a_suggestion(name: str, words: str) -> None:
    """Similar names, pages that have the word, or the list."""
    with pytest.raises(errors.ArgumentError, match=re.escape(words)):
        explain.find_page(name)


class UsersError(ps.DecodeError):
    """Of a class of a user."""


def last_line(error: BaseException) -> str:
    """The last line of a traceback."""
    return "".join(traceback.format_exception(error)).rstrip().splitlines()[-1]


@pytest.mark.parametrize("kind", CLASSES)
def test_the_last_line_of_a_traceback_names_the_page(kind: type[errors.PenstockError]) -> None:
    """With notes and without, and also after pickling and copying, which add nothing; the message stays what it was."""
    error = kind("it is wrong", index=3)
    error.add_note("a note")

    for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(each) == "it is wrong [index=3]"
        assert each.__notes__ == ["a note", f"More: penstock explain {errors.name_page(kind)}"]
        assert last_line(each) == each.__notes__[-1]
    assert explain.find_page(kind.__name__) == errors.name_page(kind)


def test_an_error_of_a_users_class_names_the_page_of_its_base() -> None:
    """The nearest one that penstock has."""
    assert last_line(UsersError("no")) == "More: penstock explain decode"


def test_an_error_of_a_worker_names_its_page_once_at_the_end() -> None:
    """The worker's traceback is a note and ends with the line, also where torch's loader makes it the message."""
    try:
        raise ps.SampleError("it is wrong", index=3)  # noqa: TRY301  # an error with a traceback is wanted
    except ps.SampleError as error:
        rebuilt = CapturedError.capture(error).rebuild(1)
        of_torch = type(error)(f"Caught {''.join(traceback.format_exception(error))}")

    for each in (rebuilt, of_torch):
        assert last_line(each) == "More: penstock explain sample"
        assert "".join(traceback.format_exception(each)).count("More: penstock explain") == 1


def test_notes_can_be_set_and_must_be_text() -> None:
    """As those of other exceptions."""
    error = ps.StateError("no")
    error.__notes__ = ["one"]

    assert error.__notes__ == ["one", "More: penstock explain state"]
    with pytest.raises(TypeError, match="note must be a str"):
        error.add_note(1)  # type: ignore[arg-type]  # what is tested
