"""Plans that announce samples before their batches are planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SampleError
from penstock.loader.plan import plan_ahead
from penstock.sample import Index, SampleKeys
from penstock.workers.base import Task


def make_tasks(sizes: list[int], *, fails: bool = False) -> Iterator[Task]:
    """Tasks of so many samples, numbered throughout; then an error."""
    begin = 0
    for seq, size in enumerate(sizes):
        indices = np.arange(begin, begin + size)
        begin += size
        yield Task(seq, indices, SampleKeys(0, 0, indices))
    if fails:
        raise SampleError("no more")


@pytest.mark.parametrize("samples", [1, 5, 8, 100])
def test_tasks_come_in_order_when_enough_is_announced(samples: int) -> None:
    """So many samples after a task are announced before it comes, or all there are; at first as many as came so far."""
    announced: list[int] = []
    sizes = [4, 4, 4, 4, 3]
    for seq, task in enumerate(plan_ahead(make_tasks(sizes), announced.extend, samples)):
        assert task.seq == seq
        assert announced == list(range(len(announced)))
        least = sum(sizes[: seq + 1]) + min(sum(sizes[:seq]), samples)
        assert min(least, sum(sizes)) <= len(announced) < least + 4


def test_many_samples_are_announced_at_once() -> None:
    """Half of those that a dataset wants ahead, once so many are: requests for one object are then few calls."""
    sizes: list[int] = []
    announced = 0

    def announce(indices: Sequence[Index]) -> None:
        nonlocal announced
        sizes.append(len(indices))
        announced += len(indices)

    for seq, _ in enumerate(plan_ahead(make_tasks([4] * 100), announce, 64)):
        assert announced - 4 * (seq + 1) <= 64 + 32

    assert announced == 400
    assert sizes[:3] == [4, 4, 4]  # nothing waits for others at first
    assert set(sizes[-9:-1]) == {32}


def test_an_error_comes_after_the_tasks_before_it() -> None:
    """Though it was met earlier."""
    plan = plan_ahead(make_tasks([4, 4], fails=True), lambda _: None, 100)
    assert [next(plan).seq, next(plan).seq] == [0, 1]
    with pytest.raises(SampleError):
        next(plan)


class Announced(ps.Dataset[int]):
    """Remembers what was announced; looks ten samples ahead, at first fewer."""

    look_ahead = 10

    def __init__(self) -> None:
        self.announced: list[int] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        assert set(range(index, min(index + min(10, index // 4 * 4), 40))) <= set(self.announced)
        return index

    def prefetch(self, indices: list[int]) -> bool:
        """Remember them."""
        self.announced.extend(int(index) for index in indices)
        return True


def test_a_loader_announces_as_much_as_its_dataset_wants() -> None:
    """Also through a subset; states and order are the same as without."""
    dataset = Announced()
    assert [batch.tolist() for batch in ps.DataLoader(dataset, 4)] == np.arange(40).reshape(10, 4).tolist()
    loader = ps.DataLoader(ps.Subset(dataset, range(40)), 4)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert state["batches"] == 1
