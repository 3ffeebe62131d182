"""Passes on an interrupt that a finalizer has swallowed.

::

    Ctrl-C ──> flag ──> KeyboardInterrupt at the next bytecode, which may be one of ``__del__`` or a weak reference's
                          └ Python prints "Exception ignored in ...", and the program goes on

An exception cannot leave a finalizer, and one that is raised at its first bytecode cannot be caught there. Modules
whose objects have finalizers call :func:`pass_on_interrupts` when they are imported; then the signal comes again, once
the finalizer is over. What finalizers of other packages swallow is left to the hook that there was.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["pass_on_interrupts"]

_OWNERS: Final = frozenset({"penstock", "weakref", "_weakrefset"})
"""Packages of finalizers, and of the weak references that call ours."""

_PAUSE_S: Final = 0.01
"""Longer than a finalizer takes; one that is interrupted again passes that on, too."""


def pass_on_interrupts() -> None:
    """Have a KeyboardInterrupt that a finalizer swallows raised again in the main thread. Idempotent."""
    if not isinstance(sys.unraisablehook, _Hook):
        sys.unraisablehook = _Hook(sys.unraisablehook)


class _Hook:
    """A ``sys.unraisablehook`` before another one."""

    def __init__(self, other: Callable[[Any], object]) -> None:
        self._other = other

    def __call__(self, unraisable: Any) -> None:
        package = str(getattr(unraisable.object, "__module__", "")).partition(".")[0]
        if unraisable.exc_type is not KeyboardInterrupt or package not in _OWNERS or not _signal_later():
            self._other(unraisable)


def _signal_later() -> bool:
    """Interrupt the main thread in a moment; False where no thread can be started any more."""
    try:
        threading.Thread(target=_signal, name="penstock-interrupt", daemon=True).start()
    except RuntimeError:
        return False
    return True


def _signal() -> None:
    time.sleep(_PAUSE_S)
    ident = threading.main_thread().ident
    if ident is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(ident, signal.SIGINT)  # ends its wait, too
    else:
        signal.raise_signal(signal.SIGINT)
