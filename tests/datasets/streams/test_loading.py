"""Streams of parts in both loaders: any kind and number of workers and ranks continues what others have begun."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
import penstock.torch
from penstock.datasets.streams.division import ReaderState
from penstock.errors import SampleError, StateError
from tests.datasets.streams.numbered_shards import NumberedShards, make_stream, numbers_of

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

LENGTHS = [7, 3, 9, 1, 8, 5, 6, 4, 2, 9, 3, 8]
SHUFFLED: dict[str, Any] = {"shuffle": True, "window": 2, "buffer": 5, "seed": 3}
KINDS: dict[str, Any] = {"penstock": ps.DataLoader, "torch": penstock.torch.DataLoader}


def make(kind: str, workers: tuple[str, int] = ("serial", 0), dataset: Any = None, **more: Any) -> Any:
    """A loader of that many workers."""
    given = {"workers": workers[0], "num_workers": workers[1]} if workers[1] else {}
    return KINDS[kind](
        make_stream(LENGTHS, **SHUFFLED) if dataset is None else dataset, 4, **{"seed": 5, **given, **more}
    )


def pairs(batches: Any) -> list[tuple[int, float]]:
    """Numbers and draws."""
    return [pair for numbers, draws in batches for pair in zip(numbers.tolist(), draws.tolist(), strict=True)]


WHOLE = sorted(make_stream(LENGTHS, **SHUFFLED))


@pytest.mark.parametrize("kind", KINDS)
def test_workers_of_any_number_and_kind_continue(kind: str) -> None:
    """Processes, then other processes, the calling thread, threads: each sample once, with its random number."""
    found: list[tuple[int, float]] = []
    state = None
    for workers in [("processes", 2), ("processes", 3), ("serial", 0), ("threads", 2), ("processes", 2)]:
        loader = make(kind, workers)
        if state is not None:
            loader.load_state_dict(state)
        walk = iter(loader)
        found += pairs(itertools.islice(walk, 3))
        state = json.loads(json.dumps(loader.state_dict()))
        assert json.loads(json.dumps(loader.state_dict())) == state
        del walk

    found += pairs(walk_on(make(kind, ("threads", 1)), state))

    assert sorted(found) == WHOLE


def walk_on(loader: Any, state: Any) -> Any:
    """The rest of an epoch."""
    loader.load_state_dict(state)
    return iter(loader)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [("serial", 0), ("threads", 2), ("processes", 2)], ids=str)
def test_the_same_workers_continue_in_the_same_order(kind: str, workers: tuple[str, int]) -> None:
    """At any batch; and the next epoch is that of a loader which did not stop, with another order."""
    straight, loader = make(kind, workers), make(kind, workers)
    whole = pairs(straight)
    walk = iter(loader)
    head = pairs(itertools.islice(walk, 5))
    resumed = make(kind, workers)
    rest = pairs(walk_on(resumed, loader.state_dict()))
    del walk

    following = pairs(resumed)

    assert head + rest == whole
    assert following == pairs(straight)
    assert following != whole
    assert sorted(number for number, _ in following) == numbers_of(LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("even", [False, True])
def test_ranks_continue_on_others(kind: str, even: bool) -> None:
    """Two ranks, then three with the merged states, then one: no sample is lost or comes twice.

    With even=True the state of rank 0 is enough, all ranks have equally many batches, and only the end is left out.
    """
    more = SHUFFLED | ({"even": True, "counts": LENGTHS} if even else {})
    found: list[tuple[int, float]] = []
    state = None
    for num_replicas, workers, steps in [(2, 2, 3), (3, 0, 2), (1, 0, None)]:
        states, batches = [], []
        for rank in range(num_replicas):
            dataset = make_stream(LENGTHS, num_replicas=num_replicas, rank=rank, **more)
            loader = make(kind, ("processes", workers), dataset)
            if state is not None:
                loader.load_state_dict(state)
            walk = iter(loader)
            batches.append(list(itertools.islice(walk, steps)))
            states.append(loader.state_dict())
            del walk
        found += [pair for of_rank in batches for pair in pairs(of_rank)]
        assert not even or len({len(of_rank) for of_rank in batches}) == 1
        state = json.loads(json.dumps(states[0] if even else ps.merge_states(states)))

    assert len(set(found)) == len(found)
    assert sorted(found) == WHOLE


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_one_rank_is_refused_on_another(kind: str) -> None:
    """Its text names merge_states; merged states are refused by datasets that cannot be divided."""
    ranks = [make(kind, dataset=make_stream(LENGTHS, num_replicas=2, rank=rank)) for rank in (0, 1)]
    for loader in ranks:
        next(iter(loader))
    states = [loader.state_dict() for loader in ranks]

    class Plain(ps.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(range(10))

    plain = make(kind, dataset=Plain())
    next(iter(plain))
    doubled = ps.merge_states([plain.state_dict(), {**plain.state_dict(), "other": 1}])

    with pytest.raises(StateError, match=r"penstock\.merge_states"):
        next(walk_on(ranks[1], states[0]))
    with pytest.raises(StateError, match="start_states and divide_states"):
        next(walk_on(make(kind, dataset=Plain()), doubled))
    with pytest.raises(StateError, match="got none"):
        ps.merge_states([])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_merged_states_stays(kind: str) -> None:
    """Loaded and saved before the first batch it leaves the same; merged again it counts once."""
    ranks = [make(kind, dataset=make_stream(LENGTHS, num_replicas=2, rank=rank)) for rank in (0, 1)]
    found = [pair for loader in ranks for pair in pairs(itertools.islice(loader, 2))]
    merged = ps.merge_states([loader.state_dict() for loader in ranks])
    for loader in ranks:
        loader.load_state_dict(merged)
    again = ps.merge_states([loader.state_dict() for loader in ranks])

    (one,) = [make(kind, dataset=make_stream(LENGTHS))]
    found += pairs(walk_on(one, again))

    assert sorted(number for number, _ in found) == numbers_of(LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batches", [0, None])
def test_ranks_merge_states_between_epochs(kind: str, batches: int | None) -> None:
    """Before the first epoch, and after one, any number of ranks begins the next epoch with the merged states."""
    ranks = [make(kind, dataset=make_stream(LENGTHS, num_replicas=2, rank=rank)) for rank in (0, 1)]
    if batches is None:
        for loader in ranks:
            list(loader)
    merged = json.loads(json.dumps(ps.merge_states([loader.state_dict() for loader in ranks])))

    for persistent in (False, True):
        more = {"persistent_workers": True} if persistent else {}
        one = make(kind, ("processes", 2), make_stream(LENGTHS), **more)
        one.load_state_dict(merged)
        assert sorted(number for number, _ in pairs(one)) == numbers_of(LENGTHS)
        assert one.state_dict() != merged
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_merged_states_of_map_datasets_are_that_of_any_rank(kind: str) -> None:
    """One line of a script saves and loads the states of all ranks, whatever the dataset is."""

    def rank(number: int, count: int) -> Any:
        sampler = ps.DistributedSampler(range(24), count, number, seed=1)
        return KINDS[kind](list(range(24)), 2, sampler=sampler, seed=5)

    def flat(batches: Any) -> list[int]:
        return [number for batch in batches for number in batch.tolist()]

    ranks = [rank(number, 2) for number in (0, 1)]
    found = [number for loader in ranks for number in flat(itertools.islice(loader, 2))]
    merged = ps.merge_states([loader.state_dict() for loader in ranks])
    for number in range(4):
        found += flat(walk_on(rank(number, 4), merged))

    assert sorted(found) == list(range(24))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_come_out_of_order_are_counted(kind: str) -> None:
    """Processes without an order continue on others; rare snapshots, of torch's loader, lose nothing either."""
    more: dict[str, Any] = {"in_order": False} if kind == "penstock" else {"snapshot_every_n_steps": 4}
    loader, other = make(kind, ("processes", 2), **more), make(kind, ("processes", 1), **more)
    walk = iter(loader)
    found = pairs(itertools.islice(walk, 5))

    found += pairs(walk_on(other, loader.state_dict()))
    del walk

    assert sorted(found) == WHOLE


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """The next one reads on where it was; random numbers of global generators belong to samples, too, if asked for."""
    marker = tmp_path / "died"

    def die(number: int) -> tuple[int, float]:
        if number == 80_001 and not marker.exists():
            marker.touch()
            os._exit(9)
        return number, random.random()  # seeded by the loader

    dataset = ps.StreamDataset(NumberedShards.of(LENGTHS), "number", die, **SHUFFLED)
    found = pairs(make("penstock", ("processes", 2), dataset, seed_per_sample=True))

    assert marker.exists()
    assert sorted(found) == sorted(pairs(make("penstock", dataset=dataset, seed_per_sample=True)))


