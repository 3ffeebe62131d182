"""What may be asked of a loader, and epochs in which it is asked: for tests that asking changes nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, Final

__all__ = ["ASK", "ASK_TOGETHER", "epochs"]


def _length(loader: Any) -> Any:
    try:
        return len(loader)
    except TypeError as error:  # a stream may have none
        return error


ASK: Final[dict[str, Callable[[Any], Any]]] = {
    "state_dict": lambda loader: loader.state_dict(),
    "state_dict twice": lambda loader: (loader.state_dict(), loader.state_dict()),
    "len": _length,
    "repr": repr,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "stats": lambda loader: (str(loader.stats()), loader.left_out),
    "attributes": lambda loader: [getattr(loader, name, None) for name in dir(loader) if name != "__abstractmethods__"],
    "isinstance": lambda loader: [hasattr(loader, name) for name in ("state_dict", "__len__", "set_epoch", "x")],
}

ASK_TOGETHER: Final[dict[str, Callable[[Any], Any]]] = {
    "everything": lambda loader: [ask(loader) for ask in ASK.values()],
}
"""The same in one test, where each test starts processes."""


def epochs(loader: Any, draw: Callable[[], float], ask: Callable[[Any], Any] | None = None) -> list[Any]:
    """Two epochs, as text, and what ``draw`` gives behind each; ``ask`` is called in their middle and at their end."""
    found: list[Any] = []
    for _ in range(2):
        for number, batch in enumerate(loader):
            found.append(repr(batch))
            if ask is not None and number in {0, 2}:
                ask(loader)
        if ask is not None:
            ask(loader)
        found.append(draw())
    return found
