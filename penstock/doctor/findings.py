"""What a check says: findings, and the report that lists them. It decides nothing and prints nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, overload

__all__ = ["Finding", "Report", "Severity"]

Severity = Literal["error", "warning", "note"]
_ORDER: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One trap.

    Parameters
    ----------
    rule : str
        Which rule found it, as docs/check.md lists them.
    severity : {"error", "warning", "note"}
        "error": it fails, hangs or gives wrong samples; "warning": it costs time or memory, or fails in a usual
        case; "note": harmless as the loader is set now, or wrong only for some.
    where : str
        The place: an attribute path (``dataset.files[3]``), a function with file and line, or an argument.
    what : str
        What is there, and why it hurts.
    advice : str
        What to change.
    """

    rule: str
    severity: Severity
    where: str
    what: str
    advice: str

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.where}  [{self.rule}]"]
        for mark, text in (("  ", self.what), ("  -> ", self.advice)):
            lines += textwrap.wrap(
                text, 100, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False
            )
        return "\n".join(lines)


class Report(Sequence[Finding]):
    """Findings, the gravest first; true if there are any; as text, for a person.

    Parameters
    ----------
    findings : iterable of Finding
        In the order in which they were found.
    complete : bool
        False if the dataset has more objects than a check looks at.
    """

    def __init__(self, findings: Iterable[Finding] = (), *, complete: bool = True) -> None:
        self._findings = tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))
        self.complete = complete

    def __len__(self) -> int:
        return len(self._findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Report: ...
    def __getitem__(self, index: int | slice) -> Finding | Report:
        if isinstance(index, slice):
            return Report(self._findings[index], complete=self.complete)
        return self._findings[index]

    def __repr__(self) -> str:
        counts = [(sum(finding.severity == severity for finding in self), severity) for severity in _ORDER]
        parts = [f"{count} {severity}{'s' * (count > 1)}" for count, severity in counts if count]
        paragraphs = [", ".join(parts) or "nothing found", *map(str, self)]
        if not self.complete:
            paragraphs.append("The dataset has more objects than were looked at: what lies deeper was not seen.")
        return "\n\n".join(paragraphs)
