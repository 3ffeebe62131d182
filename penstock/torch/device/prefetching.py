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

An endless iterator begins the next epoch when the last batch of this one has been drawn. Up to ``depth`` batches are
then ahead; the loader builds its first batches while they are used::

    depth=2    returned   0    1     2                  3 (the last)   0     1
               drawn      0    1,2   3, iter(loader)    0              1,2   3     one is left ahead: draw the first

:class:`LoaderEpochs` draws, and knows where the loader stands after each batch; it touches no device.
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

from penstock.errors import ArgumentError
from penstock.loader.iteration import LoaderIterator
from penstock.loader.loader import DataLoader as NumpyLoader
from penstock.loader.progress import LoaderProgress
from penstock.sample import Batch, SamplerLike, State
from penstock.samplers import Sampler
from penstock.samplers.base import check_count
from penstock.torch.device.copying import BatchCopier, CopyStreams, PendingBatch, SideStreamCopier, find_streams
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
    endless: bool = False,
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
    endless : bool
        If True, an iteration goes from one epoch to the next and does not end. The next epoch begins while the last
        batches of this one are in use. Samplers (and a dataset) that do not count epochs themselves, such as torch's
        ``DistributedSampler``, are given the next epoch: ``set_epoch(epoch + 1)``.

    Returns
    -------
    Prefetcher
        Iterate it once per epoch, like ``loader``, or call its ``next()``. Its ``state_dict`` counts the batches that
        it returned.

    Raises
    ------
    ArgumentError
        If ``depth`` is not a positive integer. With ``endless``, the iterator raises it if two epochs in a row have no
        batches, and ``iter()`` if a sampler has ``set_epoch`` and no integer attribute ``epoch``.

    Examples
    --------
    ::

        loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
        for images, labels in prefetch(loader, "cuda"):
            ...

        batches = prefetch(loader, "cuda", endless=True)
        for step, (images, labels) in zip(range(90_000), batches):
            ...
    """
    depth = check_count("depth", depth, least=1)
    return Prefetcher(loader, torch.device(device), transform, depth, non_blocking=non_blocking, endless=endless)


class Prefetcher:
    """A loader whose batches are on a device, as :func:`prefetch` returns it.

    Parameters
    ----------
    loader, device, transform, depth, non_blocking, endless
        As for :func:`prefetch`.
    streams : object, optional
        A fake of the device's streams, for tests.

    Raises
    ------
    AttributeError
        From ``state_dict``, ``load_state_dict``, ``set_epoch`` and ``stats``, if the loader lacks the method.
    TypeError
        From ``len()``, if the loader has no length, or the prefetcher is endless.
    NotImplementedError
        From pickling.

    Notes
    -----
    The caller owns the tensors, and may use them on the stream that was current when the batch was returned. An
    iterator that is closed or deleted (after ``break``) closes the loader's iterator. Not thread-safe. It cannot be
    pickled: pickle its ``state_dict``.

    :meth:`next` has an iterator of its own, which a ``for`` loop does not use. ``state_dict`` and ``epoch`` are those
    of the newest iterator.
    """

    def __init__(
        self,
        loader: Any,
        device: torch.device,
        transform: Callable[[Batch], Batch] | None = None,
        depth: int = 2,
        *,
        non_blocking: bool = True,
        endless: bool = False,
        streams: CopyStreams | None = None,
    ) -> None:
        self.loader, self.device, self.transform, self.depth = loader, device, transform, depth
        self.non_blocking, self.endless = non_blocking, endless
        self._streams = streams
        self._resume_point = _ResumePoint()
        self._walk: _PrefetchIterator | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self._start_epochs()

    def _start_epochs(self) -> _PrefetchIterator:
        # The loader first, so that workers are forked before this process uses the device.
        epochs = LoaderEpochs(self.loader, endless=self.endless)
        self._resume_point = _ResumePoint()
        return _PrefetchIterator(self.loader, epochs, self._create_copier(), self._resume_point)

    def next(self) -> Batch | None:
        """Return the next batch; None after the last one of an epoch, and the call after that begins the next epoch.

        The form of the ``DataPrefetcher`` in many scripts. If ``endless``, None is never returned::

            while (batch := batches.next()) is not None:
                images, labels = batch

        Raises
        ------
        ArgumentError
            If the loader returns None as a batch.
        """
        if self._walk is None:
            self._walk = self._start_epochs()
        try:
            batch = next(self._walk)
        except StopIteration:
            self._walk = None
            return None
        if batch is None:
            raise ArgumentError(
                "next() returns None at the end of an epoch, but the loader's batch is None; use a for loop"
            )
        return batch

    def reset(self) -> None:
        """Leave the epoch that :meth:`next` is in, and begin the next one; workers start."""
        self.close()
        self._walk = self._start_epochs()

    def close(self) -> None:
        """Leave the epoch that :meth:`next` is in, and stop the workers that it started. Idempotent."""
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.close()

    @property
    def epoch(self) -> int | None:
        """The epoch of the batch that was returned last; None before the first one.

        It is numbered as by the loader's sampler or penstock's loader. For another loader, 0 is the first epoch of an
        iteration.
        """
        return self._resume_point.epoch

    def __repr__(self) -> str:
        """Return the loader's type and the arguments; the loader is not asked."""
        loader = f"{type(self.loader).__module__}.{type(self.loader).__qualname__}"
        return f"Prefetcher({loader}, device='{self.device}', depth={self.depth}, endless={self.endless})"

    def __len__(self) -> int:
        """Number of batches, as the loader counts them."""
        if self.endless:
            raise TypeError("an endless prefetcher has no length; len(prefetcher.loader) is that of an epoch")
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
        """Load the loader's state. The next ``iter()``, ``next()`` or ``reset()`` continues there."""
        self.close()
        self.loader.load_state_dict(state)
        self._resume_point = _ResumePoint()

    def set_epoch(self, epoch: int) -> None:
        """Set the loader's epoch for the next ``iter()`` or ``reset()``."""
        self.loader.set_epoch(epoch)
        if not isinstance(self.loader, DataLoader):  # its state is that of the epoch under way until iter()
            self._resume_point = _ResumePoint()

    def stats(self) -> object:
        """Return the loader's statistics."""
        return self.loader.stats()

    def progress(self, **display: object) -> LoaderProgress:
        """Return the loader's progress (:meth:`penstock.DataLoader.progress`), as a context manager around the loop."""
        shown: LoaderProgress = self.loader.progress(**display)
        return shown

    def _create_copier(self) -> BatchCopier:
        streams = self._streams or find_streams(self.device)
        if streams is None:
            return BatchCopier(self.device, self.transform)
        return SideStreamCopier(streams, self.transform, self.depth, non_blocking=self.non_blocking)