def test_ranks_are_found_when_an_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of torchrun are enough, in the process that iterates the loader."""
    found = []
    loader = make("penstock", dataset=make_stream(LENGTHS))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        found.append([number for number, _ in pairs(loader)])
        loader.set_epoch(0)

    assert sorted(found[0] + found[1]) == numbers_of(LENGTHS)
    assert found[0][0] == 10_000
    assert found[1][0] == 0


def test_a_wrapped_stream_divides_itself_among_workers() -> None:
    """A stream inside of another dataset asks for its worker, so that no sample comes twice."""
    chained = make_stream(LENGTHS) + make_stream([2, 2])

    found = pairs(make("penstock", ("processes", 2), chained))

    assert sorted(number for number, _ in found) == sorted(numbers_of(LENGTHS) + numbers_of([2, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_persistent_workers_begin_each_epoch(kind: str) -> None:
    """Processes that stay get the next epoch's parts, as new ones do."""
    kept = make(kind, ("processes", 2), persistent_workers=True)
    fresh = make(kind, ("processes", 2))

    for _ in range(2):
        assert pairs(kept) == pairs(fresh)
    kept.close()


def test_samples_that_fail_are_left_out() -> None:
    """Also the last of a worker: the state of the stream says that it has ended, whatever failed before."""

    class Spoilt(NumberedShards):
        bad = frozenset({4, 10_002})

    dataset = ps.StreamDataset(Spoilt.of([5, 3]), "number")
    for workers in (("serial", 0), ("processes", 2)):
        loader = make("penstock", workers, dataset, on_error="skip")

        found = [number for batch in loader for number in batch.tolist()]

        assert sorted(found) == [0, 1, 2, 3, 10_000, 10_001]
    with pytest.raises(ps.CorruptRecordError):
        list(make("penstock", dataset=dataset))


