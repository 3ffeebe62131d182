"""The verdict of the last minutes: what is measured, and an estimate only where the figures carry one."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import penstock as ps
from penstock.loader import counters as counters_module
from penstock.loader import stats as stats_module
from penstock.loader.counters import LoaderCounters
from penstock.loader.faults import LeftOutLog
from penstock.loader.stats import EpochTime, LoaderRates, QueueStats
from penstock.system.system_files import SystemFiles
from penstock.trace import Trace
from penstock.workers.base import TaskResult
from tests.loader.fakes import Samples

S = 10**9
DOCTOR = "penstock doctor finds what would end it"


def make_rates(
    waited_s: float, *, busy_s: float, workers: int, cpu_s: float, epoch_s: float = 300.0, samples: int = 1000
) -> LoaderRates:
    """Five minutes in which workers were busy for ``busy_s`` together, four fifths of it with decoding."""
    return LoaderRates(
        seconds=300.0, batches=10, samples=samples, samples_per_s=samples / 300, nbytes_per_s=0.0,
        waiting=waited_s / 300, stages={"read": 0.2, "decode": 0.8},
        us_per_sample={"read": 0.2e6 * busy_s / 1000, "decode": 0.8e6 * busy_s / 1000},
        busy=dict.fromkeys(range(workers), busy_s / max(1, workers) / 300), queue=QueueStats(), all_batches=10,
        all_samples=samples, epoch_time=EpochTime(round(epoch_s * S), 0, round(cpu_s * S)),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "find_cores", lambda _files: 8)


def test_busy_workers_give_an_estimate() -> None:
    """Five busy workers and a loop that waits 38 % of its time: 5 / 0.62 = 8.06 cores, one more than there are."""
    rates = make_rates(114, busy_s=1500, workers=5, cpu_s=1500)

    assert rates.verdict == (
        "in the last 5 min the loop waited 38% of its time; decode is 80% of the work; "
        "an estimate: 1 more core would end it, with 9 workers"
    )


def test_workers_are_named_where_there_are_cores_for_them() -> None:
    """Two busy workers and half of the time: four would do."""
    rates = make_rates(150, busy_s=600, workers=2, cpu_s=590)

    assert rates.verdict.endswith("an estimate: 4 workers instead of 2 would end it")


def test_workers_that_share_cores_are_counted_by_processor_time() -> None:
    """16 workers on 8 cores are busy for 16 cores' time and compute for 8: that is what a sample costs."""
    rates = make_rates(150, busy_s=4800, workers=16, cpu_s=2400)

    assert rates.verdict.endswith("an estimate: 9 more cores would end it, with 17 workers")


@pytest.mark.parametrize(
    ("busy_s", "workers", "cpu_s", "waited_s"),
    [(1500, 5, 700, 114), (900, 5, 900, 114), (1500, 5, 0, 114), (1500, 5, 1500, 290), (0, 0, 0, 114)],
    ids=["waits for a disk or a lock", "idle workers", "no processor time", "an empty loop", "no times"],
)
def test_nothing_is_estimated_where_it_cannot_be_known(
    busy_s: float, workers: int, cpu_s: float, waited_s: float
) -> None:
    """What the loop waited, and the stage that costs most, are said; not what would end it."""
    verdict = make_rates(waited_s, busy_s=busy_s, workers=workers, cpu_s=cpu_s).verdict

    assert verdict.endswith(f"; {DOCTOR}")
    assert "estimate" not in verdict


def test_a_loader_without_workers_needs_one() -> None:
    """The loop builds the batches itself: its waiting is that work, which a worker would do meanwhile."""
    rates = make_rates(114, busy_s=110, workers=0, cpu_s=110)

    assert rates.verdict.endswith("an estimate: 1 worker instead of 0 would end it")


def test_a_loader_that_keeps_up_is_told_so() -> None:
    """Two in a hundred are no waiting."""
    rates = make_rates(3, busy_s=1500, workers=5, cpu_s=1500)

    assert rates.verdict == "in the last 5 min the loop waited 1% of its time: the loader keeps up"


def test_time_between_epochs_is_not_the_loops() -> None:
    """Of five minutes, one was an epoch."""
    rates = make_rates(30, busy_s=10, workers=1, cpu_s=10, epoch_s=60)

    assert rates.verdict.startswith("in the last 5 min the loop waited 50% of its time")


