"""Mixtures of streams: shares, epochs of sources, states that fit other numbers of workers and ranks."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets.mixture import StreamMixture
from penstock.errors import ArgumentError, SampleError, StateError
from penstock.ranks import World, assume_world
from tests.asking import ASK, epochs

SIZES = {"a": 8, "b": 30, "c": 60}
"""Parts of sources, of 10 samples each."""


class Numbered(ps.PartitionedDataset[int]):
    """Samples that say which they are: source * 10**5 + part * 10 + number, and the epoch if asked for."""

    says_epoch = False

    def __init__(self, source: int, parts: int) -> None:
        super().__init__()
        self.source, self.parts = source, parts

    def count_parts(self) -> int:
        """As given."""
        return self.parts

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[int]:
        """Ten numbers."""
        start = self.source * 10**5 + part * 10 + self.says_epoch * (epoch % 100) * 10**6
        return iter(range(start + first, start + 10))


class Plain(ps.IterableDataset[int]):
    """A stream that has no state, and cannot be divided."""

    def __iter__(self) -> Iterator[int]:
        yield from range(900_000, 900_007)


def mix(**options: Any) -> StreamMixture:
    """Three streams with weights 1, 2, 3."""
    sources = {name: Numbered(number, parts) for number, (name, parts) in enumerate(SIZES.items())}
    mixture = ps.Mixture(sources, **{"weights": {"a": 1, "b": 2, "c": 3}, "until": 600, **options})
    assert isinstance(mixture, StreamMixture)
    return mixture


def sources_of(samples: Any) -> dict[int, int]:
    """How many samples each source has."""
    return dict(Counter(int(sample) // 10**5 for sample in samples))


def run(mixture: StreamMixture, states: list[Any], steps: list[int]) -> tuple[list[int], list[Any]]:
    """Draw so many samples by each reader (all, if there is no number); the samples and the states then."""
    samples, after = [], []
    for reader, state in enumerate(states):
        iterator: Any = iter(mixture)
        iterator.load_state_dict(json.loads(json.dumps(state)))
        count = steps[reader] if steps else 10**9
        for sample in iterator:
            samples.append(sample)
            count -= 1
            if not count:
                break
        after.append(iterator.state_dict())
    return samples, after


@pytest.mark.parametrize("num_workers", [0, 2])
def test_shares_and_stats_by_source(num_workers: int) -> None:
    """Each source has its share of what a loader delivers, and stats count it by source."""
    mixture = mix(until=1200)
    loader = ps.DataLoader(mixture, 20, num_workers=num_workers, workers="processes" if num_workers else "serial")
    walk, samples = iter(loader), []
    for _ in range(50):
        samples += next(walk).tolist()

    counts, stats = sources_of(samples), mixture.stats(loader)

    assert [abs(counts[number] - 1000 * (number + 1) / 6) <= 40 for number in range(3)] == [True] * 3
    assert {name: source.samples for name, source in stats.items()} == dict(
        zip(SIZES, (counts[number] for number in range(3)), strict=True)
    )
    assert 0 < stats["a"].epochs <= counts[0] // 80  # those that all readers have come to the end of
    assert sum(source.share for source in stats.values()) == pytest.approx(1)
    samples += [sample for batch in walk for sample in batch.tolist()]
    assert [sources_of(samples)[number] for number in range(3)] == [200, 400, 600]
    assert len(samples) == 1200


def test_each_source_has_epochs_of_its_own() -> None:
    """A stream that has ended begins again: whole epochs, one after the other."""
    found = list(mix(until=1000))

    for source, parts in enumerate(SIZES.values()):
        own = [sample % 10**5 for sample in found if sample // 10**5 == source]
        for begin in range(0, len(own), parts * 10):
            assert own[begin : begin + parts * 10] == list(range(len(own[begin : begin + parts * 10])))


@pytest.mark.parametrize(("until", "counts"), [("first", {0: 80, 1: 160}), ("all", {0: 1200 // 6 * 3, 2: 600})])
def test_an_epoch_ends_with_the_first_or_last_source(until: Any, counts: dict[int, int]) -> None:
    """With "first", when one stream has ended, with "all", when each has, where the other sources continue."""
    options: dict[str, Any] = {"weights": [1, 1, 1]} if until == "all" else {}

    found = sources_of(mix(until=until, **options))

    assert all(abs(found[source] - count) <= 10 for source, count in counts.items())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32))
@example([2, 4, 1, 2], 0)  # an epoch that is begun by a reader of the first division alone
def test_the_rest_is_divided_among_any_number_of_readers(readers: list[int], seed: int) -> None:
    """However often the number of readers changes, no sample of an epoch of a source comes twice, and none is lost."""
    mixture, random = mix(until=900), np.random.default_rng(seed)
    for source in mixture.sources.values():
        source.says_epoch = True
    states, found = mixture.start_states(0, readers[0]), []
    for number in readers:
        states = mixture.divide_states(states, number)
        assert mixture.divide_states(states, number) == states
        samples, states = run(mixture, states, [int(random.integers(20, 60))] * number)
        found += samples
    samples, states = run(mixture, states, [])
    found += samples

    assert len(found) == len(set(found)) == 900
    for source, (name, parts) in enumerate(SIZES.items()):
        epochs = Counter(sample // 10**6 for sample in found if sample // 10**5 % 10 == source)
        assert abs(epochs.total() - 150 * (source + 1)) <= 8
        finished = min(state["sources"][name]["left"][0][0] for state in states)
        assert [epochs[epoch] for epoch in range(finished)] == [parts * 10] * finished
    assert run(mixture, states, [])[0] == []


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 2), (1, 2)])
def test_a_loader_resumes_with_other_workers(before: int, after: int) -> None:
    """What is left in mid-epoch comes from another number of workers: no sample of the largest source comes twice."""
    mixture = mix()
    loader = ps.DataLoader(mixture, 10, num_workers=before, workers="processes" if before else "serial")
    walk = iter(loader)
    found = [sample for _ in range(24) for sample in next(walk).tolist()]
    state = json.loads(json.dumps(loader.state_dict()))
    del walk

    again = ps.DataLoader(mixture, 10, num_workers=after, workers="processes" if after else "serial")
    again.load_state_dict(state)
    stats = {name: source.samples for name, source in mixture.stats(again).items()}
    rest = [sample for batch in again for sample in batch.tolist()]

    assert stats == {name: sources_of(found)[number] for number, name in enumerate(SIZES)}
    assert len(found) + len(rest) == 600
    largest = [sample for sample in found + rest if sample >= 2 * 10**5]
    assert len(largest) == len(set(largest)) == 300


def test_the_same_readers_continue_exactly() -> None:
    """From any place, a state of the same readers gives the very next samples."""
    mixture = mix(until=400)
    whole = [run(mixture, [state], [])[0] for state in mixture.start_states(0, 2)]
    for steps in range(1, 200, 13):
        for reader, state in enumerate(mixture.start_states(0, 2)):
            begun, after = run(mixture, [state], [steps])
            assert begun + run(mixture, after, [])[0] == whole[reader]


def test_maps_and_plain_streams_are_sources_too() -> None:
    """Map-style datasets are read in random order beside streams; a plain stream is run forward, by as many readers."""
    sources = {"map": [f"m{number}" for number in range(50)], "plain": Plain(), "parts": Numbered(0, 5)}
    mixture = ps.Mixture(sources, weights=[2, 1, 1], until=200)
    assert isinstance(mixture, StreamMixture)

    found = [str(sample) for sample in mixture]

    assert sorted(sample for sample in found if sample[0] == "m") == sorted(2 * [f"m{n}" for n in range(50)])
    assert found[:50] != sorted(found[:50])
    assert [sample for sample in found if len(sample) == 6] == ([str(900_000 + n) for n in range(7)] * 8)[:50]
    begun, states = run(mixture, mixture.start_states(0, 1), [33])
    assert [*map(str, begun), *map(str, run(mixture, states, [])[0])] == found
    with pytest.raises(StateError, match="source of type Plain, whose rest cannot be divided"):
        mixture.divide_states(states, 2)
    assert list(pickle.loads(pickle.dumps(mixture))) == list(mixture)


def test_epochs_of_the_loader_begin_other_epochs_of_the_sources() -> None:
    """Each epoch of a loader begins each source anew; a source in random order has another one."""
    mixture = ps.Mixture({"map": list(range(100)), "parts": Numbered(1, 5)}, weights=[1, 1], until=100)
    loader = ps.DataLoader(mixture, 10)

    first, second = ([sample for batch in loader for sample in batch.tolist()] for _ in range(2))

    assert sources_of(first) == sources_of(second) == {0: 50, 1: 50}
    assert first != second


def test_readers_that_are_epochs_apart_cannot_be_divided() -> None:
    """What is left is unknown where one reader has begun several epochs more of a source than another."""
    mixture = mix()
    first, second = mixture.start_states(0, 2)
    _, (ahead,) = run(mix(until=1200), [first], [595])

    with pytest.raises(StateError, match=r"source 'a' are in the epochs \[0, 2\] of it, which are too far apart"):
        mixture.divide_states([ahead, second], 3)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ({"version": 9}, "another version"),
        ({"taken": -1}, "another version"),
        ({"mixture": ["a"]}, r"of a mixture of \['a'\], this one has \['a', 'b', 'c'\]"),
        ({"sources": {}}, "this one has"),
        ({"sources": 3}, "damaged"),
        ({"sources": {"a": {"samples": 0, "left": [[0, {}]], "ended": None}}}, "damaged"),
        ({"sources": {"a": {"samples": 0, "left": [[0], [1]], "ended": None}}}, "damaged"),
        ({"epoch": 1}, "one epoch"),
        ({"readers": 5}, "one run"),
        ({"reader": 1}, "another reader"),
    ],
)
def test_damaged_states_are_refused(damage: dict[str, Any], text: str) -> None:
    """The error says what is wrong."""
    mixture = mix()
    first, second = mixture.start_states(0, 2)

    with pytest.raises(StateError, match=text):
        mixture.divide_states([{**first, **damage}, second], 3)


def test_a_source_with_too_few_parts_is_refused() -> None:
    """A reader that has no part of a source can never draw from it."""
    mixture = ps.Mixture({"a": Numbered(0, 1), "b": Numbered(1, 9)}, weights=[1, 1], until=40)
    assert isinstance(mixture, StreamMixture)

    with pytest.raises(SampleError, match="source 'a' has no sample for reader 1 of 2: use fewer workers"):
        run(mixture, mixture.start_states(0, 2), [])
    with pytest.raises(ArgumentError, match="weights must be given where the length of a source is unknown"):
        ps.Mixture({"a": Numbered(0, 1)})


@pytest.mark.parametrize("ask", [*ASK.values(), "stats by source"])
def test_asking_changes_nothing(ask: Any) -> None:
    """State, length, text, pickle and statistics draw nothing and open no source."""
    mixture = mix(until=100)
    asked = mixture.stats if ask == "stats by source" else ask

    found = [epochs(ps.DataLoader(mixture, 16), lambda: 0, each) for each in (asked, None)]

    assert found[0] == found[1]


def test_states_of_several_ranks_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What two ranks have left in mid-epoch comes from one: no sample of a source is lost or comes twice."""
    mixture, found, states = mix(), [], []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        loader = ps.DataLoader(mixture, 10)
        walk = iter(loader)
        found += [sample for _ in range(12) for sample in next(walk).tolist()]
        states.append(json.loads(json.dumps(loader.state_dict())))
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("RANK")

    alone = ps.DataLoader(mixture, 10)
    alone.load_state_dict(ps.merge_states(states))
    stats = mixture.stats(alone)
    found += [sample for batch in alone for sample in batch.tolist()]

    assert sum(source.samples for source in stats.values()) == 240
    assert len(found) == 600
    largest = [sample for sample in found if sample >= 10**5]
    assert len(largest) == len(set(largest))
    assert [abs(sources_of(found)[number] - 100 * (number + 1)) <= 4 for number in range(3)] == [True] * 3


