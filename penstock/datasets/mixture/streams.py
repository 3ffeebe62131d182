"""Mixtures of streams: each reader draws the sources of its positions of the job, and reads its part of each source.

::

    positions of the job   0  1  2  3  4  5  6  7  8       reader 1 of 3 has 1, 4, 7, ...
    source                 a  b  a  a  c  b  a  a  b       (arithmetic, as for map-style datasets)
    reader 1                  b        c        a          the next sample of its part of this source
                                                └ its part has ended: epoch m + 1 of the source begins

A source is a stream that can be divided (:class:`~penstock.datasets.streams.division.DivisibleStream`). Others are made
one: a map-style dataset is read in parts; a plain stream keeps its number of readers. What readers leave is divided
anew source by source, and within a source epoch by epoch, since readers may be in different epochs of it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from penstock.datasets.base import IterableDataset, is_iterable
from penstock.datasets.mixture.interleaving import MAX_POSITION
from penstock.datasets.mixture.mixture import Mixture, SourceStats
from penstock.datasets.mixture.sampler import MixtureOrder
from penstock.datasets.streams.division import DivisibleStream, StatefulIterator, StatefulObject
from penstock.datasets.streams.partitioned import PartitionedDataset, find_worker
from penstock.errors import ArgumentError, SampleError, StateError
from penstock.ranks import World, assume_world, find_world
from penstock.sample import DatasetLike, Sample, State, StateDict
from penstock.samplers.base import check_count
from penstock.samplers.permutation import permute

__all__ = ["StreamMixture"]

_VERSION: Final = 1
_MARK: Final = "mixture"
_EPOCHS: Final = 1 << 16
"""Epochs of a source in an epoch of the mixture, at most: the next one begins with other epochs of its sources."""
_AHEAD: Final = 256
"""Positions of a reader whose sources are computed at once."""
_SOURCE: Final = 9  # purpose of permutations; see penstock.samplers.ranks
_END: Final[Sample] = object()


class StreamMixture(Mixture, IterableDataset[Sample]):
    """A :class:`Mixture` of streams, and of map-style datasets, which are read as streams in random order.

    ``until="first"`` ends a reader when its part of the first source has ended, ``"all"`` when those of all sources
    have ended at least once, and a number is divided among the readers. Each epoch of a loader begins each source anew,
    in another epoch of the source. If a source has ``num_replicas`` and ``rank``, they are those of the mixture.
    """

    def _set_up(self) -> None:
        self._streams = {name: _as_divisible(source) for name, source in self.sources.items()}
        self._world = _find_given_world(self.sources)
        length = self.until if isinstance(self.until, int) else MAX_POSITION
        self.order = MixtureOrder(self.interleaving, np.zeros(len(self.sources), np.int64), length)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of iterators that are not of a loader of penstock, which says it itself."""
        self.epoch = check_count("epoch", epoch, least=0)

    def __iter__(self) -> _MixtureIterator:
        return _MixtureIterator(self)

    def start_states(self, epoch: int, num_workers: int) -> list[StateDict]:
        """Make the states of the readers at the beginning of an epoch, with those of all sources."""
        first, world = _first_epoch(epoch), self._world or find_world()
        with assume_world(world):
            starts = {
                name: [(each, stream.start_states(each, num_workers)) for each in (first, first + 1)]
                for name, stream in self._streams.items()
            }
        return [
            {
                "version": _VERSION,
                _MARK: list(self.sources),
                "epoch": epoch,
                "origin": 0,
                "taken": 0,
                "reader": world.rank * num_workers + worker,
                "readers": world.num_replicas * num_workers,
                "num_workers": num_workers,
                "sources": {
                    name: {
                        "samples": 0,
                        "is_new": True,
                        "left": [[each, states[worker]] for each, states in starts[name]],
                        "ended": None,
                    }
                    for name in self.sources
                },
            }
            for worker in range(num_workers)
        ]

    def divide_states(self, states: Sequence[StateDict], num_workers: int) -> list[StateDict]:
        """Divide what is left of an epoch among ``num_workers`` readers of this rank, source by source."""
        for state in states:
            self._check_state(state)
        fresh = self.start_states(states[0]["epoch"] if states else 0, num_workers)
        by_reader = {state["reader"]: state for state in states}
        numbers, readers = [state["reader"] for state in fresh], {state["readers"] for state in states}
        if len(by_reader) < len(states) or len(readers) != 1 or len({state["epoch"] for state in states}) != 1:
            raise StateError("the states of a mixture must be of one epoch, and each of another reader of one run")
        if readers == {fresh[0]["readers"]} and by_reader.keys() >= set(numbers):
            return [by_reader[number] for number in numbers]
        taken = sum(state["taken"] for state in states) * readers.pop() // len(states)
        for worker, state in enumerate(fresh):
            state["origin"] = states[0]["origin"] + taken
            for name, source in state["sources"].items():
                counted = sum(each["sources"][name]["samples"] for each in states)
                source["samples"], source["is_new"] = counted if worker == 0 else 0, False
        for name, stream in self._streams.items():
            with assume_world(self._world or find_world()):
                divided = _divide(name, stream, [state["sources"][name] for state in states], num_workers)
            for worker, state in enumerate(fresh):
                state["sources"][name]["left"] = [[epoch, each[worker]] for epoch, each in divided]
        return fresh

    def _check_state(self, state: State) -> None:
        try:
            theirs, sources, version = state[_MARK], list(state["sources"]), state["version"]
            counts = [state[name] for name in ("epoch", "origin", "taken", "reader")]
            counts += [state[name] - 1 for name in ("readers", "num_workers")]
            for source in state["sources"].values():
                counts += [source["samples"], len(source["left"]) - 2, *_known(source)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the state of a mixture's reader is damaged: {error!r:.200}") from error
        if version != _VERSION or not all(type(count) is int and count >= 0 for count in counts):
            raise StateError(f"the state of a mixture's reader is damaged, or of another version: {state!r:.200}")
        if theirs != list(self.sources) or sources != theirs:
            raise StateError(f"the state is of a mixture of {theirs!r:.200}, this one has {list(self.sources)}")

    def stats(self, loader: StatefulObject) -> dict[str, SourceStats]:
        """Return what a loader of this mixture has delivered of each source, by the states of its readers."""
        readers = [state for state in _find_states(loader.state_dict()) if state[_MARK] == list(self.sources)]
        found = {}
        for name in self.sources:
            own = [(state["sources"][name], _first_epoch(state["epoch"])) for state in readers]
            ended = min((source["left"][0][0] - first for source, first in own), default=0)
            found[name] = sum(source["samples"] for source, _ in own), ended
        total = max(sum(samples for samples, _ in found.values()), 1)
        return {name: SourceStats(samples, samples / total, ended) for name, (samples, ended) in found.items()}


def _first_epoch(epoch: int) -> int:
    """Return the first epoch of each source in an epoch of the mixture."""
    return epoch % _EPOCHS * _EPOCHS


def _known(source: StateDict) -> dict[int, State]:
    """Return by epoch the states of a source that a reader has: of the last epoch, of this one, of the next."""
    return dict([*([source["ended"]] if source["ended"] else []), *source["left"]])


def _divide(
    name: str, stream: DivisibleStream, sources: Sequence[StateDict], num_workers: int
) -> list[tuple[int, list[StateDict]]]:
    """Epochs of one source, and what each reader of this rank has left of them.

    No reader has begun its last one. Those before it may have been begun by readers of an earlier division.
    """
    firsts, divided = [source["left"][0][0] for source in sources], []
    last = max(source["left"][-1][0] for source in sources)
    for epoch in range(min(firsts), last):
        known = [_known(source) for source in sources]
        if not all(epoch in states for states in known):
            raise StateError(
                f"the readers of source {name!r} are in the epochs {sorted(set(firsts))} of it, which are too far "
                "apart to divide what is left; resume with the same number of workers and ranks"
            )
        divided.append((epoch, stream.divide_states([states[epoch] for states in known], num_workers)))
    return [*divided, (last, stream.start_states(last, num_workers))]


def _find_states(state: State) -> Iterator[StateDict]:
    """The states of readers of mixtures that are in the state of a loader, in whatever layout."""
    if isinstance(state, Mapping) and _MARK in state and "sources" in state:
        yield dict(state)
    elif isinstance(state, Mapping | list | tuple):
        for inner in state.values() if isinstance(state, Mapping) else state:
            yield from _find_states(inner)


class _MixtureIterator:
    """The samples of one reader; it can be advanced again after an error."""

    def __init__(self, mixture: StreamMixture) -> None:
        self._mixture, self._streams = mixture, list(mixture._streams.items())  # noqa: SLF001  # of its dataset
        worker, count = find_worker()
        self._state = mixture.start_states(mixture.epoch, count)[worker]
        self._open: dict[str, StatefulIterator] = {}
        self._block: tuple[int, list[int]] = (-1, [])  # number of a block of positions, and their sources

    def __iter__(self) -> _MixtureIterator:
        return self

    def __next__(self) -> Sample:
        while not self._is_over():
            name, stream = self._streams[self._choose_source()]
            source = self._state["sources"][name]
            if name not in self._open:
                iterator = iter(stream)
                iterator.load_state_dict(source["left"][0][1])
                self._open[name] = iterator
            sample = next(self._open[name], _END)
            if sample is _END:
                self._end_part(name, stream, source)
                continue
            source["samples"] += 1
            source["is_new"] = False
            self._state["taken"] += 1
            return sample
        raise StopIteration

    def _find_position(self, taken: int) -> int:
        """Return the position in the mixture, when this reader has taken so many samples."""
        return int(self._state["origin"] + self._state["reader"] + self._state["readers"] * taken)

    def _is_over(self) -> bool:
        until, first = self._mixture.until, _first_epoch(self._state["epoch"])
        if isinstance(until, int):
            return self._find_position(self._state["taken"]) >= until
        ended = [source["left"][0][0] > first for source in self._state["sources"].values()]
        return any(ended) if until == "first" else all(ended)

    def _choose_source(self) -> int:
        """The number of the source of the next sample."""
        number, at = divmod(int(self._state["taken"]), _AHEAD)
        if self._block[0] != number:
            until, order, readers = self._mixture.until, self._mixture.order, self._state["readers"]
            positions = self._find_position(number * _AHEAD) + readers * np.arange(_AHEAD, dtype=np.int64)
            # Where an epoch has no known length, each begins at the beginning of the job.
            seed, epoch = (0, self._state["epoch"]) if isinstance(until, int) else (self._state["epoch"], 0)
            self._block = number, order.draw(positions[positions < order.length], seed, epoch)[0].tolist()
        return self._block[1][at]

    def _end_part(self, name: str, stream: DivisibleStream, source: StateDict) -> None:
        """Go on with the next epoch of a source."""
        reader, num_workers = self._state["reader"], self._state["num_workers"]
        if source["is_new"]:
            raise SampleError(
                f"source {name!r} has no sample for reader {reader} of {self._state['readers']}: use fewer workers and "
                "ranks than it has parts"
            )
        (epoch, _), *left = source["left"]
        if len(left) == 1:
            rank, worker = divmod(reader, num_workers)
            with assume_world(World(self._state["readers"] // num_workers, rank)):
                left.append([epoch + 2, stream.start_states(epoch + 2, num_workers)[worker]])
        source.update(is_new=True, ended=[epoch, self._open.pop(name).state_dict()], left=left)

    def state_dict(self) -> StateDict:
        """Return where it is: JSON-able, with the states of the sources; its size does not grow with what is consumed.

        What does not change is shared with this iterator: do not write to it.
        """
        sources = {name: dict(source) for name, source in self._state["sources"].items()}
        for name, iterator in self._open.items():
            (epoch, _), *others = sources[name]["left"]
            sources[name]["left"] = [[epoch, iterator.state_dict()], *others]
        return {**self._state, "sources": sources}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken.

        Raises
        ------
        StateError
            If it is damaged, or of other sources.
        """
        self._mixture._check_state(state)  # noqa: SLF001  # of its dataset
        self._state, self._open, self._block = copy.deepcopy(state), {}, (-1, [])


def _find_given_world(sources: Mapping[str, DatasetLike]) -> World | None:
    """Return the ranks that sources were given; None if they find them.

    Raises ArgumentError if two have different ones.
    """
    given = {name: getattr(source, "_world", None) for name, source in sources.items()}
    known = [(name, world) for name, world in given.items() if world is not None]
    for name, world in known:
        first, other = known[0]
        if world != other:
            raise ArgumentError(
                f"the sources of a mixture must have the same num_replicas and rank, got rank {other.rank} of "
                f"{other.num_replicas} for {first!r} and rank {world.rank} of {world.num_replicas} for {name!r}"
            )
    return known[0][1] if known else None


def _as_divisible(source: DatasetLike) -> DivisibleStream:
    if isinstance(source, DivisibleStream):
        return source
    return _PlainStream(source) if is_iterable(source) else _MapStream(source)


class _MapStream(PartitionedDataset[Sample]):
    """A map-style dataset, read in random order."""

    def __init__(self, dataset: DatasetLike) -> None:
        super().__init__()
        self._dataset, self._size = dataset, len(dataset)
        self._part = min(max(self._size >> 12, 1), 256)  # samples of a part: many parts, for any number of readers

    def count_parts(self) -> int:
        return -(-self._size // self._part)

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[int]:
        start, stop = part * self._part, min((part + 1) * self._part, self._size)
        places = np.arange(start + first, stop, dtype=np.int64)
        return iter(permute(places, self._size, (self.seed, epoch, _SOURCE)).tolist())

    def make_sample(self, item: Sample) -> Sample:
        return self._dataset[item]


class _PlainStream:
    """A stream that cannot be divided, and its iterator: each reader iterates it, and runs it forward to its place."""

    def __init__(self, stream: DatasetLike) -> None:
        self._stream = stream
        self._samples: Iterator[Sample] = iter(())
        self._state: StateDict = {"samples": 0}

    def __iter__(self) -> _PlainStream:
        iterator = _PlainStream(self._stream)
        iterator._samples = iter(self._stream)
        return iterator

    def __next__(self) -> Sample:
        sample = next(self._samples)
        self._state["samples"] += 1
        return sample

    def start_states(self, epoch: int, num_workers: int) -> list[StateDict]:  # noqa: ARG002  # it has no epochs
        return [{"samples": 0, "worker": worker, "num_workers": num_workers} for worker in range(num_workers)]

    def divide_states(self, states: Sequence[StateDict], num_workers: int) -> list[StateDict]:
        if [state["num_workers"] for state in states] != [num_workers] * num_workers:
            raise StateError(
                f"a mixture has a source of type {type(self._stream).__name__}, whose rest cannot be divided among "
                "other workers: resume with the same number of workers, or make it a penstock.PartitionedDataset"
            )
        return list(states)

    def state_dict(self) -> StateDict:
        return dict(self._state)

    def load_state_dict(self, state: State) -> None:
        for _ in itertools.islice(self._samples, state["samples"]):
            pass
        self._state = dict(state)
