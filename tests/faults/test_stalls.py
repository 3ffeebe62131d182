"""Workers that hang: seen, described, and left behind (faults 4, 5, 16, A19)."""

from __future__ import annotations

import gc
import os
import signal
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StallError
from tests.faults.conftest import Load
from tests.faults.harness import Indices, wait_until, wait_until_gone, workers_of
from tests.loader.simulated import HANG_S, SimulatedClock

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose


class Sleeps(Indices):
    """Takes so many seconds for some indices."""

    def __init__(self, clock: SimulatedClock, seconds: dict[int, float], n: int = 64) -> None:
        super().__init__(n)
        self.clock, self.seconds = clock, seconds

    def __getitem__(self, index: int) -> Any:
        self.clock.sleep(self.seconds.get(index, 0))
        return index


class Stuck(Indices):
    """Does not come back from ``__getitem__``, from index ``first`` on; defies termination. ``folder`` counts such."""

    def __init__(self, folder: Path, first: int, last: int = 1 << 60) -> None:
        super().__init__()
        self.folder, self.first, self.last = folder, first, last

    def __getitem__(self, index: int) -> Any:
        if self.first <= index <= self.last:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (self.folder / str(os.getpid())).touch()
            time.sleep(3600)
        return index

    def wait_for(self, workers: int) -> None:
        """Wait until that many workers are stuck."""
        wait_until(lambda: len(list(self.folder.iterdir())) == workers, f"{workers} workers are stuck")


def test_04_there_is_a_limit_by_default(load: Load) -> None:
    """Fault 4: who asks for no timeout does not wait for ever."""
    assert load(Indices()).stall_timeout == 120


def test_04_a_stall_shows_the_stack(load: Load, tmp_path: Path) -> None:
    """Fault 4: the error names the worker, its sample and where in the code it is, again and again."""
    dataset = Stuck(tmp_path, 5, 5)
    walk = iter(load(dataset, stall_timeout=0.1))
    dataset.wait_for(1)
    came: list[list[int]] = []
    told: list[StallError] = []

    def has_stacks() -> bool:
        try:
            came.append(next(walk).tolist())
            told.clear()
        except StallError as stalled:
            told.append(stalled)
        return sum("in __getitem__" in str(stalled) for stalled in told) == 3

    wait_until(has_stacks, "the stack is told three times")
    said = str(told[-1])
    assert came == [[0, 1, 2, 3]]
    assert "index 5" in said
    assert "worker 1" in said
    assert "test_stalls.py" in said
    assert told[-1].where["batch"] == 1


def test_04_a_stall_is_an_error_after_one_limit_to_two(simulate: Load, clock: SimulatedClock) -> None:
    """Fault 4: progress is compared once in a limit; who goes on waiting is told as much the second time."""
    walk = iter(simulate(Sleeps(clock, {4: 3, 5: HANG_S}), stall_timeout=10))
    first = next(walk)
    for now_s, busy_s in ((20, 17), (30, 27), (40, 37)):
        with pytest.raises(StallError) as caught:
            next(walk)

        assert clock.now_s == now_s
        assert "no worker finished anything within stall_timeout=10 seconds; " in str(caught.value)
        assert f"worker 1 has been busy for {busy_s} s with sample 1 of batch 1 (index 5)" in str(caught.value)
        assert caught.value.where["batch"] == 1

    assert first.tolist() == [0, 1, 2, 3]


def test_05_a_timeout_is_kept(simulate: Load, clock: SimulatedClock) -> None:
    """Fault 5: error within the limit, the sample named; torch's own words first; what was late still comes."""
    walk = iter(simulate(Sleeps(clock, {5: 25}, 8), timeout=10))
    next(walk)
    with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 10 seconds; .*index 5") as caught:
        next(walk)
    took_s = clock.now_s
    with pytest.raises(StallError):
        next(walk)

    assert isinstance(caught.value, StallError)
    assert took_s == 10
    assert [batch.tolist() for batch in walk] == [[4, 5, 6, 7]]
    assert clock.now_s == 25


def test_05_slow_is_not_stuck(simulate: Load, clock: SimulatedClock) -> None:
    """Fault 5: batches that take longer than the stall limit are waited for as long as samples are begun."""
    loader = simulate(Sleeps(clock, dict.fromkeys(range(6), 9.0), 6), 3, stall_timeout=10)

    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]
    assert clock.now_s == 27


def test_05_without_a_limit_a_batch_is_waited_for(simulate: Load, clock: SimulatedClock) -> None:
    """Fault 5: however long it takes."""
    loader = simulate(Sleeps(clock, {0: 1e6}, 4), stall_timeout=None)

    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3]]


def test_16_a_loop_that_is_left_ends_its_workers(load: Load, tmp_path: Path) -> None:
    """Fault 16: `break` while each worker is in a long getitem; ignoring SIGTERM, SIGKILL it cannot ignore."""
    dataset, pids = Stuck(tmp_path, 4), []
    for _ in load(dataset, num_workers=4):
        pids = workers_of()
        dataset.wait_for(4)
        break
    gc.collect()

    wait_until_gone(pids)
    assert len(pids) == 4


def test_a19_an_error_in_the_loop_ends_the_workers(simulate: Load) -> None:
    """Fault A19: an exception of the program's own, whose traceback is kept, keeps no workers once it is dropped."""
    loader = simulate(Indices())
    backends: list[weakref.ref[Any]] = []

    def train() -> None:
        walk = iter(loader)
        backends.append(weakref.ref(walk.backend))
        for _ in walk:
            raise ZeroDivisionError("in the training loop")

    with pytest.raises(ZeroDivisionError) as caught:
        train()
    del caught
    gc.collect()

    assert backends[0]() is None


def test_found_an_iterator_dropped_after_an_error_is_collected_at_once(simulate: Load, clock: SimulatedClock) -> None:
    """Found in torch 2.15: it stayed, and its workers with it."""

    class Fails(Sleeps):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError(index)
            return super().__getitem__(index)

    loader = simulate(Fails(clock, {9: HANG_S}), num_workers=4)
    walk = iter(loader)
    next(walk)
    with pytest.raises(ValueError, match="5"):
        next(walk)
    backend = weakref.ref(walk.backend)
    del walk
    gc.collect()

    assert backend() is None


def test_found_an_iterator_in_a_cycle_is_collected_at_once(simulate: Load, clock: SimulatedClock) -> None:
    """Found in torch 2.15, A21: the same for one that only the collector finds."""
    loader = simulate(Sleeps(clock, {9: HANG_S}), num_workers=4)
    walk = iter(loader)
    next(walk)
    cycle: list[Any] = [walk]
    cycle.append(cycle)
    backend = weakref.ref(walk.backend)
    del walk, cycle
    gc.collect()

    assert backend() is None
