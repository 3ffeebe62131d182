"""Accelerate: prepared loaders in one process and in two, skipped batches, saved states, pickles, dispatched batches.

``prepare`` makes loaders of its own. Of ours it makes torch's, unless the name is replaced or the result is adopted.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import accelerate
import accelerate.data_loader
import pytest
import torch
import torchdata.stateful_dataloader
from accelerate.utils import DataLoaderConfiguration

import penstock.torch as pt
from penstock.system.control_group import count_usable_cores
from tests.clients.harness import (
    EPOCHS,
    GIVEN,
    LOADINGS,
    REPLACED,
    TORCH,
    Loading,
    Net,
    Recording,
    Samples,
    assert_same,
    record,
)
from tests.clients.ranks import record_ranks

ADOPTED = "adopted"
WAYS = pytest.mark.parametrize("way", [GIVEN, REPLACED, ADOPTED])
USED = pytest.mark.parametrize("way", [REPLACED, ADOPTED])
"""The ways that use our loader: of one that is given, Accelerate makes torch's."""
SEEDABLE = pytest.mark.parametrize("seedable", [False, True], ids=["unseeded", "seedable"])


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test ends without."""
    yield
    reset()


def reset() -> None:
    """Begin without Accelerate's state."""
    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


def accelerator_of(**more: Any) -> Any:
    """An accelerator with a configuration of loaders."""
    reset()
    return accelerate.Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**more))


def prepared(accelerator: Any, way: str, loader: Any) -> Any:
    """What ``prepare`` makes of a loader, adopted if that is the way."""
    ready = accelerator.prepare(loader)
    return pt.adopt(ready) if way == ADOPTED else ready


def train(accelerator: Any, loader: Any, recording: Recording, epochs: int = EPOCHS) -> None:
    """Epochs of Accelerate's loop, with accumulated gradients."""
    torch.manual_seed(4)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(epochs):
        for batch in loader:
            recording.note("batch", batch)
            recording.note("end", [loader.end_of_dataloader, loader.remainder])
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            recording.note("loss", loss)


def one(way: str, run: Callable[[str, Any, Recording], None]) -> Recording:
    """A recording in this process; the run is told the way."""
    return record(way, lambda kind, recording: run(way, kind, recording), "accelerate")


def two(way: str, run: Callable[[str, Any, Recording], None]) -> list[Recording]:
    """The recordings of two ranks."""
    return record_ranks(way, lambda kind, recording: run(way, kind, recording), "accelerate")


