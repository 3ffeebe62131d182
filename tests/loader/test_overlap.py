"""``overlap_epochs=True``: the next epoch begins while the last batches of this one are consumed."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch

KINDS = ["threads", "processes"]


class Drawn(ps.Dataset[int]):
    """Its indices; keeps those that this process was asked for."""

    def __init__(self, count: int = 24) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        return index


def ours(kind: str, **more: Any) -> Any:
    """Our loader."""
    return ps.DataLoader(Drawn(), 3, shuffle=True, seed=1, num_workers=2, workers=kind, **more)


def torchs(kind: str, **more: Any) -> Any:
    """The torch loader, over a sampler whose order is drawn from no random state."""
    dataset = Drawn()
    sampler = torch.utils.data.DistributedSampler(dataset, 1, 0, shuffle=True, seed=1)
    return pt.DataLoader(
        dataset, 3, sampler=sampler, num_workers=2, workers=kind, **{"persistent_workers": True, **more}
    )


MAKERS = [pytest.param(ours, id="ours"), pytest.param(torchs, id="torch")]


def epoch(loader: Any) -> list[list[int]]:
    """The batches of one epoch."""
    return [batch.tolist() for batch in loader]


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does; the test's time limit ends a wait in vain."""
    while not holds():
        time.sleep(0.005)


# Not torch's loader without persistent workers: new workers' seeds are drawn at iter().
@pytest.mark.parametrize(("make", "persistent"), [(ours, False), (ours, True), (torchs, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_the_same_with_and_without(make: Any, kind: str, persistent: bool) -> None:
    """Four epochs have the same batches in the same order, whoever began them when."""
    plain, overlapping = make(kind), make(kind, persistent_workers=persistent, overlap_epochs=True)

    expected, found = [epoch(plain) for _ in range(4)], [epoch(overlapping) for _ in range(4)]
    plain.close()
    overlapping.close()

    assert found == expected


@pytest.mark.parametrize("make", MAKERS)
def test_the_next_epoch_begins_before_this_one_is_consumed(make: Any) -> None:
    """Its first batches are built while batches of this one wait; its state is that of this one."""
    loader = make("threads", overlap_epochs=True)
    batches = iter(loader)

    for _ in range(len(loader) - 3):  # four are under way, of which the last is begun now
        next(batches)
    until(lambda: len(loader.dataset.asked) > len(loader.dataset))
    state = loader.state_dict()
    rest = len(list(batches))
    loader.close()

    assert rest == 3
    assert state.get("penstock", state)["epoch"] == 0
    assert state.get("penstock", state)["batches"] == len(loader) - 3


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_begun_is_dropped_if_another_epoch_is_chosen(make: Any, kind: str) -> None:
    """set_epoch() and load_state_dict() have the last word on what comes next."""
    plain, loader = make(kind), make(kind, overlap_epochs=True)
    plain.set_epoch(5)
    expected = epoch(plain)

    epoch(loader)
    middle = iter(loader)
    next(middle)
    state = copy.deepcopy(loader.state_dict())
    rest = [batch.tolist() for batch in middle]
    loader.load_state_dict(state)
    again = epoch(loader)
    loader.set_epoch(5)
    fifth = epoch(loader)
    plain.close()
    loader.close()

    assert fifth == expected
    assert again == rest


@pytest.mark.parametrize("make", MAKERS)
def test_workers_end_with_the_loader(make: Any) -> None:
    """A loader that is forgotten, or closed, leaves no worker of an epoch that it had begun."""
    gc.collect()
    threads, children = threading.active_count(), len(multiprocessing.active_children())
    loader = make("processes", overlap_epochs=True)
    epoch(loader)

    loader.close()
    closed = len(multiprocessing.active_children())
    other = make("threads", overlap_epochs=True)
    epoch(other)
    del other
    gc.collect()

    assert closed == children
    until(lambda: threading.active_count() <= threads)


@pytest.mark.parametrize("make", MAKERS)
def test_a_copy_begins_its_own(make: Any) -> None:
    """Pickling leaves what was begun behind."""
    loader = make("threads", overlap_epochs=True)
    epoch(loader)

    copied = pickle.loads(pickle.dumps(loader))
    second = epoch(copied)
    copied.close()
    loader.close()

    assert sorted(index for batch in second for index in batch) == list(range(24))


def test_an_order_that_is_drawn_from_random_states_is_not_drawn_early() -> None:
    """torch's RandomSampler draws at iter(), from generators that others use: the next epoch waits for iter()."""
    dataset = Drawn()
    loader = pt.DataLoader(
        dataset, 3, shuffle=True, num_workers=2, workers="threads", persistent_workers=True, overlap_epochs=True
    )

    torch.manual_seed(0)
    found = [epoch(loader), epoch(loader)]
    loader.close()
    plain = torch.utils.data.DataLoader(dataset, 3, shuffle=True, num_workers=2, persistent_workers=True)
    torch.manual_seed(0)

    assert found == [epoch(plain), epoch(plain)]


def test_another_sampler_is_compared_by_identity() -> None:
    """A tensor of indices that is put in place of another: ``==`` of the two is no bool."""
    loader = pt.DataLoader(
        Drawn(), sampler=torch.arange(24), num_workers=2, workers="threads", persistent_workers=True,
        overlap_epochs=True, batch_size=3,
    )  # fmt: skip

    first = epoch(loader)
    batches: Any = loader.batch_sampler
    batches.sampler = torch.arange(23, -1, -1)
    second = epoch(loader)
    loader.close()

    assert [index for batch in first for index in batch] == list(range(24))
    assert [index for batch in second for index in batch] == list(range(23, -1, -1))


def test_it_needs_workers() -> None:
    """Where nothing is built ahead, or torch draws at iter(), it is refused."""
    with pytest.raises(ps.ArgumentError, match="overlap_epochs needs num_workers > 0"):
        ps.DataLoader(Drawn(), 3, overlap_epochs=True)
    with pytest.raises(ps.ArgumentError, match="overlap_epochs needs persistent_workers"):
        pt.DataLoader(Drawn(), 3, num_workers=2, overlap_epochs=True)
