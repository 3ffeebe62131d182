"""torch's distributed sampler with a position that can be saved, like torchdata's.

Names and state are those of torchdata (``torchdata.stateful_dataloader.sampler``, 0.11), so that checkpoints can be
used; :class:`StatefulDistributedSampler` lists the differences. For a state that another number of
ranks can resume, use :class:`penstock.DistributedSampler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeVar

from torch.utils.data import Dataset, DistributedSampler

from penstock.errors import StateError
from penstock.sample import Sample, State

__all__ = ["StatefulDistributedSampler"]

T_co = TypeVar("T_co", covariant=True)


class StatefulDistributedSampler(DistributedSampler[T_co]):
    """``torch.utils.data.DistributedSampler`` that can be resumed.

    Parameters
    ----------
    dataset, num_replicas, rank, shuffle, seed, drop_last
        As for torch's class.

    Attributes
    ----------
    yielded : int
        Number of indices that the newest iterator has passed, including those before its start.
    next_yielded : int or None
        Position from a loaded state that is not used yet: the next index comes from there, in a new iterator or in one
        that exists.

    Notes
    -----
    The state is ``{"yielded": int}``, of one rank for this number of ranks; it does not contain the epoch, which
    :meth:`set_epoch` sets. In torchdata 0.11, ``state_dict()`` before the first index loses a loaded state, the end of
    an epoch is the position in the next epoch after ``set_epoch``, and a position after the end gives an epoch without
    samples.
    """

    _YIELDED: ClassVar[str] = "yielded"

    def __init__(
        self,
        dataset: Dataset[Sample],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.yielded = 0
        self.next_yielded: int | None = None

    def __iter__(self) -> Iterator[T_co]:
        # A generator: torch's loader calls iter() twice per epoch; only the iterator that is used may set the position.
        indices = list(super().__iter__())
        position = 0
        while True:
            if self.next_yielded is not None:
                position, self.next_yielded = self.next_yielded, None
            if position >= len(indices):
                self.yielded = position
                return
            position += 1
            self.yielded = position
            yield indices[position - 1]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; another epoch begins at its start, unless a state is loaded for it."""
        if epoch != self.epoch:
            self.yielded = 0
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """Return ``{"yielded": ...}``: the position of the next index."""
        return {self._YIELDED: self.yielded if self.next_yielded is None else self.next_yielded}

    def load_state_dict(self, state_dict: State) -> None:
        """Continue after the indices that ``state_dict`` counts.

        Raises
        ------
        StateError
            If it is not such a state, or the position is after the end of an epoch. It is a ``ValueError``.
        """
        if not isinstance(state_dict, dict) or self._YIELDED not in state_dict:
            raise StateError(f"Invalid state_dict: it should have {self._YIELDED!r}, but is {state_dict!r:.200}")
        yielded = state_dict[self._YIELDED]
        if isinstance(yielded, bool) or not isinstance(yielded, int):
            raise StateError(f"Cannot load state_dict whose yielded value is no int: {yielded!r:.200}")
        if yielded < 0:
            raise StateError(f"Cannot load state_dict with negative yielded value {yielded}")
        if yielded > self.num_samples:
            raise StateError(
                f"Cannot load state_dict with yielded value {yielded}: an epoch of this rank has {self.num_samples}"
            )
        self.next_yielded = yielded
