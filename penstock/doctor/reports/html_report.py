"""A diagnosis as one HTML page that needs no network: template, style and script are in the folder ``page``.

::

    Diagnosis ── to_json ──────────┐
    Recording ── page_events.py ───┼── JSON in a script element ── report.js draws it in the browser
    thumbnails of the caller ──────┘

The page's policy forbids every request and every script but its own. Text is escaped here where it is part of HTML, and
the script sets it as text, so that a key of a dataset cannot become markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.metadata
import importlib.resources
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.doctor.judge.diagnosis import Diagnosis
from penstock.doctor.reports.json_report import replace_file, to_json
from penstock.doctor.reports.page_events import PAGE_STAGES, draw_batches, draw_queue, draw_timeline
from penstock.doctor.reports.text_report import describe_ending, format_report

__all__ = ["format_html", "write_html"]

_MOST_THUMBNAIL_BYTES: Final = 65_536
_MOST_THUMBNAILS: Final = 24
_MOST_BYTES_OF_THUMBNAILS: Final = 400_000
_TYPES: Final = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}


def write_html(
    diagnosis: Diagnosis, path: str | os.PathLike[str], thumbnails: Mapping[int, bytes] | None = None
) -> None:
    """Write the page; it is there whole, or not at all.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of a script, or of a block.
    path : path
        Of the file.
    thumbnails : mapping of int to bytes, optional
        Small JPEG or PNG files of the slowest samples, by their indices. Those over 64 KiB, and what is over 400 kB
        together, are left out.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    replace_file(path, format_html(diagnosis, thumbnails))


def format_html(diagnosis: Diagnosis, thumbnails: Mapping[int, bytes] | None = None) -> str:
    """The page as text; see :func:`write_html`."""
    folder = importlib.resources.files("penstock.doctor.reports") / "page"
    template, style, script = ((folder / f"report.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    recording = diagnosis.recording
    values = {
        "report": to_json(diagnosis),
        "penstock": _find_version(),
        "ending": describe_ending(recording),
        "stages": PAGE_STAGES,
        "timeline": draw_timeline(recording),
        "batches": draw_batches(recording),
        "queue": draw_queue(recording),
        "thumbnails": _encode_thumbnails(diagnosis, thumbnails or {}),
    }
    parts = {
        "policy": html.escape(_make_policy(style, script)),
        "title": _escape(f"penstock doctor: {diagnosis.verdict.stage}"),
        "text": _escape(format_report(diagnosis)),
        "style": style,
        "report": _to_script_text(values),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _make_policy(style: str, script: str) -> str:
    """A content security policy: nothing is loaded, and nothing runs but the page's own script."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _to_script_text(value: Any) -> str:
    """JSON that a browser takes for nothing else within a script element: without ``<``, ``>`` and ``&``, in ASCII."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&"})


def _escape(text: str) -> str:
    return html.escape(text.encode("utf-8", "backslashreplace").decode())


def _encode_thumbnails(diagnosis: Diagnosis, thumbnails: Mapping[int, bytes]) -> dict[str, str]:
    """Addresses with the pictures in them, by index."""
    encoded: dict[str, str] = {}
    left = _MOST_BYTES_OF_THUMBNAILS
    for sample in diagnosis.samples[:_MOST_THUMBNAILS]:
        picture = thumbnails.get(sample.index, b"")
        kind = next((kind for start, kind in _TYPES.items() if picture.startswith(start)), None)
        if kind is None or len(picture) > min(_MOST_THUMBNAIL_BYTES, left):
            continue
        left -= len(picture)
        encoded[str(sample.index)] = f"data:{kind};base64,{base64.b64encode(picture).decode()}"
    return encoded


def _find_version() -> str:
    try:
        return importlib.metadata.version("penstock-data")
    except importlib.metadata.PackageNotFoundError:
        return "from a folder of its source"
