"""From a step back to its samples, with torch's order: drawn again from copies, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, WeightedRandomSampler

import penstock as ps
import penstock.torch as pt
from conftest import photographs
from penstock import transforms as T

OPS = [T.Decode(), T.RandomResizedCrop(24), T.HorizontalFlip(), T.ToLayout("CHW", "float32")]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ps.StoreDataset:
    """Twenty-four photographs, cropped and flipped."""
    folder = tmp_path_factory.mktemp("past") / "photos"
    photographs(folder, per_class=12)
    return ps.StoreDataset(folder, ("image", "label"), OPS)


def generator(seed: int = 3) -> torch.Generator:
    """A generator with a seed."""
    return torch.Generator().manual_seed(seed)


ORDERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "seed": lambda _: {"shuffle": True, "seed": 3},
    "threads": lambda _: {"shuffle": True, "seed": 3, "num_workers": 2},
    "processes": lambda _: {"shuffle": True, "seed": 3, "num_workers": 1, "workers": "processes"},
    "persistent": lambda _: {"shuffle": True, "seed": 3, "num_workers": 2, "persistent_workers": True},
    "generator": lambda _: {"shuffle": True, "generator": generator()},
    "penstock's sampler": lambda photos: {"sampler": ps.RandomSampler(photos, seed=1), "seed": 3},
    "without a seed": lambda photos: {"sampler": ps.RandomSampler(photos, seed=1), "generator": generator()},
    "ranks": lambda photos: {"sampler": ps.DistributedSampler(photos, 2, 1, seed=4), "seed": 3},
    "torch's ranks": lambda photos: {"sampler": DistributedSampler(photos, 2, 1, seed=4), "seed": 3},
    "list": lambda _: {"sampler": [5, 3, 1, 2, 0, 7, 9, 11, 13], "seed": 3},
    "weighted": lambda _: {"sampler": WeightedRandomSampler([1.0] * 24, 20, generator=generator(9)), "seed": 3},
}


def indices(loader: Any, step: int, **more: Any) -> list[Any]:
    """What the sampler drew for a step."""
    return [sample.index for sample in loader.samples_of(step, **more)]


@pytest.mark.parametrize("name", ORDERS)
def test_the_samples_of_every_step_are_those_of_the_loader_to_the_bit(photos: Any, name: str) -> None:
    """Asked in the middle of each epoch and at its end, for all steps before, of this epoch and of others."""

    def make() -> Any:
        return pt.DataLoader(photos, 5, **ORDERS[name](photos))

    loader, batches = make(), []
    for epoch in range(3):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            batches.append(batch)
            if number not in {1, len(loader) - 1}:
                continue
            for step, (images, labels) in enumerate(batches):
                samples = loader.samples_of(step)
                for image, label, sample in zip(images, labels, samples, strict=True):
                    again = sample.load() if step % 2 else None
                    assert again is None or np.array_equal(again[0], image.numpy())
                    assert photos.store.keys()[sample.index].startswith(("cat", "dog")[label])

    resumed, state = make(), loader.state_dict()
    resumed.load_state_dict(state)
    for step in range(len(batches)):
        assert resumed.samples_of(step) == loader.samples_of(step)
    coming = [resumed.samples_of(len(batches) + number) for number in range(len(loader))]
    if hasattr(resumed.sampler, "set_epoch"):
        resumed.sampler.set_epoch(3)
    for (images, _), samples in zip(resumed, coming, strict=True):
        for image, sample in zip(images, samples, strict=True):
            assert np.array_equal(sample.load()[0], image.numpy())
    for each in (loader, resumed):
        each.close()


def test_asking_between_two_batches_changes_nothing(photos: Any) -> None:
    """Neither the batches that follow, nor the state, nor any generator."""
    quiet, asked = (pt.DataLoader(photos, 5, shuffle=True, generator=generator()) for _ in range(2))

    for expected, got in zip((b for _ in range(3) for b in quiet), (b for _ in range(3) for b in asked), strict=True):
        before = torch.get_rng_state()
        asked.samples_of(0)[0].draws()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(expected[0], got[0])
        assert quiet.state_dict() == asked.state_dict()


def test_the_epoch_of_a_state_is_known_without_a_seed(photos: Any) -> None:
    """torch's global generator, as it was when the epoch began, is in the state; that of others is not."""
    loader: Any = pt.DataLoader(photos, 5, shuffle=True)
    list(loader)
    first = next(iter(loader))
    resumed: Any = pt.DataLoader(photos, 5, shuffle=True)
    resumed.load_state_dict(loader.state_dict())

    samples = resumed.samples_of(0, epoch=1)

    assert np.array_equal(np.stack([sample.load()[0] for sample in samples]), first[0].numpy())
    for epoch in (0, 2):
        with pytest.raises(ps.errors.ArgumentError, match="was drawn from torch's global generator; load a state"):
            resumed.samples_of(0, epoch=epoch)


def test_a_generator_that_others_draw_from_is_no_wrong_answer(photos: Any) -> None:
    """The epochs before must lead to where the loader is now."""
    shared = generator()
    torch.utils.data.random_split(photos, [12, 12], generator=shared)
    loader: Any = pt.DataLoader(photos, 5, shuffle=True, generator=shared)
    before = indices(loader, 0)
    list(loader)
    list(loader)

    with pytest.raises(ps.errors.ArgumentError, match="somebody else drew from the loader's generator"):
        loader.samples_of(0)

    assert indices(loader, 0, epoch=1) != before


def test_an_epoch_that_was_left_early_is_no_wrong_answer(photos: Any) -> None:
    """What a whole epoch would have drawn was not drawn."""
    loader: Any = pt.DataLoader(photos, 5, shuffle=True, seed=3)
    for _ in range(3):
        next(iter(loader))

    with pytest.raises(ps.errors.ArgumentError, match="an epoch was left before its end"):
        loader.samples_of(0)


class Own(torch.utils.data.Sampler[int]):
    """An order that only iterating tells."""

    def __iter__(self) -> Any:
        return iter([1, 0])

    def __len__(self) -> int:
        return 2


class Numbers(torch.utils.data.IterableDataset[int]):
    """A stream."""

    def __iter__(self) -> Any:
        return iter(range(3))


def test_what_cannot_be_computed_is_an_error(photos: Any) -> None:
    """It says why, and what could be done."""
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (pt.DataLoader(photos, 5, sampler=Own()), {}, "Own: nothing says what it draws from; use a sampler of"),
        (pt.DataLoader(Numbers(), 5), {}, "Numbers is a stream"),
        (pt.DataLoader(photos, 5, shuffle=True, seed=1), {"epoch": 10**12}, "indices would have to be drawn"),
        (pt.DataLoader(photos, 5, shuffle=True, seed=1), {"rank": 1}, "rank must be 0, that of RandomSampler"),
        (pt.DataLoader(photos, 5, seed=1), {"epoch": 1, "step": 5}, "epoch 1 of rank 0 has no batch 5"),
    ]

    for loader, asked, message in cases:
        with pytest.raises(ps.errors.ArgumentError, match=message):
            loader.samples_of(**{"step": 0, **asked})
