"""How the rest of a stream is divided among readers: states that fit any number of worker processes and ranks.

::

    parts of the epoch    0 1 2 3 4 5 6 7 8 9      each part has one reader, which reads it in order
    reader 0 of 2         0 2 4 6 8                begun: 4 from item 17 on     left: 6 8
    reader 1 of 2         1 3 5 7 9                begun: 3 from item 90 on     left: 5 7 9
    what both leave       3 (90), 4 (17), 5, 6, 7, 8, 9
    reader 0 of 3         3 (90), 6, 9             dealt anew: parts that are begun come first

A reader is a worker process, or a loader without any. Readers are numbered over all ranks: worker ``w`` of ``rank`` is
reader ``rank * num_workers + w``. Pure functions of states; nothing here reads a part. Loaders use the protocol
:class:`DivisibleStream`, and do not know what the states of a stream contain.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import StateError
from penstock.ranks import World
from penstock.sample import Sample, State, StateDict

__all__ = ["DivisibleStream", "ReaderState", "StatefulIterator", "StatefulObject", "divide_readers", "start_readers"]

VERSION: Final = 1
_MOST_READERS: Final = 1 << 20


class StatefulObject(Protocol):
    """An object with a state of its own."""

    def state_dict(self) -> State:
        """The state."""

    def load_state_dict(self, state: State, /) -> None:
        """Go back to a state."""


class StatefulIterator(StatefulObject, Iterator[Sample], Protocol):
    """An iterator that a state continues elsewhere."""


@runtime_checkable
class DivisibleStream(Protocol):
    """An iterable dataset whose rest can be divided among another number of readers.

    Both loaders call ``start_states`` and ``divide_states`` in the process that iterates the loader, and load one state
    into the iterator of each worker, at the beginning of every epoch. Neither method reads samples or changes anything.
    :class:`~penstock.PartitionedDataset` defines both.
    """

    def __iter__(self) -> StatefulIterator: ...

    def start_states(self, epoch: int, num_workers: int) -> list[StateDict]:
        """The states of the iterators at the beginning of an epoch.

        ``num_workers`` is the number of iterators of this rank: of worker processes, or 1. Returns one state for each,
        in the order of their numbers.
        """
        ...

    def divide_states(self, states: Sequence[StateDict], num_workers: int) -> list[StateDict]:
        """The states of the iterators that deliver what is left in mid-epoch.

        Parameters
        ----------
        states : sequence of dict
            What ``state_dict()`` of the iterators of one epoch returned: of all workers of one rank, in the order of
            their numbers; or of all ranks, rank by rank (:func:`~penstock.merge_states`).
        num_workers : int
            As for :meth:`start_states`. If the states are those of this rank with this number of workers, the result
            is equal to them.

        Returns
        -------
        list of dict
            One for each worker of this rank. Together with those of the other ranks they have each sample that is left
            once.

        Raises
        ------
        StateError
            If ``states`` are not enough to know what is left, or do not belong together.
        """
        ...


@dataclass(slots=True)
class ReaderState:
    """Where one reader is; changed by its iterator."""

    epoch: int
    readers: int  # of all ranks
    reader: int
    workers: int  # readers of each rank
    begun: list[list[int]] = field(default_factory=list)  # part, items consumed; the first is being read
    left: list[list[int]] = field(default_factory=list)  # ranges (start, stop, step) of parts, in the order of reading
    taken: int = 0  # items consumed since the parts were dealt
    quota: int | None = None  # the most items to consume since then
    origin: StateDict | None = None  # what all readers had before them when the parts were dealt, if there is a quota

    def next_part(self) -> tuple[int, int] | None:
        """Return the part to read and the number of items to pass over; None at the end."""
        if self.quota is not None and self.taken >= self.quota:
            return None
        if not self.begun:
            if not self.left:
                return None
            run = self.left[0]
            self.begun.append([run[0], 0])
            run[0] += run[2]
            if run[0] >= run[1]:
                del self.left[0]
        return self.begun[0][0], self.begun[0][1]

    def dump(self) -> StateDict:
        """JSON-able, and a copy."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def parse(cls, state: State, parts: int) -> ReaderState:
        """Return what :meth:`dump` wrote, for a stream of ``parts`` parts.

        Raises StateError if it is damaged, or of another version.
        """
        if not isinstance(state, Mapping):
            raise StateError(f"the state of a stream's reader must be a mapping, got {state!r:.200}")
        if state.get("version") != VERSION:
            raise StateError(f"the version of a stream's state must be {VERSION}, got {state.get('version')!r:.80}")
        try:
            found = cls(**{each.name: copy.deepcopy(state[each.name]) for each in fields(cls)})
            for count in (found.epoch, found.readers, found.reader, found.taken):
                _count(count)
            found.begun, found.left = _Rest.parse(state, parts).begun, [list(run) for run in found.left]
            if found.quota is not None:
                _count(found.quota)
                _Rest.parse(state["origin"], parts)
            if not found.reader < found.readers <= _MOST_READERS or found.readers % _count(found.workers):
                raise ValueError(f"reader {found.reader} of {found.readers}")  # noqa: TRY301  # one place says it
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise StateError(f"the state of a stream's reader is damaged: {error!r:.200}") from error
        return found


