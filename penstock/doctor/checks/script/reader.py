"""Reads a training step from its source: what happens to a batch between the loader and the end of the step.

::

    the loop's body ── statements, in order ──> values: host, device, cast; parts of the batch by their layout
         │ calls of the user's functions are followed, with the values of their arguments
         v
    events: copies to the device, casts before them, waits for the device, ...      script_rules/ judge them

Nothing is executed. Where the two branches of a condition differ, what is in one of them is not done "in each step".
What a function of a library does is known for torch; other functions are taken to return what depends on the device if
an argument is there, and something unknown else.
"""

from __future__ import annotations

import ast
import types
from typing import Final

from penstock.doctor.checks.script.calls import CallArguments, CallReader
from penstock.doctor.checks.script.known_objects import KnownObject, describe_object
from penstock.doctor.checks.script.scope import Scope, find_tensor_names
from penstock.doctor.checks.script.source import Function, read_source
from penstock.doctor.checks.script.values import ScriptEvent, Value, join_values
from penstock.doctor.watching.batch_layout import BatchParts

__all__ = ["StepReader"]

_DEEPEST: Final = 8
_MOST_CALLS: Final = 300


class StepReader(CallReader):
    """Reads statements.

    Parameters
    ----------
    layout : BatchParts, optional
        Of the batches.
    is_moved : bool
        Whether a library moves them to the device before the script gets them.

    Attributes
    ----------
    sources : set
        Calls that take a batch from the loader: file and position.
    """

    def __init__(self, layout: BatchParts | None, *, is_moved: bool = False) -> None:
        super().__init__()
        self.layout, self._is_moved = layout, is_moved
        self.sources: set[tuple[str, tuple[int, int, int, int]]] = set()
        self._depth = self._calls = 0
        self._results: dict[object, Value | None] = {}

    def loaded(self) -> Value:
        """A batch of the loader."""
        layout = self.layout
        if self._is_moved or (layout is not None and any(leaf.device not in {"", "cpu"} for leaf in layout.leaves())):
            return Value("device", is_tensor=layout is not None and layout.kind == "tensor")
        return Value("host", layout, is_loaded=True, is_tensor=layout is not None and layout.kind == "tensor")

    def is_source(self, node: ast.Call, scope: Scope) -> bool:
        """Whether the call takes a batch from the loader."""
        position = (node.lineno, node.end_lineno or -1, node.col_offset, node.end_col_offset or -1)
        return (scope.source.name, position) in self.sources

    @property
    def copies(self) -> bool:
        """Whether something was copied to the device."""
        return any(event.kind == "copy" for event in self.events.values())

    def all_events(self) -> list[ScriptEvent]:
        """What was found, in the order of reading."""
        return list(self.events.values())

    # functions

    def follow(
        self, function: types.FunctionType | Function, scope: Scope, arguments: CallArguments,
        owner: KnownObject | None = None,
    ) -> Value | None:  # fmt: skip
        """Read a function that is called; its result."""
        inner, tree = self._open(function, scope)
        if inner is None or tree is None or self._depth == _DEEPEST or self._calls == _MOST_CALLS:
            return Value("device") if arguments.is_on_device else None
        key = (tree, arguments.key, self.is_each_step)
        if key in self._results:
            return self._results[key]
        self._results[key] = None  # of a recursive call
        self._bind_arguments(inner, tree, arguments, owner)
        self._depth, self._calls = self._depth + 1, self._calls + 1
        before = self.is_each_step
        if isinstance(tree, ast.Lambda):
            inner.returned = self.read(tree.body, inner)
        else:
            self.read_block(tree.body, inner)
        self.is_each_step, self._depth = before, self._depth - 1
        result = join_values(inner.returned, inner.yielded)
        self._results[key] = result
        return result

    def _open(self, function: types.FunctionType | Function, scope: Scope) -> tuple[Scope | None, Function | None]:
        if not isinstance(function, types.FunctionType):  # defined in the function that is being read
            name = getattr(function, "name", scope.function)
            inner = Scope(scope.source, scope.namespace, name, dict(scope.known), dict(scope.values))
            inner.functions, inner.tensors = dict(scope.functions), find_tensor_names(function)
            return inner, function
        code = function.__code__
        source = read_source(code.co_filename)
        tree = None if source is None else source.find_function(code)
        if source is None or tree is None:
            return None, None
        known = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                known[name] = describe_object(cell.cell_contents)
            except ValueError:  # a variable without a value
                continue
        scope = Scope(source, function.__globals__, function.__qualname__.replace("<locals>.", ""), known)
        scope.tensors = find_tensor_names(tree)
        return scope, tree

    def _bind_arguments(
        self, scope: Scope, tree: Function, arguments: CallArguments, owner: KnownObject | None
    ) -> None:
        names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args)]
        for name in (*names, *(each.arg for each in tree.args.kwonlyargs)):
            scope.known.pop(name, None)
            scope.set(name, None)
        if owner is not None and names:
            scope.known[names.pop(0)] = owner
        for number, (name, value) in enumerate(zip(names, arguments.positional, strict=False)):
            scope.set(name, value)
            known = arguments.known.get(number)
            if known is not None:
                scope.known[name] = known
        rest = arguments.positional[len(names) :]
        for name, value in arguments.named.items():
            scope.set(name, value)
            known = arguments.known.get(name)
            if known is not None:
                scope.known[name] = known
        given = {*names[: len(arguments.positional)], *arguments.named}
        if arguments.starred is not None:
            for name in names:
                if name not in given:
                    scope.set(name, arguments.starred)
        joined: Value | None = arguments.starred
        for value in rest:
            joined = join_values(joined, value)
        for each in (tree.args.vararg, tree.args.kwarg):
            if each is not None and joined is not None:
                scope.set(each.arg, Value(joined.where))

    # statements

    def read_block(self, statements: list[ast.stmt], scope: Scope) -> None:
        """Read statements in their order."""
        for statement in statements:
            self.read_statement(statement, scope)
            if isinstance(statement, (ast.If, ast.Match)) and _may_leave(statement):
                self.is_each_step = False  # from here on

    def read_statement(self, node: ast.stmt, scope: Scope) -> None:
        """Read one statement."""
        reader = getattr(self, f"_state_{type(node).__name__.lower()}", None)
        if reader is not None:
            reader(node, scope)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.read(child, scope)

    def read_loop_body(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope, element: Value | None) -> None:
        """Read the body of a loop once, with an element."""
        if not isinstance(node, ast.While):
            self.bind(node.target, element, scope)
        before = self.is_each_step
        self.read_block(node.body, scope)
        self.is_each_step = before

    def _state_assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.read(node.value, scope)
        known = scope.resolve(node.value)[1] if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        for target in node.targets:
            self.bind(target, value, scope)
            if isinstance(target, ast.Name) and known is not None:
                scope.known[target.id] = known
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                scope.functions[target.id] = node.value

    def _state_annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.bind(node.target, self.read(node.value, scope), scope)

    def _state_augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        value, before = self.read(node.value, scope), self.read(node.target, scope)
        if value is not None and value.is_on_device and before is None:
            self.bind(node.target, Value("device", is_tensor=value.is_tensor), scope)
        elif before is not None and before.where == "host" and isinstance(node.op, ast.Div):
            self.bind(node.target, self.cast(node, before, "float32", scope), scope)

    def _state_assert(self, node: ast.Assert, scope: Scope) -> None:
        self.read_condition(node.test, scope)

    def _state_expr(self, node: ast.Expr, scope: Scope) -> None:
        self.read(node.value, scope)

    def _state_if(self, node: ast.If, scope: Scope) -> None:
        self.read_condition(node.test, scope)
        before, values = self.is_each_step, dict(scope.values)
        events = dict(self.events)
        self.is_each_step = False
        self.read_block(node.body, scope)
        first, scope.values = scope.values, dict(values)
        self.read_block(node.orelse, scope)
        second = scope.values
        self.is_each_step = before
        scope.join(first, second)
        if node.orelse:
            self._drop_alternatives(set(events))

    def _drop_alternatives(self, before: set[tuple[str, str, int, str]]) -> None:
        """Of two branches that both copy, the one that does not wait may be the one for a device."""
        copies = {key: event for key, event in self.events.items() if key not in before and event.kind == "copy"}
        if any(event.non_blocking is not False for event in copies.values()):
            for key, event in copies.items():
                if event.non_blocking is False:
                    del self.events[key]

    def _state_while(self, node: ast.While, scope: Scope) -> None:
        self.read_condition(node.test, scope)
        self.read_loop_body(node, scope, None)

    def _state_for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        value = self.read(node.iter, scope)
        self.read_loop_body(node, scope, None if value is None else value.element())

    _state_asyncfor = _state_for

    def _state_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        for item in node.items:
            value = self.read(item.context_expr, scope)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, scope)
        self.read_block(node.body, scope)

    _state_asyncwith = _state_with

    def _state_try(self, node: ast.Try, scope: Scope) -> None:
        self.read_block(node.body, scope)
        self._read_branches([handler.body for handler in node.handlers], scope)
        self.read_block([*node.orelse, *node.finalbody], scope)

    def _state_match(self, node: ast.Match, scope: Scope) -> None:
        self.read(node.subject, scope)
        self._read_branches([case.body for case in node.cases], scope)

    def _read_branches(self, branches: list[list[ast.stmt]], scope: Scope) -> None:
        """Read blocks of which one, or none, is run."""
        before, self.is_each_step = self.is_each_step, False
        for statements in branches:
            values = dict(scope.values)
            self.read_block(statements, scope)
            scope.join(values, scope.values)
        self.is_each_step = before

    def _state_return(self, node: ast.Return, scope: Scope) -> None:
        scope.returned = join_values(scope.returned, self.read(node.value, scope))

    def _state_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        scope.functions[node.name] = node

    _state_asyncfunctiondef = _state_functiondef

    def _state_classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        """A class that is defined in a step does nothing to its batch."""

    def _state_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        scope.import_names(node)

    _state_importfrom = _state_import

    def _state_delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            scope.set(ast.unparse(target), None)


def _may_leave(node: ast.stmt) -> bool:
    """Whether a condition may end the step, so that what follows it is not done in each one."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (ast.Continue, ast.Return)):
            return True
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(each)
    return False
