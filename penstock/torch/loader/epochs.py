"""How epochs of a torch loader begin: what is drawn, in torch's order; and begin again, from a state.

To resume, the beginning is done over: under the random states that were kept, the same calls draw the same numbers, the
sampler is run forward over what was delivered (no sample is read), and everybody else's random numbers are put back.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

import torch
from torch.utils.data.dataloader import _InfiniteConstantSampler

from penstock.loader.faults import Tally
from penstock.loader.jobs import Opening
from penstock.loader.order import length, rest_of
from penstock.loader.plan import BatchPlan, IndexPlan, Plan
from penstock.loader.replicas import Route
from penstock.rng import undisturbed
from penstock.samplers import Sampler
from penstock.torch.loader.order import BATCHING, draws_from_globals, innermost, seekable, takes_given_generators
from penstock.torch.loader.plan import Walk, WalkPlan
from penstock.torch.loader.randomness import Randomness, generators_of, kept
from penstock.torch.loader.state import Beginning, Position, Resume, Share, redistribute
from penstock.torch.loader.terms import Epoch, Terms
from penstock.torch.loader.work import Work
from penstock.workers import END, Backend, Task

__all__ = ["Opener", "begin_rest"]


class Opener:
    """A loader's count of epochs, and how it begins them."""

    def __init__(self) -> None:
        self._next = 0
        self._of_sampler: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """The number of the next epoch."""
        self._next = epoch

    def begin(self, terms: Terms, work: Work, resume: Resume | None, make: Callable[[int], Backend]) -> Epoch:
        """Begin an epoch with new workers, which ``make`` gives for a base seed."""
        with undisturbed():
            over = resume is not None and resume.position.finished and not _ends_first(terms, work, resume)
            if resume is None or over or not resume.started:
                return self._begin_anew(terms, work, resume, make)
            return self._begin_within(terms, work, resume, make)

    def begin_again(self, terms: Terms, work: Work, last: Position, backend: Backend) -> Epoch:
        """Begin the next epoch with workers that are there: torch draws no base seed for it."""
        position = Position(
            epoch=self._number(terms),
            processes=work.processes,
            iterable=work.stream,
            shares={worker: Share(rng=share.rng) for worker, share in last.shares.items()},
        )
        with undisturbed():
            walk, position.beginning = _drawn(terms, work, position.epoch, passes=1, base_seed=last.beginning.base_seed)
            return self._started(terms, work, position, walk, backend, openings=False)

    def _begin_anew(self, terms: Terms, work: Work, resume: Resume | None, make: Callable[[int], Backend]) -> Epoch:
        last = Position() if resume is None else resume.position
        started = resume is None or resume.started
        goes_on = resume is not None and started and _goes_on(terms, work, resume)
        if resume is not None:
            if started and not work.processes and not last.processes:
                _leave_behind(work, last.shares.get(0, Share()).state)
            if resume.now is not None:
                _restore(resume.now, terms)
            self._resumed_at(last.epoch + started, terms)
        position = Position(epoch=self._number(terms), processes=work.processes, iterable=work.stream)
        base_seed = last.beginning.base_seed if goes_on else None
        passes = 2 if terms.num_workers and not goes_on else 1
        walk, position.beginning = _drawn(terms, work, position.epoch, passes=passes, base_seed=base_seed)
        if goes_on:
            position.shares = {worker: Share(state=share.state, rng=share.rng) for worker, share in last.shares.items()}
        elif not started:
            state = last.shares.get(0, Share()).state
            position.shares = {worker: Share(state=state) for worker in range(max(1, work.processes))}
        return self._started(
            terms, work, position, walk, make(position.beginning.base_seed), openings=True, resumed=False
        )

    def _begin_within(self, terms: Terms, work: Work, resume: Resume, make: Callable[[int], Backend]) -> Epoch:
        position, now = resume.position, resume.now
        redistribute(position, work.processes, stream=work.stream)
        if not resume.whole and work.stream and all(share.state is None for share in position.shares.values()):
            resume.replay, position = (
                resume.replay + position.yielded,
                Position(beginning=position.beginning, processes=position.processes, iterable=position.iterable),
            )
        self._resumed_at(resume.position.epoch, terms)
        self._next += 1
        if position.beginning.base_seed < 0:
            position.beginning.base_seed = _draw_seed(terms)
        with kept():
            walk = _drawn_again(terms, work, position)
            backend = make(position.beginning.base_seed)
            epoch = self._started(terms, work, position, walk, backend, openings=True, replay=resume.replay)
        if now is not None:
            if resume.position.finished:
                _restore(now, terms)
            else:
                now.restore()
        return epoch

    def _started(
        self,
        terms: Terms,
        work: Work,
        position: Position,
        walk: Walk,
        backend: Backend,
        *,
        openings: bool,
        resumed: bool = True,
        replay: int = 0,
    ) -> Epoch:
        """Plan and job of an epoch at ``position``; the backend has begun."""
        seed = position.beginning.base_seed if terms.seed is None else terms.seed
        trace = terms.ledger.open()
        opened = {
            worker: _opening(position, worker, told=openings, resumed=resumed)
            for worker in range(max(1, work.processes))
        }
        if not resumed:
            for share in position.shares.values():
                share.state = None
        plan = _plan(terms, work, position, walk, seed)
        try:
            backend.start(work.job(trace, seed, opened))
        except (TypeError, AttributeError, PicklingError) as error:
            if "pickle" in str(error):
                _warn_of_pickling()
            raise
        if work.stream:
            position.sampler = None
        elif position.sampler is None:
            position.sampler = walk.state()
        route = None
        if work.processes:
            first = (
                position.batches
                if not position.streams
                else (-1 if position.last_worker is None else position.last_worker) + 1
            )
            route = Route(work.processes, work.limit, in_order=terms.in_order, first=first)
        # what came out of order cannot be brought about again: then there is no batch without a snapshot
        every = terms.snapshot_every if terms.in_order else 1
        since: list[Task] | None = [] if terms.persistent else None
        return Epoch(plan, trace, position, work, route, replay, every, _tally(terms, work, position), since)

    def _resumed_at(self, epoch: int, terms: Terms) -> None:
        """A state has the last word on the next epoch's number."""
        sampler = innermost(terms.index_sampler)
        self._next, self._of_sampler = epoch, sampler.epoch if isinstance(sampler, Sampler) else None

    def _number(self, terms: Terms) -> int:
        """The next epoch's number, which is taken."""
        number, sampler = self.upcoming(terms), innermost(terms.index_sampler)
        self._of_sampler = sampler.epoch if isinstance(sampler, Sampler) else None
        self._next = number + 1
        return number

    def upcoming(self, terms: Terms) -> int:
        """The next epoch's number: the loader's own count, unless a sampler was given another one."""
        sampler = innermost(terms.index_sampler)
        given = sampler.epoch if isinstance(sampler, Sampler) else None
        if given is not None and self._of_sampler is not None and given != self._of_sampler:
            return given
        return max(self._next, given) if given and self._of_sampler is None else self._next


