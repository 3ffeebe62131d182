"""Suppress the warnings of Pillow in one thread; other threads and the user's filters are not affected.

Pillow warns while it parses malformed files (TIFF tags, APNG, MPO): once per file, and under ``-W error`` it raises
instead of decoding. ``warnings.catch_warnings`` replaces a list that all threads share, so that two threads can leave
it replaced for ever. Here one filter is inserted at the front of the list instead; it matches only in threads that are
inside :func:`quiet`. Only :mod:`penstock.transforms.decoding.fallback` uses this.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["quiet"]

_here = threading.local()
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603  # a forked child may inherit it locked by a thread that the child does not have
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class _OnlyHere:
    """Takes the place of the compiled message pattern in a warnings filter."""

    def match(self, _text: str) -> bool:
        return getattr(_here, "depth", 0) > 0


_FILTER: Any = ("ignore", _OnlyHere(), Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning that this thread raises while the body runs; re-entrant and thread-safe."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]  # typeshed calls the list a Sequence
    if not filters or filters[0] is not _FILTER:
        with _lock:  # another filter was inserted, or an older list was restored
            if _FILTER in filters:
                filters.remove(_FILTER)
            filters.insert(0, _FILTER)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