def test_users_streams_join_by_two_methods() -> None:
    """A stream with start_states and divide_states needs no base class of its own."""

    class Countdown(ps.IterableDataset[Any]):
        def start_states(self, epoch: int, num_workers: int) -> list[dict[str, Any]]:
            return [{"left": list(range(30))[worker::num_workers]} for worker in range(num_workers)]

        def divide_states(self, states: Any, num_workers: int) -> list[dict[str, Any]]:
            if len(states) == num_workers:
                return list(states)
            left = sorted(number for state in states for number in state["left"])
            return [{"left": left[worker::num_workers]} for worker in range(num_workers)]

        def __iter__(self) -> Any:
            return _Left()

    class _Left:
        left: list[int]

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

        def state_dict(self) -> Any:
            return {"left": self.left}

        def load_state_dict(self, state: Any) -> None:
            self.left = list(state["left"])

    loader, resumed = make("penstock", ("processes", 2), Countdown()), make("penstock", ("processes", 3), Countdown())
    walk = iter(loader)
    found = [number for batch in itertools.islice(walk, 3) for number in batch.tolist()]
    found += [number for batch in walk_on(resumed, loader.state_dict()) for number in batch.tolist()]
    del walk

    assert sorted(found) == list(range(30))


def test_a_state_of_another_stream_is_refused() -> None:
    """Other shards, another window or another seed have another order."""
    loader = make("penstock")
    next(iter(loader))
    state = loader.state_dict()

    for other in (make_stream(LENGTHS[1:], **SHUFFLED), make_stream(LENGTHS, **SHUFFLED | {"window": 3})):
        with pytest.raises(StateError, match="fingerprint"):
            make("penstock", dataset=other).load_state_dict(state)


def test_asking_reads_nothing() -> None:
    """Making a loader, its text, its state, and loading a state read no record."""

    class Closed(NumberedShards):
        def read_shard(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is to be read")

    open_loader = make("penstock", dataset=ps.StreamDataset(NumberedShards.of(LENGTHS), **SHUFFLED))
    next(iter(open_loader))
    closed = make("penstock", dataset=ps.StreamDataset(Closed.of(LENGTHS), **SHUFFLED))

    closed.load_state_dict(open_loader.state_dict())

    assert "StreamDataset(NumberedShards" in repr(open_loader.dataset)
    assert closed.state_dict()["batches"] == 1


def test_tar_shards_are_loaded_by_their_pattern(tmp_path: Path) -> None:
    """A pattern is enough; fields and transforms are as those of StoreDataset, and errors name the record."""
    from tests.conformance.test_streams import write_tar

    for shard in range(3):
        write_tar(tmp_path / f"{shard}.tar", [(f"{shard}/{n}", bytes([n]) * 600, 10 * shard + n) for n in range(4)])
    dataset = ps.StreamDataset(str(tmp_path / "{0..2}.tar"), ("image", "label", "key"), shuffle=True, window=2)

    samples = sorted(dataset, key=lambda sample: sample[1])

    assert [sample[1:] for sample in samples] == [(10 * s + n, f"{s}/{n}") for s in range(3) for n in range(4)]
    assert bytes(samples[5][0]) == bytes([1]) * 600

    def fail(sample: Any) -> Any:
        raise SampleError("no")

    dataset.transform = fail
    with pytest.raises(SampleError, match=r"key='.*index="):
        next(iter(dataset))


def test_the_first_is_the_state_that_is_read() -> None:
    """A state in use is a copy: the iterator's later reading does not change it."""
    dataset = make_stream(LENGTHS)
    reader = iter(dataset)
    next(reader)
    state = reader.state_dict()
    kept = json.dumps(state)

    list(reader)

    assert json.dumps(state) == kept
    assert ReaderState.parse(state, len(LENGTHS)).begun == [[0, 1]]
