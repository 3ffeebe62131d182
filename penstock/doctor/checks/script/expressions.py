"""Reads the expressions of a training step: what happens to the batch, without running anything.

:class:`ExpressionReader` is the part of :class:`.script_reader.StepReader` for expressions other than
calls.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, Final

from penstock.doctor.checks.script.scope import Scope
from penstock.doctor.checks.script.tensor_methods import ATTRIBUTES, SIZES
from penstock.doctor.checks.script.values import EventKind, ScriptEvent, SourceLine, Value, join_values

__all__ = ["ExpressionReader"]

_SAME: Final = frozenset({"T", "mT", "data", "real"})
_TEXT: Final = 60


class ExpressionReader:
    """Evaluates expressions to what is known of their values, and collects events.

    Attributes
    ----------
    events : dict
        The events, by what makes them the same.
    is_each_step : bool
        Whether what is read now is done in each step.
    """

    def __init__(self) -> None:
        self.events: dict[tuple[str, str, int, str], ScriptEvent] = {}
        self.is_each_step = True

    def emit(
        self, kind: EventKind, node: ast.AST, scope: Scope, value: Value | None = None, *,
        non_blocking: bool | None = None, line: SourceLine | None = None,
    ) -> None:  # fmt: skip
        """Add an event at a node, or at another line."""
        line = self.line_of(node, scope) if line is None else line
        text = " ".join(ast.unparse(node).split())
        text = text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
        event = ScriptEvent(kind, line, text, self.is_each_step, value, non_blocking)
        self.events.setdefault((kind, line.file, line.line, text), event)

    def line_of(self, node: ast.AST, scope: Scope) -> SourceLine:
        """Where a node is."""
        return SourceLine(scope.source.name, getattr(node, "lineno", 0), scope.function)

    def call(self, node: ast.Call, scope: Scope) -> Value | None:
        """A call; of the subclass."""
        raise NotImplementedError

    def read(self, node: ast.expr | None, scope: Scope) -> Value | None:
        """What is known of the value of an expression; None if it does not come from the batch."""
        if node is None:
            return None
        reader = getattr(self, f"_read_{type(node).__name__.lower()}", None)
        if reader is None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.read(child, scope)
            return None
        found: Value | None = reader(node, scope)
        return found

    def read_condition(self, node: ast.expr, scope: Scope) -> None:
        """A condition, whose truth the host must know."""
        value = self.read(node, scope)
        if value is not None and value.is_device_tensor:
            self.emit("wait", node, scope, value)

    def bind(self, target: ast.expr, value: Value | None, scope: Scope) -> None:
        """Assign to a target."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Starred):
                    self.bind(each.value, None if value is None else _plain(value.element()), scope)
                elif value is not None and (value.where == "parts" or value.layout is not None):
                    self.bind(each, value.part(number), scope)
                else:
                    self.bind(each, None if value is None else value.element(), scope)
            return
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
            key = ast.unparse(target.value)  # batch[name] = ... in a loop over all names
            if value is not None and value.is_on_device and scope.values.get(key) is not None:
                scope.set(key, Value("device"))
            return
        if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            scope.set(ast.unparse(target), value)

    def cast(self, node: ast.AST, value: Value, dtype: str, scope: Scope) -> Value:
        """A value on the host after a cast."""
        if value.cast is not None:
            return value
        size = SIZES.get(dtype, 0)
        if value.layout is not None and any(leaf.itemsize < size for leaf in value.layout.leaves()):
            return replace(value, is_loaded=False, cast=self.line_of(node, scope), cast_to=dtype)
        return replace(value, is_loaded=False, layout=None)

    # one method for each kind of expression

    def _read_name(self, node: ast.Name, scope: Scope) -> Value | None:
        return scope.get(node.id)

    def _read_attribute(self, node: ast.Attribute, scope: Scope) -> Value | None:
        value = scope.get(ast.unparse(node))
        base = self.read(node.value, scope)
        if value is not None or base is None or node.attr in ATTRIBUTES:
            return value
        if node.attr in _SAME:
            return replace(base, is_loaded=False)
        if base.where == "device":
            return Value("device")
        return base.part(node.attr) if base.layout is not None and not base.layout.is_leaf else None

    def _read_subscript(self, node: ast.Subscript, scope: Scope) -> Value | None:
        value, base = scope.get(ast.unparse(node)), self.read(node.value, scope)
        self.read(node.slice, scope)
        if value is not None or base is None:
            return value
        name = _read_constant(node.slice)
        if base.where == "device":
            return base
        if base.where == "host" and (base.layout is None or base.layout.is_leaf):
            return replace(base, layout=None) if base.cast is None else base
        return base.element() if name is None else base.part(name)

    def _read_call(self, node: ast.Call, scope: Scope) -> Value | None:
        return self.call(node, scope)

    def _read_binop(self, node: ast.BinOp, scope: Scope) -> Value | None:
        left, right = self.read(node.left, scope), self.read(node.right, scope)
        values = [value for value in (left, right) if value is not None]
        if not values:
            return None
        if any(value.is_on_device for value in values):
            return Value("device", is_tensor=any(value.is_device_tensor for value in values))
        value, other = values[0], node.right if left is not None else node.left
        is_float = isinstance(other, ast.Constant) and isinstance(other.value, float)
        if left is not None and isinstance(node.op, ast.Div):
            return self.cast(node, value, "float32", scope)
        if len(values) == 1 and is_float and isinstance(node.op, (ast.Mult, ast.Sub, ast.Add)):
            return self.cast(node, value, "float32", scope)
        return value if value.cast is not None else replace(value, layout=None, is_loaded=False)

    def _read_unaryop(self, node: ast.UnaryOp, scope: Scope) -> Value | None:
        if isinstance(node.op, ast.Not):
            self.read_condition(node.operand, scope)
            return None
        return self.read(node.operand, scope)

    def _read_compare(self, node: ast.Compare, scope: Scope) -> Value | None:
        values = [self.read(each, scope) for each in (node.left, *node.comparators)]
        compares = not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops)
        is_tensor = any(value is not None and value.is_device_tensor for value in values)
        return Value("device", is_tensor=True) if compares and is_tensor else None

    def _read_boolop(self, node: ast.BoolOp, scope: Scope) -> Value | None:
        for each in node.values:
            self.read_condition(each, scope)
        return None

    def _read_ifexp(self, node: ast.IfExp, scope: Scope) -> Value | None:
        self.read_condition(node.test, scope)
        before, self.is_each_step = self.is_each_step, False
        values = self.read(node.body, scope), self.read(node.orelse, scope)
        self.is_each_step = before
        return join_values(*values)

    def _read_tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> Value | None:
        parts = tuple(self.read(each, scope) for each in node.elts)
        return Value("parts", parts=parts) if any(part is not None for part in parts) else None

    _read_list = _read_tuple

    def _read_dict(self, node: ast.Dict, scope: Scope) -> Value | None:
        for key in node.keys:
            self.read(key, scope)
        joined: Value | None = None
        for each in node.values:
            joined = join_values(joined, self.read(each, scope))
        return _plain(joined)

    def _read_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Value | None:
        return self._read_elements(node.generators, [node.elt], scope)

    _read_setcomp = _read_listcomp
    _read_generatorexp = _read_listcomp

    def _read_dictcomp(self, node: ast.DictComp, scope: Scope) -> Value | None:
        return self._read_elements(node.generators, [node.key, node.value], scope)

    def _read_elements(
        self, generators: list[ast.comprehension], elements: list[ast.expr], scope: Scope
    ) -> Value | None:
        before, values = self.is_each_step, dict(scope.values)
        for generator in generators:
            source = self.read(generator.iter, scope)
            self.bind(generator.target, None if source is None else source.element(), scope)
            for condition in generator.ifs:
                self.read_condition(condition, scope)
                self.is_each_step = False
        found = [self.read(each, scope) for each in elements]
        self.is_each_step, scope.values = before, values
        return _plain(found[-1])

    def _read_formattedvalue(self, node: ast.FormattedValue, scope: Scope) -> Value | None:
        self.read_condition(node.value, scope)
        return None

    def _read_namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Value | None:
        value = self.read(node.value, scope)
        self.bind(node.target, value, scope)
        return value

    def _read_starred(self, node: ast.Starred, scope: Scope) -> Value | None:
        value = self.read(node.value, scope)
        return None if value is None else value.element()

    def _read_await(self, node: ast.Await, scope: Scope) -> Value | None:
        return self.read(node.value, scope)

    def _read_yield(self, node: ast.Yield, scope: Scope) -> Value | None:
        scope.yielded = join_values(scope.yielded, self.read(node.value, scope))
        return None

    def _read_yieldfrom(self, node: ast.YieldFrom, scope: Scope) -> Value | None:
        value = self.read(node.value, scope)
        scope.yielded = join_values(scope.yielded, None if value is None else value.element())
        return None

    def _read_lambda(self, node: ast.Lambda, scope: Scope) -> Value | None:
        """Nothing is done before it is called."""


def _read_constant(node: ast.expr) -> Any:
    """The key or position that an index is; None if it is not a constant."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _plain(value: Value | None) -> Value | None:
    """What a container of such values is."""
    if value is None or value.where == "parts":
        return value
    return Value(value.where, cast=value.cast, cast_to=value.cast_to, layout=value.layout if value.cast else None)
