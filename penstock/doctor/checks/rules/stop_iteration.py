"""Rule stop-iteration: ``StopIteration`` raised while a sample is made."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject
from penstock.loader import DataLoader as NumpyDataLoader

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """Find ``raise StopIteration`` in ``__getitem__``, in transforms, and in the functions that they call."""
    for function in subject.functions:
        iterates = function.entry_point in {"__iter__", "__next__"} or function.function.__name__ == "__next__"
        if iterates or inspect.isgeneratorfunction(function.function):
            continue
        raises = [node for node in ast.walk(function.tree) if isinstance(node, ast.Raise)]
        lines = [function.line_of(node) for node in raises if _is_stop_iteration(node.exc)]
        if not lines:
            continue
        is_numpy = isinstance(subject.loader, NumpyDataLoader)
        is_penstock = is_numpy or type(subject.loader).__module__.startswith("penstock.")
        effect = (
            "penstock turns it into a SampleError, but torch's loader ends the epoch"
            if is_penstock
            else "the loader ends the epoch there, and the remaining samples are lost, without an error"
        )
        text = f"This function raises StopIteration: {effect}."
        advice = "Raise IndexError or ValueError instead."
        yield function.describe("stop-iteration", "error", lines, text, advice)


def _is_stop_iteration(raised: ast.expr | None) -> bool:
    if isinstance(raised, ast.Call):
        raised = raised.func
    return isinstance(raised, ast.Name) and raised.id == "StopIteration"
