"""What a batch of a torch loader was made of: the order is computed where it can be, else drawn again from copies.

=================================  =====================================================================================
penstock's samplers, and seed=     computed at once
torch's DistributedSampler, lists  that epoch is iterated
the epoch that the loader is in    drawn again, from the states of generators that were kept when it began
a later epoch                      drawn from there on, as a run that is resumed there does
an earlier epoch                   drawn from the generator's seed on, which must come to where the loader's epoch began
=================================  =====================================================================================

To draw an epoch takes the time and the memory of a permutation, as in torch. Called by
:class:`penstock.torch.DataLoader` and by the viewer; generators and samplers of the loader stay as they are.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ArgumentError
from penstock.loader.order import length
from penstock.loader.past import PastSample, count_from, list_samples, of_rank, refuse_unknown
from penstock.loader.recipe import Memory
from penstock.rng import globals_put_back, undisturbed
from penstock.torch.datasets import native
from penstock.torch.loader.epoch_draws import EpochCounter, draw_epoch, draw_from_start, draw_next_epoch
from penstock.torch.loader.recipe import make_recipe
from penstock.torch.loader.saving import parse_for_loader

if TYPE_CHECKING:
    from penstock.loader.plan import TaskPlan
    from penstock.loader.position import Position
    from penstock.loader.recipe import Recipe
    from penstock.torch.loader.epoch_draws import TorchPreparedEpoch
    from penstock.torch.loader.order import TorchSettings
    from penstock.torch.loader.state import Resume
    from penstock.workers.base import Task

__all__ = ["draw_epochs", "find_samples"]

_MOST_DRAWN: Final = 1_000_000_000  # indices to come to a batch


def find_samples(loader: Any, step: int, epoch: int | None, rank: int | None) -> list[PastSample]:
    """Find the samples of a batch; see :meth:`penstock.torch.DataLoader.samples_of`."""
    copied = copy.copy(loader)  # one that was never iterated
    order, drawing = loader._make_settings().order, ("generator", "sampler", "batch_sampler")  # noqa: SLF001  # own
    kept = [loader.dataset, getattr(order.sampler, "data_source", None)]
    kept += [loader.sampler, loader.batch_sampler] if order.is_fixed() else []  # however large: not drawn from
    copies = copy.deepcopy({name: getattr(loader, name) for name in drawing}, {id(each): each for each in kept})
    vars(copied).update(copies, _fingerprint=loader._fingerprint, pin_memory=False, decode="cpu")  # noqa: SLF001  # own
    settings: TorchSettings = copied._make_settings()  # noqa: SLF001  # as above
    order = settings.order = of_rank(settings.order, rank)
    resume = parse_for_loader(loader.state_dict(), settings)
    position = count_from(step, epoch, len(order.index_sampler), resume.position)
    if order.unit is not None and settings.seed is not None:
        task = next(order.seek(settings.seed, position), None)
    else:
        with undisturbed(), globals_put_back():
            recipe = make_recipe(copied, order, Memory())
            task = _draw_task(settings, recipe, position, resume, is_open=loader._epoch is not None)  # noqa: SLF001  # own
    return list_samples(task, order, position, native(loader.dataset), seeds_globals=loader.seed_per_sample)


def _draw_task(
    settings: TorchSettings, recipe: Recipe, position: Position, resume: Resume, *, is_open: bool
) -> Task | None:
    """Draw the batch at ``position`` from the copies in ``settings``."""
    order, epoch, now = settings.order, position.epoch, resume.position
    if not order.takes_given_generators():
        raise refuse_unknown(order, "nothing says what it draws from")
    if resume.started and epoch == now.epoch and now.beginning.before is not None:
        if not is_open:
            _set_epoch(order.sampler, epoch)
        drawn = draw_from_start(settings, recipe, now)
        return _take(settings, drawn, drawn.make_plan(settings, recipe), position)
    if settings.seed is not None and order.is_fixed():
        [(drawn, plan)] = draw_epochs(settings, recipe, epoch, epoch)
        return _take(settings, drawn, plan, position)
    if not resume.whole or settings.generator is None or any(order.draws_from_globals()):
        raise _refuse_epoch(position, now, "its order, or its seed, was drawn from torch's global generator")
    is_past = resume.started and epoch <= now.epoch
    first, last = (0, now.epoch) if is_past else (now.epoch + (resume.started and now.finished), epoch)
    if (last - first) * (length(order.sampler) or 1) > _MOST_DRAWN:
        raise _refuse_epoch(position, now, f"more than {_MOST_DRAWN:,} indices would have to be drawn to come to it")
    if epoch < first:
        raise _refuse_epoch(position, now, f"the loader begins with epoch {first}")
    for generator in settings.generators() if is_past else ():
        generator.manual_seed(generator.initial_seed())
    task = None
    for drawn, plan in draw_epochs(settings, recipe, first, last, None if is_past else resume):
        if drawn.position.epoch == epoch:
            task = _take(settings, drawn, plan, position)
    if is_past and not drawn.position.beginning.before.equals(now.beginning.before):
        why = "somebody else drew from the loader's generator, or an epoch was left before its end"
        raise _refuse_epoch(position, now, why)
    return task


def _refuse_epoch(position: Position, now: Position, why: str) -> ArgumentError:
    return ArgumentError(
        f"the order of epoch {position.epoch} is not known any more where the loader is in epoch {now.epoch}: {why}; "
        "load a state that was taken in that epoch, or use a sampler of penstock's and seed="
    )


def _take(settings: TorchSettings, drawn: TorchPreparedEpoch, plan: TaskPlan, position: Position) -> Task | None:
    if settings.order.unit is not None:
        return next(settings.order.seek(drawn.seed, position), None)
    return next(islice(plan, position.batches, None), None)


def draw_epochs(
    settings: TorchSettings, recipe: Recipe, first: int, last: int, resume: Resume | None = None
) -> Iterator[tuple[TorchPreparedEpoch, TaskPlan]]:
    """Draw epochs as a loader with these settings does, from a ``resume`` on that has ``first`` to come; yields each.

    Each but the last is drawn to its end. Draws from the generators of ``settings``, and may from global ones.
    """
    counter = EpochCounter()
    counter.set(first)
    if resume is not None:
        resume.replay, resume.position.workers = 0, {}  # nothing is built
    drawn = None
    for epoch in range(first, last + 1):
        _set_epoch(settings.order.sampler, epoch)
        if drawn is not None and settings.persistent and settings.num_workers:
            drawn = draw_next_epoch(settings, recipe, counter.take(settings.order), drawn.position)
        else:
            drawn = draw_epoch(settings, recipe, counter, resume if drawn is None else None)
        plan = drawn.make_plan(settings, recipe)
        yield drawn, plan
        if epoch < last and settings.order.unit is None:
            deque(plan, maxlen=0)


def _set_epoch(sampler: object, epoch: int) -> None:
    """Choose the epoch of a sampler that has one, as a training loop does."""
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
