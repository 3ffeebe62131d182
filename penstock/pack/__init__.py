"""Packing: sources into stores, and the proof that what is stored is what the source holds.

``penstock.pack`` is this package and, called, the function: ``penstock.pack("photos/", "photos.lmdb")``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from penstock.pack.packing import PackProgress, PackReport, pack
from penstock.pack.verifying import VerifyReport, verify

__all__ = ["PackProgress", "PackReport", "VerifyReport", "pack", "verify"]


class _Package(ModuleType):
    """Importing a package binds its name in its parent, over the function of that name; so the package is callable."""

    def __call__(self, *args: Any, **kwargs: Any) -> PackReport:
        return pack(*args, **kwargs)


sys.modules[__name__].__class__ = _Package
