"""What names mean in a function of the script: values of the batch, known objects, global variables, modules."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import types
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.datasets.user_code import is_user_code, unwrap_function
from penstock.doctor.checks.script.known_objects import KnownObject, describe_object
from penstock.doctor.checks.script.source import Function, SourceFile
from penstock.doctor.checks.script.values import Value, join_values

__all__ = ["Scope", "find_method", "find_tensor_names"]

_DEVICES: Final = frozenset({"rank", "local_rank", "gpu", "gpu_id", "cuda"})


@dataclass(slots=True)
class Scope:
    """The names of one call of a function.

    Parameters
    ----------
    source : SourceFile
        Its file.
    namespace : dict
        Global variables.
    function : str
        Its name, for findings; empty at the top level.
    known : dict of str to KnownObject
        Local variables whose values are known by class.
    values : dict of str to Value
        What comes from the batch, by the source of the expression: ``images``, ``batch['image']``, ``self.x``.
    functions : dict of str to ast node
        Functions that are defined inside.
    tensors : set of str
        Names that are tensors, since ``backward`` is called on them.
    """

    source: SourceFile
    namespace: dict[str, Any]
    function: str = ""
    known: dict[str, KnownObject] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()
    returned: Value | None = None
    yielded: Value | None = None

    def get(self, key: str) -> Value | None:
        """The value of an expression; of a container of which parts were copied to the device, one on the device."""
        value = self.values.get(key)
        if value is not None and not value.is_on_device:
            inner = (f"{key}[", f"{key}.")
            if any(each.is_on_device and name.startswith(inner) for name, each in self.values.items()):
                return Value("device")
        return value

    def set(self, key: str, value: Value | None) -> None:
        """Assign a value to an expression."""
        for name in [name for name in self.values if name.startswith((f"{key}[", f"{key}."))]:
            del self.values[name]
        if value is None:
            self.values.pop(key, None)
        else:
            is_known = key in self.tensors and value.where == "device"
            self.values[key] = replace(value, is_tensor=True) if is_known else value

    def join(self, first: dict[str, Value], second: dict[str, Value]) -> None:
        """Take the values of two branches."""
        names = dict.fromkeys([*first, *second])
        joined = {name: join_values(first.get(name), second.get(name)) for name in names}
        self.values = {name: value for name, value in joined.items() if value is not None}

    # names

    def resolve(self, node: ast.expr) -> tuple[str, KnownObject | None]:
        """The full name of what an expression means (``torch.stack``), and what is known of it.

        The name of a method of an unknown object is ``.name``; that of anything else is empty.
        """
        chain: list[str] = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return (f".{chain[-1]}" if chain else ""), None
        known = self.known.get(node.id)
        if known is not None:
            return self._follow("", known, chain)
        if node.id in self.namespace:
            return self._resolve_global(node.id, self.namespace[node.id], chain)
        if hasattr(builtins, node.id) and not chain:
            return node.id, None
        return (f".{chain[-1]}" if chain else node.id), None

    def _resolve_global(self, name: str, value: Any, chain: list[str]) -> tuple[str, KnownObject | None]:
        while isinstance(value, types.ModuleType):
            name = value.__name__
            if not chain:
                return name, None
            attribute, chain = chain[0], chain[1:]
            if attribute not in vars(value):
                return ".".join([name, attribute, *chain]), None
            name, value = f"{name}.{attribute}", vars(value)[attribute]
        return self._follow(_canonical_name(name, value), describe_object(value), chain)

    def _follow(self, name: str, known: KnownObject, chain: list[str]) -> tuple[str, KnownObject | None]:
        for attribute in chain:
            name = f".{attribute}"
            inner = known.attributes.get(attribute)
            if inner is None:
                function = find_method(known.kind, attribute)
                if function is None:
                    return f".{chain[-1]}", None
                inner = KnownObject(types.MethodType, function=function, owner=known)
            known = inner
        return name, known

    def import_names(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import inside a function."""
        self.namespace = dict(self.namespace)
        for alias in node.names:
            if isinstance(node, ast.Import):
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                if name in sys.modules:
                    self.namespace[alias.asname or name] = sys.modules[name]
            elif node.module is not None and not node.level:
                value = vars(sys.modules.get(node.module, types)).get(alias.name)
                if value is not None:
                    self.namespace[alias.asname or alias.name] = value

    # devices

    def device_of(self, node: ast.expr) -> tuple[str, str]:  # noqa: PLR0911  # cases
        """What an argument of ``Tensor.to`` means: the type of a device, or a type of elements; empty: not that.

        The device is "cpu", "device" (any other, or one that the script chooses) or empty.
        """
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return ("cpu" if node.value == "cpu" else "device"), ""
            return ("device" if type(node.value) is int else ""), ""
        if isinstance(node, ast.Attribute) and node.attr == "device":
            owner = self.get(ast.unparse(node.value))
            if owner is not None:
                return ("device" if owner.is_on_device else "cpu"), ""
        name, known = self.resolve(node.func if isinstance(node, ast.Call) else node)
        if isinstance(node, ast.Call):
            return self.device_of(node.args[0]) if name == "torch.device" and len(node.args) == 1 else ("", "")
        if known is not None:
            if known.dtype:
                return "", known.dtype
            if known.device:
                return ("cpu" if known.device == "cpu" and self._is_cpu(node) else "device"), ""
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("torch.") and name.removeprefix("torch.") == last:
            return "", last
        is_device = "device" in last.lower() or last.lower() in _DEVICES
        return ("device" if is_device else ""), ""

    def _is_cpu(self, node: ast.expr) -> bool:
        """Whether a name that now means the CPU means it on a machine with a device too."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.accelerator.is_available():
            return True
        if not isinstance(node, ast.Name):
            return False
        given = [
            each.value
            for each in ast.walk(self.source.tree)
            if isinstance(each, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in each.targets)
        ]
        return bool(given) and all(_is_cpu_constant(value) for value in given)


def find_method(kind: type, name: str) -> types.FunctionType | None:
    """A method of the user's code; None if the class has none, or a library's."""
    method = inspect.getattr_static(kind, name, None)
    if isinstance(method, property):
        return None
    function = unwrap_function(method)
    return function if isinstance(function, types.FunctionType) and is_user_code(function) else None


def find_tensor_names(node: ast.AST) -> frozenset[str]:
    """Names on which ``backward`` is called, also through a scaler."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "backward":
            owner = each.func.value
            candidates = [owner, *(owner.args if isinstance(owner, ast.Call) else []), *each.args]
            found |= {candidate.id for candidate in candidates if isinstance(candidate, ast.Name)}
    return frozenset(found)


def _is_cpu_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == "cpu"


def _canonical_name(name: str, value: Any) -> str:
    """One name for a function of torch or NumPy that can be imported from several modules."""
    own, module = getattr(value, "__name__", ""), getattr(value, "__module__", None) or ""
    for package in ("torch", "numpy"):
        if isinstance(own, str) and own and vars(sys.modules.get(package, types)).get(own) is value:
            return f"{package}.{own}"
    if isinstance(value, (types.FunctionType, type)) and module.startswith("torch"):
        return f"{module}.{value.__qualname__}"
    return name
