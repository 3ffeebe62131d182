"""Reads the calls of a training step: copies, casts, waits, and the user's functions that are called.

:class:`CallReader` is the part of :class:`penstock.doctor.checks.script.reader.StepReader` for calls.
"""

from __future__ import annotations

import ast
import types
from dataclasses import replace
from typing import Any, Final

import torch

from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.script.expressions import ExpressionReader
from penstock.doctor.checks.script.known_objects import WRAPPED, KnownObject
from penstock.doctor.checks.script.scope import Scope, find_method
from penstock.doctor.checks.script.source import Function
from penstock.doctor.checks.script.tensor_methods import (
    CASTS,
    COPIES,
    HOST_RESULTS,
    JOINS,
    NEW_ARRAYS,
    TENSOR_RESULTS,
    VIEWS,
    WAITS,
)
from penstock.doctor.checks.script.values import Value, join_values

__all__ = ["CallArguments", "CallReader"]

_CLEANUPS: Final = frozenset(
    {"gc.collect", "torch.cuda.empty_cache", "torch.cuda.memory.empty_cache", "torch.mps.empty_cache"}
)
_BARRIERS: Final = frozenset({"torch.cuda.synchronize", "torch.accelerator.synchronize", "torch.mps.synchronize"})
_NUMBERS: Final = frozenset({"float", "int", "bool", "complex", "str", "print", "round"})
_PASSED: Final = frozenset({"list", "tuple", "iter", "reversed", "sorted", "dict", "copy.copy", "set"})
_SHARED: Final = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.asarray"})
_NO_TENSORS: Final = frozenset({"torch.is_tensor", "torch.save", "torch.numel", "torch.is_floating_point"})


