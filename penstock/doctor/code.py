"""The user's functions that make samples, and what they call, read from their source.

A function counts if it begins a sample (``__getitem__``, ``__iter__``, a transform's ``__call__``, a function that the
dataset holds, ...) or is called by one that counts. Functions of installed packages are not read: their authors answer
for them. A name stands for what it means there, so that ``np.random.rand``, ``numpy.random.rand`` and
``from numpy.random import rand`` are one. Where no source is to be had, nothing is said. Nothing is executed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import random
import sys
import textwrap
import types
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from penstock.datasets.user_code import is_user_code, unwrap_function

__all__ = ["Call", "Code", "Function"]

_BEGIN: Final = (
    "__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward", "load_samples", "fill", "transform",
)  # fmt: skip
_MOST_FUNCTIONS: Final = 500
# The generators behind numpy.random's and random's functions, which are their methods.
_NUMPY_GLOBAL: Final = np.random.rand.__self__  # type: ignore[attr-defined]  # the stub has it as a plain function
_PYTHON_GLOBAL: Final = random.random.__self__  # type: ignore[attr-defined]  # as above


@dataclass(frozen=True, slots=True)
class Call:
    """A call, by the full name of what is called (``numpy.random.rand``; ``.cuda`` for a method of anything)."""

    name: str
    line: int
    node: ast.Call


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the user's, as source.

    Parameters
    ----------
    function : function
        It.
    begin : str
        Name of the function that begins the sample.
    cls : type, optional
        The class of the object whose method it is, for ``self.``.
    tree : ast.AST
        Its source.
    first_line : int
        Line of the file that the tree's line 1 is.
    """

    function: types.FunctionType
    begin: str
    cls: type | None
    tree: ast.AST
    first_line: int
    calls: list[Call] = field(default_factory=list)

    def where(self, *lines: int) -> str:
        """Name, file and lines, for a finding."""
        file = Path(self.function.__code__.co_filename).name
        shown = ", ".join(map(str, sorted(set(lines)))) or str(self.function.__code__.co_firstlineno)
        return f"{self.function.__qualname__} ({file}, line {shown})"

    @property
    def mentions(self) -> set[str]:
        """Every name and attribute in it."""
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return names | {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}

    def line_of(self, node: Any) -> int:
        """The line of the file that a node of the tree is on."""
        return int(self.first_line + node.lineno - 1)


class Code:
    """The functions that begin a sample in any of ``objects``, and those that they call."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.functions: list[Function] = []
        self._seen: set[tuple[Any, type | None]] = set()
        waiting = deque(_beginnings(objects))
        while waiting and len(self.functions) < _MOST_FUNCTIONS:
            function, begin, cls = waiting.popleft()
            if (function.__code__, cls) in self._seen:
                continue
            self._seen.add((function.__code__, cls))
            if (source := _source(function)) is None:
                continue
            read = Function(function, begin, cls, *source)
            self.functions.append(read)
            for node in ast.walk(read.tree):
                if isinstance(node, ast.Call):
                    called = self._add_call(read, node)
                    if called is not None:
                        waiting.append((called, begin, cls if _is_own(read, node) else None))

    def calls(self, name: str) -> Iterator[tuple[Function, Call]]:
        """Calls of ``name``, or of anything in it if it ends with a dot."""
        for function in self.functions:
            for call in function.calls:
                if call.name == name or (name.endswith(".") and call.name.startswith(name)):
                    yield function, call

    def mentions(self, *names: str) -> bool:
        """Whether any function uses one of these names."""
        return any(not function.mentions.isdisjoint(names) for function in self.functions)

    def _add_call(self, read: Function, node: ast.Call) -> types.FunctionType | None:
        """Note a call; what it leads to, if that is a function of the user's."""
        if _is_own(read, node):
            assert isinstance(node.func, ast.Attribute)
            called = unwrap_function(inspect.getattr_static(read.cls, node.func.attr, None))
            name = f".{node.func.attr}"
        else:
            name, found = _resolve(read, node.func)
            called = unwrap_function(found)
        read.calls.append(Call(name, read.line_of(node), node))
        return called if isinstance(called, types.FunctionType) and is_user_code(called) else None


def _beginnings(objects: Iterable[Any]) -> Iterator[tuple[types.FunctionType, str, type | None]]:
    classes: set[type] = set()
    for value in objects:
        kind = type(value)
        if issubclass(kind, types.FunctionType):
            if is_user_code(value):
                yield value, "__call__", None
        elif kind not in classes:
            classes.add(kind)
            for name in _BEGIN:
                method = unwrap_function(inspect.getattr_static(kind, name, None))
                if isinstance(method, types.FunctionType) and is_user_code(method):
                    yield method, name, kind


def _source(function: types.FunctionType) -> tuple[ast.AST, int] | None:
    """The tree of a function's source, and the line where it begins; None where there is no source."""
    code = function.__code__
    if function.__name__ == "<lambda>":
        return _lambda(code)
    try:
        lines, first = inspect.getsourcelines(function)
        return ast.parse(textwrap.dedent("".join(lines))), first
    except (OSError, TypeError, SyntaxError, IndexError):  # typed at a prompt, generated, or changed since
        return None


def _lambda(code: types.CodeType) -> tuple[ast.AST, int] | None:
    """A lambda's source is a part of its file's: there is no line on which it stands alone."""
    try:
        tree = _file(code.co_filename)
    except SyntaxError:
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    return (found[0], 1) if len(found) == 1 else None


@cache
def _file(name: str) -> ast.AST:
    return ast.parse("".join(linecache.getlines(name)))


def _is_own(read: Function, node: ast.Call) -> bool:
    """Whether it calls a method of the same object."""
    own, code = node.func, read.function.__code__
    return (
        read.cls is not None
        and isinstance(own, ast.Attribute)
        and isinstance(own.value, ast.Name)
        and code.co_argcount > 0
        and own.value.id == code.co_varnames[0]
    )


def _resolve(read: Function, node: ast.expr) -> tuple[str, Any]:
    """The full name of what ``node`` means in this function, and the thing itself if it is there."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        chain.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return f".{chain[-1]}" if chain else "", None
    imported = _imports(read.tree).get(node.id)
    if imported is not None:
        chain = [*imported.split("."), *chain]
        value = sys.modules.get(chain[0])
        return _follow(chain[0], value, chain[1:])
    if node.id in read.function.__code__.co_varnames:
        return f".{chain[-1]}" if chain else "", None
    value = _captured(read.function).get(node.id, read.function.__globals__.get(node.id))
    return _follow(node.id, value, chain)


def _follow(name: str, value: Any, chain: list[str]) -> tuple[str, Any]:
    """From a name through modules, as far as they go."""
    while chain and isinstance(value, types.ModuleType):
        name = f"{value.__name__}.{chain[0]}"
        value, chain = vars(value).get(chain[0]), chain[1:]
    if chain:
        return (".".join([name, *chain]) if value is None else f".{chain[-1]}"), None
    return _canonical(name, value), value


def _canonical(name: str, value: Any) -> str:
    """One name for what can be imported from several places."""
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


def _imports(tree: ast.AST) -> dict[str, str]:
    """What a function imports itself, by the name that it gives it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _captured(function: types.FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a variable that was never set
            continue
    return found
