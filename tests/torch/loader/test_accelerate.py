"""Accelerate builds loaders of its own out of the attributes of ours, or keeps ours where it was adopted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

import penstock as ps  # noqa: E402  # they are there now
import penstock.torch as pt  # noqa: E402  # as above
from tests.effort import mark_slow  # noqa: E402  # as above

TORCHS = torch.utils.data.DataLoader


class Numbers(pt.Dataset[Any]):
    """Each index as a tensor."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


class Stream(pt.IterableDataset[Any]):
    """22 numbers, one after the other."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(22))


def filling() -> ps.ArrayDataset:
    """The same numbers as a dataset that fills rows."""
    return ps.ArrayDataset(np.arange(22))


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test begins without."""
    yield
    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


def values(loader: Any) -> list[list[int]]:
    """The numbers of each batch of an epoch."""
    return [(batch[0] if isinstance(batch, list | tuple) else batch).tolist() for batch in loader]


def prepared(accelerator: Any, kind: Any, dataset: Any, **more: Any) -> Any:
    """A loader that went through ``prepare``, under one seed."""
    torch.manual_seed(0)
    return accelerator.prepare(kind(dataset, 4, **more))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", [Numbers, filling])
def test_prepared_loaders_give_the_same_batches(make: Any, num_workers: int) -> None:
    """``prepare`` finds every attribute it looks for, and two epochs are those of torch's loader prepared."""
    accelerator = accelerate.Accelerator(cpu=True)

    theirs, ours = (
        (values(loader), values(loader))
        for kind in (TORCHS, pt.DataLoader)
        for loader in [prepared(accelerator, kind, make(), shuffle=True, num_workers=num_workers)]
    )

    assert sorted(itertools.chain(*ours[0])) == list(range(22))
    assert ours == theirs


def test_a_prepared_loader_is_torchs_until_it_is_adopted() -> None:
    """What Accelerate builds is a loader of torch's class; ``adopt`` exchanges it within the wrapper."""
    accelerator = accelerate.Accelerator(cpu=True)
    wrapper = prepared(accelerator, pt.DataLoader, Numbers(), num_workers=1, timeout=9, prefetch_factor=3)
    before = type(wrapper.base_dataloader)

    adopted = pt.adopt(wrapper, seed_per_sample=True)

    assert before is TORCHS
    assert adopted is wrapper
    inside = adopted.base_dataloader
    assert isinstance(adopted, pt.DataLoader)
    assert type(inside) is pt.DataLoader
    assert (inside.num_workers, inside.timeout, inside.prefetch_factor, inside.seed_per_sample) == (1, 9, 3, True)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", [Numbers, filling, Stream])
def test_an_adopted_loader_gives_the_same_batches(make: Any, num_workers: int) -> None:
    """Order, epochs and the end of each are what Accelerate's own loader has."""
    accelerator = accelerate.Accelerator(cpu=True)
    more = {"shuffle": None if make is Stream else True, "num_workers": num_workers}
    loader = prepared(accelerator, TORCHS, make(), **more)
    theirs = values(loader), values(loader)

    adopted = pt.adopt(prepared(accelerator, pt.DataLoader, make(), **more))
    ours = values(adopted), values(adopted)

    assert ours == theirs
    assert adopted.end_of_dataloader
    assert adopted.remainder == loader.remainder


@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("index", [0, 1])
def test_two_processes_share_out_the_batches(index: int, num_workers: int, *, seedable: bool) -> None:
    """Accelerate's batch sampler for one of two processes works in our loader as in torch's."""
    parts = []
    for kind in (TORCHS, pt.DataLoader):
        torch.manual_seed(0)
        loader = accelerate.data_loader.prepare_data_loader(
            kind(Numbers(), 4, shuffle=True, num_workers=num_workers),
            num_processes=2, process_index=index, use_seedable_sampler=seedable, data_seed=3,
        )  # fmt: skip
        parts.append(values(loader if kind is TORCHS else pt.adopt(loader)))

    assert [len(batch) for batch in parts[0]] == [4, 4, 4]
    assert parts[1] == parts[0]


