"""What is left of a stream is divided among any number of readers: no sample is lost, and none comes twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError, StateError
from penstock.sample import StateDict
from tests.datasets.streams.numbered_shards import NumberedShards, make_stream, numbers_of

Drawn = list[tuple[int, float]]
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=12)
WORLDS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4)
SHUFFLES = st.one_of(
    st.just({"shuffle": False}),
    st.fixed_dictionaries(
        {"shuffle": st.just(True), "window": st.integers(1, 4), "buffer": st.integers(1, 9), "seed": st.integers(0, 5)}
    ),
)


def ranks_of(lengths: Sequence[int], num_replicas: int, **more: Any) -> list[ps.StreamDataset]:
    """The dataset of each rank."""
    return [make_stream(lengths, num_replicas=num_replicas, rank=rank, **more) for rank in range(num_replicas)]


def begin(dataset: ps.PartitionedDataset[Any], states: list[StateDict]) -> list[Any]:
    """An iterator for each state, as JSON keeps it."""
    iterators = []
    for state in states:
        iterators.append(iter(dataset))
        iterators[-1].load_state_dict(json.loads(json.dumps(state)))
    return iterators


def divide(
    ranks: list[ps.StreamDataset], workers: int, states: list[StateDict] | None, epoch: int = 0
) -> list[list[Any]]:
    """By rank, the iterators of its workers: from the start, or for what all states leave."""
    return [
        begin(rank, rank.start_states(epoch, workers) if states is None else rank.divide_states(states, workers))
        for rank in ranks
    ]


@given(lengths=LENGTHS, worlds=WORLDS, settings=SHUFFLES, pick=st.randoms(use_true_random=False))
def test_any_readers_read_the_rest_once(
    lengths: list[int], worlds: list[tuple[int, int]], settings: dict[str, Any], pick: Any
) -> None:
    """Ranks and workers change at random places, several times; samples and their random numbers stay the same."""
    whole = list(make_stream(lengths, **settings, num_replicas=1, rank=0))
    found: Drawn = []
    states: list[StateDict] | None = None

    for stage, (num_replicas, workers) in enumerate(worlds):
        readers = divide(ranks_of(lengths, num_replicas, **settings), workers, states)
        for reader in itertools.chain(*readers):
            last = stage == len(worlds) - 1
            found += itertools.islice(reader, None if last else pick.randint(0, len(whole)))
        states = [reader.state_dict() for reader in itertools.chain(*readers)]

    assert sorted(found) == sorted(whole)
    assert sorted(number for number, _ in whole) == numbers_of(lengths)


@given(lengths=LENGTHS, settings=SHUFFLES, stop=st.integers(0, 100), epoch=st.integers(0, 3))
def test_the_same_readers_continue_in_the_same_order(
    lengths: list[int], settings: dict[str, Any], stop: int, epoch: int
) -> None:
    """A state replays the order exactly, shuffled or not, and is not changed by being asked for."""
    dataset = make_stream(lengths, **settings, num_replicas=1, rank=0)
    (whole,) = begin(dataset, dataset.start_states(epoch, 1))
    (reader,) = begin(dataset, dataset.start_states(epoch, 1))
    expected = list(whole)

    head = list(itertools.islice(reader, stop))
    state = reader.state_dict()
    (again,) = begin(dataset, dataset.divide_states([state], 1))

    assert reader.state_dict() == state == again.state_dict()
    assert head + list(reader) == expected
    assert list(again) == expected[stop:]


@given(lengths=LENGTHS, worlds=WORLDS, settings=SHUFFLES, pick=st.randoms(use_true_random=False), alone=st.booleans())
def test_even_readers_stay_in_step(
    lengths: list[int], worlds: list[tuple[int, int]], settings: dict[str, Any], pick: Any, alone: bool
) -> None:
    """With even=True all readers have equally many samples, and the states of one rank tell what others have read."""
    settings = settings | {"counts": lengths, "even": True}
    found: list[int] = []
    states: list[StateDict] | None = None

    for stage, (num_replicas, workers) in enumerate(worlds):
        ranks = ranks_of(lengths, num_replicas, **settings)
        readers = divide(ranks, workers, states)
        last = stage == len(worlds) - 1
        steps = [None if last else pick.randint(0, len(numbers_of(lengths))) for _ in range(workers)]
        taken = [[list(itertools.islice(reader, steps[w])) for w, reader in enumerate(rank)] for rank in readers]
        for rank in taken:
            assert [len(drawn) for drawn in rank] == [len(drawn) for drawn in taken[0]]
            found += [number for drawn in rank for number, _ in drawn]
        every = [reader.state_dict() for reader in itertools.chain(*readers)]
        asked = pick.randrange(num_replicas)
        of_one = every[asked * workers : (asked + 1) * workers]
        other = ranks_of(lengths, num_replicas + 1, **settings)[num_replicas]
        assert other.divide_states(of_one, workers) == other.divide_states(every, workers)
        for number, dataset in enumerate(ranks):
            theirs = every[number * workers : (number + 1) * workers]
            inferred, known = begin(dataset, dataset.divide_states(of_one, workers)), begin(dataset, theirs)
            assert list(map(list, inferred)) == list(map(list, known))
        states = of_one if alone else every

    assert len(set(found)) == len(found)
    assert set(found) <= set(numbers_of(lengths))


def test_even_readers_leave_out_the_least() -> None:
    """Each reader has as many as the one with fewest: of 4, 7, 5 and 6 records on two ranks, 9 each."""
    ranks = ranks_of([4, 7, 5, 6], 2, counts=[4, 7, 5, 6], even=True)

    assert [len(list(reader)) for (reader,) in divide(ranks, 1, None)] == [9, 9]


def test_workers_that_become_ranks_are_dealt_anew() -> None:
    """Two workers of one rank need not be in step, so that two ranks of one worker do not just continue them."""
    (one,) = ranks_of([4, 4, 4, 4], 1, counts=[4] * 4, even=True)
    readers = begin(one, one.start_states(0, 2))
    next(readers[1])
    states = [reader.state_dict() for reader in readers]

    two = ranks_of([4, 4, 4, 4], 2, counts=[4] * 4, even=True)
    left = [len(list(begin(rank, rank.divide_states(states, 1))[0])) for rank in two]

    assert left == [7, 7]


def test_a_rank_divides_its_own_rest_among_other_workers() -> None:
    """Its own states suffice while the ranks stay the same; merging those of all ranks works afterwards."""
    lengths = [5] * 9
    ranks = ranks_of(lengths, 2)
    found: list[int] = []
    states = []
    for rank, readers in zip(ranks, divide(ranks, 2, None), strict=True):
        found += [number for reader in readers for number, _ in itertools.islice(reader, 7)]
        alone = begin(rank, rank.divide_states([reader.state_dict() for reader in readers], 3))
        found += [number for reader in alone for number, _ in itertools.islice(reader, 2)]
        states += [reader.state_dict() for reader in alone]

    (one,) = ranks_of(lengths, 1)
    found += [number for number, _ in begin(one, one.divide_states(states, 1))[0]]

    assert sorted(found) == numbers_of(lengths)


def test_the_state_of_one_rank_is_not_enough_for_others() -> None:
    """It says so, and names what to do."""
    ranks = ranks_of([5] * 9, 2)
    states = ranks[0].start_states(0, 2)

    with pytest.raises(StateError, match=r"readers 0 to 1 of the 4 .* rank 1 of 2.*penstock\.merge_states"):
        ranks[1].divide_states(states, 2)


def test_states_of_different_steps_are_refused() -> None:
    """A part that two states have left is found; so are states of one reader, of other epochs, and damaged ones."""
    first, second = ranks_of([5] * 9, 2)
    one, two = first.start_states(0, 1)[0], second.start_states(0, 1)[0]
    damaged = [
        {**one, "left": [[0, 9, 0]]}, {**one, "left": [[0, 10, 1]]}, {**one, "begun": [[9, 0]]}, {**one, "taken": -1},
        {**one, "left": [[4, 5, 1], [1, 2, 1]]}, {**one, "version": 2}, {**one, "quota": 3}, {}, None,
        {**one, "left": [[0, 1 << 60, 1]]}, {**one, "reader": 2},
    ]  # fmt: skip

    for states in [[one, one], [one, {**two, "epoch": 1}], [{**one, "left": [[0, 9, 1]]}, two], []]:
        with pytest.raises(StateError):
            first.divide_states(states, 3)
    for state in damaged:
        with pytest.raises(StateError):
            iter(first).load_state_dict(state)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(
    name=st.sampled_from(["epoch", "readers", "reader", "workers", "begun", "left", "taken", "quota", "origin"]),
    value=JSON | st.lists(st.lists(st.integers(-2, 12), min_size=2, max_size=3), max_size=3),
    inside=st.booleans(),
)
def test_a_damaged_state_is_refused_or_read(name: str, value: Any, inside: bool) -> None:
    """Whatever a field holds, the state is an error of ours, or leaves no more than the stream has."""
    dataset = make_stream([2] * 9, counts=[2] * 9, even=True, num_replicas=1, rank=0)
    (state,) = dataset.start_states(0, 1)
    if inside:
        state["origin"][name] = value
    else:
        state[name] = value

    try:
        (divided,) = dataset.divide_states([state], 1)
        found = list(begin(dataset, [divided])[0])
    except StateError:
        return

    assert len(found) <= 18


def test_a_resume_reads_one_window_and_decodes_nothing() -> None:
    """Records that are passed over are read again, not transformed; without a shuffle they are not even read."""
    read: list[int] = []
    made: list[int] = []

    class Counted(NumberedShards):
        def read_shard(self, *args: Any, **more: Any) -> Any:
            for record in super().read_shard(*args, **more):
                read.append(record.fields["number"])
                yield record

    def note(number: int) -> int:
        made.append(number)
        return number

    for settings, most in (({}, 1), ({"shuffle": True, "window": 2, "buffer": 3}, 20)):
        dataset = ps.StreamDataset(Counted.of([10] * 8), "number", note, **settings)  # type: ignore[arg-type]  # of any type
        reader = iter(dataset)
        head = list(itertools.islice(reader, 37))
        (again,) = begin(dataset, [reader.state_dict()])
        read.clear()
        made.clear()

        following = next(again)

        assert following not in head
        assert made == [following]
        assert len(read) <= most


def test_a_state_stays_small() -> None:
    """A million shards, two of which are begun, take less than a kilobyte; also after they were divided anew."""

    class Many(ps.PartitionedDataset[int]):
        def count_parts(self) -> int:
            return 1_000_000

        def read_part(self, part: int, epoch: int, first: int) -> Any:
            return iter(range(first, 4))

    readers = begin(Many(num_replicas=1, rank=0), Many(num_replicas=1, rank=0).start_states(0, 3))
    for reader in readers:
        list(itertools.islice(reader, 10))
    states = [reader.state_dict() for reader in readers]
    again = begin(Many(num_replicas=1, rank=0), Many(num_replicas=1, rank=0).divide_states(states, 2))
    for reader in again:
        list(itertools.islice(reader, 50))

    assert all(len(json.dumps(reader.state_dict())) < 1000 for reader in [*readers, *again])


def test_asking_for_a_state_fixes_no_epoch() -> None:
    """An iterator that was asked where it is, before its first item, follows ``set_epoch`` as one that was not."""
    stream = make_stream([5] * 8, num_replicas=1, rank=0)
    asked, other = iter(stream), iter(stream)
    asked.state_dict()
    stream.set_epoch(3)

    assert [repr(each) for each in asked] == [repr(each) for each in other]


def test_epochs_are_shuffled_anew() -> None:
    """Each epoch and each seed has an order of its own; without a shuffle all epochs are in order."""
    lengths = [3] * 8
    shuffled, plain = make_stream(lengths, shuffle=True, window=2), make_stream(lengths)
    orders = [
        [number for number, _ in begin(dataset, dataset.start_states(epoch, 1))[0]]
        for dataset in (shuffled, make_stream(lengths, shuffle=True, window=2, seed=1))
        for epoch in (0, 1)
    ]

    assert len(set(map(tuple, orders))) == 4
    assert all(sorted(order) == numbers_of(lengths) for order in orders)
    plain.set_epoch(3)
    assert [number for number, _ in plain] == numbers_of(lengths)


def test_a_record_that_cannot_be_used_is_passed() -> None:
    """Its error is raised in its place, shuffled or not, and the records behind it come."""

    class Spoilt(NumberedShards):
        bad = frozenset({1, 10_003})

    for settings in ({}, {"shuffle": True, "window": 2, "buffer": 3}):
        reader = iter(ps.StreamDataset(Spoilt.of([5, 4]), "number", **settings))  # type: ignore[arg-type]  # of any type
        found, failed = [], []
        for _ in range(9):
            try:
                found.append(next(reader))
            except ps.CorruptRecordError as error:
                failed.append(error.where["index"])

        assert next(reader, None) is None
        assert (sorted(found), sorted(failed)) == ([0, 2, 3, 4, 10_000, 10_001, 10_002], [1, 3])


def test_a_part_that_fails_is_read_again_where_it_failed() -> None:
    """Nothing is lost if reading fails for a while, and a shard that stays unreadable raises each time."""
    fails = [True, False, True]

    class Flaky(ps.PartitionedDataset[int]):
        def count_parts(self) -> int:
            return 2

        def read_part(self, part: int, epoch: int, first: int) -> Any:
            for item in range(first, 3):
                if item == 1 and part == 1 and fails.pop():
                    raise OSError("away")
                yield 10 * part + item

    reader = iter(Flaky())
    found = [next(reader) for _ in range(4)]

    with pytest.raises(OSError, match="away"):
        next(reader)
    assert found + list(reader) == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"even": True}, "even=True needs counts"),
        ({"counts": [1]}, "one number for each of the 3 shards, got 1"),
        ({"window": 0}, "window should be a positive"),
        ({"rank": 0}, "give both num_replicas and rank"),
        ({"rank": 2, "num_replicas": 2}, "rank must be in"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    """The constructor says what is wrong."""
    with pytest.raises(ArgumentError, match=text):
        make_stream([2, 2, 2], **arguments)


def test_counts_are_of_the_shards() -> None:
    """A stream counts its records, and parts have the counts of their shards."""
    lengths = [3, 1, 4, 1, 5]
    counts = NumberedShards.of(lengths).count_records()
    dataset = make_stream(lengths, shuffle=True, window=2, counts=counts)

    items = dataset.count_items(1)

    assert counts == lengths
    assert items is not None
    assert items.tolist() == [len(list(dataset.read_part(part, 1, 0))) for part in range(3)]
    assert int(np.sum(items)) == sum(lengths)
