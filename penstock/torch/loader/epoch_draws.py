"""How epochs of a torch loader begin: what is drawn, in torch's order; and begin again, from a state.

To resume, the beginning is repeated: under the random states that were saved, the same calls draw the same numbers, the
sampler is run forward over what was delivered (no sample is read), and everybody else's random numbers are put back.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pickle import PicklingError
from typing import TYPE_CHECKING, Final

from torch.utils.data.dataloader import _InfiniteConstantSampler

from penstock.loader.epoch import PreparedEpoch
from penstock.loader.position import Position, WorkerPosition, assign_workers
from penstock.samplers import Sampler
from penstock.torch.loader.randomness import Randomness, draw_seed
from penstock.torch.loader.sampler_cursor import TorchSamplerCursor, TorchStreamPlan
from penstock.torch.loader.state import EpochDraws, Resume
from penstock.workers import END

if TYPE_CHECKING:
    from penstock.loader.epoch import Epoch
    from penstock.loader.plan import TaskPlan
    from penstock.loader.recipe import Recipe, Settings
    from penstock.sample import State
    from penstock.torch.loader.order import TorchOrder, TorchSettings
    from penstock.workers.base import Backend

__all__ = ["EpochCounter", "TorchPreparedEpoch", "draw_epoch", "draw_from_start", "draw_next_epoch"]

_PICKLE_HINT: Final = (
    "Got pickle error when starting a worker process: what a worker needs (dataset, collate_fn, worker_init_fn) must "
    "be picklable unless workers are forked; define functions at the top of a module, or give "
    "multiprocessing_context='fork'"
)


class EpochCounter:
    """Numbers a loader's epochs: it counts, unless a sampler of penstock's was given another epoch."""

    def __init__(self) -> None:
        self._next = 0
        self._of_sampler: int | None = None

    def set(self, epoch: int) -> None:
        """Choose the number of the next epoch."""
        self._next = epoch

    def resume(self, epoch: int, order: TorchOrder) -> None:
        """Choose the number of the next epoch, whatever epoch the sampler has now."""
        self._next, self._of_sampler = epoch, _epoch_of(order.sampler)

    def upcoming(self, order: TorchOrder) -> int:
        """Return the number of the next epoch."""
        given = _epoch_of(order.sampler)
        if given is not None and self._of_sampler is not None and given != self._of_sampler:
            return given
        return max(self._next, given) if given and self._of_sampler is None else self._next

    def take(self, order: TorchOrder) -> int:
        """Return the number of the next epoch, which begins now."""
        number = self.upcoming(order)
        order.set_sampler_epoch(number)
        self._next, self._of_sampler = number + 1, _epoch_of(order.sampler)
        return number


def _epoch_of(sampler: object) -> int | None:
    return sampler.epoch if isinstance(sampler, Sampler) else None


@dataclass(slots=True)
class TorchPreparedEpoch(PreparedEpoch):
    """A prepared epoch whose random numbers are drawn in torch's order."""

    to_restore: Randomness | None = None  # global generators as they were before an epoch was drawn again
    saved: Randomness | None = None  # generators as the state has them
    ahead: Randomness | None = None  # global generators under which the first batch alone is built

    def restore_generators(self, settings: TorchSettings, *, started: bool) -> None:
        """Put back what drawing the epoch again has changed; call it when the job is ``started``, or cannot be."""
        if self.to_restore is not None:
            self.to_restore.restore()
        if started and self.saved is not None:
            if self.position.finished:
                settings.restore(self.saved)
            else:
                self.saved.restore()

    def start(self, settings: Settings, recipe: Recipe, plan: TaskPlan, backend: Backend) -> Epoch:
        """Start the epoch; warns as torch does of what cannot be pickled."""
        try:
            return PreparedEpoch.start(self, settings, recipe, plan, backend)
        except (TypeError, AttributeError, PicklingError) as error:
            if "pickle" in str(error):
                warnings.warn(_PICKLE_HINT, stacklevel=7)
            raise

    def make_plan(self, settings: TorchSettings, recipe: Recipe) -> TaskPlan:
        """Make the plan of the epoch's tasks."""
        position, cursor = self.position, self.cursor
        if recipe.is_stream:
            assert isinstance(cursor, TorchSamplerCursor), "opened when the epoch was drawn"
            return TorchStreamPlan(
                cursor, batched=recipe.batched, seed=self.seed, epoch=position.epoch, start=position.batches
            )
        cursor = None if settings.order.unit is not None else cursor
        return settings.order.make_plan(self.seed, position, cursor, fills=recipe.filling is not None)


