"""A batch as a loader gives it, built in the calling thread by a copy of the loader that has no workers.

::

    loader ──copied: own memory, samplers and generators──> order of an epoch ──> task of one batch
                                                 recipe ──> job ──build, collate, deliver──> the batch

Nothing of the loader is drawn, opened or counted. The order of a sampler that can only be iterated is that of a copy of
it, and is told so. Called by :mod:`.routes`.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.loader.order import Order, length
from penstock.loader.plan import SamplerPlan, plan_batches, plan_samples
from penstock.loader.recipe import Memory, Recipe
from penstock.loader.sampler_cursor import SamplerCursor
from penstock.rng import globals_put_back, undisturbed
from penstock.sample import Batch
from penstock.trace import Trace
from penstock.viewer.model.source import ModelSource
from penstock.workers.base import NOTHING, Task

__all__ = ["BuiltBatch", "build_batch"]

_MOST_DRAWN: Final = 20_000_000
"""Indices that are drawn at most to come to a batch."""
_FIXED: Final = (list, tuple, range, np.ndarray)
_FROM_GLOBALS: Final = (
    "The order, or the seed, of this loader is drawn from global generators when an epoch begins. Shown is one that "
    "may be drawn; with seed= it is known before."
)


@dataclass(frozen=True, slots=True)
class BuiltBatch:
    """A batch, and where it is."""

    batch: Batch
    indices: list[Any]  # what the sampler drew
    seed: int  # of its random numbers
    total: int | None  # batches of the epoch, if the loader has a length
    note: str = ""  # what is not known of its order


def build_batch(source: ModelSource, epoch: int, number: int) -> BuiltBatch:
    """Build a batch of an epoch.

    Raises
    ------
    ArgumentError
        If there is no loader, or no such batch.
    Exception
        What the sampler, the dataset or ``collate_fn`` raises.
    """
    if source.loader is None:
        raise ArgumentError("a batch needs a loader; view a DataLoader, such as penstock view train.py:loader")
    with source.lock, undisturbed(), source.putting_back():
        drawn = _Drawn.of(source, epoch, number)
        try:
            total: int | None = len(drawn.loader)
        except TypeError:  # a sampler without a length
            total = None
        task = next(drawn.tasks(number), None)
        if task is None:
            raise ArgumentError(f"epoch {epoch} has no batch {number}; batches are 0 to {(total or 1) - 1}")
        job = drawn.recipe.make_job(Trace(), drawn.seed, {})
        build = job.begin(task)
        build.run(0, build.rows)
        batch = build.finish()
    if batch is NOTHING:
        raise ArgumentError(f"all samples of batch {number} of epoch {epoch} are left out, as on_error says")
    indices = [index.item() if isinstance(index, np.integer) else index for index in task.indices]
    return BuiltBatch(batch, indices, drawn.seed, total, drawn.note)


@dataclass
class _Drawn:
    """A copy of a loader at the beginning of an epoch."""

    loader: Any
    recipe: Recipe
    order: Order
    seed: int
    epoch: int
    note: str = ""
    begun: Iterator[Task] | None = None  # the tasks of a sampler that is iterated

    @classmethod
    def of(cls, source: ModelSource, epoch: int, number: int) -> _Drawn:
        """Copy the loader of a source, for batch ``number``."""
        loader = copy.copy(source.loader)
        vars(loader)["dataset"] = source.dataset
        if hasattr(loader, "_order"):  # the one of NumPy
            return cls._of_numpy(loader, epoch, number)
        return cls._of_torch(source, loader, epoch, number)

    @classmethod
    def _of_numpy(cls, loader: Any, epoch: int, number: int) -> _Drawn:
        order, recipe = loader._order, loader._make_recipe()  # noqa: SLF001  # of this package
        made = cls(loader, recipe, order, loader.seed, epoch)
        if order.unit is None:
            _refuse_far(number)
            sampler, made.note = _copy_sampler(order.index_sampler, order.sampler)
            cursor = SamplerCursor(sampler, cuts=order.cuts)
            _set_epoch(cursor.inner, epoch)
            cursor.open()
            made.begun = SamplerPlan(
                cursor, batched=recipe.batched, seed=made.seed, epoch=epoch, start=0, fills=recipe.filling is not None
            )
        return made

    @classmethod
    def _of_torch(cls, source: ModelSource, loader: Any, epoch: int, number: int) -> _Drawn:
        from penstock.torch.loader.recipe import make_recipe

        drawing = {name: getattr(loader, name) for name in ("generator", "sampler", "batch_sampler")}
        copied = _copy(drawing, loader.sampler, {id(source.loader.dataset): source.dataset})
        vars(loader).update(copied, pin_memory=False, decode="cpu")
        settings = loader._make_settings()  # noqa: SLF001  # of this package
        recipe = make_recipe(loader, settings.order, Memory())
        made = cls(loader, recipe, settings.order, source.seed or 0, epoch)
        if settings.order.unit is None or source.seed is None:
            made._draw_torch(settings, source, number)
        return made

    def tasks(self, number: int) -> Iterator[Task]:
        """The tasks of the epoch from batch ``number`` on."""
        if self.begun is not None:
            return itertools.islice(self.begun, number, None)
        cut, sampler = self.order.cut(), self.order.sampler
        if cut is None:
            return plan_batches(sampler, len(sampler), self.seed, self.epoch, number)
        return plan_samples(sampler, len(sampler), cut[0], cut[1], self.seed, self.epoch, number)

    def _draw_torch(self, settings: Any, source: ModelSource, number: int) -> None:
        """Draw the epochs up to this one as torch's loader does, from copies of its generators."""
        from penstock.torch.loader.epoch_draws import EpochCounter, draw_epoch, draw_next_epoch

        order, first = settings.order, 0
        if settings.generator is None or any(order.draws_from_globals()):
            self.note, first = _FROM_GLOBALS, self.epoch
        elif source.seed is not None:
            settings.generator.manual_seed(settings.generator.initial_seed())
        elif source.given is source.loader:
            first = source.loader._counter.upcoming(order)  # noqa: SLF001  # of this package
        if self.epoch < first:
            raise ArgumentError(
                f"epoch {self.epoch} is over, and its generator has drawn on; epochs are shown from {first} on"
            )
        _refuse_far((self.epoch - first) * (length(order.sampler) or 1) + number)
        counter = EpochCounter()
        counter.set(first)
        keeps_workers = settings.persistent and settings.num_workers > 0
        last = None
        with globals_put_back() if self.note else contextlib.nullcontext():
            for epoch in range(first, self.epoch + 1):
                _set_epoch(order.sampler, epoch)
                if last is not None and keeps_workers:
                    prepared = draw_next_epoch(settings, self.recipe, counter.take(order), last)
                else:
                    prepared = draw_epoch(settings, self.recipe, counter, None)
                last, self.seed = prepared.position, prepared.seed
                if order.unit is None:
                    plan = prepared.make_plan(settings, self.recipe)
                    self.begun = iter(list(plan if epoch < self.epoch else itertools.islice(plan, number + 1)))


def _refuse_far(count: int) -> None:
    if count > _MOST_DRAWN:
        raise ArgumentError(
            f"this batch is too far: {count:,} indices or batches are drawn to come there, and at most "
            f"{_MOST_DRAWN:,} are"
        )


def _set_epoch(sampler: Any, epoch: int) -> None:
    """Choose the epoch of a sampler that has one, as a training loop does."""
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)


def _copy_sampler(index_sampler: Any, sampler: Any) -> tuple[Any, str]:
    """A copy of a sampler that can only be iterated, and what is not known of its order."""
    if isinstance(sampler, _FIXED):
        return index_sampler, ""
    note = (
        f"{type(sampler).__name__} has to be iterated: shown is what a copy of it draws now. The loader draws the same "
        "only if the sampler depends on no other state."
    )
    return _copy(index_sampler, sampler), note


def _copy(value: Any, sampler: Any, memo: dict[int, Any] | None = None) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:  # whatever the objects of the user raise
        raise ArgumentError(
            "the order of this loader cannot be drawn apart from it, since its sampler, a "
            f"{type(sampler).__name__}, cannot be copied: {error}"
        ) from error
