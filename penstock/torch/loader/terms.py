"""What an iterator of a torch loader is given: the loader's terms, and the parts of one epoch.

Made by the loader at ``iter()``; neither holds the loader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from penstock.loader.faults import Losses, Tally
from penstock.loader.ledger import Ledger
from penstock.loader.plan import Plan
from penstock.loader.replicas import Route
from penstock.torch.loader.order import Identity
from penstock.torch.loader.state import Position, Share
from penstock.torch.loader.work import Work
from penstock.trace import Trace
from penstock.workers.base import Backend, Done, Task

__all__ = ["Epoch", "Terms"]


@dataclass(slots=True)
class Terms:
    """What an iterator keeps of its loader, as it was at ``iter()``: see :class:`penstock.loader.iteration.Owner`.

    Parameters
    ----------
    dataset, index_sampler : object
        The loader's.
    num_workers, in_order, timeout, stall_timeout
        The loader's.
    persistent : bool
        Whether workers outlive an epoch.
    ledger : Ledger
        The loader's own.
    identity : Identity
        Of the dataset.
    batched : bool
        Whether the index sampler gives batches.
    generator, seed
        The loader's.
    snapshot_every : int, optional
        The loader's ``snapshot_every_n_steps``.
    reported_length : int, optional
        What ``len(dataset)`` was when ``len(loader)`` was asked for.
    restores_globals : bool
        Whether a state that is resumed puts global random generators back.
    """

    dataset: Any
    index_sampler: Any
    num_workers: int
    in_order: bool
    timeout: float
    stall_timeout: float | None
    persistent: bool
    ledger: Ledger
    identity: Identity
    batched: bool
    generator: torch.Generator | None = None
    seed: int | None = None
    snapshot_every: int | None = 1
    reported_length: int | None = None
    restores_globals: bool = True

    @property
    def patience_s(self) -> float | None:
        """How long is waited for workers that do not get on."""
        return self.timeout or self.stall_timeout

    @property
    def losses(self) -> Losses:
        """What the loader has left out."""
        return self.ledger.losses

    def __len__(self) -> int:
        return len(self.index_sampler)

    def _put_back(self, backend: Backend) -> None:
        if self.persistent:
            backend.pause()
        else:
            backend.close()

    def _retire(self, trace: Trace) -> None:
        self.ledger.retire(trace)

    def _count(self, done: Done) -> None:
        self.ledger.count(done)


@dataclass(slots=True)
class Epoch:
    """What one epoch is made of.

    Parameters
    ----------
    plan : Plan
        From the first batch that is to be delivered.
    trace : Trace
        Open in the ledger.
    position : Position
        Where it begins; counted on by the iterator.
    work : Work
        What is done, and by whom.
    route : Route, optional
        Where workers are processes.
    replay : int
        Batches to build and forget before the first that is delivered.
    every : int, optional
        Batches between snapshots, where workers are processes.
    tally : Tally, optional
        Told of each batch that is delivered, where batches may come without some of their samples.
    since : list of Task, optional
        Where workers may be taken away: the tasks of what was delivered since they last said where they were.
    order : dict, optional
        What a state says of the order, once one was asked for.
    """

    plan: Plan
    trace: Trace
    position: Position
    work: Work
    route: Route | None = None
    replay: int = 0
    every: int | None = 1
    tally: Tally | None = None
    since: list[Task] | None = None
    order: dict[str, Any] | None = None
    _snapshot: Position | None = None

    def __post_init__(self) -> None:
        if self.route is not None and self.every != 1:
            self._snapshot = self.position.copy()

    def standing(self) -> Position:
        """Where workers last said where they were: what a ``state_dict`` begins from."""
        return self.position if self._snapshot is None else self._snapshot

    def count(self, done: Done) -> None:
        """A batch or an error is delivered."""
        self.position.deliver(done)
        if self._snapshot is None:
            return
        if self.since is not None and done.task is not None:
            self.since.append(done.task)
        if self.every and self.position.batches % self.every == 0:
            self._snapshot, self.since = self.position.copy(), None if self.since is None else []

    def note_start(self, backend: Backend, timeout_s: float | None, *, late: bool = False) -> None:
        """Ask workers what they said when they began, and wait for it; ``late``: for what is not known of them."""
        for position in (self.position, self._snapshot):
            if position is None:
                continue
            shares = [position.shares.setdefault(worker, Share()) for worker in range(max(1, position.processes))]
            if not late or any(share.state is None for share in shares):
                for share, state in zip(shares, backend.opened(timeout_s), strict=False):
                    share.state = share.state if state is None or (late and share.state is not None) else state

    def wants_snapshot(self, task: Task, ahead: int, workers: int) -> bool:
        """Whether a snapshot may need what this task's worker says after it: torchdata's rule.

        ``ahead``: most batches under way; ``workers``: how many there are.
        """
        if not self.every:
            return False
        if self.position.streams:  # which batch this will be is known only when it comes
            return self.position.batches % self.every + 1 + ahead + workers >= self.every
        return task.seq % self.every + workers >= self.every