class CallReader(ExpressionReader):
    """Evaluates calls.

    Attributes
    ----------
    is_training : bool
        Whether ``backward`` was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_training = False

    def follow(
        self, function: types.FunctionType | Function, scope: Scope, arguments: CallArguments,
        owner: KnownObject | None = None,
    ) -> Value | None:  # fmt: skip
        """Read a function that is called; of the subclass."""
        raise NotImplementedError

    def is_source(self, node: ast.Call, scope: Scope) -> bool:
        """Whether the call takes a batch from the loader; of the subclass."""
        raise NotImplementedError

    def loaded(self) -> Value:
        """A batch of the loader; of the subclass."""
        raise NotImplementedError

    def call(self, node: ast.Call, scope: Scope) -> Value | None:
        """A call of a function or a method."""
        if self.is_source(node, scope):
            return self.loaded()
        owner = self.read(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        arguments = CallArguments(self, node, scope)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "backward":
                self.is_training = True
            if owner is not None:
                return self._call_method(node, node.func.attr, owner, scope)
        return self._call_function(node, arguments, scope)

    # methods of tensors and of batches

    def _call_method(self, node: ast.Call, name: str, owner: Value, scope: Scope) -> Value | None:  # noqa: PLR0911  # cases
        if name == "to" or name in COPIES:
            return self._move(node, name, owner, scope)
        if name in WAITS:
            if owner.is_on_device:
                self.emit("wait", node, scope, owner)
            return owner if name == "cpu" and not owner.is_on_device else None
        if name == "items":
            return Value("parts", parts=(Value("parts", parts=(None, owner.element())),))
        if name == "values":
            return owner
        if name in {"get", "pop"} and node.args and isinstance(node.args[0], ast.Constant):
            return owner.part(node.args[0].value)
        if name in HOST_RESULTS and not (name == "type" and node.args):
            return None
        if owner.where == "device":
            return Value("device", is_tensor=name in TENSOR_RESULTS)
        return self._call_host_method(node, name, owner, scope)

    def _call_host_method(  # noqa: PLR0911  # cases
        self, node: ast.Call, name: str, owner: Value, scope: Scope
    ) -> Value | None:
        if owner.where == "parts":
            return None
        if name in CASTS:
            return self.cast(node, owner, CASTS[name], scope)
        if name == "type":
            dtype = scope.device_of(node.args[0])[1]
            return self.cast(node, owner, dtype, scope) if dtype else None
        if name in {"div", "div_", "true_divide"} or (name in {"mul", "sub", "add"} and _has_float(node)):
            return self.cast(node, owner, "float32", scope) if not name.endswith("_") else owner
        if name in VIEWS:
            return owner
        if name == "pin_memory":
            return replace(owner, is_loaded=False)
        if name in TENSOR_RESULTS:
            return replace(owner, is_loaded=False, layout=owner.layout if owner.cast else None)
        return None

    def _move(self, node: ast.Call, name: str, owner: Value, scope: Scope) -> Value | None:
        """``Tensor.to``, ``Tensor.cuda`` and the like."""
        device, dtype, non_blocking = _read_target(node, name, scope)
        if owner.is_on_device:
            if device == "cpu" and non_blocking is False:
                self.emit("wait", node, scope, owner)
            return None if device == "cpu" else owner
        if device == "device":
            value = self.cast(node, owner, dtype, scope) if dtype else owner
            if value.cast is not None:
                self.emit("cast", node, scope, value, line=value.cast)
            self.emit("copy", node, scope, owner, non_blocking=non_blocking)
            return Value("device", is_tensor=owner.is_tensor)
        if device == "cpu":
            return owner
        return self.cast(node, owner, dtype, scope) if dtype else None

    # functions

    def _call_function(  # noqa: PLR0911  # cases
        self, node: ast.Call, arguments: CallArguments, scope: Scope
    ) -> Value | None:
        name, known = scope.resolve(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in scope.functions:
            return self.follow(scope.functions[node.func.id], scope, arguments)
        if known is not None:
            found = self._find_called(known)
            if found is not None:
                return self.follow(found[0], scope, arguments, found[1])
        if known is not None and issubclass(known.kind, torch.nn.Module):
            is_loss = known.kind.__module__ == "torch.nn.modules.loss"
            return Value("device", is_tensor=is_loss) if arguments.is_on_device else None
        if name in _CLEANUPS:
            self.emit("cleanup", node, scope)
            return None
        if name in _BARRIERS:
            self.emit("wait", node, scope)
            return None
        if name.rpartition(".")[2] in {"set_postfix", "add_scalar"}:
            if any(value.is_device_tensor for value in arguments.all()):
                self.emit("wait", node, scope)
            return None
        if name in _NUMBERS:
            if any(value.is_device_tensor for value in arguments.all()):
                self.emit("wait", node, scope)
            return None
        return self._call_known_name(node, name, arguments, scope)

    def _call_known_name(  # noqa: PLR0911  # cases
        self, node: ast.Call, name: str, arguments: CallArguments, scope: Scope
    ) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        if name in _PASSED:
            return first
        if name == "next":
            return None if first is None else first.element()
        if name == "enumerate":
            return None if first is None else _listed(None, first.element())
        if name == "zip":
            elements = [None if value is None else value.element() for value in arguments.positional]
            return _listed(*elements) if any(elements) else None
        if name == "map" and len(node.args) > 1:
            return self._map(node, arguments, scope)
        if name.startswith(("torch.", "numpy.")) or name in JOINS:
            return self._call_library(node, name, arguments, scope)
        return Value("device") if arguments.is_on_device else None

    def _call_library(self, node: ast.Call, name: str, arguments: CallArguments, scope: Scope) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        if name == "torch.tensor":
            is_array = first is not None and first.layout is not None and first.layout.kind == "array"
            if is_array or (node.args and _makes_array(node.args[0], scope)):
                self.emit("tensor", node, scope, first)
        if name == "torch.tensor" or name in _SHARED:
            device = next((scope.device_of(each.value)[0] for each in node.keywords if each.arg == "device"), "")
            if device == "device":
                return Value("device", is_tensor=True)
            return None if first is None else replace(first, is_loaded=False, is_tensor=True)
        if arguments.is_on_device:
            return Value("device", is_tensor=name not in _NO_TENSORS and not name.startswith("torch.distributed"))
        if name in JOINS and any(value.where != "device" for value in arguments.all()):
            self.emit("join", node, scope, first)
            return Value("host", is_tensor=True)
        return None

    def _map(self, node: ast.Call, arguments: CallArguments, scope: Scope) -> Value | None:
        """``map(function, values)``."""
        value = arguments.positional[1]
        called = CallArguments(self, node, scope, [None if value is None else value.element()])
        function: Any = node.args[0]
        if isinstance(function, ast.Lambda):
            return self.follow(function, scope, called)
        known = scope.resolve(function)[1]
        found = None if known is None else self._find_called(known)
        return None if found is None else self.follow(found[0], scope, called, found[1])

    def _find_called(self, known: KnownObject) -> tuple[types.FunctionType, KnownObject | None] | None:
        """The user's function that runs if this object is called, and what it is bound to."""
        if known.function is not None:
            return (known.function, known.owner) if is_user_code(known.function) else None
        if issubclass(known.kind, type):
            return None
        for name in WRAPPED:  # torch.compile, DistributedDataParallel
            inner = known.attributes.get(name)
            if inner is not None and issubclass(inner.kind, torch.nn.Module):
                return self._find_called(inner)
        name = "forward" if issubclass(known.kind, torch.nn.Module) else "__call__"
        function = find_method(known.kind, name)
        return None if function is None else (function, known)


