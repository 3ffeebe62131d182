"""Maps names to classes, and imports optional packages.

A new store, sampler, op, annotation format or worker backend is one new file and one registration line in the
``__init__.py`` of its folder. The registration also adds it to the conformance suite of the folder, which iterates over
:class:`Registry`. Registering imports nothing: an entry is ``"module:Class"`` and is imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from penstock.errors import ArgumentError, OptionalPackageError

__all__ = ["Registry", "require"]


class Registry:
    """An ordered mapping of names to lazily imported objects.

    Parameters
    ----------
    what : str
        The kind of entry, in the singular, for messages ("store", "op").
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, str] = {}

    def register(self, name: str, target: str) -> None:
        """Register ``target`` ("package.module:Object") under ``name``.

        Raises
        ------
        ArgumentError
            If the name is registered already.
        """
        if name in self._entries:
            raise ArgumentError(f"{self.what} {name!r} is registered twice: {self._entries[name]} and {target}")
        self._entries[name] = target

    def get(self, name: str) -> Any:
        """Import and return the object registered under ``name``.

        Raises
        ------
        ArgumentError
            If the name is unknown; the message lists the registered names.
        """
        try:
            target = self._entries[name]
        except KeyError:
            raise ArgumentError(f"unknown {self.what} {name!r}; known: {', '.join(self) or 'none'}") from None
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)


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