def told(rank: int, num_replicas: int) -> ps.Mixture:
    """A mixture whose first source is given its ranks, and whose second is not."""
    sources = {"a": Numbered(0, 16), "b": Numbered(1, 16)}
    sources["a"]._world = World(num_replicas, rank)
    return ps.Mixture(sources, weights=[1, 1], until=120)


def test_ranks_that_a_source_is_given_are_the_mixtures() -> None:
    """Four ranks share the mixture, with all of its sources; the state of one rank fits four."""
    loaders = [ps.DataLoader(told(rank, 4), batch_size=5, seed=0) for rank in range(4)]
    samples = [sample for loader in loaders for batch in loader for sample in batch.tolist()]
    alone = ps.DataLoader(told(0, 1), batch_size=5, seed=0)
    iterator = iter(alone)
    before = [sample for _ in range(4) for sample in next(iterator).tolist()]
    state = json.loads(json.dumps(alone.state_dict()))

    for loader in loaders:
        loader.load_state_dict(state)
    after = [sample for loader in loaders for batch in loader for sample in batch.tolist()]

    assert len(set(samples)) == len(samples) == 120
    assert len(set(before + after)) == len(before + after) == 120


def test_sources_that_are_given_different_ranks_are_refused() -> None:
    """The error names both, also of a mixture that is a source."""
    source = Numbered(1, 16)
    source._world = World(3, 1)

    with pytest.raises(ArgumentError, match="rank 2 of 4 for 'inner' and rank 1 of 3 for 'b'"):
        ps.Mixture({"inner": told(2, 4), "b": source}, weights=[1, 1])


