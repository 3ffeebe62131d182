"""Watches penstock's loaders, NumPy's and torch's.

::

    iter(loader)     a run over the loader begins; the loader gets a WorkObserver; the iterator is a WatchedIterator
    WorkObserver     begin_part ── add: a stage of it ── begin_sample ── end_part ── begin_collation ── end_batch

The loader tells its observer how it builds batches, wherever it does: in the caller, a thread, or a worker process. A
thread has a recorder of its own, and a worker process a copy of the observer with one, which writes to a file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.doctor.watching.event_file import Control, make_row
from penstock.doctor.watching.loaders.loader_watch import EpochWatch, LoaderWatch
from penstock.doctor.watching.loaders.watched_iterators import LoaderT, watch_iter
from penstock.doctor.watching.recording import WORK_STAGES
from penstock.doctor.watching.stack_sampling import SampledThread, StackSampler
from penstock.doctor.watching.work_recorder import WorkRecorder, open_recorder
from penstock.loader.iteration import LoaderIterator
from penstock.loader.loader import DataLoader
from penstock.loader.statistics import LoaderStatistics
from penstock.trace import Observer

if TYPE_CHECKING:
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["WorkObserver", "install", "install_torch"]

_STAGES: Final = frozenset(WORK_STAGES)


def install(watcher: Watcher) -> None:
    """Watch penstock's loaders until ``watcher.uninstall()``."""
    watcher.replace(DataLoader, "__init__", watcher.made.watch_init(DataLoader.__init__))
    watcher.replace(DataLoader, "__iter__", _watch_iter(watcher, DataLoader.__iter__))


def install_torch(watcher: Watcher) -> None:
    """Have the iterators of ``penstock.torch.DataLoader``, which has an ``__iter__`` of its own, watched too."""
    from penstock.torch.loader.dataloader import DataLoader as TorchDataLoader

    original: Callable[[TorchDataLoader[object]], LoaderIterator] = TorchDataLoader.__iter__
    watcher.replace(TorchDataLoader, "__iter__", _watch_iter(watcher, original))


def _watch_iter(
    watcher: Watcher, original: Callable[[LoaderT], LoaderIterator]
) -> Callable[[LoaderT], Iterator[object]]:
    observers: dict[int, WorkObserver] = {}

    @contextlib.contextmanager
    def observe(watch: LoaderWatch, epoch: EpochWatch) -> Iterator[None]:
        loader = watch.loader
        assert isinstance(loader, LoaderStatistics), "as penstock's loaders are"
        observer = observers.get(id(loader))
        if observer is None:
            observer = observers[id(loader)] = WorkObserver(watcher, watch)
            loader.add_observer(observer)
            watcher.undo(partial(loader.remove_observer, observer))
        observer.number = epoch.number
        with watch.process.starting_workers():
            yield

    return watch_iter(watcher, original, observe, _count_ready)


def _count_ready(iterator: LoaderIterator) -> tuple[int, int]:
    """Batches that are built, -1 without workers; and those that were asked for."""
    queue = iterator.queue()
    return (queue.ready if iterator.backend.capabilities.builds_ahead else -1), queue.under_way


