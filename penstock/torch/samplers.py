"""torch's distributed sampler with a position that is kept, as torchdata has it.

The names and the layout of its state are torchdata's (``torchdata.stateful_dataloader.sampler``, 0.11), so that
checkpoints move over; :class:`StatefulDistributedSampler` says where it does better. For a state that other numbers of
ranks can resume, there is :class:`penstock.DistributedSampler`.
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
    """``torch.utils.data.DistributedSampler`` that goes on where it was.

    Parameters
    ----------
    dataset, num_replicas, rank, shuffle, seed, drop_last
        torch's.

    Attributes
    ----------
    yielded : int
        Indices that the newest iterator has given, those before its start counted.
    next_yielded : int or None
        Position that was loaded and not yet taken: the next index comes from there, whether a new iterator gives it or
        one under way.

    Notes
    -----
    The state is ``{"yielded": int}``, of one rank among this many; the epoch is told by :meth:`set_epoch`, as ever.
    Where torchdata 0.11 differs: there a state that was loaded is forgotten by the next ``state_dict()`` if nothing was
    drawn in between, the end of one epoch is the position in the next one after ``set_epoch``, and a position behind
    the end passes for an epoch without samples.
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
        # A generator: torch's loader calls iter() twice for one epoch, and only the one that is drawn from may begin.
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
        """Choose the epoch; another one begins at its start, unless a state was loaded for it."""
        if epoch != self.epoch:
            self.yielded = 0
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """``{"yielded": ...}``: where the next index comes from."""
        return {self._YIELDED: self.yielded if self.next_yielded is None else self.next_yielded}

    def load_state_dict(self, state_dict: State) -> None:
        """Let the next index be the one after those that ``state_dict`` counts.

        Raises
        ------
        StateError
            (A ``ValueError``.) If it is no such state, or counts more than an epoch has.
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
