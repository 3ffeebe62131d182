"""How a script takes batches, from the source of the expression that takes one: what observed steps do not show.

::

    for ... in EXPRESSION | next(EXPRESSION) | list(...)       the functions that ask for an epoch's first batch now

Used by :class:`.batch_places.BatchPlaces`. Nothing of the script is kept.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.doctor.watching.steps.events import SourceLine
from penstock.doctor.watching.steps.source import COMPREHENSIONS, SourceFile, find_position, read_source

__all__ = ["Taking", "describe_taking"]

_COMPREHENSION_NAMES: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@dataclass(frozen=True, slots=True)
class Taking:
    """How batches are taken at one place."""

    kind: str
    """{"for", "next", "all", "other"}: a loop over the loader; ``next(...)``; ``list(...)`` or ``tuple(...)``;
    unknown."""
    line: SourceLine  # where
    text: str  # the expression
    starts_workers: bool = False  # whether it is ``next(iter(loader))`` within a loop
    is_cycled: bool = False  # whether batches come through ``itertools.cycle``
    loaders: tuple[SourceLine, ...] = ()  # loaders that are made in a loop around it, from what does not change there


def describe_taking(frames: Sequence[types.FrameType], loader: object) -> Taking | None:
    """Return how the innermost of the user's functions that run takes batches; None without source.

    ``frames``: the user's functions, from the innermost outwards.
    """
    opened = list(_open_frames(frames))
    if not opened:
        return None
    frame, source, node = opened[0]
    line, text = _line_of(source, node, frame), ast.unparse(node)
    loaders = tuple(_find_loaders(opened))
    is_cycled = _is_cycled(node, frame, loader)
    if _iterated_by(node, source) is not None or isinstance(node, COMPREHENSIONS):
        return Taking("for", line, text, is_cycled=is_cycled, loaders=loaders)
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if name in {"list", "tuple"}:
        return Taking("all", line, text, loaders=loaders)
    if name == "next" or name.endswith(".__next__"):
        inner = node.args[0] if isinstance(node, ast.Call) and node.args else None
        is_new = isinstance(inner, ast.Call) and ast.unparse(inner.func) == "iter"
        starts = is_new and source.enclosing_loop(node) is not None
        return Taking("next", line, text, starts, is_cycled, loaders)
    return Taking("other", line, text, loaders=loaders)


_Opened = tuple[types.FrameType, SourceFile, ast.expr]


def _open_frames(frames: Sequence[types.FrameType]) -> Iterator[_Opened]:
    """Yield the functions whose source is there, with the expression that they evaluate, up to the first without."""
    for frame in frames:
        if frame.f_code.co_name in _COMPREHENSION_NAMES:
            continue  # the function around it has its expression
        source = read_source(frame.f_code.co_filename)
        node = None if source is None else source.find_expression(find_position(frame))
        if source is None or node is None:
            return
        yield frame, source, node


def _line_of(source: SourceFile, node: ast.expr, frame: types.FrameType) -> SourceLine:
    is_module = frame.f_code.co_name == "<module>"
    name = "" if is_module else frame.f_code.co_qualname.replace("<locals>.", "")
    return SourceLine(source.name, node.lineno, name)


def _is_cycled(node: ast.expr, frame: types.FrameType, loader: object) -> bool:
    """Return whether an expression has the loader in ``itertools.cycle``, or takes from such an object."""
    is_zip = any(isinstance(each, ast.Name) and each.id == "zip" for each in ast.walk(node))
    variables = {**frame.f_globals, **_read_locals(frame)}
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in {"cycle", "itertools.cycle"} and each.args:
            return not is_zip or _find_value(each.args[0], variables) is loader
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(_find_value(each, variables), itertools.cycle):
            return not is_zip
    return False


def _find_value(node: ast.expr, variables: dict[str, object]) -> object:
    """The value of a name, or of an attribute of one; no code of a class runs."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    if isinstance(node, ast.Attribute):
        attributes = getattr(_find_value(node.value, variables), "__dict__", {})
        return attributes.get(node.attr) if isinstance(attributes, dict) else None
    return None


def _read_locals(frame: types.FrameType) -> dict[str, object]:
    """Return the local variables of a function, which the function does not hold alive by it."""
    values = frame.f_locals
    if not (frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(values) is dict):
        return dict(values)
    copied = dict(values)
    values.clear()  # before Python 3.13 this copy would keep the values alive until the function ends
    return copied


def _iterated_by(node: ast.expr, source: SourceFile) -> ast.For | ast.AsyncFor | ast.comprehension | None:
    """Return the loop or comprehension that iterates over this expression."""
    parent = next(source.parents(node), None)
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is node:
        return parent
    return None


def _find_loaders(opened: Sequence[_Opened]) -> Iterator[SourceLine]:
    """Yield the loader's own constructor, where it is called in the loop of epochs, with what does not change there."""
    for frame, source, node in opened:
        batches = _iterated_by(node, source)
        if not isinstance(batches, (ast.For, ast.AsyncFor)):
            continue
        epochs = source.enclosing_loop(batches)
        if epochs is None:
            return
        changing = {
            each.id for each in ast.walk(epochs) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
        }
        for call in _find_constructors(epochs, node):
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            inside = [each for argument in arguments for each in ast.walk(argument)]
            used = {each.id for each in inside if isinstance(each, ast.Name)}
            makes = any(isinstance(each, ast.Call) for each in inside)
            if ast.unparse(call.func).rpartition(".")[2] == "DataLoader" and not used & changing and not makes:
                yield _line_of(source, call, frame)


def _find_constructors(epochs: ast.AST, iterated: ast.expr) -> Iterator[ast.Call]:
    """Calls in the expression that is iterated, and in what is assigned to its names in the loop of epochs."""
    given = [node for node in ast.walk(epochs) if isinstance(node, ast.Assign)]
    waiting, seen = [iterated], set()
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Call):
                yield node
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                waiting += [
                    each.value
                    for each in given
                    if any(isinstance(target, ast.Name) and target.id == node.id for target in each.targets)
                ]
