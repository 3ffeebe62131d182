"""The user's functions that make samples, and the functions that they call, read from their source.

The entry points are ``__getitem__``, ``__iter__``, a transform's ``__call__``, functions that the dataset holds, and so
on. From there, calls are followed. Functions of installed packages are not read. Names are resolved, so
``np.random.rand``, ``numpy.random.rand`` and ``from numpy.random import rand`` are the same. A function without source
is skipped. Nothing is executed.
"""

from __future__ import annotations

import ast
import inspect
import random
import sys
import textwrap
import types
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import torch

from penstock.datasets.user_code import is_user_code, unwrap_function
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.watching.steps.source import read_source

__all__ = ["FunctionCall", "UserFunction", "UserFunctions"]

_ENTRY_POINTS: Final = (
    "__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward", "load_samples", "fill", "transform",
)  # fmt: skip
_MAX_FUNCTIONS: Final = 500
# The functions of numpy.random and random are methods of these generators.
_NUMPY_GLOBAL: Final = np.random.rand.__self__  # type: ignore[attr-defined]  # the stub has it as a plain function
_PYTHON_GLOBAL: Final = random.random.__self__  # type: ignore[attr-defined]  # as above


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call, by the full name of the function (``numpy.random.rand``), or ``.cuda`` for a method of any object."""

    name: str
    line: int
    node: ast.Call


@dataclass(frozen=True, slots=True)
class UserFunction:
    """The source of one of the user's functions."""

    function: types.FunctionType
    entry_point: str  # name of the entry point from which it is called
    cls: type | None  # the class whose method it is, to resolve ``self.``
    tree: ast.AST  # its source, in the file's tree
    calls: list[FunctionCall] = field(default_factory=list)

    def describe(
        self, rule: str, severity: Severity, lines: Iterable[int], what: str, advice: str, cost: str = ""
    ) -> Finding:
        """Return a finding about lines of the file."""
        function, file = self.function.__qualname__, self.function.__code__.co_filename
        return Finding.at_lines(rule, severity, function, file, lines, what, advice, cost)

    @property
    def mentions(self) -> set[str]:
        """All names and attributes in the source."""
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return names | {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}


class UserFunctions:
    """The entry points in ``objects``, and the functions that they call."""

    def __init__(self, objects: Iterable[object]) -> None:
        self.functions: list[UserFunction] = []
        seen: set[tuple[types.CodeType, type | None]] = set()
        waiting = deque(_find_entry_points(objects))
        while waiting and len(self.functions) < _MAX_FUNCTIONS:
            function, entry_point, cls = waiting.popleft()
            if (function.__code__, cls) in seen:
                continue
            seen.add((function.__code__, cls))
            source = read_source(function.__code__.co_filename)
            tree = _parse_lines(function) if source is None else source.find_function(function.__code__)
            if tree is None:  # typed at a prompt, generated, or edited since
                continue
            caller = UserFunction(function, entry_point, cls, tree)
            self.functions.append(caller)
            for node in ast.walk(caller.tree):
                if isinstance(node, ast.Call):
                    called = _add_call(caller, node)
                    if called is not None:
                        waiting.append((called, entry_point, cls if _calls_self(caller, node) else None))

    def __iter__(self) -> Iterator[UserFunction]:
        return iter(self.functions)

    def calls(self, name: str) -> Iterator[tuple[UserFunction, FunctionCall]]:
        """Calls of the function ``name``."""
        for function in self.functions:
            for call in function.calls:
                if call.name == name:
                    yield function, call

    def mentions(self, *names: str) -> bool:
        """Return whether any of the functions uses one of these names."""
        return any(not function.mentions.isdisjoint(names) for function in self.functions)


def _parse_lines(function: types.FunctionType) -> ast.AST | None:
    """A function whose file is no module of Python as a whole, such as a page with examples; None without source."""
    try:
        lines, first = inspect.getsourcelines(function)
        return ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _add_call(caller: UserFunction, node: ast.Call) -> types.FunctionType | None:
    """Record a call; return the called function if it is the user's."""
    if _calls_self(caller, node):
        assert isinstance(node.func, ast.Attribute)
        called = unwrap_function(inspect.getattr_static(caller.cls, node.func.attr, None))
        name = f".{node.func.attr}"
    else:
        name, value = _resolve(caller, node.func)
        called = unwrap_function(value)
    caller.calls.append(FunctionCall(name, node.lineno, node))
    return called if isinstance(called, types.FunctionType) and is_user_code(called) else None


def _find_entry_points(objects: Iterable[object]) -> Iterator[tuple[types.FunctionType, str, type | None]]:
    classes: set[type] = set()
    for value in objects:
        kind = type(value)  # isinstance() would call a proxy's __class__
        if issubclass(kind, types.FunctionType):
            function = cast("types.FunctionType", value)
            if is_user_code(function):
                yield function, "__call__", None
        elif kind not in classes:
            classes.add(kind)
            for name in _ENTRY_POINTS:
                method = unwrap_function(inspect.getattr_static(kind, name, None))
                if isinstance(method, types.FunctionType) and is_user_code(method):
                    yield method, name, kind


def _calls_self(caller: UserFunction, node: ast.Call) -> bool:
    """Return whether the call is of a method of the caller's own object (``self.method()``)."""
    called, code = node.func, caller.function.__code__
    return (
        caller.cls is not None
        and isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and code.co_argcount > 0
        and called.value.id == code.co_varnames[0]
    )


def _resolve(caller: UserFunction, node: ast.expr) -> tuple[str, object]:
    """The full name of what ``node`` means in this function, and the object if it can be found."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        chain.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return f".{chain[-1]}" if chain else "", None
    imported = _read_local_imports(caller.tree).get(node.id)
    if imported is not None:
        chain = [*imported.split("."), *chain]
        return _follow_modules(chain[0], sys.modules.get(chain[0]), chain[1:])
    if node.id in caller.function.__code__.co_varnames:
        return f".{chain[-1]}" if chain else "", None
    value = _read_captured_variables(caller.function).get(node.id, caller.function.__globals__.get(node.id))
    return _follow_modules(node.id, value, chain)


def _follow_modules(name: str, value: object, chain: list[str]) -> tuple[str, object]:
    """Resolve the attributes ``chain`` of ``value`` as long as it is a module."""
    while chain and isinstance(value, types.ModuleType):
        name = f"{value.__name__}.{chain[0]}"
        value, chain = vars(value).get(chain[0]), chain[1:]
    if chain:
        return (".".join([name, *chain]) if value is None else f".{chain[-1]}"), None
    return _canonical_name(name, value), value


def _canonical_name(name: str, value: object) -> str:
    """Return one name for a function that can be imported from several modules."""
    owner, own = getattr(value, "__self__", None), getattr(value, "__name__", "")
    if owner is _PYTHON_GLOBAL:
        return f"random.{own}"
    if owner is _NUMPY_GLOBAL:
        return f"numpy.random.{own}"
    if isinstance(value, types.BuiltinFunctionType) and own and vars(torch).get(own) is value:
        return f"torch.{own}"
    if isinstance(value, (types.FunctionType, type)):
        return f"{value.__module__}.{value.__qualname__}"
    return name


def _read_local_imports(tree: ast.AST) -> dict[str, str]:
    """Return the imports inside a function: local name to full name."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _read_captured_variables(function: types.FunctionType) -> dict[str, object]:
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # a variable without a value
            continue
    return values
