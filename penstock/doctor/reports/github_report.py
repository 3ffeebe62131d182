"""A diagnosis for GitHub Actions: annotations on standard output, and the text report in the summary of the job.

An annotation is one line, ``::warning file=train.py,line=3,title=...::text``. Text is escaped as the runner asks, so
that a key of a dataset with a newline cannot give a command of its own.
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from penstock.doctor.checks.findings import Finding
from penstock.doctor.judge.text_report import Diagnosis, format_gain, format_report
from penstock.wording import escape_unprintable

__all__ = ["list_annotations", "print_annotations"]

_LEVELS: Final = {"error": "error", "warning": "warning", "note": "notice"}
_PLACE: Final = re.compile(r"(?P<file>[^\s:,()]+\.py)(?::|, line )(?P<line>\d+)")


def list_annotations(diagnosis: Diagnosis) -> Iterator[str]:
    """List annotations: the verdict (a notice if nothing can be gained), then the findings."""
    verdict = diagnosis.verdict
    level = "notice" if verdict.stage in {"none", "step"} else "warning"
    best = next(iter(diagnosis.advice), None)
    text = verdict.text
    if best is not None:
        gain = "" if best.measured is None else f" ({format_gain(best.measured.median)})"
        text = f"{text}\nFirst change: {best.change}{gain}"
    yield _format_command(level, text, title=f"penstock doctor: {verdict.stage}, {verdict.waiting:.0%} waiting")
    for finding in diagnosis.findings:
        yield _annotate(finding)


def print_annotations(diagnosis: Diagnosis, file: TextIO | None = None) -> None:
    """Print the annotations, and append the text report to the file that ``GITHUB_STEP_SUMMARY`` names, if it is set.

    Raises OSError if that file cannot be written.
    """
    stream = sys.stdout if file is None else file
    for line in list_annotations(diagnosis):
        stream.write(f"{line}\n")
    stream.flush()
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as summary:
            report = html.escape(format_report(diagnosis).encode("utf-8", "backslashreplace").decode(), quote=False)
            summary.write(f"<pre>\n{report}\n</pre>\n")


def _annotate(finding: Finding) -> str:
    text = f"{finding.where}: {finding.what}\n{finding.advice}"
    if finding.cost:
        text += f"\nCosts {finding.cost}."
    text += f"\nMore: penstock explain {finding.rule}"
    where = _find_place(finding)
    return _format_command(_LEVELS[finding.severity], text, **where, title=f"penstock doctor: {finding.rule}")


def _find_place(finding: Finding) -> dict[str, str]:
    """File and line, as seen from the folder in which the command runs: in CI, that of the repository."""
    if finding.file:
        path = Path(finding.file)
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
        return {"file": str(shown), "line": str(finding.line)}
    place = _PLACE.search(finding.where)
    return {} if place is None else {"file": place["file"], "line": place["line"]}


def _format_command(level: str, text: str, **properties: str) -> str:
    pairs = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
    return f"::{level} {pairs}::{_escape(text)}"


def _escape(text: str, also: str = "") -> str:
    """Percent-encode what would end a command or a property; other characters that do not print as Python does."""
    lines = [escape_unprintable(line) for line in text.split("\n")]
    escaped = "\n".join(lines)
    for char in ("%", "\n", *also):
        escaped = escaped.replace(char, f"%{ord(char):02X}")
    return escaped
