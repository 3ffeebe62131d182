"""Workers that hang: seen, described, and left behind in time (faults 4, 5, 16, A19)."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

from penstock.errors import StallError
from tests.faults.conftest import Load
from tests.faults.harness import SLACK, Indices, gone_within, workers_of

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose


class Hangs(Indices):
    """Sleeps for a minute at one index."""

    def __init__(self, n: int = 64, at: int = 5) -> None:
        super().__init__(n)
        self.at = at

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            time.sleep(60)
        return index


def test_04_there_is_a_limit_by_default(load: Load) -> None:
    """Fault 4: who asks for no timeout does not wait for ever."""
    assert load(Indices()).stall_timeout == 120


def test_04_a_stall_shows_the_stack(load: Load) -> None:
    """Fault 4: the error names the worker, its sample and where in the code it is; the batch before it came."""
    walk = iter(load(Hangs(), stall_timeout=0.5))
    first = next(walk)

    with pytest.raises(StallError) as caught:
        next(walk)

    said = str(caught.value)
    assert first.tolist() == [0, 1, 2, 3]
    assert "index 5" in said
    assert "worker 1" in said
    assert "test_stalls.py" in said
    assert "in __getitem__" in said
    assert caught.value.where["batch"] == 1


def test_04_every_further_wait_shows_the_stack_again(load: Load) -> None:
    """Fault 4: a caller that tries again is told as much the second time."""
    walk = iter(load(Hangs(), stall_timeout=0.4))
    next(walk)
    said = []
    for _ in range(3):
        with pytest.raises(StallError) as caught:
            next(walk)
        said.append(str(caught.value))

    assert all("in __getitem__" in text for text in said)


def test_05_a_timeout_is_kept(load: Load) -> None:
    """Fault 5: error and end within the limit and two seconds, the sample named; torch's own words first."""
    start = time.monotonic()
    walk = iter(load(Hangs(), timeout=1))
    next(walk)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds") as caught:
        next(walk)
    pids = workers_of()
    del walk, caught
    gc.collect()
    took_s = time.monotonic() - start

    assert len(pids) == 2
    assert gone_within(pids, 0.5) == []
    assert took_s < 1 + 2 * SLACK


def test_05_slow_is_not_stuck(load: Load) -> None:
    """Fault 5: batches that take longer than the stall limit are waited for as long as samples are begun."""

    class Slow(Indices):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.4)
            return index

    assert [batch.tolist() for batch in load(Slow(6), 3, stall_timeout=1.0)] == [[0, 1, 2], [3, 4, 5]]


def test_16_a_loop_that_is_left_ends_its_workers(load: Load) -> None:
    """Fault 16: `break` while each worker is in a long getitem: two seconds for all of them together."""

    class Long(Indices):
        def __getitem__(self, index: int) -> Any:
            if index >= 4:
                time.sleep(60)
            return index

    pids: list[int] = []
    start = time.monotonic()
    for _ in load(Long(), num_workers=4):
        pids = workers_of()
        break
    gc.collect()
    took_s = time.monotonic() - start

    assert len(pids) == 4
    assert gone_within(pids, 0.1) == []
    assert took_s < 2 * SLACK


def test_16_workers_that_defy_termination_are_killed(load: Load) -> None:
    """Fault 16: a dataset may ignore SIGTERM; SIGKILL it cannot ignore."""
    import signal

    class Defiant(Indices):
        def __getitem__(self, index: int) -> Any:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if index >= 4:
                time.sleep(60)
            return index

    walk = iter(load(Defiant(), num_workers=2))
    next(walk)
    pids = workers_of()
    start = time.monotonic()
    walk.close()

    assert gone_within(pids, 0.1) == []
    assert time.monotonic() - start < 2 * SLACK


def test_a19_an_error_in_the_loop_ends_the_workers(load: Load) -> None:
    """Fault A19: an exception of the program's own, whose traceback is kept, keeps no workers once it is dropped."""

    def train() -> None:
        for _ in load(Indices()):
            raise ZeroDivisionError("in the training loop")

    with pytest.raises(ZeroDivisionError) as caught:
        train()
    kept = workers_of()
    del caught
    gc.collect()

    assert gone_within(kept, 0.5) == []


def test_found_an_iterator_dropped_after_an_error_is_collected_at_once(load: Load) -> None:
    """Found in torch 2.15: collection took five seconds for each worker; here two for all."""

    class Fails(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError(index)
            if index > 8:
                time.sleep(60)
            return index

    walk = iter(load(Fails(), num_workers=4))
    next(walk)
    with pytest.raises(ValueError, match="5"):
        next(walk)
    pids = workers_of()
    start = time.monotonic()
    del walk
    gc.collect()

    assert gone_within(pids, 0.1) == []
    assert time.monotonic() - start < 2 * SLACK


def test_found_an_iterator_in_a_cycle_is_collected_at_once(load: Load) -> None:
    """Found in torch 2.15, A21: the same for one that only the collector finds."""
    walk = iter(load(Hangs(at=9), num_workers=4))
    next(walk)
    cycle: list[Any] = [walk]
    cycle.append(cycle)
    pids = workers_of()
    start = time.monotonic()
    del walk, cycle
    gc.collect()

    assert len(pids) == 4
    assert gone_within(pids, 0.1) == []
    assert time.monotonic() - start < 2 * SLACK
