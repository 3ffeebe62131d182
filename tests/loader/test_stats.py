"""stats(): every nanosecond belongs to a stage, every sample is counted once."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.loader.counters import LoaderCounters, count_nbytes
from penstock.loader.faults import LeftOutLog
from penstock.loader.stats import QueueStats, Stats, WorkerStats, make_stages
from penstock.trace import STAGES, Trace, name_worker, stage
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
    assert loader._counters._spent.traces == ()


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

    lines = str(Stats(make_stages(total), 10, 1000, 500_000_000)).splitlines()

    assert lines[0] == "10 batches, 1000 samples; waited 0.500 s for them"
    assert [line.split()[0] for line in lines[3:]] == list(STAGES)
    assert lines[3].split() == ["read", "3.000", "s", "1000", "3000.0", "us", "75%"]
    assert lines[-1].split() == ["wait", "0.500", "s", "10", "50000.0", "us"]


def test_the_table_says_what_read_is_without_other_stages() -> None:
    """Of a dataset of one's own, it is all of ``dataset[index]``; one that marks its stages is understood."""
    times = dict.fromkeys(STAGES, (0, 0))
    own, marked = ({**times, "read": (100, 4), "augment": augment} for augment in ((0, 0), (50, 4)))

    assert "\nread: all of dataset[index]" in str(Stats(make_stages(own), 1, 4, 0))
    assert "dataset[index]" not in str(Stats(make_stages(marked), 1, 4, 0))


def test_statistics_are_frozen() -> None:
    """A snapshot cannot be changed."""
    stats = ps.DataLoader(Samples()).stats()

    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.batches = 1  # type: ignore[misc]  # wrong on purpose


@pytest.mark.parametrize(
    ("dataset", "kind"), [(Samples(32), "processes"), (Samples(32), "threads"), (Rows(32), "threads")]
)
def test_each_worker_is_counted_by_its_number(dataset: Any, kind: str) -> None:
    """What the workers have done adds up to the whole, also over two epochs; the consumer's own part is that of -1."""
    loader = ps.DataLoader(dataset, 4, num_workers=2, workers=kind, seed=0)
    epoch(loader)
    epoch(loader)

    stats = loader.stats()

    numbers = [worker.worker for worker in stats.workers]
    assert numbers[0] == -1
    assert set(numbers[1:]) <= {0, 1}
    for at, name in enumerate(STAGES):
        assert sum(worker.stages[at].time_ns for worker in stats.workers) == stats[name].time_ns
        assert sum(worker.stages[at].items for worker in stats.workers) == stats[name].items
    if kind == "processes":
        assert [worker.batches for worker in stats.workers] == [0, 8, 8]
        assert [worker.samples for worker in stats.workers] == [0, 32, 32]
        assert all(worker.time_ns > 0 for worker in stats.workers[1:])


def test_bytes_are_those_of_the_arrays() -> None:
    """Each sample of `Rows` has 6 numbers of 4 bytes and 2 of 8."""
    loader = ps.DataLoader(Rows(20), 8)
    epoch(loader)

    stats = loader.stats()

    assert stats.sample_nbytes == 40
    assert stats.nbytes == 800


def test_bytes_of_any_batch_can_be_asked_for() -> None:
    """Containers are looked into, text counts, objects of the user are not asked, and the work is bounded."""

    class Own:
        @property
        def nbytes(self) -> int:
            raise AssertionError

    array = np.zeros(10, np.int16)
    batch = {"a": [array, (array, b"abc")], "b": "text", "c": Own(), "d": None, "e": 5}

    assert count_nbytes(batch) == 20 + 20 + 3 + 4
    assert count_nbytes([array] * 1000) == 255 * 20
    assert count_nbytes([[[]]] * 1000) == 0


def wait_for(condition: Any) -> None:
    """Wait until it is true; the test's own time limit ends this."""
    while not condition():
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_queue_is_what_is_ready_now(kind: str) -> None:
    """Before the first batch is taken all of the limit becomes ready; after the last one nothing is iterated."""
    loader = ps.DataLoader(Samples(40), 4, num_workers=2, prefetch_factor=2, workers=kind)
    walk = iter(loader)
    wait_for(lambda: loader.stats().queue.ready == 4)
    full = loader.stats().queue
    next(walk)
    taken = loader.stats().queue
    list(walk)

    assert full == QueueStats(ready=4, under_way=4, limit=4)
    assert taken.limit == 4
    assert loader.stats().queue == QueueStats()


