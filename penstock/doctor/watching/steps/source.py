"""The source of a script's files: functions by their first lines, expressions by their position."""

from __future__ import annotations

import ast
import itertools
import linecache
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["Position", "SourceFile", "SourceLine", "find_position", "name_lines", "read_source", "read_text"]

Position = tuple[int, int, int, int]
"""First line, last line, first column, last column; -1 where unknown."""


def name_lines(function: str, file: str, lines: Iterable[int]) -> str:
    """Lines of a file, in a function, as findings name them."""
    place = f"{Path(file).name}, line {', '.join(map(str, lines))}"
    return f"{function} ({place})" if function else place


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the script: its path, its number from 1, and the function that it is in, empty at the top level."""

    file: str
    line: int
    function: str = ""

    @classmethod
    def of(cls, code: types.CodeType, line: int) -> SourceLine:
        """Return a line of a function's code."""
        names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
        return cls(code.co_filename, line, ".".join(names))

    def __str__(self) -> str:
        return name_lines(self.function, self.file, [self.line])


class SourceFile:
    """One file.

    ``name``: of the file, as code objects have it. ``tree``: its source.
    """

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_function(self, code: types.CodeType) -> ast.AST | None:
        """Return the definition of a function.

        It is None if it is not there, or if it is one of several lambdas of one line.
        """
        found = self._functions.get((code.co_firstlineno, code.co_name), [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _functions(self) -> dict[tuple[int, str], list[ast.AST]]:
        """Definitions by their first line, decorators included, and their name."""
        found: dict[tuple[int, str], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                line = min(each.lineno for each in (node, *node.decorator_list))
                found.setdefault((line, node.name), []).append(node)
            elif isinstance(node, ast.Lambda):
                found.setdefault((node.lineno, "<lambda>"), []).append(node)
        return found

    def is_in_branch(self, line: int) -> bool:
        """Return whether a line is in one of two branches of a condition."""
        return any(
            isinstance(node, ast.If) and node.orelse and node.body[0].lineno <= line <= (node.end_lineno or 0)
            for node in ast.walk(self.tree)
        )

    def names_device(self) -> bool:
        """Return whether the source names a kind of device other than the CPU."""
        kinds = ("cuda", "accelerator", "mps", "xpu", "npu", "hpu")
        for node in ast.walk(self.tree):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if isinstance(name, str) and name.partition(":")[0] in kinds:
                return True
        return False


def read_source(name: str) -> SourceFile | None:
    """The file of this name; None if it cannot be read or is no Python source."""
    return _read(name, "".join(linecache.getlines(name)))


@cache
def _read(name: str, text: str) -> SourceFile | None:
    if not text:
        return None
    try:
        return SourceFile(name, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


def find_position(frame: types.FrameType) -> Position:
    """Return where the expression is that a frame evaluates now."""
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, column, last_column = (-1 if value is None else value for value in positions)
    return first, last, column, last_column


def read_text(name: str, position: Position) -> str:
    """Return the source at a position on one line."""
    first, last, column, last_column = position
    if min(position) < 0:
        return ""
    lines = [linecache.getline(name, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:last_column]
    lines[0] = lines[0][column:]
    return " ".join(b" ".join(lines).decode(errors="replace").split())