@dataclass(slots=True)
class _ResumePoint:
    """Where the loader stood after the batch that an iterator returned last. Each iterator has its own."""

    state: Callable[[], State] | None = None
    epoch: int | None = None


class _PrefetchIterator:
    """One iteration of a prefetcher: an epoch, or epoch after epoch. It holds no reference to the prefetcher."""

    def __init__(self, loader: Any, epochs: LoaderEpochs, copier: BatchCopier, resume_point: _ResumePoint) -> None:
        self._loader, self._epochs, self._copier, self._resume_point = loader, epochs, copier, resume_point
        self._pending: deque[PendingBatch] = deque()
        self._ahead = 0  # batches to copy ahead: the first call draws one, each later call one more, until `depth`
        self._awaits_first = False  # whether an epoch has begun, and its first batch is not drawn
        self._ended = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._draw_ahead()
        if not self._pending:
            self._resume_point.state = None
            self._copier.finish(self._pending)
            raise StopIteration
        ready = self._pending.popleft()
        self._resume_point.state, self._resume_point.epoch = ready.state, ready.epoch
        if not self._awaits_first:
            self._ahead = min(self._ahead + 1, self._copier.depth)
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
        self._epochs.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or not hasattr(self, "_pending"):
            return
        try:
            self._copier.finish(self._pending)
        except RuntimeError as failed:  # a finaliser cannot raise; the user has seen the device's error
            _logger.debug("waiting for pending copies failed: %s", failed)

    def _draw_ahead(self) -> None:
        began_now = False
        while len(self._pending) <= self._ahead and not self._ended and not self._has_failed():
            if began_now and self._pending:
                break  # these batches are used while the loader builds the first one
            awaited = self._awaits_first
            self._draw()
            began_now = self._awaits_first and not awaited
        del self  # as in __next__

    def _has_failed(self) -> bool:
        """Return whether the last draw failed. The next draw waits until that error is raised."""
        return bool(self._pending) and self._pending[-1].error is not None

    def _draw(self) -> None:
        """Draw a batch and start its copy, or begin the next epoch if this one has ended."""
        drawn, host = PendingBatch(epoch=self._epochs.epoch), None
        try:
            host = self._epochs.draw()
        except StopIteration:
            if not self._epochs.endless:
                self._ended = True
                return
            try:
                self._epochs.begin_next()
            except Exception as error:  # noqa: BLE001  # raised after the batches before it are returned
                drawn.error = error
            else:
                self._ahead, self._awaits_first = min(1, self._copier.depth), True
                return
        except Exception as error:  # noqa: BLE001  # as above
            drawn.error = error
        self._awaits_first = False
        drawn.state = defer_state(self._loader)
        if drawn.error is None:
            try:
                drawn.batch, drawn.event, drawn.host = self._copier.copy(host)
            except Exception as error:  # noqa: BLE001  # as above
                drawn.error = error
        self._pending.append(drawn)
        del self, drawn, host  # as in __next__