def test_nothing_is_said_of_nothing() -> None:
    """Before the first batch, where none came, and of seconds."""
    assert make_rates(114, busy_s=1500, workers=5, cpu_s=1500, samples=0).verdict == ""
    assert make_rates(2, busy_s=9, workers=1, cpu_s=9, epoch_s=9).verdict == ""
    assert ps.DataLoader(Samples()).stats().verdict == ""


class Clocks:
    """Times that the test sets, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        clock: Any = type("Clock", (), {"monotonic": time.monotonic})
        clock.perf_counter_ns = clock.process_time_ns = staticmethod(lambda: round(self.now_s * S))
        monkeypatch.setattr(counters_module, "time", clock)


def test_the_verdict_is_of_the_last_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes without a wait, then five in which half of the time is waited; then epochs end, and time passes."""
    clocks = Clocks(monkeypatch)
    counters, trace = LoaderCounters(LeftOutLog("raise", None, None)), Trace()
    counters.open(trace)

    for step in range(900):
        clocks.now_s += 1
        if step >= 600:
            trace.add("wait", S // 2)
        counters.count(TaskResult(0, batch=[1], rows=4))
    stats = counters.stats()
    counters.retire(trace)
    clocks.now_s += 100
    later = counters.stats()

    assert stats.verdict.startswith("in the last 5 min the loop waited 46% of its time")
    assert stats.earlier is not None
    assert stats.earlier.earlier is None
    assert stats.epoch_time == later.epoch_time == EpochTime(900 * S, 900 * S)
    assert len(counters._recent) == 11


def test_who_asks_changes_no_later_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that is asked each second says in the end what one says that is asked once."""
    clocks = Clocks(monkeypatch)
    asked, left_alone = (LoaderCounters(LeftOutLog("raise", None, None)) for _ in range(2))
    trace = Trace()
    ticks = {"1": 0}
    monkeypatch.setattr(
        SystemFiles, "read", lambda _files, path: f"1 (worker) {'0 ' * 11}{ticks[path.split('/')[2]]} 0"
    )
    for counters in (asked, left_alone):
        counters.open(trace)
        monkeypatch.setattr(counters, "list_worker_pids", lambda: [1])

    for second in range(900):
        clocks.now_s += 1
        ticks["1"] += os.sysconf("SC_CLK_TCK")
        trace.add("wait", S // 2 if second >= 600 else 0)
        asked.stats()
        if second % 10 == 9:
            asked.count(TaskResult(0, batch=[1], rows=4))
            left_alone.count(TaskResult(0, batch=[1], rows=4))
    kept = asked.stats().earlier, left_alone.stats().earlier
    for counters in (asked, left_alone):
        monkeypatch.setattr(counters, "list_worker_pids", list)  # its processes have ended

    assert kept[0] is not None
    assert kept[0].epoch_time == EpochTime(580 * S, 580 * S, 580 * S)  # one each 30 s, from the first batch on
    assert kept[0] == kept[1]
    assert asked.stats() == left_alone.stats()
    assert asked.stats().epoch_time == left_alone.stats().epoch_time
    assert asked.stats().verdict == left_alone.stats().verdict != ""


def test_epochs_that_overlap_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins while the last one ends, and a pause follows."""
    clocks = Clocks(monkeypatch)
    counters, first, second = LoaderCounters(LeftOutLog("raise", None, None)), Trace(), Trace()

    for trace, act in ((first, counters.open), (second, counters.open), (first, counters.retire)):
        act(trace)
        clocks.now_s += 10
    counters.retire(second)
    clocks.now_s += 50

    assert counters.stats().epoch_time.time_ns == 30 * S


def test_worker_processes_are_measured_and_stay_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their processor time is there when they have ended; the table ends with the verdict."""
    monkeypatch.setattr(stats_module, "_LEAST_S", 0.0)

    class Busy(Samples):
        def __getitem__(self, index: int) -> Any:
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass
            return index

    loader = ps.DataLoader(Busy(20), 5, num_workers=1, workers="processes")
    list(loader)
    stats = loader.stats()

    assert stats.epoch_time.worker_cpu_ns >= 20 * 0.02 * S - 2 * S / os.sysconf("SC_CLK_TCK")
    assert str(stats).endswith(f"\n\n{stats.verdict}")
    assert stats.verdict.startswith("in the last ")
