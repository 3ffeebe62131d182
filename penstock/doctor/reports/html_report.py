"""A diagnosis as one small HTML page without a script and without a request."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.doctor.judge.text_report import (
    ABSENCE_COLUMNS,
    ESTIMATED,
    STAGE_COLUMNS,
    Diagnosis,
    describe_ending,
    format_absence,
    format_measured,
    format_stage,
)
from penstock.doctor.reports.json_report import open_new

__all__ = ["format_html", "write_html"]

_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { padding: .2rem .8rem; text-align: right; vertical-align: top }
td:first-child, th:first-child, .text td { text-align: left; overflow-wrap: anywhere }
tr + tr td { border-top: 1px solid #8884 }
pre { overflow-x: auto; padding: .5rem; background: #8882 }
"""


def write_html(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page; it is there whole, or not at all.

    Raises OSError if the file cannot be written.
    """
    with open_new(path) as file:
        file.write(format_html(diagnosis))


def format_html(diagnosis: Diagnosis) -> str:
    """Return the page as text. All text of the script and the dataset is escaped."""
    verdict, recording = diagnosis.verdict, diagnosis.recording
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    alone = f"{verdict.loader:,.0f}" if verdict.loader else "not measured"
    speeds = f"{verdict.delivered:,.0f}", f"{verdict.trainer:,.0f}", alone, f"{verdict.waiting:.0%}"
    parts = [
        f"<h1>{_escape(verdict.stage)}</h1><p>{_escape(verdict.text)}</p>",
        f"<p>{_escape(' '.join(recording.command))} {_escape(describe_ending(recording))}</p>",
        _make_table(("samples/s delivered", "the trainer can take", "the loader alone", "waiting"), [speeds]),
        *(
            f"<h3>{number}. {_escape(each.change)}</h3><p>Measured: {format_measured(each.measured)}. "
            f"{_escape(each.reason)}</p><pre>{_escape(each.code)}</pre>"
            for number, each in enumerate(diagnosis.advice, 1)
        ),
        _make_table(ABSENCE_COLUMNS, map(format_absence, verdict.absences)),
        _make_table(STAGE_COLUMNS, map(format_stage, diagnosis.stages)),
        f"<p>{ESTIMATED}</p>",
        _make_table(
            ("slowest, ms", "index", "key"),
            ((f"{each.ms:,.1f}", str(each.index), each.key) for each in diagnosis.samples[:10]),
        ),
        _make_table(
            ("found", "where", "what", "advice"),
            ((f"{each.severity}: {each.rule}", each.where, each.what, each.advice) for each in diagnosis.findings),
            ' class="text"',
        ),
        *(f"<p>{_escape(note)}</p>" for note in diagnosis.notes),
        f"<p>More: penstock explain limit-{_escape(verdict.stage)}</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">"
        f"<title>penstock doctor: {_escape(verdict.stage)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _make_table(names: Sequence[str], rows: Iterable[Sequence[str]], attributes: str = "") -> str:
    """Return a table; nothing without rows."""
    lines = ["".join(f"<td>{_escape(cell)}</td>" for cell in row) for row in rows]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table{attributes}><tr>{head}</tr>{body}</table>" if lines else ""


def _escape(text: str) -> str:
    return html.escape(text.encode("utf-8", "backslashreplace").decode())
