"""Calls a function when a module has been imported. Standard library only: it runs before the script's imports."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final

__all__ = ["INSTALLERS", "when_imported"]

INSTALLERS: Final = {
    "torch.utils.data.dataloader": ("penstock.doctor.watching.loaders.torch_loader", "install"),
    "penstock.loader.loader": ("penstock.doctor.watching.loaders.own_loader", "install"),
    "penstock.torch.loader.epoch_starter": ("penstock.doctor.watching.loaders.own_loader", "install_torch"),
}
"""By the module of a loader, what watches it: a function that takes a watcher."""


def when_imported(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """Call a function after module ``name`` was executed; at once if it is imported.

    Returns
    -------
    callable
        Removes the hook.
    """
    if name in sys.modules:
        call()
        return _nothing
    finder = _WatchedFinder(name, call)
    sys.meta_path.insert(0, finder)
    return finder.remove


def _nothing() -> None:
    """Remove no hook."""


class _WatchedFinder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name, self._call = name, call
        self._is_searching = False

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._is_searching:  # a second hook for this module asks the other finders too
            return None
        self._is_searching = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = None if find is None else find(fullname, path, target)
                if spec is not None and spec.loader is not None:
                    spec.loader = _WatchedLoader(spec.loader, self)
                    return spec  # type: ignore[no-any-return]  # finders are untyped here
        finally:
            self._is_searching = False
        return None

    def call(self) -> None:
        self.remove()
        self._call()


class _WatchedLoader(importlib.abc.Loader):
    """The module's own loader, and then the call."""

    def __init__(self, loader: importlib.abc.Loader, finder: _WatchedFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # what the module sees is as without a hook
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.call()
