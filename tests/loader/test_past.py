"""From a step back to its samples: those that the loader gives there, to the bit; asking changes nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from conftest import photographs
from penstock import transforms as T
from tests.loader.fakes import Samples, Stream

OPS = [T.Decode(), T.RandomResizedCrop(24), T.HorizontalFlip(), T.ColorJitter(0.2, 0.2), T.ToLayout("CHW", "float32")]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ps.StoreDataset:
    """Forty photographs of two classes, cropped and flipped."""
    folder = tmp_path_factory.mktemp("past") / "photos"
    photographs(folder, per_class=20)
    return ps.StoreDataset(folder, ("image", "label"), OPS)


def mixture(photos: ps.StoreDataset) -> Any:
    """Two halves, one drawn three times as often."""
    halves = {"a": ps.Subset(photos, range(20)), "b": ps.Subset(photos, range(20, 40))}
    return ps.Mixture(halves, weights={"a": 3, "b": 1})


ORDERS: dict[str, Callable[[ps.StoreDataset], dict[str, Any]]] = {
    "shuffled": lambda photos: {"dataset": photos, "shuffle": True, "num_workers": 2},
    "drop_last": lambda photos: {"dataset": photos, "shuffle": True, "batch_size": 7, "drop_last": True},
    "second of three ranks": lambda photos: {
        "dataset": photos, "sampler": ps.DistributedSampler(photos, 3, 1, seed=4), "num_workers": 2
    },
    "weighted": lambda photos: {
        "dataset": photos, "sampler": ps.DistributedWeightedSampler([1.0, 3.0] * 20, 40, num_replicas=2, rank=1, seed=1)
    },
    "mixture": lambda photos: {"dataset": mixture(photos), "shuffle": True, "num_workers": 2},
    "batches": lambda photos: {"dataset": photos, "batch_size": 1, "batch_sampler": [[3, 4], [1, 0, 2], [39]]},
    "processes": lambda photos: {"dataset": photos, "shuffle": True, "num_workers": 1, "workers": "processes"},
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_the_samples_of_every_step_are_those_of_the_loader_to_the_bit(photos: ps.StoreDataset, name: str) -> None:
    """In five epochs, whatever draws the order and builds the samples: over a thousand crops in all."""
    loader = ps.DataLoader(**{"batch_size": 8, "seed": 3, **ORDERS[name](photos)})

    batches = [batch for _ in range(5) for batch in loader]

    for step, (images, labels) in enumerate(batches):
        samples = loader.samples_of(step)
        assert len(samples) == len(labels)
        for image, label, sample in zip(images, labels, samples, strict=True):
            again = sample.load()
            assert np.array_equal(again[0], image)
            assert again[1] == label
            assert sample.key.partition("/")[0] == ("cat", "dog")[label]
            assert sample.record is not None
            assert photos.store.keys()[sample.record] == sample.key
    loader.close()


def test_draws_are_those_of_the_ops(photos: ps.StoreDataset) -> None:
    """The window of the crop gives the image again."""
    plain = ps.StoreDataset(photos.store, ("image", "label"), [T.Decode(), T.RandomCrop(20), T.RandomCrop(9)])
    loader = ps.DataLoader(plain, 8, shuffle=True, seed=3)

    for sample in loader.samples_of(7):
        drawn = sample.draws()
        assert list(drawn) == ["RandomCrop", "RandomCrop 2"]
        (left, top, *size), (x, y, *_) = (list(map(int, each)) for each in drawn.values())
        assert size == [20, 20]
        assert sample.record is not None
        whole = ps.decode(photos.store[sample.record].fields["image"])
        assert np.array_equal(sample.load()[0], whole[top + y : top + y + 9, left + x : left + x + 9])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_asking_between_two_batches_changes_nothing(photos: ps.StoreDataset, num_workers: int) -> None:
    """Neither the batches that follow, nor the state, nor global generators."""
    quiet, asked = (ps.DataLoader(photos, 8, shuffle=True, seed=3, num_workers=num_workers) for _ in range(2))
    np.random.seed(1)  # noqa: NPY002  # the global one

    for expected, got in zip((b for _ in range(2) for b in quiet), (b for _ in range(2) for b in asked), strict=True):
        for step in (0, 3, 99):
            asked.samples_of(step)[0].draws()
        assert np.array_equal(expected[0], got[0])
        assert quiet.state_dict() == asked.state_dict()

    assert np.random.random() == np.random.RandomState(1).random()  # noqa: NPY002  # as above


def test_a_loaded_state_has_the_steps_before_and_after_it(photos: ps.StoreDataset) -> None:
    """The seed is the state's."""
    loader = ps.DataLoader(photos, 8, shuffle=True)
    for _ in zip(range(2), loader, strict=False):
        pass
    resumed = ps.DataLoader(photos, 8, shuffle=True)

    resumed.load_state_dict(loader.state_dict())

    for step in range(12):
        assert resumed.samples_of(step) == loader.samples_of(step)


