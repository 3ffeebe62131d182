"""How a torch loader opens epochs: with new workers, with those that are there, or ahead of ``iter()``.

Each opening has the same phases, plain calls that return values: draw what the epoch draws (``beginning.py``), make
the backend, start the job, wait for workers.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from penstock.errors import StallError
from penstock.loader.ahead import EpochAhead, EpochKey
from penstock.loader.faults import warn_of_unequal_steps
from penstock.loader.position import Position
from penstock.rng import undisturbed
from penstock.torch.loader.epoch_draws import EpochCounter, TorchPreparedEpoch, draw_epoch, draw_next_epoch
from penstock.torch.loader.iteration import DataLoaderIterator
from penstock.torch.loader.recipe import make_recipe
from penstock.torch.loader.saving import may_have_state, parse_for_loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.loader.epoch import Epoch
    from penstock.loader.recipe import Memory, Recipe
    from penstock.sample import State
    from penstock.torch.loader.iteration import OpenedEpoch
    from penstock.torch.loader.order import TorchSettings
    from penstock.torch.loader.state import Resume
    from penstock.workers import Backend

__all__ = ["EpochStarter"]

_logger = logging.getLogger(__name__)


class EpochStarter:
    """``iter(loader)``; a base of :class:`penstock.torch.DataLoader`."""

    num_workers: int
    timeout: float
    prefetch_factor: int | None
    persistent_workers: bool
    on_error: str
    overlap_epochs: bool
    check_worker_number_rationality: Callable[[], None]  # torch's
    _resume: State
    _iterator: Any
    _newest: weakref.ref[DataLoaderIterator] | None
    _epoch: Epoch | None
    _memory: Memory
    _counter: EpochCounter
    _ahead: EpochAhead | None
    _spare: DataLoaderIterator | None

    def _make_settings(self, *, begins: bool = False) -> TorchSettings:
        """Settings of an iterator; ``begins``: of one that is to begin an epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define _make_settings")

    def __iter__(self) -> Any:
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        kept: Any = self._iterator
        begun = None if self._ahead is None else self._ahead.take(self._next_epoch_key())
        if begun is not None:
            return self._take_begun(begun)
        if kept is None:
            self._iterator = self._get_iterator()
        elif not isinstance(kept, DataLoaderIterator):  # what a subclass's _get_iterator returned
            kept._reset(self)  # noqa: SLF001  # torch's name
        elif kept.stopped:
            self._iterator = self._get_iterator()
        elif kept.finished:
            self._begin_again(kept)
        else:  # left before its end; somebody may be in the middle of it
            self._iterator = self._take_over(kept)
        return self._iterator

    def _get_iterator(self) -> Any:
        warn_of_unequal_steps(self.on_error, stacklevel=3)
        return self._make_iterator(self._open_epoch())

    def _open_epoch(self) -> OpenedEpoch:
        """Return an epoch with new workers."""
        self._check_rationality()
        if self.overlap_epochs and self.persistent_workers and self._ahead is None:
            self._ahead = EpochAhead(self)
        settings = self._make_settings(begins=True)
        recipe = make_recipe(self, settings.order, self._memory)
        resume = self._take_resume(settings)
        with undisturbed():
            prepared = draw_epoch(settings, recipe, self._counter, resume)
            epoch, backend = self._start_epoch(settings, recipe, prepared)
        return self._await_start(settings, epoch, backend)

    def _start_epoch(
        self, settings: TorchSettings, recipe: Recipe, prepared: TorchPreparedEpoch
    ) -> tuple[Epoch, Backend]:
        """Make workers and start the job, after what the epoch draws was drawn."""
        backend = None
        try:
            backend = recipe.workers.make_backend(prepared.base_seed)
            epoch = prepared.start(settings, recipe, prepared.make_plan(settings, recipe), backend)
        except BaseException:
            prepared.restore_generators(settings, started=False)
            if backend is not None:
                backend.close()
            raise
        prepared.restore_generators(settings, started=True)
        return epoch, backend

    def _await_start(self, settings: TorchSettings, epoch: Epoch, backend: Backend) -> OpenedEpoch:
        try:
            self._await_workers(backend, epoch)
        except BaseException:
            backend.close()
            raise
        return settings, epoch, backend

    def _make_iterator(self, opened: OpenedEpoch) -> DataLoaderIterator:
        iterator = DataLoaderIterator(self, opened)
        self._note(iterator)
        if iterator.epoch.prepared.position.finished:
            iterator.exhaust()  # resumed after its end: workers repeat what they had done, and then go on
            self._begin_again(iterator)
        return iterator

    def _begin_again(self, iterator: DataLoaderIterator) -> None:
        """torch's reset of a persistent iterator: the next epoch with the same workers."""
        last, settings = iterator.epoch, self._make_settings(begins=True)
        epoch = self._start_next(settings, last.recipe, last.position, iterator.backend)
        self._await_workers(iterator.backend, epoch)
        iterator.begin(settings, epoch)
        self._note(iterator)

    def _start_next(self, settings: TorchSettings, recipe: Recipe, last: Position, backend: Backend) -> Epoch:
        with undisturbed():
            prepared = draw_next_epoch(settings, recipe, self._counter.take(settings.order), last)
            return prepared.start(settings, recipe, prepared.make_plan(settings, recipe), backend)

    # the next epoch, begun while the last batches of this one are consumed: see penstock.loader.ahead

    def _next_epoch_key(self) -> EpochKey | None:
        settings = self._make_settings()
        order, under_way = settings.order, self._iterator
        if self._resume is not None or not order.is_fixed() or not isinstance(under_way, DataLoaderIterator):
            return None
        number, sampler = self._counter.upcoming(order), order.sampler
        values = number, getattr(sampler, "epoch", None), order.sampler_seed
        return values, (sampler, order.index_sampler, order.dataset)

    def _begin_next_epoch(self) -> DataLoaderIterator:
        settings, spare, last = self._make_settings(begins=True), self._spare, self._iterator.epoch
        recipe, number = last.recipe, self._counter.upcoming(settings.order)
        if spare is not None and (spare.stopped or not spare.finished):
            spare = self._spare = None
        position = Position(beginning=last.position.beginning) if spare is None else spare.epoch.position
        prepared = draw_next_epoch(settings, recipe, number, position)
        backend = recipe.workers.make_backend(prepared.base_seed) if spare is None else spare.backend
        epoch = prepared.start(settings, recipe, prepared.make_plan(settings, recipe), backend)
        if spare is None:
            return DataLoaderIterator(self, (settings, epoch, backend))
        spare.begin(settings, epoch)
        return spare

    def _take_begun(self, iterator: Any) -> DataLoaderIterator:
        self._counter.take(self._make_settings().order)
        self._spare, self._iterator = self._iterator, iterator
        self._await_workers(iterator.backend, iterator.epoch)
        self._note(iterator)
        begun: DataLoaderIterator = iterator
        return begun

    def _restart(self, iterator: DataLoaderIterator) -> None:
        """torch's reset of an iterator that something else wraps: the next epoch, wherever it stands in this one."""
        iterator.abandon()
        self._begin_again(iterator)

    def _take_over(self, old: DataLoaderIterator) -> DataLoaderIterator:
        """Begin an epoch where somebody may still use the last one's iterator, which then goes on alone."""
        recipe, settings, last = old.epoch.recipe, self._make_settings(begins=True), old.epoch.position
        if recipe.workers.processes:
            try:
                self._record_first_states(old)
                backend, last = old.release_workers()
            except StallError:
                fresh: DataLoaderIterator = self._get_iterator()
                return fresh
        else:  # threads are quickly made, and the dataset, perhaps a stream in use, is not theirs alone
            backend = recipe.workers.make_backend(old.epoch.prepared.base_seed)
        try:
            epoch = self._start_next(settings, recipe, last, backend)
        except BaseException:
            backend.close()
            raise
        return self._make_iterator(self._await_start(settings, epoch, backend))

    def _record_first_states(self, iterator: DataLoaderIterator) -> None:
        """Keep the states of workers when they began; an error of theirs is raised with their first batch."""
        settings = self._make_settings()
        if not may_have_state(settings.order):
            return
        try:
            iterator.epoch.record_first_states(iterator.backend, settings.patience_s, missing_only=True)
        except StallError:
            raise
        except Exception as error:  # noqa: BLE001  # as the docstring says
            _logger.debug("a worker could not begin: %r", error)

    def _note(self, iterator: DataLoaderIterator) -> None:
        self._epoch, self._newest = iterator.epoch, weakref.ref(iterator)

    def _await_workers(self, backend: Backend, epoch: Epoch) -> None:
        """Wait for workers that are no processes; an error of a process is raised with its first batch."""
        if not epoch.recipe.workers.processes:
            epoch.record_first_states(backend, self._make_settings().patience_s)

    def _check_rationality(self) -> None:
        if self.num_workers == 0:
            if self.timeout != 0:
                raise AssertionError(
                    f"timeout={self.timeout} needs num_workers > 0: the calling thread cannot stop waiting"
                )
            return
        self.check_worker_number_rationality()
        if not self.prefetch_factor:
            raise AssertionError("prefetch_factor must be greater than 0: with 0 no batch is ever asked for")

    def _take_resume(self, settings: TorchSettings) -> Resume | None:
        if self._resume is None:
            return None
        resume = parse_for_loader(self._resume, settings)
        self._resume = None
        return resume
