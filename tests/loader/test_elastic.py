"""Elastic ranks: a state goes on with any number of them, and with no dataset or order but its own."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock.errors import StateError
from tests.loader.fakes import Rows, Samples, epoch, frozen

N = 97
SIZES = np.random.default_rng(0).integers(1, 9, N)

Maker = Callable[[int, int], Any]

MAKERS: dict[str, Maker] = {
    "distributed": lambda replicas, rank: ps.DistributedSampler(range(N), replicas, rank, seed=5),
    "weighted": lambda replicas, rank: ps.DistributedWeightedSampler(
        1 + SIZES, N, num_replicas=replicas, rank=rank, seed=5
    ),
    "class-balanced": lambda replicas, rank: ps.ClassBalancedSampler(
        SIZES, N, num_replicas=replicas, rank=rank, seed=5
    ),
    "repeat-factor": lambda replicas, rank: ps.RepeatFactorSampler(
        SIZES, 0.2, num_replicas=replicas, rank=rank, seed=5
    ),
}


def loaders(make: Maker, replicas: int, batch_size: int = 3, **kwargs: Any) -> list[ps.DataLoader]:
    """One loader for each rank, over indices."""
    data = ps.ArrayDataset(np.arange(N))
    return [ps.DataLoader(data, batch_size, sampler=make(replicas, rank), seed=1, **kwargs) for rank in range(replicas)]


def step(walks: list[Any]) -> list[int]:
    """The samples of one step of the whole job, in the job's order: ranks take turns."""
    drawn = [next(walk)[0].tolist() for walk in walks]
    return [index for turn in zip(*drawn, strict=True) for index in turn]


def drained(walks: list[Any], *, is_uneven: bool = False) -> list[int]:
    """The samples of all steps that are left; unless ranks may be uneven, they have equally many."""
    drawn = [[index for batch in walk for index in batch[0].tolist()] for walk in walks]
    assert is_uneven or len({len(indices) for indices in drawn}) == 1
    return [index for turn in itertools.zip_longest(*drawn) for index in turn if index is not None]


def resumed(make: Maker, replicas: int, state: Any, batch_size: int = 3, **kwargs: Any) -> list[ps.DataLoader]:
    """The ranks of a new job, each with the one state that somebody kept as JSON."""
    fresh = loaders(make, replicas, batch_size, **kwargs)
    for loader in fresh:
        loader.load_state_dict(json.loads(json.dumps(state)))
    return fresh


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_four_ranks_then_two_then_three(name: str, num_workers: int) -> None:
    """The job's order goes on as it was; only the last step repeats as many samples as ranks do not divide."""
    make, state = MAKERS[name], None
    seen: list[int] = []
    for replicas, steps in ((4, 3), (2, 5), (3, None)):
        kwargs: dict[str, Any] = {"num_workers": num_workers}
        job = loaders(make, replicas, **kwargs) if state is None else resumed(make, replicas, state, **kwargs)
        walks = [iter(loader) for loader in job]
        seen += drained(walks) if steps is None else list(itertools.chain(*(step(walks) for _ in range(steps))))
        states = [loader.state_dict() for loader in job]
        state = states[0]
        assert all(other == state for other in states)
    whole = list(make(1, 0))

    assert seen[: len(whole)] == whole
    assert len(seen) - len(whole) < 3
    assert seen[len(whole) :] == whole[: len(seen) - len(whole)]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=5),
    st.sampled_from([False, True, "uneven"]),
)
def test_no_history_of_ranks_loses_or_repeats(jobs: list[tuple[int, int, int]], drop_last: Any) -> None:
    """Any ranks, batch sizes and steps: the samples are the order's head, without a gap, until the epoch ends."""
    whole = list(MAKERS["distributed"](1, 0))
    seen: list[int] = []
    state, before, size = None, 0, 0

    def make(replicas: int, rank: int) -> Any:
        return ps.DistributedSampler(range(N), replicas, rank, seed=5, drop_last=drop_last)

    for replicas, batch_size, steps in jobs:
        size = size if replicas == before else batch_size  # equally many ranks go on with the same batches
        before = replicas
        job = loaders(make, replicas, size) if state is None else resumed(make, replicas, state, size)
        walks = [iter(loader) for loader in job]
        for _ in range(steps):
            if len(seen) < N - replicas * size:
                seen += step(walks)
        state = job[-1].state_dict()
    rest = [iter(loader) for loader in resumed(make, before, state, size)]
    seen += drained(rest, is_uneven=drop_last == "uneven")

    least = len(whole) - (replicas - 1) * (drop_last is True)
    assert least <= len(seen) < len(whole) + replicas
    assert seen == (whole + whole)[: len(seen)]
    assert drop_last != "uneven" or len(seen) == len(whole)


