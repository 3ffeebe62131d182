"""Renews in a forked child what must not be its parent's: locks, file descriptors.

A lock that another thread holds at the moment of a fork is held for ever in the child, which does not have that
thread. A descriptor is shared with the parent, and with it the locks of its file. An object that has either calls
:func:`watch` when it is made; its ``renew_in_child`` is called in each forked child before anything else runs there.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Renewed", "watch"]


class Renewed(Protocol):
    """An object with something of its own in each process."""

    def renew_in_child(self) -> None:
        """Replace what a forked child must not share with its parent; quick, and never raises."""
        ...


_watched: weakref.WeakSet[Renewed] = weakref.WeakSet()


def watch(owner: Renewed) -> None:
    """Have ``owner.renew_in_child()`` called in each forked child, as long as ``owner`` is alive."""
    _watched.add(owner)


def _renew_all() -> None:
    for owner in list(_watched):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
