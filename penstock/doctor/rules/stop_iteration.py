"""Rule stop-iteration: ``StopIteration`` raised while one sample is made."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject
from penstock.loader import DataLoader as NumpyDataLoader

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """``raise StopIteration`` in ``__getitem__``, a transform, or what they call."""
    for function in subject.code.functions:
        iterates = function.begin in {"__iter__", "__next__"} or function.function.__name__ == "__next__"
        if iterates or inspect.isgeneratorfunction(function.function):
            continue
        lines = [function.line_of(node) for node in ast.walk(function.tree) if _raises_it(node)]
        if not lines:
            continue
        is_ours = isinstance(subject.loader, NumpyDataLoader) or type(subject.loader).__module__.startswith("penstock.")
        how = (
            "penstock makes it a SampleError; torch's loader would end the epoch there"
            if is_ours
            else "the loader takes it for the end of the epoch: the samples behind it are lost, without an error"
        )
        text = f"It raises StopIteration: {how}."
        yield Finding("stop-iteration", "error", function.where(*lines), text, "Raise IndexError or ValueError.")


def _raises_it(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise):
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "StopIteration"