def test_equal_ranks_go_on_batch_by_batch() -> None:
    """As ever: each rank with its own next batch, and a state that says so."""
    job = loaders(MAKERS["distributed"], 4)
    walks = [iter(loader) for loader in job]
    step(walks)
    again = [ps.DataLoader(loader.dataset, 3, sampler=loader.sampler, seed=1) for loader in job]
    for loader in again:
        loader.load_state_dict(job[0].state_dict())

    assert [epoch(loader) for loader in again] == [[frozen(batch) for batch in walk] for walk in walks]


def test_a_resumed_run_can_be_saved_before_its_first_batch() -> None:
    """The state of a loader that was only just loaded is where the other ranks were."""
    job = loaders(MAKERS["distributed"], 4)
    walks = [iter(loader) for loader in job]
    seen = step(walks)
    two = resumed(MAKERS["distributed"], 2, job[0].state_dict())
    three = resumed(MAKERS["distributed"], 3, two[1].state_dict())
    seen += drained([iter(loader) for loader in three])

    assert two[0].state_dict()["ranks"] == {"num_replicas": 2, "origin": 12}
    assert Counter(seen[:N]) == Counter(range(N))


def test_the_next_epoch_begins_at_its_start() -> None:
    """Where the epoch before was begun by others: whole, and the same as ever."""
    job = loaders(MAKERS["distributed"], 4)
    step([iter(loader) for loader in job])
    two = resumed(MAKERS["distributed"], 2, job[0].state_dict())
    drained([iter(loader) for loader in two])
    state = two[0].state_dict()
    second = drained([iter(loader) for loader in two])
    straight = loaders(MAKERS["distributed"], 1)
    drained([iter(straight[0])])

    assert (state["epoch"], state["ranks"]["origin"]) == (1, 0)
    assert second[:N] == drained([iter(straight[0])])


def test_at_the_end_nothing_is_left() -> None:
    """After the last batch, before StopIteration: any ranks resume to an epoch of no batches."""
    job = loaders(MAKERS["distributed"], 4)
    for loader in job:
        walk = iter(loader)
        for _ in range(len(loader)):
            next(walk)
    two = resumed(MAKERS["distributed"], 2, job[0].state_dict())

    assert [epoch(loader) for loader in two] == [[], []]


def test_samples_keep_their_random_numbers() -> None:
    """A sample's augmentation is its own: keyed by seed, epoch and index, on whichever of however many ranks."""

    def noise(job: list[ps.DataLoader]) -> dict[int, bytes]:
        walks: list[Any] = [walk for loader in job for walk in loader]
        return {int(x[0, 0]): n.tobytes() for batch in walks for x, n in zip(batch["x"], batch["noise"], strict=True)}

    def ranks(replicas: int) -> list[ps.DataLoader]:
        return [
            ps.DataLoader(Rows(N), 5, sampler=MAKERS["distributed"](replicas, rank), seed=3) for rank in range(replicas)
        ]

    four, two = ranks(4), ranks(2)
    next(iter(four[0]))
    for loader in two:
        loader.load_state_dict(four[0].state_dict())
    after, whole = noise(two), noise(ranks(1))

    assert N - 20 <= len(after) <= N - 18
    assert all(whole[index] == found for index, found in after.items())


def test_pickling_a_resumed_loader_keeps_its_origin() -> None:
    """A loader sent elsewhere in the middle of an elastic epoch goes on there."""
    job = loaders(MAKERS["distributed"], 4)
    walks = [iter(loader) for loader in job]
    step(walks)
    (one,) = resumed(MAKERS["distributed"], 1, job[0].state_dict())
    walk = iter(one)
    next(walk)
    copy = pickle.loads(pickle.dumps(one))

    assert epoch(copy) == [frozen(batch) for batch in walk]


# ranks with unequal numbers of samples, and with samples that are left out


@pytest.mark.parametrize(("replicas", "batch_size"), [(4, 8), (3, 10), (5, N)])
def test_uneven_ranks_resume_anywhere(replicas: int, batch_size: int) -> None:
    """A state of any rank, after any step of all, leaves what no rank has had: for any number of ranks, each once."""

    def make(replicas: int, rank: int) -> Any:
        return ps.DistributedSampler(range(N), replicas, rank, seed=5, drop_last="uneven")

    job = loaders(make, replicas, batch_size)
    walks, seen = [iter(loader) for loader in job], []
    for number in range(len(job[0])):
        taking = [rank for rank in range(replicas) if number < len(job[rank])]
        seen += [index for rank in taking for index in next(walks[rank])[0].tolist()]
        for state in (job[rank].state_dict() for rank in taking):
            for others in (1, 2, replicas):
                left = [walk for loader in resumed(make, others, state, batch_size) for walk in loader]

                assert sorted([*seen, *(index for batch in left for index in batch[0].tolist())]) == list(range(N))
    assert len({len(list(loader.sampler)) for loader in job}) == 2