def draw_epoch(
    settings: TorchSettings, recipe: Recipe, counter: EpochCounter, resume: Resume | None
) -> TorchPreparedEpoch:
    """Draw what an epoch with new workers draws, as torch does, or again as ``resume`` says."""
    if resume is None or not resume.started:
        return _draw_anew(settings, recipe, counter, resume)
    # Workers that stay must first repeat what they had done at the end of that epoch; the loader runs it to its end.
    repeats_end = resume.replay > 0 and _keeps_workers(settings, recipe, resume)
    if resume.position.finished and not repeats_end:
        return _draw_anew(settings, recipe, counter, resume)
    return _draw_again(settings, recipe, counter, resume)


def draw_next_epoch(settings: TorchSettings, recipe: Recipe, number: int, last: Position) -> TorchPreparedEpoch:
    """Draw what epoch ``number`` with workers that are there draws: torch draws no base seed for it."""
    workers = {worker: WorkerPosition(rng=at_end.rng) for worker, at_end in last.workers.items()}
    position = Position(number, processes=recipe.workers.processes, is_stream=recipe.is_stream, workers=workers)
    cursor, position.beginning = _draw(settings, recipe, number, passes=1, base_seed=last.beginning.base_seed)
    return _prepare(settings, position, cursor, has_states=False)


def draw_from_start(settings: TorchSettings, recipe: Recipe, begun: Position) -> TorchPreparedEpoch:
    """Draw an epoch that has ``begun`` again, from its first batch on; leaves global generators as they were then."""
    position = Position(begun.epoch, origin=begun.origin, beginning=begun.beginning)
    return _prepare(settings, position, _repeat_draws(settings, recipe, position))


def _draw_anew(
    settings: TorchSettings, recipe: Recipe, counter: EpochCounter, resume: Resume | None
) -> TorchPreparedEpoch:
    last = Position() if resume is None else resume.position
    started = resume is None or resume.started
    keeps_workers = resume is not None and started and _keeps_workers(settings, recipe, resume)
    if resume is not None:
        if started and not recipe.workers.processes and not last.processes:
            _run_to_end(recipe, last.worker(0).state)
        if resume.now is not None:
            settings.restore(resume.now)
        counter.resume(last.epoch + started, settings.order)
    position = Position(counter.take(settings.order), processes=recipe.workers.processes, is_stream=recipe.is_stream)
    base_seed = last.beginning.base_seed if keeps_workers else None
    passes = 2 if settings.num_workers and not keeps_workers else 1
    cursor, position.beginning = _draw(settings, recipe, position.epoch, passes=passes, base_seed=base_seed)
    if keeps_workers:
        position.workers = {number: WorkerPosition(state=w.state, rng=w.rng) for number, w in last.workers.items()}
    elif not started:
        state = last.worker(0).state
        position.workers = {number: WorkerPosition(state=state) for number in range(max(1, recipe.workers.processes))}
    return _prepare(settings, position, cursor, resumed=False)


def _draw_again(settings: TorchSettings, recipe: Recipe, counter: EpochCounter, resume: Resume) -> TorchPreparedEpoch:
    position, epoch = resume.position, resume.position.epoch
    assign_workers(position, recipe.workers.processes, is_stream=recipe.is_stream, dataset=recipe.dataset)
    has_state = any(worker.state is not None for worker in position.workers.values())
    if not resume.whole and recipe.is_stream and not has_state:
        resume.replay += position.yielded
        position = Position(processes=position.processes, is_stream=position.is_stream, beginning=position.beginning)
    counter.resume(epoch, settings.order)
    counter.set(epoch + 1)
    if position.beginning.base_seed < 0:
        position.beginning.base_seed = draw_seed(settings.generator)
    before = Randomness.now()
    try:
        cursor = _repeat_draws(settings, recipe, position)
    except BaseException:
        before.restore()
        raise
    prepared = _prepare(settings, position, cursor)
    prepared.replay, prepared.to_restore, prepared.saved = resume.replay, before, resume.now
    prepared.ahead = resume.ahead
    return prepared


def _prepare(
    settings: TorchSettings,
    position: Position,
    cursor: TorchSamplerCursor,
    *,
    has_states: bool = True,
    resumed: bool = True,
) -> TorchPreparedEpoch:
    base_seed: int = position.beginning.base_seed
    seed = base_seed if settings.seed is None else settings.seed
    return TorchPreparedEpoch(position, seed, base_seed, cursor, has_states, resumed)


