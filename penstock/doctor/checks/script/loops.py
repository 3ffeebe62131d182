"""The training loops of a script: from the places where batches were taken to what is done with them.

::

    Place (code, position) ── the expression that took the batch:  for ... in EXPRESSION | next(EXPRESSION) | list(...)
       │                                                           ── the loop around it, read by StepReader
       └─ a generator of the user, or a class with __next__: its result is what the function outside iterates
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from penstock.doctor.checks.script.batch_places import BatchPlaces, Place
from penstock.doctor.checks.script.hooks import read_calls
from penstock.doctor.checks.script.reader import StepReader
from penstock.doctor.checks.script.scope import Scope, find_tensor_names
from penstock.doctor.checks.script.source import COMPREHENSIONS, Function, SourceFile, read_source
from penstock.doctor.checks.script.values import ScriptEvent, SourceLine, Value

__all__ = ["Taking", "TrainingLoop", "read_loops"]

_COMPREHENSION_NAMES: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@dataclass(frozen=True, slots=True)
class Taking:
    """How batches are taken at one place.

    Parameters
    ----------
    kind : {"for", "next", "all", "other"}
        A loop over the loader; ``next(...)``; ``list(...)`` or ``tuple(...)``; unknown.
    line : SourceLine
        Where.
    text : str
        The expression.
    starts_workers : bool
        Whether a ``next`` is of a new iterator: ``next(iter(loader))``.
    is_repeated : bool
        Whether a ``next`` is within a loop.
    is_cycled : bool
        Whether batches come through ``itertools.cycle``.
    """

    kind: str
    line: SourceLine
    text: str
    starts_workers: bool = False
    is_repeated: bool = False
    is_cycled: bool = False


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """What is known of one loop.

    Parameters
    ----------
    taking : Taking
        How it gets its batches.
    events : list of ScriptEvent
        What it does with them.
    is_training : bool
        Whether it trains: ``backward`` is called in it.
    loaders : list of (SourceLine, str)
        Loaders that are made in a loop around it, from what does not change there.
    """

    taking: Taking
    events: list[ScriptEvent]
    is_training: bool
    loaders: list[tuple[SourceLine, str]]


def read_loops(places: BatchPlaces) -> list[TrainingLoop]:
    """Read the loops that take batches of a loader."""
    return [loop for stack in places.stacks if (loop := _read_stack(stack, places)) is not None]


def _read_stack(stack: Sequence[Place], places: BatchPlaces) -> TrainingLoop | None:
    """Read one loop; a library that batches pass is taken to move them to the device if the script does not copy them.

    On a machine with a device, it must be in use: the script may train on the CPU.
    """
    opened = list(_open_places(stack))
    if not stack or not (opened or not stack[0].is_direct):
        return None
    passes_library = not stack[0].is_direct
    loop = _read_loop(opened, places, passes_library=passes_library, is_moved=False)
    is_copied = loop is not None and any(event.kind == "copy" for event in loop.events)
    if is_copied or not passes_library or (torch.accelerator.is_available() and not places.uses_device):
        return loop
    return _read_loop(opened, places, passes_library=True, is_moved=True)


def _read_loop(
    opened: Sequence[_OpenPlace], places: BatchPlaces, *, passes_library: bool, is_moved: bool
) -> TrainingLoop | None:
    """Read what takes batches, and the functions that were called in a step."""
    reader = StepReader(places.layout, is_moved=is_moved)
    taking = _describe_taking(opened[0]) if opened else None
    loaders: list[tuple[SourceLine, str]] = []
    if taking is not None and (taking.kind != "other" or not passes_library):
        _read_places(reader, opened, taking)
        loaders = list(_find_loaders(opened))
    else:
        taking = None
    line = read_calls(places, reader, is_moved=is_moved)
    if taking is None:
        taking = None if line is None else Taking("other", line, "")
    return None if taking is None else TrainingLoop(taking, reader.all_events(), reader.is_training, loaders)


def _read_places(reader: StepReader, opened: Sequence[_OpenPlace], taking: Taking) -> None:
    """Read the functions on the way to a batch, from the innermost outwards, as far as batches pass them."""
    if taking.kind in {"next", "all"}:
        reader.sources.add((opened[0].source.name, opened[0].place.position))
    result: Value | None = None
    for number, each in enumerate(opened):
        if number and not each.place.is_direct:
            break
        result = _read_place(reader, each, each.scope(), result, is_innermost=number == 0)
        if result is None:
            break


@dataclass(frozen=True, slots=True)
class _OpenPlace:
    """A place and its source."""

    place: Place
    source: SourceFile
    tree: Function | ast.Module
    node: ast.expr

    def scope(self) -> Scope:
        """The names of the function, as they were seen."""
        is_module = self.place.code.co_name == "<module>"
        name = "" if is_module else self.place.code.co_qualname.replace("<locals>.", "")
        scope = Scope(self.source, self.place.namespace, name, dict(self.place.names))
        scope.tensors = find_tensor_names(self.tree)
        return scope


def _open_places(stack: Sequence[Place]) -> Iterator[_OpenPlace]:
    """The functions whose source is there, from the innermost outwards, up to the first without."""
    for place in stack:
        if place.code.co_name in _COMPREHENSION_NAMES:
            continue  # the function around it has its expression
        source = read_source(place.code.co_filename)
        if source is None:
            return
        tree = source.tree if place.code.co_name == "<module>" else source.find_function(place.code)
        node = source.find_expression(place.position)
        if tree is None or node is None:
            return
        yield _OpenPlace(place, source, tree, node)


def _describe_taking(opened: _OpenPlace) -> Taking:
    node, source, scope = opened.node, opened.source, opened.scope()
    line = SourceLine(source.name, node.lineno, scope.function)
    text, is_cycled = ast.unparse(node), _is_cycled(node, scope)
    if _iterated_by(node, source) is not None or isinstance(node, COMPREHENSIONS):
        return Taking("for", line, text, is_cycled=is_cycled)
    if isinstance(node, ast.Call):
        name = scope.resolve(node.func)[0]
        if name in {"list", "tuple"}:
            return Taking("all", line, text)
        if name in {"next", ".__next__", ".get"}:  # get: of a queue that another thread fills
            inner = node.args[0] if node.args else None
            starts = isinstance(inner, ast.Call) and scope.resolve(inner.func)[0] == "iter"
            return Taking("next", line, text, starts, source.enclosing_loop(node) is not None, is_cycled)
    return Taking("other", line, text)


def _is_cycled(node: ast.expr, scope: Scope) -> bool:
    """Whether an expression has the loader in ``itertools.cycle``, or takes from such an object."""
    for each in ast.walk(node):
        if not isinstance(each, (ast.Name, ast.Attribute, ast.Call)):
            continue
        name, known = scope.resolve(each.func if isinstance(each, ast.Call) else each)
        if isinstance(each, ast.Call) and name == "itertools.cycle" and len(each.args) == 1:
            inner = scope.resolve(each.args[0])[1]
            return inner is None or inner.is_loader or not _is_zip(node)
        if not isinstance(each, ast.Call) and known is not None and known.kind is itertools.cycle:
            return not _is_zip(node)
    return False


def _iterated_by(node: ast.expr, source: SourceFile) -> ast.For | ast.AsyncFor | ast.comprehension | None:
    """The loop or comprehension that iterates over this expression."""
    parent = next(source.parents(node), None)
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is node:
        return parent
    return None


def _read_place(
    reader: StepReader, opened: _OpenPlace, scope: Scope, inner: Value | None, *, is_innermost: bool
) -> Value | None:
    """Read what a function does with the batches that it gets; what it yields or returns itself."""
    node, source = opened.node, opened.source
    loop = _iterated_by(node, source)
    comprehension = loop if isinstance(loop, ast.comprehension) else None
    if isinstance(node, COMPREHENSIONS):
        comprehension, node = node.generators[0], node.generators[0].iter
    if comprehension is not None:
        whole = next(source.parents(comprehension))
        reader.bind(comprehension.target, _find_element(reader, node, scope, inner, source), scope)
        for name in ("key", "elt", "value"):
            reader.read(getattr(whole, name, None), scope)
        return None
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        element = _find_element(reader, node, scope, inner, source)
        reader.read_loop_body(loop, scope, element)
        return scope.yielded
    if isinstance(node, ast.YieldFrom):
        return reader.loaded() if is_innermost else inner
    around = source.enclosing_loop(node)
    if around is not None:
        if isinstance(around, ast.While):
            reader.read_condition(around.test, scope)
        reader.read_loop_body(around, scope, None)
        return scope.yielded
    if isinstance(opened.tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        reader.read_block(opened.tree.body, scope)
        return scope.yielded or scope.returned
    return None


def _find_element(
    reader: StepReader, node: ast.expr, scope: Scope, inner: Value | None, source: SourceFile
) -> Value | None:
    """What a loop over an expression gets in each turn, where the batches pass it."""
    batch = reader.loaded() if inner is None else inner
    return _element_of(node, scope, batch, source, 4)


def _element_of(node: ast.expr, scope: Scope, batch: Value, source: SourceFile, depth: int) -> Value | None:  # noqa: PLR0911  # cases
    if isinstance(node, ast.Call):
        name = scope.resolve(node.func)[0]
        if name == "zip":
            return Value("parts", parts=tuple(_element_of_zipped(each, scope, batch) for each in node.args))
        inner = node.args[0] if node.args else next((each.value for each in node.keywords), None)
        if name == "enumerate" and inner is not None:
            return Value("parts", parts=(None, _element_of(inner, scope, batch, source, depth)))
        if inner is not None and _mentions_enumerate(inner):
            return _element_of(inner, scope, batch, source, depth)  # tqdm(enumerate(loader))
        return batch
    known = scope.resolve(node)[1]
    if known is not None and known.kind is enumerate:
        return Value("parts", parts=(None, batch))
    if known is not None and known.kind is zip:
        return None
    if isinstance(node, ast.Name) and depth and not (known is not None and known.is_loader):
        given = _find_given(node.id, source)
        if given is not None and (_mentions_enumerate(given) or _is_zip(given)):
            return _element_of(given, scope, batch, source, depth - 1)
    return batch


def _element_of_zipped(node: ast.expr, scope: Scope, batch: Value) -> Value | None:
    known = scope.resolve(node)[1]
    return batch if known is not None and known.is_loader else None


def _mentions_enumerate(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "enumerate" for each in ast.walk(node))


def _is_zip(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "zip" for each in ast.walk(node))


def _find_given(name: str, source: SourceFile) -> ast.expr | None:
    """What a name is assigned, if it is assigned once in its file."""
    given: list[ast.expr] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign):
            given += [node.value for each in node.targets if isinstance(each, ast.Name) and each.id == name]
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            given += [node.context_expr] if node.optional_vars.id == name else []
    return given[0] if len(given) == 1 else None


def _find_loaders(opened: Sequence[_OpenPlace]) -> Iterator[tuple[SourceLine, str]]:
    """The loader's own constructor, where it is called in the loop of epochs, with what does not change there."""
    for each in opened:
        batches = _iterated_by(each.node, each.source)
        if not isinstance(batches, (ast.For, ast.AsyncFor)):
            continue
        epochs = each.source.enclosing_loop(batches)
        if epochs is None:
            return
        scope, changing = each.scope(), _stored_names(epochs)
        for call in _find_constructors(epochs, each.node):
            inside = [node for argument in _arguments_of(call) for node in ast.walk(argument)]
            used = {node.id for node in inside if isinstance(node, ast.Name)}
            makes = any(isinstance(node, ast.Call) for node in inside)
            if _is_loader_class(scope.resolve(call.func)[0]) and not used & changing and not makes:
                yield SourceLine(each.source.name, call.lineno, scope.function), ast.unparse(call)


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


def _arguments_of(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_loader_class(name: str) -> bool:
    return name.rpartition(".")[2] == "DataLoader" and name.startswith(("torch.", "penstock."))


def _stored_names(node: ast.AST) -> set[str]:
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, (ast.Store, ast.Del))
    }
