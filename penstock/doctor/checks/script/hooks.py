"""What is done in the user's functions that a step calls: hooks, callbacks, the step of a framework's module.

The loop of a trainer in a library is not read. The user's functions that it calls were seen with their arguments
(:mod:`penstock.doctor.checks.script.step_calls`), and are read with these.
"""

from __future__ import annotations

import torch

from penstock.doctor.checks.script.batch_places import BatchPlaces
from penstock.doctor.checks.script.reader import StepReader
from penstock.doctor.checks.script.scope import Scope, find_tensor_names
from penstock.doctor.checks.script.source import read_source
from penstock.doctor.checks.script.step_calls import SeenValue, StepCall
from penstock.doctor.checks.script.values import SourceLine, Value

__all__ = ["read_calls"]


def read_calls(places: BatchPlaces, reader: StepReader, *, is_moved: bool) -> SourceLine | None:
    """Read the functions that were called in each step that was seen.

    Parameters
    ----------
    places : BatchPlaces
        Where batches were taken.
    reader : StepReader
        Collects what is found.
    is_moved : bool
        Whether, on a machine without a device, the batches are taken to be where a device would have them.

    Returns
    -------
    SourceLine, optional
        The first of the functions; None if there is none.
    """
    calls = places.calls.calls()
    uses_device = is_moved or reader.copies
    lines = [_read_call(call, reader, is_moved=is_moved, uses_device=uses_device) for call in calls]
    if reader.copies and not uses_device:  # one of them copies: what is computed afterwards is on the device
        for call in calls:
            _read_call(call, reader, is_moved=is_moved, uses_device=True)
    reader.is_training = reader.is_training or places.calls.trains
    return next((line for line in lines if line is not None), None)


def _read_call(call: StepCall, reader: StepReader, *, is_moved: bool, uses_device: bool) -> SourceLine | None:
    source = read_source(call.code.co_filename)
    tree = None if source is None else source.find_function(call.code)
    if source is None or tree is None or not isinstance(tree.body, list):
        return None
    name = call.code.co_qualname.replace("<locals>.", "")
    scope = Scope(source, call.namespace, name, dict(call.names))
    scope.tensors = find_tensor_names(tree)
    for key, seen in call.values.items():
        is_given = seen.is_batch or "." not in key
        value = _value_of(seen, is_moved=is_moved and is_given, uses_device=uses_device)
        scope.set(key, value)
        if value is not None and value.where == "device":
            for name, part in zip(seen.layout.names, seen.layout.parts, strict=True):
                if part.kind == "tensor" and isinstance(name, (str, int)):
                    scope.set(f"{key}[{name!r}]", Value("device", is_tensor=True))
    reader.read_block(tree.body, scope)
    return SourceLine(source.name, tree.lineno, scope.function)


def _value_of(seen: SeenValue, *, is_moved: bool, uses_device: bool) -> Value | None:
    """What is known of an argument; where there is no device, of what would be on it."""
    is_tensor = seen.layout.kind == "tensor"
    if seen.is_on_device:
        return Value("device", is_tensor=is_tensor)
    would_be = is_moved or (uses_device and seen.is_computed)
    if would_be and not torch.accelerator.is_available():
        return Value("device", is_tensor=is_tensor)
    if seen.is_batch:
        return Value("host", seen.layout, is_loaded=seen.is_same, is_tensor=is_tensor)
    return None
