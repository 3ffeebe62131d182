"""A batch as a loader gives it, built in the calling thread by a copy of the loader that has no workers.

Nothing of the loader is drawn, opened or counted. The order of a sampler that can only be iterated is that of a copy of
it, and is told so. Called by :mod:`.routes`.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from penstock.errors import ArgumentError
from penstock.loader.loader import DataLoader
from penstock.loader.order import length
from penstock.loader.position import Position
from penstock.loader.recipe import Memory, Recipe
from penstock.rng import globals_put_back, undisturbed
from penstock.sample import Batch, DatasetLike
from penstock.trace import Trace
from penstock.viewer.model.source import ModelSource
from penstock.workers.base import NOTHING, Task

if TYPE_CHECKING:
    import torch

__all__ = ["BuiltBatch", "build_batch"]

T = TypeVar("T")
_MOST_DRAWN: Final = 20_000_000  # indices to come to a batch


@dataclass(frozen=True, slots=True)
class BuiltBatch:
    """A batch, and where it is."""

    batch: Batch
    indices: list[object]  # what the sampler drew
    seed: int  # of its random numbers
    total: int | None  # batches of the epoch, if the loader has a length
    note: str = ""  # what is not known of its order


_Planned = tuple[Task | None, Recipe, int, str]
"""The task of a batch, None if there is none; what builds it; its seed; what is not known of its order."""


def build_batch(source: ModelSource, epoch: int, number: int) -> BuiltBatch:
    """Build a batch of an epoch; an ArgumentError if there is none, or what the code of the user raises."""
    if source.loader is None:
        raise ArgumentError("a batch needs a loader; view a DataLoader, such as penstock view train.py:loader")
    with source.lock, undisturbed(), globals_put_back() if source.calls_user else nullcontext():
        loader = copy.copy(source.loader)
        vars(loader)["dataset"] = source.dataset
        total = length(loader)
        plan = _plan_by_numpy if isinstance(loader, DataLoader) else _plan_by_torch
        task, recipe, seed, note = plan(source, loader, epoch, number)
        if task is None:
            raise ArgumentError(f"epoch {epoch} has no batch {number}; batches are 0 to {(total or 1) - 1}")
        build = recipe.make_job(Trace(), seed, {}).begin(task)
        build.run(0, build.rows)
        batch = build.finish()
        indices = [index.item() if isinstance(index, np.integer) else index for index in task.indices]
    if batch is NOTHING:
        raise ArgumentError(f"all samples of batch {number} of epoch {epoch} are left out, as on_error says")
    return BuiltBatch(batch, indices, seed, total, note)


def _plan_by_numpy(source: ModelSource, loader: DatasetLike, epoch: int, number: int) -> _Planned:
    order, note, start = copy.copy(loader._order), "", number  # noqa: SLF001  # of this package
    if order.unit is None:
        _refuse_far(number)
        if not isinstance(order.sampler, list | tuple | range | np.ndarray):
            note = f"Shown is what a copy of {type(order.sampler).__name__} draws now, since it has to be iterated."
        order.index_sampler, start = _copy(source, order.index_sampler), 0
        _set_epoch(order.sampler, epoch)
    loader.__dict__.update(_order=order, _resume=Position(epoch, batches=start))
    recipe = loader._make_recipe()  # noqa: SLF001  # as above
    plan = loader._make_plan(loader._prepare(recipe), recipe)  # noqa: SLF001  # as above
    return next(islice(plan, number - start, None), None), recipe, loader.seed, note


def _plan_by_torch(source: ModelSource, loader: DatasetLike, epoch: int, number: int) -> _Planned:
    """Draw the epochs up to this one as torch's loader does, from copies of its generators."""
    from penstock.torch.loader.past import draw_epochs
    from penstock.torch.loader.recipe import make_recipe

    drawing = {name: getattr(loader, name) for name in ("generator", "sampler", "batch_sampler")}
    loader.__dict__.update(_copy(source, drawing), pin_memory=False, decode="cpu")
    settings = loader._make_settings()  # noqa: SLF001  # of this package
    order, generator, note = settings.order, settings.generator, ""
    is_drawn = order.unit is None or source.seed is None
    first, start = 0 if is_drawn else epoch, 0 if order.unit is None else number
    if is_drawn and (generator is None or any(order.draws_from_globals())):
        first = epoch
        note = "The order, or the seed, is drawn from global generators: shown is one that may be drawn."
    elif is_drawn and generator is not None and _is_advanced(generator):
        note = "The loader's generator was drawn from since it was seeded: epochs are counted from where it is now."
    _refuse_far((epoch - first) * (length(order.sampler) or 1) + number - start)
    recipe = make_recipe(loader, order, Memory())
    with globals_put_back() if note else nullcontext():
        [*_, (prepared, _)] = draw_epochs(settings, recipe, first, epoch)
        prepared.position.batches = start
        plan = prepared.make_plan(settings, recipe)
        return next(islice(plan, number - start, None), None), recipe, prepared.seed, note


def _is_advanced(generator: torch.Generator) -> bool:
    """Return whether numbers were drawn since it was seeded."""
    seeded = type(generator)().manual_seed(generator.initial_seed())
    return not seeded.get_state().equal(generator.get_state())


def _refuse_far(count: int) -> None:
    if count > _MOST_DRAWN:
        raise ArgumentError(f"a batch must have at most {_MOST_DRAWN:,} draws before it, got {count:,}")


def _set_epoch(sampler: object, epoch: int) -> None:
    """Choose the epoch of a sampler that has one, as a training loop does."""
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)


def _copy(source: ModelSource, value: T) -> T:
    """A deep copy of samplers and generators, over the dataset that is there."""
    try:
        return copy.deepcopy(value, {id(source.loader.dataset): source.dataset})
    except Exception as error:  # whatever the objects of the user raise
        name = type(source.loader.sampler).__name__
        raise ArgumentError(
            f"the order cannot be shown, since the sampler, a {name}, cannot be copied: {error}"
        ) from error
