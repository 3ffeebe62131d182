"""One state for the loaders of all ranks, in checkpoints that the ranks write together.

::

    rank 0: state_dict() ──┐                                      ┌── as many ranks: the rank's own state
    rank 1: state_dict() ──┼── all_gather_object ── a tuple of all ┤
    rank 2: state_dict() ──┘    (the same on every rank)           └── another number: merge_states of all

``torch.distributed.checkpoint`` divides a dict into its leaves, takes each from one of the ranks that have it, and asks
for the same keys when it loads: states of ranks would be mixed, and another number of ranks would miss keys. A tuple is
one leaf, and one that all ranks have may come from any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch.distributed as dist

from penstock.errors import StateError
from penstock.loader.state import merge_states
from penstock.sample import Batch, State, StateDict

__all__ = ["JobLoader", "choose_state", "gather_states"]

_KEY: Final = "ranks"


def gather_states(state: State, group: Any = None) -> tuple[State, ...]:
    """Return the states of all ranks of ``group``, in their order. A collective, where there is a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        return (state,)
    states: list[State] = [None] * dist.get_world_size(group)
    dist.all_gather_object(states, state, group=group)
    return tuple(states)


def choose_state(states: Sequence[Mapping[str, State]], group: Any = None) -> StateDict:
    """Return what this rank loads of the states of all: its own, or on another number of ranks all of them merged."""
    if not (dist.is_available() and dist.is_initialized()):
        size, rank = 1, 0
    else:
        size, rank = dist.get_world_size(group), dist.get_rank(group)
    return dict(states[rank]) if len(states) == size else merge_states(states)


class JobLoader:
    """A loader whose state is that of the loaders of all ranks; any number of ranks can load it.

    Give it to ``torch.distributed.checkpoint`` as it is (``{"model": ..., "loader": JobLoader(loader)}``), or derive a
    ``torchtitan.components.dataloader.BaseDataLoader`` from both classes.

    Parameters
    ----------
    loader : penstock.torch.DataLoader
        With a sampler of penstock's for ranks, such as :class:`penstock.DistributedSampler`, where another number of
        ranks is to resume; with any order, on equally many.
    group : torch.distributed.ProcessGroup, optional
        The ranks that have different samples: those of data parallelism. None: all of the default group.

    Attributes
    ----------
    loader : penstock.torch.DataLoader
        The loader.

    Notes
    -----
    Every rank must call :meth:`state_dict`, as ``save``, ``async_save`` and ``load`` of the checkpoint do: the states
    are exchanged. It takes some kilobytes for each rank.
    """

    def __init__(self, loader: Any, group: Any = None) -> None:
        self.loader, self._group = loader, group

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> StateDict:
        """Return ``{"ranks": (state of rank 0, state of rank 1, ...)}``, the same on every rank. A collective."""
        return {_KEY: gather_states(self.loader.state_dict(), self._group)}

    def load_state_dict(self, state_dict: Mapping[str, State]) -> None:
        """Make the next ``iter()`` go on where ``state_dict`` was taken, on this rank of any number of ranks.

        Raises
        ------
        StateError
            If it is no such state, or one of loaders with another order.
        """
        states = state_dict.get(_KEY)
        if not isinstance(states, (tuple, list)) or not all(isinstance(state, Mapping) for state in states):
            raise StateError(f"the state must have the states of all ranks under {_KEY!r}, got {state_dict!r:.200}")
        self.loader.load_state_dict(choose_state(states, self._group))