@pytest.mark.parametrize("damage", [0, "8", None])
def test_a_damaged_batch_size_of_uneven_ranks_is_refused(damage: Any) -> None:
    """It says how far all ranks are, where the numbers of their samples differ."""

    def make(replicas: int, rank: int) -> Any:
        return ps.DistributedSampler(range(N), replicas, rank, seed=5, drop_last="uneven")

    state = loaders(make, 4, 8)[0].state_dict()
    state["order"]["batch_size"] = damage

    if damage == "8":
        with pytest.raises(StateError, match=r"order\.batch_size must be a positive int, got '8'"):
            resumed(make, 2, state)
    else:
        assert resumed(make, 2, state)


class Broken(ps.Dataset[int]):
    """Indices, of which some cannot be read."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        if index in {6, 8, 10, 50, 61}:
            raise OSError(f"cannot read {index}")
        return index


@pytest.mark.parametrize(("on_error", "steps"), [("skip", [16, 17]), ("replace", [17, 17])])
def test_what_is_left_out_moves_no_rank(on_error: str, steps: list[int]) -> None:
    """Positions count what was drawn: ranks stay in step, and any number of them resumes with all that can be read.

    A batch that is lost as a whole is the only step that one rank has less, and only with "skip".
    """

    def make(replicas: int, state: Any = None) -> list[ps.DataLoader]:
        job, data = [], Broken()
        for rank in range(replicas):
            sampler = ps.DistributedSampler(data, replicas, rank, shuffle=False)
            job.append(ps.DataLoader(data, 3, sampler=sampler, on_error=on_error, max_errors=9, seed=1))
            if state is not None:
                job[-1].load_state_dict(state)
        return job

    job = make(2)
    walks = [iter(loader) for loader in job]
    head = [[next(walk).tolist() for _ in range(6 - (17 - count))] for walk, count in zip(walks, steps, strict=True)]
    states = [loader.state_dict() for loader in job]
    rest = [[batch.tolist() for batch in walk] for walk in walks]
    resumed = [[batch.tolist() for batch in loader] for loader in make(3, states[1])]

    assert [len(a) + len(b) for a, b in zip(head, rest, strict=True)] == steps
    assert [(state["batches"], state["samples"]) for state in states] == [(6, 18), (6, 18)]
    for left in (rest, resumed):
        found = {index for batches in (*head, *left) for batch in batches for index in batch}
        assert found == set(range(N)) - {6, 8, 10, 50, 61}


# what is refused


def test_batches_beyond_a_gap_are_not_dealt_out_anew() -> None:
    """With in_order=False a rank may be ahead of itself, which others cannot make good: refused, with a way out."""
    state = loaders(MAKERS["distributed"], 4)[0].state_dict()
    state["ahead"] = [[2, 3]]

    with pytest.raises(StateError, match=r"4 ranks has batches beyond a gap.*resume on 4"):
        loaders(MAKERS["distributed"], 2)[0].load_state_dict(state)

    loaders(MAKERS["distributed"], 4)[0].load_state_dict(state)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([4], "num_replicas and origin"),
        ({"num_replicas": 4}, "num_replicas and origin"),
        ({"num_replicas": 0, "origin": 0}, "ranks.num_replicas must be a positive int"),
        ({"num_replicas": 4, "origin": -1}, "ranks.origin must be a non-negative int"),
        ({"num_replicas": True, "origin": 0}, "ranks.num_replicas"),
        ({"num_replicas": 4, "origin": "0"}, "ranks.origin"),
    ],
)
def test_damaged_ranks_are_refused(ranks: Any, text: str) -> None:
    """Nothing is guessed."""
    loader = loaders(MAKERS["distributed"], 4)[0]

    with pytest.raises(StateError, match=text):
        loader.load_state_dict({**loader.state_dict(), "ranks": ranks})


def test_equally_many_ranks_need_equal_batches() -> None:
    """Batches are counted then: another batch_size is another order, as for any sampler."""
    state = loaders(MAKERS["distributed"], 4, 3)[0].state_dict()

    with pytest.raises(StateError, match="batch_size=3, this loader has 4"):
        loaders(MAKERS["distributed"], 4, 4)[0].load_state_dict(state)

    loaders(MAKERS["distributed"], 3, 4)[0].load_state_dict(state)


def test_another_order_is_refused_for_other_ranks_too() -> None:
    """Only the number of ranks and what hangs on it may differ."""
    state = loaders(MAKERS["distributed"], 4)[0].state_dict()

    def other(replicas: int, rank: int) -> Any:
        return ps.DistributedSampler(range(N), replicas, rank, shuffle=False, seed=5)

    with pytest.raises(StateError, match=r"sampler\.shuffle=True, this loader has False"):
        loaders(other, 2)[0].load_state_dict(state)


# batches by bucket


def bucketed(replicas: int, **kwargs: Any) -> list[ps.DataLoader]:
    """One loader for each rank."""
    data = ps.ArrayDataset(np.arange(N))
    return [
        ps.DataLoader(
            data,
            batch_sampler=ps.BucketBatchSampler(
                SIZES, 4, num_buckets=3, num_replicas=replicas, rank=rank, run_length=12, seed=5
            ),
            seed=1,
            **kwargs,
        )
        for rank in range(replicas)
    ]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_buckets_resume_at_every_batch_in_constant_size(num_workers: int) -> None:
    """Seeked, not iterated: the state is a few numbers, and the tail is identical."""
    (straight,) = bucketed(1)
    whole = epoch(straight)
    for position in range(len(whole) + 1):
        (loader,) = bucketed(1, num_workers=num_workers)
        walk = iter(loader)
        for _ in range(position):
            next(walk)
        state = json.loads(json.dumps(loader.state_dict()))
        (fresh,) = bucketed(1)
        fresh.load_state_dict(state)

        assert state["sampler"] is None
        assert epoch(fresh) == whole[position:]


def test_buckets_are_dealt_out_to_other_ranks() -> None:
    """4 ranks, then 2, then 3: each sample once, but for the batches that the last step repeats."""
    seen: list[list[int]] = []
    state = None
    for replicas, steps in ((4, 2), (2, 3), (3, 99)):
        job = bucketed(replicas)
        for loader in job:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        walks = [iter(loader) for loader in job]
        for turn in itertools.islice(zip(*walks, strict=True), steps):
            seen += [batch[0].tolist() for batch in turn]
        state = job[0].state_dict()
    whole = [batch[0].tolist() for batch in bucketed(1)[0]]

    assert seen[: len(whole)] == whole
    assert seen[len(whole) :] == whole[: len(seen) - len(whole)]
    assert len(seen) - len(whole) < 3
    assert sorted(itertools.chain(*whole)) == list(range(N))


def test_buckets_of_another_run_length_are_refused() -> None:
    """Runs are part of the order; by default they are as long as there are ranks."""

    def loader(replicas: int) -> ps.DataLoader:
        sampler = ps.BucketBatchSampler(SIZES, 4, num_buckets=3, num_replicas=replicas, rank=0, seed=5)
        return ps.DataLoader(ps.ArrayDataset(np.arange(N)), batch_sampler=sampler)

    with pytest.raises(StateError, match=r"sampler\.run_length=4, this loader has 2"):
        loader(2).load_state_dict(loader(4).state_dict())


def test_a_sampler_that_iterates_in_its_own_way_is_iterated() -> None:
    """A subclass that overrides `__iter__` alone has the last word about its order, also when it resumes."""

    class Backwards(ps.RandomSampler):
        def __iter__(self) -> Any:
            return iter([*super().__iter__()][::-1])

    class Twice(ps.BucketBatchSampler):
        def __iter__(self) -> Any:
            return iter([batch * 2 for batch in super().__iter__()])

    data = ps.ArrayDataset(np.arange(N))
    makers: list[Callable[[], ps.DataLoader]] = [
        lambda: ps.DataLoader(data, 5, sampler=Backwards(range(N), seed=2)),
        lambda: ps.DataLoader(data, batch_sampler=Twice(SIZES, 4, num_buckets=2, seed=2)),
    ]
    for make, expected in zip(
        makers,
        ([*ps.RandomSampler(range(N), seed=2)][::-1][:5], next(iter(Twice(SIZES, 4, num_buckets=2, seed=2)))),
        strict=True,
    ):
        loader, fresh = make(), make()
        walk = iter(loader)
        first = next(walk)[0].tolist()
        fresh.load_state_dict(loader.state_dict())

        assert first == expected
        assert epoch(fresh) == [frozen(batch) for batch in walk]


# fingerprints


class Named(Samples):
    """Says which dataset it is."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self.name = name

    def fingerprint(self) -> str | None:
        """As the interface has it."""
        return self.name


