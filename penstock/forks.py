"""What a forked child must not share with its parent: locks, file descriptors, libraries that do not support fork.

A lock that another thread holds at the moment of a fork stays locked for ever in the child, which does not have that
thread. A file descriptor is shared with the parent, and with it the locks of its file. An object that has either calls
:func:`watch` when it is made; its ``renew_in_child`` is called in each forked child before other code runs there.

A library with threads of its own may not work in a forked child at all: its threads are missing there, and the memory
that they shared is as they left it. :func:`note_use` remembers that such a library was used.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Renewable", "libraries_without_fork", "note_use", "used_before_fork", "watch"]


class Renewable(Protocol):
    """An object that must not share everything with its copy in a forked child."""

    def renew_in_child(self) -> None:
        """Replace what the child must not share with its parent; fast, and never raises."""
        ...


_watched: weakref.WeakSet[Renewable] = weakref.WeakSet()


def watch(owner: Renewable) -> None:
    """Have ``owner.renew_in_child()`` called in each forked child, as long as ``owner`` is alive."""
    _watched.add(owner)


_users: dict[str, int] = {}
"""Libraries that do not support fork, and the process that used each first."""


def note_use(library: str) -> None:
    """Remember that this process uses a library that does not work in its forked children."""
    _users.setdefault(library, os.getpid())


def used_before_fork(library: str) -> bool:
    """Whether this process was forked from one that had used the library."""
    return _users.get(library, os.getpid()) != os.getpid()


def libraries_without_fork() -> list[str]:
    """The libraries that this process uses and that its forked children cannot use."""
    return [library for library, process in _users.items() if process == os.getpid()]


def _renew_all() -> None:
    for owner in list(_watched):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