def begin_rest(terms: Terms, epoch: Epoch, backend: Backend) -> None:
    """Start a backend for the rest of an epoch whose workers were taken from it: where they last said they were.

    Its plan is there: nothing is drawn.
    """
    stand = epoch.standing()
    seed = stand.beginning.base_seed if terms.seed is None else terms.seed
    opened = {worker: _opening(stand, worker, told=True, resumed=True) for worker in range(stand.processes)}
    backend.start(epoch.work.job(epoch.trace, seed, opened))


def _warn_of_pickling() -> None:
    """torch's hint, beside the error that says what it was."""
    warnings.warn(
        "Got pickle error when starting a worker process: what a worker needs (dataset, collate_fn, worker_init_fn) "
        "must be picklable unless workers are forked; define functions at the top of a module, or give "
        "multiprocessing_context='fork'",
        stacklevel=7,
    )


def _leave_behind(work: Work, saved: Any) -> None:
    """Have the dataset remember what it does at the end of an epoch that is over, so that its next one can begin.

    A stream's state at its end is either that of its end, which its iterator must still come to, or already that of its
    next beginning: then nothing may be taken from it.
    """
    dataset, told = work.dataset, saved is not None and saved["dataset"] is not None
    if saved is None or (not told and saved["iterator"] is None):
        return
    if told:
        dataset.load_state_dict(copy.deepcopy(saved["dataset"]))
    if not work.stream:
        return
    iterator = iter(dataset)
    if saved["iterator"] is not None:
        iterator.load_state_dict(copy.deepcopy(saved["iterator"]))
    if next(iterator, END) is not END and told:
        dataset.load_state_dict(copy.deepcopy(saved["dataset"]))


def _goes_on(terms: Terms, work: Work, resume: Resume) -> bool:
    """Whether workers of the epoch that is over would have gone on into the next one."""
    return terms.persistent and work.processes == resume.position.processes > 0


def _ends_first(terms: Terms, work: Work, resume: Resume) -> bool:
    """Whether workers are still to do what they had done at the end of the epoch; the loader sees to that."""
    return resume.replay > 0 and _goes_on(terms, work, resume)


def _opening(position: Position, worker: int, *, told: bool, resumed: bool) -> Opening:
    share = position.shares.get(worker, Share())
    if not told:
        return Opening(position.epoch, worker)
    return Opening(position.epoch, worker, share.samples, share.state, resumed, share.rng)