class Wrapped(ps.IterableDataset[int]):
    """A stream around one that divides itself."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[int]:
        yield from self.stream


@pytest.mark.parametrize("kind", ["stream", "mixture"])
def test_a_worker_believes_the_ranks_that_its_parent_finds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot find them itself gets the parent's: for a stream, or a mixture, inside of another stream."""
    samples = []
    workers: dict[str, Any] = {"num_workers": 1, "workers": "processes", "multiprocessing_context": "forkserver"}
    for rank, more in enumerate(({}, workers)):
        monkeypatch.setattr("penstock.ranks.find_ranks", lambda rank=rank: (2, rank))
        stream = Numbered(0, 8) if kind == "stream" else ps.Mixture({"a": Numbered(0, 8)}, weights=[1], until=80)
        loader = ps.DataLoader(Wrapped(stream), batch_size=5, seed=0, **more)
        samples += [sample for batch in loader for sample in batch.tolist()]

    assert sorted(samples) == list(range(80))


def test_workers_share_a_mixture_inside_of_another_stream() -> None:
    """Each worker is a reader, as of a stream that divides itself."""
    mixture = ps.Mixture({"a": Numbered(0, 8)}, weights=[1], until=80)

    loader = ps.DataLoader(Wrapped(mixture), batch_size=5, seed=0, num_workers=2, workers="processes")

    assert sorted(sample for batch in loader for sample in batch.tolist()) == list(range(80))


def test_a_source_that_begins_again_stays_with_its_rank() -> None:
    """What the reader's state says counts, where nothing else tells the ranks any more."""
    mixture = mix(until=2000)
    with assume_world(World(2, 1)):
        states = mixture.start_states(0, 1)
        expected, _ = run(mixture, states, [])  # as in a process that knows

    found, _ = run(mixture, states, [])

    assert found == expected
    assert max(Counter(expected).values()) > 2  # sources have begun again, and again