class CallArguments:
    """The values of a call's arguments.

    Parameters
    ----------
    reader : CallReader
        Evaluates them.
    node : ast.Call
        The call.
    scope : Scope
        Of the caller.
    positional : list, optional
        In the place of the call's own.
    """

    def __init__(
        self, reader: CallReader, node: ast.Call, scope: Scope, positional: list[Value | None] | None = None
    ) -> None:
        self.positional: list[Value | None] = []
        self.named: dict[str, Value | None] = {}
        self.known: dict[int | str, KnownObject | None] = {}
        self.starred: Value | None = None
        if positional is not None:
            self.positional = positional
            return
        for number, each in enumerate(node.args):
            value = reader.read(each, scope)
            if isinstance(each, ast.Starred):
                self.starred = join_values(self.starred, value)
            else:
                self.positional.append(value)
                self.known[number] = scope.resolve(each)[1] if isinstance(each, (ast.Name, ast.Attribute)) else None
        for keyword in node.keywords:
            value = reader.read(keyword.value, scope)
            if keyword.arg is None:
                self.starred = join_values(self.starred, None if value is None else value.element())
            else:
                self.named[keyword.arg] = value
                if isinstance(keyword.value, (ast.Name, ast.Attribute)):
                    self.known[keyword.arg] = scope.resolve(keyword.value)[1]

    def all(self) -> list[Value]:
        """Those that come from the batch."""
        return [value for value in (*self.positional, *self.named.values(), self.starred) if value is not None]

    @property
    def is_on_device(self) -> bool:
        """Whether one of them is on the device."""
        return any(value.is_on_device for value in self.all())

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two calls the same."""
        return tuple(self.positional), tuple(self.named.items()), self.starred


def _read_target(node: ast.Call, name: str, scope: Scope) -> tuple[str, str, bool | None]:
    """Device, type and ``non_blocking`` of a call of ``Tensor.to`` or of a method such as ``cuda``."""
    device, dtype, non_blocking = "device" if name in COPIES else "", "", _read_flag(None)
    if name == "to":
        for each in node.args:
            found = scope.device_of(each)
            device, dtype = device or found[0], dtype or found[1]
    elif len(node.args) > 1:
        non_blocking = _read_flag(node.args[1])
    for keyword in node.keywords:
        if keyword.arg is None:
            non_blocking = None
        elif keyword.arg == "device":
            device = scope.device_of(keyword.value)[0]
        elif keyword.arg == "dtype":
            dtype = scope.device_of(keyword.value)[1]
        elif keyword.arg == "non_blocking":
            non_blocking = _read_flag(keyword.value)
    return device, dtype, non_blocking


def _listed(*elements: Value | None) -> Value:
    """A list of tuples of such elements."""
    return Value("parts", parts=(Value("parts", parts=elements),))


def _read_flag(node: ast.expr | None) -> bool | None:
    """A flag; None if it is not known."""
    if node is None:
        return False
    return bool(node.value) if isinstance(node, ast.Constant) else None


def _has_float(node: ast.Call) -> bool:
    return len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, float)


def _makes_array(node: ast.expr, scope: Scope) -> bool:
    """Whether an expression is a call of NumPy that returns a new array."""
    if not isinstance(node, ast.Call):
        return False
    return scope.resolve(node.func)[0] in NEW_ARRAYS
