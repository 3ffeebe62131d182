"""The result of a check: findings, and the report that lists them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, overload

from penstock.doctor.watching.steps.source import name_lines

__all__ = ["Finding", "Report", "Severity"]

Severity = Literal["error", "warning", "note"]
_ORDER: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake.

    Parameters
    ----------
    rule : str
        The name of the rule, as in docs/check.md.
    severity : {"error", "warning", "note"}
        "error": the loader fails, hangs or gives wrong samples. "warning": it costs time or memory, or fails in common
        cases. "note": it has no effect with the present settings, or matters to some users only.
    where : str
        An attribute path (``dataset.files[3]``), a function with file and line, or an argument.
    what : str
        What is wrong, and what it costs.
    advice : str
        What to write instead.
    cost : str
        What it costs here, measured or computed; empty if that is not known.
    file : str
        The path of the file, where it is a line of a file.
    line : int
        Its number; 0 if it is none.
    """

    rule: str
    severity: Severity
    where: str
    what: str
    advice: str
    cost: str = ""
    file: str = ""
    line: int = 0

    @classmethod
    def at_lines(
        cls, rule: str, severity: Severity, function: str, file: str, lines: Iterable[int], what: str, advice: str,
        cost: str = "",
    ) -> Self:  # fmt: skip
        """Return a finding about lines of a file, in a function; ``function`` is empty at the top level."""
        numbers = sorted(set(lines))
        return cls(rule, severity, name_lines(function, file, numbers), what, advice, cost, file, numbers[0])

    @property
    def page(self) -> str:
        """The path of the page of the rule, in penstock's source."""
        return f"penstock/explain/pages/{self.rule}.md"

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.where}  [{self.rule}]"]
        for mark, text in (("  ", self.what), ("  -> ", self.advice)):
            lines += textwrap.wrap(
                text, 100, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False
            )
        return "\n".join([*lines, f"  More: penstock explain {self.rule}"])


class Report(Sequence[Finding]):
    """A sequence of findings, the most severe first. It is false if there are none; ``print`` shows it as text.

    Parameters
    ----------
    findings : iterable of Finding
        In the order in which the rules report them.
    complete : bool
        False if the dataset has more objects than a check visits.
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
            paragraphs.append("The dataset has more objects than a check visits. The rest was not checked.")
        return "\n\n".join(paragraphs)
