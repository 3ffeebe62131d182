"""Renews locks and file descriptors of objects in forked children.

A lock that another thread holds at the moment of a fork stays locked for ever in the child, which does not have that
thread. A file descriptor is shared with the parent, and with it the locks of its file. An object that has either calls
:func:`watch` when it is made; its ``renew_in_child`` is called in each forked child before other code runs there.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Renewable", "watch"]


class Renewable(Protocol):
    """An object that must not share everything with its copy in a forked child."""

    def renew_in_child(self) -> None:
        """Replace what the child must not share with its parent; fast, and never raises."""
        ...


_watched: weakref.WeakSet[Renewable] = weakref.WeakSet()


def watch(owner: Renewable) -> None:
    """Have ``owner.renew_in_child()`` called in each forked child, as long as ``owner`` is alive."""
    _watched.add(owner)


def _renew_all() -> None:
    for owner in list(_watched):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