@pytest.mark.parametrize("pair", [("a", "a"), ("a", None), (None, "b"), (None, None)])
def test_fingerprints_are_compared_where_both_sides_have_one(pair: tuple[str | None, str | None]) -> None:
    """A dataset that does not say which it is can be any."""
    before, after = (ps.DataLoader(Named(name), 8, seed=0) for name in pair)

    after.load_state_dict(before.state_dict())

    assert after.state_dict()["epoch"] == 0


def test_another_dataset_of_equal_length_is_refused() -> None:
    """By name, with both fingerprints; in wrappers too, and for another split by another seed."""
    wrappers: list[Callable[[Any], Any]] = [
        lambda d: d,
        lambda d: ps.Subset(d, [3, 1]),
        lambda d: ps.ConcatDataset([Samples(), d]),
        lambda d: ps.StackDataset(x=Samples(), y=d),
    ]
    for wrap in wrappers:
        state = ps.DataLoader(wrap(Named("a")), 8, seed=0).state_dict()
        with pytest.raises(StateError, match=r"fingerprint='.*', this loader has '.*'"):
            ps.DataLoader(wrap(Named("b")), 8, seed=0).load_state_dict(state)
    parts = [ps.random_split(Samples(), [30, 20], seed)[0] for seed in (1, 2)]

    with pytest.raises(StateError, match="fingerprint"):
        ps.DataLoader(parts[1], 8).load_state_dict(ps.DataLoader(parts[0], 8).state_dict())