@dataclass(frozen=True, slots=True)
class _Rest:
    """Parts that are not finished: those begun, with the items consumed, and the others in ascending order."""

    begun: list[list[int]]
    left: NDArray[np.int64]

    @classmethod
    def parse(cls, state: Mapping[str, State], parts: int) -> _Rest:
        begun = [[_count(part), _count(consumed)] for part, consumed in state["begun"]]
        runs = [tuple(map(_count, run)) for run in state["left"]]
        is_sound = all(len(run) == 3 and run[0] < run[1] <= parts and run[2] for run in runs)
        if not is_sound or sum(len(range(*run)) for run in runs) > parts:
            raise ValueError(f"these are no ranges of {parts} parts: {runs!r:.200}")
        left = np.concatenate([np.empty(0, np.int64), *(np.arange(*run) for run in runs)])
        if (np.diff(left) <= 0).any() or any(part >= parts for part, _ in begun):
            raise ValueError(f"these are no parts of {parts}, in ascending order")
        return cls(begun, left)

    @classmethod
    def gather(cls, states: Iterable[ReaderState], parts: int) -> _Rest:
        """Return what several readers leave together."""
        rests = [cls.parse({"begun": state.begun, "left": state.left}, parts) for state in states]
        begun = sorted(pair for rest in rests for pair in rest.begun)
        left = np.sort(np.concatenate([rest.left for rest in rests]))
        named = np.sort(np.concatenate([left, np.array([part for part, _ in begun], np.int64)]))
        if len(named) and (np.diff(named) == 0).any():
            raise StateError(
                "two states have the same part of the stream left: they were not taken by all ranks at the same step "
                "of one run"
            )
        return cls(begun, left)

    def of_reader(self, reader: int, readers: int) -> _Rest:
        """Return what is dealt to one reader: every ``readers``-th part."""
        first = (reader - len(self.begun)) % readers
        return _Rest(self.begun[reader::readers], self.left[first::readers])

    def without_empty(self, counts: NDArray[np.int64]) -> _Rest:
        """The parts with items left: readers that have come equally far may not all know that a part has ended."""
        begun = [[part, consumed] for part, consumed in self.begun if consumed < counts[part]]
        return _Rest(begun, self.left[counts[self.left] > 0])

    def count(self, counts: NDArray[np.int64]) -> int:
        """Return the number of items, given that of each part."""
        return sum(int(counts[part]) - consumed for part, consumed in self.begun) + int(counts[self.left].sum())

    def advance(self, items: int, counts: NDArray[np.int64]) -> _Rest:
        """Return what is left after a reader has consumed ``items``."""
        parts = np.concatenate([np.array([part for part, _ in self.begun], np.int64), self.left])
        consumed = np.array([count for _, count in self.begun] + [0] * len(self.left), np.int64)
        ends = np.cumsum(counts[parts] - consumed)
        done = int(np.searchsorted(ends, items, side="right"))
        consumed[done : done + 1] += items - (ends[done - 1] if done else 0)
        begun = max(len(self.begun), done + int(consumed[done : done + 1].any()))
        pairs = zip(parts[done:begun].tolist(), consumed[done:begun].tolist(), strict=True)
        return _Rest([list(pair) for pair in pairs], parts[begun:])

    def runs(self) -> list[list[int]]:
        """:attr:`left` as ranges, in its order: few, as readers take parts in turn."""
        left, found, at = self.left, [], 0
        steps = np.diff(left)
        breaks = np.append(np.flatnonzero(np.diff(steps)) + 1, len(left) - 1).tolist() if len(left) > 1 else []
        for end in breaks:
            if end <= at:
                continue
            step = int(steps[at])
            found.append([int(left[at]), int(left[end]) + 1, step])
            at = end + 1
        if at < len(left):
            found += [[int(part), int(part) + 1, 1] for part in left[at:]]
        return found


