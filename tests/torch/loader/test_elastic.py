"""penstock.torch.DataLoader's states on other numbers of ranks, and of other datasets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import StateError  # noqa: E402  # as above
from tests.torch.streams import Filled, Plain  # noqa: E402  # as above

N = 97
SIZES = np.random.default_rng(0).integers(1, 9, N)

MAKERS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "distributed": lambda replicas, rank: {"sampler": ps.DistributedSampler(range(N), replicas, rank, seed=5)},
    "weighted": lambda replicas, rank: {
        "sampler": pt.DistributedWeightedSampler(1 + SIZES, N, num_replicas=replicas, rank=rank, seed=5)
    },
    "class-balanced": lambda replicas, rank: {
        "sampler": pt.ClassBalancedSampler(SIZES, N, num_replicas=replicas, rank=rank, seed=5)
    },
    "repeat-factor": lambda replicas, rank: {
        "sampler": pt.RepeatFactorSampler(SIZES, 0.2, num_replicas=replicas, rank=rank, seed=5)
    },
    "buckets": lambda replicas, rank: {
        "batch_size": 1,
        "batch_sampler": pt.BucketBatchSampler(
            SIZES, 3, num_buckets=3, num_replicas=replicas, rank=rank, run_length=12, seed=5
        ),
    },
}


UNEVEN: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "uneven": lambda replicas, rank: {
        "batch_size": 8,
        "sampler": ps.DistributedSampler(range(N), replicas, rank, seed=5, drop_last="uneven"),
    },
    "uneven-buckets": lambda replicas, rank: {
        "batch_size": 1,
        "batch_sampler": pt.BucketBatchSampler(
            SIZES, 7, num_buckets=3, num_replicas=replicas, rank=rank, run_length=2, uneven="keep", seed=5
        ),
    },
}


def job(name: str, replicas: int, state: Any = None, **more: Any) -> list[Any]:
    """The loaders of all ranks, each with the one state that somebody kept as JSON."""
    loaders = [
        pt.DataLoader(Filled(N), **{"batch_size": 3, **(MAKERS | UNEVEN)[name](replicas, rank), "seed": 2, **more})
        for rank in range(replicas)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
    return loaders


def turns(walks: list[Any], steps: int | None, unit: str) -> list[Any]:
    """What comes in so many steps of the job, in the job's order: ranks take turns, sample by sample or by batches."""
    drawn = [
        [[(int(x[0]), n.tolist()) for x, n in zip(batch["x"], batch["noise"], strict=True)] for batch in batches]
        for batches in (list(itertools.islice(walk, steps)) for walk in walks)
    ]
    if unit == "batches":
        return [sample for turn in zip(*drawn, strict=True) for batch in turn for sample in batch]
    flat = [[sample for batch in batches for sample in batch] for batches in drawn]
    return [sample for turn in zip(*flat, strict=True) for sample in turn]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_four_ranks_then_two_then_three(name: str, num_workers: int) -> None:
    """The job's order goes on as it was, with each sample's own random numbers; the last step may repeat some."""
    unit = "batches" if name == "buckets" else "samples"
    seen: list[Any] = []
    state = None
    for replicas, steps in ((4, 3), (2, 5), (3, None)):
        loaders = job(name, replicas, state, num_workers=num_workers)
        seen += turns([iter(loader) for loader in loaders], steps, unit)
        states = [loader.state_dict()["penstock"] for loader in loaders]
        state = loaders[0].state_dict()
        assert all(each[field] == states[0][field] for each in states for field in ("batches", "ranks", "order"))
    whole = turns([iter(job(name, 1)[0])], None, unit)

    assert seen[: len(whole)] == whole
    assert len(seen) - len(whole) < 9
    assert seen[len(whole) :] == whole[: len(seen) - len(whole)]


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_ranks_resume_anywhere(name: str) -> None:
    """A state of any rank, after any step of all, leaves what no rank has had: for any number of ranks, each once."""
    ranks = job(name, 4)
    walks, seen = [iter(loader) for loader in ranks], []
    for number in range(len(ranks[0])):
        taking = [rank for rank in range(4) if number < len(ranks[rank])]
        seen += [index for rank in taking for index in next(walks[rank])["x"][:, 0].tolist()]
        for state in (ranks[rank].state_dict() for rank in (taking[0], taking[-1])):
            for others in (1, 3, 4):
                left = [batch["x"][:, 0].tolist() for loader in job(name, others, state) for batch in loader]

                assert sorted([*seen, *itertools.chain(*left)]) == list(range(N))
    assert len({len(loader) for loader in ranks}) == 2


def test_the_next_epoch_is_whole() -> None:
    """Where the epoch before was begun by others."""
    four = job("distributed", 4)
    turns([iter(loader) for loader in four], 2, "samples")
    two = job("distributed", 2, four[0].state_dict())
    turns([iter(loader) for loader in two], None, "samples")
    state = two[0].state_dict()
    second = turns([iter(loader) for loader in two], None, "samples")
    one = job("distributed", 1)[0]
    turns([iter(one)], None, "samples")

    assert state["penstock"]["ranks"] == {"num_replicas": 2, "origin": 24}
    assert second[:N] == turns([iter(one)], None, "samples")
    assert turns([iter(loader) for loader in job("distributed", 3, state)], None, "samples")[:N] == second[:N]


