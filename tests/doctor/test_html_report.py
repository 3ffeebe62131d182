"""The page: what is in it, and what cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.reports.html_report import format_html, write_html
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy


def test_the_page_holds_the_report() -> None:
    """Verdict, advice with its code, stages, samples, findings."""
    page = format_html(make_diagnosis())

    for text in ("Decoding limits the training", "DataLoader(..., num_workers=8)", "3.51 ms", "n0144", "global-random"):
        assert text in page


@pytest.mark.parametrize("diagnosis", [make_diagnosis(keys=HOSTILE), make_healthy()])
def test_nothing_is_loaded_or_run(diagnosis: Diagnosis) -> None:
    """There is no address, and no element that could have one; the policy forbids the rest."""
    page = format_html(diagnosis)

    assert (
        re.search(r"<(script|img|link|iframe|a)[ >]|https?:|src=|href=", re.sub(r"&[^;]+;.*?</td>", "", page)) is None
    )
    assert "default-src 'none'" in page


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_is_text(key: str) -> None:
    """Whatever a dataset calls its samples, the elements of the page stay the same."""
    diagnosis = make_diagnosis(keys=[key], notes=[key])
    diagnosis.recording.command = [key]
    diagnosis.verdict = replace(diagnosis.verdict, text=key)
    plain = make_diagnosis(keys=["key"], notes=["note"])

    page = format_html(diagnosis)

    assert re.findall(r"<[a-zA-Z!/]+", page) == re.findall(r"<[a-zA-Z!/]+", format_html(plain))
    page.encode()


def test_a_diagnosis_without_anything_is_a_page() -> None:
    """No stage, no sample, no advice."""
    page = format_html(replace(make_healthy(), stages=[], samples=[]))

    assert page.count("<table") == 1


def test_the_file_is_there_whole(tmp_path: Path) -> None:
    """It replaces one that is there, and leaves no other file."""
    (tmp_path / "page.html").write_text("old")

    write_html(make_diagnosis(), tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text() == format_html(make_diagnosis())
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
