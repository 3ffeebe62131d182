"""What is known of the values of a script's variables without the values: classes, functions, devices.

Of objects of the user, attributes are looked at too. No code of a class runs, and no object is kept but classes and
functions.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import types
import weakref
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.datasets.user_code import is_user_code

__all__ = ["MOST_NAMES", "WRAPPED", "KnownObject", "describe_object", "is_of_user"]

MOST_NAMES: Final = 400
"""Variables or attributes that are looked at."""
_DEPTH: Final = 3
_PLAIN: Final = (type, types.ModuleType, int, float, bytes, list, tuple, dict, set, np.ndarray)
_of_user: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()
WRAPPED: Final = ("_orig_mod", "module")
"""Attributes under which modules of torch have the module that they wrap."""


@dataclass(frozen=True, slots=True)
class KnownObject:
    """What is known of a variable's value without the value.

    Parameters
    ----------
    kind : type
        Its class.
    function : function, optional
        The function that it is, or whose bound method it is.
    owner : KnownObject, optional
        What a method is bound to.
    device, dtype : str
        The type of the device that it names (``torch.device``, text) or is on (a module of the user); the type of
        elements that it is.
    is_loader : bool
        Whether it is the loader that is watched.
    attributes : dict of str to KnownObject
        Of an object of the user's class, of a module, or of a namespace of options.
    """

    kind: type
    function: Any = None  # typed as a function, it would be a method of this class
    owner: KnownObject | None = None
    device: str = ""
    dtype: str = ""
    is_loader: bool = False
    attributes: dict[str, KnownObject] = field(default_factory=dict)


def describe_object(value: Any, loader: Any = None, depth: int = _DEPTH) -> KnownObject:
    """What is known of an object; no code of its class runs.

    Parameters
    ----------
    value : object
        Anything.
    loader : DataLoader, optional
        The loader that is watched.
    depth : int
        How many levels of attributes are looked at.
    """
    kind = type(value)
    if issubclass(kind, types.FunctionType):
        return KnownObject(kind, function=_unwrap(value))
    if issubclass(kind, types.MethodType):
        owner = describe_object(value.__self__, loader, depth - 1) if depth else None
        return KnownObject(kind, function=_unwrap(value.__func__), owner=owner)
    if kind is str:
        device = value.partition(":")[0]
        return KnownObject(kind, device=device if device in {"cpu", "cuda", "mps", "xpu", "npu", "hpu"} else "")
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        if kind is torch.device:
            return KnownObject(kind, device=value.type)
        if kind is torch.dtype:
            return KnownObject(kind, dtype=str(value).removeprefix("torch."))
    is_loader = loader is not None and value is loader
    device = _find_device(value) if _is_module(kind) and is_of_user(kind) else ""
    return KnownObject(kind, device=device, is_loader=is_loader, attributes=_describe_attributes(value, loader, depth))


def _unwrap(function: Any) -> types.FunctionType | None:
    inner = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    return inner if isinstance(inner, types.FunctionType) else None


def _describe_attributes(value: Any, loader: Any, depth: int) -> dict[str, KnownObject]:
    """Attributes of the user's objects; of a library's module only what it wraps (torch.compile, a parallel model)."""
    kind = type(value)
    if depth <= 0 or issubclass(kind, _PLAIN):
        return {}
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    named = {**attributes, **attributes.get("_modules", {})} if _is_module(kind) else attributes
    if not _is_namespace(kind) and not is_of_user(kind):
        named = {name: named[name] for name in WRAPPED if name in named} if _is_module(kind) else {}
    return {
        name: describe_object(each, loader, depth - 1)
        for name, each in itertools.islice(named.items(), MOST_NAMES)
        if isinstance(name, str)
    }


def is_of_user(kind: type) -> bool:
    """Whether a class is the user's own."""
    known = _of_user.get(kind)
    if known is None:
        known = _of_user[kind] = is_user_code(kind)
    return known


def _find_device(module: Any) -> str:
    """The type of the device that a module's first parameter is on; empty without parameters."""
    torch: Any = sys.modules["torch"]
    parameter = next(torch.nn.Module.parameters(module), None)
    return "" if parameter is None else str(parameter.device.type)


def _is_module(kind: type) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.nn.Module)


def _is_namespace(kind: type) -> bool:
    return kind.__name__ in {"Namespace", "SimpleNamespace"}
