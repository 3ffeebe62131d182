"""Watches the process that builds the batches of ``torch.utils.data.DataLoader``: mostly a worker.

::

    RecordingStart, in the place of worker_init_fn, called by torch's worker loop
        fetcher of torch's          dataset, iterator, collate_fn and fetch are timed
        sampling thread             looks at what the worker's thread is doing
        feeder thread of the queue  the pickler is timed: it writes tensors to shared memory
        events ──> file

The dataset object is not wrapped: ``get_worker_info().dataset`` and the user's own references stay as they are. Random
states are not touched, so the same batches come in the same order.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing.queues
import time
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
import torch
import torch.utils.data.dataloader as torch_dataloader

from penstock.doctor.watching.event_file import Control, make_row
from penstock.doctor.watching.stack_sampling import Activity, StackSampler
from penstock.doctor.watching.work_recorder import WorkRecorder

__all__ = ["count_bytes", "is_batch_message", "record_worker", "watch_fetcher"]

_MAX_ARRAYS: Final = 2000


def count_bytes(batch: object) -> tuple[int, int]:
    """Bytes of the tensors and arrays in a batch, and how many there are; of the first 2,000."""
    nbytes = arrays = 0
    waiting = [batch]
    while waiting and arrays < _MAX_ARRAYS:
        value = waiting.pop()
        if isinstance(value, (torch.Tensor, np.ndarray)):
            nbytes, arrays = nbytes + value.nbytes, arrays + 1
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return nbytes, arrays


# In the process that builds batches.


class _TimedIndices(list[Any]):
    """The indices of a batch: torch's fetcher takes one when it begins a sample.

    So neither the dataset nor what it returns is wrapped.

    Parameters
    ----------
    indices : list or tuple
        Of the batch.
    activity : Activity
        Of the thread.
    measures_cpu : bool
        Whether the thread's processor time is read too, which costs a microsecond.

    Attributes
    ----------
    taken : list of int
        When each sample was begun.
    cpu : list of int
        The processor time of the thread then; empty if it is not read.
    """

    __slots__ = ("_activity", "_measures_cpu", "cpu", "taken")

    def __init__(self, indices: Any, activity: Activity, *, measures_cpu: bool) -> None:
        super().__init__(indices)
        self._activity, self._measures_cpu = activity, measures_cpu
        self.taken: list[int] = []
        self.cpu: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        """The indices, as a list gives them."""
        clock, note, activity = time.perf_counter_ns, self.taken.append, self._activity
        for position, index in enumerate(super().__iter__()):
            if self._measures_cpu:
                self.cpu.append(time.thread_time_ns())
            now = activity.since = clock()
            activity.position = position
            note(now)
            yield index

    def write(self, work: WorkRecorder, count: int, end: int) -> None:
        """Write the first ``count`` samples, of which the last one ended at ``end``."""
        count = min(count, len(self.taken))
        if not count:
            work.end_samples()
            return
        if self.cpu:
            self.cpu.append(time.thread_time_ns())
        self.taken.append(end)
        numbers = [int(index) if isinstance(index, (int, np.integer)) else -1 for index in self[:count]]
        work.write_many(numbers, self.taken[: count + 1], self.cpu[: count + 1])


def _count_indices(index: Any) -> int:
    return max(1, len(index)) if isinstance(index, (list, tuple, np.ndarray)) else 1


def watch_fetcher(fetcher: Any, work: WorkRecorder, number: Callable[[], int], is_over: Callable[[], bool]) -> None:
    """Time the work of a fetcher of torch's.

    Parameters
    ----------
    fetcher : _BaseDatasetFetcher
        Changed in place.
    work : WorkRecorder
        Of this worker.
    number : callable
        The number of the batch that is being fetched.
    is_over : callable
        Whether nothing more is to be recorded; the fetcher is then as it was.
    """
    _FetcherWatch(fetcher, work, number, is_over).install()


class _FetcherWatch:
    """What :func:`watch_fetcher` puts in the place of a fetcher's methods."""

    def __init__(
        self, fetcher: Any, work: WorkRecorder, number: Callable[[], int], is_over: Callable[[], bool]
    ) -> None:
        self._fetcher, self._work, self._number, self._is_over = fetcher, work, number, is_over
        self._fetch, self._collate = fetcher.fetch, fetcher.collate_fn
        self._is_stream = hasattr(fetcher, "dataset_iter")
        self._is_batched = bool(fetcher.auto_collation)
        self._takes_singly = fetcher.auto_collation and not getattr(fetcher.dataset, "__getitems__", None)
        self._asked: Any = None

    def install(self) -> None:
        """Replace the methods."""
        self._fetcher.fetch, self._fetcher.collate_fn = self.fetch, self.collate

    def fetch(self, index: Any) -> Any:
        """Fetch a batch, or a sample."""
        work = self._work
        if work.detail.left > 0:
            return work.build_briefly(self._fetch, index, self._number, _count_indices(index))
        if self._is_over():
            self._fetcher.fetch, self._fetcher.collate_fn = self._fetch, self._collate
            return self._fetch(index)
        work.begin_batch(self._number())
        activity = work.thread.activity
        assert activity is not None, "a batch begins with its samples"
        if self._takes_singly and isinstance(index, (list, tuple)):
            index = _TimedIndices(index, activity, measures_cpu=work.measures_cpu())
        self._asked = index
        work.built = _count_indices(index), -1
        try:
            return self._fetch(index)
        except StopIteration:  # the end of a stream
            self._end_samples(0)
            raise
        except BaseException:
            self._end_samples(_count_indices(index))
            raise
        finally:
            self._asked = None
            work.end_batch(*work.built)

    def collate(self, samples: Any) -> Any:
        """Join samples."""
        work = self._work
        count = len(samples) if self._is_batched and isinstance(samples, (list, tuple)) else 1
        if work.is_brief:
            return work.collate_briefly(self._collate, samples, count)
        start = self._end_samples(count)
        measures_cpu = work.measures_collation()
        cpu = time.thread_time_ns() if measures_cpu else 0
        work.thread.activity = Activity("collate", start)
        batch = self._collate(samples)
        end = time.perf_counter_ns()
        used = time.thread_time_ns() - cpu if measures_cpu else -1
        del samples
        nbytes, arrays = count_bytes(batch)
        work.collate(start, end, used, samples=count, nbytes=nbytes, arrays=arrays)
        work.built = count, nbytes
        return batch

    def _end_samples(self, count: int) -> int:
        """The samples of the batch are built, as far as they were asked for. Returns the clock."""
        end, asked, work = time.perf_counter_ns(), self._asked, self._work
        self._asked = None
        if isinstance(asked, _TimedIndices):
            asked.write(work, count, end)
            return end
        if asked is not None and count and not self._takes_singly:  # all by one call
            number = int(asked) if isinstance(asked, (int, np.integer)) and not self._is_stream else -1
            work.samples = [(number, work.began_ns, end, time.thread_time_ns() - work.began_cpu_ns, count)]
        work.end_samples()
        return end


