"""Ends iterators whose cell of a notebook was interrupted, so that their workers do not stay.

::

    for batch in loader: ...        Ctrl-C, "interrupt the kernel"
        └ IPython keeps the traceback ── which keeps the frame ── which keeps the iterator, and so its workers

Called by ``LoaderIterator`` when an epoch begins. Outside IPython nothing is done: there the iterator is dropped with
its frame. Iterators that a variable of the notebook holds are left alone, and so are those of earlier cells: they can
be continued. A loader is as it was: its next ``iter()`` begins an epoch, or resumes a state.
"""

from __future__ import annotations

import logging
import sys
import weakref
from typing import Protocol

__all__ = ["end_with_cell"]

_logger = logging.getLogger(__name__)


class _Closable(Protocol):
    def close(self) -> None: ...


class _Shell(Protocol):
    """What is used of IPython's shell."""

    user_ns: dict[str, object]


class _Result(Protocol):
    """What IPython says of a cell that has ended."""

    error_in_exec: BaseException | None


_of_this_cell: weakref.WeakSet[_Closable] = weakref.WeakSet()
"""Iterators that began since a cell ended."""

_hooked: list[_Shell] = []
"""The shell whose cells are watched: there is one in a process."""


def end_with_cell(iterator: _Closable) -> None:
    """Close ``iterator`` if the cell that runs now is interrupted, unless a variable holds it; nothing elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    events = getattr(shell, "events", None)
    if shell is None or events is None:
        return
    _of_this_cell.add(iterator)
    if not any(each is shell for each in _hooked):
        _hooked[:] = [shell]
        events.register("post_run_cell", lambda result: _end_interrupted(shell, result))


def _end_interrupted(shell: _Shell, result: _Result) -> None:
    iterators = list(_of_this_cell)
    _of_this_cell.clear()
    if isinstance(result.error_in_exec, KeyboardInterrupt):
        held = {id(value) for value in list(shell.user_ns.values())}
        for iterator in iterators:
            if id(iterator) not in held:
                _logger.debug("the cell was interrupted: the workers of its iterator are stopped")
                iterator.close()