def test_a_rank_knows_the_samples_of_every_other(photos: ps.StoreDataset) -> None:
    """From the loader of one, those of all."""
    loaders = [
        ps.DataLoader(photos, 4, sampler=ps.DistributedSampler(photos, 3, rank, seed=1), seed=2) for rank in range(3)
    ]

    for rank, loader in enumerate(loaders):
        assert loaders[0].samples_of(5, rank=rank) == loader.samples_of(5)
        assert {sample.rank for sample in loader.samples_of(5)} == {rank}


def test_an_epoch_that_other_ranks_began_is_counted_from_where_they_stopped(photos: ps.StoreDataset) -> None:
    """As the state counts it."""

    def make(ranks: int) -> Any:
        return ps.DataLoader(photos, 4, sampler=ps.DistributedSampler(photos, ranks, 0, seed=1), seed=2)

    first, second = make(4), make(2)
    next(iter(first))
    second.load_state_dict(first.state_dict())

    batches = list(second)

    for number, (images, _) in enumerate(batches):
        for image, sample in zip(images, second.samples_of(number, epoch=0), strict=True):
            assert np.array_equal(sample.load()[0], image)
    second.load_state_dict(first.state_dict())
    with pytest.raises(ps.errors.ArgumentError, match="another number of ranks has begun epoch 0: give epoch="):
        second.samples_of(0)


class Many(Samples):
    """A billion samples."""

    def __init__(self) -> None:
        super().__init__(10**9)


@pytest.mark.parametrize("kind", ["ranks", "mixture"])
def test_a_billion_samples_are_not_listed(kind: str) -> None:
    """The step of one of 64 ranks takes memory for some blocks of indices, not for a list of them."""
    dataset: Any = Many()
    sampler: Any = ps.DistributedSampler(dataset, 64, 3, seed=1)
    if kind == "mixture":
        dataset = ps.Mixture({"a": Many(), "b": Many()}, weights={"a": 3, "b": 1})
        sampler = dataset.make_sampler(seed=1, num_replicas=64, rank=3)
    loader = ps.DataLoader(dataset, 256, sampler=sampler, seed=5)
    tracemalloc.start()

    samples = loader.samples_of(81_234, rank=63)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len({sample.index for sample in samples}) == 256
    assert (samples[0].epoch, samples[0].rank) == (81_234 // len(loader), 63)
    assert peak < 64 << 20


class Shuffled:
    """An order that only iterating tells."""

    def __iter__(self) -> Any:
        return iter([2, 0, 1])

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("make", "asked", "message"),
    [
        (lambda: ps.DataLoader(Samples(), 8), {"step": -1}, "step should be a non-negative integer value"),
        (lambda: ps.DataLoader(Samples(), 8), {"step": 7, "epoch": 2}, "epoch 2 of rank 0 has no batch 7"),
        (lambda: ps.DataLoader(Samples(), 8), {"step": 0, "rank": 1}, "rank must be 0, that of SequentialSampler"),
        (lambda: ps.DataLoader(Samples(0), 8), {"step": 0}, "the loader has no batches"),
        (lambda: ps.DataLoader(Stream(), 8), {"step": 0}, "is a stream"),
        (lambda: ps.DataLoader(Samples(), 8, sampler=Shuffled()), {"step": 0}, "Shuffled: it has to be iterated"),
        (
            lambda: ps.DataLoader(Samples(), 8, sampler=ps.DistributedSampler(Samples(), 2, 0)),
            {"step": 0, "rank": 2},
            r"Invalid rank 2, rank should be in the interval \[0, 1\]",
        ),
    ],
)
def test_what_cannot_be_computed_is_an_error(make: Callable[[], Any], asked: dict[str, Any], message: str) -> None:
    """It says why, and what could be done."""
    with pytest.raises(ps.errors.ArgumentError, match=message):
        make().samples_of(**asked)


def test_samples_of_a_step_are_drawn_as_a_sheet(photos: ps.StoreDataset, tmp_path: Path) -> None:
    """``ps.show`` takes them."""
    loader = ps.DataLoader(photos, 8, shuffle=True, seed=3)

    sheet = ps.show(loader.samples_of(7), output=tmp_path / "sheet.png")

    assert (tmp_path / "sheet.png").is_file()
    assert sheet.width > 4 * 320
