"""Iterators of watched loaders, of torch or penstock: each batch is timed where the script takes it.

::

    DataLoader.__iter__ ── watch_iter ──> WatchedIterator ── next ──> the loader's iterator
    the last k steps    asked ── the batch before, copied ── step ── ...         the fixed-data test

Only ``__iter__`` of loaders is replaced; their iterators are as they are.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar, cast

from penstock.doctor.watching.batch_copies import ReplayedBatch, synchronize_device
from penstock.doctor.watching.batch_layout import guess_samples
from penstock.doctor.watching.loaders.loader_settings import WatchedLoader
from penstock.doctor.watching.loaders.loader_watch import EpochWatch, LoaderWatch, ScriptStep

if TYPE_CHECKING:
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["LoaderT", "WatchedIterator", "watch_iter"]

_IDLE_LOOKS: Final = 4
_LOOK_S: Final = 0.01
_MOST_IDLE_WAIT_S: Final = 5.0

LoaderT = TypeVar("LoaderT", bound=WatchedLoader)
IteratorT = TypeVar("IteratorT", bound=Iterator[object])


def watch_iter(
    watcher: Watcher,
    original: Callable[[LoaderT], IteratorT],
    observe: Callable[[LoaderWatch, EpochWatch], AbstractContextManager[object]],
    count_ready: Callable[[IteratorT], tuple[int, int]],
) -> Callable[[LoaderT], Iterator[object]]:
    """Return an ``__iter__`` of loaders that are watched.

    Parameters
    ----------
    watcher : Watcher
        That of this process.
    original : callable
        The loader's own.
    observe : callable
        Has the building of batches observed by the iterator that is made within the context it returns.
    count_ready : callable
        Counts the batches of an iterator that are built, -1 if that cannot be seen; and those that were asked for.
    """

    @functools.wraps(original)
    def make_iterator(loader: LoaderT) -> Iterator[object]:
        watcher.check_ended()
        watcher.change_loader(loader)
        watch = watcher.watch_of(loader)
        if watch is None:
            return original(loader)
        epoch = watch.begin_epoch()
        with observe(watch, epoch):
            iterator = original(loader)
        epoch.started_ns = time.perf_counter_ns() - epoch.began_ns
        watch.iterator = weakref.ref(iterator)
        return WatchedIterator(iterator, watcher, watch, epoch, functools.partial(count_ready, iterator))

    return make_iterator


class WatchedIterator:
    """An iterator whose batches are timed; all else is the iterator's own."""

    def __init__(
        self,
        iterator: Iterator[object],
        watcher: Watcher,
        watch: LoaderWatch,
        epoch: EpochWatch,
        count_ready: Callable[[], tuple[int, int]],
    ) -> None:
        self._iterator, self._watcher, self._watch, self._epoch = iterator, watcher, watch, epoch
        self._count_ready = count_ready

    def __getattr__(self, name: str) -> object:
        if name == "_iterator":  # of a copy that is being made
            raise AttributeError(name)
        return cast("object", getattr(self._iterator, name))

    def __iter__(self) -> WatchedIterator:
        return self

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]  # iterators of loaders have a length

    def __next__(self) -> object:
        watcher, watch, epoch = self._watcher, self._watch, self._epoch
        if not watcher.is_here():
            watcher.check_ended()
            return next(self._iterator)
        asked = time.perf_counter_ns()
        watch.first_asked = watch.first_asked or asked
        watch.end_step(asked, epoch)
        if watch.replayed is not None:
            return self._replay(watch.replayed)
        if watch.thread_trial.begun_ns and watch.thread_trial.goes_on(asked, epoch):
            return self._take()[0]
        if not epoch.delivered:
            watch.places.note(self, epoch.started_ns)
        return self._begin_step(watch.sees_detail())

    def _take(self) -> tuple[object, int]:
        """Return the next batch, and its samples as far as they are known."""
        epoch = self._epoch
        batch = next(self._iterator)
        epoch.delivered += 1
        return batch, epoch.sizes.popleft() if epoch.sizes else 0

    def _begin_step(self, is_detailed: bool) -> object:
        watcher, watch, epoch = self._watcher, self._watch, self._epoch
        ready = self._count_ready()[0] if is_detailed else watch.steps[-1].ready
        asked = time.perf_counter_ns()
        try:
            batch, samples = self._take()
        except StopIteration:
            watcher.note_wait(watch, asked, time.perf_counter_ns())
            raise
        arrived = time.perf_counter_ns()
        if is_detailed or len(watcher.watches) > 1:
            watcher.note_wait(watch, asked, arrived)
        number = epoch.first_batch + epoch.delivered - 1
        wait, epoch.started_ns = arrived - asked + epoch.started_ns, 0
        step = ScriptStep(number, epoch.number, wait, arrived, ready, samples or guess_samples(batch))
        if watch.places.layout is None:
            watch.places.note_batch(batch)
        if watcher.is_enough(watch, arrived):
            times = [step.wait + step.length for step in watch.steps if step.length >= 0]
            if watcher.tries_threads(watch) and watch.thread_trial.begin(arrived, epoch, times):
                return batch
            if not watcher.limits.replays:
                watch.steps.append(step)
                watcher.finish()
                return batch
            watch.replayed = ReplayedBatch(batch)
        watch.begin_step(step, epoch, is_detailed=is_detailed)
        if is_detailed:
            watch.places.begin_step(batch, len(watch.steps))
        return batch

    # the fixed-data test

    def _replay(self, batch: ReplayedBatch) -> object:
        watch = self._watch
        last = watch.steps[-1]
        if not watch.replays:
            self._await_idle_workers()
            synchronize_device()
        elif watch.replays >= self._watcher.limits.replays:
            before = time.perf_counter_ns()
            synchronize_device()
            last.length += time.perf_counter_ns() - before
            self._watcher.finish()
        watch.replays += 1
        again = batch.take()
        step = ScriptStep(-1, self._epoch.number, 0, 0, -1, last.samples, replayed=True)
        watch.begin_step(step, self._epoch, is_detailed=True)
        return again

    def _await_idle_workers(self) -> None:
        """Let workers end what they were asked for: the test is of the trainer alone."""
        deadline, idle = time.monotonic() + _MOST_IDLE_WAIT_S, 0
        while idle < _IDLE_LOOKS and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            ready, asked_for = self._count_ready()
            idle = 0 if 0 <= ready < asked_for else idle + 1