class LoaderEpochs:
    """Iterates a loader once, or epoch after epoch.

    Parameters
    ----------
    loader : iterable
        It is iterated at once.
    endless : bool
        Whether :meth:`begin_next` may be called.

    Raises
    ------
    ArgumentError
        If ``endless``, and a part of the loader has ``set_epoch``, but no epoch that can be counted on.
    """

    def __init__(self, loader: Iterable[Batch], *, endless: bool) -> None:
        if endless:
            find_numbered_parts(loader)
        self.endless = endless
        self._loader = loader
        self._batches = 0
        self._was_empty = False
        self._is_numbered = False
        self._iterator: Iterator[Batch] = iter(loader)
        self.epoch: int = _read_epoch(loader, self._iterator, default=0)

    def draw(self) -> Batch:
        """Return the next batch of the epoch. StopIteration: the epoch has ended."""
        try:
            batch = next(self._iterator)
        except Exception as error:
            self._batches += not isinstance(error, StopIteration)  # an error is in the place of a batch
            del self  # the error's traceback holds this frame, and would keep workers alive
            raise
        self._batches += 1
        return batch

    def begin_next(self) -> None:
        """Begin the next epoch, with its own number in samplers that do not count; the loader requests its batches.

        Raises
        ------
        ArgumentError
            If two epochs in a row have no batches. One alone may be the rest of an epoch that was resumed after its
            last batch.
        """
        loader, is_empty = self._loader, self._batches == 0
        if is_empty and self._was_empty:
            hint = f"; {type(loader).__name__} can be iterated once only" if self._iterator is loader else ""
            raise ArgumentError(f"endless=True needs a loader with batches, but two epochs in a row had none{hint}")
        if not self._is_numbered:  # else iter() failed after this
            for part in find_numbered_parts(loader):
                part.set_epoch(part.epoch + 1)
            self._is_numbered = True
        self._iterator = iter(())  # workers of the last epoch end before those of the next one start
        self._iterator = iter(loader)
        self._is_numbered, self._was_empty, self._batches = False, is_empty, 0
        self.epoch = _read_epoch(loader, self._iterator, default=self.epoch + 1)

    def close(self) -> None:
        """Close the loader's iterator, if it has ``close``. Idempotent."""
        iterator, self._iterator = self._iterator, iter(())
        if hasattr(iterator, "close"):
            iterator.close()


def find_numbered_parts(loader: object) -> list[SamplerLike]:
    """Return the objects whose epoch the user sets with ``set_epoch(epoch)``, since the loader does not count.

    They are the loader, its samplers and its dataset. penstock's loaders count, also for penstock's samplers. Any other
    loader that has ``set_epoch`` and no ``epoch`` is taken to count its epochs itself.

    Raises
    ------
    ArgumentError
        If a sampler or dataset has ``set_epoch``, but no integer ``epoch``: then the next epoch is not known.
    """
    is_own = isinstance(loader, DataLoader | NumpyLoader)
    numbered: list[SamplerLike] = []
    for part in () if isinstance(loader, NumpyLoader) else _list_parts(loader):
        if not hasattr(part, "set_epoch") or any(part is found for found in numbered):
            continue
        if is_own and (part is loader or isinstance(part, Sampler)):
            continue
        if isinstance(getattr(part, "epoch", None), int):
            numbered.append(part)
        elif part is not loader:
            raise ArgumentError(
                f"endless=True calls set_epoch(epoch + 1) after each epoch, but {type(part).__name__} has set_epoch "
                "and no integer attribute epoch; add the attribute, or prefetch one epoch at a time"
            )
    return numbered


def _list_parts(loader: object) -> list[SamplerLike]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None)
    return [loader, batch_sampler, sampler, getattr(batch_sampler, "sampler", None), getattr(loader, "dataset", None)]


def _read_epoch(loader: object, iterator: Iterator[Batch], *, default: int) -> int:
    """Return the number of the epoch that has just begun: as its samplers have it, or the loader; else ``default``."""
    for part in _list_parts(loader):
        if hasattr(part, "set_epoch") and isinstance(number := getattr(part, "epoch", None), int):
            if isinstance(part, Sampler) and isinstance(iterator, LoaderIterator):
                break
            return number
    return iterator.epoch.position.epoch if isinstance(iterator, LoaderIterator) else default


def defer_state(loader: object) -> Callable[[], State] | None:
    """Return a function that returns the loader's present state; None if the loader has no state."""
    if isinstance(loader, DataLoader) and type(loader).state_dict is DataLoader.state_dict:
        return loader._defer_state()  # noqa: SLF001  # the state is computed only if it is requested
    if not hasattr(loader, "state_dict"):
        return None
    state = loader.state_dict()
    return lambda: copy.deepcopy(state)
