"""States of a torch loader: what one says, and which of them a loader takes.

Called by the loader, when it is asked for a state and when it is given one. Nothing here starts a worker, draws a
random number or iterates a sampler.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.datasets.base import is_iterable
from penstock.loader.jobs.base import snapshot_before
from penstock.loader.state import Progress
from penstock.rng import undisturbed
from penstock.torch.loader.iteration import DataLoaderIterator
from penstock.torch.loader.order import draws_from_globals, innermost, order_of, placed, ranks, sampler_seed
from penstock.torch.loader.randomness import Randomness, generators_of
from penstock.torch.loader.state import Beginning, Position, Resume, Share, dump, parse
from penstock.torch.loader.stateful import Stateful
from penstock.torch.loader.terms import Epoch, Terms

__all__ = ["Mark", "check", "mark_of_epoch", "may_have_state", "resumable", "state_of_unstarted"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a loader is at one moment, kept in as little as can be; :meth:`state` writes it down.

    Parameters
    ----------
    live, snapshot : Position
        What was delivered, and where workers last said where they were; copies.
    now : Randomness
        The random states.
    order : dict
        Fields of a state that say which order it belongs to.
    length : int, optional
        What ``len(dataset)`` was, if it was asked for.
    """

    live: Position
    snapshot: Position
    now: Randomness
    order: dict[str, Any]
    length: int | None

    def state(self) -> dict[str, Any]:
        """The ``state_dict``."""
        return dump(self.live, self.snapshot, self.now, copy.deepcopy(self.order), self.length)


def mark_of_epoch(terms: Terms, epoch: Epoch, iterator: DataLoaderIterator | None) -> Mark:
    """Where a loader is whose newest epoch is ``epoch``."""
    if iterator is not None and may_have_state(terms.dataset):
        iterator.note_start()
    live, snapshot = epoch.position, epoch.standing()
    with undisturbed():
        now = Randomness.now(
            generators_of(terms, terms.index_sampler) if live.finished else (),
            of_torch=terms.generator is None or not terms.num_workers,
            of_others=not terms.num_workers,
        )
    if epoch.order is None:
        epoch.order = _order(terms, live)
    copied = live.copy()
    return Mark(copied, copied if snapshot is live else snapshot.copy(), now, epoch.order, terms.reported_length)


def state_of_unstarted(terms: Terms, number: int, processes: int) -> dict[str, Any]:
    """The ``state_dict`` of a loader that was never iterated.

    Parameters
    ----------
    terms : Terms
        The loader's.
    number : int
        Of the epoch that ``iter()`` would begin.
    processes : int
        Worker processes that it would start.
    """
    with undisturbed():
        now = Randomness.now(
            generators_of(terms, terms.index_sampler),
            of_torch=terms.generator is None or not terms.num_workers,
            of_others=not terms.num_workers or draws_from_globals(terms)[1],
        )
    state = snapshot_before(terms.dataset)
    position = Position(
        epoch=number, processes=processes, iterable=is_iterable(terms.dataset), beginning=Beginning(-1),
        shares={worker: Share(state=state) for worker in range(max(1, processes))},
    )  # fmt: skip
    order = _order(terms, position)
    return dump(position, position, now, order, terms.reported_length, started=False)


def _order(terms: Terms, position: Position) -> dict[str, Any]:
    """The fields of a state that say which order it belongs to."""
    dealt = ranks(terms)
    return {
        "order": order_of(terms),
        "ranks": None if dealt is None else {"num_replicas": dealt.num_replicas, "origin": position.origin},
        "sampler_seed": sampler_seed(terms),
    }


def resumable(state: Any, terms: Terms) -> Resume:
    """What ``state`` asks of ``loader``.

    Raises
    ------
    StateError
        If it is none, or one of a loader with another order.
    """
    resume = parse(state)
    if not resume.whole:
        return resume
    own, position = state["penstock"], resume.position
    check(own, terms)
    if resume.now is not None and not terms.restores_globals:
        resume.now = resume.now.of_generators()
    if not resume.started and own["order"] != order_of(terms):
        resume.now = None  # another sampler was put in: it draws its own order
        return resume
    whole = Progress(position.epoch, position.batches + resume.replay, resume.delivered, position.ahead)
    here = placed(whole, own, terms)
    position.origin, position.lost = here.origin, own["left_out"]
    if here is not whole:
        _begin_at_origin(resume)
    if own["sampler_seed"] is not None and sampler_seed(terms) is not None:
        innermost(terms.index_sampler).seed = own["sampler_seed"]
    return resume


def check(own: Mapping[str, Any], terms: Terms) -> None:
    """Refuse a state of another order. Before an epoch has begun, its sampler may still be exchanged.

    Parameters
    ----------
    own : mapping
        The part of a state that is penstock's.

    Raises
    ------
    StateError
        Naming the field that differs.
    """
    if not own.get("started", True):
        own = {**own, "order": {**own["order"], "sampler": order_of(terms)["sampler"]}}
    placed(Progress(), own, terms)


def _begin_at_origin(resume: Resume) -> None:
    """Other ranks have delivered what lies before: no batch of this one is counted yet."""
    position, resume.replay = resume.position, 0
    position.batches = position.samples = position.yielded = 0
    position.sampler = position.last_worker = None
    for share in position.shares.values():
        share.samples = 0


def may_have_state(dataset: Any) -> bool:
    """Whether the dataset, or its iterator, could say where it is."""
    return isinstance(dataset, Stateful) or is_iterable(dataset)
