"""Copy batches to a device on a side stream, while the training step uses the current batch.

::

    loader --host batch--> side stream: wait once; copy; transform; event ──┐
                                                                            │ (at most `depth` ahead)
    training step <--batch-- current stream: wait for the event <-----------┘
                   each device tensor: record_stream(current)      its memory is not reused during the step
                   host batch: kept until the event is done        its slot is not refilled during the copy

There is no thread. Copies are asynchronous, so the thread that iterates queues the next ones before it returns a batch.
The prefetchers of NVIDIA's apex and of timm do the same; this one takes batches of any structure. For a device without
streams (the CPU, MPS), a batch is copied when it is requested.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from penstock.sample import Batch, State
from penstock.samplers.base import check_count
from penstock.torch.device.copying import BatchCopier, PendingBatch, SideStreamCopier, SynchronousCopier
from penstock.torch.device.streams import find_streams
from penstock.torch.loader.dataloader import DataLoader

__all__ = ["Prefetcher", "prefetch"]

_logger = logging.getLogger(__name__)


def prefetch(
    loader: Iterable[Batch],
    device: torch.device | str | int,
    *,
    transform: Callable[[Batch], Batch] | None = None,
    depth: int = 2,
    non_blocking: bool = True,
) -> Prefetcher:
    """Iterate ``loader``, and copy its batches to ``device`` before they are used.

    Parameters
    ----------
    loader : iterable
        Any loader. Copies overlap with computation only from page-locked memory (``pin_memory=True``).
    device : torch.device or str or int
        The device of the batches. With ``"cpu"`` they are not copied, and only ``transform`` is applied.
    transform : callable, optional
        Called with each batch on the device; it returns the batch to use. It runs beside the training step. Use it for
        work that makes the batch larger, such as
        :func:`~penstock.torch.device.normalizing.normalize_on_device`.
    depth : int
        Number of batches that are copied ahead of the one in use. Each takes device memory.
    non_blocking : bool
        If False, the program waits for each copy.

    Returns
    -------
    Prefetcher
        Iterate it once per epoch, like ``loader``. Its ``state_dict`` counts the batches that it returned.

    Raises
    ------
    ArgumentError
        If ``depth`` is not a positive integer.

    Examples
    --------
    ::

        loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
        for images, labels in prefetch(loader, "cuda"):
            ...
    """
    depth = check_count("depth", depth, least=1)
    return Prefetcher(loader, torch.device(device), transform, depth, non_blocking=non_blocking)


class Prefetcher:
    """A loader whose batches are on a device, as :func:`prefetch` returns it.

    Parameters
    ----------
    loader, device, transform, depth, non_blocking
        As for :func:`prefetch`.
    streams : object, optional
        A fake of the device's streams, for tests.

    Raises
    ------
    AttributeError
        From ``state_dict``, ``load_state_dict``, ``set_epoch`` and ``stats``, if the loader lacks the method.
    NotImplementedError
        From pickling.

    Notes
    -----
    The caller owns the tensors, and may use them on the stream that was current when the batch was returned. An
    iterator that is closed or deleted (after ``break``) closes the loader's iterator. Not thread-safe. It cannot be
    pickled: pickle its ``state_dict``.
    """

    def __init__(
        self,
        loader: Any,
        device: torch.device,
        transform: Callable[[Batch], Batch] | None = None,
        depth: int = 2,
        *,
        non_blocking: bool = True,
        streams: Any = None,
    ) -> None:
        self.loader, self.device, self.transform, self.depth = loader, device, transform, depth
        self.non_blocking = non_blocking
        self._streams = streams
        self._resume_point = _ResumePoint()

    def __iter__(self) -> Iterator[Batch]:
        source = iter(self.loader)  # first, so that workers are forked before this process uses the device
        self._resume_point = _ResumePoint()
        return _PrefetchIterator(self.loader, source, self._create_copier(), self._resume_point)

    def __len__(self) -> int:
        """Number of batches, as the loader counts them."""
        return len(self.loader)

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("a Prefetcher cannot be pickled; pickle its state_dict(), or its loader")

    def state_dict(self) -> State:
        """The loader's state after the batch that was returned last. Batches that are copied ahead do not count.

        Before the first batch, and after the last one, it is the loader's own state.
        """
        if self._resume_point.state is not None:
            return self._resume_point.state()
        return self.loader.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Load the loader's state. The next ``iter()`` continues there."""
        self.loader.load_state_dict(state)
        self._resume_point = _ResumePoint()

    def set_epoch(self, epoch: int) -> None:
        """Set the loader's epoch for the next ``iter()``."""
        self.loader.set_epoch(epoch)
        self._resume_point = _ResumePoint()

    def stats(self) -> object:
        """The loader's statistics."""
        return self.loader.stats()

    def progress(self, **display: Any) -> Any:
        """The loader's progress (:meth:`penstock.DataLoader.progress`), as a context manager around the loop."""
        return self.loader.progress(**display)

    def _create_copier(self) -> BatchCopier:
        streams = self._streams or find_streams(self.device)
        if streams is None:
            return SynchronousCopier(self.device, self.transform)
        return SideStreamCopier(streams, self.transform, self.depth, non_blocking=self.non_blocking)


