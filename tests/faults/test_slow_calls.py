"""Calls that ask for many samples at once: slow ones are waited for, those that hang are reported and then an error."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from torch.utils.data import BatchSampler, SequentialSampler

import penstock as ps
import penstock.torch
from penstock.errors import StallError, WorkerError
from penstock.sample import ArraySpec
from tests.faults.conftest import Load
from tests.faults.harness import Indices, drain, wait_until
from tests.loader.simulated import HANG_S, SimulatedBackend, SimulatedClock

COUNT: Final = 8
"""Samples of a batch."""
SLOW_S: Final = 3.0
"""What each of them takes: all together more than twice ``LIMIT_S``."""
LIMIT_S: Final = 10.0


@pytest.fixture
def make(simulate: Load) -> Load:
    """Makes a loader with one worker that builds batches of ``COUNT`` samples."""

    def made(dataset: Any, batch_size: int | None = COUNT, **options: Any) -> Any:
        return simulate(dataset, batch_size, num_workers=1, stall_timeout=LIMIT_S, **options)

    return made


def sleep_for(samples: int) -> None:
    """Take as long as ``samples`` slow samples."""
    SimulatedBackend.clock.sleep(SLOW_S * samples)


def hang(_samples: int) -> None:
    """Never return."""
    SimulatedBackend.clock.sleep(HANG_S)


class Many(Indices):
    """Asked for many samples by ``__getitems__``."""

    def __init__(self, work: Callable[[int], None]) -> None:
        super().__init__(COUNT)
        self.work = work

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.work(len(indices))
        return indices


class Loads(Many, ps.Dataset[Any]):
    """Asked for many samples by ``load_samples``."""

    __getitems__ = None  # type: ignore[assignment]  # the other way of asking

    def load_samples(self, indices: list[int], keys: Any) -> Any:
        """See :class:`penstock.Dataset`."""
        self.work(len(indices))
        return indices


class LoadsAtFirst(Loads):
    """``load_samples`` reads for all samples when the first one is asked for."""

    def load_samples(self, indices: list[int], keys: Any) -> Any:
        """See :class:`penstock.Dataset`."""
        self.work(len(indices))
        yield from indices


class Fills(Many):
    """Fills rows."""

    __getitems__ = None  # type: ignore[assignment]  # the other way of asking

    def spec(self) -> Any:
        """See :class:`penstock.Filler`."""
        return ArraySpec((), np.dtype(np.int64))

    def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:
        """See :class:`penstock.Filler`."""
        self.work(len(indices))
        out[rows] = indices


class AnyIndex(Many):
    """One index asks for many samples."""

    def __getitem__(self, index: Any) -> Any:
        self.work(np.size(index))
        return np.asarray(index)


def beside(work: Callable[[int], None]) -> Any:
    """Datasets side by side: the first is asked sample by sample."""
    return ps.StackDataset(Indices(COUNT), Many(work))


def behind(work: Callable[[int], None]) -> Any:
    """Datasets one behind the other: the second loads its samples at once when its first one is asked for."""
    return ps.ConcatDataset([Indices(1), ps.Subset(LoadsAtFirst(work), range(COUNT - 1))])


def inside(work: Callable[[int], None]) -> Any:
    """A dataset inside torch's and penstock's."""
    both: list[Any] = [Loads(work)]
    return penstock.torch.Subset(penstock.torch.ConcatDataset(both), range(COUNT))


CALLS: Final[dict[str, Callable[[Callable[[int], None]], Any]]] = {
    "__getitems__": Many,
    "load_samples": Loads,
    "a generator": LoadsAtFirst,
    "fill": Fills,
    "StackDataset": beside,
    "ConcatDataset": behind,
    "Subset": inside,
}

every_call = pytest.mark.parametrize("call", CALLS)


@every_call
def test_05_a_slow_call_for_many_samples_is_not_stuck(make: Load, clock: SimulatedClock, call: str) -> None:
    """Fault 5: a call is given the stall limit for each sample that it asks for."""
    assert len(list(make(CALLS[call](sleep_for)))) == 1
    assert clock.now_s == SLOW_S * (COUNT - (call == "ConcatDataset"))


def test_05_samples_that_come_one_by_one_are_each_given_the_limit(make: Load) -> None:
    """Fault 5: a chunk of many slow samples is no stall."""

    class Slow(Indices):
        def __getitem__(self, index: int) -> int:
            SimulatedBackend.clock.sleep(LIMIT_S - 1)
            return index

    assert next(iter(make(Slow(COUNT)))).tolist() == list(range(COUNT))


def test_05_with_seed_per_sample_samples_are_reported_one_by_one(make: Load) -> None:
    """Fault 5: where generators are seeded for each sample, ``__getitems__`` is called for each."""
    loader = make(Many(sleep_for), seed_per_sample=True)

    assert next(iter(loader)).tolist() == list(range(COUNT))


def test_05_a_slow_sample_of_many_indices_is_not_stuck(make: Load) -> None:
    """Fault 5: without automatic batching one index may be a list of many."""
    sampler = BatchSampler(SequentialSampler(range(COUNT)), COUNT, drop_last=False)
    loader = make(AnyIndex(sleep_for), None, sampler=sampler)

    assert [batch.tolist() for batch in loader] == [list(range(COUNT))]


class Stream(penstock.torch.IterableDataset[Any]):
    """Samples whose number nobody knows before."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT))