# In a worker process.


def record_worker(control: Control, work: WorkRecorder) -> None:
    """Begin to record in this process, which is a worker."""
    with contextlib.suppress(ImportError):
        # torch imports it while its sending thread pickles a tensor, where an import may fail (CPython issue 106176).
        importlib.import_module("torch.nested._internal.nested_tensor")
    sampler = StackSampler()
    sampler.watch_thread(work.thread)
    sampler.start()
    current = _CurrentBatch()
    create: Callable[..., Any] = torch_dataloader._DatasetKind.create_fetcher  # noqa: SLF001  # torch has no hook

    def is_over() -> bool:
        if control.is_stopped:
            sampler.stop()
            return True
        return False

    def create_watched(*args: Any, **kwargs: Any) -> Any:
        work.first_batch = control.first_batch
        fetcher = create(*args, **kwargs)
        watch_fetcher(fetcher, work, current.read, is_over)
        return fetcher

    torch_dataloader._DatasetKind.create_fetcher = staticmethod(create_watched)  # type: ignore[method-assign]  # noqa: SLF001  # as above
    current.install()
    _time_sending(work, is_over)


class _CurrentBatch:
    """The number of the batch that torch's worker loop is at: it is in the message that it took last."""

    def __init__(self) -> None:
        self._number = -1

    def read(self) -> int:
        return self._number

    def install(self) -> None:
        """Look at what the worker's index queue gives."""
        receive: Callable[..., Any] = ForkingPickler.loads

        def loads(content: Any, *args: Any, **kwargs: Any) -> Any:
            message = receive(content, *args, **kwargs)
            if is_batch_message(message):
                self._number = message[0]
            return message

        _TimedPickler.loads = staticmethod(loads)


class _TimedPickler(ForkingPickler):
    """What queues of a worker pickle with."""

    is_timed: Callable[[Any], bool]
    dumped: Callable[[Any, int, int, int, int], None]

    @classmethod
    def dumps(cls, obj: Any, protocol: int | None = None) -> memoryview:
        if not cls.is_timed(obj):
            return ForkingPickler.dumps(obj, protocol)
        cpu, start = time.thread_time_ns(), time.perf_counter_ns()
        content: memoryview = ForkingPickler.dumps(obj, protocol)
        cls.dumped(obj, len(content), start, time.perf_counter_ns(), time.thread_time_ns() - cpu)
        return content


def is_batch_message(message: Any) -> bool:
    """Whether a message of torch's queues is a task or a batch, with its number."""
    return isinstance(message, tuple) and len(message) == 2 and isinstance(message[0], int)


def _time_sending(work: WorkRecorder, is_over: Callable[[], bool]) -> None:
    """Time what the queue's feeder thread does to send a batch."""
    unsent = work.unsent = {}

    def is_timed(message: Any) -> bool:
        """Whether it is a batch that was observed in detail."""
        return bool(unsent) and is_batch_message(message) and message[0] + work.first_batch in unsent and not is_over()

    def dumped(message: Any, length: int, start: int, end: int, cpu: int) -> None:
        batch = message[0] + work.first_batch
        count, nbytes = unsent.pop(batch)
        if nbytes < 0:
            nbytes, _ = count_bytes(message[1])
        size = max(nbytes, length)
        work.sink.add([make_row("transport", work.worker, batch, start, end, cpu=cpu, nbytes=size, samples=count)])

    _TimedPickler.is_timed = staticmethod(is_timed)
    _TimedPickler.dumped = staticmethod(dumped)
    multiprocessing.queues._ForkingPickler = _TimedPickler  # type: ignore[attr-defined]  # noqa: SLF001  # as above
