"""Rule tensor-copies: ``torch.tensor`` of an array, where torch could use the array itself.

Steps are observed, and the functions that make samples are read. If there is time, batches are also made in a child
process, which shows what is copied and what that costs. An array is reported only if it is new: a copy of an array
that the dataset holds may be meant as one, since the sample may be changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.functions import FunctionCall, UserFunction
from penstock.doctor.checks.script.subject import ScriptSubject, describe_events, quote_events
from penstock.doctor.checks.trap_trials import TensorCopy, measure_tensor_copies

__all__ = ["find"]

_MOST_S: Final = 3.0
_LEAST_NBYTES: Final = 1 << 12
_NOTABLE: Final = 0.05
"""Part of the time of a batch from which copies are worth a warning."""
_NEW_ARRAYS: Final = frozenset(
    f"numpy.{name}"
    for name in ("array", "stack", "concatenate", "zeros", "ones", "empty", "full", "load", "vstack", "hstack")
)
"""Functions that return a new array, which nobody else has."""
_ADVICE: Final = "Use torch.from_numpy or torch.as_tensor, which share the array's memory."


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``torch.tensor`` of new arrays, in the loop and where samples are made."""
    for events in subject.events("tensor", each_step=True):
        text = f"{quote_events(events)} copies an array that torch could use as it is, in the main process."
        yield describe_events("tensor-copies", "warning", events, text, _ADVICE)
    looked = list(_look(subject))
    copies = measure_tensor_copies(subject.samples.loader, min(subject.left_s, _MOST_S)) if subject.left_s else None
    yield from looked if copies is None else _describe_trial(looked, copies)


def _look(subject: ScriptSubject) -> Iterator[Finding]:
    for function in subject.samples.functions:
        lines = [call.line for call in function.calls if call.name == "torch.tensor" and _copies(function, call)]
        if lines:
            text = "torch.tensor copies a NumPy array that was just made."
            yield function.describe("tensor-copies", "note", lines, text, _ADVICE)


def _describe_trial(findings: Sequence[Finding], copies: Sequence[TensorCopy]) -> list[Finding]:
    """The findings with those of a trial, which takes the place of what was found by looking at the same function."""
    seen = {(copy.file, copy.function) for copy in copies}
    kept = [
        each
        for each in findings
        if each.rule != "tensor-copies"
        or (each.file, each.where.partition(" (")[0].replace("<locals>.", "")) not in seen
    ]
    return [*kept, *(_describe_copy(copy) for copy in copies if copy.nbytes >= _LEAST_NBYTES)]


def _describe_copy(copy: TensorCopy) -> Finding:
    share = copy.seconds / copy.batch_s if copy.batch_s else 0.0
    severity: Severity = "warning" if share >= _NOTABLE else "note"
    nbytes = f"{copy.nbytes / 1e6:.1f} MB"
    what, advice = f"torch.tensor copies new NumPy arrays: {nbytes} a batch.", _ADVICE
    if copy.is_list:
        what = f"torch.tensor converts lists of NumPy arrays one element at a time: {nbytes} a batch."
        advice = "Use torch.from_numpy(np.stack(arrays)), or torch.stack of tensors."
    cost = f"{1e3 * copy.seconds:.2g} ms of the {1e3 * copy.batch_s:.3g} ms in which one worker makes a batch"
    return Finding.at_lines("tensor-copies", severity, copy.function, copy.file, [copy.line], what, advice, cost)


def _copies(function: UserFunction, call: FunctionCall) -> bool:
    if len(call.node.args) != 1 or call.node.keywords:  # another type or device needs a copy anyway
        return False
    given: ast.expr | None = call.node.args[0]
    if isinstance(given, ast.Name):
        given = _find_only_value(function, given.id)
    names = {id(each.node): each.name for each in function.calls}
    if not isinstance(given, ast.Call) or names.get(id(given)) not in _NEW_ARRAYS:
        return False
    return not any(keyword.arg == "mmap_mode" for keyword in given.keywords)


def _find_only_value(function: UserFunction, name: str) -> ast.expr | None:
    """What a name is assigned, if it is assigned once and used once."""
    nodes = [node for node in ast.walk(function.tree) if isinstance(node, ast.Name) and node.id == name]
    if len(nodes) != 2:  # one assignment, one use
        return None
    values = [
        node.value
        for node in ast.walk(function.tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and node.targets[0] in nodes
    ]
    return values[0] if len(values) == 1 else None
