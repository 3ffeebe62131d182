"""The source of a script's files as syntax trees: expressions by their position, and the loops around them."""

from __future__ import annotations

import ast
import itertools
import linecache
import types
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Final

__all__ = [
    "COMPREHENSIONS", "LOOPS", "Position", "SourceFile", "find_position", "name_lines", "read_source", "read_text",
]  # fmt: skip

Position = tuple[int, int, int, int]
"""First line, last line, first column, last column; -1 where unknown."""
LOOPS: Final = (ast.For, ast.While, ast.AsyncFor)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def name_lines(function: str, file: str, lines: Iterable[int]) -> str:
    """Lines of a file, in a function, as findings name them."""
    place = f"{Path(file).name}, line {', '.join(map(str, lines))}"
    return f"{function} ({place})" if function else place


class SourceFile:
    """One file.

    ``name``: of the file, as code objects have it. ``tree``: its source.
    """

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def find_expression(self, position: Position) -> ast.expr | None:
        """Return the outermost expression of exactly this position, as ``code.co_positions`` gives it.

        Until Python 3.11, the position of a step of a loop is the whole loop; then this is what is iterated.
        """
        line, last, column, last_column = position
        for node in ast.walk(self.tree):  # breadth first
            if (
                isinstance(node, (ast.expr, ast.For, ast.AsyncFor))
                and (node.lineno, node.end_lineno) == (line, last)
                and (node.col_offset, node.end_col_offset) == (column, last_column)
            ):
                return node if isinstance(node, ast.expr) else node.iter
        return None

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

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node is in, from the inside outwards."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def enclosing_loop(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """Return the innermost loop of the same function whose body has the node."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                return None
            if isinstance(parent, LOOPS) and (inner in parent.body or inner is getattr(parent, "test", None)):
                return parent
            inner = parent
        return None

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