def test_a_resumed_run_can_be_saved_before_its_first_batch() -> None:
    """The state of a loader that was only just loaded, or begun, is where the other ranks were."""
    four = job("distributed", 4)
    seen = turns([iter(loader) for loader in four], 2, "samples")
    two = job("distributed", 2, four[0].state_dict())
    loaded = two[0].state_dict()
    iter(two[0])
    for state in (loaded, two[0].state_dict()):
        rest = turns([iter(loader) for loader in job("distributed", 3, state)], None, "samples")

        assert sorted(index for index, _ in (seen + rest)[:N]) == list(range(N))


def test_buckets_are_seeked_and_their_state_is_small() -> None:
    """Batches resume at any position, in any worker, without being drawn again."""
    whole = turns([iter(job("buckets", 1)[0])], None, "batches")
    for position in (0, 1, 7, 32):
        (loader,) = job("buckets", 1)
        walk = iter(loader)
        before = turns([walk], position, "batches")
        (other,) = job("buckets", 1, loader.state_dict(), num_workers=2)

        assert before + turns([iter(other)], None, "batches") == whole
        assert len(json.dumps(loader.state_dict())) < 40_000


def test_another_order_is_refused_for_other_ranks_too() -> None:
    """Only the number of ranks and what hangs on it may differ; equally many ranks need equal batches."""
    loader = job("distributed", 4)[0]
    iter(loader)
    state = loader.state_dict()

    with pytest.raises(StateError, match=r"sampler\.type='DistributedSampler', this loader has"):
        job("weighted", 2, state)
    with pytest.raises(StateError, match="batch_size=3, this loader has 5"):
        job("distributed", 4, state, batch_size=5)
    with pytest.raises(StateError, match="seed=2, this loader has 3"):
        job("distributed", 2, state, seed=3)

    job("distributed", 3, state, batch_size=5)


class Named(Filled):
    """Says which dataset it is, and how often it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.asked = name, 0

    def fingerprint(self) -> str:
        """As the interface has it."""
        self.asked += 1
        return self.name


@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: d,
        lambda d: torch.utils.data.Subset(d, [3, 1]),
        lambda d: torch.utils.data.ConcatDataset([Filled(), d]),
        lambda d: pt.Subset(d, [3, 1]),
    ],
)
def test_another_dataset_of_equal_length_is_refused(wrap: Any) -> None:
    """By name, with both fingerprints, in torch's wrappers too; a dataset is asked once."""
    named = Named("a")
    loader: Any = pt.DataLoader(wrap(named), 1)
    for _ in loader:
        loader.state_dict()

    with pytest.raises(StateError, match=r"fingerprint='.*', this loader has '.*'"):
        pt.DataLoader(wrap(Named("b")), 1).load_state_dict(loader.state_dict())

    pt.DataLoader(wrap(Named("a")), 1).load_state_dict(loader.state_dict())
    assert named.asked == 1


def test_samplers_that_iterate_in_their_own_way_are_iterated() -> None:
    """A subclass that overrides `__iter__` alone has the last word about its order, also when it resumes."""

    class Backwards(ps.RandomSampler):
        def __iter__(self) -> Any:
            return iter([*super().__iter__()][::-1])

    loader, fresh = (pt.DataLoader(Filled(N), 5, sampler=Backwards(range(N), seed=2)) for _ in range(2))
    walk = iter(loader)
    first = next(walk)["x"][:, 0].tolist()
    fresh.load_state_dict(loader.state_dict())

    assert first == [*ps.RandomSampler(range(N), seed=2)][::-1][:5]
    assert [batch["x"].tolist() for batch in fresh] == [batch["x"].tolist() for batch in walk]


def test_streams_have_no_ranks() -> None:
    """Nothing is dealt out where the dataset itself decides."""
    assert pt.DataLoader(Plain(), 2).state_dict()["penstock"]["ranks"] is None


def test_a_state_of_one_rank_resumes_the_others_with_the_sampler_of_torch() -> None:
    """As Lightning resumes, which keeps the state of rank 0; another number of ranks is refused."""

    def make(rank: int, num_replicas: int = 2) -> Any:
        sampler = torch.utils.data.DistributedSampler(range(N), num_replicas, rank)
        return pt.DataLoader(range(N), 4, sampler=sampler)

    one, other = make(0), make(1)
    iterator, whole = iter(one), [batch.tolist() for batch in other]
    for _ in range(3):
        next(iterator)
    state = one.state_dict()

    again = make(1)
    again.load_state_dict(state)

    assert [batch.tolist() for batch in again] == whole[3:]
    with pytest.raises(StateError, match="length=49, this loader has 33"):
        make(1, 3).load_state_dict(state)
