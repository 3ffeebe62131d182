"""Watches ``torch.utils.data.DataLoader`` in the main process: what is replaced while a watcher is installed.

::

    DataLoader.__init__               where a loader is made
    DataLoader.__iter__               arguments that a run is to try (--rerun) are set
    _BaseDataLoaderIter.__init__      a run over the loader begins; iter(loader) starts the workers
    _BaseDataLoaderIter.__next__      wait, step
    _BaseDataLoaderIter._next_index   samples of each batch
    _Multi...__init__, _reset         RecordingStart is sent       to the workers; the result queue's receiving is timed
    _Single...__init__                the fetcher is timed here

torch's own classes are changed, so a subclass of DataLoader, and what a framework wraps around it, is watched too.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data.dataloader as torch_dataloader

from penstock.doctor.watching.event_file import make_row
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.loaders.torch_worker import is_batch_message, record_worker, watch_fetcher
from penstock.doctor.watching.loaders.watched_iterators import EPOCH, find_epoch, watch_next
from penstock.doctor.watching.loaders.worker_start import RecordingStart
from penstock.doctor.watching.watcher import Watcher
from penstock.doctor.watching.work_recorder import WorkRecorder

__all__ = ["install"]


def install(watcher: Watcher) -> None:
    """Replace torch's methods until ``watcher.uninstall()``."""
    base = torch_dataloader._BaseDataLoaderIter  # noqa: SLF001  # torch has no public hooks
    multi = torch_dataloader._MultiProcessingDataLoaderIter  # noqa: SLF001  # as above
    single = torch_dataloader._SingleProcessDataLoaderIter  # noqa: SLF001  # as above
    loader = torch_dataloader.DataLoader
    watcher.replace(loader, "__init__", watcher.made.watch_init(loader.__init__))
    watcher.replace(loader, "__iter__", _change_before(watcher, loader.__iter__))
    watcher.replace(base, "__init__", _watch_start(watcher, base.__init__))
    watcher.replace(base, "__next__", watch_next(watcher, base.__next__, _count_ready))
    watcher.replace(base, "_next_index", _watch_indices(watcher, base._next_index))  # noqa: SLF001  # as above
    watcher.replace(multi, "__init__", _watch_workers(watcher, multi.__init__))
    watcher.replace(multi, "_reset", _watch_reset(watcher, multi._reset))  # noqa: SLF001  # as above
    watcher.replace(single, "__init__", _watch_single(watcher, single.__init__))