def test_the_first_batches_are_skipped() -> None:
    """``skip_first_batches`` of an adopted loader leaves out so many, and can be adopted again."""
    accelerator = accelerate.Accelerator(cpu=True)
    whole = values(pt.adopt(prepared(accelerator, pt.DataLoader, Numbers(), shuffle=True)))
    adopted = pt.adopt(prepared(accelerator, pt.DataLoader, Numbers(), shuffle=True))

    skipping = accelerator.skip_first_batches(adopted, 2)
    again = pt.adopt(skipping, num_workers=1)
    rest = values(again)

    assert rest == whole[2:]


@pytest.mark.parametrize(
    ("epoch", "num_workers", "seedable"),
    mark_slow(
        itertools.product((0, 1), (0, 2), (False, True)),
        [(0, 0, False), (0, 0, True), (1, 0, False), (1, 0, True), (0, 2, True), (1, 2, False)],
    ),
)
def test_a_run_is_saved_and_goes_on(epoch: int, num_workers: int, tmp_path: Path, *, seedable: bool) -> None:
    """``save_state`` and ``load_state`` keep an adopted loader's place, to the batch, without torchdata."""
    config = accelerate.utils.DataLoaderConfiguration(use_seedable_sampler=seedable)

    def begin() -> tuple[Any, Any]:
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
        accelerator._dataloaders.clear()
        loader = pt.adopt(prepared(accelerator, pt.DataLoader, Numbers(), shuffle=True, num_workers=num_workers))
        loader.set_epoch(epoch)
        return accelerator, loader

    accelerator, loader = begin()
    batches = iter(loader)
    seen = [next(batches).tolist() for _ in range(3)]
    accelerator.save_state(str(tmp_path))
    rest, second = [batch.tolist() for batch in batches], values(loader)
    accelerator, loader = begin()
    torch.manual_seed(5)
    accelerator.load_state(str(tmp_path))

    assert sorted(itertools.chain(*seen, *rest)) == list(range(22))
    assert values(loader) == rest
    assert values(loader) == second


def test_a_stream_is_saved_and_goes_on(tmp_path: Path) -> None:
    """Likewise for a stream, which one process reads."""
    accelerator = accelerate.Accelerator(cpu=True)
    loader = pt.adopt(prepared(accelerator, pt.DataLoader, Stream()))
    batches = iter(loader)
    next(batches), next(batches)
    accelerator.save_state(str(tmp_path))
    rest = [batch.tolist() for batch in batches]
    accelerator._dataloaders.clear()

    again = pt.adopt(prepared(accelerator, pt.DataLoader, Stream()))
    accelerator.load_state(str(tmp_path))

    assert rest[0] == [8, 9, 10, 11]
    assert values(again) == rest


def test_state_may_be_asked_for_before_the_first_batch(tmp_path: Path) -> None:
    """A state that is saved before anything is read is a fresh start; no worker is started for it."""
    accelerator = accelerate.Accelerator(cpu=True)
    loader = pt.adopt(prepared(accelerator, pt.DataLoader, Numbers(), num_workers=1))

    accelerator.save_state(str(tmp_path))
    accelerator.load_state(str(tmp_path))

    assert loader.base_dataloader._newest is None
    assert values(loader)[0] == [0, 1, 2, 3]


class Drawn(Numbers):
    """Each index with a number of torch's global generator."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index), torch.rand(())


def test_the_batch_that_was_read_ahead_is_built_again_as_it_was() -> None:
    """The wrapper reads a batch before a step draws; after a resume it is the same, and so are the step's draws."""

    def prepare() -> Any:
        return pt.adopt(accelerate.Accelerator(cpu=True).prepare(pt.DataLoader(Drawn(), 4, shuffle=True)))

    def take(batches: Iterator[Any]) -> list[Any]:
        return [(*(part.tolist() for part in batch), torch.rand(()).item()) for batch in batches]

    torch.manual_seed(3)
    loader = prepare()
    batches = iter(loader)
    take(itertools.islice(batches, 2))
    state, generator = loader.state_dict(), torch.get_rng_state()
    rest = take(batches)

    torch.manual_seed(4)
    again = prepare()
    again.load_state_dict(state)
    torch.set_rng_state(generator)  # as Accelerate and trainers do

    assert len(rest) == 4
    assert take(iter(again)) == rest
