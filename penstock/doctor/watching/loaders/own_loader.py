"""Watches penstock's loaders, NumPy's and torch's.

::

    iter(loader)                  a run over the loader begins; the loader gets a WorkObserver
    LoaderIterator.__next__       wait, step
    WorkObserver                  batches, parts, samples, stages: in the caller, a thread, or a worker process

``iter`` and ``next`` are replaced as torch's are, since the fixed-data test gives batches of its own. Batches and
random states are not touched.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from penstock.doctor.watching.loaders.own_work import WorkObserver
from penstock.doctor.watching.loaders.watched_iterators import EPOCH, watch_next
from penstock.doctor.watching.watcher import Watcher
from penstock.loader.iteration import LoaderIterator
from penstock.loader.loader import DataLoader

__all__ = ["install", "install_torch"]


def install(watcher: Watcher) -> None:
    """Replace methods of penstock's loaders until ``watcher.uninstall()``."""
    watcher.replace(DataLoader, "__init__", watcher.made.watch_init(DataLoader.__init__))
    watcher.replace(DataLoader, "__iter__", _watch_iter(watcher, DataLoader.__iter__))
    watcher.replace(LoaderIterator, "__next__", watch_next(watcher, LoaderIterator.__next__, _count_ready))


def install_torch(watcher: Watcher) -> None:
    """The same for ``penstock.torch.DataLoader``, which has an ``__iter__`` of its own."""
    from penstock.torch.loader.epoch_starter import EpochStarter

    watcher.replace(EpochStarter, "__iter__", _watch_iter(watcher, EpochStarter.__iter__))


def _watch_iter(watcher: Watcher, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    observers: dict[int, WorkObserver] = {}

    @functools.wraps(original)
    def make_iterator(self: Any) -> Any:
        watcher.change_loader(self)
        watch = watcher.watch_of(self)
        if watch is None:
            return original(self)
        start = time.perf_counter_ns()
        observer = observers.get(id(self))
        if observer is None:
            observer = observers[id(self)] = WorkObserver(watcher, watch, self)
            self.add_observer(observer)
            watcher.undo(functools.partial(self.remove_observer, observer))
        observer.begin_epoch()
        with watcher.starting_workers():
            iterator = original(self)
        epoch = watch.begin_epoch(time.perf_counter_ns() - start)
        observer.epoch = epoch
        if isinstance(iterator, LoaderIterator):
            setattr(iterator, EPOCH, epoch)
        return iterator

    return make_iterator


def _count_ready(iterator: LoaderIterator) -> int:
    """Batches that are built; -1 without workers."""
    return iterator.queue().ready if iterator.backend.capabilities.builds_ahead else -1