def pictures(folder: Path, shade: int, names: str) -> Path:
    """A folder of two classes."""
    for number, name in enumerate(names):
        target = folder / "ab"[number % 2] / f"{name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), shade, np.uint8)).save(target)
    return folder


def test_stores_tell_themselves_apart(tmp_path: Path) -> None:
    """Folders by their names (a copy is the same folder), packs by their content (packed again, it is the same)."""
    one = pictures(tmp_path / "one", 10, "wxyz")
    copy = Path(shutil.copytree(one, tmp_path / "copy", copy_function=shutil.copyfile))
    other, shaded = pictures(tmp_path / "other", 10, "wxyv"), pictures(tmp_path / "shaded", 20, "wxyz")
    for folder in (one, copy, other, shaded):
        ps.pack(folder, folder.with_suffix(".lmdb"))

    def loader(path: Path) -> ps.DataLoader:
        return ps.DataLoader(ps.StoreDataset(ps.open(path), "label"), 2)

    loader(copy).load_state_dict(loader(one).state_dict())
    loader(copy.with_suffix(".lmdb")).load_state_dict(loader(one.with_suffix(".lmdb")).state_dict())
    for mine, theirs in (
        (one, other),
        *((one.with_suffix(".lmdb"), path.with_suffix(".lmdb")) for path in (other, shaded)),
    ):
        with pytest.raises(StateError, match="fingerprint"):
            loader(mine).load_state_dict(loader(theirs).state_dict())


def test_a_state_can_be_taken_when_the_store_is_closed(tmp_path: Path) -> None:
    """The run is over, the store is let go, and then the position is saved."""
    with ps.open(pictures(tmp_path, 10, "wxyz")) as store:
        loader = ps.DataLoader(ps.StoreDataset(store, "label"), 2)

    assert loader.state_dict()["order"]["fingerprint"]


class WithArray(Samples):
    """A dataset whose state holds an array, which has no single truth value."""

    def state_dict(self) -> Any:
        """The same on every rank."""
        return {"seen": np.arange(3)}

    def load_state_dict(self, state: Any) -> None:
        """Nothing to restore."""


def test_states_with_arrays_are_merged() -> None:
    """The states of all ranks of a map-style dataset serve as one, whatever they hold."""
    samplers = [ps.DistributedSampler(range(20), 2, rank, seed=0) for rank in range(2)]
    ranks = [ps.DataLoader(WithArray(20), 2, sampler=sampler, seed=0) for sampler in samplers]
    walks = [iter(loader) for loader in ranks]
    for walk in walks:
        next(walk)

    merged = ps.merge_states([loader.state_dict() for loader in ranks])
    rest = [[batch["y"][0].tolist() for batch in walk] for walk in walks]

    for loader, batches in zip(ranks, rest, strict=True):
        loader.load_state_dict(merged)
        assert [batch["y"][0].tolist() for batch in loader] == batches
        assert len(batches) == 4
