"""Workers that persist: always the newest iterator's, epochs as torch's; older iterators go on without them."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import StallError  # noqa: E402  # as above
from tests.torch.streams import Drawn, Plain, Remembering, frozen  # noqa: E402  # as above

N = 24


def whole(loader: Any) -> Any:
    """A loop to the end."""
    return None, [frozen(batch) for batch in loader]


def counted(loader: Any) -> Any:
    """As many batches as there are: the iterator, which somebody holds, is never told that this is the end."""
    iterator = iter(loader)
    return iterator, [frozen(next(iterator)) for _ in range(len(loader))]


def left(loader: Any) -> Any:
    """A loop that is left early."""
    seen = []
    for batch in loader:
        seen.append(frozen(batch))
        if len(seen) == 2:
            break
    return None, seen


def left_and_held(loader: Any) -> Any:
    """The same, and the iterator is held."""
    iterator = iter(loader)
    return iterator, [frozen(next(iterator)) for _ in range(2)]


def epochs(kind: Any, way: Callable[[Any], Any], **more: Any) -> Any:
    """What three epochs give, and the workers of each."""
    torch.manual_seed(3)
    loader = kind(Drawn(N), 2, shuffle=True, num_workers=2, persistent_workers=True, **more)
    seen, pids, held = [], [], None
    for _ in range(3):
        now, batches = way(loader)
        held = now  # as Lightning does: the last epoch's is held until this one's is there
        seen.append([batch.partition("tensor")[0] for batch in batches])
        pids.append([worker.pid for worker in loader._iterator._workers])
    del held
    return [seen, torch.rand(()).item()], pids


@pytest.mark.parametrize("way", [whole, counted, left, left_and_held])
def test_epochs_are_torchs_however_the_last_one_was_left(way: Callable[[Any], Any]) -> None:
    """The same workers in every epoch, nothing drawn that torch does not draw, the same order."""
    theirs, _ = epochs(torch.utils.data.DataLoader, way)

    ours, pids = epochs(pt.DataLoader, way, workers="processes")

    assert ours == theirs
    assert pids[0] == pids[1] == pids[2]


def alternating(one: Any, two: Any) -> tuple[list[str], list[str]]:
    """What two iterators give, asked in turns."""
    first: list[str] = []
    second: list[str] = []
    while True:
        a, b = next(one, None), next(two, None)
        if a is b is None:
            return first, second
        first += [] if a is None else [frozen(a)]
        second += [] if b is None else [frozen(b)]


@pytest.mark.parametrize(
    ("dataset", "every"),
    [(Drawn, 3), (Plain, None), (Remembering, 1), pytest.param(Remembering, None, marks=pytest.mark.slow)],
)
def test_an_older_iterator_goes_on_by_itself(dataset: Any, every: int | None) -> None:
    """It gives what it would have given alone, random numbers of its workers included; and so does the newer one."""

    def make() -> Any:
        torch.manual_seed(3)
        order: dict[str, Any] = {"shuffle": True} if dataset is Drawn else {}
        return pt.DataLoader(
            dataset(N), 2, num_workers=2, workers="processes", persistent_workers=True, snapshot_every_n_steps=every,
            **order,
        )  # fmt: skip

    alone = make()
    expected = [frozen(batch) for batch in alone]
    alone.close()
    left_early = make()
    next(iter(left_early))
    expected_second = [frozen(batch) for batch in left_early]
    left_early.close()

    loader = make()
    one = iter(loader)
    begun = [frozen(next(one))]
    two = iter(loader)
    rest, second = alternating(one, two)

    assert begun + rest == expected
    assert second == expected_second
    loader.close()


def test_no_workers_are_started_to_say_that_this_is_the_end() -> None:
    """An iterator that has delivered all but what was under way ends without workers of its own."""
    loader = pt.DataLoader(Drawn(N), 2, num_workers=2, workers="processes", persistent_workers=True)
    old = iter(loader)
    for _ in range(N // 2 - 2):
        next(old)
    new = iter(loader)

    assert len(list(old)) == 2
    assert list(old._workers) == []
    assert len(list(new)) == N // 2

    loader.close()


class HangsOnce(Drawn):
    """One sample never comes, the first time."""

    def __init__(self, marker: Path) -> None:
        super().__init__(N)
        self.marker = marker

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return index
            time.sleep(1000)
        return index


def test_workers_that_hang_are_left_for_new_ones(tmp_path: Path) -> None:
    """The next epoch gets others; the older iterator says so behind what was ready, and does not just end."""
    loader = pt.DataLoader(
        HangsOnce(tmp_path / "hung"), 2, num_workers=2, persistent_workers=True, stall_timeout=5, prefetch_factor=3
    )
    old = iter(loader)
    first = [next(old).tolist()]

    second = [batch.tolist() for batch in loader]

    assert second == [[i, i + 1] for i in range(0, N, 2)]
    first.append(next(old).tolist())
    with pytest.raises(StallError, match="sample 0 of batch 2"):
        next(old)
    assert list(old) == []
    assert first == second[:2]
    loader.close()


def test_a_state_behind_a_loop_that_was_left_is_of_workers_as_they_stand() -> None:
    """They were ahead of what was delivered: another run goes on with the random numbers that they draw next."""

    def make() -> Any:
        return pt.DataLoader(Drawn(N), 2, shuffle=True, num_workers=2, workers="processes", persistent_workers=True)

    torch.manual_seed(3)
    loader = make()
    left(loader)
    walk = iter(loader)
    state = loader.state_dict()
    expected = [frozen(batch) for batch in walk]
    loader.close()
    other = make()
    other.load_state_dict(state)

    assert [frozen(batch) for batch in other] == expected

    other.close()


class Collating(pt.DataLoader[Any]):
    """Collates by a method of its own, which is a cycle; its iterators are wrapped. PyTorch Geometric's are so."""

    def __init__(self, **more: Any) -> None:
        super().__init__(Plain(N), 2, collate_fn=self.collate, num_workers=2, persistent_workers=True, **more)

    def collate(self, samples: list[Any]) -> Any:
        """The batch."""
        return torch.as_tensor(samples)

    def _get_iterator(self) -> Any:
        return _Wrapped(super()._get_iterator())


class _Wrapped:
    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self.iterator)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.iterator._reset(loader, first_iter)


def threads() -> list[Any]:
    """Names of the worker threads that there are."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-worker")]


@pytest.mark.parametrize("workers", ["processes", "threads"])
@pytest.mark.parametrize("way", [whole, left])
def test_workers_end_with_a_loader_in_a_cycle(way: Callable[[Any], Any], workers: str) -> None:
    """Nothing outside the cycle holds it: the collector ends idle workers, and those of an epoch that is left."""
    loader = Collating(workers=workers)
    way(loader)
    way(loader)
    pids = [process.pid for process in loader._iterator.iterator._workers]
    assert len(pids) == (2 if workers == "processes" else 0)
    del loader

    deadline = time.monotonic() + 60
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()] + threads()) and time.monotonic() < deadline:
        gc.collect()  # again while a thread is inside a chunk, which it refers to
        time.sleep(0.001)

    assert alive == []


def test_workers_of_two_epochs_end_without_the_collector() -> None:
    """Neither the epoch under way nor the one that was begun ahead refers to itself."""
    gc.collect()
    gc.disable()
    try:
        loader = pt.DataLoader(Plain(N), 2, num_workers=2, persistent_workers=True, overlap_epochs=True)
        whole(loader)
        whole(loader)
        pids = [process.pid for process in loader._iterator._workers]
        del loader

        assert len(pids) == 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        gc.enable()
