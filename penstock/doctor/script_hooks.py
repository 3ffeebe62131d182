"""Steps that a framework calls: ``training_step`` of a ``LightningModule``, whose batches are on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from penstock.doctor.batch_places import Place
from penstock.doctor.known_objects import KnownObject, describe_object
from penstock.doctor.script_reader import StepReader
from penstock.doctor.script_scope import Scope, find_method, find_tensor_names
from penstock.doctor.script_source import read_source
from penstock.doctor.script_values import SourceLine, Value

__all__ = ["read_hooks"]

_MODULES: Final = frozenset({"LightningModule"})
_STEP: Final = "training_step"


def read_hooks(stack: Sequence[Place], reader: StepReader) -> SourceLine | None:
    """Read the training step of a framework's module that a function of the user has.

    Returns
    -------
    SourceLine, optional
        The step; None if there is none, or if the module is on the CPU of a machine with a device.
    """
    for known in _find_modules(stack):
        function = find_method(known.kind, _STEP)
        source = None if function is None else read_source(function.__code__.co_filename)
        if function is None or source is None:
            continue
        if known.device == "cpu" and torch.accelerator.is_available():
            continue
        tree = source.find_function(function.__code__)
        names = [] if tree is None else [each.arg for each in tree.args.args]
        if tree is None or len(names) < 2 or isinstance(tree.body, list) is False:  # self and the batch
            continue
        scope = Scope(source, function.__globals__, function.__qualname__, {names[0]: known})
        # Lightning calls backward on what the step returns; names that it returns are not looked for.
        scope.tensors = find_tensor_names(tree)
        scope.set(names[1], Value("device"))
        body = tree.body
        if isinstance(body, list):
            reader.read_block(body, scope)
        return SourceLine(source.name, tree.lineno, scope.function)
    return None


def _find_modules(stack: Sequence[Place]) -> Iterator[KnownObject]:
    for place in stack:
        yield from (known for known in place.names.values() if _is_module(known.kind))
        for value in list(place.namespace.values()):
            if _is_module(type(value)):
                yield describe_object(value)


def _is_module(kind: type) -> bool:
    return any(base.__name__ in _MODULES for base in kind.__mro__)