def start_readers(
    parts: int, epoch: int, world: World, num_workers: int, counts: NDArray[np.int64] | None
) -> list[ReaderState]:
    """Return the readers of one rank at the beginning of an epoch; ``counts``: see :func:`divide_readers`."""
    return _deal(_Rest([], np.arange(parts, dtype=np.int64)), epoch, world, num_workers, counts)


def divide_readers(
    states: Sequence[ReaderState], parts: int, world: World, num_workers: int, counts: NDArray[np.int64] | None
) -> list[ReaderState]:
    """Return the readers of one rank, for what ``states`` leave.

    Parameters
    ----------
    states : sequence of ReaderState
        See :meth:`DivisibleStream.divide_states`.
    parts : int
        Number of parts of the epoch.
    world : World
        The ranks that there are now.
    num_workers : int
        Readers of each rank.
    counts : ndarray of int64, optional
        Items of each part. If given, every reader gets a quota, and consumes equally many items.

    Raises
    ------
    StateError
        As :meth:`DivisibleStream.divide_states`.
    """
    first = states[0]
    numbers = [state.reader for state in states]
    if len({(state.epoch, state.readers, state.workers) for state in states}) > 1 or len(set(numbers)) < len(numbers):
        raise StateError(
            "the states of a stream's readers must be of one epoch and one number of readers, and each of another "
            f"reader, got epochs {sorted({state.epoch for state in states})} and readers {numbers} of {first.readers}; "
            "give the states that all ranks took at the same step"
        )
    now, begin = world.num_replicas * num_workers, world.rank * num_workers
    own = range(begin, begin + num_workers)
    is_same = (first.readers, first.workers) == (now, num_workers)
    is_own = is_same and set(own) <= set(numbers)
    if counts is not None and len(states) < first.readers and not is_own:
        states, numbers = _infer_readers(states, parts, counts), list(range(first.readers))
        is_own = is_same
    if is_own:
        return [states[numbers.index(reader)] for reader in own]
    if len(states) == first.readers:
        return _deal(_Rest.gather(states, parts), first.epoch, world, num_workers, counts)
    theirs = range(world.rank * first.workers, (world.rank + 1) * first.workers)
    if first.readers == first.workers * world.num_replicas and set(numbers) == set(theirs):
        alone = _deal(_Rest.gather(states, parts), first.epoch, World(), num_workers, None)
        return [replace(state, reader=begin + number, readers=now) for number, state in enumerate(alone)]
    raise StateError(
        f"the state has readers {min(numbers)} to {max(numbers)} of the {first.readers} of a stream, and this loader "
        f"is rank {world.rank} of {world.num_replicas}: what the other ranks had read is unknown; give what "
        "penstock.merge_states makes of the states of all ranks"
    )


def _deal(
    rest: _Rest, epoch: int, world: World, num_workers: int, counts: NDArray[np.int64] | None
) -> list[ReaderState]:
    readers = world.num_replicas * num_workers
    quota = origin = None
    if counts is not None:
        rest = rest.without_empty(counts)
        quota = min(rest.of_reader(reader, readers).count(counts) for reader in range(readers))
        origin = {"begun": [list(pair) for pair in rest.begun], "left": rest.runs()}
    begin, dealt = world.rank * num_workers, []
    for reader in range(begin, begin + num_workers):
        part = rest.of_reader(reader, readers)
        begun = [list(pair) for pair in part.begun]
        dealt.append(ReaderState(epoch, readers, reader, num_workers, begun, part.runs(), 0, quota, origin))
    return dealt


def _infer_readers(states: Sequence[ReaderState], parts: int, counts: NDArray[np.int64]) -> list[ReaderState]:
    """Return the readers of all ranks, given those of one: equal quotas keep the workers of all ranks in step."""
    first = states[0]
    taken = {state.reader % first.workers: state.taken for state in states}
    if not len(taken) == len(states) == first.workers or first.origin is None:
        raise StateError(
            f"the state has readers {[state.reader for state in states]} of {first.readers}, which are not those of "
            "one rank of a dataset with even=True; give what penstock.merge_states makes of the states of all ranks"
        )
    origin, found = _Rest.parse(first.origin, parts), []
    for reader in range(first.readers):
        done = taken[reader % first.workers]
        rest = origin.of_reader(reader, first.readers).advance(done, counts)
        found.append(replace(first, reader=reader, begun=rest.begun, left=rest.runs(), taken=done))
    return found


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r:.80} is no count")
    return value