def test_a_serial_loader_has_nothing_ready() -> None:
    """A batch is built when it is asked for."""
    loader = ps.DataLoader(Samples(20), 5)
    walk = iter(loader)
    next(walk)

    assert loader.stats().queue == QueueStats(ready=0, under_way=0, limit=1)


def test_rates_are_differences_of_two_snapshots() -> None:
    """Samples and waiting per second, work per sample and worker, between two known moments."""
    none = dict.fromkeys(STAGES, (0, 0))
    first = none | {"read": (1_000_000, 10), "wait": (0, 0)}
    second = none | {"read": (4_000_000, 40), "decode": (1_000_000, 30), "wait": (500_000_000, 3)}
    before = Stats(make_stages(first), 1, 10, 0, workers=(WorkerStats(0, make_stages(first)),))
    queue = QueueStats(1, 2, 4)
    workers = WorkerStats(-1, make_stages(none)), WorkerStats(0, make_stages(second))
    after = Stats(make_stages(second), 4, 40, 500_000_000, 0, 0, workers, 7.0, queue, taken_ns=2_000_000_000)

    rates = after.since(before)

    assert (rates.seconds, rates.batches, rates.samples, rates.all_batches, rates.all_samples) == (2.0, 3, 30, 4, 40)
    assert (rates.samples_per_s, rates.nbytes_per_s, rates.waiting) == (15.0, 105.0, 0.25)
    assert {name: share for name, share in rates.stages.items() if share} == {"read": 0.75, "decode": 0.25}
    assert rates.us_per_sample["read"] == 100.0
    assert rates.busy == {0: 0.002}
    assert str(rates) == "15 samples/s, waiting 25%, read 75% decode 25%, 1 of 4 ready"


def test_a_thread_is_counted_as_the_worker_that_it_says_it_is() -> None:
    """Threads that say nothing are the consumer's; a worker process's times come with its number."""
    trace = Trace()

    def work() -> None:
        name_worker(3)
        trace.add("read", 5, 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    trace.add("wait", 7)
    trace.add_all([(1, 2)] * len(STAGES), {}, worker=4)
    trace.add_all([(1, 2)] * len(STAGES), {}, worker=4)

    found = trace.total_by_worker()

    assert list(found) == [-1, 3, 4]
    assert (found[-1]["wait"], found[3]["read"], found[4]["decode"]) == ((7, 1), (5, 1), (2, 4))
    assert trace.total()["read"] == (7, 5)


class _Queue:
    """An iterator, as far as the counters look at it."""

    epoch: Any = None
    backend: Any = None

    def queue(self) -> QueueStats:
        return QueueStats(1, 2, 3)


def test_statistics_are_read_while_iterators_begin_and_end() -> None:
    """By a thread that reports them, for example: what it goes through is not changed under its hands."""
    counters = LoaderCounters(LeftOutLog("raise", None, None))
    kept: list[_Queue] = []

    class Begins(_Queue):
        """While it is asked, another iterator begins."""

        def queue(self) -> QueueStats:
            kept.append(_Queue())
            counters.watch(kept[-1])
            return super().queue()

    first = [Begins() for _ in range(3)]
    for iterator in first:
        counters.watch(iterator)
    before = counters.stats()
    del first, iterator
    gc.collect()

    assert before.queue == QueueStats(3, 6, 9)
    assert counters.stats().queue == QueueStats(3, 6, 9)  # those three that began
    assert len(kept) == 3


def test_nothing_is_missing_while_an_epoch_ends() -> None:
    """Whoever asks in that moment, such as a server of metrics, finds counters that only grow."""
    counters, seen = LoaderCounters(LeftOutLog("raise", None, None)), list[int]()

    class Asked(Trace):
        """While it is added up, another thread asks."""

        def remote(self, *, take: bool = False) -> dict[str, int]:
            if not seen:
                seen.append(0)
                seen.append(counters.stats()["read"].time_ns)
            return super().remote(take=take)

    trace = counters.open(Asked())
    trace.add("read", 5)
    counters.retire(trace)

    assert seen == [0, 5]
    assert counters.stats()["read"].time_ns == 5