def _change_before(watcher: Watcher, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def make_iterator(self: Any) -> Any:
        watcher.change_loader(self)
        return original(self)

    return make_iterator


def _watch_start(watcher: Watcher, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, loader: Any) -> None:
        watch = watcher.watch_of(loader)
        if watch is not None and EPOCH not in vars(self):
            setattr(self, EPOCH, watch.begin_epoch())
        original(self, loader)

    return init


def _watch_indices(watcher: Watcher, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def next_index(self: Any) -> Any:
        start = time.perf_counter_ns()
        index = original(self)
        drawn_ns = time.perf_counter_ns() - start
        attributes = self.__dict__
        epoch = attributes.get(EPOCH)
        if epoch is not None and watcher.is_active:
            number = attributes.get("_send_idx")
            if number is None:
                number = self._num_yielded  # without workers
            count = len(index) if isinstance(index, (list, tuple)) else 1
            epoch.watch.lengths[epoch.watch.first_batch + number] = count
            epoch.watch.drawn_ns.append(drawn_ns)
        return index

    return next_index


def _watch_workers(watcher: Watcher, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, loader: Any) -> None:
        watch = watcher.watch_of(loader)
        if watch is None:
            original(self, loader)
            return
        start = time.perf_counter_ns()
        setattr(self, EPOCH, watch.begin_epoch())
        _count_from_here(watch)
        with watcher.starting_workers(), _worker_start(loader, watch):
            original(self, loader)
        watch.iterator = weakref.ref(self)
        _time_receiving(watcher, watch, self)
        getattr(self, EPOCH).started_ns = time.perf_counter_ns() - start

    return init


def _watch_reset(watcher: Watcher, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        epoch = find_epoch(watcher, self)
        if epoch is None or first_iter:
            original(self, loader, first_iter)
            return
        start = time.perf_counter_ns()
        _count_from_here(epoch.watch)
        following = epoch.watch.begin_epoch()
        setattr(self, EPOCH, following)
        original(self, loader, first_iter)
        following.started_ns = time.perf_counter_ns() - start

    return reset


def _watch_single(watcher: Watcher, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, loader: Any) -> None:
        watch = watcher.watch_of(loader)
        if watch is None:
            original(self, loader)
            return
        start = time.perf_counter_ns()
        epoch = watch.begin_epoch()
        setattr(self, EPOCH, epoch)
        watch.first_batch = watch.next_number()
        original(self, loader)
        epoch.started_ns = time.perf_counter_ns() - start
        work = WorkRecorder(watch.sink, -1, watcher.current_thread())
        work.first_batch = watch.first_batch
        this = weakref.ref(self)  # the fetcher is the iterator's own

        def number() -> int:
            return int(getattr(this(), "_num_yielded", 0))

        watch_fetcher(self._dataset_fetcher, work, number, lambda: not watcher.is_here())

    return init


def _count_from_here(watch: LoaderWatch) -> None:
    """Number the batches of this epoch after those that were asked for before."""
    watch.first_batch = watch.control.first_batch = watch.next_number()


@contextlib.contextmanager
def _worker_start(loader: Any, watch: LoaderWatch) -> Iterator[None]:
    """For the time in which workers are started, the loader's ``worker_init_fn`` is ours, which calls the user's."""
    attributes = vars(loader)
    if "worker_init_fn" not in attributes:  # a subclass with a property of this name
        yield
        return
    function = attributes["worker_init_fn"]
    attributes["worker_init_fn"] = RecordingStart(record_worker, function, watch.folder, watch.iterators)
    watch.iterators += 1
    try:
        yield
    finally:
        attributes["worker_init_fn"] = function


def _count_ready(iterator: Any) -> int:
    """Batches that are received, or lie in queues; -1 if it cannot be seen."""
    tasks = getattr(iterator, "_task_info", None)
    if tasks is None:
        return -1
    try:
        ready = sum(len(task) > 1 for task in tasks.values()) + iterator._data_queue.qsize()  # noqa: SLF001  # torch's
        if iterator._data_queue is not iterator._worker_result_queue:  # noqa: SLF001  # torch's
            ready += iterator._worker_result_queue.qsize()  # noqa: SLF001  # torch's
    except NotImplementedError:  # macOS
        return -1
    return int(ready)


def _time_receiving(watcher: Watcher, watch: LoaderWatch, iterator: Any) -> None:
    """Time what happens in this process after a batch's message has come: it is read, and its tensors are mapped."""
    queue = iterator._worker_result_queue  # noqa: SLF001  # torch's
    get, receive = queue.get, getattr(queue, "_recv_bytes", None)
    if receive is None:
        return
    began = 0

    def timed_receive(*args: Any, **kwargs: Any) -> Any:
        nonlocal began
        began = time.perf_counter_ns()
        return receive(*args, **kwargs)

    def timed_get(*args: Any, **kwargs: Any) -> Any:
        message = get(*args, **kwargs)
        if watch.is_brief:
            return message
        if watcher.is_here() and is_batch_message(message):
            end, number = time.perf_counter_ns(), message[0] + watch.first_batch
            row = make_row("transport", -1, number, began, end, samples=watch.lengths.get(number, 0))
            watch.sink.add([row])  # its bytes are in the worker's event
        return message

    queue._recv_bytes, queue.get = timed_receive, timed_get  # noqa: SLF001  # as above
