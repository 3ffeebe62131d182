"""Annotations and the summary of a job, and exit codes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.checks.findings import Finding
from penstock.doctor.reports.github_report import list_annotations, print_annotations
from penstock.doctor.reports.script_report import exit_code
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy


def test_the_verdict_is_a_warning_and_findings_have_their_lines() -> None:
    """The verdict comes first, with the first change; a finding in a function is shown at its line."""
    lines = list(list_annotations(make_diagnosis()))

    assert lines[0].startswith("::warning title=penstock doctor%3A decode%2C 58%25 waiting::Decoding limits")
    assert lines[0].endswith("%0AFirst change: num_workers=8 (+98%25)")
    assert lines[1].startswith("::error file=train.py,line=31,title=penstock doctor%3A global-randomness::Photos")
    assert lines[2].startswith("::notice title=penstock doctor%3A loader-setting::pin_memory: ")


def test_a_healthy_script_is_a_notice() -> None:
    """Nothing to gain warns nobody."""
    assert [line[:9] for line in list_annotations(make_healthy())] == ["::notice "]


def test_text_of_the_dataset_gives_no_command() -> None:
    """An annotation is one printable line, whatever the keys and notes hold."""
    finding = Finding("a,b:c", "error", HOSTILE[2], HOSTILE[2], HOSTILE[3])
    diagnosis = make_diagnosis(findings=[finding])

    lines = list(list_annotations(diagnosis))

    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert lines[1].startswith("::error title=penstock doctor%3A a%2Cb%3Ac::line%0Abreak\\r%0A::error::forged")


def test_the_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary goes behind what other steps have written; annotations go to the stream."""
    path, stream = tmp_path / "summary.md", io.StringIO()
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))

    print_annotations(make_diagnosis(), stream)

    assert path.read_text().startswith("before\n<pre>\nDecoding limits")
    assert stream.getvalue().splitlines() == list(list_annotations(make_diagnosis()))


def test_without_a_summary_file_only_annotations_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of GitHub there is no such file."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    print_annotations(make_healthy())

    assert capsys.readouterr().out.startswith("::notice ")


def test_keys_are_no_markup_in_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key does not become HTML."""
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))

    print_annotations(make_diagnosis(keys=HOSTILE), io.StringIO())

    assert re.findall(r"<[^>]*>", path.read_text()) == ["<pre>", "</pre>"]
    assert "&lt;/script&gt;" in path.read_text()


@pytest.mark.parametrize(("limit", "code"), [(None, 0), (0.1, 1), (0.58, 0), (0.579, 1), (1.0, 0)])
def test_more_waiting_than_allowed_fails(limit: float | None, code: int) -> None:
    """The limit itself is allowed; without a limit nothing fails."""
    assert exit_code(make_diagnosis(), limit) == code


def test_of_ranks_the_one_that_waits_longest_counts() -> None:
    """A rank without a number is left out, and one that waits too long fails."""
    ranks: list[dict[str, Any]] = [
        {"rank": 0, "waiting": 0.01},
        {"rank": 1, "waiting": None},
        {"rank": 2, "waiting": 0.3},
    ]
    diagnosis = make_healthy()
    diagnosis.ranks = ranks

    assert [exit_code(diagnosis, limit) for limit in (0.2, 0.4)] == [1, 0]


def test_waiting_that_is_no_number_fails() -> None:
    """A limit is not met by what was not measured."""
    diagnosis = make_healthy()
    diagnosis.ranks = [{"rank": 0, "waiting": float("nan")}]

    assert exit_code(diagnosis, 0.5) == 1