class WorkObserver(Observer):
    """Records how one loader builds.

    Parameters
    ----------
    watcher : Watcher
        In whose process this is made.
    watch : LoaderWatch
        Of the loader.

    Attributes
    ----------
    number : int
        Of the iterator whose workers get a copy.
    """

    observes_work: ClassVar[bool] = True

    def __init__(self, watcher: Watcher, watch: LoaderWatch) -> None:
        self._watcher: Watcher | None = watcher
        self._watch: LoaderWatch | None = watch
        self._control, self._folder, self.number = watch.control, watch.folder, 0
        self._builds_here = not watch.loader.num_workers
        self._local = threading.local()
        self._sampler: StackSampler | None = None  # of a worker process

    def __getstate__(self) -> tuple[Path, int]:
        return self._folder, self.number

    def __setstate__(self, state: tuple[Path, int]) -> None:
        self._folder, self.number = state
        self._control = Control(self._folder / "control")
        self._watcher = self._watch = self._sampler = None
        self._builds_here, self._local = False, threading.local()

    # in the process of the script

    def delivered(self, samples: int) -> None:
        """Note the size of a batch in the process that is watched."""
        if self._watch is not None and self._watcher is not None and self._watcher.is_here():
            self._watch.epoch.sizes.append(samples)

    def starting_processes(self) -> AbstractContextManager[None]:
        """Return a context in which the watched process starts workers."""
        watcher = self._watcher
        return watcher.process.starting_workers() if watcher is not None and watcher.is_here() else nullcontext()

    # where batches are built

    def start_worker(self, worker: int, *, is_process: bool) -> None:
        """Open the recorder of a worker; in a worker process also start to sample its stacks."""
        work: WorkRecorder | None = None
        if is_process:
            work = open_recorder(self._folder, self.number, worker)
            self._watcher = self._watch = None
            if work is not None:
                self._sampler = StackSampler()
                self._sampler.watch_thread(work.thread)
                self._sampler.start()
        elif self._watch is not None and self._watcher is not None:
            work = WorkRecorder(self._watch.sink, worker, SampledThread())
            self._watcher.process.add_recorder(work)
        self._local.work = work

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """Record that the thread begins samples of a batch."""
        work = self._begin_recording(batch)
        if work is not None:
            work.begin_samples(indices)

    def begin_sample(self, place: int, count: int = 1) -> None:
        """Record that the thread begins a sample."""
        work = self._present()
        if work is not None:
            work.begin_sample(place, count)

    def add(self, stage: str, time_ns: int, items: int) -> None:
        """Record the time that the thread has spent in a stage."""
        work = self._present()
        if work is not None and stage in _STAGES:
            work.add_part(stage, time_ns, items)
            if stage == "transport" and self._watch is None:
                work.leave_batch()
        elif work is None and stage == "transport" and self._watcher is not None and self._watcher.is_here():
            assert self._watch is not None, "not in a worker process"
            end = time.perf_counter_ns()  # a pool has received a batch, in the consumer's thread
            self._watch.sink.add([make_row("transport", -1, -1, end - time_ns, end)])

    def end_part(self, samples: int) -> None:
        """Record that the samples are built, and leave the batch."""
        work = self._present()
        if work is not None:
            work.end_samples(samples)
            work.leave_batch()

    def begin_collation(self, batch: int) -> None:
        """Record that the thread begins to make the batch."""
        self._begin_recording(batch)

    def end_batch(self, samples: int, begun_ns: int) -> None:
        """Record that the batch is made."""
        work = self._present()
        if work is not None:
            is_process = self._watch is None  # it still has to encode the batch
            if samples:  # a stream ends with a batch of none
                work.end_batch(samples, begun_ns=begun_ns, is_shared=not is_process and not self._builds_here)
            if not is_process:
                work.leave_batch()

    def _present(self) -> WorkRecorder | None:
        """Return the recorder of this thread, while it builds a batch."""
        work: WorkRecorder | None = getattr(self._local, "work", None)
        return work if work is not None and work.is_busy else None

    def _begin_recording(self, batch: int) -> WorkRecorder | None:
        """Return the recorder of this thread, which begins a part of a batch; None if nothing is to be recorded."""
        work: WorkRecorder | None = getattr(self._local, "work", None)
        if self._watcher is None:
            if self._control.is_stopped:
                self._stop()
                return None
        elif not self._watcher.is_here():
            return None
        elif work is None and self._builds_here and self._watch is not None:
            work = self._local.work = WorkRecorder(self._watch.sink, -1, self._watcher.process.current_thread())
        if work is not None:
            if work.is_busy:  # the batch before has failed
                work.leave_batch()
            work.begin_batch(self._control.first_batch + batch)
        return work

    def _stop(self) -> None:
        """Record nothing more in this worker process."""
        self._local.work = None
        if self._sampler is not None:
            self._sampler.stop()
