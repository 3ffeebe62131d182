"""Whose code it is: the user's own, or Python's, penstock's or an installed package's.

Asked where the user's functions are looked at (checks, generators that they use), since authors of packages answer for
theirs. Nothing is executed.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
import types
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["is_users", "plain_function"]


def is_users(thing: type | types.FunctionType) -> bool:
    """Whether a class or function is the user's own: neither Python's, nor penstock's, nor of an installed package."""
    if isinstance(thing, types.FunctionType):
        return _is_users_file(thing.__code__.co_filename)
    methods = [plain_function(method) for method in vars(thing).values()]
    files = [method.__code__.co_filename for method in methods if isinstance(method, types.FunctionType)]
    files = [file for file in files if file != "<string>"]  # what dataclasses and named tuples make up
    module = sys.modules.get(thing.__module__)
    files.append(getattr(module, "__file__", None) or "<built in>")
    return _is_users_file(files[0])


def plain_function(method: Any) -> Any:
    """The function inside of decorators and static or class methods, as far as they tell."""
    method = getattr(method, "__func__", method)
    return inspect.unwrap(method) if isinstance(method, types.FunctionType) else method


@cache
def _installed_folders() -> tuple[Path, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    modules = [sys.modules.get(name) for name in ("penstock", "torch", "numpy")]
    packages = {Path(str(module.__file__)).parent for module in modules if module is not None}
    return tuple({Path(path).resolve() for path in paths if path} | {path.resolve() for path in packages})


@cache
def _is_users_file(name: str) -> bool:
    if name.startswith("<"):
        return name.startswith(("<ipython", "<stdin", "<doctest", "<string"))
    path = Path(name).resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in _installed_folders())
