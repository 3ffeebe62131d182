"""Records how ``torch.utils.data.DataLoader`` builds batches: mostly in a worker process.

::

    loader's dataset, collate_fn, worker_init_fn  ──  while iter(loader) is called: RecordedDataset, collate, start
    torch's worker loop     start(worker) ── dataset[index] ... ── collate(samples) ──> batch    events ──> file

Torch calls what it finds in the loader, so nothing of torch is replaced. ``get_worker_info().dataset`` and the user's
own references are the dataset itself. Random states are not touched: the same batches come in the same order. What
torch sends is the batch itself; what sending costs, trials say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.utils.data

from penstock.doctor.watching.batch_layout import count_bytes
from penstock.doctor.watching.event_file import Control
from penstock.doctor.watching.stack_sampling import StackSampler
from penstock.doctor.watching.work_recorder import WorkRecorder, open_recorder

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

    Function = Callable[..., object]

__all__ = ["BuildRecording", "RecordedDataset"]


class BuildRecording:
    """What is recorded for one iterator of a loader. A worker process has a copy.

    ``loader``: its dataset and functions are called. ``folder``: of the loader's files. ``iterator`` and
    ``first_batch``: numbers of the iterator, and of its first batch.
    """

    def __init__(self, loader: WatchedLoader, folder: Path, iterator: int, first_batch: int) -> None:
        attributes = vars(loader)
        self.dataset = loader.dataset
        self._collate: Function = attributes["collate_fn"]
        self._init: Function | None = attributes["worker_init_fn"]
        self._is_batched = attributes["batch_sampler"] is not None
        self._folder, self._iterator, self._next, self._apart = folder, iterator, first_batch, 1
        self._work: WorkRecorder | None = None
        self.is_open = False  # whether samples of a batch are being built
        self._is_over: Callable[[], bool] = bool

    def record_here(self, work: WorkRecorder, is_over: Callable[[], bool]) -> None:
        """Record in this process, which has no workers, until ``is_over()``."""
        self._work, self._is_over = work, is_over

    def start(self, worker: int) -> None:
        """Begin to record, and call ``worker_init_fn``, in whose place a worker calls this."""
        info = torch.utils.data.get_worker_info()
        assert info is not None, "called by a worker"
        object.__setattr__(info, "dataset", self.dataset)  # torch's class has no other way, and it is a worker's own
        self._next, self._apart = self._next + worker, info.num_workers  # workers take turns
        self._work = open_recorder(self._folder, self._iterator, worker)
        if self._work is not None:
            self._record_worker(self._work)
        if self._init is not None:
            self._init(worker)

    def _record_worker(self, work: WorkRecorder) -> None:
        control, sampler = Control(self._folder / "control"), StackSampler()
        sampler.watch_thread(work.thread)
        sampler.start()

        def is_over() -> bool:
            if control.is_stopped:
                sampler.stop()
            return control.is_stopped

        self._is_over = is_over

    # torch's loader asks for a batch

    def begin(self) -> WorkRecorder | None:
        """A batch begins; returns its recorder, None if it is not recorded."""
        work, number = self._work, self._next
        self.is_open, self._next = True, number + self._apart
        if work is None:
            return None
        if work.details.left > 0:
            work.details.left -= 1
            return None
        if self._is_over():
            self._work = None
            return None
        work.begin_batch(number)
        return work

    def present(self) -> WorkRecorder | None:
        """Return the recorder, if it records a batch."""
        return self._work if self._work is not None and self._work.is_busy else None

    def note_failure(self, work: WorkRecorder, samples: int) -> None:
        """The user's code has raised an exception: the batch is over. 0 samples: a stream has ended before it."""
        work.end_samples(samples)
        if samples:
            work.end_batch(samples)
        work.leave_batch()

    def collate(self, samples: object) -> object:
        """Return what torch calls in the place of ``collate_fn``."""
        work, self.is_open = self.present(), False
        if work is None:
            return self._collate(samples)
        count = len(samples) if self._is_batched and isinstance(samples, (list, tuple)) else 1
        work.begin_collation(count)
        try:
            batch = self._collate(samples)
        except BaseException:
            self.note_failure(work, count)
            raise
        nbytes = count_bytes(batch)
        work.end_collation(count, nbytes)
        work.end_batch(count, nbytes)
        work.leave_batch()
        return batch


class _Samples(Protocol):
    """What torch may ask a dataset for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: object) -> object: ...

    def __iter__(self) -> Iterator[object]: ...


class RecordedDataset:
    """What torch's loader has in the place of a dataset while it makes an iterator.

    Its attributes are those of the dataset.
    """

    def __init__(self, recording: BuildRecording) -> None:
        self._recording = recording
        self._dataset = cast("_Samples", recording.dataset)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # pickle asks before there is a dataset
            raise AttributeError(name)
        return cast("object", getattr(self._dataset, name))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: object) -> object:
        work = self._recording.begin()
        if work is None:
            return self._dataset[index]
        work.begin_samples([index])
        work.begin_sample(0)
        try:
            return self._dataset[index]
        except BaseException:
            self._recording.note_failure(work, 1)
            raise

    def __getitems__(self, indices: Sequence[object]) -> object:
        work = self._recording.begin()
        if work is None:
            return self._take(indices)
        work.begin_samples(indices)
        try:
            return self._take(indices, work)
        except BaseException:
            self._recording.note_failure(work, len(indices))
            raise

    def _take(self, indices: Sequence[object], work: WorkRecorder | None = None) -> object:
        take_all: Function | None = getattr(self._dataset, "__getitems__", None)
        if take_all:
            return take_all(indices)
        dataset = self._dataset
        if work is None:
            return [dataset[index] for index in indices]
        samples = []
        for position, index in enumerate(indices):
            work.begin_sample(position)
            samples.append(dataset[index])
        return samples

    def __iter__(self) -> RecordedStream:
        return RecordedStream(self._recording, iter(self._dataset))


class RecordedStream:
    """The samples of a dataset that is a stream; the first one of a batch begins it."""

    def __init__(self, recording: BuildRecording, samples: Iterator[object]) -> None:
        self._recording, self._samples, self._place = recording, samples, 0

    def __iter__(self) -> RecordedStream:
        return self

    def __next__(self) -> object:
        if self._recording.is_open:
            work = self._recording.present()
        else:
            work, self._place = self._recording.begin(), 0
            if work is not None:
                work.begin_samples()
        if work is not None:
            work.begin_sample(self._place)
        try:
            sample = next(self._samples)
        except BaseException as error:
            if not (isinstance(error, StopIteration) and self._place):  # else it is a short batch
                self._recording.is_open = False
                if work is not None:
                    self._recording.note_failure(work, self._place)
            raise
        self._place += 1
        return sample