@WAYS
@SEEDABLE
@LOADINGS
def test_a_prepared_loader(way: str, loading: Loading, *, seedable: bool) -> None:
    """Two epochs of training in one process."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(use_seedable_sampler=seedable)
        loader = prepared(accelerator, way, kind(Samples(), batch_size=4, shuffle=True, **loading.arguments()))
        train(accelerator, loader, recording)

    assert_same(one(way, run), one(TORCH, run), batches=EPOCHS * 7, used=way != GIVEN)


@USED
@SEEDABLE
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_two_processes(way: str, num_workers: int, *, seedable: bool, split: bool) -> None:
    """Each rank trains on its part of the same order; ``split_batches`` splits each batch."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(use_seedable_sampler=seedable, split_batches=split)
        torch.manual_seed(5)
        loader = kind(Samples(), batch_size=4, shuffle=True, num_workers=num_workers)
        train(accelerator, prepared(accelerator, way, loader), recording)

    theirs, ours = two(TORCH, run), two(way, run)

    for own, other in zip(ours, theirs, strict=True):
        assert_same(own, other, batches=EPOCHS * (7 if split else 4))
    if not split:
        seen = [batch[1][2] for recording in ours for batch in recording.all("batch")[: other.seen() // EPOCHS]]
        assert len({index for part in seen for index in bytes(part[3])[::8]}) == len(Samples())


@USED
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_batches_are_dispatched(way: str, num_workers: int, *, split: bool) -> None:
    """``dispatch_batches``: rank 0 reads, and sends each rank its part."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(dispatch_batches=True, split_batches=split)
        loader = kind(Samples(24), batch_size=4, shuffle=True, num_workers=num_workers)
        ready = prepared(accelerator, way, loader)
        for _ in range(EPOCHS):
            for batch in ready:
                recording.note("batch", batch)
                recording.note("draw", torch.rand(()))

    theirs, ours = two(TORCH, run), two(way, run)

    for own, other in zip(ours, theirs, strict=True):
        assert_same(own, other, batches=EPOCHS * (6 if split else 3))


class Stream(torch.utils.data.IterableDataset[Any]):
    """24 numbers and a draw; with workers each gives all of them."""

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[Any]:
        for index in range(24):
            yield index, torch.rand(())


@USED
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("dispatch", [False, True], ids=["sharded", "dispatched"])
def test_a_stream_for_two_processes(way: str, num_workers: int, *, dispatch: bool) -> None:
    """An iterable dataset is sharded by Accelerate, or read by rank 0."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(dispatch_batches=dispatch)
        ready = prepared(accelerator, way, kind(Stream(), batch_size=4, num_workers=num_workers))
        for _ in range(EPOCHS):
            for batch in ready:
                recording.note("batch", batch)

    theirs, ours = two(TORCH, run), two(way, run)

    for own, other in zip(ours, theirs, strict=True):
        assert_same(own, other, batches=EPOCHS * 3)


@WAYS
@SEEDABLE
@LOADINGS
def test_batches_are_skipped(way: str, loading: Loading, *, seedable: bool) -> None:
    """``skip_first_batches`` makes a loader for the rest of an epoch, as a user resumes a run."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(use_seedable_sampler=seedable)
        loader = prepared(accelerator, way, kind(Samples(), batch_size=4, shuffle=True, **loading.arguments()))
        train(accelerator, loader, recording, epochs=1)
        loader.set_epoch(1)
        skipping = accelerator.skip_first_batches(loader, 3)
        for batch in pt.adopt(skipping) if way == ADOPTED else skipping:
            recording.note("batch", batch)

    assert_same(one(way, run), one(TORCH, run), batches=7 + 4, used=way != GIVEN)


@WAYS
@SEEDABLE
@pytest.mark.parametrize("begun", [False, True], ids=["fresh", "begun"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_prepared_loader_is_pickled(way: str, num_workers: int, *, seedable: bool, begun: bool) -> None:
    """A prepared loader goes through a pickle, before its first epoch or after it."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(use_seedable_sampler=seedable)
        loader = prepared(accelerator, way, kind(Samples(), batch_size=4, shuffle=True, num_workers=num_workers))
        if begun:
            train(accelerator, loader, recording, epochs=1)
        again = pickle.loads(pickle.dumps(loader))
        train(accelerator, again, recording)

    batches = (EPOCHS + begun) * 7
    assert_same(one(way, run), one(TORCH, run), batches=batches, used=way != GIVEN)


@WAYS
@SEEDABLE
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_between_epochs(
    way: str, num_workers: int, tmp_path_factory: pytest.TempPathFactory, *, seedable: bool
) -> None:
    """``save_state`` after an epoch, ``load_state`` in an accelerator of its own: the next epoch is the same again."""

    def run(way: str, kind: Any, recording: Recording) -> None:
        folder = str(tmp_path_factory.mktemp("state"))
        accelerator = accelerator_of(use_seedable_sampler=seedable, data_seed=9)
        loader = prepared(accelerator, way, kind(Samples(), batch_size=4, shuffle=True, num_workers=num_workers))
        train(accelerator, loader, recording, epochs=1)
        accelerator.save_state(folder)
        for batch in loader:
            recording.note("batch", batch)
        accelerator = accelerator_of(use_seedable_sampler=seedable, data_seed=9)
        loader = prepared(accelerator, way, kind(Samples(), batch_size=4, shuffle=True, num_workers=num_workers))
        model = Net()
        accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        accelerator.load_state(folder)
        loader.set_epoch(1)
        for batch in loader:
            recording.note("batch", batch)

    theirs = one(TORCH, run)

    assert theirs.all("batch")[14:] == theirs.all("batch")[7:14]
    assert_same(one(way, run), theirs, batches=3 * 7, used=way != GIVEN)


def stateful(num_workers: int) -> Any:
    """A loader that Accelerate makes with torchdata's class, and seeds."""
    numbers = torch.utils.data.TensorDataset(torch.arange(26))
    accelerator = accelerator_of(use_stateful_dataloader=True, use_seedable_sampler=True, data_seed=7)
    loader = torch.utils.data.DataLoader(numbers, batch_size=4, shuffle=True, num_workers=num_workers)
    return accelerator.prepare(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 4])
def test_a_stateful_loader(num_workers: int, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``use_stateful_dataloader`` with our class under torchdata's name: order and resume are those of a whole run.

    The order is that of torch's loader under Accelerate's seeded sampler. torchdata's own loader has another one with
    workers: it opens the sampler that Accelerate replaces.
    """

    def whole(kind: Any, recording: Recording) -> None:
        accelerator = accelerator_of(use_seedable_sampler=True, data_seed=7)
        numbers = torch.utils.data.TensorDataset(torch.arange(26))
        loader = accelerator.prepare(kind(numbers, batch_size=4, shuffle=True, num_workers=num_workers))
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    def run(kind: Any, recording: Recording) -> None:
        loader = stateful(num_workers)
        assert type(loader.base_dataloader) is pt.StatefulDataLoader
        for number, batch in enumerate(loader):
            recording.note("batch", batch)
            if number + 1 == stop:
                break
        saved = pickle.loads(pickle.dumps(loader.state_dict()))
        again = stateful(num_workers)
        again.load_state_dict(saved)
        for _ in range(EPOCHS):
            for batch in again:
                recording.note("batch", batch)

    theirs = record(TORCH, whole)
    monkeypatch.setattr(torchdata.stateful_dataloader, "StatefulDataLoader", pt.StatefulDataLoader)
    ours = record(GIVEN, run)

    assert ours.iterations
    assert ours.all("batch") == theirs.all("batch")


def test_a_chosen_number_of_workers_becomes_that_of_cores() -> None:
    """Of a loader that is not adopted, Accelerate makes torch's out of attributes; adopted, it chooses again."""
    loader = pt.DataLoader(torch.utils.data.TensorDataset(torch.arange(26)), num_workers="auto")
    ready = accelerator_of().prepare(loader)
    iterator = iter(ready.base_dataloader)
    assert len(iterator._workers) == count_usable_cores()
    del iterator
    assert pt.adopt(ready).base_dataloader.num_workers.most >= 16
