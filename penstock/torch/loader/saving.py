"""States of a torch loader: what one contains, and which of them a loader takes.

Nothing here starts a worker, draws a random number or iterates a sampler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.loader.order import place_on_ranks
from penstock.loader.position import Position, WorkerPosition
from penstock.loader.state import split_merged
from penstock.rng import undisturbed
from penstock.sample import State, StateDict
from penstock.torch.loader.randomness import Randomness
from penstock.torch.loader.state import EpochDraws, Resume, dump, parse
from penstock.workers.jobs.base import is_stateful, take_snapshot_at_start

if TYPE_CHECKING:
    from penstock.loader.epoch import Epoch
    from penstock.loader.iteration import LoaderIterator
    from penstock.torch.loader.order import TorchOrder, TorchSettings

__all__ = [
    "Stateful",
    "check_state",
    "defer_state",
    "make_unstarted_state",
    "may_have_state",
    "parse_for_loader",
]


@runtime_checkable
class Stateful(Protocol):
    """Anything with ``state_dict`` and ``load_state_dict``; ``isinstance`` asks for the two methods alone."""

    def state_dict(self) -> StateDict:
        """Return where it stands: picklable, and unchanged by what comes later."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from where ``state_dict`` was taken."""


def defer_state(settings: TorchSettings, epoch: Epoch, iterator: LoaderIterator | None) -> Callable[[], StateDict]:
    """Return what writes down the present state of a loader whose newest epoch is ``epoch``; taking it costs little."""
    if iterator is not None and may_have_state(settings.order):
        epoch.record_first_states(iterator.backend, settings.patience_s, missing_only=True)
    live, snapshot = epoch.position, epoch.snapshot
    with undisturbed():
        now = Randomness.now(
            settings.generators() if live.finished else (),
            of_torch=settings.generator is None or not settings.num_workers,
            of_others=not settings.num_workers,
        )
    if epoch.order is None:
        epoch.order = _dump_order(settings.order, live)
    copied = live.copy()
    copied_snapshot = copied if snapshot is live else snapshot.copy()
    return functools.partial(dump, copied, copied_snapshot, now, epoch.order, settings.reported_length)


def make_unstarted_state(settings: TorchSettings, number: int, processes: int) -> StateDict:
    """The ``state_dict`` of a loader that was never iterated."""
    order = settings.order
    with undisturbed():
        now = Randomness.now(
            settings.generators(),
            of_torch=settings.generator is None or not settings.num_workers,
            of_others=not settings.num_workers or order.draws_from_globals()[1],
        )
    state = take_snapshot_at_start(order.dataset)
    position = Position(
        number, processes=processes, is_stream=order.is_stream, beginning=EpochDraws(-1),
        workers={worker: WorkerPosition(state=state) for worker in range(max(1, processes))},
    )  # fmt: skip
    return dump(position, position, now, _dump_order(order, position), settings.reported_length, started=False)


def _dump_order(order: TorchOrder, position: Position) -> StateDict:
    """The fields of a state that fix the order."""
    ranks = order.ranks
    return {
        "order": order.describe(),
        "ranks": None if ranks is None else {"num_replicas": ranks.num_replicas, "origin": position.origin},
        "sampler_seed": order.sampler_seed,
    }


def parse_for_loader(state: State, settings: TorchSettings) -> Resume:
    """Return what ``state`` asks of a loader with these settings.

    Raises StateError if it is no state, or one of a loader with another order.
    """
    resume, order = parse(state), settings.order
    if not resume.whole:
        return resume
    states = [part["penstock"] for part in split_merged(state)]
    own, position = states[0], resume.position
    for each in states:
        check_state(each, order)
    if resume.now is not None and not settings.restores_globals:
        resume.ahead, resume.now = replace(resume.now, generators=()), resume.now.of_generators()
    if not resume.started and own["order"] != order.describe():
        resume.now = None  # another sampler was put in: it draws its own order
        return resume
    delivered = Position(position.epoch, position.batches + resume.replay, resume.delivered, position.ahead)
    here = place_on_ranks(delivered, own, order)
    position.origin, position.lost = here.origin, own.get("left_out", 0)
    if here is not delivered:
        _begin_at_origin(resume)
    if own.get("sampler_seed") is not None and order.sampler_seed is not None:
        order.sampler.seed = own["sampler_seed"]
    return resume


def check_state(own: Mapping[str, State], order: TorchOrder) -> None:
    """Refuse a state of another order. Before an epoch has begun, its sampler may still be exchanged.

    Raises
    ------
    StateError
        With the name of the field that differs.
    """
    if not own.get("started", True):
        own = {**own, "order": {**own["order"], "sampler": order.describe_sampler()}}
    place_on_ranks(Position(), own, order)


def _begin_at_origin(resume: Resume) -> None:
    """Count no batch of this rank yet: other ranks have delivered what lies before."""
    position, resume.replay = resume.position, 0
    position.batches = position.samples = position.yielded = 0
    position.sampler = position.last_worker = None
    for worker in position.workers.values():
        worker.samples = 0


def may_have_state(order: TorchOrder) -> bool:
    """Return whether the dataset, or its iterator, could have a ``state_dict``."""
    return order.is_stream or is_stateful(order.dataset)