def _run_to_end(recipe: Recipe, saved: State) -> None:
    """Give the dataset the state that it has at the end of an epoch that is over, so that its next one can begin.

    A stream's saved state is either that before its end, which its iterator must still come to, or already that of its
    next beginning: then nothing may be drawn from it.
    """
    dataset, has_own = recipe.dataset, saved is not None and saved["dataset"] is not None
    if saved is None or (not has_own and saved["iterator"] is None):
        return
    if has_own:
        dataset.load_state_dict(copy.deepcopy(saved["dataset"]))
    if not recipe.is_stream:
        return
    iterator = iter(dataset)
    if saved["iterator"] is not None:
        iterator.load_state_dict(copy.deepcopy(saved["iterator"]))
    if next(iterator, END) is not END and has_own:
        dataset.load_state_dict(copy.deepcopy(saved["dataset"]))


def _keeps_workers(settings: TorchSettings, recipe: Recipe, resume: Resume) -> bool:
    """Return whether the workers of the epoch that is over would have stayed for the next one."""
    theirs, drawn = resume.position, resume.position.beginning
    had_workers = theirs.processes > 0 or drawn.passes > 1 or not drawn.draws_seed  # threads draw as processes do
    is_same = recipe.workers.processes == theirs.processes and theirs.of_ranks == 1
    return settings.persistent and had_workers and is_same


def _draw(
    settings: TorchSettings, recipe: Recipe, number: int, *, passes: int, base_seed: int | None
) -> tuple[TorchSamplerCursor, EpochDraws]:
    """Begin as torch does: ``iter(index_sampler)``, the base seed (unless given), with new workers ``iter`` again."""
    order = settings.order
    beginning = EpochDraws(0, _now(settings, recipe), passes, draws_seed=base_seed is None)
    sampler = order.sampler
    after: Randomness | None = None

    def note_advance() -> None:
        """Note the random states that the sampler is first advanced under, if somebody has drawn since."""
        beginning.begun, present = True, _now(settings, recipe)
        if (replaced := order.sampler) is not sampler:  # since iter(): the other one begins here
            beginning.before, beginning.draws_seed = present, False
            if isinstance(replaced, Sampler):
                replaced.set_epoch(number)
        if not present.equals(after):
            beginning.advanced = present

    cursor = _make_cursor(order, recipe, note_advance)
    cursor.open()
    beginning.base_seed = draw_seed(settings.generator) if base_seed is None else base_seed
    for _ in range(passes - 1):
        cursor.open()
    after = _now(settings, recipe)
    return cursor, beginning


def _now(settings: TorchSettings, recipe: Recipe) -> Randomness:
    """The random states that the order of an epoch may depend on that begins now."""
    of_torch, of_others = settings.order.draws_from_globals()
    if recipe.workers.kind == "serial" and recipe.is_stream:
        of_torch = of_others = True
    return Randomness.now(settings.generators(), of_torch=of_torch, of_others=of_others)


def _repeat_draws(settings: TorchSettings, recipe: Recipe, position: Position) -> TorchSamplerCursor:
    """Begin as the epoch was begun before, and go to ``position``; leaves global generators as they were then."""
    order, beginning = settings.order, position.beginning

    def note_advance() -> None:
        """Note that the sampler is advanced now; it was not before the state was taken."""
        if not beginning.begun:
            of_torch, of_others = order.draws_from_globals()
            beginning.begun = True
            beginning.advanced = Randomness.now(settings.generators(), of_torch=of_torch, of_others=of_others)

    order.set_sampler_epoch(position.epoch)
    cursor = _make_cursor(order, recipe, note_advance)
    if beginning.before is not None:
        settings.restore(beginning.before)
    cursor.open()
    if beginning.before is not None and beginning.draws_seed:
        draw_seed(settings.generator)
    for _ in range(beginning.passes - 1):
        cursor.open()
    if beginning.advanced is not None:
        settings.restore(beginning.advanced)
    if recipe.is_stream:
        if not isinstance(order.sampler, _InfiniteConstantSampler):
            cursor.skip(position.batches)
    elif order.unit is None:
        cursor.restore(position.sampler, position.batches)
        if beginning.begun:
            cursor.prime()
    return cursor


def _make_cursor(order: TorchOrder, recipe: Recipe, before_first: Callable[[], None]) -> TorchSamplerCursor:
    before = None if recipe.is_stream else before_first
    return TorchSamplerCursor(order.index_sampler, cuts=order.cuts, before_first=before)