def _plan(terms: Terms, work: Work, position: Position, walk: Walk, seed: int) -> Plan:
    unit, at = seekable(terms), (seed, position.epoch, position.batches)
    if unit is not None:
        rest, cuts = rest_of(innermost(terms.index_sampler), position.origin), terms.index_sampler
        if unit == "batches":
            return BatchPlan(rest, *at)
        size, drop_last = (cuts.batch_size, cuts.drop_last) if terms.batched else (1, False)
        return IndexPlan(rest, size, drop_last, *at)
    return WalkPlan(
        walk, batched=work.batched, seed=seed, epoch=position.epoch, start=position.batches, stream=work.stream,
        fills=work.spec is not None,
    )  # fmt: skip


def _drawn(terms: Terms, work: Work, number: int, *, passes: int, base_seed: int | None) -> tuple[Walk, Beginning]:
    """Begin as torch does: ``iter(index_sampler)``, the base seed (unless given), with new workers ``iter`` again."""
    sampler = terms.index_sampler
    beginning = Beginning(0, _randomness(terms, work), passes, draws_seed=base_seed is None)
    inner = innermost(sampler)
    after: Randomness | None = None

    def note_others() -> None:
        """What the sampler draws now it must draw again: keep from where, if somebody has drawn since."""
        beginning.begun, present = True, _randomness(terms, work)
        if (replaced := innermost(sampler)) is not inner:  # since iter(): this is where the other one begins
            beginning.before, beginning.draws_seed = present, False
            if isinstance(replaced, Sampler):
                replaced.set_epoch(number)
        if not present.equals(after):
            beginning.advanced = present

    walk = _walk(terms, number, None if work.stream else note_others)
    walk.open()
    beginning.base_seed = _draw_seed(terms) if base_seed is None else base_seed
    for _ in range(passes - 1):
        walk.open()
    after = _randomness(terms, work)
    return walk, beginning


def _randomness(terms: Terms, work: Work) -> Randomness:
    """What the order of an epoch that begins now may hang on."""
    of_torch, of_others = (True, True) if work.kind == "serial" and work.stream else draws_from_globals(terms)
    return Randomness.now(generators_of(terms, terms.index_sampler), of_torch=of_torch, of_others=of_others)


def _drawn_again(terms: Terms, work: Work, position: Position) -> Walk:
    """Begin as it was begun before, and go to ``position``; leaves global generators as they were then."""
    beginning, generators = position.beginning, generators_of(terms, terms.index_sampler)
    of_torch, of_others = draws_from_globals(terms)

    def note_beginning() -> None:
        """It was not advanced before the state was taken."""
        if not beginning.begun:
            beginning.begun = True
            beginning.advanced = Randomness.now(generators, of_torch=of_torch, of_others=of_others)

    walk = _walk(terms, position.epoch, None if work.stream else note_beginning)
    if beginning.before is not None:
        _restore(beginning.before, terms)
    walk.open()
    if beginning.before is not None and beginning.draws_seed:
        _draw_seed(terms)
    for _ in range(beginning.passes - 1):
        walk.open()
    if beginning.advanced is not None:
        _restore(beginning.advanced, terms)
    if work.stream:
        if not isinstance(innermost(terms.index_sampler), _InfiniteConstantSampler):
            walk.skip(position.batches)
    elif seekable(terms) is None:
        if not walk.restore(position.sampler):
            walk.skip(position.batches)
        if beginning.begun:
            walk.prime()
    return walk


def _walk(terms: Terms, epoch: int, before_first: Callable[[], None] | None) -> Walk:
    sampler = terms.index_sampler
    if isinstance(sampler, Sampler) and seekable(terms) is None:
        sampler.set_epoch(epoch)  # one of penstock's own that is iterated: the loader counts its epochs
    return Walk(sampler, before_first)


def _tally(terms: Terms, work: Work, position: Position) -> Tally | None:
    """What watches over an epoch's losses; None where nothing is left out."""
    if not work.rules.tolerant:
        return None
    cut = not terms.batched or type(terms.index_sampler) in BATCHING
    expected = length(terms.dataset) if work.stream else length(innermost(terms.index_sampler)) if cut else None
    before = {"drawn": position.samples, "lost": position.lost}
    return terms.losses.epoch(position.epoch, expected, resumed=position.batches > 0, **before)


def _restore(states: Randomness, terms: Terms) -> None:
    """Put back global generators, and those of the loader and its samplers."""
    states.restore(generators_of(terms, terms.index_sampler), all_given=takes_given_generators(terms))


def _draw_seed(terms: Terms) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=terms.generator).item())
