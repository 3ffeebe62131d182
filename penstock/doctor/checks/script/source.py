"""The source of a script's files as syntax trees: functions by their code, expressions by their position."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator
from functools import cache
from typing import Final

__all__ = ["LOOPS", "Function", "SourceFile", "read_source"]

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
LOOPS: Final = (ast.For, ast.While, ast.AsyncFor)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class SourceFile:
    """One file.

    Parameters
    ----------
    name : str
        Of the file, as code objects have it.
    tree : ast.Module
        Its source.
    """

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree
        self._parents: dict[ast.AST, ast.AST] = {}
        self._functions: dict[tuple[str, int], list[Function]] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                self._functions.setdefault((node.name, first), []).append(node)
            elif isinstance(node, ast.Lambda):
                self._functions.setdefault(("<lambda>", node.lineno), []).append(node)

    def find_function(self, code: types.CodeType) -> Function | None:
        """The function of ``code``; None if it is not there, or cannot be told from another on its line."""
        found = self._functions.get((code.co_name, code.co_firstlineno), [])
        return found[0] if len(found) == 1 else None

    def find_expression(self, position: tuple[int, int, int, int]) -> ast.expr | None:
        """The outermost expression of exactly this position, as ``code.co_positions`` gives it.

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

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, from the inside outwards."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def enclosing_loop(self, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
        """The innermost loop of the same function whose body has the node."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                return None
            if isinstance(parent, LOOPS) and (inner in parent.body or inner is getattr(parent, "test", None)):
                return parent
            inner = parent
        return None


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