@dataclass(slots=True)
class _ResumePoint:
    """The loader's state after the batch that an iterator returned last. Each iterator has its own."""

    state: Callable[[], State] | None = None


class _PrefetchIterator:
    """One epoch of a prefetcher. It holds no reference to the prefetcher."""

    def __init__(self, loader: Any, source: Iterator[Batch], copier: BatchCopier, resume_point: _ResumePoint) -> None:
        self._loader, self._source, self._copier, self._resume_point = loader, source, copier, resume_point
        self._pending: deque[PendingBatch] = deque()
        self._returned = 0
        self._ended = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        # The first call draws one batch. Each later call draws one more, until `depth` batches are ahead.
        target = min(self._copier.depth, self._returned) + 1
        while len(self._pending) < target and not self._ended and not self._has_failed():
            self._draw()
        if not self._pending:
            self._resume_point.state = None
            self._copier.finish(self._pending)
            raise StopIteration
        ready = self._pending.popleft()
        self._resume_point.state = ready.state
        self._returned += 1
        batch, error = (self._copier.deliver(ready) if ready.error is None else None), ready.error
        # The error's traceback holds the frames of the call that drew it, which may be this call. A notebook keeps the
        # traceback. Delete the local references, so that it keeps neither workers nor batches alive.
        del self, ready
        try:
            if error is not None:
                raise error
            return batch
        finally:
            del batch, error

    def close(self) -> None:
        """Drop the batches that are copied ahead, and close the loader's iterator if it has ``close``. Idempotent."""
        self._ended = True
        self._copier.finish(self._pending)
        source, self._source = self._source, iter(())
        if hasattr(source, "close"):
            source.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or not hasattr(self, "_pending"):
            return
        try:
            self._copier.finish(self._pending)
        except RuntimeError as failed:  # a finaliser cannot raise; the user has seen the device's error
            _logger.debug("waiting for pending copies failed: %s", failed)

    def _has_failed(self) -> bool:
        """Whether the last draw failed. The next draw waits until that error is raised."""
        return bool(self._pending) and self._pending[-1].error is not None

    def _state(self) -> Callable[[], State] | None:
        """A function that returns the loader's present state; None if the loader has no state."""
        if getattr(type(self._loader), "state_dict", None) is DataLoader.state_dict:
            deferred = self._loader._defer_state()  # noqa: SLF001  # the state is computed only if it is requested
            return None if deferred is None else deferred.state
        if not hasattr(self._loader, "state_dict"):
            return None
        state = self._loader.state_dict()
        return lambda: copy.deepcopy(state)

    def _draw(self) -> None:
        drawn, host = PendingBatch(), None
        try:
            host = next(self._source)
        except StopIteration:
            self._ended = True
            return
        except Exception as error:  # noqa: BLE001  # raised after the batches before it are returned
            drawn.error = error
        drawn.state = self._state()
        if drawn.error is None:
            try:
                drawn.batch, drawn.event, drawn.host = self._copier.copy(host)
            except Exception as error:  # noqa: BLE001  # as above
                drawn.error = error
        self._pending.append(drawn)
        del self, drawn, host  # as in __next__
