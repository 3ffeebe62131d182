"""Watches ``torch.utils.data.DataLoader`` in the main process.

::

    DataLoader.__init__     where a loader is made                                              replaced
    DataLoader.__iter__     a run over the loader begins; the iterator is a WatchedIterator     replaced
      dataset, collate_fn, worker_init_fn, the sampler: attributes of the loader, ours while its iterator is made

Subclasses of DataLoader, and what a framework wraps around it, are watched too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import torch.utils.data.dataloader as torch_dataloader

from penstock.doctor.watching.loaders.loader_watch import EpochWatch, LoaderWatch
from penstock.doctor.watching.loaders.torch_worker import BuildRecording, RecordedDataset
from penstock.doctor.watching.loaders.watched_iterators import watch_iter
from penstock.doctor.watching.work_recorder import WorkRecorder

if TYPE_CHECKING:
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["install"]

_replacing: Final = threading.RLock()
"""Held while attributes of a loader are ours: two threads may iterate one loader."""
_BUILDING: Final = frozenset({"dataset", "collate_fn", "worker_init_fn", "batch_sampler"})


def install(watcher: Watcher) -> None:
    """Watch torch's loaders until ``watcher.uninstall()``."""
    loader = torch_dataloader.DataLoader
    watcher.replace(loader, "__init__", watcher.made.watch_init(loader.__init__))
    observe = partial(_observe, watcher)
    watcher.replace(loader, "__iter__", watch_iter(watcher, loader.__iter__, observe, _count_ready))


@contextlib.contextmanager
def _observe(watcher: Watcher, watch: LoaderWatch, epoch: EpochWatch) -> Iterator[None]:
    """Replace attributes of the loader, while it makes an iterator, by ours, which call the user's."""
    loader, attributes = watch.loader, vars(watch.loader)
    if attributes.get("_iterator") is not None:  # its workers go on, and use what they have
        yield
        return
    with _replacing, watch.process.starting_workers() if loader.num_workers else contextlib.nullcontext():
        ours: dict[str, object] = {}
        sampler = "sampler" if attributes.get("batch_sampler") is None else "batch_sampler"
        if sampler in attributes:
            ours[sampler] = TimedSampler(attributes[sampler], watch)
        if attributes.keys() >= _BUILDING and not _is_data_pipe(loader.dataset):  # no properties of a subclass
            ours |= _record_builds(watcher, watch, epoch)
        before = {name: attributes[name] for name in ours}
        attributes.update(ours)
        try:
            yield
        finally:
            attributes.update(before)


def _is_data_pipe(dataset: object) -> bool:
    """Return whether torch looks for the dataset's class, and changes it."""
    from torch.utils.data import IterDataPipe, MapDataPipe  # this module is imported before they are there

    return isinstance(dataset, (IterDataPipe, MapDataPipe))


def _record_builds(watcher: Watcher, watch: LoaderWatch, epoch: EpochWatch) -> dict[str, object]:
    """Return what takes the place of the loader's dataset and functions."""
    recording = BuildRecording(watch.loader, watch.folder, epoch.number, epoch.first_batch)
    ours = {"dataset": RecordedDataset(recording), "collate_fn": recording.collate}
    if not watch.loader.num_workers:
        work = WorkRecorder(watch.sink, -1, watch.process.current_thread())
        recording.record_here(work, lambda: not watcher.is_here())
        return ours
    return {**ours, "worker_init_fn": recording.start}


class TimedSampler:
    """A sampler whose draws are timed; each run over it belongs to the loader's present epoch."""

    def __init__(self, sampler: Iterable[object], watch: LoaderWatch) -> None:
        self._sampler, self._watch = sampler, watch

    def __getattr__(self, name: str) -> object:
        return cast("object", getattr(self._sampler, name))

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # as the user's own

    def __iter__(self) -> TimedDraws:
        return TimedDraws(iter(self._sampler), self._watch)


class TimedDraws:
    """The indices of batches, whose drawing is timed."""

    def __init__(self, draws: Iterator[object], watch: LoaderWatch) -> None:
        self._draws, self._drawn_ns, self._sizes = draws, watch.drawn_ns, watch.epoch.sizes

    def __iter__(self) -> TimedDraws:
        return self

    def __next__(self) -> object:
        start = time.perf_counter_ns()
        indices = next(self._draws)
        self._drawn_ns.append(time.perf_counter_ns() - start)
        self._sizes.append(len(indices) if isinstance(indices, (list, tuple)) else 1)
        return indices


def _count_ready(iterator: object) -> tuple[int, int]:
    """Batches that are received, or lie in queues, -1 if it cannot be seen; and those that were asked for."""
    tasks = getattr(iterator, "_task_info", None)
    if tasks is None:
        return -1, 0
    queues = {getattr(iterator, name) for name in ("_data_queue", "_worker_result_queue")}
    try:
        return sum(len(task) > 1 for task in tasks.values()) + sum(queue.qsize() for queue in queues), len(tasks)
    except NotImplementedError:  # macOS
        return -1, 0
