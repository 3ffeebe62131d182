"""Iterable datasets that are made of parts, which they divide among ranks and worker processes by themselves.

::

    PartitionedDataset     count_parts, read_part, make_sample        defined by a subclass
      └ PartIterator       ReaderState: which parts, how far          one for each reader; its state is the loader's

Random numbers of samples belong to the part and the number of the item in it, whoever reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import IterableDataset
from penstock.datasets.streams.division import ReaderState, divide_readers, start_readers
from penstock.errors import ArgumentError, StateError
from penstock.ranks import World, find_world
from penstock.rng import sample_scope
from penstock.sample import Sample, State, StateDict
from penstock.samplers.base import check_count, check_seed

__all__ = ["PartIterator", "PartitionedDataset", "find_worker"]

T_co = TypeVar("T_co", covariant=True)


class PartitionedDataset(IterableDataset[T_co]):
    """Base of iterable datasets made of parts: a subclass defines ``count_parts`` and ``read_part``.

    A loader divides the parts among the worker processes of all ranks; each part is read by one of them, in order. A
    loader's state in mid-epoch fits any number of workers and of ranks: what is left, parts begun and parts not begun,
    is divided anew. See :meth:`load_state_dict` of the loaders, and :func:`~penstock.merge_states` for several ranks.

    Parameters
    ----------
    seed : int
        In [0, 2**64); the same on every rank. Of the random numbers of samples, with the epoch, the part and the number
        of the item in it.
    even : bool
        Whether every reader (worker process of any rank) gets equally many items: as many as the one that has fewest.
        The end of the others is left out. Needs :meth:`count_items`. False: readers, and so ranks, may have unequal
        numbers of items and of batches.
    num_replicas, rank : int, optional
        Number of ranks, and the number of this one. None: as :func:`~penstock.find_world` finds them when an epoch
        begins.

    Raises
    ------
    ArgumentError
        If a number is out of range, or only one of ``num_replicas`` and ``rank`` is given.

    Notes
    -----
    Iterators have the state; the dataset has none, and several may be iterated at once. :meth:`set_epoch` matters only
    without a loader of penstock.

    Examples
    --------
    >>> import penstock as ps
    >>> class Numbers(ps.PartitionedDataset):
    ...     def count_parts(self):
    ...         return 3
    ...
    ...     def read_part(self, part, epoch, first):
    ...         return iter(range(10 * part + first, 10 * part + 4))
    >>> list(Numbers())
    [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    """

    def __init__(
        self, *, seed: int = 0, even: bool = False, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        if (num_replicas is None) != (rank is None):
            raise ArgumentError(f"give both num_replicas and rank, or neither, got {num_replicas!r} and {rank!r}")
        self.seed, self.even, self.epoch = check_seed(seed), even, 0
        self._world = None
        if num_replicas is not None and rank is not None:
            self._world = World(check_count("num_replicas", num_replicas, least=1), check_count("rank", rank, least=0))

    _world: World | None

    def count_parts(self) -> int:
        """Return the number of parts of each epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define count_parts")

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[Sample]:
        """Return the items of one part from number ``first`` on, in an order that (part, epoch) and the seed fix.

        If it raises, it is called again for the item that could not be read, at the next ``next()``.
        """
        raise NotImplementedError(f"{type(self).__name__} must define read_part")

    def make_sample(self, item: Sample) -> Sample:
        """The sample of an item, which is not made for items that are passed over; the item itself by default.

        Runs with the random key of the sample (:func:`penstock.rng`). If it raises, the item counts as consumed.
        """
        return item

    def count_items(self, epoch: int) -> NDArray[np.int64] | None:  # noqa: ARG002  # a default
        """Return the number of items of each part of an epoch; None where it is unknown."""
        return None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of iterators that are not of a loader of penstock, which says it itself."""
        self.epoch = check_count("epoch", epoch, least=0)

    def start_states(self, epoch: int, num_workers: int) -> list[StateDict]:
        """Make the states of the readers at the beginning of an epoch."""
        return [state.dump() for state in self._start(epoch, num_workers)]

    def divide_states(self, states: Sequence[StateDict], num_workers: int) -> list[StateDict]:
        """Divide what is left of an epoch among ``num_workers`` readers of this rank."""
        parts = self.count_parts()
        parsed = [ReaderState.parse(state, parts) for state in states]
        if not parsed:
            raise StateError("the state has no state of a reader of this stream")
        world, counts = self._find_world(), self._quota_counts(parsed[0].epoch)
        return [state.dump() for state in divide_readers(parsed, parts, world, num_workers, counts)]

    def __iter__(self) -> PartIterator[T_co]:
        return PartIterator(self)

    def _start(self, epoch: int, num_workers: int) -> list[ReaderState]:
        counts = self._quota_counts(epoch)
        return start_readers(self.count_parts(), epoch, self._find_world(), num_workers, counts)

    def _find_world(self) -> World:
        return find_world() if self._world is None else self._world

    def _quota_counts(self, epoch: int) -> NDArray[np.int64] | None:
        """Items of each part, if readers are to get equally many."""
        if not self.even:
            return None
        counts = self.count_items(epoch)
        if counts is None:
            raise ArgumentError(f"even=True needs the number of items of each part, which {self!r} does not know")
        return counts


class PartIterator(Generic[T_co]):
    """The samples of one reader; it can be advanced again after an error."""

    def __init__(self, dataset: PartitionedDataset[T_co]) -> None:
        self._dataset = dataset
        self._state: ReaderState | None = None
        self._items: Iterator[Sample] | None = None

    def __iter__(self) -> PartIterator[T_co]:
        return self

    def __next__(self) -> T_co:
        state, dataset = self._find_state(), self._dataset
        self._state = state
        while True:
            place = state.next_part()
            if place is None:
                raise StopIteration
            part, number = place
            if self._items is None:
                self._items = iter(dataset.read_part(part, state.epoch, number))
            try:
                item = next(self._items, _END)
            except BaseException:
                self._items = None
                raise
            if item is not _END:
                break
            del state.begun[0]
            self._items = None
        state.begun[0][1] += 1
        state.taken += 1
        with sample_scope(dataset.seed, state.epoch, part << 32 | number):
            sample: T_co = dataset.make_sample(item)
        return sample

    def state_dict(self) -> StateDict:
        """Return where it is: JSON-able, without items or samples; its size does not grow with what is consumed."""
        return self._find_state().dump()

    def load_state_dict(self, state: State) -> None:
        """Continue where ``state`` was taken, in place of what this reader had to read.

        Raises
        ------
        StateError
            If it is damaged, or of a stream with fewer parts.
        """
        self._state, self._items = ReaderState.parse(state, self._dataset.count_parts()), None

    def _find_state(self) -> ReaderState:
        """Return where it is; before its first item, where it would begin."""
        if self._state is not None:
            return self._state
        worker, count = find_worker()
        return self._dataset._start(self._dataset.epoch, count)[worker]  # noqa: SLF001  # its dataset's


_END: Sample = object()


def find_worker() -> tuple[int, int]:
    """Return the number of this worker process, and of all: for streams inside of a dataset that divides nothing."""
    for name in ("penstock.workers.info", "torch.utils.data"):  # layers above, which every worker process has imported
        worker = getattr(sys.modules.get(name), "get_worker_info", _no_worker)()
        if worker is not None:
            return worker.id, worker.num_workers
    return 0, 1


def _no_worker() -> None:
    return None
