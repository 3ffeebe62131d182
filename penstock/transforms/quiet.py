"""Silence Pillow's warnings in one thread, leaving every other thread's and the user's filters alone.

Pillow warns while it parses (malformed TIFF tags, invalid APNG, malformed MPO): about files nobody at the
keyboard wrote, hundreds of times, and under ``-W error`` in place of pixels. ``warnings.catch_warnings``
swaps a list that all threads share, so two threads that overlap can leave it swapped for good. Here one
filter is put in front of the list instead, whose *match* asks the current thread; elsewhere it matches
nothing. Only :mod:`penstock.transforms.fallback` uses this.
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
    global _lock  # noqa: PLW0603  # a forked child may inherit it held, by a thread it does not have
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class _OnlyHere:
    """Stands where a compiled message pattern stands in a warnings filter."""

    def match(self, _text: str) -> bool:
        return getattr(_here, "depth", 0) > 0


_FILTER: Any = ("ignore", _OnlyHere(), Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning that this thread raises while the body runs; re-entrant and thread-safe."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]  # typeshed calls the list a Sequence
    if not filters or filters[0] is not _FILTER:
        with _lock:  # somebody put a filter before ours, or brought an older list back
            if _FILTER in filters:
                filters.remove(_FILTER)
            filters.insert(0, _FILTER)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
