"""One epoch of a torch loader under way: penstock's iterator with torch's names and warnings."""

from __future__ import annotations

import warnings
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from penstock.datasets.batch_types import BatchT_co
from penstock.errors import ArgumentError
from penstock.loader.iteration import LoaderIterator
from penstock.sample import DatasetLike, SamplerLike
from penstock.torch.loader.randomness import Randomness

if TYPE_CHECKING:
    from penstock.loader.epoch import Epoch
    from penstock.torch.loader.epoch_draws import TorchPreparedEpoch
    from penstock.torch.loader.order import TorchSettings
    from penstock.workers import Backend

    OpenedEpoch = tuple[TorchSettings, Epoch, Backend]

__all__ = ["DataLoaderIterator"]

_REPLICA_HINT: Final = (
    "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at "
    "each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
)


class DataLoaderIterator(LoaderIterator[BatchT_co]):
    """Iterator over one epoch; begun again by a loader with ``persistent_workers``. The loader may hold it.

    Made of a loader alone, as torch's iterators are, it begins an epoch of its own, with workers of its own.
    """

    def __init__(self, loader: object, opened: OpenedEpoch | None = None) -> None:
        if not hasattr(loader, "_open_epoch"):
            raise ArgumentError(
                f"an iterator is made of a penstock.torch.DataLoader, got {type(loader).__qualname__}; "
                "penstock.torch.adopt(loader) makes one of another loader"
            )
        super().__init__(*(loader._open_epoch() if opened is None else opened))  # noqa: SLF001  # the loader that makes it

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """torch's name: what wraps an iterator of a loader with ``persistent_workers`` begins the next epoch by it."""
        if not first_iter:
            loader._restart(self)  # noqa: SLF001  # the loader that made it

    def __next__(self) -> BatchT_co:
        if torch.autograd.profiler._is_profiler_enabled:  # noqa: SLF001  # as torch's own loader: its name in a profile
            with torch.autograd.profiler.record_function("enumerate(DataLoader)#DataLoaderIterator.__next__"):
                return self._take_next()
        return self._take_next()

    def _take_next(self) -> BatchT_co:
        prepared = cast("TorchPreparedEpoch", self.epoch.prepared)
        batch = super().__next__() if prepared.ahead is None else self._take_read_ahead(prepared)
        if self.epoch.recipe.receive is not None:
            self.epoch.recipe.receive(batch)
        return batch

    def _take_read_ahead(self, prepared: TorchPreparedEpoch) -> BatchT_co:
        """Take the batch that a wrapper had read ahead when the state was taken, built as it was then."""
        ahead, prepared.ahead, now = prepared.ahead, None, Randomness.now()
        assert ahead is not None, "asked before"
        ahead.restore()
        try:
            return super().__next__()
        finally:
            now.restore()

    def close(self) -> None:
        """End now, and stop the workers; those of a loader with ``persistent_workers`` are left to it.

        A generator that delegates to this iterator (``yield from``) calls it when it is closed itself.
        """
        if not self._settings.persistent:
            self._shutdown_workers()
        elif not self._closed:
            self._closed = True
            self._settings.counters.retire(self.epoch.trace)

    def _shutdown_workers(self) -> None:
        """torch's name, which other libraries call: end now, and stop the workers, in two seconds at most."""
        super().close()

    def _warn_of_length(self) -> None:
        settings, yielded = self._settings, self.epoch.position.yielded
        if settings.reported_length is not None and yielded > settings.reported_length:
            warnings.warn(
                f"Length of IterableDataset {settings.order.dataset} was reported to be {settings.reported_length}"
                f"(when accessing len(dataloader)), but {yielded} samples have been fetched. "
                + (_REPLICA_HINT if settings.num_workers else ""),
                stacklevel=6,
            )

    # torch's names, which other libraries read

    @property
    def _workers(self) -> list[BaseProcess]:
        """Process objects; none where workers are threads."""
        return list(self.backend.processes)

    @property
    def _num_workers(self) -> int:
        return self._settings.num_workers

    @property
    def _index_sampler(self) -> SamplerLike:
        return self._settings.order.index_sampler

    @property
    def _dataset(self) -> DatasetLike:
        return self._settings.order.dataset

    @property
    def _base_seed(self) -> int:
        return self.epoch.prepared.base_seed

    @property
    def _num_yielded(self) -> int:
        return self.epoch.position.yielded