@pytest.mark.parametrize("dataset", [Indices(COUNT), Stream()], ids=["samples", "stream"])
def test_05_a_slow_collation_is_not_stuck(make: Load, clock: SimulatedClock, dataset: Any) -> None:
    """Fault 5: collate_fn is given the limit for each sample that it joins; also where nobody knew how many."""

    def collate(samples: list[Any]) -> list[Any]:
        sleep_for(len(samples))
        return samples

    assert list(make(dataset, collate_fn=collate)) == [list(range(COUNT))]
    assert clock.now_s >= SLOW_S * COUNT


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of loaders."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("penstock.loader")]


@every_call
def test_04_a_call_for_many_samples_that_hangs_is_a_stall(
    make: Load, clock: SimulatedClock, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 4: a warning after the limit, once; then the error; both name worker, dataset and samples."""
    dataset = CALLS[call](hang)
    walk = iter(make(dataset, 3))

    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(StallError) as caught:
        next(walk)

    many = 3 - (call == "ConcatDataset")
    [warning], error = told(caplog), str(caught.value)
    assert f"no worker has finished anything for {LIMIT_S:g} seconds; the limit is" in warning
    assert f"no worker finished anything within {LIMIT_S * many:g} seconds" in error
    assert clock.now_s == LIMIT_S * many
    for text in (warning, error):
        assert "worker 0" in text
        assert type(dataset).__name__ in text
        assert f"samples {3 - many}..2 of batch 0 (indices" in text
        assert f"stall_timeout={LIMIT_S} seconds for each of the {many} samples" in text
    assert caught.value.where["batch"] == 0


@pytest.mark.parametrize("work", ["collate", "sample"])
def test_04_a_hang_behind_a_long_call_is_seen_at_once(
    make: Load, clock: SimulatedClock, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 4: what was allowed to a call is not allowed to the next one: one sample has the limit of one."""

    class Hangs(Indices):
        def __getitem__(self, index: int) -> int:
            if work == "sample" and index == 5:
                hang(1)
            return index

    class Both(ps.StackDataset):
        def __init__(self) -> None:
            super().__init__(Many(lambda _: None), Hangs(COUNT))

    def collate(samples: list[Any]) -> Any:
        if work == "collate":
            hang(len(samples))
        return samples

    walk = iter(make(Both(), 6, collate_fn=collate))
    with pytest.raises(StallError) as caught:
        next(walk)

    expected = {"sample": f"within stall_timeout={LIMIT_S} seconds; ", "collate": "for each of the 6 samples"}[work]
    assert expected in str(caught.value)
    assert {"sample": "sample 5 of batch 0 (index 5)", "collate": "collation of batch 0"}[work] in str(caught.value)
    assert clock.now_s == LIMIT_S * {"sample": 1, "collate": 6}[work]
    assert len(told(caplog)) == (work == "collate")


def test_04_each_batch_is_warned_of_once(make: Load, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 4: a slow dataset does not flood the log, and a batch that comes after all is delivered."""

    class Slower(Many):
        def __init__(self) -> None:
            super().__init__(sleep_for)
            self.n = 2 * COUNT

    with caplog.at_level(logging.WARNING, "penstock"):
        batches = [batch.tolist() for batch in make(Slower())]

    assert batches == [list(range(COUNT)), list(range(COUNT, 2 * COUNT))]
    assert [f"batch={number}" in text for number, text in enumerate(told(caplog))] == [True, True]


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_04_a_call_for_many_samples_shows_its_stack(workers: str, tmp_path: Path) -> None:
    """Fault 4: threads and processes say which samples the call asks for, and where in the code it is."""
    hangs, released = tmp_path / "hangs", tmp_path / "released"

    def wait(_samples: int) -> None:
        hangs.touch()
        while not released.exists():
            time.sleep(0.01)

    walk = iter(ps.DataLoader(Many(wait), 3, num_workers=1, workers=workers, stall_timeout=0.05))
    wait_until(hangs.exists, "the call hangs")

    def describe_stall() -> str:
        with pytest.raises(StallError) as caught:
            next(walk)
        return str(caught.value)

    wait_until(lambda: "in wait" in describe_stall(), "the stack is told")
    said = describe_stall()
    released.touch()

    assert "within 0.15 seconds, stall_timeout=0.05 seconds for each of the 3 samples that a call asks for; " in said
    assert re.search(r"worker 0( \(pid \d+\))? has been busy for", said)
    assert "samples 0..2 of batch 0 (indices 0, 1, 2)" in said
    walk.close()


def test_a1_a_worker_that_dies_in_a_call_for_many_names_all_of_them() -> None:
    """Fault A1: which of the samples is to blame cannot be seen: none is named alone."""

    class Deadly(Indices):
        def __getitems__(self, indices: list[int]) -> list[int]:
            if 5 in indices:
                os._exit(3)
            return indices

    loader = ps.DataLoader(Deadly(8), 4, num_workers=1, workers="processes")
    batches, errors = drain(iter(loader))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3]]
    assert [(type(error), error.where.get("index")) for error in errors] == [(WorkerError, None)]
    assert errors[0].where["indices"] == [4, 5, 6, 7]
