"""stats(): every nanosecond belongs to a stage, every sample is counted once."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import penstock as ps
from penstock.stats import Stats
from penstock.trace import STAGES, stage
from tests.loader.fakes import Rows, Samples, Stream, epoch, threads


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("dataset", "read"), [(Samples(20), 20), (Stream(20), 20), (Rows(20), 0)])
def test_samples_and_batches_are_counted(num_workers: int, dataset: Any, read: int) -> None:
    """Over two epochs: what was delivered, read and collated; waiting is counted by batch."""
    loader = ps.DataLoader(dataset, 8, **threads(num_workers))
    epoch(loader)
    epoch(loader)

    stats = loader.stats()

    assert (stats.batches, stats.samples) == (6, 40)
    assert stats["read"].items == stats["collate"].items == 2 * read
    assert (stats["read"].time_ns > 0) == (read > 0)
    assert stats["wait"].items > 0
    assert sum(s.share for s in stats.stages) == pytest.approx(1.0 if read else 0.0)


def test_stages_that_a_dataset_marks_are_its_own() -> None:
    """Time under a stage inside __getitem__ is not counted a second time as reading."""

    class Marks(Samples):
        def __getitem__(self, index: int) -> Any:
            with stage("decode"):
                return sum(range(20_000))

    loader = ps.DataLoader(Marks(20), 10, num_workers=1, workers="threads")
    epoch(loader)
    stats = loader.stats()

    assert stats["decode"].items == 20
    assert stats["read"].time_ns < stats["decode"].time_ns


def test_statistics_add_up_while_iterating() -> None:
    """A snapshot in the middle of an epoch has what was done so far, and stays as it is."""
    loader = ps.DataLoader(Samples(20), 5)
    walk = iter(loader)
    next(walk)
    early = loader.stats()
    list(walk)

    assert early.samples == early["read"].items == 5
    assert loader.stats().samples == 20


@pytest.mark.parametrize(
    "again", [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))], ids=["copy", "pickle"]
)
def test_a_copy_counts_on_by_itself(again: Any) -> None:
    """A copy of a loader goes on from its counts, with times of its own; neither sees what the other does then."""
    loader = ps.DataLoader(Samples(20), 5)
    epoch(loader)
    twin = again(loader)
    epoch(twin)

    assert (twin.stats().batches, twin.stats()["read"].items) == (8, 20)
    assert (loader.stats().batches, loader.stats()["read"].items) == (4, 20)


def test_a_forgotten_iterator_is_still_counted() -> None:
    """What an epoch left early has cost stays in the sum."""
    loader = ps.DataLoader(Samples(20), 5)
    for _ in loader:
        break

    assert loader.stats()["read"].items == 5
    assert loader._counters._traces == []


def test_a_thread_that_is_done_writes_to_no_trace() -> None:
    """After a serial epoch the calling thread's own work is its own."""
    loader = ps.DataLoader(Samples(5), 5)
    epoch(loader)
    before = loader.stats()

    with stage("decode"):
        pass

    assert loader.stats() == before


def test_the_table_has_a_line_for_each_stage() -> None:
    """str() is for people: totals first, then stages in the order a sample passes them."""
    total = dict.fromkeys(STAGES, (0, 0)) | {
        "read": (3_000_000_000, 1000),
        "decode": (1_000_000_000, 1000),
        "wait": (500_000_000, 10),
    }

    lines = str(Stats.of(total, 10, 1000)).splitlines()

    assert lines[0] == "10 batches, 1000 samples; waited 0.500 s for them"
    assert [line.split()[0] for line in lines[3:]] == list(STAGES)
    assert lines[3].split() == ["read", "3.000", "s", "1000", "3000.0", "us", "75%"]
    assert lines[-1].split() == ["wait", "0.500", "s", "10", "50000.0", "us"]


def test_statistics_are_frozen() -> None:
    """A snapshot cannot be changed."""
    stats = ps.DataLoader(Samples()).stats()

    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.batches = 1  # type: ignore[misc]  # wrong on purpose
