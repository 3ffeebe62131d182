"""Maps names to classes, imports optional packages, and calls functions when modules have been imported.

A new store, sampler, op, annotation format or worker backend is one new file and one registration line in the
``__init__.py`` of its folder. The registration also adds it to the conformance suite of the folder, which iterates over
:class:`Registry`. Registering imports nothing: an entry is ``"module:Class"`` and is imported when it is first used.
Other distributions add stores, ops and annotation formats by entry points.

::

    import torch ── sys.meta_path: the hook asks the other finders ── the module is executed ── calls

The hook stays on ``sys.meta_path`` until an import of each module succeeds, or nobody waits for one any more:
``importlib.util.find_spec`` only asks. Before the doctor runs a script, it imports no more than this module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ArgumentError, OptionalPackageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Registry", "is_awaited", "require", "when_imported"]


class Registry:
    """An ordered mapping of names to lazily imported objects.

    Parameters
    ----------
    what : str
        The kind of entry, in the singular, for messages ("store", "op").
    group : str, optional
        The group of entry points by which other distributions add entries. It is read when a name is not found among
        those that are registered, or when all are listed; these come last, and never replace a registered one.
    base : str, optional
        The class, as ``"module:Class"``, of which an entry of another distribution is a subclass.
    """

    def __init__(self, what: str, group: str = "", base: str = "") -> None:
        self.what = what
        self._group, self._base = group, base
        self._entries: dict[str, str] = {}

    def register(self, name: str, target: str) -> None:
        """Register ``target`` ("package.module:Object") under ``name``.

        Raises
        ------
        ArgumentError
            If the name is registered already, for another target.
        """
        if self._entries.get(name, target) != target:
            raise ArgumentError(f"{self.what} {name!r} is registered twice: {self._entries[name]} and {target}")
        self._entries[name] = target

    def get(self, name: str) -> Any:
        """Import and return the object registered under ``name``.

        Raises
        ------
        ArgumentError
            If the name is unknown; the message lists the known names.
        OptionalPackageError
            If the entry of another distribution cannot be imported, or is no such class; the message names it.
        """
        if name in self._entries:
            return _import(self._entries[name])
        if (point := self.plugins.get(name)) is None:
            raise ArgumentError(f"unknown {self.what} {name!r}; known: {', '.join(self) or 'none'}")
        try:
            return _check_subclass(point.load(), _import(self._base))
        except (Exception, SystemExit) as error:
            raise OptionalPackageError(
                f"the {self.what} {name!r} of the distribution {_name_distribution(point)} cannot be used "
                f"({point.value}): {type(error).__name__}: {error}; install another version of it, or uninstall it"
            ) from error

    def try_get(self, name: str) -> Any | None:
        """Get an entry to try it; of another distribution that cannot be imported, a warning and None."""
        try:
            return self.get(name)
        except OptionalPackageError as error:
            if name in self._entries:
                raise
            warnings.warn(error.message, stacklevel=2)
            return None

    @functools.cached_property
    def plugins(self) -> Mapping[str, EntryPoint]:
        """The entry points of other distributions, by name; those of taken names are left out with a warning."""
        from importlib import metadata  # `import penstock` need not load it

        found: dict[str, EntryPoint] = {}
        for point in sorted(metadata.entry_points(group=self._group), key=_name_distribution) if self._group else ():
            if point.name in self._entries or found.setdefault(point.name, point) != point:
                owner = "penstock" if point.name in self._entries else _name_distribution(found[point.name])
                message = f"the {self.what} {point.name!r} of the distribution {_name_distribution(point)} is ignored"
                warnings.warn(f"{message}: {owner} has one of this name", stacklevel=2)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from list(self._entries)
        yield from (name for name in self.plugins if name not in self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.plugins

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _import(target: str) -> Any:
    """Return the object at ``"module:Object"``."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _check_subclass(found: type, base: type) -> type:
    """Return the class that an entry point names; TypeError if it is not a subclass of ``base``."""
    if not issubclass(found, base):
        raise TypeError(f"it must be a subclass of {base.__name__}, got {found.__name__}")
    return found


def _name_distribution(point: EntryPoint) -> str:
    """Name and version of the distribution of an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module


def require(module: str, *, extra: str | None = None, purpose: str = "") -> Any:
    """Import an optional package, or raise an error that says which command installs it.

    Parameters
    ----------
    module : str
        Dotted module name.
    extra : str, optional
        The extra of the distribution ``penstock-data`` that installs it; None if there is none.
    purpose : str, optional
        What it is needed for: the end of "... is needed ".

    Raises
    ------
    OptionalPackageError
        If the module, or its package, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # the package is installed; an import inside it failed
        package = module.partition(".")[0]
        what = f"'penstock-data[{extra}]'" if extra else package
        why = f" {purpose}" if purpose else ""
        raise OptionalPackageError(
            f"the package {package!r} is needed{why}; install it with: pip install {what}"
        ) from error


_waiting: dict[str, list[Callable[[], None]]] = {}
"""By module: what is to be called when it is imported."""


def is_awaited(name: str) -> bool:
    """Return whether calls wait for the import of module ``name``, which may be under way."""
    return name in _waiting


def when_imported(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """Call ``call()`` now if module ``name`` is imported, else as soon as it is.

    Returns
    -------
    callable
        Takes the request back.
    """

    def remove() -> None:
        calls = _waiting.get(name, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            _end_waiting(name)

    if name in sys.modules and name not in _waiting:
        call()
        return remove
    if not _waiting:
        sys.meta_path.insert(0, _FINDER)
    _waiting.setdefault(name, []).append(call)
    return remove


def _end_waiting(name: str) -> list[Callable[[], None]]:
    """Return what was to be called for a module that is waited for no more."""
    calls = _waiting.pop(name, [])
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    return calls


class _ImportHook(importlib.abc.MetaPathFinder):
    """Finds modules that are waited for by the other finders, and makes the calls after their import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _waiting:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            loader.__dict__.pop("exec_module", None)
            for call in _end_waiting(fullname):
                call()

        loader.exec_module = execute_and_call  # type: ignore[method-assign]  # this spec's own loader
        return spec


_FINDER: Final = _ImportHook()
