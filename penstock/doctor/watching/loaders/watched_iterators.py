"""What is seen of an iterator that takes batches from a watched loader, of torch or penstock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from penstock.doctor.watching.loaders.loader_watch import EpochWatch
from penstock.doctor.watching.watcher import Watcher

__all__ = ["EPOCH", "find_epoch", "watch_next"]

EPOCH: Final = "_penstock_epoch_watch"
"""The attribute of iterators under which their :class:`.loader_watch.EpochWatch` is kept."""


def find_epoch(watcher: Watcher, iterator: Any) -> EpochWatch | None:
    """What is seen of an iterator; None if it is not watched."""
    if not watcher.is_here():
        return None
    epoch = vars(iterator).get(EPOCH)
    return epoch if isinstance(epoch, EpochWatch) and epoch.watch.watcher is watcher else None


def watch_next(
    watcher: Watcher, original: Callable[[Any], Any], count_ready: Callable[[Any], int]
) -> Callable[[Any], Any]:
    """A ``__next__`` that times each batch; ``count_ready`` counts those that are built."""

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        known = self.__dict__.get(EPOCH)
        if known is not None and known.brief > 0:  # first, as this is for batches that take microseconds
            return known.watch.next_briefly(known, original, self)
        epoch = find_epoch(watcher, self)
        if epoch is None:
            watcher.check_ended()
            return original(self)
        return epoch.watch.next(epoch, functools.partial(original, self), functools.partial(count_ready, self))

    return next_batch
